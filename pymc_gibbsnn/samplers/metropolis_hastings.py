"""The skeleton that pCN, pCNL and MALA share: propose, accept or reject, and tune the step size."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal, uniform

from pymc_gibbsnn._arguments import number
from pymc_gibbsnn._compat import draw
from pymc_gibbsnn.moves.tuning import robbins_monro
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.target import Place, Target

__all__ = ["check_beta", "metropolis_hastings", "standard_normals"]

TUNE_STEPS = 1000
STATS = ["lp", "acceptance_rate", "accepted", "step_size"]


def metropolis_hastings(
    target: Target,
    propose: Callable,
    *,
    step_size: float | None,
    start: float,
    target_acceptance: float,
    largest: float = math.inf,
    with_gradient: bool = False,
    memory: dict[str, Variable] | None = None,
) -> Transition:
    """Proposals accepted or rejected, with their step size tuned and ℓ of the current place remembered within a turn.

    Parameters
    ----------
    target : Target
    propose : callable
        ``propose(rng, u, step_size, evaluate, memory) -> (rng, v, log ratio, accepted memory, rejected memory)`` for
        places u and v; ``evaluate`` makes a place of a position.
    step_size : float, optional
        None tunes it during the tuning steps.
    start, target_acceptance : float
        From what and to which acceptance it is tuned.
    largest : float
        What a tuned step size never exceeds.
    with_gradient : bool
        Whether places hold gradients.
    memory : dict of str to Variable, optional
        What else the sampler carries, at the start of a chain.

    Returns
    -------
    Transition
        Its statistics: ``lp``, log density; ``acceptance_rate``, the probability with which the last proposal was
        accepted; ``accepted``, 0 or 1; ``step_size``.
    """
    memory = memory or {}
    floatx = pytensor.config.floatX
    slopes = {f"gradient_{name}": x for name, x in target.coordinates.items()} if with_gradient else {}
    carry = target.constants | target.coordinates | slopes | memory | {"log_likelihood": pt.zeros((), dtype=floatx)}
    if step_size is None:
        carry["log_step"] = pt.constant(np.asarray(math.log(start), floatx))
        carry["tuned"] = pt.zeros((), dtype=floatx)

    def remember(place: Place) -> dict[str, Variable]:
        names = [*target.coordinates, *slopes, "log_likelihood"]
        values = [*place.position, *place.gradient, place.log_likelihood]
        return {name: pt.cast(x, floatx) for name, x in zip(names, values, strict=True)}

    def begin(state: dict, carry: dict) -> dict:
        constants = _part(carry, target.constants)
        return remember(target.place(target.locate(state, constants), constants, with_gradient))

    def step(rng: Variable, state: dict, carry: dict, tuning: Variable) -> tuple[Variable, dict, dict, dict]:
        constants = _part(carry, target.constants)
        u = Place(
            list(_part(carry, target.coordinates).values()),
            carry["log_likelihood"],
            list(_part(carry, slopes).values()),
        )
        size = pt.constant(step_size, dtype=floatx) if step_size is not None else pt.exp(carry["log_step"])
        rng, v, log_ratio, moved, stayed = propose(
            rng, u, size, lambda position: target.place(position, constants, with_gradient), _part(carry, memory)
        )
        log_ratio = pt.switch(pt.isnan(log_ratio), -np.inf, log_ratio)
        zero, one = pt.constant(np.array([0, 1], floatx))
        rng, uniform_ = draw(uniform, rng, zero, one, size=(1,))
        accept = pt.log1p(-uniform_[0]) < log_ratio
        acceptance = pt.exp(pt.minimum(log_ratio, 0))
        before, after = remember(u) | stayed, remember(v) | moved
        new = {name: pt.switch(accept, after[name], before[name]) for name in after}
        position = [new[name] for name in target.coordinates]
        lp = new["log_likelihood"] + target.log_prior(position, constants)
        stats = dict(zip(STATS, [lp, acceptance, pt.cast(accept, floatx), size], strict=True))
        if step_size is None:
            count = carry["tuned"] + 1
            log_step = robbins_monro(carry["log_step"], count, acceptance, target_acceptance, tuning, math.log(largest))
            new |= {"log_step": log_step, "tuned": count}
        return rng, {}, new, stats

    def record(rng: Variable, state: dict, carry: dict) -> tuple[Variable, dict]:
        position = list(_part(carry, target.coordinates).values())
        return target.draw(rng, position, _part(carry, target.constants))

    tune_steps = TUNE_STEPS if step_size is None else 0
    return Transition(target.variables, step, carry, STATS, tune_steps=tune_steps, begin=begin, record=record)


def _part(carry: dict[str, Variable], like: dict[str, Variable]) -> dict[str, Variable]:
    return {name: carry[name] for name in like}


def standard_normals(rng: Variable, like: list[Variable]) -> tuple[Variable, list[Variable]]:
    """Independent standard normals in the shapes of some arrays."""
    zero, one = pt.constant(np.array([0, 1], pytensor.config.floatX))
    draws = []
    for x in like:
        rng, xi = draw(normal, rng, zero, one, size=x.shape)
        draws.append(xi)
    return rng, draws


def check_beta(beta: float | None) -> None:
    """Refuse what is no step of a Crank-Nicolson proposal."""
    if beta is not None:
        number("beta", beta, "a number in (0, 1], or None to be tuned", lambda x: 0 < x <= 1)

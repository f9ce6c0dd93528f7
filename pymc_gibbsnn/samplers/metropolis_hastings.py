"""The skeleton that pCN, pCNL and MALA share: propose, accept or reject, and tune the step size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import uniform

from pymc_gibbsnn._arguments import number
from pymc_gibbsnn._robbins_monro import robbins_monro
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.given import given
from pymc_gibbsnn.random.standard_normal import standard_normal
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
    """Make the transition of a Metropolis-Hastings sampler from its proposal.

    It accepts or rejects proposals, tunes their step size, and remembers ℓ of the current place, so that ℓ is evaluated
    once in a step.

    Parameters
    ----------
    target : Target
        What is moved, and its density.
    propose : callable
        ``propose(rng, u, step_size, evaluate, memory) -> (rng, v, log_ratio, accepted, rejected)``. Given the current
        place u, it proposes a place v; ``evaluate`` makes a place of a position. ``log_ratio`` is the logarithm of the
        Metropolis-Hastings ratio; ``accepted`` and ``rejected`` are what ``memory`` becomes in either case.
    step_size : float, optional
        The step size; None tunes it during the tuning steps.
    start, target_acceptance : float
        The step size with which tuning begins, and the acceptance probability to which it leads.
    largest : float
        The largest step size to which tuning may lead.
    with_gradient : bool
        Whether places hold gradients.
    memory : dict of str to Variable, optional
        What else the sampler remembers from step to step, by name, with its values at the start of a chain, from which
        a chain in equilibrium must stay there.

    Returns
    -------
    Transition
        Its statistics are ``lp``, the log density, with the readout integrated out where the target does so;
        ``acceptance_rate``, the probability with which the last proposal
        was accepted; ``accepted``, 0 or 1; ``step_size``; and, on minibatches, ``exact``, which is 0.

    Notes
    -----
    On minibatches a step draws a batch and evaluates u and v on this batch alone. Each batch has a posterior of its
    own, which steps on that batch would leave invariant; steps on ever new batches leave none of them invariant. If
    steps are small, log ratios are small, and the drift of the chain is half the mean of the gradients over batches,
    which is the gradient for all rows; the distribution of the chain then tends to the posterior.
    """
    memory = memory or {}
    floatx = pytensor.config.floatX
    zero, one = pt.constant(np.array([0, 1], floatx))
    slopes = {f"gradient_{name}": x for name, x in target.coordinates.items()} if with_gradient else {}
    # On another batch ℓ is another function, so that remembering its value would be of no use.
    remembered = slopes | {"log_likelihood": pt.zeros((), dtype=floatx)} if target.batches is None else {}
    carry = target.start() | target.coordinates | memory | remembered
    if step_size is None:
        carry["log_step"] = pt.constant(np.asarray(math.log(start), floatx))
        carry["tuned"] = pt.zeros((), dtype=floatx)

    def numbers(place: Place) -> dict[str, Variable]:
        names = [*target.coordinates, *slopes, "log_likelihood"]
        values = [*place.position, *place.gradient, place.log_likelihood]
        return {name: pt.cast(x, floatx) for name, x in zip(names, values, strict=True)}

    def shaped(names: Iterable[str], carry: dict) -> list[Variable]:
        """Take arrays from the carry that have the shapes of the coordinates, which no program has to compare then."""
        pairs = zip(names, target.coordinates, strict=False)  # there may be no names
        return [pt.specify_shape(carry[name], carry[like].shape) for name, like in pairs]

    def begin(state: dict, carry: dict) -> dict:
        data = target.constant_data(carry)
        position = target.locate(state, data)
        if target.batches is None:
            return numbers(target.place(position, data, with_gradient))
        return {name: pt.cast(x, floatx) for name, x in zip(target.coordinates, position, strict=True)}

    def step(rng: Variable, state: dict, carry: dict, tuning: Variable) -> tuple[Variable, dict, dict, dict]:
        rng, data = target.draw_data(rng, carry)

        def evaluate(position: list[Variable]) -> Place:
            return target.place(position, data, with_gradient)

        position = [carry[name] for name in target.coordinates]
        if target.batches is None:
            u = Place(position, carry["log_likelihood"], shaped(slopes, carry))
        else:
            u = evaluate(position)
        size = pt.exp(carry["log_step"]) if step_size is None else given(np.asarray(step_size, floatx))
        remembers = dict(zip(memory, shaped(memory, carry), strict=True))
        rng, v, log_ratio, moved, stayed = propose(rng, u, size, evaluate, remembers)
        log_ratio = pt.switch(pt.isnan(log_ratio), -np.inf, log_ratio)
        rng, uniform_ = draw(uniform, rng, zero, one, size=(1,))
        accept = pt.log1p(-uniform_[0]) < log_ratio
        acceptance = pt.exp(pt.minimum(log_ratio, 0))
        before, after = numbers(u) | stayed, numbers(v) | moved
        new = {name: pt.switch(accept, after[name], before[name]) for name in after}
        lp = new["log_likelihood"] + target.log_prior([new[name] for name in target.coordinates], data)
        stats = dict(zip(STATS, [lp, acceptance, pt.cast(accept, floatx), size], strict=True))
        stats |= {} if target.batches is None else {"exact": zero}
        new = {name: x for name, x in new.items() if name in carry}
        if step_size is None:
            count = carry["tuned"] + 1
            log_step = robbins_monro(carry["log_step"], count, acceptance, target_acceptance, tuning, math.log(largest))
            new |= {"log_step": log_step, "tuned": count}
        return rng, {}, new, stats

    def record(rng: Variable, state: dict, carry: dict) -> tuple[Variable, dict]:
        return target.draw(rng, [carry[name] for name in target.coordinates], target.constant_data(carry))

    tune_steps = TUNE_STEPS if step_size is None else 0
    names = STATS if target.batches is None else [*STATS, "exact"]
    tuned = {"log_step": "step_size"} if step_size is None else {}
    return Transition(
        target.variables, step, carry, names, target.check, tune_steps, begin=begin, record=record, tuned=tuned
    )


def standard_normals(rng: Variable, like: list[Variable]) -> tuple[Variable, list[Variable]]:
    """Draw independent standard normals in the shapes of some arrays; return the next generator and the draws."""
    zero, one = pt.constant(np.array([0, 1], pytensor.config.floatX))
    draws = []
    for x in like:
        rng, xi = draw(standard_normal, rng, zero, one, size=x.shape)
        draws.append(xi)
    return rng, draws


def check_beta(beta: float | None) -> None:
    """Raise an error for a β that is no step size of a Crank-Nicolson proposal: it must lie in (0, 1]."""
    if beta is not None:
        number("beta", beta, "a number in (0, 1], or None to be tuned", lambda x: 0 < x <= 1)

r"""What SGLD, SGHMC, I-SGD and constant SGD share: steps by gradients of batches, and how a chain tunes.

The potential is f = −log p(θ, y). Its gradient g on a batch of N_b of the N rows, drawn anew at each step, has the
likelihood scaled by N/N_b, so that E g = ∇f. Nothing is accepted or rejected. While a chain tunes, it is first *fitted*
by the optimiser Adam [1]_; then it *learns* what its sampler needs to know about the gradients; and then it *settles*,
moving as it will move afterwards:

    share of the tuning still to come     1 ......... 1/2 ......... 1/4 ......... 0
                                            fitted        learns        settles

With a control variate θ̂, a point at which the gradient ∇f(θ̂) on all rows is known, g = ∇f(θ̂) + g(θ) − g(θ̂), with both
gradients on the same batch [2]_. The closer θ is to θ̂, the less noise it has.

References
----------
.. [1] D. P. Kingma, J. Ba. Adam: a method for stochastic optimization. ICLR (2015).
.. [2] J. Baker, P. Fearnhead, E. B. Fox, C. Nemeth. Control variates for stochastic gradient MCMC. Statistics and
   Computing 29 (2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import one_of, positive
from pymc_gibbsnn.samplers.full_gradient import control_variate
from pymc_gibbsnn.samplers.gradient_noise import zeros
from pymc_gibbsnn.samplers.metropolis_hastings import standard_normals
from pymc_gibbsnn.samplers.step_sizes import Schedule
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.target import Target

__all__ = ["Phases", "check_temperature", "phases_from", "stochastic_gradient"]

TUNE_STEPS = 2000
FITTED, LEARNED = 0.5, 0.25  # the shares of the tuning still to come where these phases end
RATE, LAST_RATE = 0.02, 0.001  # of Adam, at its start and from the end of the first phase on
MANY_TIMES = 1e19  # numbers are taken so many times in the total that shows if all are finite: it overflows before them
JITTER = 0.1  # standard deviation of what Adam starts from in the place of zeros
DIVERGED = (
    "The sampler has diverged: take a smaller step size or temperature, smaller batches, or inputs of the order of one"
)
UNLEARNED = "or what it learns from gradients is not known, for which it needs more tuning draws"

Arrays = list[Variable]


@dataclass(frozen=True)
class Phases:
    """When the phases of tuning begin and end, by the share r of the tuning that is still to come.

    Attributes
    ----------
    train : float
        Adam trains the chain while r is larger than this.
    learn : float
        The sampler learns while r is at most this and larger than 1/4.
    move : float
        The sampler moves the chain once r is at most this.
    """

    train: float
    learn: float
    move: float


def phases_from(start: str | None) -> Phases:
    """Return the phases of a sampler that moves while it learns; ``start`` says whether it is fitted before.

    Raises
    ------
    ValueError
        If ``start`` is neither "adam" nor None.
    """
    fitted = FITTED if one_of("start", start, ("adam", None)) else 1.0
    return Phases(train=fitted, learn=fitted, move=fitted)


def check_temperature(temperature: float) -> float:
    """Return the temperature T, which must be positive."""
    return positive("temperature", temperature)


def stochastic_gradient(
    target: Target,
    update: Callable,
    *,
    stats: list[str],
    phases: Phases,
    has_velocity: bool = False,
    learned: dict[str, Variable] | None = None,
    learn: Callable | None = None,
    schedule: Schedule | None = None,
    control_variates: Mapping[str, ArrayLike] | None = None,
) -> Transition:
    """Make the transition of a sampler that follows gradients of batches.

    Parameters
    ----------
    target : Target
        What is moved, and its density.
    update : callable
        ``update(rng, θ, g, kept, factor, quiet) -> (rng, θ' − θ, stats)``, a step of the sampler. ``kept`` holds what
        it has learned and its velocity, ``factor`` is ε_k/ε of the schedule, and while ``quiet`` is true no noise is
        injected (None stands for never).
    stats : list of str
        The names of its statistics. Before these come ``lp``, the log density on the batch of the last step, at the
        place before that step, and ``exact``, which is 0.
    phases : Phases
        When the chain is fitted, learns and moves.
    has_velocity : bool
        Whether the sampler remembers its last step θ' − θ, as ``velocity_`` of each coordinate, which is 0 when it
        begins to move.
    learned : dict of str to Variable, optional
        What the sampler learns while the chain tunes, with its values at the start of a chain. ``rate`` among them is a
        scalar or vector, which is 0 as long as nothing is known.
    learn : callable, optional
        ``learn(g, kept, count) -> learned'``, where ``count`` is the number of gradients so far, this one included.
    schedule : callable, optional
        How the step size changes after tuning; see :mod:`pymc_gibbsnn.samplers.step_sizes`.
    control_variates : mapping of str to array, optional
        θ̂ by the names of the target's variables.

    Returns
    -------
    Transition
    """
    learned = learned or {}
    velocity = zeros("velocity", target.coordinates) if has_velocity else {}
    floatx = pytensor.config.floatX
    nothing = pt.zeros((), dtype=floatx)
    trains, names = phases.train < 1, list(target.coordinates)
    gradients = {f"gradient_{name}": x for name, x in target.coordinates.items()} if trains or learn else {}
    adam = {f"adam_{moment}_{name}": x for moment in (1, 2) for name, x in target.coordinates.items()}
    adam = adam | {"fitted": nothing} if trains else {}
    counts = {"gradients_seen": nothing} if learn else {}
    counts |= {"steps_made": nothing} if schedule else {}
    gradient_of_batch, of_control = (plain_gradient, {})
    if control_variates is not None:
        gradient_of_batch, of_control = control_variate(target, control_variates)

    def step(rng: Variable, state: dict, carry: dict, tuning: Variable) -> tuple[Variable, dict, dict, dict]:
        rng, data = target.draw_data(rng, carry)
        theta = target.locate(state, data)
        log_density, g = gradient_of_batch(target, theta, data, carry)
        factor, quiet = schedule(carry["steps_made"]) if schedule else (1, None)
        kept = {name: carry[name] for name in [*velocity, *learned]}
        if learn:  # what has not been learned when the tuning is over will never be known
            known = carry["gradients_seen"] > 1
            if "rate" in kept:
                known = pt.and_(known, pt.all(kept["rate"] > 0))
            factor = pt.switch(pt.or_(tuning > 0, known), factor, np.nan)
        rng, change, new_stats = update(rng, theta, g, kept, factor, quiet)
        if phases.move < 1 or learned:
            change = [pt.switch(tuning <= phases.move, x, 0) for x in change]
        moved = [x + y for x, y in zip(theta, change, strict=True)]
        # It stays where it was last finite, for good: densities need not be defined elsewhere. Of θ' and the velocity,
        # that one is looked at which JAX's compiler stores in any case.
        total = sum(map(total_of, change if has_velocity else moved))
        stopped = pt.or_(carry["stopped"] > 0, pt.or_(pt.isnan(total), pt.isinf(total)))
        moved = [pt.switch(stopped, old, new) for new, old in zip(moved, theta, strict=True)]
        lp = log_density + target.log_prior(theta, data)
        new_stats = {"lp": pt.switch(stopped, np.nan, lp), "exact": nothing} | new_stats
        new = {"stopped": stopped} | dict(zip(velocity, change, strict=False)) | dict(zip(gradients, g, strict=False))
        if schedule:
            new["steps_made"] = carry["steps_made"] + pt.cast(tuning <= 0, floatx)
        rng, state = target.draw(rng, cast_as(moved, theta), data)
        return rng, state, {name: pt.cast(x, floatx) for name, x in new.items()}, new_stats

    def tune(rng: Variable, state: dict, carry: dict, tuning: Variable) -> tuple[Variable | None, dict, dict]:
        g, new = [carry[name] for name in gradients], {}
        if learn:
            learning = pt.and_(tuning <= phases.learn, tuning > LEARNED)
            count = carry["gradients_seen"] + 1
            changed = learn(g, {name: carry[name] for name in learned}, count) | {"gradients_seen": count}
            new |= {name: pt.switch(learning, x, carry[name]) for name, x in changed.items()}
        if trains:
            data, training = target.constant_data(carry), tuning > phases.train
            theta = target.locate(state, data)
            rng, moved, moments = train(rng, theta, g, {name: carry[name] for name in adam}, names, tuning)
            moved = [pt.switch(training, after, before) for after, before in zip(moved, theta, strict=True)]
            new |= {name: pt.switch(training, x, carry[name]) for name, x in moments.items()}
            rng, state = target.draw(rng, cast_as(moved, theta), data)
        else:
            rng, state = None, {}
        return rng, state, {name: pt.cast(x, floatx) for name, x in new.items()}

    return Transition(
        target.variables,
        step,
        target.start() | {"stopped": nothing} | of_control | velocity | learned | gradients | adam | counts,
        ["lp", "exact", *stats],
        target.check,
        TUNE_STEPS if gradients else 0,
        tune=tune if gradients else None,
        tuned=dict.fromkeys([*velocity, *learned, *counts]),
        advice=f"{DIVERGED}; {UNLEARNED}" if learn else DIVERGED,
    )


def total_of(x: Variable) -> Variable:
    """Add up an array many times, so that the total is finite only if all numbers are, and far from the largest ones.

    A matrix is added up by a product, because JAX's compiler adds the numbers of a sum one after the other.
    """
    x = x if x.ndim == 2 else x.ravel()
    return pt.dot(x, pt.full(x.shape[-1:], MANY_TIMES, dtype=x.dtype)).sum()


def plain_gradient(target: Target, theta: Arrays, data: dict, carry: dict) -> tuple[Variable, Arrays]:
    """Compute ℓ and the gradient g of f on the batch of a step.

    Parameters
    ----------
    target : Target
        The target.
    theta : list of Variable
        The coordinates.
    data, carry : dict of str to Variable
        The data of the step, and the carry, which other gradients need.

    Returns
    -------
    log_likelihood : Variable
    g : list of Variable
    """
    place = target.place(theta, data, with_gradient=True)
    return place.log_likelihood, [-x for x in place.gradient]


def train(rng: Variable, theta: Arrays, g: Arrays, kept: dict, names: list[str], tuning: Variable):
    """Make a step of Adam, whose rate falls by a cosine while the chain is fitted.

    A network whose weights are all zero has no gradient, so that at the first step small random numbers take the place
    of zeros.

    Parameters
    ----------
    rng : Variable
        The random generator.
    theta, g : list of Variable
        The coordinates and the gradient.
    kept : dict of str to Variable
        The moments of the gradient that Adam remembers, and the number of its steps.
    names : list of str
        The names of the coordinates.
    tuning : Variable
        The share of the tuning that is still to come.

    Returns
    -------
    rng : Variable
    theta : list of Variable
    moments : dict of str to Variable
        ``kept`` after the step.
    """
    count = kept["fitted"] + 1
    rate = LAST_RATE + (RATE - LAST_RATE) * (1 + pt.cos(math.pi * pt.minimum((1 - tuning) / (1 - FITTED), 1))) / 2
    rng, xi = standard_normals(rng, theta)
    moved, moments = [], {"fitted": count}
    for x, slope, noise, name in zip(theta, g, xi, names, strict=True):
        m = 0.9 * kept[f"adam_1_{name}"] + 0.1 * slope
        v = 0.999 * kept[f"adam_2_{name}"] + 0.001 * slope**2
        downhill = rate * (m / (1 - 0.9**count)) / (pt.sqrt(v / (1 - 0.999**count)) + 1e-8)
        start = pt.and_(pt.eq(x, 0), pt.eq(count, 1))
        moved.append(pt.switch(start, JITTER * noise, x - downhill))
        moments |= {f"adam_1_{name}": m, f"adam_2_{name}": v}
    return rng, moved, moments


def cast_as(values: Arrays, like: Arrays) -> Arrays:
    """Return values in the data types of others."""
    return [pt.cast(x, y.dtype) for x, y in zip(values, like, strict=True)]

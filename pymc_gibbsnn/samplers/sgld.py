r"""Stochastic-gradient Langevin dynamics (SGLD) [1]_. A step is

    θ ← θ − ε P g + sqrt(2 ε T P) n,   n ~ N(0, I),

where g is the gradient of f = −log π on a batch, T a temperature (the target is π^(1/T)), and P the identity or,
preconditioned [2]_, the diagonal sqrt(mean V / V) of the second moments V = E g² of the gradients, which are learned
while the chain tunes and fixed afterwards. A fixed P leaves the target as it is.

What it samples: on a quadratic f with curvature H, and with the covariance 2B of the gradient's noise, in one dimension
and with P = 1, the variance of draws is T/H times (1 + ε B/T)/(1 − ε H/2). To first order in ε the factor is
1 + ε E g²/2 at T = 1. A step size that is learned makes it 1.1 in the direction in which gradients are largest, and
less in all others.

References
----------
.. [1] M. Welling, Y. W. Teh. Bayesian learning via stochastic gradient Langevin dynamics. ICML (2011).
.. [2] C. Li, C. Chen, D. Carlson, L. Carin. Preconditioned stochastic gradient Langevin dynamics for deep neural
   networks. AAAI (2016).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import boolean, positive
from pymc_gibbsnn.samplers.gradient_noise import grown, learn_preconditioner, learn_top, start_top, zeros
from pymc_gibbsnn.samplers.metropolis_hastings import standard_normals
from pymc_gibbsnn.samplers.step_sizes import step_sizes
from pymc_gibbsnn.samplers.stochastic_gradient import check_temperature, phases_from, stochastic_gradient
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.target import Target

__all__ = ["sgld"]

ERROR = 0.1  # the relative error of the variance, to first order, that a learned step size allows
CYCLE_ERROR = 1.0  # that error at the start of a cycle
FIRST = 1e-6  # the step size with which a learned one begins


def sgld(
    target: Target,
    *,
    step_size: float | None = None,
    preconditioned: bool = False,
    temperature: float = 1.0,
    decay: Sequence[float] | None = None,
    cycle: int | None = None,
    control_variates: Mapping[str, ArrayLike] | None = None,
    start: str | None = "adam",
) -> Transition:
    """Make the transition of SGLD on a target.

    Parameters
    ----------
    target : Target
        What is moved, and its density.
    step_size : float, optional
        ε, positive, in squared units of the coordinates; None learns it while the chain tunes.
    preconditioned : bool
        Whether P is learned.
    temperature : float
        T, positive.
    decay, cycle
        How the step size changes after tuning; see :mod:`pymc_gibbsnn.samplers.step_sizes`.
    control_variates : mapping of str to array, optional
        A fitted point θ̂, by the names of variables; see :mod:`pymc_gibbsnn.samplers.stochastic_gradient`.
    start : {"adam", None}
        Whether the chain is fitted first, while it tunes.

    Returns
    -------
    Transition
        Its statistics are ``lp``; ``exact``, which is 0; ``step_size`` (ε_k); and with a cycle ``exploring``, which is
        1 while no noise is injected.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type than asked for, or out of range.
    """
    T, schedule, names = check_temperature(temperature), step_sizes(decay, cycle), list(target.coordinates)
    preconditioned, learned = boolean("preconditioned", preconditioned), {}
    if step_size is None:
        learned |= {"rate": pt.zeros((), dtype=pytensor.config.floatX)} | start_top("gradient", target.coordinates)
    else:
        positive("step_size", step_size, ", or None to be learned")
    if preconditioned:
        learned |= zeros("second_moment", target.coordinates) | zeros("preconditioner", target.coordinates)

    def learn(g, kept, count):
        changed = {}
        if preconditioned:
            scales, g = learn_preconditioner(names, g, kept, count)
            changed |= scales
        if step_size is None:
            changed |= learn_top("gradient", names, g, kept, count)
            rate = 2 * (CYCLE_ERROR if cycle else ERROR) / changed["top_gradient"]
            changed["rate"] = grown(rate, kept["rate"], count, FIRST)
        return changed

    def update(rng, theta, g, kept, factor, quiet):
        epsilon = factor * (kept["rate"] if step_size is None else step_size)
        P = [kept[f"preconditioner_{name}"] if preconditioned else 1 for name in names]
        rng, n = standard_normals(rng, theta)
        noise = 2 * epsilon * T * (1 if quiet is None else 1 - quiet)
        change = [pt.sqrt(noise * p) * xi - epsilon * p * slope for p, slope, xi in zip(P, g, n, strict=True)]
        stats = {"step_size": pt.as_tensor(epsilon)}
        return rng, change, stats | ({} if quiet is None else {"exploring": quiet})

    return stochastic_gradient(
        target,
        update,
        stats=["step_size"] + ["exploring"] * (cycle is not None),
        phases=phases_from(start),
        learned=learned,
        learn=learn if learned else None,
        schedule=schedule,
        control_variates=control_variates,
    )

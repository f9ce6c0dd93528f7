r"""Stochastic-gradient Hamiltonian Monte Carlo (SGHMC) [1]_, with the scales of the coordinates learned [2]_.

The mass is M = P⁻¹, the step size ε and the friction A. In terms of the velocity v = ε P r, where r is the momentum, of
the learning rate η = ε² P, and of the share α = ε A P of the velocity that friction takes in one step, a step is

    v ← (1 − α) v − η g + sqrt(2 η (α T − η b)) n,   n ~ N(0, I),
    θ ← θ + v.

where g is the gradient of f = −log π on a batch, T a temperature, and b half the variance of the gradient's noise,
which need not be injected. For P = 1 this is r ← r − ε g − ε A r + sqrt(2 ε (A T − B̂)) n, θ ← θ + ε r, with B̂ = ε b.
Adapted, P = sqrt(mean V / V) with the second moments V = E g² of the gradients. These and b are learned while the chain
tunes, and fixed afterwards; one setting then serves data sets of all sizes.

What it samples: if b is known, the variances of draws are too large by a share η H/4, of the order of 1e-3, where H is
the curvature of f. Gradient noise that the diagonal b does not account for adds to this.

References
----------
.. [1] T. Chen, E. B. Fox, C. Guestrin. Stochastic gradient Hamiltonian Monte Carlo. ICML (2014).
.. [2] J. T. Springenberg, A. Klein, S. Falkner, F. Hutter. Bayesian optimization with robust Bayesian neural networks.
   NeurIPS (2016).
"""

from __future__ import annotations

from collections.abc import Mapping

import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import boolean, number, positive
from pymc_gibbsnn.samplers.gradient_noise import grown, learn_noise, learn_preconditioner, learn_top, start_top, zeros
from pymc_gibbsnn.samplers.metropolis_hastings import standard_normals
from pymc_gibbsnn.samplers.step_sizes import step_sizes
from pymc_gibbsnn.samplers.stochastic_gradient import check_temperature, phases_from, stochastic_gradient
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.target import Target

__all__ = ["sghmc"]

NOISE = 0.25  # the largest share of the noise that comes from the gradient, by which a step size is learned
CYCLE_NOISE = 1.0  # that share at the start of a cycle
FIRST = 1e-6  # the ε² with which a learned step size begins


def sghmc(
    target: Target,
    *,
    step_size: float | None = None,
    friction: float = 0.05,
    noise_estimate: float | None = None,
    preconditioned: bool = True,
    temperature: float = 1.0,
    cycle: int | None = None,
    control_variates: Mapping[str, ArrayLike] | None = None,
    start: str | None = "adam",
) -> Transition:
    """Make the transition of SGHMC on a target.

    Parameters
    ----------
    target : Target
        What is moved, and its density.
    step_size : float, optional
        ε, positive; None learns it while the chain tunes.
    friction : float
        α, in (0, 1].
    noise_estimate : float, optional
        b of all coordinates, at least 0; None learns that of each coordinate while the chain tunes.
    preconditioned : bool
        Whether P is learned.
    temperature : float
        T, positive.
    cycle, control_variates, start
        As in :func:`~pymc_gibbsnn.samplers.sgld.sgld`.

    Returns
    -------
    Transition
        Its statistics are ``lp``; ``exact``, which is 0; ``step_size`` (ε); ``kinetic_temperature``, the mean of v²/η,
        which is T in equilibrium; ``clip_rate``, the share of coordinates whose gradient noise is more than friction
        allows, α T < η b, so that nothing is injected; and with a cycle ``exploring``.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type than asked for, or out of range.
    """
    T, schedule, names = check_temperature(temperature), step_sizes(None, cycle), list(target.coordinates)
    alpha = number("friction", friction, "the share of the velocity lost in a step, in (0, 1]", lambda x: 0 < x <= 1)
    preconditioned, learned = boolean("preconditioned", preconditioned), {}
    if step_size is None:
        learned |= {"rate": pt.zeros((), dtype=pytensor.config.floatX)} | start_top("gradient", target.coordinates)
    else:
        positive("step_size", step_size, ", or None to be learned")
    if noise_estimate is None:
        learned |= zeros("before", target.coordinates) | zeros("noise", target.coordinates)
    else:
        number("noise_estimate", noise_estimate, "at least 0, or None to be learned", lambda x: x >= 0)
    if preconditioned:
        learned |= zeros("second_moment", target.coordinates) | zeros("preconditioner", target.coordinates)

    def learn(g, kept, count):
        changed = {}
        if noise_estimate is None:
            changed |= learn_noise(names, g, kept, count)
        if preconditioned:
            scales, g = learn_preconditioner(names, g, kept, count)
            changed |= scales
        if step_size is None:
            changed |= learn_top("gradient", names, g, kept, count)
            rate = 2 * alpha * (CYCLE_NOISE if cycle else NOISE) / changed["top_gradient"]
            changed["rate"] = grown(rate, kept["rate"], count, FIRST)
        return changed

    def update(rng, theta, g, kept, factor, quiet):
        squared = pt.as_tensor(factor * (kept["rate"] if step_size is None else step_size**2))  # ε²
        rng, n = standard_normals(rng, theta)
        velocities, kinetic, clipped = [], 0, 0
        for slope, xi, name in zip(g, n, names, strict=True):
            eta = squared * (kept[f"preconditioner_{name}"] if preconditioned else 1)
            b = kept[f"noise_{name}"] if noise_estimate is None else noise_estimate
            noise = 2 * eta * (alpha * T - eta * b)
            sd = pt.sqrt(pt.maximum(noise, 0)) * (1 if quiet is None else 1 - quiet)
            v = (1 - alpha) * kept[f"velocity_{name}"] - eta * slope + sd * xi
            velocities.append(v)
            kinetic += pt.switch(eta > 0, v**2 / eta, 0).sum()
            clipped += pt.sum(pt.lt(noise, 0) + pt.zeros_like(v))
        size = sum(x.size for x in theta)
        stats = {"step_size": pt.sqrt(squared), "kinetic_temperature": kinetic / size, "clip_rate": clipped / size}
        return rng, velocities, stats | ({} if quiet is None else {"exploring": quiet})

    return stochastic_gradient(
        target,
        update,
        stats=["step_size", "kinetic_temperature", "clip_rate"] + ["exploring"] * (cycle is not None),
        phases=phases_from(start),
        has_velocity=True,
        learned=learned,
        learn=learn if learned else None,
        schedule=schedule,
        control_variates=control_variates,
    )

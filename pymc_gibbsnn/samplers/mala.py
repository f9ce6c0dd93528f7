r"""The Metropolis-adjusted Langevin algorithm, MALA, and its underdamped form with one leapfrog step.

The target is π(φ). One step of size ε starts from u with momentum m; α in (0, 1] is the share of the momentum that is
drawn anew:

    m₀ = sqrt(1 − α) m + sqrt(α) ξ,   ξ ~ N(0, I)
    m½ = m₀ + ε/2 ∇log π(u),   v = u + ε m½,   m₁ = m½ + ε/2 ∇log π(v),

which is accepted with probability min(1, exp(log π(v) − ‖m₁‖²/2 − log π(u) + ‖m₀‖²/2)). After a rejection the momentum
is flipped to −m₀ [2]_. The first step of a chain, before which m is 0, draws all of its momentum. With α = 1 this is
MALA [1]_: v = u + ε²/2 ∇log π(u) + ε ξ with the Metropolis-Hastings ratio of that proposal.

The step size is tuned to the acceptance that is best for MALA in many dimensions [1]_. Kept momentum needs a higher
one, since after a rejection the chain goes back where it came from; the less is drawn anew, the higher is the best
acceptance, and 0.9 is a compromise (``benchmarks/kept_momentum.py``).

References
----------
.. [1] G. O. Roberts, J. S. Rosenthal. Optimal scaling of discrete approximations to Langevin diffusions. JRSSB 60
   (1998).
.. [2] A. M. Horowitz. A generalized guided Monte Carlo algorithm. Physics Letters B 268 (1991).
"""

from __future__ import annotations

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_gibbsnn._arguments import number, positive
from pymc_gibbsnn.samplers.metropolis_hastings import metropolis_hastings, standard_normals
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.target import Place, Target

__all__ = ["mala"]

TARGET_ACCEPTANCE, WITH_KEPT_MOMENTUM = 0.574, 0.9


def mala(target: Target, *, step_size: float | None = None, momentum_refresh: float = 1.0) -> Transition:
    """Make the transition of MALA, or of its underdamped form, on a target that is whitened or not.

    Parameters
    ----------
    target : Target
        What is moved, and its density.
    step_size : float, optional
        ε, positive, in the units of the coordinates; None tunes it to an acceptance of 0.574, or of 0.9 if α < 1.
    momentum_refresh : float
        α, in (0, 1].

    Returns
    -------
    Transition
        It has the statistics of :func:`~pymc_gibbsnn.samplers.metropolis_hastings.metropolis_hastings`.

    Raises
    ------
    TypeError
        If an argument is no number.
    ValueError
        If the step size is not positive, or α not in (0, 1].
    """
    if step_size is not None:
        positive("step_size", step_size, ", or None to be tuned")
    share = "the share of the momentum that is new, in (0, 1]"
    number("momentum_refresh", momentum_refresh, share, lambda x: 0 < x <= 1)
    names = {f"momentum_{name}": x for name, x in target.coordinates.items()} if momentum_refresh < 1 else {}

    def propose(rng, u, step_size, evaluate, memory):
        rng, momentum = standard_normals(rng, u.position)
        if momentum_refresh < 1:
            one, alpha = pt.constant(np.array([1, momentum_refresh], pytensor.config.floatX))
            begins = pt.eq(sum((m**2).sum() for m in memory.values()), 0)
            share = pt.switch(begins, one, alpha)
            momentum = [
                pt.sqrt(1 - share) * m + pt.sqrt(share) * xi for m, xi in zip(memory.values(), momentum, strict=True)
            ]
        half = [m + step_size / 2 * g for m, g in zip(momentum, slope(u), strict=True)]
        v = evaluate([x + step_size * m for x, m in zip(u.position, half, strict=True)])
        end = [m + step_size / 2 * g for m, g in zip(half, slope(v), strict=True)]
        log_ratio = (
            log_density(v)
            - log_density(u)
            + sum(((m**2).sum() - (m_end**2).sum()) / 2 for m, m_end in zip(momentum, end, strict=True))
        )
        # Where all of the momentum is drawn anew, ``names`` is empty and nothing is remembered.
        moved, stayed = (dict(zip(names, m, strict=False)) for m in (end, [-m for m in momentum]))
        return rng, v, log_ratio, moved, stayed

    def slope(place: Place):
        """Compute ∇log π."""
        if not target.whitened:
            return place.gradient
        return [g - x for g, x in zip(place.gradient, place.position, strict=True)]

    def log_density(place: Place):
        """Compute log π up to a constant."""
        if not target.whitened:
            return place.log_likelihood
        return sum((-(x**2).sum() / 2 for x in place.position), place.log_likelihood)

    return metropolis_hastings(
        target,
        propose,
        step_size=step_size,
        start=0.1,
        target_acceptance=TARGET_ACCEPTANCE if momentum_refresh == 1 else WITH_KEPT_MOMENTUM,
        with_gradient=True,
        memory=names,
    )

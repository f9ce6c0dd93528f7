r"""The preconditioned Crank-Nicolson Langevin sampler, pCNL, in coordinates φ that are standard normal a priori.

The target is the density exp(ℓ(φ)) N(φ; 0, I). One step from u, with β in (0, 1], s = sqrt(1 − β²) and
δ = 2 (1 − s)/(1 + s), proposes

    v = s u + (1 − s) ∇ℓ(u) + β w,   w ~ N(0, I),

and accepts it with probability min(1, exp(ρ(u, v) − ρ(v, u))), where g = ∇ℓ(u) in

    ρ(u, v) = −ℓ(u) − ½ ⟨v − u, g⟩ − δ/4 ⟨u + v, g⟩ + δ/4 ‖g‖²

[1]_ [2]_. Eq. 7 of [2]_ misplaces a parenthesis of ρ, and the acceptance of its algorithm 2 leaves out the ratio of
proposal densities.

References
----------
.. [1] S. L. Cotter, G. O. Roberts, A. M. Stuart, D. White. MCMC methods for functions: modifying old algorithms to make
   them faster. Statistical Science 28 (2013).
.. [2] L. Pezzetti, S. Favaro, S. Peluchetti. Function-space MCMC for Bayesian wide neural networks. arXiv 2408.14325
   (2024).
"""

from __future__ import annotations

import pytensor.tensor as pt

from pymc_gibbsnn.samplers.metropolis_hastings import check_beta, metropolis_hastings, standard_normals
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.target import Place, Target

__all__ = ["pcnl"]

TARGET_ACCEPTANCE = 0.574


def pcnl(target: Target, *, beta: float | None = 0.1) -> Transition:
    """Make the transition of pCNL on a whitened target.

    Parameters
    ----------
    target : Target
        What is moved, and its density; it must be whitened.
    beta : float, optional
        β, in (0, 1]; None tunes it to an acceptance of 0.574.

    Returns
    -------
    Transition
        It has the statistics of :func:`~pymc_gibbsnn.samplers.metropolis_hastings.metropolis_hastings`, whose step size
        is β.

    Raises
    ------
    TypeError, ValueError
        If β is no number in (0, 1].
    """
    check_beta(beta)

    def propose(rng, u, beta, evaluate, memory):
        s = pt.sqrt(1 - beta**2)
        delta = 2 * (1 - s) / (1 + s)
        rng, w = standard_normals(rng, u.position)
        v = evaluate([s * x + (1 - s) * g + beta * xi for x, g, xi in zip(u.position, u.gradient, w, strict=True)])

        def rho(u: Place, v: Place):
            parts = (
                -((y - x) * g).sum() / 2 - delta / 4 * ((x + y) * g).sum() + delta / 4 * (g**2).sum()
                for x, y, g in zip(u.position, v.position, u.gradient, strict=True)
            )
            return sum(parts, -u.log_likelihood)

        return rng, v, rho(u, v) - rho(v, u), {}, {}

    return metropolis_hastings(
        target,
        propose,
        step_size=beta,
        start=0.1,
        target_acceptance=TARGET_ACCEPTANCE,
        largest=1.0,
        with_gradient=True,
    )

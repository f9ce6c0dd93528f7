r"""The preconditioned Crank-Nicolson sampler, pCN, in coordinates φ that are standard normal a priori.

The target is the density exp(ℓ(φ)) N(φ; 0, I). One step from u, with β in (0, 1], proposes

    v = sqrt(1 − β²) u + β w,   w ~ N(0, I),       and accepts it with probability min(1, exp(ℓ(v) − ℓ(u)))

[1]_ [2]_. The proposal leaves N(0, I) invariant, so that the acceptance depends on ℓ alone, however many coordinates
there are.

References
----------
.. [1] S. L. Cotter, G. O. Roberts, A. M. Stuart, D. White. MCMC methods for functions: modifying old algorithms to make
   them faster. Statistical Science 28 (2013).
.. [2] L. Pezzetti, S. Favaro, S. Peluchetti. Function-space MCMC for Bayesian wide neural networks. arXiv 2408.14325
   (2024), algorithm 1.
"""

from __future__ import annotations

import pytensor.tensor as pt

from pymc_gibbsnn.samplers.metropolis_hastings import check_beta, metropolis_hastings, standard_normals
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.target import Target

__all__ = ["pcn"]

TARGET_ACCEPTANCE = 0.3


def pcn(target: Target, *, beta: float | None = 0.1) -> Transition:
    """Make the transition of pCN on a whitened target.

    Parameters
    ----------
    target : Target
        What is moved, and its density; it must be whitened.
    beta : float, optional
        β, in (0, 1]; None tunes it to an acceptance of 0.3.

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
        rng, w = standard_normals(rng, u.position)
        v = evaluate([pt.sqrt(1 - beta**2) * x + beta * xi for x, xi in zip(u.position, w, strict=True)])
        return rng, v, v.log_likelihood - u.log_likelihood, {}, {}

    return metropolis_hastings(
        target, propose, step_size=beta, start=0.1, target_acceptance=TARGET_ACCEPTANCE, largest=1.0
    )

r"""What part of the uncertainty of a prediction more data would reduce, and what part they would not.

Let θ be what all rows share (weights, variances of noise). By the law of total variance [1]_,

    Var[y | x, D] = Var(E[y | x, θ]) + E(Var[y | x, θ]),

with outer moments over the posterior. The first term is epistemic: it comes from not knowing θ. The second is
aleatoric: it is the noise of y given θ. Noise inside a network belongs to it, and E[y | x, θ] is a mean over this
noise, not the output of the network without it.

Let z be the latents of a row, m = E[y | z, θ] and v = Var[y | z, θ]. Latents drawn twice, independently given θ, give
two means m and m′, and

    E(Var[y | x, θ]) = E[v] + E[(m − m′)²]/2,   Var(E[y | x, θ]) = Cov(m, m′).

Var[y | x, D] = Var(m) + E[v], so that the first term is also Var(m) − E[(m − m′)²]/2. Moments over the posterior are
replaced by those of its S draws, and E[(m − m′)²] by the mean over every fourth of them, since m′ costs as much as m.
With e² the first term, w = E[(m − m′)²]/2 and normal m, the estimate of e² then has a variance of about
(2 (e² + w)² + 8 w²)/S for independent draws. It may be negative where e² is far below w. Without latents m = m′, w = 0.

For classes with probabilities p(y | x, θ), and H the entropy,

    H(E p) = E[H(p)] + I(y; θ),

of which the terms on the right side are the counterparts of aleatoric and epistemic uncertainty [2]_. The second term
is the mutual information of the label and θ. If p is only known given latents, as p(z) and p(z′), the entropy of their
mean is biased, since H is concave. The jackknife removes most of this:

    H(p) ≈ 2 H((p(z) + p(z′))/2) − (H(p(z)) + H(p(z′)))/2.

References
----------
.. [1] S. Depeweg, J. M. Hernández-Lobato, F. Doshi-Velez, S. Udluft. Decomposition of uncertainty in Bayesian deep
   learning for efficient and risk-sensitive learning. ICML (2018).
.. [2] N. Houlsby, F. Huszár, Z. Ghahramani, M. Lengyel. Bayesian active learning for classification and preference
   learning. arXiv 1112.5745, eq. 2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import entr

__all__ = ["Spread", "entropy", "entropy_given_latents", "split_variance"]


class Spread(NamedTuple):
    """The variance (row, ...) of predictions and its parts, which add up to it."""

    variance: np.ndarray
    epistemic: np.ndarray
    aleatoric: np.ndarray


def split_variance(of_centres: np.ndarray, of_latents: np.ndarray | float, noise: np.ndarray) -> Spread:
    """Split the variance of y into its epistemic part, which may be negative by Monte Carlo error, and the rest.

    Parameters
    ----------
    of_centres : array, (row, ...)
        Var(m), with m the mean of y given parameters and latents.
    of_latents : array, (row, ...), or 0.0
        The estimate of E[(m − m′)²]/2; 0 without latents.
    noise : array, (row, ...)
        E[v], with v the variance of y given parameters and latents.
    """
    return Spread(of_centres + noise, of_centres - of_latents, of_latents + noise)


def entropy(p: np.ndarray) -> np.ndarray:
    """Compute the entropy (...) of probabilities (..., class), in nats."""
    return entr(p).sum(-1)


def entropy_given_latents(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Estimate the entropy of probabilities with latents integrated out, from two draws of the latents.

    Parameters
    ----------
    first, second : array, (..., class)
        The probabilities given each draw; the same array if there are no latents.
    """
    if first is second:
        return entropy(first)
    return 2 * entropy((first + second) / 2) - (entropy(first) + entropy(second)) / 2

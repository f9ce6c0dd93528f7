r"""Parameters of symmetric α-stable noise, and the Gaussian that is closest to it.

The distribution is known by its characteristic function E exp(i t w) = exp(−|c t|^α), α in (0, 2]: Gaussian with
variance 2 c² at α = 2, Cauchy with scale c at α = 1. Of n = N₁ N₂ independent draws w_ij, in N₂ blocks of N₁,

    1/α = [mean_i log|Σ_j w_ij| − mean log|w_ij|] / log N₁,     log c = mean log|w_ij| − (1/α − 1) γ,

with Euler's γ. The Gaussian whose density is closest in the mean square has the standard deviation c/r, where r
minimises r (√π − 2 √(2π) E exp(−|r T|^α)), T ~ N(0, 1): r is .7071 at α = 2, .7195 at 1, .750 at .5.

References
----------
.. [1] J. Lévy Véhel, A. Philippe, C. Robet. Explicit and combined estimators for parameters of stable distributions
   (2018).
.. [2] G. Franzese, R. Candela, D. Milios, M. Filippone, P. Michiardi. Isotropic SGD: a practical approach to Bayesian
   posterior sampling. arXiv 2006.05087 (2020), appendix B.3; its (12) lacks a factor 2, and r is where the distance is
   least.
"""

from __future__ import annotations

import math
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import boolean, whole
from pymc_gibbsnn._data import finite

__all__ = ["closest_gaussian", "log_size", "stable_from_logs", "stable_parameters"]

LEAST_ALPHA = 0.1
TINY = 1e-30  # below which the logarithm of a number counts as that of zero


def stable_parameters(w: ArrayLike, *, block: int = 10, centre: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Estimate how heavy the tails of noise are, and its scale: α and c of an α-stable distribution, column by column.

    The symmetric α-stable distribution has the characteristic function E exp(i t w) = exp(−|c t|^α). It is Gaussian
    with variance 2 c² at α = 2 and Cauchy at α = 1, and its tails are the heavier, the smaller α is. With blocks of N₁
    draws, 1/α = [mean log|block sums| − mean log|w|]/log N₁ and log c = mean log|w| − (1/α − 1) γ, with Euler's
    constant γ [1]_. :class:`ISGD` learns its noise so.

    Parameters
    ----------
    w : array_like, shape (n, ...)
        Independent draws along the first axis.
    block : int
        The number N₁ of draws in a block, at least 2; draws beyond the last whole block are not used.
    centre : bool
        Whether the draws have a location, or are skewed. Every second one is then subtracted from the one before, which
        leaves half as many symmetric draws of scale 2^(1/α) c.

    Returns
    -------
    alpha, c : ndarray, shape (...)
        The stability α, in [0.1, 2], and the scale c, in the units of w. A column whose draws are all the same, as of
        a chain that never moves, has no noise: its c is 0, and its α is given as 2.

    Raises
    ------
    TypeError
        If w is None or a PyTensor variable, ``block`` is no number or ``centre`` no truth value.
    ValueError
        If there is not one whole block, a number is not finite, or ``block`` is less than 2.

    References
    ----------
    .. [1] J. Lévy Véhel, A. Philippe, C. Robet. Explicit and combined estimators for parameters of stable distributions
       (2018).

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> from scipy.stats import levy_stable
    >>> w = 3 * levy_stable.rvs(1.5, 0, size=100_000, random_state=1)
    >>> alpha, c = pmg.stable_parameters(w)
    >>> print(f"{alpha:.1f} {c:.0f}")
    1.5 3
    """
    w, block = finite("w", w), whole("block", block, least=2)
    is_still = w.ndim > 0 and (w == w[:1]).all(axis=0)
    w = w[0::2][: len(w) // 2] - w[1::2] if boolean("centre", centre) else w
    if w.ndim == 0 or len(w) < block:
        count = block * (2 if centre else 1)
        raise ValueError(f"w must hold a block of {count} draws along its first axis; found the shape {w.shape}.")
    w = w[: len(w) // block * block]
    sums = w.reshape(-1, block, *w.shape[1:]).sum(axis=1)
    alpha, c = stable_from_logs(log_size(w, np).mean(axis=0), log_size(sums, np).mean(axis=0), block, np)
    c = c / 2 ** (1 / alpha) if centre else c
    return np.where(is_still, 2.0, alpha)[()], np.where(is_still, 0.0, c)[()]


def log_size(w: Any, of: ModuleType = pt) -> Any:
    """Compute log|w|, with NumPy or PyTensor (``of``), where zeros count as 1e-30."""
    return of.log(of.maximum(abs(w), TINY))


def stable_from_logs(mean_log: Any, mean_log_sum: Any, block: int, of: ModuleType = pt) -> tuple[Any, Any]:
    """Compute α and c from means of logarithms.

    Parameters
    ----------
    mean_log : array or Variable
        The mean of log|w|.
    mean_log_sum : array or Variable
        The mean of log|sum of a block of w|.
    block : int
        The number of draws in a block.
    of : module
        ``numpy`` or ``pytensor.tensor``.

    Returns
    -------
    alpha, c : array or Variable
    """
    inverse = of.clip((mean_log_sum - mean_log) / math.log(block), 1 / 2, 1 / LEAST_ALPHA)
    return 1 / inverse, of.exp(mean_log - (inverse - 1) * np.euler_gamma)


def closest_gaussian(alpha: Any, c: Any) -> Any:
    """Compute the variance (c/r)² of the Gaussian closest to an α-stable distribution, with NumPy or PyTensor."""
    first, *others = _coefficients()[::-1]
    x, log_r = (2 * alpha - 2 - LEAST_ALPHA) / (2 - LEAST_ALPHA), first
    for coefficient in others:  # this is Horner's rule
        log_r = log_r * x + coefficient
    exp = pt.exp if hasattr(log_r, "owner") else np.exp
    return (c * exp(-log_r)) ** 2


@cache
def _coefficients() -> list[float]:
    """Compute the coefficients of a polynomial for log r, of α mapped from [0.1, 2] to [−1, 1]."""
    x = chebyshev.chebpts1(40)
    log_r = [math.log(_closest_ratio((2 + LEAST_ALPHA + (2 - LEAST_ALPHA) * one) / 2)) for one in x]
    return chebyshev.cheb2poly(chebyshev.chebfit(x, log_r, 12)).tolist()


def _closest_ratio(alpha: float) -> float:
    """Find the r at which r (√π − 2 √(2π) E exp(−|rT|^α)) is least."""
    # As a function of s = log t the integrand is smooth for small α, too.
    s = np.linspace(-60, 2.5, 4000)
    t, weights = np.exp(s), np.exp(s - np.exp(2 * s) / 2) * (s[1] - s[0]) * 2 / math.sqrt(2 * math.pi)

    def slope(r: float) -> float:
        power = (r * t) ** alpha
        return math.sqrt(math.pi) - 2 * math.sqrt(2 * math.pi) * (weights * np.exp(-power) * (1 - alpha * power)).sum()

    low, high = 0.3, 3.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low + high) / 2

r"""The mean of an activation σ(Z) over normal noise, Z ~ N(m, s²).

A piecewise-linear function is a line and, at each edge e, a change Δa of its slope and a jump J,

    σ(z) = a_0 z + c_0 + Σ_e (Δa (z − e)_+ + J 1(z > e)),

and with u = (m − e)/s the means of both are, by the normal distribution function Φ and density φ,

    E (Z − e)_+ = (m − e) Φ(u) + s φ(u),     P(Z > e) = Φ(u).

For a smooth function the mean is a Gauss-Hermite sum, Σ_k w_k σ(m + s x_k).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import ndtr

from pymc_gibbsnn.networks.activations import PiecewiseLinear

__all__ = ["NODES", "WEIGHTS", "mean_activation"]

# Of the Gauss-Hermite rule for N(0, 1), which is exact to seven digits for tanh(Z) with s = 0.7, and for exp(Z) with 2
NODES, WEIGHTS = hermegauss(21)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def mean_activation(function: Callable[[np.ndarray], np.ndarray], m: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Compute E σ(Z) for Z ~ N(m, s²), where s, which broadcasts to m, may be 0."""
    if not isinstance(function, PiecewiseLinear):
        return sum(weight * function(m + s * x) for x, weight in zip(NODES, WEIGHTS, strict=True))
    a, c, edges = function.slopes, function.intercepts, function.breakpoints
    mean = a[0] * m + c[0]
    for e, slope, jump in zip(edges, np.diff(a), np.diff(a) * edges + np.diff(c), strict=True):
        u = np.divide(m - e, s, out=np.where(m > e, np.inf, -np.inf), where=s > 0)
        above = ndtr(u)
        mean += slope * ((m - e) * above + s * np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi)) + jump * above
    return mean

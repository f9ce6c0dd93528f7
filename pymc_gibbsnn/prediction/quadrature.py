r"""Adaptive quadrature of densities with a normal latent integrated out, for many data at once.

For each element of arrays of any shape,

    log ∫ N(z; m, s²) exp ℓ(z) dz,

where ℓ is evaluated for all elements together, each at a place of its own. Panels of z are bisected, in each step the
one of each element whose error is largest, until errors are small in all [1]_. The error is estimated from the last two
coefficients of the polynomial in Legendre's basis through the nodes of a panel; the quadrature of Gauss and Legendre at
these nodes is far more exact than that where ℓ is smooth, and about ten times where it has a kink. All is kept in
logarithms: data far from the latent's mean have densities that no floating-point number holds.

References
----------
.. [1] R. Piessens, E. de Doncker-Kapenga, C. W. Überhuber, D. K. Kahaner. QUADPACK (1983).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.polynomial.legendre import leggauss, legvander
from scipy.special import logsumexp

__all__ = ["log_integral"]

NODES, WEIGHTS = leggauss(12)
# Coefficients of the two highest degrees from values at the nodes
TAIL = np.array([2 * len(NODES) - 3, 2 * len(NODES) - 1]) / 2 * legvander(NODES, len(NODES) - 1)[:, -2:]
# The first panels, in standard deviations of the latent; far out, where only data far from its mean put it
EDGES = np.array([0.5, 1, 2, 4, 8, 16, 40, 100, 300, 1000])
EDGES = np.concatenate([-EDGES[::-1], [0], EDGES])
TOLERANCE, MOST = 1e-8, 200  # of the estimated relative error, and steps


def log_integral(log_density: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Compute the logarithm of the integral for each element.

    Parameters
    ----------
    log_density : callable
        A function that computes ℓ from places z in the shape of ``mean``; what is NaN counts as −∞.
    mean : array
        The means m.
    sigma : array
        The standard deviations s, which broadcast to the shape of ``mean``.

    Returns
    -------
    array, of the shape of ``mean``
    """

    def panel(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute the logarithms of the integral over a panel of each element and of its error."""
        centre, half = (low + high) / 2, (high - low) / 2
        places = [centre + half * node for node in NODES]
        with np.errstate(all="ignore"):
            logs = np.array([log_density(mean + sigma * u) - u**2 / 2 for u in places])
        logs = np.where(np.isnan(logs), -np.inf, logs)
        top = logs.max(axis=0)
        values = np.exp(logs - np.where(np.isneginf(top), 0, top))
        with np.errstate(divide="ignore"):
            scale = top + np.log(half)
            tail = np.abs(np.tensordot(TAIL.T * WEIGHTS, values, 1)).sum(axis=0)
            return scale + np.log(np.tensordot(WEIGHTS, values, 1)), scale + np.log(tail)

    lows = [np.full(mean.shape, low) for low in EDGES[:-1]]
    highs = [np.full(mean.shape, high) for high in EDGES[1:]]
    integrals, errors = (list(of_all) for of_all in zip(*map(panel, lows, highs), strict=True))
    lows, highs, integrals, errors = map(np.array, (lows, highs, integrals, errors))
    for _ in range(MOST):
        with np.errstate(invalid="ignore"):
            is_open = logsumexp(errors, axis=0) > logsumexp(integrals, axis=0) + np.log(TOLERANCE)
        if not is_open.any():
            break
        worst = errors.argmax(axis=0)[None]
        low, high = (np.take_along_axis(x, worst, 0)[0] for x in (lows, highs))
        middle = (low + high) / 2
        (left, of_left), (right, of_right) = panel(low, middle), panel(middle, high)
        for all_, one in ((highs, middle), (integrals, left), (errors, of_left)):
            np.put_along_axis(all_, worst, one[None], 0)
        lows, highs = np.concatenate([lows, middle[None]]), np.concatenate([highs, high[None]])
        integrals, errors = np.concatenate([integrals, right[None]]), np.concatenate([errors, of_right[None]])
    return logsumexp(integrals, axis=0) - np.log(2 * np.pi) / 2

r"""Quadrature of densities with a normal latent integrated out, for many data at once.

For each element of arrays of any shape,

    log ∫ N(z; m, s²) exp ℓ(z) dz,

where ℓ is evaluated for all elements together, each at a place of its own. All is kept in logarithms: data far from the
latent's mean have densities that no floating-point number holds.

Panels of z are bisected, in each step the one of each element whose error is largest, until errors are small in all
[1]_. The error is estimated from the last two coefficients of the polynomial in Legendre's basis through the nodes of a
panel; the quadrature of Gauss and Legendre at these nodes is far more exact than that where ℓ is smooth, and about ten
times where it has a kink.

Where ℓ should be analytic, and the integrand have one mode, sums over equidistant nodes around this mode need a half to
an eighth of the evaluations. Newton's method finds the mode; the sums end where the integrand is exp(−36) of what it is
there. The error of such a sum falls exponentially with the number of its nodes [2]_. If, in any element, sums with
twice as many nodes disagree, or the integrand rises again beyond their ends, panels are bisected after all.

References
----------
.. [1] R. Piessens, E. de Doncker-Kapenga, C. W. Überhuber, D. K. Kahaner. QUADPACK (1983).
.. [2] L. N. Trefethen, J. A. C. Weideman. The exponentially convergent trapezoidal rule. SIAM Review 56 (2014).
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
STEPS, DIFFERENCE, LONGEST = 50, 0.01, 3.0  # of Newton's method: their number, that of its differences, and a long one
REACH, NEGLIGIBLE = 8.6, -36.0  # first ends of sums, in curvatures at the mode, and the integrand there, as a logarithm
FEWEST, DOUBLINGS = 24, 3  # intervals of a sum


def log_integral(
    log_density: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, sigma: np.ndarray, is_smooth: bool = False
) -> np.ndarray:
    """Compute the logarithm of the integral for each element.

    Parameters
    ----------
    log_density : callable
        A function that computes ℓ from places z in the shape of ``mean``; what is NaN counts as −∞.
    mean : array
        The means m.
    sigma : array
        The standard deviations s, which broadcast to the shape of ``mean``.
    is_smooth : bool
        Whether ℓ should be analytic, and the integrand have one mode.

    Returns
    -------
    array, of the shape of ``mean``
    """

    def log_integrand(u: np.ndarray) -> np.ndarray:
        """Compute the logarithm of the integrand at z = m + s u, but for a constant."""
        with np.errstate(all="ignore"):
            logs = log_density(mean + sigma * u) - u**2 / 2
        return np.where(np.isnan(logs), -np.inf, logs)

    found = _around_mode(log_integrand, mean.shape) if is_smooth else None
    found = _by_panels(log_integrand, mean.shape) if found is None else found
    return found - np.log(2 * np.pi) / 2


def _around_mode(log_integrand: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...]) -> np.ndarray | None:
    """Compute the logarithms of integrals over equidistant nodes; None if they are not exact in all elements."""
    u = np.zeros(shape)
    with np.errstate(all="ignore"):
        for _ in range(STEPS):
            left, top, right = (log_integrand(u + step) for step in (-DIFFERENCE, 0, DIFFERENCE))
            curvature = np.maximum(-(left - 2 * top + right) / DIFFERENCE**2, 1)
            step = (right - left) / (2 * DIFFERENCE) / curvature
            if not np.isfinite(step).all():
                return None
            if (np.abs(step) * np.sqrt(curvature) < 0.5).all():
                break
            longest = np.maximum(np.abs(u), LONGEST)
            u = u + np.clip(step, -longest, longest)
        ends = []
        for sign in (-1, 1):
            end = u + sign * REACH / np.sqrt(curvature)
            for _ in range(STEPS):
                is_near = log_integrand(end) - top > NEGLIGIBLE
                if not is_near.any():
                    break
                end = np.where(is_near, u + 1.5 * (end - u), end)
            else:
                return None
            ends.append(end)
        low, high = ends
        for edge in EDGES:
            is_beyond = (edge < low) | (edge > high)
            here, outwards = log_integrand(np.full(shape, edge)), log_integrand(edge + DIFFERENCE * np.sign(edge - u))
            if (is_beyond & (outwards > here)).any():
                return None
        count, sums = FEWEST, np.zeros(shape)
        for k in range(count + 1):
            sums = sums + np.exp(log_integrand(low + (high - low) * (k / count)) - top)
        for _ in range(DOUBLINGS):
            between = np.zeros(shape)
            for k in range(count):
                between = between + np.exp(log_integrand(low + (high - low) * ((k + 0.5) / count)) - top)
            miss, sums, count = np.abs(between - sums), sums + between, 2 * count
            if (miss <= TOLERANCE * sums).all():
                return top + np.log(sums * (high - low) / count)
    return None


def _by_panels(log_integrand: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Compute the logarithms of integrals by bisection of panels."""

    def panel(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute the logarithms of the integral over a panel of each element and of its error."""
        centre, half = (low + high) / 2, (high - low) / 2
        places = [centre + half * node for node in NODES]
        logs = np.array([log_integrand(u) for u in places])
        top = logs.max(axis=0)
        values = np.exp(logs - np.where(np.isneginf(top), 0, top))
        with np.errstate(divide="ignore"):
            scale = top + np.log(half)
            tail = np.abs(np.tensordot(TAIL.T * WEIGHTS, values, 1)).sum(axis=0)
            return scale + np.log(np.tensordot(WEIGHTS, values, 1)), scale + np.log(tail)

    lows = [np.full(shape, low) for low in EDGES[:-1]]
    highs = [np.full(shape, high) for high in EDGES[1:]]
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
    return logsumexp(integrals, axis=0)

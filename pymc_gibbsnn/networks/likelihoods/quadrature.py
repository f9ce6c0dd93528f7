r"""The integral of a log-concave likelihood over a Gaussian latent, by quadrature.

    log ∫ N(z; m, s²) p(y | z) dz

The logarithm g of the integrand is concave in z where that of p(y | z) is. Its mode ẑ is found by a search that needs
no derivatives. On both sides of it, z = ẑ ± s exp(π/2 sinh t), and the sum over equidistant t converges about as fast
as digits can tell, however narrow or wide the peak is beside s [1]_.

References
----------
.. [1] H. Takahasi, M. Mori. Double exponential formulas for numerical integration. Publications of the Research
   Institute for Mathematical Sciences 9 (1974).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

__all__ = ["log_integral"]

NODES = np.linspace(-3.4, 1.8, 105)  # t: distances from the mode between about 1e-10 and 100 standard deviations
DOUBLINGS, SECTIONS = 60, 40  # of the steps of the search for the mode, at most, and of the interval that holds it
GOLDEN = (math.sqrt(5) - 1) / 2
AT_ONCE = 2**14  # integrals: what is computed on the way then stays in a processor's cache


def log_integral(log_density: Callable, mean: np.ndarray, sigma: np.ndarray, *parameters: np.ndarray) -> np.ndarray:
    """Compute the logarithm of the integral of a likelihood over z ~ Normal(mean, sigma).

    Parameters
    ----------
    log_density : callable
        ``log_density(z, *parameters)``, elementwise; concave in z.
    mean : array
        The means of z; the integrals have their shape.
    sigma : array
        The standard deviation of z, which broadcasts to the same shape.
    *parameters : array
        What else the density depends on, which broadcasts likewise.

    Returns
    -------
    array, of the shape of ``mean``
    """
    flat = [np.broadcast_to(x, mean.shape).reshape(-1) for x in (mean, sigma, *parameters)]
    found = np.empty(mean.size)
    for i in range(0, mean.size, AT_ONCE):
        found[i : i + AT_ONCE] = _log_integral(log_density, *(x[i : i + AT_ONCE] for x in flat))
    return found.reshape(mean.shape)


def _log_integral(log_density: Callable, mean: np.ndarray, sigma: np.ndarray, *parameters: np.ndarray) -> np.ndarray:
    """Compute the logarithms of a block (n,) of integrals."""

    def g(x: np.ndarray) -> np.ndarray:
        """Compute the logarithm of the integrand at z = mean + sigma x, per unit of x."""
        return log_density(mean + sigma * x, *parameters) - x**2 / 2 - math.log(2 * math.pi) / 2

    mode = _mode(g, len(mean))
    top, total = -np.inf, 0.0
    for t in NODES:
        distance = math.exp(math.pi / 2 * math.sinh(t))
        weight = math.log(math.pi / 2 * math.cosh(t) * distance * (NODES[1] - NODES[0]))
        for side in (-1, 1):
            term = g(mode + side * distance) + weight
            last, top = top, np.maximum(top, term)
            total = total * np.exp(last - top) + np.exp(term - top)
    return top + np.log(total)


def _mode(g: Callable, n: int) -> np.ndarray:
    """Find where n concave functions are greatest, by doubled steps from 0 and then the golden section."""
    centre = np.zeros(n)
    side = np.where(g(centre + 1e-4) >= g(centre - 1e-4), 1.0, -1.0)
    near, far, at_far = centre, side * 1e-3, g(side * 1e-3)
    for _ in range(DOUBLINGS):
        further = 2 * far
        at_further = g(further)
        rises = at_further > at_far
        if not rises.any():
            break
        near = np.where(rises, far, near)
        far, at_far = np.where(rises, further, far), np.where(rises, at_further, at_far)
    low, high = near, 2 * far  # g rises from the first of them to the middle, and falls from there to the second
    for _ in range(SECTIONS):
        step = GOLDEN * (high - low)
        inner, outer = high - step, low + step
        is_low = g(inner) >= g(outer)
        low, high = np.where(is_low, low, inner), np.where(is_low, outer, high)
    return (low + high) / 2

r"""The logarithm of Φ and its inverse for JAX, as polynomials that hold in both tails.

Φ is the distribution function of the standard normal. The functions here are several times faster than JAX's own. They
rest on the scaled complementary error function erfcx(a) = exp(a²) erfc(a):

    Φ(−x) = ½ erfcx(x/√2) exp(−x²/2),  x ≥ 0,

where (1 + 2a) erfcx(a) is a smooth function of (a − k)/(a + k), for a constant k, up to and at a = ∞.

References
----------
.. [1] M. M. Shepherd, J. G. Laframboise. Chebyshev approximation of (1 + 2x) exp(x²) erfc x in 0 ≤ x < ∞.
   Math. Comp. 36 (1981).
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial import chebyshev
from scipy import special

__all__ = ["erfcx", "log_ndtr", "ndtri_exp", "open_uniform"]


def open_uniform(key, shape, dtype):
    """Draw uniform numbers on (0, 1) that are never 0 nor 1.

    JAX draws the left ends of equal cells of [0, 1); half a cell is added, which gives their middles.
    """
    u = jax.random.uniform(key, shape, dtype)
    return u + jnp.finfo(u.dtype).epsneg  # JAX may give single precision where double was asked for: we ask u itself


def _fit(f, k, end, degree):
    """Fit a function f(a) on 0 ≤ a ≤ end by a polynomial in t = (a − k)/(a + k).

    Parameters
    ----------
    f : callable
        The function, of an array.
    k : float
        The a that lies at t = 0.
    end : float
        The right end of the interval.
    degree : int
        The degree of the polynomial.

    Returns
    -------
    list of float
        The coefficients, from that of t⁰ up.
    """
    last = (end - k) / (end + k)

    def on_chebyshev_interval(x):
        t = (x * (last + 1) + last - 1) / 2
        return f(k * (1 + t) / (1 - t))

    x = chebyshev.Chebyshev(chebyshev.chebinterpolate(on_chebyshev_interval, degree), [-1, last])
    return x.convert(kind=np.polynomial.Polynomial, domain=[-1, 1]).coef.tolist()


def _evaluate(coefficients, k, a):
    """Evaluate at a the polynomial in t = (a − k)/(a + k) that ``_fit`` returned."""
    t, value = 1 - 2 * k / (a + k), 0.0
    for coefficient in reversed(coefficients):
        value = value * t + coefficient
    return value


# (1 + 2a) erfcx(a), by the number of decimal digits of the precision: 6 for single, 15 for double
ERFCX = {
    digits: _fit(lambda a: (1 + 2 * a) * special.erfcx(a), 3.75, 1e8, degree) for digits, degree in ((6, 11), (15, 20))
}
# −Φ⁻¹(eʸ) (s + 2)/s² with s = sqrt(2 (log ½ − y)): an approximation that one Newton step makes exact
START = _fit(lambda s: -special.ndtri_exp(math.log(0.5) - s**2 / 2) * (s + 2) / s**2, 2.0, 1000.0, 14)


def _erfcx(a):
    """The scaled complementary error function exp(a²) erfc(a), for a ≥ 0."""
    return _evaluate(ERFCX[jnp.finfo(a.dtype).precision], 3.75, a) / (1 + 2 * a)


def erfcx(x):
    """The scaled complementary error function exp(x²) erfc(x)."""
    right = _erfcx(jnp.abs(x))
    return jnp.where(x < 0, 2 * jnp.exp(x * x) - right, right)


def log_ndtr(x):
    """The logarithm of Φ(x); where it is near 0, its absolute error is that of the precision of x."""
    square = x * x / 2
    tail = _erfcx(jnp.abs(x) * math.sqrt(0.5)) / 2
    right = x > 0
    return jnp.log(jnp.where(right, 1 - tail * jnp.exp(-square), tail)) - jnp.where(right, 0, square)


def ndtri_exp(y):
    """The quantile Φ⁻¹(eʸ) of the standard normal, for the logarithm y < 0 of a probability."""
    right = y > -math.log(2)
    # From here on y is the logarithm of the smaller tail, left or right; the sign is put right at the end.
    y = jnp.where(right, jnp.log(jnp.maximum(1 - jnp.exp(y), jnp.finfo(y.dtype).epsneg)), y)
    s = jnp.sqrt(jnp.maximum(-2 * (y + math.log(2)), 0))
    x = _evaluate(START, 2.0, s) * s * s / (s + 2)
    erfcx = _erfcx(x * math.sqrt(0.5))
    x = x + (jnp.log(erfcx / 2) - x * x / 2 - y) * erfcx * math.sqrt(math.pi / 2)
    return jnp.where(right, x, -x)

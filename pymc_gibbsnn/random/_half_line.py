"""The standard normal restricted to the half line above a point a, for Numba kernels: its mass, and draws from it."""

from __future__ import annotations

import math

from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn.backends.vector_math import erfcx, exp, inlined
from pymc_gibbsnn.random._streams import exponential, normal

__all__ = ["excess", "relative_mass"]

SQRT_HALF, SQRT_HALF_PI = math.sqrt(0.5), math.sqrt(math.pi / 2)
NORMAL_UP_TO = 0.7  # the largest a for which a normal is the better proposal; above it an exponential is


@inlined
def relative_mass(a):
    """The mass of the half line, ∫_a^∞ exp(−x²/2) dx, divided by the greatest value of the integrand there.

    For a > 0 this is Mills' ratio R(a) = √(π/2) erfcx(a/√2); for a ≤ 0 it is √(2π) − R(−a) exp(−a²/2).
    """
    beyond = SQRT_HALF_PI * erfcx(abs(a) * SQRT_HALF)
    left = min(a, 0.0)  # for a > 0 the exponential below is 1, which costs less than a branch
    return (2 * SQRT_HALF_PI if a < 0 else 0.0) + math.copysign(beyond, a) * exp(-0.5 * left * left)


@numba_njit
def _draw_excess(stream, a):
    """Draw X − a for a standard normal X given X > a.

    Proposals are normals where a is small, and otherwise exponentials of the rate at which the fewest are rejected
    (C. P. Robert, Statistics and Computing 5, 1995).
    """
    if a < NORMAL_UP_TO:
        while True:
            x = normal(stream)
            x = (x if a < 0 else abs(x)) - a
            if x > 0:
                return x
    rate = 0.5 * (a + math.sqrt(a * a + 4.0))
    while True:
        x = exponential(stream)
        missing = (x - 1.0) / rate
        if exponential(stream) > 0.5 * missing * missing:
            return x / rate


@numba_njit
def excess(stream, x, a):
    """Draw X − a for a standard normal X given X > a; the first attempt uses the standard normal x that is given.

    Where a is NaN, the result is NaN.
    """
    step = (x if a < 0 else abs(x)) - a
    return _draw_excess(stream, a) if step <= 0 or a >= NORMAL_UP_TO else step

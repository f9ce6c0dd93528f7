"""The standard normal beyond a point a: its mass, for many points at once, and draws (Numba)."""

from __future__ import annotations

import math

from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn.backends.vector_math import erfcx, exp, inlined
from pymc_gibbsnn.random._streams import exponential, normal

__all__ = ["excess", "relative_mass"]

SQRT_HALF, SQRT_HALF_PI = math.sqrt(0.5), math.sqrt(math.pi / 2)
NORMAL_UP_TO = 0.7  # from there on an exponential is the better proposal


@inlined
def relative_mass(a):
    """∫_a^∞ exp(−x²/2) dx over the greatest value of the integrand: Mills' ratio if a > 0, R(a) = √(π/2) erfcx(a/√2);

    else √(2π) − R(−a) exp(−a²/2).
    """
    beyond = SQRT_HALF_PI * erfcx(abs(a) * SQRT_HALF)
    left = min(a, 0.0)  # exp(0) = 1 costs less than a branch
    return (2 * SQRT_HALF_PI if a < 0 else 0.0) + math.copysign(beyond, a) * exp(-0.5 * left * left)


@numba_njit
def _draw_excess(stream, a):
    """A draw of X − a given X > a: by normals, or by the exponential that touches best (Robert 1995)."""
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
    """A draw of X − a given X > a, first tried with the standard normal x. NaN gives NaN."""
    step = (x if a < 0 else abs(x)) - a
    return _draw_excess(stream, a) if step <= 0 or a >= NORMAL_UP_TO else step

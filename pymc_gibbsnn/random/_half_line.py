r"""The standard normal beyond a point a: its mass, for many points at once, and draws (Numba).

Mills' ratio R(a) = ∫_a^∞ exp((a² − x²)/2) dx is smooth in y = (a − 4)/(a + 4) once its decay is taken out: a polynomial
of degree 22 gives (1 + a) R(a) for all a ≥ 0 to 1e-15.
"""

from __future__ import annotations

import math

from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn._vector_math import exp, inlined
from pymc_gibbsnn.random._streams import exponential, normal

__all__ = ["NORMAL_UP_TO", "excess", "relative_mass"]

SQRT_2PI = math.sqrt(2 * math.pi)
NORMAL_UP_TO = 0.7  # from there on an exponential is the better proposal


@inlined
def relative_mass(a):
    """∫_a^∞ exp(−x²/2) dx over the greatest value of the integrand: R(a) if a > 0, else √(2π) − R(−a) exp(−a²/2)."""
    x = abs(a)
    y = (x - 4.0) / (x + 4.0)
    p = -3.6020871197757297e-09
    p = p * y + 3.9004836718711745e-09
    p = p * y + 4.231907852106401e-08
    p = p * y - 2.0220272580615137e-08
    p = p * y - 2.7318400888367966e-07
    p = p * y - 3.856161613683303e-08
    p = p * y + 1.3767252554124505e-06
    p = p * y + 1.0513904418272144e-06
    p = p * y - 6.543960772195725e-06
    p = p * y - 8.624881680959669e-06
    p = p * y + 3.4154647699732226e-05
    p = p * y + 5.3274144233014006e-05
    p = p * y - 0.00022021436379763987
    p = p * y - 0.0002367035249650682
    p = p * y + 0.0017418485501048758
    p = p * y - 0.0007159506397034763
    p = p * y - 0.012539103595823477
    p = p * y + 0.044959129054844595
    p = p * y - 0.08070800968048486
    p = p * y + 0.07169048120230301
    p = p * y + 0.035091880234783615
    p = p * y - 0.2423996705218184
    p = p * y + 1.1832619145678036
    left = min(a, 0.0)  # exp(0) = 1 costs less than a branch
    return (SQRT_2PI if a < 0 else 0.0) + math.copysign(p / (1.0 + x), a) * exp(-0.5 * left * left)


@numba_njit
def excess(stream, a):
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

r"""The Pólya-Gamma distribution of a large shape, exactly, in a time that does not grow with the shape.

X = 4ω, ω ~ PG(b, 2c), has the Laplace transform exp b[ψ(c²) − ψ(c² + 2s)] in s, with ψ(v) = log cosh √v, which is
log cos √−v for −π²/4 < v < 0. Tilted by exp(−(v − c²) x/2) it is X at v in place of c²; let v be the place where its
mean is x, that is x = b ξ(v), ξ = 2ψ'. With V = −4ψ'', its variance there being bV, the density of X is

    f(x) = (2πbV)^{−1/2} exp(−b D(v)) R(b, v),     D(v) = ψ(v) − ψ(c²) − (v − c²) ψ'(v) ≥ 0.

Without R this is the saddlepoint approximation, as in [1]_. R, the density of the tilted X at its mean times
sqrt(2πbV), lies within two bounds, and where they do not decide it is computed:

    1 − (5/6b) k b³/((b − 3)(b − 5)(b − 7))  ≤  R  ≤  k = (1 − 3/2b)^{−1/2}.

Proof. X is a sum of gamma variables of one shape b and rates λ_j. Let φ be the characteristic function of the tilted X
less its mean, so that R = sqrt(2bV/π) ∫_0^∞ Re φ(y) dy. It has |φ|^{2/b} = Π 1/(1 + y²/λ_j²) ≤ 1/(1 + y²V), as V is
the sum of 1/λ_j², and |φ| ≥ exp(−bV y²/2), and its angle is b Σ (y/λ_j − arctan y/λ_j), between 0 and
b y³ Σ λ_j^{−3}/3 ≤ b V^{3/2} y³/3. The upper bound is R ≤ sqrt(b/2) Γ((b − 1)/2)/Γ(b/2) ≤ k, the last step being
Kershaw's inequality. The lower bound follows from cos a ≥ 1 − a²/2.

Proposals are drawn in r = log[(v + π²/4)/(c² + π²/4)], in which no equation has to be solved. There the logarithm of
the density without R, −b D + (log V)/2 + r up to a constant, is concave: the density lies below its tangents at three
places, and proposals come from these. About 6 of 7 are accepted.

R is a sum over equidistant places of φ, by the trapezoidal rule. By Poisson's formula its error is the density of the
tilted X at distances of at least 16 standard deviations from its mean, which is below 1e-16 of that at the mean: by
Chernoff's bound, for which a single gamma variable of shape 32 is the worst case.

References
----------
.. [1] J. Windle, N. G. Polson, J. G. Scott. Sampling Pólya-Gamma random variates: alternate and approximate techniques.
   arXiv 1405.0506 (2014).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["LEAST", "NODES", "Formulas", "formulas"]

LEAST = 32  # the least shape b for which these formulas serve
NODES = 48  # by the bound of |φ|, what lies beyond is about 1e-17 for all shapes from LEAST on
SPACING = 2 * math.pi / 16  # of the places, in standard deviations
QUARTER = math.pi**2 / 4
NEAR = 0.1  # so close to v = 0 power series are used


def _series(count: int) -> list[float]:
    """The coefficients of ξ(v) = tanh √v / √v as a power series in v, by tanh' = 1 − tanh²."""
    found = [1.0]
    for k in range(1, count):
        found.append(-sum(found[i] * found[k - 1 - i] for i in range(k)) / (2 * k + 1))
    return found


XI = tuple(_series(14))
VARIANCE = tuple(-2 * k * x for k, x in enumerate(XI))[1:]  # V = −2 ξ'
BEND = tuple(k * x for k, x in enumerate(VARIANCE))[1:]  # V'


class Formulas(NamedTuple):
    """The formulas of this module for one backend, which act on numbers or on arrays."""

    prepare: Callable
    """(b, c) to the parameters of a distribution: what the others take, here called ``given``."""

    propose: Callable
    """Uniform numbers t, u, w in (0, 1] and ``given`` to (x, the value to which R is compared, v)."""

    bounds: Callable
    """b to the lower and the upper bound of R."""

    tilted: Callable
    """(b, v) to what ``node`` takes."""

    node: Callable
    """j ≥ 1 and what ``tilted`` returned to a term of R."""

    density: Callable
    """r, b, c and what ``prepare`` found at the centre to the log density of r, its slope, v and ξ."""

    factor: Callable
    """The factor in R = factor · (½ + Σ terms)."""


def formulas(xp: Any, where: Callable, compiled: Callable = lambda function: function) -> Formulas:
    """Make the formulas for arrays of ``numpy`` or ``jax.numpy``, or for numbers where ``compiled`` is Numba's."""

    @compiled
    def polynomial(coefficients, x):
        value = 0.0 * x
        for k in range(len(coefficients)):
            value = value * x + coefficients[len(coefficients) - 1 - k]
        return value

    @compiled
    def derivatives(v):
        """At v: u = √|v|, log(1 + exp(−2u)), ψ, ξ, V and V'/V."""
        positive = v > 0
        u = xp.sqrt(abs(v))
        e = xp.exp(-2 * u)
        angle = where(positive, 0.0 * u, u)
        tangent = xp.tan(angle)
        tanh = where(positive, (1 - e) / (1 + e), tangent)
        square = where(positive, 4 * e / (1 + e) ** 2, 1 + tangent * tangent)  # 1/cosh² or 1/cos²
        soft = xp.log1p(e)
        psi = where(positive, u + soft - math.log(2), xp.log(xp.cos(angle)))
        near = abs(v) < NEAR
        small, v = where(near, v, 0.0 * v), where(near, 1.0 + 0.0 * v, v)
        xi = where(near, polynomial(XI, small), tanh / where(near, 1.0 + 0.0 * u, u))
        variance = where(near, polynomial(VARIANCE, small), (xi - square) / v)
        bend = where(near, polynomial(BEND, small) / variance, (square * xi / variance - 1.5) / v)
        return u, soft, psi, xi, variance, bend

    @compiled
    def density(r, b, c, at_centre):
        """The logarithm of the density of r less that at 0, without R; its slope; and v and ξ there."""
        u0, soft0, psi0, _, variance0, _ = at_centre
        step = (c * c + QUARTER) * xp.expm1(r)
        v = c * c + step
        u, soft, psi, xi, variance, bend = derivatives(v)
        # Where both are positive, the difference of the square roots is taken first: it may be a small one.
        far = (v > 0.25) & (c > 0.5)
        u = where(far, u, 1.0 + 0.0 * u)
        root = step / (u + u0)
        e = xp.exp(-2 * u)
        divergence = where(
            far, root * root / (2 * u) + soft - soft0 + step * e / ((1 + e) * u), psi - psi0 - xi * step / 2
        )
        slope = (v + QUARTER) * (bend - b * variance * step / 2) / 2 + 1
        return r + xp.log(variance / variance0) / 2 - b * divergence, slope, v, xi

    @compiled
    def prepare(b, c):
        at_centre = derivatives(c * c)
        side = math.sqrt(8) / ((c * c + QUARTER) * xp.sqrt(b * at_centre[4]))  # √2 standard deviations
        left, rise, _, _ = density(-side, b, c, at_centre)
        right, fall, _, _ = density(side, b, c, at_centre)
        slope = (c * c + QUARTER) * at_centre[5] / 2 + 1
        start = (left + rise * side) / (slope - rise)  # where the tangents meet
        end = (right - fall * side) / (slope - fall)
        middle = xp.exp(slope * start) * xp.expm1(slope * (end - start)) / slope
        masses = xp.exp(slope * start) / rise, middle, -xp.exp(slope * end) / fall
        return b, c, at_centre, (rise, slope, fall), (start, end), masses

    @compiled
    def propose(t, u, w, given):
        b, c, at_centre, (rise, slope, fall), (start, end), (mass0, mass1, mass2) = given
        t = t * (mass0 + mass1 + mass2)
        on_left, on_right = t < mass0, t >= mass0 + mass1
        beyond = xp.log(u) / where(on_left, rise, fall)
        inside = xp.log1p(u * xp.expm1(slope * (end - start))) / slope
        r = where(on_left, start + beyond, where(on_right, end + beyond, start + inside))
        corner = where(on_left, slope * start, slope * end)
        hat = where(on_left | on_right, corner + xp.log(u), slope * r)
        log_density, _, v, xi = density(r, b, c, at_centre)
        return b * xi, w * bounds(b)[1] * xp.exp(hat - log_density), v

    @compiled
    def bounds(b):
        upper = 1 / xp.sqrt(1 - 1.5 / b)
        return 1 - 5 * upper * b * b / (6 * (b - 3) * (b - 5) * (b - 7)), upper

    @compiled
    def tilted(b, v):
        _, _, psi, xi, variance, _ = derivatives(v)
        return b, v, psi + math.log(2), xi, SPACING / xp.sqrt(b * variance)

    @compiled
    def node(j, at):
        b, v, psi, xi, spacing = at
        root = xp.sqrt(v - 2j * (j * spacing))
        return xp.exp(b * (psi - root - xp.log(1 + xp.exp(-2 * root)) - 1j * (xi * (j * spacing)))).real

    @compiled
    def factor():
        return SPACING * math.sqrt(2 / math.pi)

    return Formulas(prepare, propose, bounds, tilted, node, density, factor)

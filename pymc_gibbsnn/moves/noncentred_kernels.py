"""The step of :mod:`pymc_gibbsnn.moves.noncentred_scale` for Numba.

It goes through samples in blocks; sums have the precision of the samples within a block, and double over blocks.
"""

from __future__ import annotations

import math

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn.backends.declare import of_any_layout
from pymc_gibbsnn.backends.threads import BLOCK
from pymc_gibbsnn.backends.vector_math import add_multiple, summing

__all__ = ["numba_scales"]


@numba_njit
def _residuals(y, s, v):
    """Compute Y − σ(Z) Wᵀ, from Y (n, c), σ(Z)ᵀ (h, n) and W (c, h), as an array (c, n)."""
    r = np.empty((y.shape[1], y.shape[0]), y.dtype)
    for start in range(0, len(y), BLOCK):
        stop = min(start + BLOCK, len(y))
        for k in range(len(r)):
            for i in range(start, stop):
                r[k, i] = y[i, k]
            for j in range(len(s)):
                add_multiple(s[j, start:stop], -v[k, j], r[k, start:stop])
    return r


@numba_njit
def _pull(r, delta, w, gain, pull):
    """Subtract the last unit's change from the residual, and compute the pull at the next unit.

    Parameters
    ----------
    r : array, (c, n)
        The residual R, transposed, from which δ w is subtracted.
    delta : array, (n,)
        δ of the last unit.
    w : array, (c,)
        Its outgoing weights.
    gain : array, (c,)
        The column of G of the next unit.
    pull : array, (n,)
        Receives R · gain.
    """
    for start in range(0, len(pull), BLOCK):
        stop = min(start + BLOCK, len(pull))
        for i in range(start, stop):
            pull[i] = 0
        for k in range(len(r)):
            add_multiple(delta[start:stop], -w[k], r[k, start:stop])
            add_multiple(r[k, start:stop], gain[k], pull[start:stop])


@summing
def _inner(x, y):
    """Compute Σ x y over two vectors."""
    total = 0.0
    for start in range(0, len(x), BLOCK):
        of_block = x.dtype.type(0)
        for i in range(start, min(start + BLOCK, len(x))):
            of_block += x[i] * y[i]
        total += of_block
    return total


@summing
def _sums(m, e, s0, pull, s, bends):
    """Compute Σ δ pull and Σ δ² over the samples of one unit.

    Parameters
    ----------
    m, e : array, (n,)
        M and the noise E of the unit.
    s0 : array, (n,)
        σ(M + E).
    pull : array, (n,)
        The pull of the layer above.
    s : float
        1/c.
    bends : array, (2,)
        α and β of σ(z) = α z + β |z|.

    Returns
    -------
    first, second : float
        The two sums.
    """
    first = second = 0.0
    s = m.dtype.type(s)
    for start in range(0, len(m), BLOCK):
        first_of_block = second_of_block = m.dtype.type(0)
        for i in range(start, min(start + BLOCK, len(m))):
            x = m[i] + s * e[i]
            delta = bends[0] * x + bends[1] * abs(x) - s0[i]
            first_of_block += delta * pull[i]
            second_of_block += delta * delta
        first, second = first + first_of_block, second + second_of_block
    return first, second


@numba_njit
def _line(m, e, s, bends, out):
    """Write σ(M + s E) of one unit into a vector, for ``bends`` = (α, β).

    Parameters
    ----------
    m, e : array, (n,)
        M and E.
    s : float
        s, in their precision.
    bends : array, (2,)
        α and β of σ(z) = α z + β |z|.
    out : array, (n,)
        Receives σ.
    """
    for i in range(len(m)):
        x = m[i] + s * e[i]
        out[i] = bends[0] * x + bends[1] * abs(x)


def numba_scales(op, node):
    """Make the function of the inputs of the operation for Numba, in a loop over units."""

    # Loops in place of expressions of arrays compile in half the time.
    @numba_njit
    def scales(means, z, y, v, g, incoming, outgoing, noise, power, log_u, points, bends):
        (n, c), h, one = y.shape, len(log_u), z.dtype.type(1)
        v, g, u = v.copy(), g.copy(), np.zeros_like(log_u)
        m, e, s0 = np.empty((h, n), z.dtype), np.empty((h, n), z.dtype), np.empty((h, n), z.dtype)
        for j in range(h):
            for i in range(n):
                m[j, i], e[j, i] = means[i, j], z[i, j] - means[i, j]
            _line(m[j], e[j], one, bends, s0[j])
        pull, delta, w, gain = np.empty(n, z.dtype), np.zeros(n, z.dtype), np.zeros(c, v.dtype), np.empty(c, v.dtype)
        r = _residuals(y, s0, v)
        for j in range(h):
            kappa = 0.0
            for k in range(c):
                gain[k] = g[k, j]
                kappa += v[k, j] * gain[k]
            _pull(r, delta, w, gain, pull)
            square = _inner(pull, pull)
            for k in range(c):
                w[k] = 0  # if this unit does not move, nothing is to be subtracted from the residual
            low, high = -points[j, 0], 1 - points[j, 0]
            for p in range(1, points.shape[1]):
                new = low + points[j, p] * (high - low)
                f = noise.item() * math.expm1(-2 * new)
                first, second = _sums(m[j], e[j], s0[j], pull, math.exp(-new), bends)
                log_ratio = (
                    power.item() * new
                    - 0.5 * (incoming[j] * math.expm1(2 * new) + outgoing[j] * math.expm1(-2 * new))
                    - 0.5 * n * math.log1p(f * kappa)
                    + first
                    - 0.5 * kappa * second
                    + 0.5 * f / (1 + f * kappa) * (square - 2 * kappa * first + kappa**2 * second)
                )
                if log_u[j] < log_ratio:
                    u[j] = new
                    _line(m[j], e[j], z.dtype.type(math.exp(-new)), bends, delta)
                    for i in range(n):
                        delta[i] -= s0[j, i]
                    for i in range(h):
                        product = 0.0
                        for k in range(c):
                            product += gain[k] * v[k, i]
                        for k in range(c):
                            g[k, i] -= f / (1 + f * kappa) * product * gain[k]
                    for k in range(c):
                        w[k] = v[k, j]
                        v[k, j] *= math.exp(-new)
                        g[k, j] *= math.exp(-new)
                    break
                if new < 0:
                    low = new
                else:
                    high = new
        return u

    return of_any_layout(scales, 5, 6)  # Q1 and Q2

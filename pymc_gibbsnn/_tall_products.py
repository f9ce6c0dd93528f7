"""The product of a tall matrix of data with few columns in single precision, near the speed of memory (Numba).

BLAS copies the tall matrix into blocks first, which pays when there are many columns to reuse them for; with ten it
costs as much as the product. In double precision the arithmetic weighs more and BLAS is as good.
"""

from __future__ import annotations

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit

__all__ = ["is_tall", "tall_by_few"]

FEW, TALL = 32, 2**20  # columns; numbers


@numba_njit
def is_tall(x, columns):
    """Whether :func:`tall_by_few` is the faster way."""
    return columns <= FEW and x.shape[0] * x.shape[1] >= TALL and x.shape[0] > 16 * columns


@numba_njit(fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")  # sums in the order of a vector's lanes
def tall_by_few(x, w):
    """X Wᵀ of X (n, d) and W (c, d), by two samples and four columns at a time."""
    n, d = x.shape
    c = w.shape[0]
    padded = np.zeros((c + 3 - (c + 3) % 4, d), x.dtype)
    padded[:c] = w
    out, found = np.empty((c, n), x.dtype), np.empty((2, len(padded)), x.dtype)
    for i in range(0, n, 2):
        u, v = x[i], x[min(i + 1, n - 1)]
        for j in range(0, len(padded), 4):
            w0, w1, w2, w3 = padded[j], padded[j + 1], padded[j + 2], padded[j + 3]
            u0 = u1 = u2 = u3 = v0 = v1 = v2 = v3 = x.dtype.type(0)
            for k in range(d):
                u0 += u[k] * w0[k]
                u1 += u[k] * w1[k]
                u2 += u[k] * w2[k]
                u3 += u[k] * w3[k]
                v0 += v[k] * w0[k]
                v1 += v[k] * w1[k]
                v2 += v[k] * w2[k]
                v3 += v[k] * w3[k]
            found[0, j], found[0, j + 1], found[0, j + 2], found[0, j + 3] = u0, u1, u2, u3
            found[1, j], found[1, j + 1], found[1, j + 2], found[1, j + 3] = v0, v1, v2, v3
        out[:, i : i + 2] = found[: min(2, n - i), :c].T
    return out.T

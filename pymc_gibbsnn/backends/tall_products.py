"""Products of a tall and wide matrix of data with a matrix of few columns, in Numba, by blocks of rows and in threads.

BLAS first copies the large matrix into blocks. This pays when the blocks are used again for many columns. With ten, in
single precision, the copy costs as much as the product itself; in double precision it costs as much as it saves.
"""

from __future__ import annotations

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn.backends.threads import BLOCK, count_blocks, share
from pymc_gibbsnn.backends.vector_math import summing

__all__ = ["is_tall", "tall_by_few", "tall_by_tall"]

FEW = 32  # the most columns that count as few
LARGE = 2**20  # the fewest numbers in a matrix that counts as large


@numba_njit
def is_tall(x, columns):
    """Whether the functions below are faster than BLAS for X (n, d), with d in the hundreds, and so many columns."""
    n, d = x.shape
    return columns <= FEW and n * d >= LARGE and n > 16 * columns and x.flags.c_contiguous


@summing
def _rows_by_few(b, x, w, out):
    """Compute one block of rows of X Wᵀ, two samples and four columns at a time.

    Parameters
    ----------
    b : int
        The number of the block.
    x : array, (n, d)
        X.
    w : array, (c rounded up to a multiple of 4, d)
        W, with rows of zeros added.
    out : array, (c, n)
        Receives the block, transposed.
    """
    n, d = x.shape
    products = np.empty((2, len(w)), x.dtype)
    for i in range(b * BLOCK, min((b + 1) * BLOCK, n), 2):
        u, v = x[i], x[min(i + 1, n - 1)]
        for j in range(0, len(w), 4):
            w0, w1, w2, w3 = w[j], w[j + 1], w[j + 2], w[j + 3]
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
            products[0, j], products[0, j + 1], products[0, j + 2], products[0, j + 3] = u0, u1, u2, u3
            products[1, j], products[1, j + 1], products[1, j + 2], products[1, j + 3] = v0, v1, v2, v3
        out[:, i : i + 2] = products[: min(2, n - i), : len(out)].T


@numba_njit
def tall_by_few(x, w):
    """Compute X Wᵀ (n, c) of a large X (n, d) and W (c, d) with few rows."""
    c = len(w)
    padded = np.zeros((c + 3 - (c + 3) % 4, x.shape[1]), x.dtype)
    padded[:c] = w
    out = np.empty((c, len(x)), x.dtype)
    share(_rows_by_few, count_blocks(len(x)), (x, padded, out))
    return out.T


@summing
def _rows_by_rows(b, x, z, sums):
    """Add up one block's part of Zᵀ X, eight samples at a time.

    Parameters
    ----------
    b : int
        The number of the block.
    x : array, (n, d)
        X.
    z : array, (n, c)
        Z.
    sums : array, (blocks, c, d)
        Receives the part in its entry b.
    """
    (n, d), c, start = x.shape, z.shape[1], b * BLOCK
    few = np.zeros((c, BLOCK), x.dtype)
    few[:, : min(BLOCK, n - start)] = z[start : start + BLOCK].T
    sums[b] = 0
    for i in range(0, min(BLOCK, n - start), 8):
        # Where eight rows would reach beyond the last one, that row is taken again, times zero.
        r, last = start + i, n - 1
        x0, x1, x2, x3 = x[r], x[min(r + 1, last)], x[min(r + 2, last)], x[min(r + 3, last)]
        x4, x5, x6, x7 = x[min(r + 4, last)], x[min(r + 5, last)], x[min(r + 6, last)], x[min(r + 7, last)]
        for j in range(c):
            out, v = sums[b, j], few[j]
            v0, v1, v2, v3 = v[i], v[i + 1], v[i + 2], v[i + 3]
            v4, v5, v6, v7 = v[i + 4], v[i + 5], v[i + 6], v[i + 7]
            for k in range(d):
                out[k] += (v0 * x0[k] + v1 * x1[k] + v2 * x2[k] + v3 * x3[k]) + (
                    v4 * x4[k] + v5 * x5[k] + v6 * x6[k] + v7 * x7[k]
                )


@numba_njit
def tall_by_tall(x, z):
    """Compute Xᵀ Z (d, c) of a large X (n, d), which must be finite, and Z (n, c) with few columns."""
    sums = np.empty((count_blocks(len(x)), z.shape[1], x.shape[1]), x.dtype)
    share(_rows_by_rows, len(sums), (x, z, sums))
    return sums.sum(0).T

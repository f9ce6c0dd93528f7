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


@numba_njit
def _padded(rows):
    """Add rows of zeros, up to a multiple of four."""
    out = np.zeros((len(rows) + 3 - (len(rows) + 3) % 4, rows.shape[1]), rows.dtype)
    out[: len(rows)] = rows
    return out


@summing
def _rows_by_few(b, x, w, out):
    """Compute one block of rows of X Wᵀ, four samples and four columns at a time.

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
    (n, d), last = x.shape, len(x) - 1
    products = np.empty((len(w), 4), x.dtype)
    for i in range(b * BLOCK, min((b + 1) * BLOCK, n), 4):
        p, q, r, s = x[i], x[min(i + 1, last)], x[min(i + 2, last)], x[min(i + 3, last)]
        for j in range(0, len(w), 4):
            w0, w1, w2, w3 = w[j], w[j + 1], w[j + 2], w[j + 3]
            p0 = p1 = p2 = p3 = q0 = q1 = q2 = q3 = x.dtype.type(0)
            r0 = r1 = r2 = r3 = s0 = s1 = s2 = s3 = x.dtype.type(0)
            for k in range(d):
                p0 += p[k] * w0[k]
                p1 += p[k] * w1[k]
                p2 += p[k] * w2[k]
                p3 += p[k] * w3[k]
                q0 += q[k] * w0[k]
                q1 += q[k] * w1[k]
                q2 += q[k] * w2[k]
                q3 += q[k] * w3[k]
                r0 += r[k] * w0[k]
                r1 += r[k] * w1[k]
                r2 += r[k] * w2[k]
                r3 += r[k] * w3[k]
                s0 += s[k] * w0[k]
                s1 += s[k] * w1[k]
                s2 += s[k] * w2[k]
                s3 += s[k] * w3[k]
            of_0, of_1, of_2, of_3 = products[j], products[j + 1], products[j + 2], products[j + 3]
            of_0[0], of_0[1], of_0[2], of_0[3] = p0, q0, r0, s0
            of_1[0], of_1[1], of_1[2], of_1[3] = p1, q1, r1, s1
            of_2[0], of_2[1], of_2[2], of_2[3] = p2, q2, r2, s2
            of_3[0], of_3[1], of_3[2], of_3[3] = p3, q3, r3, s3
        out[:, i : i + 4] = products[: len(out), : min(4, n - i)]


@numba_njit
def tall_by_few(x, w):
    """Compute X Wᵀ (n, c) of a large X (n, d) and W (c, d) with few rows."""
    out = np.empty((len(w), len(x)), x.dtype)
    share(_rows_by_few, count_blocks(len(x)), (x, _padded(w), out))
    return out.T


@summing
def _rows_by_rows(b, x, z, sums):
    """Add up one block's part of Zᵀ X, four samples and four columns of Z at a time.

    Parameters
    ----------
    b : int
        The number of the block.
    x : array, (n, d)
        X.
    z : array, (n, c)
        Z.
    sums : array, (blocks, c rounded up to a multiple of 4, d)
        Receives the part in its entry b, with rows of zeros added.
    """
    (n, d), c, start = x.shape, sums.shape[1], b * BLOCK
    few = np.zeros((c, BLOCK), x.dtype)
    few[: z.shape[1], : min(BLOCK, n - start)] = z[start : start + BLOCK].T
    sums[b] = 0
    for i in range(0, min(BLOCK, n - start), 4):
        # Where four rows would reach beyond the last one, that row is taken again, times zero.
        r, last = start + i, n - 1
        x0, x1, x2, x3 = x[r], x[min(r + 1, last)], x[min(r + 2, last)], x[min(r + 3, last)]
        for j in range(0, c, 4):
            out0, out1, out2, out3 = sums[b, j], sums[b, j + 1], sums[b, j + 2], sums[b, j + 3]
            p0, p1, p2, p3 = few[j, i], few[j, i + 1], few[j, i + 2], few[j, i + 3]
            q0, q1, q2, q3 = few[j + 1, i], few[j + 1, i + 1], few[j + 1, i + 2], few[j + 1, i + 3]
            s0, s1, s2, s3 = few[j + 2, i], few[j + 2, i + 1], few[j + 2, i + 2], few[j + 2, i + 3]
            t0, t1, t2, t3 = few[j + 3, i], few[j + 3, i + 1], few[j + 3, i + 2], few[j + 3, i + 3]
            for k in range(d):
                u0, u1, u2, u3 = x0[k], x1[k], x2[k], x3[k]
                out0[k] += p0 * u0 + p1 * u1 + p2 * u2 + p3 * u3
                out1[k] += q0 * u0 + q1 * u1 + q2 * u2 + q3 * u3
                out2[k] += s0 * u0 + s1 * u1 + s2 * u2 + s3 * u3
                out3[k] += t0 * u0 + t1 * u1 + t2 * u2 + t3 * u3


@numba_njit
def tall_by_tall(x, z):
    """Compute Xᵀ Z (d, c) of a large X (n, d), which must be finite, and Z (n, c) with few columns."""
    c = z.shape[1]
    sums = np.empty((count_blocks(len(x)), c + 3 - (c + 3) % 4, x.shape[1]), x.dtype)
    share(_rows_by_rows, len(sums), (x, z, sums))
    return sums.sum(0)[:c].T

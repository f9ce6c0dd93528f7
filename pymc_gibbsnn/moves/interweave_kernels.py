"""The passes of :mod:`pymc_gibbsnn.moves.interweave_pieces` for Numba, in its letters.

A Gram matrix is changed by the samples whose squared slope has changed, or formed anew from those whose slope is not 0,
whichever are fewer.
"""

from __future__ import annotations

import math

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit

__all__ = ["numba_passes"]


@numba_njit
def _update_gram(gram, squares, new, x):
    """Bring the Gram matrix of one unit up to date, in place.

    Parameters
    ----------
    gram : array, (d, d)
        Ãᵀ diag(``squares``) Ã, which becomes Ãᵀ diag(``new``) Ã.
    squares : array, (n,)
        The squared slopes from which ``gram`` was formed, which become ``new``.
    new : array, (n,)
        The squared slopes now.
    x : array, (n, d)
        Ã.
    """
    rows, changed, active = np.empty(len(new), np.int64), 0, 0
    for i in range(len(new)):
        rows[changed] = i
        changed += new[i] != squares[i]
        active += new[i] != 0
    rows = rows[:changed]
    if active < changed:
        gram[:] = 0
        squares[:] = 0
        rows = np.nonzero(new)[0]
    if len(rows) > 0:
        moved = x[rows].astype(np.float64)
        gram += np.dot(((new - squares)[rows].reshape(-1, 1) * moved).T, moved)
        squares[:] = new


@numba_njit
def _factor(gram, kappa, precision):
    """Factor Q = κ Ãᵀ diag(a²) Ã + Λ = L Lᵀ of one unit, and return Lᵀ."""
    q = kappa * gram
    for k in range(len(precision)):
        q[k, k] += precision[k]
    return np.linalg.cholesky(q).T


# Here and below ``upper`` is the transpose of L, whose rows lie in memory as one piece.


@numba_njit
def _solve(upper, b):
    """Write L⁻¹ b into b, where ``upper`` is Lᵀ."""
    for k in range(len(b)):
        b[k] /= upper[k, k]
        for i in range(k + 1, len(b)):
            b[i] -= b[k] * upper[k, i]


@numba_njit
def _solve_transposed(upper, b):
    """Write L⁻ᵀ b into b, where ``upper`` is Lᵀ."""
    for k in range(len(b) - 1, -1, -1):
        for i in range(k + 1, len(b)):
            b[k] -= upper[k, i] * b[i]
        b[k] /= upper[k, k]


@numba_njit
def _line_unit(z, edges, slopes, intercepts, s, a):
    """Write σ(z) and the slope of σ at z, for the n samples of one unit, into arrays.

    Parameters
    ----------
    z : array, (n,)
        Pre-activations.
    edges, slopes, intercepts : array, (k + 1,), (k,), (k,)
        The table of σ.
    s, a : array, (n,)
        Receive σ(z) and the slope.
    """
    for p in range(len(slopes)):
        edge, slope, intercept = edges[p], slopes[p], intercepts[p]
        for i in range(len(z)):
            right = z[i] > edge
            a[i] = slope if right else a[i]
            s[i] = slope * z[i] + intercept if right else s[i]


def numba_passes(op, node):
    """Make the function of the inputs of :class:`Interweave` for Numba, in loops over passes and units."""

    @numba_njit
    def passes(x, w, z, y, v, g, precision, rho, log_u, xi, gram, squares, edges, slopes, intercepts):
        n, c = y.shape
        h, d = w.shape
        x, z = np.ascontiguousarray(x), np.ascontiguousarray(z.T).copy()
        w, gram, squares = w.copy(), gram.copy(), squares.copy()
        accepted, factors = np.zeros_like(rho), np.empty((h, d, d))
        r, pull = np.ascontiguousarray(y.T).copy(), np.empty(n, w.dtype)
        s, a, s_new, a_new = np.empty_like(z), np.empty_like(z), np.empty(n, w.dtype), np.empty(n, w.dtype)
        for j in range(h):
            lam = precision[min(j, len(precision) - 1)]
            _line_unit(z[j], edges, slopes, intercepts, s[j], a[j])
            for k in range(c):
                r[k] -= s[j] * v[k, j]
            _update_gram(gram[j], squares[j], a[j] ** 2, x)
            factors[j] = _factor(gram[j], (v[:, j] * g[:, j]).sum(), lam)
        for p in range(len(rho)):
            for j in range(h):
                lam = precision[min(j, len(precision) - 1)]
                kappa, persistence = (v[:, j] * g[:, j]).sum(), rho[p, j]
                scale = math.sqrt((1 - persistence) * (1 + persistence))
                pull[:] = 0
                for k in range(c):
                    pull += r[k] * g[k, j]
                drift = np.dot(a[j] * pull, x) - lam * w[j]
                _solve(factors[j], drift)
                step = drift  # this array has the precision of the weights, which the next line may not change
                step[:] = (1 - persistence) * drift + scale * xi[p, j]
                _solve_transposed(factors[j], step)
                w_new, z_new = w[j] + step, z[j] + np.dot(x, step)
                _line_unit(z_new, edges, slopes, intercepts, s_new, a_new)
                gram_new, squares_new = gram[j].copy(), squares[j].copy()
                _update_gram(gram_new, squares_new, a_new**2, x)
                factor = _factor(gram_new, kappa, lam)
                drift = np.dot(a_new * (pull - kappa * (s_new - s[j])), x) - lam * w_new
                _solve(factor, drift)
                log_ratio = 0.0
                for i in range(n):
                    change = s_new[i] - s[j, i]
                    log_ratio += change * (pull[i] - 0.5 * kappa * change)
                for k in range(d):
                    back = (1 - persistence) * drift[k]
                    for i in range(k, d):
                        back += factor[k, i] * step[i]
                    back /= scale
                    log_ratio += 0.5 * (xi[p, j, k] ** 2 - back**2 - lam[k] * step[k] * (w[j, k] + w_new[k]))
                    log_ratio += math.log(factor[k, k] / factors[j, k, k])
                if log_u[p, j] < log_ratio:
                    accepted[p, j] = 1
                    for k in range(c):
                        r[k] -= (s_new - s[j]) * v[k, j]
                    w[j], z[j], s[j], a[j] = w_new, z_new, s_new, a_new
                    gram[j], squares[j], factors[j] = gram_new, squares_new, factor
        return w, z.T, gram, squares, accepted

    return passes

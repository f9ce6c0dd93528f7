"""The passes of :mod:`pymc_gibbsnn.moves.interweave_marginal` for Numba, in its letters.

DᵀTD and M = BᵀTD are those for the slope that most samples of a unit have, plus what the other samples add. The former
follow from ÃᵀTÃ, which does not change, and BᵀTÃ, which changes with each unit that moves.
"""

from __future__ import annotations

import math

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn.backends.lapack import dot
from pymc_gibbsnn.backends.vector_math import add_multiple, copy, summing
from pymc_gibbsnn.moves.interweave_kernels import (
    factor_unit,
    gradient_of,
    line_unit,
    propose,
    ratio_of_steps,
    transposed,
)

__all__ = ["numba_marginal_passes"]


@summing
def _inner(x, y):
    """Compute the inner product of two vectors."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@numba_njit
def _leave(inverse, j):
    """Turn C*, of all columns of B, into C, of all but column j, in place."""
    column = inverse[j].copy()
    for k in range(len(column)):
        add_multiple(column, -column[k] / column[j], inverse[k])
        inverse[k, j] = 0
    for k in range(len(column)):
        inverse[j, k] = 0


@numba_njit
def _return(inverse, j, cv, p):
    """Turn C into C* again, in place.

    Parameters
    ----------
    inverse : array, (H, H)
        C, which becomes C*.
    j : int
        The unit that comes back.
    cv : array, (H,)
        C v, which becomes C v − e_j.
    p : float
        p.
    """
    cv[j] -= 1
    for k in range(len(cv)):
        add_multiple(cv, cv[k] / p, inverse[k])


@numba_njit
def _change_slopes(x, b, old, new, gram, m, buffers):
    """Bring DᵀTD (d, d) and Mᵀ (d, H) up to date, in place, when the slopes of some samples change.

    Parameters
    ----------
    x, b : array, (n, d) and (n, H)
        Ã and B, both times the roots of T.
    old, new : array, (n,)
        The slopes before and after.
    gram, m : array
        Both matrices.
    buffers : tuple of array, (n, d), (n, d) and (n, H)
        Room for the rows of samples whose slopes change.
    """
    (n, d), (differences, sums, others), k = x.shape, buffers, 0
    for i in range(n):
        if new[i] != old[i]:
            for l in range(d):
                differences[k, l] = (new[i] - old[i]) * x[i, l]
                sums[k, l] = (new[i] + old[i]) * x[i, l]
            copy(b[i], others[k])
            k += 1
    if k > 0:
        gram_change = dot(differences[:k].T, sums[:k], np.empty_like(gram))
        m_change = dot(differences[:k].T, others[:k], np.empty_like(m))
        for l in range(d):
            add_multiple(gram_change[l], 1.0, gram[l])
            add_multiple(m_change[l], 1.0, m[l])


@numba_njit
def _usual_slope(slopes, table):
    """Return that of the first and the last slope of the table which more samples have."""
    first, last = 0, 0
    for slope in slopes:
        first += slope == table[0]
        last += slope == table[-1]
    return table[-1] if last > first else table[0]


@numba_njit
def _factor(gram, m, c, kappa, precision):
    """Factor Q = κ (DᵀTD − Mᵀ C M) + Λ as :func:`~pymc_gibbsnn.moves.interweave_kernels.factor_unit` does.

    Parameters
    ----------
    gram, m, c : array, (d, d), (d, H) and (H, H)
        DᵀTD, Mᵀ and C.
    kappa, precision : float and array, (d,)
        κ and Λ.
    """
    rest = dot(dot(m, c, np.empty_like(m)), m.T, np.empty_like(gram))
    for k in range(len(rest)):
        for l in range(len(rest)):
            rest[k, l] = gram[k, l] - rest[k, l]
    return factor_unit(rest, kappa, precision)


def numba_marginal_passes(op, node):
    """Make the function of the inputs of :class:`InterweaveMarginal` for Numba, in loops over passes and units."""

    @numba_njit
    def marginal_passes(x, w, z, root, b, y, inverse, precision, above, rho, log_u, xi, eta, edges, slopes, intercepts):
        (n, d), width = x.shape, b.shape[1]
        x, z, y, b = np.ascontiguousarray(x), transposed(z), transposed(y), b.copy()
        w, inverse, accepted = w.copy(), inverse.copy(), np.zeros_like(rho)
        weighted = x.copy()
        for i in range(n):
            for k in range(d):
                weighted[i, k] *= root[i]
        of_inputs = dot(weighted.T, weighted, np.empty((d, d)))  # ÃᵀTÃ
        with_above = dot(weighted.T, b, np.empty((d, width)))  # ÃᵀTB
        t = dot(y, b, np.empty((len(y), width)))  # YᵀTB
        products = dot(b.T, b, np.empty((width, width)))  # BᵀTB
        buffers = np.empty((n, d)), np.empty((n, d)), np.empty((n, width))
        s, a, s_new, a_new, usual = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
        post, rest, change = np.empty(n), np.empty(n), np.empty(n)
        fit, z_new, w_new = np.empty(n), np.empty(n), np.empty(d)
        gram, m, out = np.empty((d, d)), np.empty((d, width)), np.empty(len(y))
        for p in range(len(rho)):
            for j in range(len(w)):
                lam = precision[min(j, len(precision) - 1)]
                _leave(inverse, j)
                line_unit(z[j], edges, slopes, intercepts, s, a)
                slope = _usual_slope(a, slopes)
                for i in range(n):
                    post[i], usual[i] = b[i, j], slope
                for k in range(d):
                    for l in range(d):
                        gram[k, l] = slope**2 * of_inputs[k, l]
                    for l in range(width):
                        m[k, l] = slope * with_above[k, l]
                _change_slopes(weighted, b, usual, a, gram, m, buffers)
                v = products[j].copy()
                cv, kappa = dot(inverse, v, np.empty(width)), 0.0
                total = above[j] + _inner(post, post) - _inner(v, cv)  # p
                for l in range(len(y)):
                    out[l] = (t[l, j] - _inner(cv, t[l])) / total + eta[p, j, l] / math.sqrt(total)
                    kappa += out[l] ** 2
                for i in range(n):
                    rest[i] = 0
                    for l in range(len(y)):
                        rest[i] += out[l] * (y[l, i] - post[i] * out[l])
                # K (Ȳ − κ b) of each sample: sums over samples of what is in it would be large, and lose digits
                add_multiple(dot(b, dot(inverse, dot(rest, b, np.empty(width)), np.empty(width)), fit), -1.0, rest)
                factor = _factor(gram, m, inverse, kappa, lam)
                step = gradient_of(a, rest, weighted, lam, w[j])
                propose(x, w[j], z[j], factor, step, rho[p, j], xi[p, j], w_new, z_new)
                line_unit(z_new, edges, slopes, intercepts, s_new, a_new)
                for i in range(n):
                    change[i] = root[i] * (s_new[i] - s[i])
                _change_slopes(weighted, b, a, a_new, gram, m, buffers)
                u = dot(change, b, np.empty(width))
                cu = dot(inverse, u, np.empty(width))
                log_ratio = _inner(change, rest) - 0.5 * kappa * (_inner(change, change) - _inner(u, cu))
                add_multiple(change, -kappa, rest)
                factor_new = _factor(gram, m, inverse, kappa, lam)
                drift = gradient_of(a_new, rest, weighted, lam, w_new)
                for k in range(d):
                    drift[k] += kappa * _inner(m[k], cu)
                log_ratio += ratio_of_steps(step, w[j], w_new, lam, factor, factor_new, drift, rho[p, j], xi[p, j])
                if log_u[p, j] < log_ratio:
                    accepted[p, j] = 1
                    copy(w_new, w[j])
                    copy(z_new, z[j])
                    add_multiple(change, 1.0, post)
                    add_multiple(u, 1.0, v)
                    add_multiple(cu, 1.0, cv)
                    v[j] = _inner(post, post)
                    total = above[j] + v[j] - _inner(v, cv)
                    for i in range(n):
                        b[i, j] = post[i]
                    for l in range(len(y)):
                        t[l, j] = _inner(y[l], post)
                    for k in range(width):
                        products[j, k] = products[k, j] = v[k]
                    column = dot(post, weighted, np.empty(d))
                    for k in range(d):
                        with_above[k, j] = column[k]
                _return(inverse, j, cv, total)
        return w, z.T, accepted

    return marginal_passes

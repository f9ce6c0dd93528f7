"""The passes of :mod:`pymc_gibbsnn.moves.interweave_marginal` for Numba, in its letters.

DᵀTD and M = BᵀTD are those for the slope that most samples of a unit have, plus what the other samples add. The former
follow from ÃᵀTÃ, which does not change, and BᵀTÃ, of which a column changes with each unit that moves. Where samples
are many, B is too large for a cache. A visit reads only those of its rows at which the slope is not the usual one:

- BᵀTB and YᵀTB are kept, and so DᵀK(Ȳ − κ b) = Dᵀ T(Ȳ − κ b) − (L⁻¹M)ᵀ L⁻¹Bᵀ T(Ȳ − κ b) needs no product of B.
- If every sample stays on its piece, b changes by D step, and the change of the target, and ∇ after the step, are those
  of the Gaussian. What is added by samples that do not stay needs their rows of B alone. This keeps digits, too: where
  noise is small, the target is large and its change is not.
"""

from __future__ import annotations

import math

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn.backends.lapack import dot, factor_in_place, solve_in_place
from pymc_gibbsnn.backends.vector_math import add_multiple, copy, copy_matrix, summing
from pymc_gibbsnn.moves.interweave_kernels import (
    factor_unit,
    gradient_of,
    pieces_unit,
    propose,
    ratio_of_proposals,
    transposed,
)

__all__ = ["numba_marginal_passes"]

ROWS_AT_ONCE = 256  # how many rows of B are added to M at a time: so many stay in the cache


@summing
def _inner(x, y):
    """Compute the inner product of two vectors."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@numba_njit
def _factor_of_others(products, above, j, factor):
    """Factor BᵀTB + Λ' = L Lᵀ without column j, of which row and column of L are those of the unit matrix.

    Parameters
    ----------
    products, above : array, (H, H) and (H,)
        BᵀTB and Λ'.
    j : int
        The column.
    factor : array, (H, H)
        Receives Lᵀ in its upper triangle.

    Returns
    -------
    bool
        Whether there is a factor.
    """
    copy_matrix(products, factor)
    for k in range(len(above)):
        factor[k, k] += above[k]
        factor[j, k] = factor[k, j] = 0
    factor[j, j] = 1
    return factor_in_place(factor)


@numba_njit
def _whiten(factor, j, vectors):
    """Write L⁻¹ times the vectors (k, H), with their elements j set to 0, into them; ``factor`` is of all others."""
    for k in range(len(vectors)):
        vectors[k, j] = 0
    solve_in_place(factor, vectors, False)


@numba_njit
def _where_pieces_differ(a, c, a_new, c_new, samples):
    """Find the samples whose piece has another slope or intercept.

    Parameters
    ----------
    a, c, a_new, c_new : array, (n,)
        The slopes and intercepts of two pieces for each sample.
    samples : array, (n,)
        Receives the samples at its beginning.

    Returns
    -------
    int
        How many there are.
    """
    count = 0
    for i in range(len(a)):
        samples[count] = i
        count += (a_new[i] != a[i]) | (c_new[i] != c[i])
    return count


@numba_njit
def _change_slopes(x, b, old, new, samples, gram, m, buffers):
    """Bring DᵀTD (d, d) and Mᵀ (d, H) up to date, in place, when the slopes of some samples change.

    Parameters
    ----------
    x, b : array, (n, d) and (n, H)
        Ã and B, both times the roots of T.
    old, new : array, (n,)
        The slopes before and after.
    samples : array, (k,)
        Where these differ.
    gram, m : array
        Both matrices.
    buffers : tuple of array, (r, d), (r, d) and (r, H)
        Room for the rows of r samples, which are added at a time.
    """
    d, (differences, sums, others) = x.shape[1], buffers
    for first in range(0, len(samples), len(others)):
        count = min(len(samples) - first, len(others))
        for k in range(count):
            i = samples[first + k]
            for l in range(d):
                differences[k, l] = (new[i] - old[i]) * x[i, l]
                sums[k, l] = (new[i] + old[i]) * x[i, l]
            copy(b[i], others[k])
        gram_change = dot(differences[:count].T, sums[:count], np.empty_like(gram))
        m_change = dot(differences[:count].T, others[:count], np.empty_like(m))
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
def _subtract_product(upper, step, gradient):
    """Subtract Q step = L Lᵀ step from ∇, in place, where ``upper`` is Lᵀ; return −stepᵀ Q step/2."""
    total, d = 0.0, len(step)
    for k in range(d):
        part = 0.0
        for l in range(k, d):
            part += upper[k, l] * step[l]
        total -= 0.5 * part**2
        for l in range(k, d):
            gradient[l] -= upper[k, l] * part
    return total


@numba_njit
def _factor(gram, m, others, j, kappa, precision):
    """Factor Q = κ (DᵀTD − ‖L⁻¹M‖²) + Λ as :func:`~pymc_gibbsnn.moves.interweave_kernels.factor_unit` does.

    Parameters
    ----------
    gram, m, others : array, (d, d), (d, H) and (H, H)
        DᵀTD, Mᵀ and, in the upper triangle, the factor of all columns of B but j.
    j : int
        The unit.
    kappa, precision : float and array, (d,)
        κ and Λ.

    Returns
    -------
    factor, half : array, (d, d) and (d, H)
        The factor of Q, and (L⁻¹M)ᵀ.
    """
    half = m.copy()
    _whiten(others, j, half)
    rest = dot(half, half.T, np.empty_like(gram))
    for k in range(len(rest)):
        for l in range(len(rest)):
            rest[k, l] = gram[k, l] - rest[k, l]
    return factor_unit(rest, kappa, precision), half


def numba_marginal_passes(op, node):
    """Make the function of the inputs of :class:`InterweaveMarginal` for Numba, in loops over passes and units."""

    @numba_njit
    def marginal_passes(x, w, z, root, b, y, precision, above, rho, log_u, xi, eta, edges, slopes, intercepts):
        (n, d), width = x.shape, b.shape[1]
        x, z, y, b = np.ascontiguousarray(x), transposed(z), transposed(y), b.copy()
        w, accepted = w.copy(), np.zeros_like(rho)
        weighted = x.copy()
        for i in range(n):
            for k in range(d):
                weighted[i, k] *= root[i]
        of_inputs = dot(weighted.T, weighted, np.empty((d, d)))  # ÃᵀTÃ
        with_above = dot(weighted.T, b, np.empty((d, width)))  # ÃᵀTB
        t = dot(y, b, np.empty((len(y), width)))  # YᵀTB
        products = dot(b.T, b, np.empty((width, width)))  # BᵀTB
        k = min(n, ROWS_AT_ONCE)
        buffers = np.empty((k, d)), np.empty((k, d)), np.empty((k, width))
        a, c, a_new, c_new, usual = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
        samples = np.empty(n, np.int64)
        post, rest, z_new, w_new = np.empty(n), np.empty(n), np.empty(n), np.empty(d)
        gram, m, others = np.empty((d, d)), np.empty((d, width)), np.empty((width, width))
        out, common = np.empty(len(y)), np.empty((len(y) + 1, width))
        for p in range(len(rho)):
            for j in range(len(w)):
                lam = precision[min(j, len(precision) - 1)]
                if not _factor_of_others(products, above, j, others):
                    continue
                pieces_unit(z[j], edges, slopes, intercepts, a, c)
                slope = _usual_slope(a, slopes)
                for i in range(n):
                    post[i], usual[i] = b[i, j], slope
                for k in range(d):
                    for l in range(d):
                        gram[k, l] = slope**2 * of_inputs[k, l]
                    for l in range(width):
                        m[k, l] = slope * with_above[k, l]
                differing = _where_pieces_differ(usual, c, a, c, samples)
                _change_slopes(weighted, b, usual, a, samples[:differing], gram, m, buffers)
                v, kappa = products[j].copy(), 0.0
                copy(v, common[0])
                for l in range(len(y)):
                    copy(t[l], common[l + 1])
                _whiten(others, j, common)  # L⁻¹v and L⁻¹ Bᵀ Y_l
                total = above[j] + v[j] - _inner(common[0], common[0])  # p
                if not total > 0:  # lost to rounding
                    continue
                for l in range(len(y)):
                    explained = _inner(common[0], common[l + 1])
                    out[l] = (t[l, j] - explained) / total + eta[p, j, l] / math.sqrt(total)
                    kappa += out[l] ** 2
                fit = np.zeros(width)  # L⁻¹ Bᵀ (Ȳ − κ b)
                for l in range(len(y)):
                    add_multiple(common[l + 1], out[l], fit)
                add_multiple(common[0], -kappa, fit)
                for i in range(n):
                    rest[i] = 0  # Ȳ − κ b
                    for l in range(len(y)):
                        rest[i] += out[l] * (y[l, i] - post[i] * out[l])
                factor, half = _factor(gram, m, others, j, kappa, lam)
                gradient = gradient_of(a, rest, weighted, lam, w[j])
                add_multiple(dot(half, fit, np.empty(d)), -1.0, gradient)
                step = gradient.copy()
                propose(x, w[j], z[j], factor, step, rho[p, j], xi[p, j], w_new, z_new)
                pieces_unit(z_new, edges, slopes, intercepts, a_new, c_new)
                # If every sample stays on its piece, the target is the Gaussian of the proposal
                log_ratio = _inner(step, gradient) + _subtract_product(factor, step, gradient)
                u, from_pieces = dot(step, m, np.empty(width)), np.zeros((1, width))
                differing = _where_pieces_differ(a, c, a_new, c_new, samples)
                for i in samples[:differing]:
                    more = root[i] * ((a_new[i] - a[i]) * z_new[i] + c_new[i] - c[i])
                    rest[i] -= kappa * root[i] * a[i] * (z_new[i] - z[j, i])
                    log_ratio += more * (rest[i] - 0.5 * kappa * more)
                    rest[i] -= kappa * more  # Ȳ − κ b after the step, of these samples
                    add_multiple(b[i], more, from_pieces[0])
                    add_multiple(weighted[i], -kappa * a[i] * more, gradient)
                of_pieces = from_pieces.copy()
                _whiten(others, j, of_pieces)
                add_multiple(dot(step, half, np.empty(width)), -kappa, fit)
                log_ratio -= _inner(of_pieces[0], fit) - 0.5 * kappa * _inner(of_pieces[0], of_pieces[0])
                add_multiple(dot(half, of_pieces[0], np.empty(d)), kappa, gradient)
                add_multiple(of_pieces[0], -kappa, fit)
                solve_in_place(others, fit.reshape((1, width)), True)
                for i in samples[:differing]:
                    add_multiple(weighted[i], (a_new[i] - a[i]) * (rest[i] - _inner(b[i], fit)), gradient)
                _change_slopes(weighted, b, a, a_new, samples[:differing], gram, m, buffers)
                factor_new, half = _factor(gram, m, others, j, kappa, lam)
                log_ratio += ratio_of_proposals(step, factor, factor_new, gradient, rho[p, j], xi[p, j])
                if log_u[p, j] < log_ratio:
                    accepted[p, j] = 1
                    for i in range(n):
                        post[i] += root[i] * (a_new[i] * z_new[i] + c_new[i] - (a[i] * z[j, i] + c[i]))
                    copy(w_new, w[j])
                    copy(z_new, z[j])
                    for k in range(width):
                        v[k] += u[k] + from_pieces[0, k]
                    v[j] = _inner(post, post)
                    for i in range(n):
                        b[i, j] = post[i]
                    for l in range(len(y)):
                        t[l, j] = _inner(y[l], post)
                    for k in range(width):
                        products[j, k] = products[k, j] = v[k]
                    column = dot(post, weighted, np.empty(d))
                    for k in range(d):
                        with_above[k, j] = column[k]
        return w, z.T, accepted

    return marginal_passes

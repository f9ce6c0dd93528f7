"""The passes of :mod:`pymc_gibbsnn.moves.interweave_deep` for Numba, in its letters."""

from __future__ import annotations

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn.backends.lapack import dot
from pymc_gibbsnn.backends.vector_math import add_multiple, copy, copy_matrix, summing
from pymc_gibbsnn.moves.interweave_kernels import (
    change_of_prior,
    factor_unit,
    line_unit,
    propose,
    ratio_of_proposals,
    transposed,
)

__all__ = ["numba_deep_passes"]


@numba_njit
def _lines(z, widths, tables, s, a):
    """Evaluate the activations of the hidden layers above.

    Parameters
    ----------
    z : array, (units, n)
        Their pre-activations.
    widths, tables
        As :class:`~pymc_gibbsnn.moves.interweave_deep.DeepInputs` has them.
    s, a : array, (units, n)
        Receive σ(z) and slopes.
    """
    row = 0
    for k in range(1, len(widths) - 1):
        for _ in range(widths[k]):
            line_unit(z[row], tables[k, 0], tables[k, 1], tables[k, 2], s[row], a[row])
            row += 1


@numba_njit
def _derivatives(column, slopes, a, weights, widths):
    """Compute the derivatives g (c, n) of f by Z_j.

    Parameters
    ----------
    column, slopes : array, (units of the next layer,) and (n,)
        The weights that go out of the unit, and its slopes.
    a : array, (units, n)
        The slopes of the hidden layers above.
    weights, widths
        As :class:`~pymc_gibbsnn.moves.interweave_deep.DeepInputs` has them.
    """
    first, row, n = widths[0] * widths[1], 0, len(slopes)
    below, units = widths[1], widths[2]
    w = weights[first : first + units * below].reshape((units, below)).copy()
    for i in range(units):
        for j in range(below):
            w[i, j] *= column[j]
    g = dot(w, a[:below], np.empty((units, n)))
    for k in range(2, len(widths) - 1):
        first, row = first + units * below, row + below
        below, units = widths[k], widths[k + 1]
        for i in range(below):
            for m in range(n):
                g[i, m] *= a[row + i, m]
        g = dot(weights[first : first + units * below].reshape((units, below)), g, np.empty((units, n)))
    for i in range(units):
        for m in range(n):
            g[i, m] *= slopes[m]
    return g


@numba_njit
def _propose(column, change, z, s, weights, widths, tables, z_new, s_new, a_new):
    """Compute what is above where σ(Z_j) changes; return the change of f (c, n).

    Parameters
    ----------
    column, change : array, (units of the next layer,) and (n,)
        The weights that go out of the unit, and the change of σ(Z_j).
    z, s : array, (units, n)
        Z and σ(Z) of the hidden layers above.
    weights, widths, tables
        As :class:`~pymc_gibbsnn.moves.interweave_deep.DeepInputs` has them.
    z_new, s_new, a_new : array, (units, n)
        Receive Z, σ(Z) and slopes.
    """
    first, row, n = widths[0] * widths[1], 0, len(change)
    changes = np.empty((widths[1], n))
    for i in range(widths[1]):
        for m in range(n):
            changes[i, m] = column[i] * change[m]
    for k in range(1, len(widths) - 1):
        below, units = widths[k], widths[k + 1]
        for i in range(below):
            for m in range(n):
                z_new[row, m] = z[row, m] + changes[i, m]
            line_unit(z_new[row], tables[k, 0], tables[k, 1], tables[k, 2], s_new[row], a_new[row])
            for m in range(n):
                changes[i, m] = s_new[row, m] - s[row, m]
            row += 1
        w = weights[first : first + units * below].reshape((units, below))
        first += units * below
        changes = dot(w, changes, np.empty((units, n)))
    return changes


@summing
def _sums(g, weighted, residual, curvature, pull):
    """Compute gᵀS⁻¹g and gᵀS⁻¹r of each sample.

    Parameters
    ----------
    g, weighted, residual : array, (c, n)
        g, S⁻¹g and the residual r.
    curvature, pull : array, (n,)
        Receive both.
    """
    for m in range(len(pull)):
        curvature[m], pull[m] = 0.0, 0.0
    for k in range(len(g)):
        for m in range(len(pull)):
            curvature[m] += weighted[k, m] * g[k, m]
            pull[m] += weighted[k, m] * residual[k, m]


@numba_njit
def _approximate(x, g, inverse, residual, precision, w, buffers):
    """Compute Lᵀ of Q = L Lᵀ, in an upper triangle, or NaN where there is none, and ∇.

    Parameters
    ----------
    x, g, inverse, residual : array, (n, d), (c, n), (c, c) and (c, n)
        Ã, g, S⁻¹ and Y − f.
    precision, w : array, (d,)
        Λ and W̃_j.
    buffers : tuple of array, (n, d) each
        Room for rows of Ã.
    """
    (n, d), (rows, scaled), k = x.shape, buffers, 0
    curvature, pull = np.empty(n), np.empty(n)
    _sums(g, dot(inverse, g, np.empty_like(g)), residual, curvature, pull)
    for i in range(n):
        if curvature[i] != 0:
            for l in range(d):
                rows[k, l], scaled[k, l] = x[i, l], curvature[i] * x[i, l]
            k += 1
    gram, gradient = np.zeros((d, d)), dot(pull, x, np.empty(d))
    if k > 0:
        dot(rows[:k].T, scaled[:k], gram)
    for l in range(d):
        gradient[l] -= precision[l] * w[l]
    return factor_unit(gram, 1.0, precision), gradient


def numba_deep_passes(op, node):
    """Make the function of the inputs of :class:`InterweaveDeep` for Numba, one for networks of all widths."""

    @numba_njit
    def deep_passes(x, w, z, latents, weights, widths, y, inverse, precision, rho, log_u, xi, tables):
        (n, d), (c, units) = x.shape, (y.shape[1], latents.shape[1])
        x, z, upper = np.ascontiguousarray(x), transposed(z), transposed(latents)
        w, accepted = w.copy(), np.zeros_like(rho)
        s, a, s_new, a_new = np.empty((units, n)), np.empty((units, n)), np.empty((units, n)), np.empty((units, n))
        upper_new, residual_new, buffers = np.empty((units, n)), np.empty((c, n)), (np.empty((n, d)), np.empty((n, d)))
        own, slopes, own_new, slopes_new = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
        z_new, w_new, change = np.empty(n), np.empty(d), np.empty(n)
        _lines(upper, widths, tables, s, a)
        residual, width = transposed(y), widths[-2]
        last = weights[len(weights) - c * width :].reshape((c, width))
        fit = dot(last, s[units - width :], np.empty((c, n)))
        for k in range(c):
            add_multiple(fit[k], -1.0, residual[k])
        outgoing = transposed(weights[: widths[0] * widths[1]].reshape((widths[1], widths[0])))
        for p in range(len(rho)):
            for j in range(len(w)):
                lam = precision[min(j, len(precision) - 1)]
                line_unit(z[j], tables[0, 0], tables[0, 1], tables[0, 2], own, slopes)
                g = _derivatives(outgoing[j], slopes, a, weights, widths)
                factor, step = _approximate(x, g, inverse, residual, lam, w[j], buffers)
                propose(x, w[j], z[j], factor, step, rho[p, j], xi[p, j], w_new, z_new)
                line_unit(z_new, tables[0, 0], tables[0, 1], tables[0, 2], own_new, slopes_new)
                for i in range(n):
                    change[i] = own_new[i] - own[i]
                changes = _propose(outgoing[j], change, upper, s, weights, widths, tables, upper_new, s_new, a_new)
                weighted, log_ratio = dot(inverse, changes, np.empty((c, n))), 0.0
                for k in range(c):
                    for i in range(n):
                        residual_new[k, i] = residual[k, i] - changes[k, i]
                        log_ratio += 0.5 * weighted[k, i] * (residual[k, i] + residual_new[k, i])
                g = _derivatives(outgoing[j], slopes_new, a_new, weights, widths)
                factor_new, drift = _approximate(x, g, inverse, residual_new, lam, w_new, buffers)
                log_ratio += change_of_prior(step, w[j], w_new, lam)
                log_ratio += ratio_of_proposals(step, factor, factor_new, drift, rho[p, j], xi[p, j])
                if log_u[p, j] < log_ratio:
                    accepted[p, j] = 1
                    copy(w_new, w[j])
                    copy(z_new, z[j])
                    copy_matrix(residual_new, residual)
                    upper, upper_new = upper_new, upper
                    s, s_new = s_new, s
                    a, a_new = a_new, a
        return w, z.T, upper.T, accepted

    return deep_passes, "any widths"

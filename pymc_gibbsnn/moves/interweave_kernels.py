"""The passes of :mod:`pymc_gibbsnn.moves.interweave_pieces` for Numba, in its letters.

A Gram matrix is changed by the samples whose squared slope has changed, or formed anew from those whose slope is not 0,
whichever are fewer.
"""

from __future__ import annotations

import math

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn.backends.declare import of_any_layout
from pymc_gibbsnn.backends.lapack import dot, factor_in_place
from pymc_gibbsnn.backends.vector_math import add_multiple, copy, copy_matrix

__all__ = [
    "change_of_prior",
    "factor_unit",
    "gradient_of",
    "line_unit",
    "numba_passes",
    "pieces_unit",
    "propose",
    "ratio_of_proposals",
    "transposed",
]


@numba_njit
def _update_gram(gram, squares, slopes, x):
    """Bring the Gram matrix of one unit up to date, in place.

    Parameters
    ----------
    gram : array, (d, d)
        Ãᵀ diag(``squares``) Ã, which becomes that of the squared slopes.
    squares : array, (n,)
        The squared slopes from which ``gram`` was formed, which become those now.
    slopes : array, (n,)
        The slopes now.
    x : array, (n, d)
        Ã.
    """
    (n, d), rows, changed, active = x.shape, np.empty(len(x), np.int64), 0, 0
    for i in range(n):
        rows[changed] = i
        changed += slopes[i] * slopes[i] != squares[i]
        active += slopes[i] != 0
    if active < changed:
        changed = 0
        for i in range(n):
            rows[changed], squares[i] = i, 0
            changed += slopes[i] != 0
        for k in range(d):
            for l in range(d):
                gram[k, l] = 0
    if changed == 0:
        return
    moved, scaled = np.empty((changed, d)), np.empty((changed, d))
    for k in range(changed):
        i = rows[k]
        change, squares[i] = slopes[i] * slopes[i] - squares[i], slopes[i] * slopes[i]
        for l in range(d):
            moved[k, l] = x[i, l]
            scaled[k, l] = change * moved[k, l]
    added = dot(scaled.T, moved, np.empty((d, d)))
    for k in range(d):
        for l in range(d):
            gram[k, l] += added[k, l]


@numba_njit
def factor_unit(gram, kappa, precision):
    """Factor Q = κ Ãᵀ diag(a²) Ã + Λ = L Lᵀ of one unit: Lᵀ in an upper triangle, or NaN where rounding leaves none."""
    q = np.empty_like(gram)
    for k in range(len(q)):
        for l in range(len(q)):
            q[k, l] = kappa * gram[k, l]
        q[k, k] += precision[k]
    if not factor_in_place(q):
        q[:] = np.nan
    return q


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
def propose(x, w, z, factor, step, rho, xi, w_new, z_new):
    """Turn ∇ into the proposed step, in place, and write where it leads.

    Parameters
    ----------
    x, w, z : array, (n, d), (d,) and (n,)
        Ã, W̃_j and Z_j.
    factor, step : array, (d, d) and (d,)
        Lᵀ in an upper triangle, and ∇, which becomes the step.
    rho, xi : float and array, (d,)
        ρ and ξ.
    w_new, z_new : array, (d,) and (n,)
        Receive W̃_j and Z_j after the step.
    """
    scale = math.sqrt((1 - rho) * (1 + rho))
    _solve(factor, step)
    for k in range(len(step)):
        step[k] = (1 - rho) * step[k] + scale * xi[k]
    _solve_transposed(factor, step)
    dot(x, step, z_new)
    for k in range(len(w)):
        w_new[k] = w[k] + step[k]
    for i in range(len(z)):
        z_new[i] += z[i]


@numba_njit
def change_of_prior(step, w, w_new, precision):
    """Compute the change of −½ W̃_jᵀ Λ W̃_j by a step.

    Parameters
    ----------
    step, w, w_new, precision : array, (d,)
        The step, W̃_j before and after it, and Λ.
    """
    change = 0.0
    for k in range(len(step)):
        change -= 0.5 * precision[k] * step[k] * (w[k] + w_new[k])
    return change


@numba_njit
def ratio_of_proposals(step, factor, factor_new, drift_new, rho, xi):
    """Compute what the proposal adds to the logarithm of the acceptance ratio.

    Parameters
    ----------
    step : array, (d,)
        The step.
    factor, factor_new : array, (d, d)
        Lᵀ before and after.
    drift_new, rho, xi : array, float and array
        ∇ after the step, which becomes L⁻¹ ∇, and ρ and ξ.
    """
    log_ratio, scale = 0.0, math.sqrt((1 - rho) * (1 + rho))
    _solve(factor_new, drift_new)
    for k in range(len(step)):
        back = (1 - rho) * drift_new[k]
        for i in range(k, len(step)):
            back += factor_new[k, i] * step[i]
        back /= scale
        log_ratio += 0.5 * (xi[k] ** 2 - back**2) + math.log(factor_new[k, k] / factor[k, k])
    return log_ratio


@numba_njit
def pieces_unit(z, edges, slopes, intercepts, a, c):
    """Write the slope and the intercept of σ at z, for the n samples of one unit, into arrays.

    Parameters
    ----------
    z : array, (n,)
        Pre-activations.
    edges, slopes, intercepts : array, (k + 1,), (k,), (k,)
        The table of σ.
    a, c : array, (n,)
        Receive slopes and intercepts.
    """
    for p in range(len(slopes)):
        edge, slope, intercept = edges[p], slopes[p], intercepts[p]
        for i in range(len(z)):
            right = z[i] > edge
            a[i] = slope if right else a[i]
            c[i] = intercept if right else c[i]


@numba_njit
def line_unit(z, edges, slopes, intercepts, s, a):
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
    pieces_unit(z, edges, slopes, intercepts, a, s)
    for i in range(len(z)):
        s[i] += a[i] * z[i]


@numba_njit
def transposed(x):
    """Copy the transpose of a matrix, row by row."""
    out = np.empty((x.shape[1], x.shape[0]), x.dtype)
    for i in range(len(x)):
        for j in range(len(out)):
            out[j, i] = x[i, j]
    return out


@numba_njit
def gradient_of(slopes, pull, x, precision, w):
    """Compute ∇ = Ãᵀ(a ∘ pull) − Λ W̃_j (d,) of one unit.

    Parameters
    ----------
    slopes, pull : array, (n,)
        a and the pull.
    x : array, (n, d)
        Ã.
    precision, w : array, (d,)
        Λ and W̃_j.
    """
    pulled = np.empty_like(pull)
    for i in range(len(pull)):
        pulled[i] = slopes[i] * pull[i]
    gradient = dot(pulled, x, np.empty(len(w), x.dtype))
    for k in range(len(w)):
        gradient[k] -= precision[k] * w[k]
    return gradient


def numba_passes(op, node):
    """Make the function of the inputs of :class:`Interweave` for Numba, in loops over passes and units.

    It is one for all layers: the Gram matrices of a first move are given as zeros, and W̃ in any layout.
    """

    # Loops in place of expressions of arrays compile in half the time.
    @numba_njit
    def passes(x, w, z, y, v, g, precision, rho, log_u, xi, gram, squares, edges, slopes, intercepts):
        n, c = y.shape
        h, d = w.shape
        x, z, r = np.ascontiguousarray(x), transposed(z), transposed(y)
        w, gram, squares = w.copy(), gram.copy(), squares.copy()
        accepted, factors = np.zeros_like(rho), np.empty((h, d, d))
        gram_new, squares_new, w_new = np.empty((d, d)), np.empty_like(z[0]), np.empty_like(w[0])
        s, a, pull, pull_new = np.empty_like(z), np.empty_like(z), np.empty_like(z[0]), np.empty_like(z[0])
        z_new, s_new, a_new = np.empty_like(z[0]), np.empty_like(z[0]), np.empty_like(z[0])
        kappas = np.zeros(h, v.dtype)
        for j in range(h):
            line_unit(z[j], edges, slopes, intercepts, s[j], a[j])
            for k in range(c):
                kappas[j] += v[k, j] * g[k, j]
                add_multiple(s[j], -v[k, j], r[k])
            _update_gram(gram[j], squares[j], a[j], x)
            lam = precision[min(j, len(precision) - 1)]
            copy_matrix(factor_unit(gram[j], kappas[j], lam), factors[j])
            if math.isnan(factors[j, 0, 0]):  # Rounding errors of earlier changes may be the cause.
                squares[j], gram[j] = 0, 0
                _update_gram(gram[j], squares[j], a[j], x)
                copy_matrix(factor_unit(gram[j], kappas[j], lam), factors[j])
        for p in range(len(rho)):
            for j in range(h):
                lam = precision[min(j, len(precision) - 1)]
                kappa = kappas[j]
                for i in range(n):
                    pull[i] = 0
                for k in range(c):
                    add_multiple(r[k], g[k, j], pull)
                step = gradient_of(a[j], pull, x, lam, w[j])
                propose(x, w[j], z[j], factors[j], step, rho[p, j], xi[p, j], w_new, z_new)
                line_unit(z_new, edges, slopes, intercepts, s_new, a_new)
                copy_matrix(gram[j], gram_new)
                copy(squares[j], squares_new)
                _update_gram(gram_new, squares_new, a_new, x)
                factor = factor_unit(gram_new, kappa, lam)
                log_ratio = 0.0
                for i in range(n):
                    change = s_new[i] - s[j, i]
                    pull_new[i] = pull[i] - kappa * change
                    log_ratio += change * (pull[i] - 0.5 * kappa * change)
                drift = gradient_of(a_new, pull_new, x, lam, w_new)
                log_ratio += change_of_prior(step, w[j], w_new, lam)
                log_ratio += ratio_of_proposals(step, factors[j], factor, drift, rho[p, j], xi[p, j])
                if log_u[p, j] < log_ratio:
                    accepted[p, j] = 1
                    for k in range(c):
                        for i in range(n):
                            r[k, i] -= (s_new[i] - s[j, i]) * v[k, j]
                    copy(w_new, w[j])
                    copy(z_new, z[j])
                    copy(s_new, s[j])
                    copy(a_new, a[j])
                    copy(squares_new, squares[j])
                    copy_matrix(gram_new, gram[j])
                    copy_matrix(factor, factors[j])
        return w, z.T, gram, squares, accepted

    return of_any_layout(passes, 1), ()

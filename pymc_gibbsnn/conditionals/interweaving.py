r"""The interweaving move: the weights of one unit at a time, its noise held fixed, its post-activations integrated out.

Given Z, the weights below it move by sqrt(Δ/n), however wide their posterior is. Hold instead the noise
ε_j = Z_j − Ã W̃_j of unit j and let Z_j move with the weights (the other parametrisation of Yu & Meng 2011). With A
integrated out as in :mod:`pymc_gibbsnn.conditionals.preactivations`, the target for W̃_j (d,) is

    log π(W̃_j) = Σ_μ [t_μ σ(z_μ) − κ_j σ(z_μ)²/2] − ½ W̃_jᵀ Λ W̃_j,     z = Ã W̃_j + ε_j.

Let pull = t − κ_j σ(z) = (Y − σ(Z) Wᵀ) S⁻¹ w_j at the current Z. On the pieces that hold z now, of slopes a, the target
is Gaussian, with precision and mean

    Q = κ_j Ãᵀ diag(a²) Ã + Λ,     W̃_j + Q⁻¹ ∇,     ∇ = Ãᵀ(a ∘ pull) − Λ W̃_j.

The proposal is an autoregressive step of this Gaussian, of persistence 0 ≤ ρ < 1,

    W̃_j' = W̃_j + (1 − ρ) Q⁻¹ ∇ + sqrt(1 − ρ²) Q^{-1/2} ξ,     ξ ~ N(0, I),

accepted by the Metropolis-Hastings rule with the Gaussian of the pieces at Z' for the way back. Where no sample changes
its piece it is always accepted. Near equilibrium long steps are best (ρ = 0 is a fresh draw), far from it only short
ones are accepted. So the units are visited twice: with ρ = 0, then with a ρ uniform on (0, 1), drawn for each.

Few samples change their piece. A Gram matrix Ãᵀ diag(a²) Ã is kept from move to move and changed by these samples, and
the gradient ∇' at Z' follows from that at Z by a sum over them,

    ∇' = ∇ − Q δ + Σ_moved ã_μ [a'_μ pull'_μ − a_μ (pull_μ − κ_j a_μ ã_μᵀδ)],     δ = W̃_j' − W̃_j,

in which pull' = pull − κ_j (σ(z') − σ(z)). In single precision JAX forms a Gram matrix anew now and then, so that
rounding does not add up.

References
----------
.. [1] Y. Yu, X.-L. Meng. To center or not to center: that is not the question. J. Comput. Graph. Stat. 20 (2011).
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from pytensor.tensor.random import normal, uniform
from scipy.linalg import solve_triangular

from pymc_gibbsnn._compat import draw, jax_op, source_key
from pymc_gibbsnn.activations import PiecewiseLinear, on_lines

__all__ = ["Interweave", "interweave_pieces", "no_gram"]

ROWS_AT_ONCE = 32  # by which JAX changes a Gram matrix
SWEEPS_A_UNIT = 16  # after which JAX forms one anew, on average


class Interweave(Op):
    r"""Passes of the move over the units of a layer: a deterministic function of the random numbers it is given.

    Parameters
    ----------
    is_first : bool
        Whether the Gram matrices that it is given are zeros.

    Inputs
    ------
    x : (n, d), the layer's input Ã
    w : (h, d), its weights W̃
    z : (n, h), its output
    y : (n, c), what the layer above sees, less its bias
    v, g : (c, h), the weights W above and the gain S⁻¹ W
    precision : (1 or h, d), Λ
    rho, log_u : (p, h), for each of p passes: persistence, logarithm of a uniform number
    xi : (p, h, d), standard normal numbers
    gram : (h, d, d), squares : (h, n)
        Ãᵀ diag(a²) Ã of each unit, and the squared slopes a² that it is of; zeros to begin with.
    edges : (k + 1,), slopes, intercepts : (k,)
        The table of σ.

    Outputs
    -------
    w, z, gram and squares after the passes, and accepted : (p, h), zeros and ones
    """

    __props__ = ("is_first",)

    def __init__(self, is_first: bool = False):
        self.is_first = is_first

    def make_node(self, *inputs):
        """One node; see the class for its inputs."""
        inputs = [pt.as_tensor(x) for x in inputs]
        _, w, z, _, _, _, _, rho, _, _, gram, squares, _, _, _ = inputs
        return Apply(self, inputs, [w.type(), z.type(), gram.type(), squares.type(), rho.type()])

    def infer_shape(self, *args):
        """Shapes of the outputs, from those of the inputs."""
        _, w, z, _, _, _, _, rho, _, _, gram, squares, _, _, _ = args[-1]  # PyTensor 2 passes the graph first
        return [w, z, gram, squares, rho]

    def perform(self, node, inputs, outputs):
        """Run with NumPy and SciPy."""
        x, w, z, y, v, g, precision, rho, log_u, xi, _, _, *table = inputs
        w, z, accepted = w.copy(), z.copy(), np.empty_like(rho)
        precision = np.broadcast_to(precision, w.shape)
        s, a, _ = on_lines(z, *table, np)
        r, gram = y - s @ v.T, np.array([_form_gram(x, a**2) for a in a.T])
        factors = [
            np.linalg.cholesky(k * m + np.diag(p)) for k, m, p in zip((v * g).sum(0), gram, precision, strict=True)
        ]
        for p, j in np.ndindex(rho.shape):
            accepted[p, j], new, _ = _move_unit(
                r, x, w[j], z[:, j], v[:, j], g[:, j], precision[j], rho[p, j], log_u[p, j], xi[p, j],
                gram[j], factors[j], table, np, np.linalg.cholesky, solve_triangular, _change_rows,
            )  # fmt: skip
            if accepted[p, j]:
                r, w[j], z[:, j], gram[j], factors[j] = new
        squares = (on_lines(z, *table, np)[1] ** 2).T
        for output, result in zip(outputs, (w, z, gram, squares, accepted), strict=True):
            output[0] = result


def interweave_pieces(
    rng: Variable,
    x: Variable,
    w: Variable,
    z: Variable,
    y: Variable,
    v: Variable,
    g: Variable,
    precision: Variable,
    kept: tuple[Variable, Variable] | None,
    shape: tuple[int, int],
    function: PiecewiseLinear,
) -> tuple[Variable, ...]:
    """(rng, W̃, Z, gram, squares, accepted) after a pass with ρ = 0 and one with random ρ; see :class:`Interweave`.

    ``kept`` is (gram, squares) of the last call, None where the input is not the same; ``shape`` that of W̃, (h, d).
    """
    zero, one = pt.constant(np.array([0, 1], w.dtype))
    rng, xi = draw(normal, rng, zero, one, size=(2, *shape))
    rng, u = draw(uniform, rng, zero, one, size=(3, shape[0]))
    rho = np.array([[0], [1]], w.dtype) * pt.minimum(u[2], 1 - 1e-6)
    table = [pt.constant(number.astype(w.dtype)) for number in (function.edges, function.slopes, function.intercepts)]
    move = Interweave(is_first=kept is None)
    return rng, *move(x, w, z, y, v, g, precision, rho, pt.log1p(-u[:2]), xi, *(kept or no_gram(z, shape)), *table)


def no_gram(z: Variable, shape: tuple[int, int]) -> tuple[Variable, Variable]:
    """(gram, squares) before any Gram matrix is known, for weights W̃ of this shape (h, d) and output Z."""
    h, d = shape
    return pt.zeros((h, d, d), dtype="float64"), pt.zeros_like(z.T)


def _form_gram(x, squares):
    """Ãᵀ diag(a²) Ã"""
    return (x * squares[:, None]).T @ x


def _change_rows(x, moved, gram, squares, gradient, surplus):
    """Add Σ ã c ãᵀ to a Gram matrix and Σ ã s to a gradient, with c and s of the samples that have moved."""
    x = x[moved]
    return gram + _form_gram(x, squares[moved]), gradient + surplus[moved] @ x


def _move_unit(
    r, x, w, z, v, g, precision, rho, log_u, xi, gram, factor, table, xp, cholesky, solve_triangular, change_rows
):
    """(accepted, new, old) for the move of one unit, both as (residual, W̃, Z, gram, L), Q = L Lᵀ; for NumPy and JAX."""
    kappa, pull = v @ g, r @ g
    s, a, c = on_lines(z, *table, xp)
    gradient = (a * pull) @ x - precision * w
    drift = solve_triangular(factor, gradient, lower=True)
    scale = xp.sqrt((1 - rho) * (1 + rho))
    step = solve_triangular(factor, (1 - rho) * drift + scale * xi, lower=True, trans=1)
    shift = x @ step
    w_new, z_new = w + step, z + shift
    s_new, a_new, c_new = on_lines(z_new, *table, xp)
    change = s_new - s
    gradient_new = gradient - kappa * (gram @ step) - precision * step  # if no sample moves
    surplus = a_new * (pull - kappa * change) - a * (pull - kappa * a * shift)
    moved = (a_new != a) | (c_new != c)
    gram_new, gradient_new = change_rows(x, moved, gram, a_new**2 - a**2, gradient_new, surplus)
    factor_new = cholesky(kappa * gram_new + xp.diag(precision))
    drift_new = solve_triangular(factor_new, gradient_new, lower=True)
    xi_back = -(factor_new.T @ step + (1 - rho) * drift_new) / scale
    log_ratio = (
        (change * (pull - kappa * change / 2)).sum()
        - (precision * step * (w + w_new)).sum() / 2
        + xp.log(xp.diag(factor_new) / xp.diag(factor)).sum()
        + ((xi**2).sum() - (xi_back**2).sum()) / 2
    )
    new = r - change[:, None] * v, w_new, z_new, gram_new, factor_new
    return log_u < log_ratio, new, (r, w, z, gram, factor)


@jax_op(Interweave)
def _jax(op, node, **kwargs):
    import jax
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular

    dtype = node.outputs[0].dtype
    cholesky = partial(jnp.linalg.cholesky, symmetrize_input=False)

    def change_rows(x, moved, gram, squares, gradient, surplus):
        """As for NumPy, a few samples at a time."""

        def change(kept):
            gram, gradient, left = kept
            here, rows = jax.lax.top_k(left, min(ROWS_AT_ONCE, len(x)))
            few = x[rows]
            gram = gram + _form_gram(few, here * squares[rows])
            return gram, gradient + (here * surplus[rows]) @ few, left.at[rows].set(0)

        left = moved.astype(jnp.float32)  # of which the largest are found fastest
        return jax.lax.while_loop(lambda kept: (kept[2] != 0).any(), change, (gram, gradient, left))[:2]

    def passes(*inputs):
        # A sum in single precision may arrive here in double.
        x, w, z, y, v, g, precision, rho, log_u, xi, gram, squares, *table = (jnp.asarray(i, dtype) for i in inputs)
        precision = jnp.broadcast_to(precision, w.shape)
        s, a, _ = on_lines(z, *table, jnp)
        new_squares = (a**2).T
        if op.is_first:
            gram = jax.lax.map(partial(_form_gram, x), new_squares)
        else:

            def change(unit):
                gram, change = unit
                return change_rows(x, change != 0, gram, change, jnp.zeros_like(w[0]), jnp.zeros_like(change))[0]

            gram = jax.lax.map(change, (gram, new_squares - squares))
            if x.dtype == jnp.float32:
                j = (SWEEPS_A_UNIT * rho[1, 0] * len(w)).astype(jnp.int32)  # a unit at random, or none
                renewed = partial(_form_gram, x, new_squares[j])
                gram = jax.lax.cond(j < len(w), lambda: gram.at[j].set(renewed()), lambda: gram)
        kappa = (v * g).sum(0)
        factors = jax.lax.map(lambda q: cholesky(q[0] * q[1] + jnp.diag(q[2])), (kappa, gram, precision))

        def unit(r, inputs):
            accepted, new, old = _move_unit(r, x, *inputs, table, jnp, cholesky, solve_triangular, change_rows)
            r, *unit = jax.lax.cond(accepted, lambda: new, lambda: old)
            return r, (unit, accepted.astype(dtype))

        r, z, accepted = y - s @ v.T, z.T, []
        for numbers in zip(rho, log_u, xi, strict=True):
            units = (w, z, v.T, g.T, precision, *numbers, gram, factors)
            r, ((w, z, gram, factors), flags) = jax.lax.scan(unit, r, units)
            accepted.append(flags)
        return w, z.T, gram, on_lines(z, *table, jnp)[1] ** 2, jnp.stack(accepted)

    return passes


# Numba: a Gram matrix changes by the samples whose squared slope has changed, or is formed anew from those that have a
# slope, whichever are fewer.


@numba_njit
def _update_gram(gram, old, new, x):
    rows, changed, active = np.empty(len(new), np.int64), 0, 0
    for i in range(len(new)):
        rows[changed] = i
        changed += new[i] != old[i]
        active += new[i] != 0
    rows = rows[:changed]
    change = new - old
    if active < changed:
        gram[:] = 0
        rows, change = np.nonzero(new)[0], new
    if len(rows) > 0:
        few = x[rows].astype(np.float64)
        gram += np.dot((change[rows].reshape(-1, 1) * few).T, few)


@numba_njit
def _factor(gram, kappa, precision):
    q = kappa * gram
    for k in range(len(precision)):
        q[k, k] += precision[k]
    return np.linalg.cholesky(q).T


# Of L, here and below, the transpose is kept: its rows lie in memory as one piece.


@numba_njit
def _solve(upper, b):
    """L⁻¹ b, in place."""
    for k in range(len(b)):
        b[k] /= upper[k, k]
        for i in range(k + 1, len(b)):
            b[i] -= b[k] * upper[k, i]


@numba_njit
def _solve_transposed(upper, b):
    """L⁻ᵀ b, in place."""
    for k in range(len(b) - 1, -1, -1):
        for i in range(k + 1, len(b)):
            b[k] -= upper[k, i] * b[i]
        b[k] /= upper[k, k]


@numba_njit
def _line_unit(z, edges, slopes, intercepts, s, a, c):
    """Write σ(z), slope and intercept at z of one unit into s, a and c."""
    for p in range(len(slopes)):
        edge, slope, intercept = edges[p], slopes[p], intercepts[p]
        for i in range(len(z)):
            right = z[i] > edge
            a[i] = slope if right else a[i]
            c[i] = intercept if right else c[i]
    for i in range(len(z)):
        s[i] = a[i] * z[i] + c[i]


@register_funcify_default_op_cache_key(Interweave)
def _numba(op, node, **kwargs):
    @numba_njit
    def passes(x, w, z, y, v, g, precision, rho, log_u, xi, gram, squares, edges, slopes, intercepts):
        n, k = y.shape
        h, d = w.shape
        x, z = np.ascontiguousarray(x), np.ascontiguousarray(z.T).copy()
        w, gram, squares = w.copy(), gram.copy(), squares.copy()
        accepted, factors = np.zeros_like(rho), np.empty((h, d, d))
        r, pull = np.ascontiguousarray(y.T).copy(), np.empty(n, w.dtype)
        s, a, c = np.empty_like(z), np.empty_like(z), np.empty_like(z)
        s_new, a_new, c_new = np.empty_like(z[0]), np.empty_like(z[0]), np.empty_like(z[0])
        rows, surplus = np.empty(n, np.int64), np.empty(n)
        for j in range(h):
            _line_unit(z[j], edges, slopes, intercepts, s[j], a[j], c[j])
            for i in range(k):
                r[i] -= s[j] * v[i, j]
            _update_gram(gram[j], squares[j], a[j] ** 2, x)
            factors[j] = _factor(gram[j], (v[:, j] * g[:, j]).sum(), precision[min(j, len(precision) - 1)])
        for p in range(len(rho)):
            for j in range(h):
                lam = precision[min(j, len(precision) - 1)]
                kappa, persistence = (v[:, j] * g[:, j]).sum(), rho[p, j]
                scale = math.sqrt((1 - persistence) * (1 + persistence))
                pull[:] = 0
                for i in range(k):
                    pull += r[i] * g[i, j]
                gradient = np.dot(a[j] * pull, x) - lam * w[j]
                drift = gradient.astype(np.float64)
                _solve(factors[j], drift)
                drift = (1 - persistence) * drift + scale * xi[p, j]
                _solve_transposed(factors[j], drift)
                step = drift.astype(w.dtype)
                shift = np.dot(x, step)
                w_new, z_new = w[j] + step, z[j] + shift
                _line_unit(z_new, edges, slopes, intercepts, s_new, a_new, c_new)
                gradient_new = gradient - kappa * np.dot(gram[j], step.astype(np.float64)) - lam * step
                moved, log_ratio = 0, 0.0
                for i in range(n):
                    change = s_new[i] - s[j, i]
                    log_ratio += change * (pull[i] - 0.5 * kappa * change)
                    rows[moved] = i
                    surplus[moved] = a_new[i] * (pull[i] - kappa * change)
                    surplus[moved] -= a[j, i] * (pull[i] - kappa * a[j, i] * shift[i])
                    moved += (a_new[i] != a[j, i]) | (c_new[i] != c[j, i])
                gradient_new += np.dot(surplus[:moved], x[rows[:moved]].astype(np.float64))
                gram_new = gram[j].copy()
                _update_gram(gram_new, a[j] ** 2, a_new**2, x)
                factor = _factor(gram_new, kappa, lam)
                _solve(factor, gradient_new)
                for i in range(d):
                    back = (1 - persistence) * gradient_new[i]
                    for m in range(i, d):
                        back += factor[i, m] * step[m]
                    back /= scale
                    log_ratio += 0.5 * (xi[p, j, i] ** 2 - back**2 - lam[i] * step[i] * (w[j, i] + w_new[i]))
                    log_ratio += math.log(factor[i, i] / factors[j, i, i])
                if log_u[p, j] < log_ratio:
                    accepted[p, j] = 1
                    for i in range(k):
                        r[i] -= (s_new - s[j]) * v[i, j]
                    w[j], z[j], s[j], a[j], c[j] = w_new, z_new, s_new, a_new, c_new
                    gram[j], factors[j] = gram_new, factor
        return w, z.T, gram, a**2, accepted

    return passes, source_key(__file__)

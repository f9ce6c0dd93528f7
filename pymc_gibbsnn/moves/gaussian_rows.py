r"""Rows of Gaussian vectors of which some entries are drawn, and which share their precision matrices in groups.

Row i has the entries M of its group g to be drawn, with the precision P and the linear term η_M:

    x_M ~ N(P⁻¹ η_M, P⁻¹),   P = Σ_r s_r (G_r)_MM + diag(λ_M),   x_M = L⁻ᵀ (L⁻¹ η_M + ξ_M),  P = L Lᵀ,  ξ ~ N(0, I).

The matrices G_r are the same for all rows, s and λ for all rows of a group, which has one Cholesky factor.
"""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit
from scipy.linalg import cholesky, solve_triangular

from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.jax_backend import by_platform

__all__ = ["gaussian_rows"]


class GaussianRows(Op):
    """Rows x (n, d) as a deterministic function of normal numbers; entries that are not drawn are 0.

    Notes
    -----
    The inputs of a node are

    - grams (k, d, d): the matrices G;
    - weights (g, k) and precision (g, d): s and λ;
    - drawn (g, d): which entries are drawn, as truth values;
    - group (n,): the group of each row; rows of one group must lie next to each other;
    - linear, xi (n, d): η and ξ.
    """

    __props__ = ()

    def make_node(self, *inputs):
        """Make the node of these inputs, which the class lists."""
        inputs = [pt.as_tensor(x) for x in inputs]
        return Apply(self, inputs, [inputs[5].type.clone(shape=(None, None))()])

    def infer_shape(self, *args):
        """Return the shape of x, which is that of ξ."""
        return [args[-1][6]]  # PyTensor 2 passes the graph first

    def perform(self, node, inputs, outputs):
        """Compute x with SciPy."""
        grams, weights, precision, drawn, group, linear, xi = inputs
        x = np.zeros_like(linear)
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        for rows in np.split(np.arange(len(group)), starts[1:]):
            g = group[rows[0]]
            m, gram = drawn[g], np.tensordot(weights[g], grams, 1)
            factor = cholesky(gram[np.ix_(m, m)] + np.diag(precision[g, m]), lower=True)
            at = np.ix_(rows, m)
            whitened = solve_triangular(factor, linear[at].T, lower=True) + xi[at].T
            x[at] = solve_triangular(factor, whitened, lower=True, trans=1).T
        outputs[0][0] = x


gaussian_rows = GaussianRows()


def _numba(op, node):
    """Make the function of the inputs of :class:`GaussianRows` for Numba."""

    @numba_njit
    def factorised(grams, weights, precision, m):
        matrix = np.zeros((len(m), len(m)), grams.dtype)
        for i in range(len(m)):
            for r in range(len(grams)):
                for k in range(len(m)):
                    matrix[i, k] += weights[r] * grams[r, m[i], m[k]]
            matrix[i, i] += precision[m[i]]
        return np.linalg.cholesky(matrix)

    @numba_njit
    def fill(factor, m, linear, xi, x):
        """Solve for the entries m of one row, whose values in x are whitened first."""
        for i in range(len(m)):
            total = linear[m[i]]
            for k in range(i):
                total -= factor[i, k] * x[m[k]]
            x[m[i]] = total / factor[i, i]
        for i in range(len(m)):
            x[m[i]] += xi[m[i]]
        for i in range(len(m) - 1, -1, -1):
            total = x[m[i]]
            for k in range(i + 1, len(m)):
                total -= factor[k, i] * x[m[k]]
            x[m[i]] = total / factor[i, i]

    @numba_njit
    def rows(grams, weights, precision, drawn, group, linear, xi):
        x = np.zeros(linear.shape, linear.dtype)
        start = 0
        while start < len(group):
            g = group[start]
            m = np.nonzero(drawn[g])[0]
            factor = factorised(grams, weights[g], precision[g], m)
            while start < len(group) and group[start] == g:
                fill(factor, m, linear[start], xi[start], x[start])
                start += 1
        return x

    return rows


def _jax(op, node):
    """Make the function of the inputs of :class:`GaussianRows` for JAX.

    Factors are inverted, so that rows are products. On a CPU this is done one by one: programs that call LAPACK for
    batches of matrices cannot run there at once.
    """
    import jax.numpy as jnp
    from jax.lax import map as in_turn
    from jax.scipy.linalg import solve_triangular

    def rows(grams, weights, precision, drawn, group, linear, xi):
        one = jnp.eye(precision.shape[1], dtype=grams.dtype)
        both = drawn[:, :, None] & drawn[:, None, :]
        diagonal = jnp.where(drawn, precision, 1)[:, :, None] * one
        matrices = jnp.where(both, jnp.tensordot(weights, grams, 1), 0) + diagonal

        def inverse_factor(matrix):
            return solve_triangular(jnp.linalg.cholesky(matrix, symmetrize_input=False), one, lower=True)

        inverses = by_platform(
            lambda count, x: in_turn(inverse_factor, x, batch_size=count), matrices, cpu=None, gpu=4096
        )

        def row(inputs):
            g, linear, xi = inputs
            return jnp.where(drawn[g], (inverses[g] @ jnp.where(drawn[g], linear, 0) + xi) @ inverses[g], 0)

        return in_turn(row, (group, linear, xi), batch_size=256)

    return rows


declare(GaussianRows, numba=_numba, jax=_jax)

r"""The gain G = S⁻¹ W of a layer, with S = ΔZ I + ΔA W Wᵀ the covariance of its output given its input without noise.

G is also W (ΔZ I + ΔA Wᵀ W)⁻¹. The smaller of the two matrices is factorised. Which one it is is found when a program
runs, so that one program serves all widths.
"""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit
from scipy.linalg import cho_solve, cholesky

from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.vector_math import add_multiple

__all__ = ["Gain"]


class Gain(Op):
    """The gain S⁻¹ W of one layer, or of a batch of layers of the same shape.

    Notes
    -----
    The inputs of a node are

    - v (..., d_out, d_in): the weights W without bias;
    - noise_below and noise_above, () or, for a batch, (..., 1, 1): the variance ΔA of the noise of the input, and the
      variance ΔZ of that of the output.
    """

    __props__ = ()

    def make_node(self, *inputs):
        """Make the node of these inputs, which the class lists."""
        v, below, above = (pt.as_tensor(x) for x in inputs)
        below, above = (x if x.ndim == v.ndim else pt.shape_padleft(x, v.ndim - x.ndim) for x in (below, above))
        return Apply(self, [v, below, above], [v.type()])

    def infer_shape(self, *args):
        """Return the shape of the gain, which is that of W."""
        return [args[-1][0]]  # PyTensor 2 passes the graph first

    def perform(self, node, inputs, outputs):
        """Compute the gain with SciPy."""
        v, below, above = inputs
        gain = np.empty_like(v)
        below, above = (np.broadcast_to(x, (*v.shape[:-2], 1, 1)) for x in (below, above))
        for place in np.ndindex(v.shape[:-2]):
            gain[place] = _gain(v[place], below[place], above[place])
        outputs[0][0] = gain


def _gain(v, below, above):
    """Compute the gain of one layer with SciPy."""
    if len(v) > v.shape[1]:
        return _solve(above * np.eye(v.shape[1]) + below * (v.T @ v), v.T).T
    return _solve(above * np.eye(len(v)) + below * (v @ v.T), v)


def _solve(matrix, b):
    """Solve a system of equations with a symmetric, positive definite matrix, by its Cholesky factor."""
    return cho_solve((cholesky(matrix, lower=True), True), b)


def _numba(op, node):
    """Make the function of the inputs of :class:`Gain` for Numba."""

    @numba_njit
    def positive(diagonal, factor, products):
        matrix = np.empty_like(products)
        for i in range(len(matrix)):
            for k in range(len(matrix)):
                matrix[i, k] = factor * products[i, k]
            matrix[i, i] += diagonal
        return np.linalg.cholesky(matrix)

    @numba_njit
    def divide(x, by):
        for i in range(len(x)):
            x[i] /= by

    @numba_njit
    def solve(factor, b):
        """Compute (L Lᵀ)⁻¹ B, row by row in a copy of B."""
        x = b.copy()
        for i in range(len(x)):
            for k in range(i):
                add_multiple(x[k], -factor[i, k], x[i])
            divide(x[i], factor[i, i])
        for i in range(len(x) - 1, -1, -1):
            for k in range(i + 1, len(x)):
                add_multiple(x[k], -factor[k, i], x[i])
            divide(x[i], factor[i, i])
        return x

    @numba_njit
    def one(v, below, above, out):
        across = np.ascontiguousarray(v.T)
        if len(v) <= len(across):
            solution = solve(positive(above, below, np.dot(v, across)), v)
        else:
            solution = solve(positive(above, below, np.dot(across, v)), across).T
        for i in range(len(out)):
            for k in range(out.shape[1]):
                out[i, k] = solution[i, k]

    @numba_njit
    def gain(v, below, above):
        v = np.ascontiguousarray(v)
        layers = v.reshape((-1, v.shape[-2], v.shape[-1]))
        gains = np.empty_like(layers)
        below, above = below.ravel(), above.ravel()
        for i in range(len(layers)):
            one(layers[i], below[min(i, len(below) - 1)], above[min(i, len(above) - 1)], gains[i])
        return gains.reshape(v.shape)

    return gain


def _jax(op, node):
    """Make the function of the inputs of :class:`Gain` for JAX."""
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular

    def solve(matrix, b):
        factor = jnp.linalg.cholesky(matrix, symmetrize_input=False)
        return solve_triangular(factor, solve_triangular(factor, b, lower=True), lower=True, trans=1)

    def gain(v, below, above):
        v = jnp.asarray(v)
        below, above = (jnp.asarray(x, v.dtype) for x in (below, above))
        if v.shape[-2] <= v.shape[-1]:
            return solve(above * jnp.eye(v.shape[-2], dtype=v.dtype) + below * (v @ v.mT), v)
        return solve(above * jnp.eye(v.shape[-1], dtype=v.dtype) + below * (v.mT @ v), v.mT).mT

    return gain


declare(Gain, numba=_numba, jax=_jax)

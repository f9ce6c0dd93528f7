"""The sum of a matrix and a diagonal matrix, without the identity matrix by which PyTensor writes the latter."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn.backends.declare import declare

__all__ = ["plus_diagonal"]


class PlusDiagonal(Op):
    """The sum M + diag(v) of M (..., d, d) and v (..., d), either of which may lack the axes in front."""

    __props__ = ()

    def make_node(self, matrix, diagonal):
        """Make the node of M and v."""
        matrix, diagonal = pt.as_tensor(matrix), pt.as_tensor(diagonal)
        larger = matrix if matrix.ndim > diagonal.ndim else diagonal[..., None, :]
        d = matrix.type.shape[-1]
        return Apply(self, [matrix, diagonal], [pt.TensorType(matrix.dtype, (*larger.type.shape[:-2], d, d))()])

    def infer_shape(self, *args):
        """Return the shape of M, with the axes in front that v has."""
        matrix, diagonal = args[-1]  # PyTensor 2 passes the graph first
        return [(*(matrix[:-2] if len(matrix) > len(diagonal) else diagonal[:-1]), *matrix[-2:])]

    def perform(self, node, inputs, outputs):
        """Compute the sum with NumPy."""
        matrix, diagonal = inputs
        outputs[0][0] = matrix + diagonal[..., None, :] * np.eye(diagonal.shape[-1], dtype=matrix.dtype)


plus_diagonal = PlusDiagonal()


def _numba(op, node):
    """Make the function for Numba, for one matrix or for a batch."""

    @numba_njit
    def one(matrix, diagonal):
        d = len(diagonal)
        total = np.empty((d, d), matrix.dtype)
        for i in range(d):
            for k in range(d):
                total[i, k] = matrix[i, k]
            total[i, i] += diagonal[i]
        return total

    if node.inputs[0].ndim == 2 and node.inputs[1].ndim == 1:
        return one, "one"

    @numba_njit
    def several(matrix, diagonal):
        d = diagonal.shape[-1]
        matrices = np.ascontiguousarray(matrix).reshape((-1, d, d))
        diagonals = np.ascontiguousarray(diagonal).reshape((-1, d))
        totals = np.empty((max(len(matrices), len(diagonals)), d, d), matrices.dtype)
        for i in range(len(totals)):
            totals[i] = one(matrices[min(i, len(matrices) - 1)], diagonals[min(i, len(diagonals) - 1)])
        return totals

    return several, "several"


def _jax(op, node):
    """Make the function for JAX."""
    import jax.numpy as jnp

    return lambda matrix, diagonal: matrix + diagonal[..., None, :] * jnp.eye(diagonal.shape[-1], dtype=matrix.dtype)


declare(PlusDiagonal, numba=_numba, jax=_jax)

"""The length of a loop that is known when a program runs; in JAX, whose loops have fixed lengths, the largest one."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn.backends.declare import declare

__all__ = ["LoopLength"]


class LoopLength(Op):
    """A whole number, which JAX replaces by the largest one that it can be.

    Parameters
    ----------
    most : int
        The largest number.
    """

    __props__ = ("most",)
    view_map: ClassVar = {0: [0]}

    def __init__(self, most: int):
        self.most = most

    def make_node(self, length):
        """Make the node of a scalar."""
        return Apply(self, [pt.cast(length, "int64")], [pt.lscalar()])

    def infer_shape(self, *args):
        """Return the shape of a scalar."""
        return [()]

    def perform(self, node, inputs, outputs):
        """Return the number as it is."""
        outputs[0][0] = np.asarray(inputs[0])


def _numba(op, node):
    """Make the function for Numba."""

    @numba_njit
    def same(length):
        return length

    return same


@node_rewriter([LoopLength])
def _longest(fgraph, node):
    """Put the largest number in place of one that JAX would not know when it compiles."""
    return [pt.constant(node.op.most, dtype="int64")]


declare(LoopLength, numba=_numba)
optdb.register("pymc_gibbsnn_longest_loops", dfs_rewriter(_longest), "jax", position=0.01)

"""What Numba lacks: fast matrix products of a graph, and an exponential that is taken of several numbers at once.

PyTensor's products take long to compile (20 s each in PyTensor 3.3) or copy what is transposed. Transitions are written
with plain ``@``; :func:`with_fast_products` adds a rewrite to a Numba mode that hands products to Numba's own
``np.dot`` with the transposition left to BLAS.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.type import TensorType

from pymc_gibbsnn import _tall_products
from pymc_gibbsnn._tall_products import is_tall, tall_by_few

__all__ = ["exp", "inlined", "vectorisable", "with_fast_products"]

vectorisable = partial(numba_njit, fastmath={"contract"}, error_model="numpy")
"""``njit`` for loops whose steps shall be taken several at once: sums keep their order, divisions do not look for 0."""

inlined = partial(vectorisable, forceinline=True)
"""``njit`` for what such a loop calls: a call left in it would stop that."""


class Product(Op):
    """X @ Y of two floating-point matrices of one dtype, each transposed or not."""

    __props__ = ("transpose_x", "transpose_y")

    def __init__(self, transpose_x: bool, transpose_y: bool):
        self.transpose_x = transpose_x
        self.transpose_y = transpose_y

    def make_node(self, x, y):
        shape = x.type.shape[int(self.transpose_x)], y.type.shape[int(not self.transpose_y)]
        return Apply(self, [x, y], [TensorType(x.dtype, shape)()])

    def infer_shape(self, *args):
        x, y = args[-1]  # PyTensor 2 passes the graph first
        return [(x[int(self.transpose_x)], y[int(not self.transpose_y)])]

    def perform(self, node, inputs, outputs):
        x, y = inputs
        outputs[0][0] = np.dot(x.T if self.transpose_x else x, y.T if self.transpose_y else y)


def _contiguous(x):
    """An array that BLAS can read, transposed or not."""


@overload(_contiguous)
def _overload_contiguous(x):
    return (lambda x: x) if x.layout in "CF" else (lambda x: np.ascontiguousarray(x))


@register_funcify_default_op_cache_key(Product)
def _numba(op, node, **kwargs):
    transpose_x, transpose_y = op.transpose_x, op.transpose_y

    @numba_njit
    def product(x, y):
        # (Yᵀ Xᵀ)ᵀ: BLAS is up to twice as fast where the few rows of weights come before the many of data.
        x, y = _contiguous(x), _contiguous(y)
        if transpose_x:
            if transpose_y:
                return np.dot(y, x).T
            return np.dot(y.T, x).T
        if transpose_y:
            return np.dot(y, x.T).T
        return np.dot(y.T, x.T).T

    if node.inputs[0].dtype == "float64" or transpose_x or not transpose_y:
        return product, 2

    @numba_njit
    def product_in_single_precision(x, y):
        if x.flags.c_contiguous and is_tall(x, len(y)):
            return tall_by_few(x, y)
        return product(x, y)

    return product_in_single_precision, crc32(Path(_tall_products.__file__).read_bytes())


class Gram(Op):
    """X Xᵀ: one half by blocks of rows, the other mirrored."""

    __props__ = ()
    block = 64  # rows

    def make_node(self, x):
        rows = x.type.shape[0]
        return Apply(self, [x], [TensorType(x.dtype, (rows, rows))()])

    def infer_shape(self, *args):
        [(rows, _)] = args[-1]
        return [(rows, rows)]

    def perform(self, node, inputs, outputs):
        [x] = inputs
        outputs[0][0] = np.dot(x, x.T)


@register_funcify_default_op_cache_key(Gram)
def _numba_gram(op, node, **kwargs):
    block = op.block

    @numba_njit
    def gram(x):
        x = np.ascontiguousarray(x)
        n = x.shape[0]
        out = np.empty((n, n), x.dtype)
        for i in range(0, n, block):
            j = min(i + block, n)
            out[i:j, :j] = np.dot(x[i:j], x[:j].T)
            out[:i, i:j] = out[i:j, :i].T
        return out

    return gram, 1


def _is_transposed(x) -> bool:
    return x.owner is not None and isinstance(x.owner.op, DimShuffle) and tuple(x.owner.op.new_order) == (1, 0)


@node_rewriter([Dot])
def _use_product(fgraph, node):
    x, y = node.inputs
    [out] = node.outputs
    if not (x.dtype == y.dtype == out.dtype and x.dtype in ("float32", "float64")):
        return None
    transpose_x, transpose_y = _is_transposed(x), _is_transposed(y)
    x = x.owner.inputs[0] if transpose_x else x
    y = y.owner.inputs[0] if transpose_y else y
    if x is y and transpose_y and not transpose_x:
        return [Gram()(x)]
    new = Product(transpose_x, transpose_y)(x, y)
    return [new]


def with_fast_products(mode: Mode) -> Mode:
    """The mode, with products handed to ``np.dot`` if it compiles for Numba."""
    if not isinstance(mode.linker, NumbaLinker):
        return mode
    return mode.register((in2out(_use_product, name="numba_products"), 10.0))


@intrinsic
def _two_to(typing_context, shifted):
    """2^k from the lowest bits of k + 1.5 · 2^52."""

    def code(context, builder, signature, arguments):
        integer = ir.IntType(64)
        bits = builder.add(builder.bitcast(arguments[0], integer), ir.Constant(integer, 1023))
        return builder.bitcast(builder.shl(bits, ir.Constant(integer, 52)), ir.DoubleType())

    return types.float64(types.float64), code


@inlined
def exp(x):
    """The exponential in double precision, to 1e-15, in operations that LLVM can apply to several numbers at once.

    exp(x) = 2^k exp(r) with |r| ≤ log(2)/2. Adding 1.5 · 2^52 rounds to whole numbers; a polynomial of degree 13 is
    left. Below 1e-307 and above 1e307 it stays at these numbers; NaN gives the smallest.
    """
    x = x if x > -707.0 else -707.0
    x = x if x < 707.0 else 707.0
    shifted = x * 1.4426950408889634 + 6755399441055744.0
    k = shifted - 6755399441055744.0
    r = x - k * 0.6931471803691238 - k * 1.9082149292705877e-10  # log 2 in two parts
    p = 1.6059043836821613e-10
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * _two_to(shifted)

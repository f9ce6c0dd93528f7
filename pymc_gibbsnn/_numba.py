"""What Numba lacks: fast matrix products, and functions that are taken of several numbers at once.

PyTensor's products take long to compile (20 s each in PyTensor 3.3) or copy what is transposed. Transitions are written
with plain ``@``; :func:`with_fast_products` adds a rewrite to a Numba mode that hands products to Numba's own
``np.dot`` with the transposition left to BLAS. The same rewrite takes the error function, 30 ns a number in Numba, from
here: free of branches, so that LLVM applies it to as many numbers as a register holds.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np
import pytensor.scalar as ps
import scipy.special
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.type import TensorType

from pymc_gibbsnn import _tall_products
from pymc_gibbsnn._tall_products import is_tall, tall_by_few

__all__ = ["erf", "erfc", "exp", "inlined", "vectorisable", "with_fast_products"]

vectorisable = partial(numba_njit, fastmath={"contract"}, error_model="numpy")
"""``njit`` for loops whose steps shall be taken several at once: sums keep their order, divisions do not look for 0."""

inlined = partial(vectorisable, forceinline=True)
"""The same for what such a loop calls, however long: a call left in it would stop that."""

MANY = 256  # columns


class Product(Op):
    """X @ Y of two floating-point matrices of one dtype, each transposed or not.

    BLAS is up to twice as fast where the few come before the many: of few columns (Yᵀ Xᵀ)ᵀ is taken. Where ``wide``
    says that there are many, the result lies row by row, as what is done with it elementwise reads it.
    """

    __props__ = ("transpose_x", "transpose_y", "wide")

    def __init__(self, transpose_x: bool, transpose_y: bool, wide: bool = False):
        self.transpose_x = transpose_x
        self.transpose_y = transpose_y
        self.wide = wide

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
    transpose_x, transpose_y, wide = op.transpose_x, op.transpose_y, op.wide

    @numba_njit
    def product(x, y):
        x, y = _contiguous(x), _contiguous(y)
        if wide:
            return np.dot(x.T if transpose_x else x, y.T if transpose_y else y)
        return np.dot(y if transpose_y else y.T, x if transpose_x else x.T).T

    if node.inputs[0].dtype == "float64" or transpose_x or not transpose_y or wide:
        return product, 3

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
    columns = y.type.shape[0 if transpose_y else 1]
    return [Product(transpose_x, transpose_y, wide=columns is not None and columns >= MANY)(x, y)]


def with_fast_products(mode: Mode) -> Mode:
    """The mode, with products handed to ``np.dot`` and error functions to ours if it compiles for Numba."""
    if not isinstance(mode.linker, NumbaLinker):
        return mode
    return mode.register((in2out(_use_product, _use_error_function, name="numba_products"), 10.0))


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


@inlined
def _upper_tail(a):
    """Erfc(a) for a ≥ 0: exp(−a²) times its scaled form, to 1e-15 of itself up to a = 26, where it is 1e-295.

    (1 + 2a) erfcx(a) is smooth on all of [0, ∞) in t = (a − 3.75)/(a + 3.75) [1]_: a polynomial through its values at
    Chebyshev points, by arithmetic with 60 digits, is 1e-17 from it. Squares lose digits: a² is (high part)², which is
    exact, and a small rest.

    .. [1] M. M. Shepherd, J. G. Laframboise. Chebyshev approximation of (1 + 2x) exp(x²) erfc x in 0 ≤ x < ∞.
       Mathematics of Computation 36 (1981).
    """
    a = 28.0 if a > 28.0 else a
    t = (a - 3.75) / (a + 3.75)
    p = 4.2514714447963895e-10
    p = p * t + 3.1114333809799254e-10
    p = p * t - 5.1739902140113095e-09
    p = p * t - 3.744210080962018e-09
    p = p * t + 3.8675334242222354e-08
    p = p * t + 2.3263508708859124e-08
    p = p * t - 2.5866850716155884e-07
    p = p * t - 5.7218230603224086e-08
    p = p * t + 1.751637648849062e-06
    p = p * t - 9.73559896736775e-07
    p = p * t - 1.1444146237700524e-05
    p = p * t + 2.238423915508223e-05
    p = p * t + 5.164909889268241e-05
    p = p * t - 0.0002901540805408417
    p = p * t + 0.0002937136655913448
    p = p * t + 0.0017556258528952954
    p = p * t - 0.009746579558029276
    p = p * t + 0.028362277418956406
    p = p * t - 0.05869339858963677
    p = p * t + 0.09230432116037748
    p = p * t - 0.10880393014174886
    p = p * t + 0.0822767384901452
    p = p * t + 0.0035854154854644293
    p = p * t - 0.14024059858554697
    p = p * t + 1.2375126308378275
    high = (a + 3221225472.0) - 3221225472.0  # 1.5 · 2^31: multiples of 2^-21
    rest = (a - high) * (a + high)
    return p / (1.0 + 2.0 * a) * exp(-high * high) * (1.0 - rest * (1.0 - rest / 2.0))


@inlined
def erfc(x):
    """The complementary error function in double precision; at most 2e-309 where it is less. NaN gives NaN."""
    tail = _upper_tail(abs(x))
    return tail if x >= 0.0 else 2.0 - tail


@inlined
def erf(x):
    """The error function in double precision: its Taylor series on (−½, ½), 1 − erfc beyond. NaN gives NaN."""
    s = x * x
    s = s if s < 0.25 else 0.25
    p = 9.422759064650411e-11
    p = p * s - 1.2290555301717928e-09
    p = p * s + 1.4807192815879218e-08
    p = p * s - 1.6365844691234924e-07
    p = p * s + 1.6462114365889248e-06
    p = p * s - 1.492565035840625e-05
    p = p * s + 0.00012055332981789664
    p = p * s - 0.0008548327023450853
    p = p * s + 0.005223977625442188
    p = p * s - 0.026866170645131252
    p = p * s + 0.11283791670955126
    p = p * s - 0.37612638903183754
    p = p * s + 1.1283791670955126
    beyond = 1.0 - _upper_tail(abs(x))
    beyond = beyond if x >= 0.0 else -beyond
    return p * x if abs(x) < 0.5 else beyond


class ErrorFunction(Op):
    """Erf, or erfc, of every number of an array in double precision."""

    __props__ = ("complementary",)

    def __init__(self, complementary: bool):
        self.complementary = complementary

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def infer_shape(self, *args):
        return args[-1]

    def perform(self, node, inputs, outputs):
        outputs[0][0] = (scipy.special.erfc if self.complementary else scipy.special.erf)(inputs[0])


@register_funcify_default_op_cache_key(ErrorFunction)
def _numba_error_function(op, node, **kwargs):
    function = erfc if op.complementary else erf

    @vectorisable
    def apply(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    @numba_njit
    def error_function(x):
        x = np.ascontiguousarray(x)
        out = np.empty_like(x)
        apply(x.reshape(-1), out.reshape(-1))
        return out

    return error_function, 1


@node_rewriter([Elemwise])
def _use_error_function(fgraph, node):
    """Ours for PyTensor's on arrays in double precision."""
    kind, [x, *_] = type(node.op.scalar_op), node.inputs
    if kind not in (ps.Erf, ps.Erfc) or x.dtype != "float64" or x.ndim == 0:
        return None
    return [ErrorFunction(kind is ps.Erfc)(x)]

"""What Numba lacks in PyTensor's graphs: fast matrix products, a fast error function and a short way to our samplers.

PyTensor's products take long to compile (20 s each in PyTensor 3.3) or copy what is transposed. Transitions are written
with plain ``@``; :func:`with_our_kernels` adds rewrites to a Numba mode that hand products to Numba's own ``np.dot``
with the transposition left to BLAS, or to kernels for tall and wide data, take the error function, 30 ns a number in
Numba, from :mod:`pymc_gibbsnn.backends.vector_math`, and call the samplers of our random variables as they are.
"""

from __future__ import annotations

import copy
from hashlib import sha256

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import scipy.special
from numba.extending import overload
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.link.numba.dispatch.basic import (
    numba_njit,
    register_funcify_and_cache_key,
)
from pytensor.link.numba.dispatch.compile_ops import numba_deepcopy
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType

from pymc_gibbsnn.backends.declare import SAMPLED, declare
from pymc_gibbsnn.backends.numba_linker import KernelLinker
from pymc_gibbsnn.backends.tall_products import is_tall, tall_by_few, tall_by_tall
from pymc_gibbsnn.backends.vector_math import erf, erfc, vectorisable

__all__ = ["with_our_kernels"]

MANY = 256  # columns


class Product(Op):
    """X @ Y of two floating-point matrices of one dtype, each transposed or not.

    BLAS is up to twice as fast where the few come before the many: of few columns (Yᵀ Xᵀ)ᵀ is taken, but for Xᵀ Y in
    single precision, where it is slower. Where ``wide`` says that there are many, the result lies row by row, as what
    is done with it elementwise reads it. Where ``data`` says that X has many columns, it may have many rows too: then
    :mod:`pymc_gibbsnn.backends.tall_products`.
    """

    __props__ = ("transpose_x", "transpose_y", "wide", "data")

    def __init__(self, transpose_x: bool, transpose_y: bool, wide: bool = False, data: bool = False):
        self.transpose_x = transpose_x
        self.transpose_y = transpose_y
        self.wide = wide
        self.data = data

    def make_node(self, x, y):
        if (x.type.ndim, y.type.ndim) != (2, 2):
            raise TypeError(f"Product takes two matrices; found {x.type} and {y.type}.")
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


def _numba(op, node):
    transpose_x, transpose_y = op.transpose_x, op.transpose_y
    is_single = node.inputs[0].dtype == "float32"
    straight = op.wide or (is_single and transpose_x and not transpose_y)

    @numba_njit
    def product(x, y):
        x, y = _contiguous(x), _contiguous(y)
        if straight:
            return np.dot(x.T if transpose_x else x, y.T if transpose_y else y)
        return np.dot(y if transpose_y else y.T, x if transpose_x else x.T).T

    if not op.data:
        return product, (op.transpose_x, op.transpose_y, op.wide, op.data, is_single)

    @numba_njit
    def tall_product(x, y):
        if is_tall(x, y.shape[int(not transpose_y)]):
            return tall_by_tall(x, y) if transpose_x else tall_by_few(x, y if transpose_y else y.T)
        return product(x, y)

    return tall_product, (op.transpose_x, op.transpose_y, op.wide, op.data, is_single)


declare(Product, numba=_numba)


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


def _numba_gram(op, node):
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

    return gram


declare(Gram, numba=_numba_gram)


def _is_transposed(x) -> bool:
    """Whether x is a matrix, transposed: not more, such as the first two axes of an array of three exchanged."""
    is_shuffled = x.owner is not None and isinstance(x.owner.op, DimShuffle)
    return is_shuffled and x.owner.inputs[0].ndim == 2 and tuple(x.owner.op.new_order) == (1, 0)


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
    wide = _are_many(y.type.shape[0 if transpose_y else 1])
    data = _are_many(x.type.shape[1]) and not wide and not (transpose_x and transpose_y)
    return [Product(transpose_x, transpose_y, wide, data)(x, y)]


def _are_many(columns: int | None) -> bool:
    return columns is not None and columns >= MANY


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


def _numba_error_function(op, node):
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

    return error_function


declare(ErrorFunction, numba=_numba_error_function)


@node_rewriter([Elemwise])
def _use_error_function(fgraph, node):
    """Ours for PyTensor's on arrays in double precision."""
    kind, [x, *_] = type(node.op.scalar_op), node.inputs
    if kind not in (ps.Erf, ps.Erfc) or x.dtype != "float64" or x.ndim == 0:
        return None
    return [ErrorFunction(kind is ps.Erfc)(x)]


class Sampler(Op):
    """A draw of a RandomVariable of ours without batch axes, by its sampler alone.

    PyTensor asks for the shape of the draw beforehand, allocates it, copies into it, and compiles three functions more.
    """

    __props__ = ("variable",)

    def __init__(self, variable: RandomVariable):
        self.variable = variable
        self.destroy_map = {0: [0]} if variable.inplace else {}

    def make_node(self, rng, *parameters):
        outputs = self.variable.make_node(rng, None, *parameters).outputs
        return Apply(self, [rng, *parameters], [output.type() for output in outputs])

    def perform(self, node, inputs, outputs):
        rng, *parameters = inputs
        rng = rng if self.variable.inplace else copy.copy(rng)
        outputs[0][0], outputs[1][0] = rng, self.variable.rng_fn(rng, *parameters, None)


@register_funcify_and_cache_key(Sampler)
def _numba_sampler(op, node, **kwargs):
    sample, key = numba_core_rv_funcify(op.variable, node)
    inplace = op.variable.inplace

    @numba_njit
    def draw(rng, *parameters):
        if not inplace:
            rng = numba_deepcopy(rng)
        return rng, sample(rng, *parameters)

    if key is not None:
        key = sha256(str((type(op), type(op.variable), inplace, key)).encode()).hexdigest()
    return draw, key


@node_rewriter([RandomVariable])
def _use_sampler(fgraph, node):
    op, [_, x] = node.op, node.outputs
    if type(op) not in SAMPLED or op.ndim_supp == 0 or op.batch_ndim(node) > 0:
        return None
    parameters = [pt.cast(y, x.dtype) if y.dtype.startswith("float") else y for y in op.dist_params(node)]
    return Sampler(op)(op.rng_param(node), *parameters, return_list=True)


def with_our_kernels(mode: Mode) -> Mode:
    """The mode, with what is ours in place of what is PyTensor's if it compiles for Numba."""
    if not isinstance(mode.linker, NumbaLinker):
        return mode
    products = in2out(_use_product, _use_error_function, name="numba_products")
    # After generators are destroyed in place, before PyTensor asks for shapes.
    mode = mode.register((products, 10.0), (in2out(_use_sampler, name="numba_samplers"), 99.0))
    return Mode(KernelLinker(allow_gc=mode.linker.allow_gc), mode.provided_optimizer)

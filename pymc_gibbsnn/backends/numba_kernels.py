"""Rewrites that give PyTensor's graphs faster Numba code: for matrix products, the error function and our random draws.

The samplers of this package are written with plain ``@`` and ``pt.erf``. :func:`with_our_kernels` adds rewrites to a
Numba mode, which replace four kinds of operations:

- matrix products, whose code in PyTensor takes long to compile (20 s each in PyTensor 3.3) or copies what is
  transposed, by calls of BLAS, which also transposes, or by kernels for tall and wide data;
- sums of a matrix, whose code in PyTensor 3 sorts axes by their strides and takes 3 s to compile;
- the error function, which takes 30 ns a number in Numba, by that of :mod:`pymc_gibbsnn.backends.vector_math`;
- draws of our random variables, by a direct call of their samplers.

It also takes out checks of lengths that other operations make.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import scipy.special
from numba.extending import overload
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.link.numba.dispatch.basic import (
    numba_njit,
    register_funcify_and_cache_key,
)
from pytensor.link.numba.dispatch.compile_ops import numba_deepcopy
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.link.numba.linker import NumbaLinker
from pytensor.raise_op import Assert
from pytensor.tensor.basic import MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import All, Dot, Sum
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneConst

from pymc_gibbsnn._compat import SCALAR_SUMS, shape_inference
from pymc_gibbsnn.backends.declare import SAMPLED, declare
from pymc_gibbsnn.backends.draw import apply_to_types
from pymc_gibbsnn.backends.fast_numba import fastest
from pymc_gibbsnn.backends.lapack import dot
from pymc_gibbsnn.backends.tall_products import is_tall, tall_by_few, tall_by_tall
from pymc_gibbsnn.backends.vector_math import copy_matrix, erf, erfc, vectorisable

__all__ = ["MANY", "with_our_kernels"]

MANY = 256  # how many columns count as many


class Product(Op):
    """The product X Y of two floating-point matrices of one dtype, each of which may be read transposed.

    BLAS is up to twice as fast where the matrix with few rows comes first. So where the result has few columns,
    (Yᵀ Xᵀ)ᵀ is computed, except for Xᵀ Y in single precision, where that is slower.

    Parameters
    ----------
    transpose_x, transpose_y : bool
        Whether to read X and Y transposed.
    wide : bool
        Whether the result has many columns. It is then laid out row by row, as elementwise operations will read it.
    data : bool
        Whether X has many columns. If at run time it has many rows, too, the product is that of
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

    @shape_inference
    def infer_shape(self, shapes):
        x, y = shapes
        return [(x[int(self.transpose_x)], y[int(not self.transpose_y)])]

    def perform(self, node, inputs, outputs):
        x, y = inputs
        outputs[0][0] = np.dot(x.T if self.transpose_x else x, y.T if self.transpose_y else y)


def _contiguous(x):
    """Return an array that BLAS can read, a copy if need be; Numba compiles the overload below in place of this."""


@overload(_contiguous)
def _overload_contiguous(x):
    return (lambda x: x) if x.layout in "CF" else (lambda x: np.ascontiguousarray(x))


def _numba(op, node):
    """Make the function of a :class:`Product` for Numba, and say on what its code depends."""
    transpose_x, transpose_y = op.transpose_x, op.transpose_y
    is_single = node.inputs[0].dtype == "float32"
    straight = op.wide or (is_single and transpose_x and not transpose_y)

    @numba_njit
    def product(x, y):
        x, y = _contiguous(x), _contiguous(y)
        x, y = x.T if transpose_x else x, y.T if transpose_y else y
        if straight:
            out = np.empty((x.shape[0], y.shape[1]), x.dtype)
            return dot(x, y, out)
        out = np.empty((y.shape[1], x.shape[0]), x.dtype)
        return dot(y.T, x.T, out).T

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
    """The product X Xᵀ, of which one half is computed by blocks of rows and the other is its mirror image."""

    __props__ = ()
    block = 64  # how many rows a block has

    def make_node(self, x):
        rows = x.type.shape[0]
        return Apply(self, [x], [TensorType(x.dtype, (rows, rows))()])

    @shape_inference
    def infer_shape(self, shapes):
        [(rows, _)] = shapes
        return [(rows, rows)]

    def perform(self, node, inputs, outputs):
        [x] = inputs
        outputs[0][0] = np.dot(x, x.T)


def _numba_gram(op, node):
    """Make the function of a :class:`Gram` for Numba."""
    block = op.block

    @numba_njit
    def gram(x):
        x = np.ascontiguousarray(x)
        n = x.shape[0]
        out = np.empty((n, n), x.dtype)
        for i in range(0, n, block):
            rows = np.dot(x[i : i + block], x[: i + block].T)
            copy_matrix(rows, out[i : i + block])
            copy_matrix(rows[:, :i].T, out[:, i : i + block])
        return out

    return gram


declare(Gram, numba=_numba_gram)


def _is_transposed(x) -> bool:
    """Whether x is the transpose of a matrix, and not, say, an array of three axes of which two are exchanged."""
    is_shuffled = x.owner is not None and isinstance(x.owner.op, DimShuffle)
    return is_shuffled and x.owner.inputs[0].ndim == 2 and tuple(x.owner.op.new_order) == (1, 0)


@node_rewriter([Dot])
def _use_product(fgraph, node):
    """Replace a matrix product of PyTensor by a :class:`Product` or a :class:`Gram`."""
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
    """Whether a number of columns is known and large."""
    return columns is not None and columns >= MANY


class MatrixSum(Op):
    """The sum of a matrix in double precision, or its sums along an axis.

    Parameters
    ----------
    axis : {0, 1, None}
        The axis; None sums all.
    """

    __props__ = ("axis",)

    def __init__(self, axis: int | None):
        self.axis = axis

    def make_node(self, x):
        return Apply(self, [x], [TensorType(x.dtype, () if self.axis is None else (x.type.shape[1 - self.axis],))()])

    @shape_inference
    def infer_shape(self, shapes):
        [shape] = shapes
        return [() if self.axis is None else (shape[1 - self.axis],)]

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(inputs[0].sum(axis=self.axis))


def _numba_matrix_sum(op, node):
    """Make the function of a :class:`MatrixSum` for Numba."""
    axis = op.axis

    @numba_njit
    def total(x):
        x, result = x if x.strides[0] > x.strides[1] else x.T, 0.0
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                result += x[i, j]
        return np.array(result)

    @numba_njit
    def sums(x):
        x = x.T if axis == 1 else x
        out = np.zeros(x.shape[1])
        if x.strides[0] < x.strides[1]:
            for j in range(x.shape[1]):
                for i in range(x.shape[0]):
                    out[j] += x[i, j]
        else:
            for i in range(x.shape[0]):
                for j in range(x.shape[1]):
                    out[j] += x[i, j]
        return out

    return total if axis is None else sums


declare(MatrixSum, numba=_numba_matrix_sum)


@node_rewriter([Sum, *SCALAR_SUMS])
def _use_matrix_sum(fgraph, node):
    """Replace PyTensor's sum of a matrix in double precision, over one axis or both, by a :class:`MatrixSum`."""
    [x], [output] = node.inputs, node.outputs
    ops = [node.op] if isinstance(node.op, Sum) else [inner.op for inner in node.op.fgraph.apply_nodes]
    sums = [op for op in ops if isinstance(op, Sum)]
    if not sums or x.ndim != 2 or not x.dtype == output.dtype == "float64":
        return None
    axes = (0, 1) if sums[0].axis is None else sums[0].axis
    total = MatrixSum(axes[0] % 2 if len(axes) == 1 else None)(x)
    return [total if isinstance(output.type, TensorType) else pt.scalar_from_tensor(total)]


class ErrorFunction(Op):
    """The error function erf, or its complement erfc, of every number of an array in double precision.

    Parameters
    ----------
    complementary : bool
        Whether it is erfc.
    """

    __props__ = ("complementary",)

    def __init__(self, complementary: bool):
        self.complementary = complementary

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    @shape_inference
    def infer_shape(self, shapes):
        return shapes

    def perform(self, node, inputs, outputs):
        outputs[0][0] = (scipy.special.erfc if self.complementary else scipy.special.erf)(inputs[0])


def _numba_error_function(op, node):
    """Make the function of an :class:`ErrorFunction` for Numba."""
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
    """Replace PyTensor's erf and erfc on arrays in double precision by an :class:`ErrorFunction`."""
    kind, [x, *_] = type(node.op.scalar_op), node.inputs
    if kind not in (ps.Erf, ps.Erfc) or x.dtype != "float64" or x.ndim == 0:
        return None
    return [ErrorFunction(kind is ps.Erfc)(x)]


class Sampler(Op):
    """A draw of one of our RandomVariables without batch axes, by a direct call of its sampler.

    PyTensor's own way to a draw computes its shape beforehand, allocates an array, copies the draw into it, and has
    three more functions to compile.

    Parameters
    ----------
    variable : RandomVariable
        The random variable.
    """

    __props__ = ("variable",)

    def __init__(self, variable: RandomVariable):
        self.variable = variable
        self.destroy_map = {0: [0]} if variable.inplace else {}

    def make_node(self, rng, *parameters):
        outputs = apply_to_types(self.variable, rng, NoneConst, *parameters).outputs
        return Apply(self, [rng, *parameters], [output.type() for output in outputs])

    def perform(self, node, inputs, outputs):
        rng, *parameters = inputs
        rng = rng if self.variable.inplace else copy.copy(rng)
        outputs[0][0], outputs[1][0] = rng, self.variable.rng_fn(rng, *parameters, None)


@register_funcify_and_cache_key(Sampler)
def _numba_sampler(op, node, **kwargs):
    """Make the function of a :class:`Sampler` for Numba, with its key in the cache."""
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


@node_rewriter([RandomVariable], inplace=True)
def _update_generator(fgraph, node):
    """Let a draw update its generator in place.

    PyTensor does so too, but infers the shape of the draw anew, from all that its parameters are computed from.
    """
    op = node.op
    if op.inplace:
        return None
    op = type(op)(**{name: getattr(op, name) for name in op.__props__} | {"inplace": True})
    return Apply(op, node.inputs, [x.clone() for x in node.outputs]).outputs


@node_rewriter([RandomVariable])
def _use_sampler(fgraph, node):
    """Replace a draw of one of our random variables by a :class:`Sampler`."""
    op, [_, x] = node.op, node.outputs
    if type(op) not in SAMPLED or op.ndim_supp == 0 or op.batch_ndim(node) > 0:
        return None
    parameters = [pt.cast(y, x.dtype) if y.dtype.startswith("float") else y for y in op.dist_params(node)]
    return Sampler(op)(op.rng_param(node), *parameters, return_list=True)


@node_rewriter([Assert])
def _choose_length(fgraph, node):
    """Replace a check that arrays which broadcast have one length by the length of the first input among them.

    The operation that broadcasts them checks it, too. PyTensor 2 writes the lengths in another order in each process,
    so that the code would not be found again.
    """
    first, *conditions = node.inputs
    if not node.op.msg.startswith("Could not broadcast dimensions"):
        return None
    numbers = {x: i for i, x in enumerate(fgraph.inputs)}
    lengths = [x for x in _compared([first, *conditions]) if _is_length(x) and x.owner.inputs[0] in numbers]
    lengths.sort(key=lambda x: (numbers[x.owner.inputs[0]], x.owner.op.i))
    return lengths[:1] or None


def _is_length(x: Variable) -> bool:
    """Whether an expression is the length of an axis."""
    return x.owner is not None and isinstance(x.owner.op, Shape_i)


def _compared(expressions: Sequence[Variable]) -> list[Variable]:
    """List what is compared in expressions that say whether lengths agree."""
    compared = []
    for x in expressions:
        op = None if x.owner is None else x.owner.op
        is_part = isinstance(op, All | MakeVector | ScalarFromTensor | TensorFromScalar | Assert)
        is_part |= isinstance(getattr(op, "scalar_op", op), ps.EQ | ps.AND)
        compared += _compared(x.owner.inputs) if is_part else [x]
    return compared


def with_our_kernels(mode: Mode) -> Mode:
    """Return the mode with the rewrites of this module added if it compiles for Numba, and as it is otherwise."""
    if not isinstance(mode.linker, NumbaLinker):
        return mode
    products = in2out(_use_product, _use_error_function, _choose_length, name="numba_products")
    # The rewrite of generators takes the place of PyTensor's, at 50.9. That of samplers comes after it, and before
    # PyTensor computes shapes; that of sums comes after PyTensor fuses them with what they add.
    generators = in2out(_update_generator, ignore_newtrees=True, name="numba_generators")
    samplers, sums = in2out(_use_sampler, name="numba_samplers"), in2out(_use_matrix_sum, name="numba_sums")
    mode = mode.register((products, 10.0), (generators, 50.8), (samplers, 99.0), (sums, 101.0))
    return Mode(fastest(mode.linker), mode.provided_optimizer)

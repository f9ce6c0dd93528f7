"""Views of arrays, their lengths and numbers in them, for Numba: a few instructions of a graph, and no function.

PyTensor has a function for each, which takes Numba some 50 ms to compile. What is computed is the same.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence

from llvmlite import ir
from numba import from_dtype
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import _empty_nd_impl, basic_indexing, load_item, make_array, make_view, populate_array
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor

from pymc_gibbsnn.backends.declare import code_key
from pymc_gibbsnn.backends.fast_numba.calls import Writer, named_intrinsic, typed

__all__ = ["array_of", "length", "number_of", "part", "vector", "view"]


def view(op: DimShuffle, node: Apply) -> tuple[Callable, str]:
    """Make what Numba can call in place of an operation that exchanges, adds or drops axes, with its key."""
    order = tuple(-1 if i == "x" else i for i in op.new_order)  # where each axis comes from; -1 is a new one
    of_one = frozenset(i for i, length in enumerate(node.inputs[0].type.shape) if length == 1)

    @intrinsic
    def view_of(typing_context, x):
        is_number = not isinstance(x, types.Array)  # Numba may have that in place of an array without axes
        kind = types.Array(x, 0, "C") if is_number else x
        result = types.Array(kind.dtype, len(order), _layout(kind.layout, order, of_one), aligned=kind.aligned)

        def code(context, builder, signature, values):
            if is_number:
                array = _empty_nd_impl(context, builder, kind, ())
                Writer(context, builder).store(x, values[0], array.data)
            else:
                array = make_array(kind)(context, builder, values[0])
            output = make_array(result)(context, builder)
            shape, strides = (cgutils.unpack_tuple(builder, tuple_) for tuple_ in (array.shape, array.strides))
            zero, one = (context.get_constant(types.intp, number) for number in (0, 1))
            for i in op.drop:
                with cgutils.if_unlikely(builder, builder.icmp_signed("!=", shape[i], one)):
                    message = f"Axis {i} is to be dropped, but its length is not one."
                    context.call_conv.return_user_exc(builder, ValueError, (message,))
            populate_array(
                output,
                data=array.data,
                shape=[one if i == -1 else shape[i] for i in order],
                strides=[zero if i == -1 else strides[i] for i in order],
                itemsize=array.itemsize,
                meminfo=array.meminfo,
                parent=array.parent,
            )
            if not is_number:
                context.nrt.incref(builder, result, output._getvalue())
            return output._getvalue()

        return result(x), code

    return view_of, code_key(type(op), (order, sorted(of_one)), __name__)


def _layout(layout: str, order: tuple[int, ...], of_one: frozenset[int]) -> str:
    """Return Numba's letter for the layout of a view, of an array with the layout C, F or A (any).

    Axes of length one do not count.
    """
    kept = [i for i in order if i != -1 and i not in of_one]
    if kept == sorted(kept) or layout == "A":
        return layout
    if kept == sorted(kept, reverse=True):
        return "F" if layout == "C" else "C"
    return "A"


def part(op: Op, node: Apply) -> tuple[Callable, str] | None:
    """Make what Numba can call in place of an operation that indexes an array with numbers and slices, with its key.

    None where it is not for this operation: a slice has a step.
    """
    inside = [op] if isinstance(op, Subtensor) else [inner.op for inner in op.fgraph.apply_nodes]
    [indexed] = [other for other in inside if isinstance(other, Subtensor)]
    indices = indices_from_subtensor(range(len(node.inputs) - 1), indexed.idx_list)  # each the position of a number
    if any(isinstance(index, slice) and index.step is not None for index in indices):
        return None
    is_number = isinstance(node.outputs[0].type, ScalarType)

    def typed_for(x: types.Array, *kinds: types.Type):
        index_types = [types.slice2_type if isinstance(index, slice) else types.intp for index in indices]
        item_type = typed(operator.getitem, (x, types.Tuple(index_types)))[1].return_type
        of_number = not isinstance(item_type, types.Array)
        result = types.Array(item_type, 0, "C") if of_number and not is_number else item_type

        def code(context, builder, signature, values):
            writer, array = Writer(context, builder), make_array(x)(context, builder, values[0])
            numbers = [
                context.cast(builder, *_number(writer, kind, value), types.intp)
                for kind, value in zip(kinds, values[1:], strict=True)
            ]
            taken = [_slice(writer, i, numbers) if isinstance(i, slice) else numbers[i] for i in indices]
            place, shape, strides = basic_indexing(context, builder, x, array, index_types, taken, boundscheck=True)
            if of_number:
                value = load_item(context, builder, x, place)
                return value if is_number else _array(writer, result, [value])
            view = make_view(context, builder, x, array, result, place, shape, strides)._getvalue()
            context.nrt.incref(builder, result, view)
            return view

        return result(x, *kinds), code

    return named_intrinsic(_names(node), typed_for), code_key(type(op), (indices, is_number), __name__)


def length(op: Shape_i, node: Apply) -> tuple[Callable, str]:
    """Make what Numba can call in place of an operation that gives the length of an axis, with its key."""
    axis = op.i

    @intrinsic
    def length_of(typing_context, x):
        result = types.Array(types.intp, 0, "C")

        def code(context, builder, signature, values):
            shape = make_array(x)(context, builder, values[0]).shape
            return _array(Writer(context, builder), result, [builder.extract_value(shape, axis)])

        return result(x), code

    return length_of, code_key(type(op), axis, __name__)


def number_of(op: ScalarFromTensor, node: Apply) -> tuple[Callable, str]:
    """Make what Numba can call in place of an operation that reads an array without axes, with its key."""

    @intrinsic
    def number(typing_context, x):
        result = x.dtype if isinstance(x, types.Array) else x
        return result(x), lambda context, builder, _, values: _number(Writer(context, builder), x, values[0])[0]

    return number, code_key(type(op), None, __name__)


def array_of(op: TensorFromScalar, node: Apply) -> tuple[Callable, str]:
    """Make what Numba can call in place of an operation that writes a number to an array without axes, with its key."""

    @intrinsic
    def array(typing_context, x):
        result = types.Array(x, 0, "C")
        return result(x), lambda context, builder, _, values: _array(Writer(context, builder), result, values)

    return array, code_key(type(op), None, __name__)


def vector(op: Op, node: Apply) -> tuple[Callable, str] | None:
    """Make what Numba can call in place of an operation that makes a vector of numbers, with its key.

    None where it is not for this operation, which joins vectors, too.
    """
    if any(getattr(x.type, "ndim", 0) > 0 for x in node.inputs):
        return None
    dtype = from_dtype(node.outputs[0].type.numpy_dtype)

    def typed_for(*kinds: types.Type):
        result = types.Array(dtype, 1, "C")

        def code(context, builder, signature, values):
            writer = Writer(context, builder)
            numbers = [_number(writer, kind, value) for kind, value in zip(kinds, values, strict=True)]
            return _array(writer, result, [context.cast(builder, *number, dtype) for number in numbers])

        return result(*kinds), code

    return named_intrinsic(_names(node), typed_for), code_key(type(op), (str(dtype), len(node.inputs)), __name__)


def _names(node: Apply) -> list[str]:
    """Return a name for each input."""
    return [f"x{i}" for i in range(len(node.inputs))]


def _number(writer: Writer, kind: types.Type, value: ir.Value) -> tuple[ir.Value, types.Type]:
    """Return the number in an array without axes, or one that is no array, with its type."""
    if not isinstance(kind, types.Array):
        return value, kind
    array = make_array(kind)(writer.context, writer.builder, value)
    return load_item(writer.context, writer.builder, kind, array.data), kind.dtype


def _array(writer: Writer, kind: types.Array, numbers: Sequence[ir.Value]) -> ir.Value:
    """Return a new array, a vector of these numbers or, without axes, of one."""
    shape = [writer.context.get_constant(types.intp, len(numbers))] * kind.ndim
    array = _empty_nd_impl(writer.context, writer.builder, kind, shape)
    for i, number in enumerate(numbers):
        writer.store(kind.dtype, number, cgutils.gep(writer.builder, array.data, i))
    return array._getvalue()


def _slice(writer: Writer, index: slice, numbers: Sequence[ir.Value]) -> ir.Value:
    """Return a slice as Numba has it, of the positions of its bounds among these numbers."""
    result = writer.context.make_helper(writer.builder, types.slice2_type)
    first, last = (writer.context.get_constant(types.intp, bound) for bound in (0, sys.maxsize))
    result.start = first if index.start is None else numbers[index.start]
    result.stop = last if index.stop is None else numbers[index.stop]
    result.step = writer.context.get_constant(types.intp, 1)
    return result._getvalue()

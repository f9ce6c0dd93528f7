"""Elementwise operations in Numba, and joined and repeated arrays: loops around the function of numbers, in one piece.

PyTensor's own code goes through several functions for each operation, which Numba compiles one after the other. What is
computed, and in which order, is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
from llvmlite import ir
from numba import from_dtype
from numba.core import cgutils, types
from numba.np.arrayobj import _empty_nd_impl, load_item, make_array
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_funcify_and_cache_key
from pytensor.scalar.basic import get_scalar_type
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.elemwise import Elemwise

from pymc_gibbsnn._compat import JOINS_ALONG_INPUT, TELLS_WHAT_OVERLAPS
from pymc_gibbsnn.backends.declare import code_key
from pymc_gibbsnn.backends.fast_numba.calls import Writer, named_intrinsic, typed

__all__ = ["elementwise", "filled", "joined"]


def elementwise(op: Elemwise, node: Apply) -> tuple[Callable, str] | None:
    """Make what Numba can call in place of an elementwise operation, with its key.

    None where it is not for this operation, whose function of numbers cannot be kept on disk.
    """
    numbers = op.scalar_op.make_node(*(get_scalar_type(x.dtype)() for x in node.inputs))
    function, key = numba_funcify_and_cache_key(op.scalar_op, node=numbers)
    if key is None or hasattr(function, "handles_out"):  # in PyTensor 3, of one that writes into arrays itself
        return None
    repeated = [x.type.broadcastable for x in node.inputs]
    dtypes = [from_dtype(np.dtype(x.dtype)) for x in node.outputs]
    inplace = op.inplace_pattern  # which input an output overwrites
    overwritten_by = {j: i for i, j in inplace.items()}

    def typed_for(*arrays: types.Array):
        implementation = typed(function, [array.dtype for array in arrays])
        _, signature_of = implementation
        results = [
            arrays[inplace[i]] if i in inplace else types.Array(dtype, len(repeated[0]), "C")
            for i, dtype in enumerate(dtypes)
        ]
        result = results[0] if len(results) == 1 else types.Tuple(results)

        def code(context, builder, signature, values):
            writer = Writer(context, builder)
            given = [make_array(kind)(context, builder, value) for kind, value in zip(arrays, values, strict=True)]
            lengths = _lengths(writer, given, repeated)
            outputs = []
            for i, kind in enumerate(results):
                if i in inplace:
                    outputs.append(given[inplace[i]])
                    context.nrt.incref(builder, kind, outputs[i]._getvalue())
                else:
                    outputs.append(_empty_nd_impl(context, builder, kind, lengths))
            with ExitStack() as loops:
                indices = [loops.enter_context(cgutils.for_range(builder, length)).index for length in lengths]
                overlaps, numbers = _Overlaps(builder.module, len(results)), []
                for i, (kind, array, ones) in enumerate(zip(arrays, given, repeated, strict=True)):
                    data = builder.load(_item(writer, (kind, array), _repeat(indices, ones)))
                    overlaps.tell(data, overwritten_by.get(i))
                    numbers.append(context.data_model_manager[kind.dtype].from_data(builder, data))
                computed, computed_kinds = [writer.inline(implementation, numbers)], [signature_of.return_type]
                if len(results) > 1:
                    computed, computed_kinds = cgutils.unpack_tuple(builder, *computed), computed_kinds[0].types
                for i, (kind, array) in enumerate(zip(results, outputs, strict=True)):
                    number = context.cast(builder, computed[i], computed_kinds[i], kind.dtype)
                    stored = writer.store(kind.dtype, number, _item(writer, (kind, array), indices))
                    overlaps.tell(stored, i)
            values = [array._getvalue() for array in outputs]
            return values[0] if len(values) == 1 else context.make_tuple(builder, result, values)

        return result(*arrays), code

    more = (repeated, [str(dtype) for dtype in dtypes], sorted(inplace.items()), key)
    return named_intrinsic(_names(node), typed_for), code_key(type(op), more, __name__)


def filled(op: Alloc, node: Apply) -> tuple[Callable, str]:
    """Make what Numba can call in place of an operation that repeats an array up to a given shape, with its key."""
    ones = node.inputs[0].type.broadcastable
    axes = len(node.inputs) - 1

    def typed_for(array: types.Array, *lengths: types.Array):
        result = types.Array(array.dtype, axes, "C")

        def code(context, builder, signature, values):
            writer = Writer(context, builder)
            given = make_array(array)(context, builder, values[0])
            shape = []
            for kind, value in zip(lengths, values[1:], strict=True):
                number = load_item(context, builder, kind, make_array(kind)(context, builder, value).data)
                shape.append(context.cast(builder, number, kind.dtype, types.intp))
            for axis, length in enumerate(shape):
                with cgutils.if_unlikely(builder, builder.icmp_signed("<", length, length.type(0))):
                    message = f"The length of axis {axis} of a new array is negative."
                    context.call_conv.return_user_exc(builder, ValueError, (message,))
            last, length_of = axes - len(ones), cgutils.unpack_tuple(builder, given.shape)
            for axis, (one, length) in enumerate(zip(ones, length_of, strict=True)):
                if not one:
                    with cgutils.if_unlikely(builder, builder.icmp_signed("!=", length, shape[last + axis])):
                        message = (
                            f"Incompatible shapes: an array does not have the length that is asked for along axis "
                            f"{axis}. A length of one is repeated only where it is known beforehand."
                        )
                        context.call_conv.return_user_exc(builder, ValueError, (message,))
            output = _empty_nd_impl(context, builder, result, shape)
            with ExitStack() as loops:
                indices = [loops.enter_context(cgutils.for_range(builder, length)).index for length in shape]
                place = _item(writer, (array, given), _repeat(indices[last:], ones))
                writer.store(array.dtype, writer.load(array.dtype, place), _item(writer, (result, output), indices))
            return output._getvalue()

        return result(array, *lengths), code

    return named_intrinsic(_names(node), typed_for), code_key(type(op), (ones, axes), __name__)


def joined(op: Join, node: Apply) -> tuple[Callable, str] | None:
    """Make what Numba can call in place of an operation that joins arrays along an axis, with its key.

    None where it is not for this operation: arrays are of several dtypes, or the axis is an input, as in PyTensor 2.
    """
    if JOINS_ALONG_INPUT or len({x.type.dtype for x in node.inputs}) > 1:
        return None
    axis = op.axis

    def typed_for(*kinds: types.Array):
        result = types.Array(kinds[0].dtype, kinds[0].ndim, "C")

        def code(context, builder, signature, values):
            writer = Writer(context, builder)
            given = [make_array(kind)(context, builder, value) for kind, value in zip(kinds, values, strict=True)]
            shapes = [cgutils.unpack_tuple(builder, array.shape) for array in given]
            for i, shape in enumerate(shapes[1:], 1):
                for other, (length, first) in enumerate(zip(shape, shapes[0], strict=True)):
                    if other != axis:
                        with cgutils.if_unlikely(builder, builder.icmp_signed("!=", length, first)):
                            message = (
                                f"Incompatible shapes: array {i} that is to be joined to others along axis {axis} "
                                f"has another length than they along axis {other}."
                            )
                            context.call_conv.return_user_exc(builder, ValueError, (message,))
            starts = [context.get_constant(types.intp, 0)]
            for shape in shapes:
                starts.append(builder.add(starts[-1], shape[axis]))
            output = _empty_nd_impl(context, builder, result, [*shapes[0][:axis], starts[-1], *shapes[0][axis + 1 :]])
            for kind, array, shape, start in zip(kinds, given, shapes, starts, strict=False):
                with ExitStack() as loops:
                    indices = [loops.enter_context(cgutils.for_range(builder, length)).index for length in shape]
                    number = writer.load(kind.dtype, _item(writer, (kind, array), indices))
                    indices[axis] = builder.add(indices[axis], start)
                    writer.store(kind.dtype, number, _item(writer, (result, output), indices))
            return output._getvalue()

        return result(*kinds), code

    return named_intrinsic(_names(node), typed_for), code_key(type(op), (axis, len(node.inputs)), __name__)


def _names(node: Apply) -> list[str]:
    """Return a name for each input."""
    return [f"x{i}" for i in range(len(node.inputs))]


class _Overlaps:
    """Tells LLVM which memory overlaps: that of an output overlaps none but that of the input that it overwrites."""

    def __init__(self, module: ir.Module, outputs: int):
        self.module, self.scopes = module, []
        if TELLS_WHAT_OVERLAPS:
            domain = module.add_metadata([], self_ref=True)
            self.scopes = [module.add_metadata([domain], self_ref=True) for _ in range(outputs + 1)]

    def tell(self, instruction: ir.Instruction, output: int | None) -> None:
        """Say that an instruction reads or writes the memory of an output, or of inputs that stay, for None."""
        if self.scopes:
            own = self.scopes[-1 if output is None else output]
            instruction.set_metadata("alias.scope", self.module.add_metadata([own]))
            others = [scope for scope in self.scopes if scope is not own]
            instruction.set_metadata("noalias", self.module.add_metadata(others))


def _lengths(writer: Writer, arrays: Sequence, repeated: Sequence[Sequence[bool]]) -> list[ir.Value]:
    """Write the check that the arrays have the same lengths but where they are repeated, and return the lengths.

    Whether an array is repeated along an axis, where its length is one, is known beforehand: an array that happens to
    have the length one is not repeated, as in all of PyTensor.
    """
    context, builder = writer.context, writer.builder
    one = context.get_constant(types.intp, 1)
    shapes = [cgutils.unpack_tuple(builder, array.shape) for array in arrays]
    lengths = []
    for axis in range(len(repeated[0])):
        length = next((shape[axis] for shape, ones in zip(shapes, repeated, strict=True) if not ones[axis]), one)
        for i, (shape, ones) in enumerate(zip(shapes, repeated, strict=True)):
            expected = one if ones[axis] else length
            if shape[axis] is not expected:
                with cgutils.if_unlikely(builder, builder.icmp_signed("!=", shape[axis], expected)):
                    message = (
                        f"Incompatible shapes of an elementwise operation: input {i} has another length along axis "
                        f"{axis} than the other inputs. A length of one is repeated only where it is known beforehand."
                    )
                    context.call_conv.return_user_exc(builder, ValueError, (message,))
        lengths.append(length)
    return lengths


def _repeat(indices: Sequence[ir.Value], repeated: Sequence[bool]) -> list[ir.Value]:
    """Replace by 0 the indices along axes along which an array is repeated."""
    return [index.type(0) if one else index for index, one in zip(indices, repeated, strict=True)]


def _item(writer: Writer, array: tuple, indices: Sequence[ir.Value]) -> ir.Value:
    """Return the address of an item of an array, which is given with its type."""
    kind, given = array
    shape, strides = (cgutils.unpack_tuple(writer.builder, lengths) for lengths in (given.shape, given.strides))
    return cgutils.get_item_pointer2(writer.context, writer.builder, given.data, shape, strides, kind.layout, indices)

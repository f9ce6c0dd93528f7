"""Other views of an array, with axes exchanged, added or dropped, for Numba: a few instructions and no function."""

from __future__ import annotations

from collections.abc import Callable

from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import _empty_nd_impl, make_array, populate_array
from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import DimShuffle

from pymc_gibbsnn.backends.declare import code_key
from pymc_gibbsnn.backends.numba_calls import Writer

__all__ = ["view"]


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
            found = make_array(result)(context, builder)
            shape, strides = (cgutils.unpack_tuple(builder, tuple_) for tuple_ in (array.shape, array.strides))
            zero, one = (context.get_constant(types.intp, number) for number in (0, 1))
            for i in op.drop:
                with cgutils.if_unlikely(builder, builder.icmp_signed("!=", shape[i], one)):
                    message = f"Axis {i} is to be dropped, but its length is not one."
                    context.call_conv.return_user_exc(builder, ValueError, (message,))
            populate_array(
                found,
                data=array.data,
                shape=[one if i == -1 else shape[i] for i in order],
                strides=[zero if i == -1 else strides[i] for i in order],
                itemsize=array.itemsize,
                meminfo=array.meminfo,
                parent=array.parent,
            )
            if not is_number:
                context.nrt.incref(builder, result, found._getvalue())
            return found._getvalue()

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

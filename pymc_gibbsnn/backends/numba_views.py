"""Other views of an array, with axes exchanged, added or dropped, for Numba: a few instructions and no function."""

from __future__ import annotations

from collections.abc import Callable

from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array
from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import DimShuffle

from pymc_gibbsnn.backends.declare import code_key

__all__ = ["view"]


def view(op: DimShuffle, node: Apply) -> tuple[Callable, str] | None:
    """Make what Numba can call in place of an operation that exchanges, adds or drops axes, with its key.

    None where it is not for this operation, as of a number, which Numba may not have as an array.
    """
    if op.input_ndim == 0:
        return None
    order = tuple(-1 if i == "x" else i for i in op.new_order)  # where each axis comes from; -1 is a new one
    of_one = frozenset(i for i, length in enumerate(node.inputs[0].type.shape) if length == 1)

    @intrinsic
    def view_of(typing_context, x):
        result = types.Array(x.dtype, len(order), _layout(x.layout, order, of_one), aligned=x.aligned)

        def code(context, builder, signature, values):
            array, found = make_array(x)(context, builder, values[0]), make_array(result)(context, builder)
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
            return impl_ret_borrowed(context, builder, result, found._getvalue())

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

"""On which elements of an array the elements of an expression depend.

Each element of the array has a number: its own place, say, or that of its row. The numbers are taken through the graph
of an expression. An elementwise operation takes together elements of the same number alone, and so does a sum along an
axis; what reshapes, repeats or picks elements does the same with their numbers. An expression in which all of this
holds depends, in each of its elements, on those elements of the array that have one number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax

from pymc_gibbsnn._compat import JOINS_ALONG_INPUT, SUBTENSORS, inner_graph
from pymc_gibbsnn.networks.forms import NotElementwiseError, evaluate
from pymc_gibbsnn.networks.notation import show

__all__ = ["NOTHING", "dependence"]

NOTHING = -1  # the number of what depends on no element
REARRANGED = (Alloc, DimShuffle, JoinDims, Reshape, SpecifyShape, SplitDims, ViewOp, *SUBTENSORS)


def dependence(
    expressions: Sequence[Variable], numbers: Mapping[Variable, np.ndarray], values: Mapping[Variable, np.ndarray]
) -> list[np.ndarray | None]:
    """Compute on the elements of which number each element of some expressions depends.

    Parameters
    ----------
    expressions : sequence of Variable
        The expressions.
    numbers : mapping of Variable to array of int
        The numbers, from 0 up, of the elements of variables in them.
    values : mapping of Variable to array
        Values of all variables in the expressions, of which only shapes matter, and what picks elements.

    Returns
    -------
    list of array of int or None
        Numbers, or ``NOTHING``, in the shape of each expression; None for one that depends on none of the variables.

    Raises
    ------
    NotElementwiseError
        If an operation takes together elements of different numbers, or may do so; the message shows it.
    """
    found: dict[Variable, np.ndarray | None] = dict(numbers)

    def value(x: Variable) -> np.ndarray:
        with np.errstate(all="ignore"):
            return evaluate(x, values)

    for node in toposort(expressions, blockers=list(numbers)):
        inputs = [found.get(x) for x in node.inputs]
        if all(x is None for x in inputs) or isinstance(node.op, Shape | Shape_i):
            continue
        try:
            found.update(zip(node.outputs, _through(node, inputs, value), strict=True))
        except _MixedError:
            raise NotElementwiseError(show(node.outputs[0])) from None
    return [found.get(x) for x in expressions]


class _MixedError(Exception):
    """Elements of different numbers are taken together."""


def _through(
    node: Apply, inputs: Sequence[np.ndarray | None], value: Callable[[Variable], np.ndarray]
) -> list[np.ndarray | None]:
    """Return the numbers of the outputs of an operation.

    Parameters
    ----------
    node : Apply
        The operation.
    inputs : sequence of array or None
        The numbers of its inputs.
    value : callable
        A function that evaluates an input.
    """
    op, (first, *others) = node.op, inputs
    match op:
        case Elemwise():
            shapes = [
                np.shape(value(x)) if numbers is None and not all(x.type.broadcastable) else np.shape(numbers)
                for x, numbers in zip(node.inputs, inputs, strict=True)
            ]
            shape = np.broadcast_shapes((1,) * node.outputs[0].ndim, *(s for s in shapes if s))
            together = np.full(shape, NOTHING)
            for numbers in inputs:
                if numbers is not None:
                    together = _merged(together, numbers)
            return [together] * len(node.outputs)
        case CAReduce():
            return [_along(first, op.axis)]
        case Softmax() | LogSoftmax():
            axes = tuple(range(first.ndim)) if op.axis is None else op.axis
            return [np.broadcast_to(np.expand_dims(_along(first, axes), axes), first.shape)]
        case Join() | MakeVector():
            start = int(isinstance(op, Join) and JOINS_ALONG_INPUT)
            whole = [
                np.full(np.shape(value(x)), NOTHING) if numbers is None else numbers
                for x, numbers in zip(node.inputs[start:], inputs[start:], strict=True)
            ]
            new = [pt.constant(numbers) for numbers in whole]
            return [evaluate(pt.stack(new) if isinstance(op, MakeVector) else op(*node.inputs[:start], *new))]
        case OpFromGraph():
            inner = inner_graph(op)
            numbers = {x: of for x, of in zip(inner.inputs, inputs, strict=True) if of is not None}
            values = {x: value(outer) for x, outer in zip(inner.inputs, node.inputs, strict=True)}
            return dependence(inner.outputs, numbers, values)
        case _ if isinstance(op, REARRANGED) and all(numbers is None for numbers in others):
            new = node.clone_with_new_inputs([pt.constant(first), *node.inputs[1:]], strict=False)
            return [value(new.outputs[0])]
    raise _MixedError


def _merged(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Take together elements, which must have the same numbers where both have one."""
    if np.any((one != other) & (one != NOTHING) & (other != NOTHING)):
        raise _MixedError
    return np.maximum(one, other)


def _along(numbers: np.ndarray, axes: Sequence[int] | None) -> np.ndarray:
    """Take together all elements along some axes, or all."""
    axes = tuple(range(numbers.ndim)) if axes is None else tuple(axes) if np.iterable(axes) else (axes,)
    if not all(numbers.shape[axis] for axis in axes):
        return np.full(np.delete(numbers.shape, axes), NOTHING)
    highest = numbers.max(axis=axes, keepdims=True)
    _merged(numbers, highest)
    return highest.squeeze(axes)

"""Random draws as parts of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from pytensor import config
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import walk
from pytensor.graph.type import Type
from pytensor.tensor.basic import as_tensor_variable, get_vector_length
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.utils import explicit_expand_dims, normalize_size_param
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type_other import NoneConst, NoneTypeT

__all__ = ["apply_to_types", "draw", "lengths_of_types"]


def draw(op: RandomVariable, rng: Variable, *params, size: tuple[int, ...] | None = None) -> tuple[Variable, Variable]:
    """Draw from a RandomVariable; return the next generator and the draw.

    Parameters
    ----------
    op : RandomVariable
        The distribution.
    rng : Variable
        The random generator.
    *params : Variable
        The parameters of the distribution.
    size : tuple of int, optional
        The shape of the draw; by default that of the parameters.

    Returns
    -------
    rng, draw : Variable
    """
    return tuple(apply_to_types(op, rng, normalize_size_param(size), *map(as_tensor_variable, params)).outputs)


def apply_to_types(op: RandomVariable, rng: Variable, size: Variable, *params: Variable) -> Apply:
    """Apply a RandomVariable to a size and parameters of which only the types are looked at.

    PyTensor itself looks at everything that these are computed from, in search of axes of known length, and does so
    again whenever the draw is copied into another graph. Late in a sweep this is almost the whole sweep. Here the node
    is made for stand-ins of the same types, which are computed from nothing, and is then given size and parameters.
    Where the parameters give the draw its shape, that is done once for all parameters of the same types.

    Parameters
    ----------
    op : RandomVariable
        The distribution.
    rng : Variable
        The random generator.
    size : Variable
        The shape of the draw, as PyTensor's node takes it.
    *params : Variable
        The parameters of the distribution.

    Returns
    -------
    Apply
        The node of the draw.
    """
    if isinstance(size.type, NoneTypeT):
        params = explicit_expand_dims(params, op.ndims_params)
        op, types = _of_types(op, config.floatX, rng.type, *(x.type for x in params))
        return Apply(op, [rng, size, *params], [type_() for type_ in types])
    params = explicit_expand_dims(params, op.ndims_params, get_vector_length(size))
    stand_ins = [x if x.owner is None else x.type() for x in params]
    node = op.make_node(rng.type(), *lengths_of_types([size]), *stand_ins)
    return Apply(node.op, [rng, size, *params], [x.clone() for x in node.outputs])


def lengths_of_types(lengths: Sequence[Variable]) -> list[Variable]:
    """Return the same lengths of axes, where stand-ins of the same types take the place of the arrays that have them.

    PyTensor computes all that the arrays are computed from to learn which of their lengths are known.
    """

    def is_measured(x):
        return x.owner is not None and isinstance(x.owner.op, Shape | Shape_i)

    found = walk(lengths, lambda x: [] if x.owner is None or is_measured(x) else x.owner.inputs)
    arrays = [x.owner.inputs[0] for x in found if is_measured(x)]
    stand_ins = {array: array.type() for array in arrays if array.owner is not None}
    return clone_replace(lengths, stand_ins) if stand_ins else [*lengths]


@cache
def _of_types(op: RandomVariable, precision: str, *types: Type) -> tuple[RandomVariable, list[Type]]:
    """Return a RandomVariable whose draws have a data type, and the types of what it returns.

    Parameters
    ----------
    op : RandomVariable
        The distribution, whose data type may be "floatX".
    precision : str
        PyTensor's floatX.
    *types : Type
        The types of the generator and the parameters.
    """
    rng, *params = (type_() for type_ in types)
    node = op.make_node(rng, NoneConst, *params)
    return node.op, [x.type for x in node.outputs]

"""Forms in the canonical graph of a mean."""

from __future__ import annotations

from textwrap import shorten

import pytensor
import pytensor.scalar as ps
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot

__all__ = ["match_product", "show", "spans_columns", "terms", "undimshuffle"]


def is_elemwise(x: Variable, scalar_op: type) -> bool:
    return x.owner is not None and isinstance(x.owner.op, Elemwise) and isinstance(x.owner.op.scalar_op, scalar_op)


def terms(sum_: Variable) -> list[Variable]:
    return sum_.owner.inputs if is_elemwise(sum_, ps.Add) else [sum_]


def undimshuffle(x: Variable) -> Variable:
    while x.owner is not None and isinstance(x.owner.op, DimShuffle):
        x = x.owner.inputs[0]
    return x


def match_product(term: Variable) -> tuple[Variable, Variable, str] | None:
    """(input, weights, layout) of ``input @ weights``, a single column possibly squeezed to a vector."""
    if term.owner is not None and isinstance(term.owner.op, DimShuffle) and term.owner.op.is_squeeze:
        term = term.owner.inputs[0]
    if term.owner is None or not isinstance(term.owner.op, Dot):
        return None
    source, right = term.owner.inputs
    weights = undimshuffle(right)
    if weights is right:
        return source, weights, "columns"
    return source, weights, "vector" if weights.ndim == 1 else "rows"


def spans_columns(bias: Variable) -> bool:
    """Whether a bias lies along the last axis and is the same for all rows."""
    return bias.ndim == 0 or bias.type.broadcastable[0]


def show(x: Variable) -> str:
    text = pytensor.printing.pprint(x) if x.owner is not None else (x.name or str(x))
    return shorten(text, 100, placeholder=" ...")

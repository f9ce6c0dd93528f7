"""How error messages write expressions of PyTensor: as a user would, with names, and with shapes in place of data."""

from __future__ import annotations

import pytensor.scalar as ps
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.basic import Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type_other import NoneTypeT

from pymc_gibbsnn._compat import SUBTENSORS

__all__ = ["distribution_name", "show"]

LONGEST, DEEPEST = 100, 6  # how many characters, and how many nested operations, are written
SIGNS = {ps.Add: "+", ps.Sub: "-", ps.Mul: "*", ps.TrueDiv: "/", ps.Pow: "**"}


def show(x: Variable) -> str:
    """Write an expression in one line: ``maximum(Z2, 0)``, ``(A2 @ W2.T) / 2``, or ``array(6, 3)`` for data."""
    text = _written(x, 0)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def distribution_name(op: RandomVariable) -> str:
    """Return the name of a distribution, such as "Laplace", "Normal" or "Minibatch"."""
    printed = getattr(op, "_print_name", None)
    return printed[0] if printed else type(op).__name__.removesuffix("RV").removesuffix("RandomVariable")


def _written(x: Variable, depth: int) -> str:
    """Write an expression inside ``depth`` others."""
    node = x.owner
    if isinstance(x.type, NoneTypeT):
        return "None"
    if isinstance(x, Constant):
        return f"{x.data.item():g}" if getattr(x.data, "size", 0) == 1 else f"array{_shape(x.data.shape)}"
    if isinstance(x, SharedVariable):
        return x.name or f"array{_shape(getattr(x.get_value(borrow=True), 'shape', ()))}"
    if node is None or (isinstance(node.op, RandomVariable) and x.name):
        return x.name or "..."
    if depth == DEEPEST:
        return "..."

    op, operands = node.op, node.inputs
    if isinstance(op, Blockwise):
        op = op.core_op

    def write(operand: Variable) -> str:
        return _written(operand, depth + 1)

    def within(operand: Variable) -> str:
        """Write an operand, in parentheses if it is an operation with a sign."""
        text = write(operand)
        return f"({text})" if _has_sign(operand) else text

    match op:
        case RandomVariable():
            return f"a draw of {distribution_name(op)}"
        case DimShuffle():
            kept = [axis for axis in op.new_order if axis != "x"]
            return f"{within(operands[0])}.T" if kept != sorted(kept) else write(operands[0])
        case Dot():
            return f"{within(operands[0])} @ {within(operands[1])}"
        case Elemwise() if isinstance(op.scalar_op, ps.Cast | ps.Identity):
            return write(operands[0])
        case Elemwise() if isinstance(op.scalar_op, ps.Neg):
            return f"-{within(operands[0])}"
        case Elemwise() if type(op.scalar_op) in SIGNS:
            return f" {SIGNS[type(op.scalar_op)]} ".join(map(within, operands))
        case Elemwise():
            name = type(op.scalar_op).__name__
        case CAReduce():
            axes = "" if op.axis is None else f", axis={op.axis[0] if len(op.axis) == 1 else tuple(op.axis)}"
            return f"{type(op).__name__.lower()}({write(operands[0])}{axes})"
        case Join():
            return f"concatenate([{', '.join(write(x) for x in operands if x.ndim)}])"  # the axis is left out
        case _ if isinstance(op, SUBTENSORS):
            return f"{within(operands[0])}[...]"
        case _:
            name = type(op).__name__
    return f"{name.lower()}({', '.join(map(write, operands))})"


def _has_sign(x: Variable) -> bool:
    """Whether an expression is written with a sign between its operands."""
    while x.owner is not None and isinstance(x.owner.op, DimShuffle):
        x = x.owner.inputs[0]
    op = getattr(x.owner, "op", None)
    op = op.core_op if isinstance(op, Blockwise) else op
    return isinstance(op, Dot) or (isinstance(op, Elemwise) and type(op.scalar_op) in SIGNS)


def _shape(shape: tuple[int, ...]) -> str:
    """Write a shape."""
    return f"({', '.join(map(str, shape))})"

"""Given numbers: the numbers of a model as data of the programs that are compiled from it.

A constant is a part of the code that contains it, and another constant asks for other code. The numbers that a user
writes into a model, such as the standard deviations of noises and priors, the widths of layers or arrays of data, are
therefore made shared variables when the model is read. A program is given them when it runs, so that one program serves
all models that differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.type import TensorType

from pymc_gibbsnn.networks.forms import AS_WRITTEN, evaluate
from pymc_gibbsnn.networks.substitution import substitute

__all__ = [
    "Given",
    "checked_beforehand",
    "computed_beforehand",
    "folded",
    "given",
    "is_given",
    "loose",
    "real",
    "sizes",
]


class Given(TensorSharedVariable):
    """A number or an array of a model, which nothing changes once the model is read."""


def given(value: ArrayLike, name: str | None = None) -> SharedVariable:
    """Make a shared variable of a value; a program knows only its axes of length 1, which broadcast."""
    value = np.asarray(value)
    return Given(type=loose(TensorType(value.dtype, value.shape)), value=value, strict=True, name=name)


def sizes(shape: Sequence[int]) -> tuple[Variable | int, ...]:
    """Make a shape one that a program is given, but for axes of length 1, which broadcast."""
    return tuple(1 if length == 1 else given(np.asarray(length)) for length in shape)


def is_given(expression: Variable) -> bool:
    """Whether an expression depends on given numbers and constants alone, and so can never change."""
    return all(v.owner is not None or isinstance(v, Constant | Given) for v in ancestors([expression]))


def folded(expression: Variable) -> Variable:
    """Evaluate an expression that depends on no variable and no data; a program is then given its value."""
    return given(evaluate(expression), expression.name) if is_given(expression) else expression


def real(expression: Variable) -> Variable:
    """Fold an expression in PyTensor's default precision, ``floatX``."""
    return folded(pt.cast(expression, pytensor.config.floatX))


def loose(kind: TensorType) -> TensorType:
    """Return a type without the lengths of its axes, but for those of length 1, which broadcast."""
    return kind.clone(shape=tuple(1 if length == 1 else None for length in kind.shape))


def checked_beforehand(expressions: Sequence[Variable]) -> list[Variable]:
    """Leave checks out of expressions that given numbers pass, such as that a standard deviation is positive.

    A check stands between operations that a program could do at once.
    """
    new: dict[Variable, Variable] = {}
    for node in toposort(expressions):
        checked, *conditions = node.inputs
        if isinstance(node.op, CheckAndRaise) and all(is_given(x) and evaluate(x).all() for x in conditions):
            new |= dict(zip(node.outputs, substitute([checked], new), strict=True))
    return substitute(expressions, new)


def computed_beforehand(expressions: Sequence[Variable]) -> list[Variable]:
    """Replace all that depends on given numbers alone by its value, which a program is then given instead.

    Single numbers lie in one array for each data type: each further array costs time at every call of a program.
    """
    known, constant, used = set(), set(), {}
    for node in toposort(expressions):
        given_inputs = [v for v in node.inputs if isinstance(v, Given) or v in known]
        rest = [v for v in node.inputs if not (isinstance(v, Constant | Given) or v in known or v in constant)]
        computable = all(isinstance(v.type, TensorType) for v in node.outputs) and not isinstance(node.op, MakeVector)
        if computable and not rest:
            (known if given_inputs else constant).update(node.outputs)
        else:
            used.update(dict.fromkeys(map(_seen, given_inputs)))
    used.update(dict.fromkeys(_seen(v) for v in expressions if isinstance(v, Given) or v in known))
    values = dict(zip(used, pytensor.function([], list(used), mode=AS_WRITTEN)(), strict=True))
    replacements = {v: given(value) for v, value in values.items() if not all(v.type.broadcastable)}
    for dtype in sorted({v.dtype for v in used if v not in replacements}):
        single = [v for v in used if v not in replacements and v.dtype == dtype]
        numbers = given(np.array([values[v].item() for v in single], dtype))
        for i, v in enumerate(single):
            replacements[v] = numbers[i].dimshuffle(["x"] * v.ndim)
    return substitute(expressions, replacements)


def _seen(x: Variable) -> Variable:
    """Return what an expression only looks at in another way: a copy of data costs memory."""
    while x.owner is not None and isinstance(x.owner.op, DimShuffle | SpecifyShape):
        x = x.owner.inputs[0]
    return x

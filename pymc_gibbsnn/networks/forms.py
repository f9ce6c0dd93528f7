"""What the readers of networks look for in a graph: sums, products with weights, numbers, elementwise functions.

The graphs are those of PyTensor after its canonicalisation, which makes one form of the many ways to write a product.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.shape import SpecifyShape

from pymc_gibbsnn._compat import SUBTENSORS
from pymc_gibbsnn.networks.notation import show

__all__ = [
    "AS_WRITTEN",
    "NetworkError",
    "NotElementwiseError",
    "evaluate",
    "is_elemwise",
    "is_normal",
    "is_number",
    "match_monomial",
    "match_product",
    "match_scaled_product",
    "match_slope",
    "rebuild",
    "shapes_of",
    "spans_channels",
    "spans_columns",
    "split_number",
    "summands",
    "terms",
    "undimshuffle",
    "value_shapes",
]


# For what is computed once or twice: to rewrite a graph takes far longer than to compute it as it is written. Only what
# it holds twice is merged.
AS_WRITTEN = Mode(linker="py", optimizer="merge")


class NetworkError(ValueError):
    """The error for a model, or a part of it, that cannot be read as a network.

    Its message names the variable, what was found and, where there is one, the known form that is nearest. It is a
    ``ValueError``.

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> issubclass(pmg.NetworkError, ValueError)
    True
    """


class NotElementwiseError(ValueError):
    """The error for an expression that is no elementwise function of one variable."""


def is_elemwise(x: Variable, scalar_op: type | tuple[type, ...]) -> bool:
    """Whether an expression applies an operation on numbers, of a given type, to the elements of arrays."""
    return x.owner is not None and isinstance(x.owner.op, Elemwise) and isinstance(x.owner.op.scalar_op, scalar_op)


def is_normal(x: Variable) -> bool:
    """Whether a variable is Normal."""
    return x.owner is not None and isinstance(x.owner.op, NormalRV)


def terms(sum_: Variable) -> list[Variable]:
    """List the terms of a sum; an expression that is no sum is a single term."""
    return sum_.owner.inputs if is_elemwise(sum_, ps.Add) else [sum_]


def summands(x: Variable) -> list[Variable]:
    """List the terms of sums and differences, also of those inside them, each times the numbers before it."""
    factor, inner = split_number(x)
    if inner.owner is not None and isinstance(inner.owner.op, SpecifyShape):
        parts = summands(inner.owner.inputs[0])
    elif is_elemwise(inner, ps.Add):
        parts = [term for operand in inner.owner.inputs for term in summands(operand)]
    elif is_elemwise(inner, ps.Sub):
        first, second = map(summands, inner.owner.inputs)
        parts = first + [_times(-1, term) for term in second]
    else:
        return [x]
    return parts if factor == 1 else [_times(factor, term) for term in parts]


def _times(number: float, x: Variable) -> Variable:
    """Multiply an expression by a number; of whole numbers, some types have no sign, so that they become real ones."""
    x = x if x.dtype.startswith("float") else pt.cast(x, pytensor.config.floatX)
    return -x if number == -1 else pt.constant(np.asarray(number, x.dtype)) * x


def undimshuffle(x: Variable) -> Variable:
    """Take away the transpositions, squeezes and added axes around an expression."""
    while x.owner is not None and isinstance(x.owner.op, DimShuffle):
        x = x.owner.inputs[0]
    return x


def match_scaled_product(term: Variable) -> tuple[float, Variable, Variable, str] | None:
    """Match a term ``factor * (input @ weights)``, whose factor is a constant number.

    The factor may stand before the product, a latent input or the weights, as a factor, a divisor or a minus sign. For
    weights of one unit the product may also be ``sum(input * weights, axis=1)``.

    Returns
    -------
    tuple or None
        Factor, input, weights and layout, as :func:`match_product` returns the latter three; None for another term.
    """
    factor, term = split_number(_unsqueezed(term))
    term = _unsqueezed(term)
    if term.owner is None:
        return None
    if isinstance(term.owner.op, Dot):
        source, right = term.owner.inputs
        before, latent = split_number(source)
        if before != 1 and latent.owner is None and not isinstance(latent, Constant | SharedVariable):
            source = latent  # a factor before data is left as a part of the data
        else:
            before = 1.0
        inner, weights = split_number(undimshuffle(right))
        product = match_product(term.owner.op(source, right if inner == 1 else _in_place_of(right, weights)))
        return None if product is None else (factor * before * inner, *product)
    if isinstance(term.owner.op, Sum) and term.owner.op.axis == (1,) and is_elemwise(term.owner.inputs[0], ps.Mul):
        rows = [x for x in term.owner.inputs[0].owner.inputs if x.ndim == 2]
        if len(rows) == len(term.owner.inputs[0].owner.inputs) == 2:
            [source, weights] = sorted(rows, key=lambda x: x.type.broadcastable[0])
            if weights.type.broadcastable[0] and undimshuffle(weights).ndim == 1:
                return factor, source, undimshuffle(weights), "vector"
    return None


def split_number(x: Variable) -> tuple[float, Variable]:
    """Split ``x = c y`` into a constant number c and the rest y; where there is no such number, c is 1."""
    if is_elemwise(x, ps.Neg):
        factor, rest = split_number(x.owner.inputs[0])
        return -factor, rest
    if not is_elemwise(x, (ps.Mul, ps.TrueDiv)):
        return 1.0, x
    first, *others = x.owner.inputs
    if is_elemwise(x, ps.TrueDiv):
        factor, rest = split_number(first)
        return (factor / _number(others[0]), rest) if is_number(others[0]) else (1.0, x)
    rest = [y for y in x.owner.inputs if not is_number(y)]
    if len(rest) != 1:
        return 1.0, x
    factor, inner = split_number(rest[0])
    return factor * math.prod(_number(y) for y in x.owner.inputs if is_number(y)), inner


def is_number(x: Variable) -> bool:
    """Whether an expression is a single number that depends on constants alone."""
    return all(x.type.broadcastable) and all(isinstance(v, Constant) or v.owner for v in ancestors([x]))


def _number(x: Variable) -> float:
    """Evaluate an expression that is one number."""
    return float(evaluate(x).item())


def _unsqueezed(x: Variable) -> Variable:
    """Take away one squeeze around an expression."""
    is_squeeze = x.owner is not None and isinstance(x.owner.op, DimShuffle) and x.owner.op.is_squeeze
    return x.owner.inputs[0] if is_squeeze else x


def _in_place_of(x: Variable, new: Variable) -> Variable:
    """Put around ``new`` the transpositions, squeezes and added axes that are around x."""
    if x.owner is None or not isinstance(x.owner.op, DimShuffle):
        return new
    return x.owner.op(_in_place_of(x.owner.inputs[0], new))


def match_product(term: Variable) -> tuple[Variable, Variable, str] | None:
    """Match a product ``input @ weights``, whose single column may be squeezed to a vector.

    Returns
    -------
    tuple or None
        Input, weights and layout: "columns" for weights of shape (inputs, units), "rows" for (units, inputs), "vector"
        for (inputs,). None for another expression.
    """
    term = _unsqueezed(term)
    if term.owner is None or not isinstance(term.owner.op, Dot):
        return None
    source, right = term.owner.inputs
    weights = undimshuffle(right)
    if weights.ndim not in (1, 2):
        return None
    if weights is right:
        return source, weights, "columns"
    return source, weights, "vector" if weights.ndim == 1 else "rows"


def match_monomial(x: Variable, r: Variable) -> tuple[Variable, float, Variable | None] | None:
    """Match ``x = c e**p``, where e holds elements of r > 0, reordered or repeated, and c does not depend on r.

    Returns
    -------
    tuple or None
        c, p and e; where x does not depend on r, p is 0 and e is None. None if x has another form.
    """
    if r not in ancestors([x]):
        return x, 0.0, None
    if x is r:
        return pt.constant(1.0), 1.0, r
    op, operands = x.owner.op, x.owner.inputs
    if isinstance(op, (DimShuffle, ViewOp, *SUBTENSORS)):
        monomial = match_monomial(operands[0], r)
        if monomial is None or monomial[0].ndim > 0 or any(r in ancestors([index]) for index in operands[1:]):
            return None
        c, p, e = monomial
        return c, p, None if e is None else op(e, *operands[1:])
    factors = [match_monomial(operand, r) for operand in operands] if isinstance(op, Elemwise) else [None]
    if None in factors:
        return None
    (c, p, e), *others = factors  # type: ignore[attr-defined]
    match op.scalar_op:
        case ps.Cast() | ps.Identity():
            return c, p, e
        case ps.Abs():
            return pt.abs(c), p, e
        case ps.Sign():
            return pt.sign(c), 0.0, None
        case ps.Sqrt():
            return pt.sqrt(c), p / 2, e
        case ps.Sqr():
            return c**2, 2 * p, e
        case ps.Reciprocal():
            return 1 / c, -p, e
        case ps.Pow() if is_number(operands[1]):
            power = _number(operands[1])
            return c**power, p * power, e
        case ps.Mul() | ps.TrueDiv():
            divides = isinstance(op.scalar_op, ps.TrueDiv)
            for other_c, other_p, other_e in others:
                if None not in (e, other_e) and e is not other_e:
                    return None
                e = other_e if e is None else e
                c, p = (c / other_c, p - other_p) if divides else (c * other_c, p + other_p)
            return c, p, e
    return None


def match_slope(x: Variable, r: Variable) -> Variable | None:
    """Match ``x = c r``, element by element, where c does not depend on r; return c, or None if x has another form."""
    if x is r:
        return pt.constant(1.0)
    if not is_elemwise(x, (ps.Mul, ps.TrueDiv, ps.Neg)):
        return None
    holding = [y for y in x.owner.inputs if r in ancestors([y])]
    if len(holding) != 1 or (is_elemwise(x, ps.TrueDiv) and holding[0] is not x.owner.inputs[0]):
        return None
    slope = match_slope(holding[0], r)
    return None if slope is None else x.owner.op(*(slope if y is holding[0] else y for y in x.owner.inputs))


def rebuild(expression: Variable, z: Variable, new: Variable) -> Variable:
    """Write an elementwise expression of z again with another variable, an array of any dimensions or a number.

    Raises
    ------
    NotElementwiseError
        If the expression holds anything but elementwise operations and single numbers; the message names it.
    """
    scalar = isinstance(new.type, ps.ScalarType)
    if expression is z:
        return new
    if isinstance(expression, Constant):
        if expression.data.size != 1:
            raise NotElementwiseError(f"an array of shape {expression.data.shape} in place of a single number")
        number = expression.data.item()
        dtype = "bool" if isinstance(number, bool) else new.dtype
        return (ps if scalar else pt).constant(number, dtype=dtype)
    op = None if expression.owner is None else expression.owner.op
    if isinstance(op, DimShuffle) and not (z in ancestors([expression]) and op.shuffle != tuple(range(z.ndim))):
        return rebuild(expression.owner.inputs[0], z, new)
    if not isinstance(op, Elemwise):
        raise NotElementwiseError(show(expression))
    return (op.scalar_op if scalar else op)(*(rebuild(operand, z, new) for operand in expression.owner.inputs))


def spans_columns(bias: Variable) -> bool:
    """Whether a bias lies along the last axis and is the same for all rows."""
    return bias.ndim == 0 or bias.type.broadcastable[0]


def spans_channels(bias: Variable) -> bool:
    """Whether a bias of images (n, channels, height, width) is the same for all images and all pixels of a channel."""
    return bias.ndim == 4 and all(bias.type.broadcastable[axis] for axis in (0, 2, 3))


def shapes_of(rvs: Sequence[Variable]) -> dict[str, tuple[int, ...]]:
    """Compute the shapes that random variables have with the data that their model holds now, by their names."""
    shapes = pytensor.function([], [rv.shape for rv in rvs], mode="FAST_COMPILE")()
    return {rv.name: tuple(map(int, shape)) for rv, shape in zip(rvs, shapes, strict=True)}


def value_shapes(model: pm.Model, rvs: Sequence[Variable]) -> dict[str, tuple[int, ...]]:
    """Compute the shapes that their value variables have, by the names of these.

    A transform may change the shape: shares that add up to 1 have one number less.
    """
    transforms = [(rv, model.rvs_to_transforms.get(rv)) for rv in rvs]
    values = [rv if transform is None else transform.forward(rv, *rv.owner.inputs) for rv, transform in transforms]
    shapes = pytensor.function([], [value.shape for value in values], mode="FAST_COMPILE")()
    return {model.rvs_to_values[rv].name: tuple(map(int, shape)) for rv, shape in zip(rvs, shapes, strict=True)}


def in_rows(x: Variable) -> Variable:
    """Return data (n, ...) in the shape (n, units) that a latent has inside of a sweep.

    To reshape data by the shape of the latent would say the same, but PyTensor 2 then rewrites some graphs without end.
    """
    return x.dimshuffle(0, "x") if x.ndim == 1 else x.flatten(2)


def evaluate(expression: Variable, values: Mapping[Variable, np.ndarray] | None = None) -> np.ndarray:
    """Evaluate an expression node by node: to compile it would take far longer.

    It may hold constants, shared variables, and other variables whose values are given. The value of a constant or of a
    variable itself is not copied, and must not be changed.
    """
    values = values or {}
    if expression in values:
        return values[expression]
    if isinstance(expression, Constant):
        return np.asarray(expression.data)
    if isinstance(expression, SharedVariable):
        return np.asarray(expression.get_value(borrow=True))
    storage: dict[Variable, list] = {}
    for node in toposort([expression]):
        for x in node.inputs:
            if x in values:
                storage[x] = [values[x]]
            elif x.owner is None:
                storage[x] = [x.data if isinstance(x, Constant) else x.get_value(borrow=True)]
        storage |= {output: [None] for output in node.outputs}
        computed = {x: [True] for x in node.inputs} | {output: [False] for output in node.outputs}
        # node.op.perform alone would compute roots of small integers in half precision, as NumPy does.
        node.op.make_thunk(node, storage, computed, no_recycling=[], impl="py")()
    return np.array(storage[expression][0], order="C")

"""Activations as data: a piecewise-linear function is a table of edges, slopes and intercepts.

Piece ``p`` is the line ``slopes[p] * z + intercepts[p]`` on ``(edges[p], edges[p + 1])``; the first edge is
``-inf`` and the last ``+inf``. Given Gaussian noise before and after such an activation, the conditional distribution
of a pre-activation is a mixture of truncated Gaussians, one for each piece, so that one sampler serves every table
(:mod:`pymc_gibbsnn.random.piecewise_normal`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

__all__ = ["ACTIVATIONS", "NotPiecewiseLinearError", "PiecewiseLinear", "read_piecewise_linear"]


class NotPiecewiseLinearError(ValueError):
    """The error for an expression that is not piecewise linear, or not recognised as such."""


@dataclass(frozen=True, eq=False)
class PiecewiseLinear:
    r"""An activation that is piecewise linear: :math:`\sigma(z) = a_p z + c_p` for :math:`z` in piece :math:`p`.

    Call it on a NumPy array of floats or a PyTensor variable. A breakpoint belongs to the piece on its left.
    Neighbouring pieces of the same line are joined, so that the attributes may be shorter than what was given.

    Parameters
    ----------
    breakpoints : array_like, shape (k - 1,)
        Where one of the k pieces ends and the next begins, strictly increasing and finite. The function may jump there.
    slopes, intercepts : array_like, shape (k,)
        Slope a and intercept c of the line of each piece, from left to right.

    Raises
    ------
    ValueError
        If the shapes do not fit, a number is not finite, or the breakpoints do not increase.

    Examples
    --------
    A leaky ReLU, evaluated on an array:

    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> leaky = pmg.PiecewiseLinear([0.0], slopes=[0.1, 1.0], intercepts=[0.0, 0.0])
    >>> leaky(np.array([-2.0, 3.0]))
    array([-0.2,  3. ])
    """

    breakpoints: ArrayLike
    slopes: ArrayLike
    intercepts: ArrayLike
    edges: np.ndarray = field(init=False, repr=False)

    def __post_init__(self):
        table = {}
        for name in ("breakpoints", "slopes", "intercepts"):
            table[name] = np.atleast_1d(np.asarray(getattr(self, name), dtype="float64"))
            if not np.isfinite(table[name]).all():
                raise ValueError(f"{name} of a piecewise-linear activation must be finite; found {table[name]}.")
        pieces = len(table["slopes"])
        if len(table["intercepts"]) != pieces or len(table["breakpoints"]) != pieces - 1:
            raise ValueError(
                "A piecewise-linear activation of k pieces needs k slopes, k intercepts and k - 1 breakpoints; found "
                f"{pieces}, {len(table['intercepts'])} and {len(table['breakpoints'])}."
            )
        if (np.diff(table["breakpoints"]) <= 0).any():
            raise ValueError(f"breakpoints must increase strictly; found {table['breakpoints']}.")
        # Neighbouring pieces of the same line are made one piece.
        a, c = table["slopes"], table["intercepts"]
        starts = np.r_[True, (np.diff(a) != 0) | (np.diff(c) != 0)]
        object.__setattr__(self, "breakpoints", table["breakpoints"][starts[1:]])
        object.__setattr__(self, "slopes", a[starts])
        object.__setattr__(self, "intercepts", c[starts])
        object.__setattr__(self, "edges", np.r_[-np.inf, self.breakpoints, np.inf])

    def __call__(self, z):
        """Evaluate on a NumPy array or a PyTensor variable; a breakpoint belongs to the piece on its left."""
        if self._is_relu and not isinstance(z, Variable):
            return np.maximum(z, 0)  # in a quarter of the time
        where = pt.switch if isinstance(z, Variable) else np.where
        edges, slopes, intercepts = (x.astype(z.dtype) for x in (self.breakpoints, self.slopes, self.intercepts))
        value = slopes[0] * z + intercepts[0]
        for edge, a, c in zip(edges, slopes[1:], intercepts[1:], strict=True):
            value = where(z > edge, a * z + c, value)
        return value

    @cached_property
    def _is_relu(self) -> bool:
        """Whether this is max(z, 0)."""
        return self == ACTIVATIONS["relu"]

    @property
    def derivative(self) -> PiecewiseLinear:
        """The derivative σ', a step function."""
        return PiecewiseLinear(self.breakpoints, np.zeros_like(self.slopes), self.slopes)

    def __eq__(self, other) -> bool:
        if not isinstance(other, PiecewiseLinear):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ("edges", "slopes", "intercepts")
        )

    def line(self, z: float) -> tuple[float, float]:
        """Return slope and intercept of the piece on which the point z lies."""
        piece = np.searchsorted(self.breakpoints, z)
        return self.slopes[piece], self.intercepts[piece]

    @property
    def is_homogeneous(self) -> bool:
        """Whether σ(cz) = c σ(z) for c > 0: no intercepts, and no breakpoint but 0."""
        return not self.intercepts.any() and not self.breakpoints.any()

    @property
    def is_scale_free(self) -> bool:
        """Whether σ(cz) = σ(z) for c > 0, as for sign: no slopes, and no breakpoint but 0."""
        return not self.slopes.any() and not self.breakpoints.any()


ACTIVATIONS: dict[str, PiecewiseLinear] = {
    "identity": PiecewiseLinear([], [1.0], [0.0]),
    "relu": PiecewiseLinear([0.0], [0.0, 1.0], [0.0, 0.0]),
    "leaky_relu": PiecewiseLinear([0.0], [0.01, 1.0], [0.0, 0.0]),
    "abs": PiecewiseLinear([0.0], [-1.0, 1.0], [0.0, 0.0]),
    "sign": PiecewiseLinear([0.0], [0.0, 0.0], [-1.0, 1.0]),
    "hard_tanh": PiecewiseLinear([-1.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 1.0]),
    "relu6": PiecewiseLinear([0.0, 6.0], [0.0, 1.0, 0.0], [0.0, 0.0, 6.0]),
}
"""The piecewise-linear activations that have names. ``leaky_relu`` has the slope 0.01 below 0."""


# How a table is read from a graph: on a piece where no two operands cross, an elementwise operation is an operation on
# lines (slope, intercept), and a comparison has one outcome, that at the middle of the piece. Each operation below
# takes a point z inside the piece and the lines of its operands there, and returns the line of the result.


def _constant(line: tuple[float, float]) -> float:
    """Return the value of a line that is constant; refuse one that is not."""
    slope, value = line
    if slope != 0:
        raise NotPiecewiseLinearError("a product, quotient or condition of two expressions that both vary")
    return value


def _product(z, *lines):
    """Return the product of lines of which at most one is not constant."""
    product = (0.0, 1.0)
    for line in lines:
        varying, fixed = (product, line) if line[0] == 0 else (line, product)
        product = tuple(_constant(fixed) * number for number in varying)
    return product


def _value(line, z):
    """Evaluate a line at z."""
    return line[0] * z + line[1]


def _compare(compare: Callable) -> Callable:
    """Make the operation on lines of a comparison of numbers, whose result is 0 or 1."""
    return lambda z, x, y: (0.0, float(compare(_value(x, z), _value(y, z))))


def _largest(z, *lines):
    """Return the line that is highest at z."""
    return max(lines, key=lambda line: _value(line, z))


def _smallest(z, *lines):
    """Return the line that is lowest at z."""
    return min(lines, key=lambda line: _value(line, z))


_OPERATIONS: dict[type, Callable] = {
    ps.Identity: lambda z, x: x,
    ps.Cast: lambda z, x: x,
    ps.Neg: lambda z, x: (-x[0], -x[1]),
    ps.Add: lambda z, *lines: tuple(map(sum, zip(*lines, strict=True))),
    ps.Sub: lambda z, x, y: (x[0] - y[0], x[1] - y[1]),
    ps.Mul: _product,
    ps.TrueDiv: lambda z, x, y: (x[0] / _constant(y), x[1] / _constant(y)),
    ps.Abs: lambda z, x: x if _value(x, z) > 0 else (-x[0], -x[1]),
    ps.Sign: lambda z, x: (0.0, float(np.sign(_value(x, z)))),
    ps.Maximum: _largest,
    ps.Minimum: _smallest,
    ps.Clip: lambda z, x, low, high: _smallest(z, high, _largest(z, low, x)),
    ps.Switch: lambda z, condition, x, y: x if _constant(condition) else y,
    ps.GT: _compare(np.greater),
    ps.GE: _compare(np.greater_equal),
    ps.LT: _compare(np.less),
    ps.LE: _compare(np.less_equal),
    ps.AND: lambda z, x, y: (0.0, float(bool(_constant(x)) and bool(_constant(y)))),
    ps.OR: lambda z, x, y: (0.0, float(bool(_constant(x)) or bool(_constant(y)))),
    ps.Invert: lambda z, x: (0.0, float(not _constant(x))),
}


def _combine(operation: Callable, tables: list[PiecewiseLinear]) -> PiecewiseLinear:
    """Apply an operation on lines to tables, piece by piece; pieces end where two tables, or a table and 0, cross."""
    breakpoints = np.unique(np.concatenate([table.breakpoints for table in tables]))
    crossings = []
    for z, low, high in _pieces(breakpoints):
        lines = [table.line(z) for table in tables] + [(0.0, 0.0)]
        for (a, c), (b, d) in combinations(lines, 2):
            if a != b and low < (d - c) / (a - b) < high:
                crossings.append((d - c) / (a - b))
    breakpoints = np.union1d(breakpoints, crossings)
    lines = [operation(z, *(table.line(z) for table in tables)) for z, _, _ in _pieces(breakpoints)]
    slopes, intercepts = np.transpose(lines)
    return PiecewiseLinear(breakpoints, slopes, intercepts)


def _pieces(breakpoints: np.ndarray) -> list[tuple[float, float, float]]:
    """List the pieces between breakpoints, each as (a point inside, lower edge, upper edge)."""
    lows, highs = np.r_[-np.inf, breakpoints], np.r_[breakpoints, np.inf]
    inside = (
        np.r_[0.0]
        if len(breakpoints) == 0
        else (np.r_[breakpoints[0] - 2, breakpoints] + np.r_[breakpoints, breakpoints[-1] + 2]) / 2
    )
    return list(zip(inside, lows, highs, strict=True))


def read_piecewise_linear(expression: TensorVariable, z: TensorVariable) -> PiecewiseLinear:
    """Read the table of a piecewise-linear function from the graph of an elementwise expression of ``z``.

    Sums, products with constants, ``maximum``, ``minimum``, ``abs``, ``sign``, ``clip``, ``switch`` and comparisons
    are understood, however they are nested. Values at single points, such as ``sign(0)``, do not matter, since a
    Gaussian variable takes them with probability 0.

    Raises
    ------
    NotPiecewiseLinearError
        If the expression holds anything else; the message names it.
    """
    if expression is z:
        return ACTIVATIONS["identity"]
    if isinstance(expression, Constant):
        if expression.data.size != 1:
            raise NotPiecewiseLinearError(f"an array of shape {expression.data.shape} in place of a single number")
        return PiecewiseLinear([], [0.0], [float(expression.data.item())])
    op = None if expression.owner is None else expression.owner.op
    if isinstance(op, DimShuffle | ViewOp):
        return read_piecewise_linear(expression.owner.inputs[0], z)
    operation = _OPERATIONS.get(type(op.scalar_op)) if isinstance(op, Elemwise) else None
    if operation is None:
        raise NotPiecewiseLinearError(f"{expression if op is None else op}")
    tables = [read_piecewise_linear(operand, z) for operand in expression.owner.inputs]
    rounds = isinstance(op.scalar_op, ps.Cast) and expression.dtype not in float_dtypes
    if rounds and tables[0].slopes.any():
        raise NotPiecewiseLinearError(f"{op}, which rounds")
    return _combine(operation, tables)

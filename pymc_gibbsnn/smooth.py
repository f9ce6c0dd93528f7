"""Activations without linear pieces: any elementwise expression of one variable.

Such an activation leaves no closed form for its pre-activation. A table of lines close to it does: draws with the table
are proposals, accepted by the Metropolis-Hastings rule with the activation itself
(:mod:`pymc_gibbsnn.random.smooth_normal`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from pymc_gibbsnn.activations import NotPiecewiseLinearError, PiecewiseLinear, read_piecewise_linear

__all__ = ["NotElementwiseError", "Smooth", "read_activation", "read_smooth"]

PIECES, REACH = 16, 12.0  # of the table: beyond ±12 it goes on as a line


class NotElementwiseError(ValueError):
    """An expression that is no elementwise function of one variable."""


@dataclass(frozen=True, eq=False)
class Smooth:
    """An activation given by an elementwise expression.

    Attributes
    ----------
    apply : callable
        From a PyTensor variable of any number of dimensions to the activation of it.
    """

    apply: Callable[[Variable], Variable]

    # Neither can a smooth activation be scaled.
    is_homogeneous = False
    is_scale_free = False

    def __call__(self, z):
        """Evaluate on a NumPy array or a PyTensor variable."""
        if isinstance(z, Variable):
            return self.apply(z)
        return self._function(np.ravel(z).astype("float64")).reshape(np.shape(z)).astype(np.asarray(z).dtype)

    @cached_property
    def _function(self) -> Callable:
        z = pt.dvector("z")
        return pytensor.function([z], self.apply(z), mode="FAST_COMPILE")

    @cached_property
    def derivative(self) -> Smooth:
        """σ'"""

        def apply(z):
            return pt.grad(self.apply(z).sum(), z)

        return Smooth(apply)

    @cached_property
    def table(self) -> PiecewiseLinear:
        """Lines close to the activation, shorter where it bends."""
        z = np.linspace(-REACH, REACH, 4801)
        s = self(z)
        bend = np.sqrt(np.abs(np.gradient(np.gradient(s, z), z)))
        share = np.cumsum(bend + 1e-3 * max(bend.max(), 1e-3))
        edges = np.interp(np.linspace(share[0], share[-1], PIECES + 1), share, z)
        lines = []
        for low, high in pairwise(edges):
            inside = np.linspace(low, high, 32)
            lines.append(np.polyfit(inside, self(inside), 1))
        slopes, intercepts = np.transpose(lines)
        return PiecewiseLinear(edges[1:-1], slopes, intercepts)


def read_activation(expression: Variable, z: Variable) -> PiecewiseLinear | Smooth:
    """Read an activation off the graph of an expression of ``z``: as a table if there is one.

    Raises
    ------
    NotElementwiseError
        As :func:`read_smooth`.
    """
    try:
        return read_piecewise_linear(expression, z)
    except NotPiecewiseLinearError:
        return read_smooth(expression, z)


def read_smooth(expression: Variable, z: Variable) -> Smooth:
    """Read an elementwise expression of ``z`` off its graph.

    Raises
    ------
    NotElementwiseError
        If the expression holds anything but elementwise operations and single numbers, or is not finite on (−12, 12);
        the message names what was found.
    """
    _rebuild(expression, z, pt.dvector("z"))
    found = Smooth(lambda new: _rebuild(expression, z, new))
    grid = np.linspace(-REACH, REACH, 101)
    if not np.isfinite(found(grid)).all():
        bad = grid[~np.isfinite(found(grid))][0]
        raise NotElementwiseError(f"a value at {bad:g} that is not finite")
    return found


def _rebuild(expression: Variable, z: Variable, new: Variable) -> Variable:
    """The expression with another variable, of any number of dimensions, in the place of z."""
    if expression is z:
        return new
    if isinstance(expression, Constant):
        if expression.data.size != 1:
            raise NotElementwiseError(f"an array of shape {expression.data.shape}, where one number is understood")
        number = expression.data.item()
        return pt.constant(number if isinstance(number, bool) else np.asarray(number, new.dtype))
    op = None if expression.owner is None else expression.owner.op
    if isinstance(op, DimShuffle) and not (z in ancestors([expression]) and op.shuffle != tuple(range(z.ndim))):
        return _rebuild(expression.owner.inputs[0], z, new)
    if not isinstance(op, Elemwise):
        raise NotElementwiseError(f"{expression if op is None else op}")
    return op(*(_rebuild(operand, z, new) for operand in expression.owner.inputs))

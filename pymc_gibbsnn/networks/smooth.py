"""Activations without linear pieces: any elementwise expression of one variable.

With such an activation the conditional distribution of a pre-activation has no closed form. With a piecewise-linear
function close to the activation it has: a draw with that function is a proposal, which the Metropolis-Hastings rule
accepts or rejects by the activation itself (:mod:`pymc_gibbsnn.random.smooth_normal`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.backends.one_thread import ONE_THREAD
from pymc_gibbsnn.networks.activations import NotPiecewiseLinearError, PiecewiseLinear, read_piecewise_linear
from pymc_gibbsnn.networks.forms import NotElementwiseError, rebuild

__all__ = ["NotElementwiseError", "Smooth", "read_activation", "read_smooth"]

PIECES = 16  # how many pieces the piecewise-linear function has
REACH = 12.0  # it follows the activation on (−12, 12) and goes on as a line beyond


@dataclass(frozen=True, eq=False)
class Smooth:
    """An activation given by an elementwise expression.

    Attributes
    ----------
    apply : callable
        A function from a PyTensor variable of any number of dimensions to its activation.
    """

    apply: Callable[[Variable], Variable]

    # Scales cannot be moved through a smooth activation, in either of the two ways.
    is_homogeneous = False
    is_scale_free = False

    def __call__(self, z):
        """Evaluate on a NumPy array or a PyTensor variable."""
        if isinstance(z, Variable):
            return self.apply(z)
        with ONE_THREAD:
            values = self._function(np.ravel(z).astype("float64"))
        return values.reshape(np.shape(z)).astype(np.asarray(z).dtype)

    @cached_property
    def _function(self) -> Callable:
        """The activation as a compiled function of a NumPy vector."""
        z = pt.dvector("z")
        return pytensor.function([z], self.apply(z), mode="FAST_COMPILE")

    @cached_property
    def derivative(self) -> Smooth:
        """The derivative σ'."""

        def apply(z):
            return pt.grad(self.apply(z).sum(), z, disconnected_inputs="ignore")  # of constants it is 0

        return Smooth(apply)

    @cached_property
    def table(self) -> PiecewiseLinear:
        """A piecewise-linear function close to the activation, with shorter pieces where the activation bends more."""
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
    """Read an activation from the graph of an expression of ``z``, as a table if it is piecewise linear.

    Raises
    ------
    NotElementwiseError
        If :func:`read_smooth` refuses the expression.
    """
    try:
        return read_piecewise_linear(expression, z)
    except NotPiecewiseLinearError:
        return read_smooth(expression, z)


def read_smooth(expression: Variable, z: Variable) -> Smooth:
    """Read an elementwise expression of ``z`` from its graph.

    Raises
    ------
    NotElementwiseError
        If the expression holds anything but elementwise operations and single numbers, or is not finite on (−12, 12);
        the message names what was found.
    """
    rebuild(expression, z, pt.dvector("z"))
    smooth = Smooth(lambda new: rebuild(expression, z, new))
    grid = np.linspace(-REACH, REACH, 101)
    if not np.isfinite(smooth(grid)).all():
        bad = grid[~np.isfinite(smooth(grid))][0]
        raise NotElementwiseError(f"a value at {bad:g} that is not finite")
    return smooth

r"""The average pool as an operator on activations: the mean over windows, in each channel of an image by itself.

    forward(A) = mean of A over each window

A sample is an image, flattened in the order (channel, row, column). The layer has no weights. Its windows do not
overlap, so that the post-activations below it have a conditional of rank one in each window (Piccioli, Troiani,
Zdeborová, arXiv 2306.02729, appendix G 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.forms import NetworkError
from pymc_gibbsnn.networks.layers.on_images import OnImages
from pymc_gibbsnn.networks.layers.operator import Array, Linear
from pymc_gibbsnn.networks.layers.pooling import Pooling, pool
from pymc_gibbsnn.networks.layers.windows import Windows

__all__ = ["AveragePool"]


@dataclass(frozen=True, eq=False, kw_only=True)
class AveragePool(OnImages):
    """The average pool.

    Parameters
    ----------
    windows : Windows
        The shape of the images, and the windows, which must not overlap.
    """

    windows: Windows

    name = "average_pool2d"
    takes_means = True

    @classmethod
    def match(cls, term: Variable) -> Linear | None:
        """Recognise a pool, which no number multiplies."""
        op = getattr(term.owner, "op", None)
        is_pool = isinstance(op, Pooling) and not op.adjoint
        return Linear(cls, term.owner.inputs[0], how=op.windows) if is_pool else None

    @classmethod
    def read(cls, term: Linear, name: str) -> AveragePool:
        """Make the layer of a pool; refuse windows that overlap."""
        windows = term.how
        if windows.overlap:
            raise NetworkError(
                f"The windows of the average pool in the mean of '{name}' overlap: their size is {windows.size} and "
                f"their stride {windows.stride}. GibbsNN knows strides that are at least the size."
            )
        return cls(windows=windows)

    @property
    def units(self) -> int:
        """The number c of channels."""
        return self.windows.channels

    # The map

    def forward(self, a: Array, w: Array | None = None) -> Array:
        """Compute the means over windows (..., n, outputs), of A (..., n, inputs)."""
        if isinstance(a, Variable):
            return Pooling(self.windows)(self._images(a)).reshape((-1, self.shape[0]))
        return pool(self.windows, a.reshape(*a.shape[:-1], *self.windows.image)).reshape(*a.shape[:-1], -1)

    def adjoint(self, r: Variable) -> Variable:
        """Compute R V (n, inputs) of outputs R (n, outputs), where V is the matrix of the pool."""
        return Pooling(self.windows, adjoint=True)(self._outputs(r)).reshape((-1, self.windows.pixels))

    # The conditional of the activations below

    def correction(self, r: Variable, w: Variable, noise_below: Variable, noise_above: Variable) -> Variable:
        """Compute ΔA R V / (ΔZ + ΔA/P), of P pixels a window. Pixels outside of all windows are not moved."""
        shrunk = r * (noise_below / (noise_above + noise_below / np.asarray(math.prod(self.windows.size), r.dtype)))
        return self.adjoint(shrunk)

    # Windows by themselves: given what lies below, those that fill the images do not depend on each other

    @property
    def tiles(self) -> bool:
        """Whether the windows fill the images without gaps and edges."""
        w = self.windows
        return w.stride == w.size and w.pixels == w.channels * w.places * math.prod(w.size) and not any(w.padding)

    def by_window(self, x: Variable) -> Variable:
        """Arrange inputs (n, inputs) by windows that tile the images, (n · outputs, pixels of a window)."""
        (down, across), (rows, columns) = self.windows.grid, self.windows.size
        x = x.reshape((-1, self.windows.channels, down, rows, across, columns))
        return x.transpose(0, 1, 2, 4, 3, 5).reshape((-1, rows * columns))

    def from_windows(self, x: Variable) -> Variable:
        """Put the pixels of windows that tile the images back in their places, (n, inputs)."""
        (down, across), (rows, columns) = self.windows.grid, self.windows.size
        x = x.reshape((-1, self.windows.channels, down, across, rows, columns))
        return x.transpose(0, 1, 2, 4, 3, 5).reshape((-1, self.windows.pixels))

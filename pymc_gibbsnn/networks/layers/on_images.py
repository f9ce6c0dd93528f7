"""What convolutions and pools share: images as rows of a matrix, seen through windows, with channels as their units."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.layers.operator import Array, Operator
from pymc_gibbsnn.networks.layers.windows import Windows

__all__ = ["OnImages"]


class OnImages(Operator):
    """A layer that takes and gives images, each flattened in the order (channel, row, column).

    A subclass has the attributes ``windows``, which knows the images that the layer takes, and ``units``, the number c
    of channels of its output.
    """

    windows: Windows
    units: ClassVar[Any]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of outputs and of inputs of an image."""
        return self.units * self.places, self.windows.pixels

    @property
    def row_shapes(self) -> list[tuple[int, ...]]:
        """The shape of the output of one image in the model."""
        return [(self.units, *self.windows.grid)]

    @property
    def input_shapes(self) -> list[tuple[int, ...]]:
        """The shapes that one sample of the input may have."""
        return self.windows.written

    def rows(self, z: Array) -> Array:
        """Make an output of shape (n, c, height, width) a matrix with a row for each image."""
        return z.reshape((-1, self.shape[0])) if z.ndim == 4 else z

    def written(self, z: Array, ndim: int) -> Array:
        """Give the matrix of an output as many dimensions as it has in the model."""
        return self._outputs(z) if ndim == 4 else z

    def _outputs(self, z: Array) -> Array:
        """Return a matrix of outputs as images (n, c, down, across)."""
        return z.reshape((-1, *self.row_shapes[0]))

    def _images(self, a: Array) -> Array:
        """Return a matrix of inputs as images (n, channels, height, width)."""
        return a.reshape((-1, *self.windows.image))

    # The scales of units, which are channels here

    @property
    def places(self) -> int:
        """How many numbers of an image of the output belong to each channel."""
        return self.windows.places

    def by_unit(self, x: Variable) -> Variable:
        """Sum an array like the output over all that belongs to each channel, (c,)."""
        return x.sum(axis=0).reshape((self.units, self.places)).sum(axis=1)

    def spread(self, c: Variable) -> Variable:
        """Repeat the scales of channels (c,) for each of their places, (outputs,)."""
        return (c[:, None] * np.ones((1, self.places), c.dtype)).reshape((-1,))

    def knows_units_of(self, below: Operator) -> bool:
        """Whether the units of the layer below are the channels here, and not single pixels or other images."""
        return below.row_shapes[0] == self.windows.image

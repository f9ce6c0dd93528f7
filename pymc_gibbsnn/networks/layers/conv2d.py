r"""The convolution of images as an operator on activations.

    forward(A, W̃) = conv(A, W) + b,     W̃ = [W, b] (c, d)

A sample is an image, flattened in the order (channel, row, column); c is the number of channels of the output, and d
that of the weights of a filter, and 1 for its bias. For the regression of an output on an input, every window of every
image counts as a sample (Piccioli, Troiani, Zdeborová, arXiv 2306.02729, appendix G).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.forms import spans_channels, split_number
from pymc_gibbsnn.networks.given import real
from pymc_gibbsnn.networks.layers.banded import BandedSolve
from pymc_gibbsnn.networks.layers.convolution import Convolution, WindowGram, convolve
from pymc_gibbsnn.networks.layers.on_images import OnImages
from pymc_gibbsnn.networks.layers.operator import Array, Linear
from pymc_gibbsnn.networks.layers.weighted import Weighted, library, precisions, times
from pymc_gibbsnn.networks.layers.windows import Windows

__all__ = ["Conv2D"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Conv2D(OnImages, Weighted):
    """The convolution A ↦ conv(A, W) + b, with filters W (c, channels, height, width), which are its weights.

    The bias may have axes of length 1 beside that of the channels.

    Parameters
    ----------
    weights, bias, precision, factor, bias_factor
        As of :class:`~pymc_gibbsnn.networks.layers.weighted.Weighted`.
    units : int
        The number c of channels of the output.
    windows : Windows
        The shape of the images, and the windows through which the filters see them.
    """

    units: int
    windows: Windows

    has_filters = True

    # How the user wrote the layer

    @classmethod
    def match(cls, term: Variable) -> Linear | None:
        """Recognise a convolution times a number."""
        factor, inner = split_number(term)
        op = getattr(inner.owner, "op", None)
        if not (isinstance(op, Convolution) and op.gives == "outputs"):
            return None
        filters, images = inner.owner.inputs
        within, filters = split_number(filters)
        return Linear(cls, images, filters, factor * within, op.windows)

    @classmethod
    def read(
        cls, term: Linear, name: str, *, shape: tuple[int, ...], sigma: Variable, bias_sigma: Variable | None, **values
    ) -> Conv2D:
        """Make the layer of a convolution."""
        units, *filter_ = shape
        sigma, numbers = pt.shape_padleft(sigma, 4 - sigma.ndim), math.prod(filter_)
        columns = 1 if all(sigma.type.broadcastable[1:]) else numbers
        if columns > 1:
            sigma = sigma * np.ones((1, *filter_), sigma.dtype)
        rows = 1 if sigma.type.broadcastable[0] else units
        precision = real(precisions(sigma.reshape((rows, columns)), units, numbers, bias_sigma))
        return cls(units=units, windows=term.how, precision=precision, **values)

    is_along_units = staticmethod(spans_channels)

    @staticmethod
    def bias_shapes(how: Windows, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """A bias has a number for each channel of the output, or is the number of a single one."""
        units, *_ = shape
        return [(units,), (units, 1, 1), (1, units, 1, 1)] + [()] * (units == 1)

    @property
    def filters_shape(self) -> tuple[int, int, int, int]:
        """The shape of the filters in the model."""
        return self.units, self.windows.channels, *self.windows.size

    def matrix(self, values: Mapping[Variable, Array]) -> Array:
        """Make W̃ (..., c, d) of filters and bias in the model's shapes, which may follow axes of draws."""
        w = values[self.weights]
        axes = w.ndim - 4
        w = times(w.reshape((*w.shape[:axes], self.units, self.windows.numbers)), self.factor)
        if not self.has_bias:
            return w
        b = times(values[self.bias], self.bias_factor)
        b = b.reshape((*b.shape[: b.ndim - self.bias.ndim], self.units, 1))
        return library(w).concatenate([w, b], axis=-1)

    def values(self, w: Variable) -> dict[Variable, Variable]:
        """Take W̃ (c, d) apart into filters and bias, in the shapes that the user gave them."""
        values = {self.weights: times(self._filters(w), 1 / self.factor)}
        if self.has_bias:
            ndim = self.bias.ndim
            shape = {0: (), 1: (self.units,), 3: (self.units, 1, 1), 4: (1, self.units, 1, 1)}[ndim]
            values[self.bias] = times(w[:, -1], 1 / self.bias_factor).reshape(shape)
        return values

    def _filters(self, w: Variable) -> Variable:
        """Return the filters (c, channels, height, width) in W̃, times their factor."""
        return self.linear(w).reshape(self.filters_shape)

    # The map

    def forward(self, a: Array, w: Array) -> Array:
        """Compute the convolution with bias (..., n, outputs), of A (..., n, inputs) and W̃ (..., c, d)."""
        if isinstance(a, Variable) or isinstance(w, Variable):
            z = Convolution(self.windows)(self._filters(w), self._images(a))
            z = z + w[None, :, -1, None, None] if self.has_bias else z
            return z.reshape((-1, self.shape[0]))
        draws = np.broadcast_shapes(a.shape[:-2], w.shape[:-2])
        a = np.broadcast_to(a, (*draws, *a.shape[-2:]))
        w = np.broadcast_to(w, (*draws, *w.shape[-2:]))
        z = np.empty((*draws, a.shape[-2], self.shape[0]), np.result_type(a, w))
        for draw in np.ndindex(draws):
            filters = self.linear(w[draw]).reshape(self.filters_shape)
            z[draw] = convolve(self.windows, a[draw].reshape(-1, *self.windows.image), filters).reshape(z[draw].shape)
        return z + np.repeat(w[..., None, :, -1], self.places, axis=-1) if self.has_bias else z

    def intercept(self, w: Variable) -> Variable | float:
        """Return the bias of each output (outputs,) in W̃; 0 for a layer without one."""
        return self.spread(w[:, -1]) if self.has_bias else 0.0

    # The regression for the filters

    @property
    def augmented_shape(self) -> tuple[int, int]:
        """The shape (c, d) of W̃."""
        return self.units, self.windows.numbers + self.has_bias

    def design(self, a: Variable, n: Variable) -> Variable:
        """Make the matrix Ã (n · places, d) of what all windows of all images cover, with a column of ones for a bias.

        It is as many times larger than the images as a pixel lies in windows.
        """
        where = self.windows.of(np.arange(1.0, self.windows.pixels + 1).reshape(1, *self.windows.image))
        where = where.transpose(0, 2, 3, 1, 4, 5).ravel().astype(int)  # 0 in the margin, else the number of a pixel + 1
        padded = pt.concatenate([pt.zeros((n, 1), a.dtype), a], axis=1)
        seen = padded[:, where].reshape((-1, self.windows.numbers))
        if not self.has_bias:
            return seen
        return pt.concatenate([seen, pt.ones((n * self.places, 1), a.dtype)], axis=1)

    def moments(self, a: Variable, z: Variable) -> Variable:
        """Compute Ãᵀ Z (d, c), without forming Ã."""
        moments = Convolution(self.windows, "filters")(self._outputs(z), self._images(a))
        moments = moments.reshape((self.units, self.windows.numbers)).T
        return pt.concatenate([moments, self.by_unit(z)[None]]) if self.has_bias else moments

    def gram(self, a: Variable, n: Variable) -> Variable:
        """Compute Ãᵀ Ã (d, d) of an input A of n images, without forming Ã."""
        gram = WindowGram(self.windows)(self._images(a))
        if not self.has_bias:
            return gram
        ones = pt.ones((1, 1, *self.windows.grid), a.dtype)
        total = a.sum(axis=0)[None]
        sums = Convolution(self.windows, "filters")(ones, self._images(total)).reshape((self.windows.numbers,))
        last = pt.concatenate([sums, pt.cast(n * self.places, a.dtype)[None]])
        return pt.concatenate([pt.concatenate([gram, sums[None]]), last[:, None]], axis=1)

    # With a pool on it

    def pooled(self, a: Variable, pool: Windows) -> tuple[Conv2D, Variable]:
        """Make one convolution of this one and a pool on its output: of images whose pixels are averaged beforehand.

        Parameters
        ----------
        a : Variable, (n, inputs)
            An input A.
        pool : Windows
            The windows of the pool.

        Returns
        -------
        conv : Conv2D
            A convolution with the same weights, and the places of the pool.
        a : Variable, (n, inputs of that)
            The images that it takes.
        """
        (channels, *image), own = self.windows.image, self.windows
        margins = [2 * margin for margin in own.padding]
        images = self._images(a)
        if any(margins):
            (top, left), (height, width) = own.padding, image
            blank = pt.zeros((a.shape[0], channels, height + margins[0], width + margins[1]), a.dtype)
            images = blank[:, :, top : top + height, left : left + width].set(images)
        reach = [step * (length - 1) for step, length in zip(own.stride, pool.size, strict=True)]
        height, width = (length + m - r for length, m, r in zip(image, margins, reach, strict=True))
        shifts = [(own.stride[0] * r, own.stride[1] * s) for r, s in np.ndindex(pool.size)]
        total = sum(images[:, :, y : y + height, x : x + width] for y, x in shifts)
        stride = own.stride[0] * pool.stride[0], own.stride[1] * pool.stride[1]
        windows = Windows(channels, height, width, own.size, stride)
        return replace(self, windows=windows), (total / np.asarray(len(shifts), a.dtype)).reshape((-1, windows.pixels))

    # The conditional of the activations below

    def correction(self, r: Variable, w: Variable, noise_below: Variable, noise_above: Variable) -> Variable:
        """Compute R V (VᵀV + ΔZ/ΔA I)⁻¹, in which all images share one banded matrix."""
        filters = self._filters(w)
        images = Convolution(self.windows, "images")(self._outputs(r), filters)
        return BandedSolve(self.windows)(images, filters, noise_above / noise_below).reshape((-1, self.windows.pixels))

    # The scales of units, which are channels here

    @property
    def fan_out(self) -> float:
        """The number of weights that go out of each input pixel, where a weight counts in equal parts for a channel."""
        return self.units * math.prod(self.windows.size) / (self.windows.height * self.windows.width)

    def outgoing(self, w: Variable) -> Variable:
        """Compute Σ Λ W² (inputs,) over the weights that go out of each channel of the input, in equal parts."""
        squares = self.linear(self.precision * w**2).sum(axis=0)
        pixels = self.windows.height * self.windows.width
        by_channel = squares.reshape((self.windows.channels, -1)).sum(axis=1) / np.asarray(pixels, w.dtype)
        return (by_channel[:, None] * np.ones((1, pixels), w.dtype)).reshape((-1,))

    def relieved(self, w: Variable, c: Variable) -> Variable:
        """Return W̃ with the weights that go out of each channel of the input divided by its scale; the bias stays.

        The scales (inputs,) are the same for all pixels of a channel.
        """
        by_channel = c.reshape((self.windows.channels, -1))[:, :1]
        numbers = math.prod(self.windows.size)
        scales = (by_channel * np.ones((1, numbers), w.dtype)).reshape((-1,))
        return pt.concatenate([w[:, :-1] / scales, w[:, -1:]], axis=1) if self.has_bias else w / scales

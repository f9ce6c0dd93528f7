"""Windows on images: which pixels each place of the output of a convolution or a pool sees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Windows"]


@dataclass(frozen=True)
class Windows:
    """Equal windows that slide over images of one shape.

    An image has the shape (channels, height, width). It may be surrounded by a margin of zeros, the padding. The window
    at the place (y, x) of the output covers, in all channels, the ``size`` pixels from (y, x) times the stride on,
    counted in the image with its margin.

    Attributes
    ----------
    channels, height, width : int
        The shape of an image, without the margin.
    size, stride, padding : tuple of int
        Height and width of a window; steps from one window to the next; and widths of the margin, above and below, and
        on the left and right.
    """

    channels: int
    height: int
    width: int
    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)

    @property
    def image(self) -> tuple[int, int, int]:
        """The shape (channels, height, width) of an image."""
        return self.channels, self.height, self.width

    @property
    def written(self) -> list[tuple[int, ...]]:
        """The shapes in which a user may write an image; that of one channel needs no axis of channels."""
        return [self.image, (self.pixels,)] + [self.image[1:]] * (self.channels == 1)

    @property
    def pixels(self) -> int:
        """How many numbers an image has, all channels together."""
        return self.channels * self.height * self.width

    @property
    def grid(self) -> tuple[int, int]:
        """How many places there are, down and across."""
        down = (self.height + 2 * self.padding[0] - self.size[0]) // self.stride[0] + 1
        across = (self.width + 2 * self.padding[1] - self.size[1]) // self.stride[1] + 1
        return down, across

    @property
    def places(self) -> int:
        """How many places there are."""
        return self.grid[0] * self.grid[1]

    @property
    def numbers(self) -> int:
        """How many numbers a window covers, all channels together."""
        return self.channels * self.size[0] * self.size[1]

    @property
    def overlap(self) -> bool:
        """Whether neighbouring windows share pixels."""
        return self.stride[0] < self.size[0] or self.stride[1] < self.size[1]

    def of(self, images: np.ndarray) -> np.ndarray:
        """Look at NumPy's images (n, channels, height, width) through the windows.

        Returns
        -------
        array, (n, channels, down, across, *size)
        """
        margins = (0, 0), (0, 0), *((margin, margin) for margin in self.padding)
        padded = np.pad(images, margins) if any(self.padding) else images
        every = np.lib.stride_tricks.sliding_window_view(padded, self.size, axis=(2, 3))
        return every[:, :, :: self.stride[0], :: self.stride[1]]

    def put_back(self, seen: np.ndarray) -> np.ndarray:
        """Add up what windows see in each pixel, the adjoint of :meth:`of`.

        Parameters
        ----------
        seen : array, (n, channels, down, across, *size)

        Returns
        -------
        array, (n, channels, height, width)
        """
        (down, across), (step_y, step_x), (margin_y, margin_x) = self.grid, self.stride, self.padding
        padded = np.zeros((len(seen), self.channels, self.height + 2 * margin_y, self.width + 2 * margin_x), seen.dtype)
        for y, x in np.ndindex(self.size):
            rows, columns = slice(y, y + step_y * down, step_y), slice(x, x + step_x * across, step_x)
            padded[:, :, rows, columns][:, :, :down, :across] += seen[..., y, x]
        return padded[:, :, margin_y : margin_y + self.height, margin_x : margin_x + self.width]

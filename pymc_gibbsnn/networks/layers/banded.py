r"""Images whose precision is a convolution and its transpose: (VᵀV + ρ I)⁻¹ B, for all images with one factor.

V is the matrix of a convolution, from the pixels of an image to the outputs. Two pixels that no window covers together
have no entry in VᵀV. With pixels in the order (row, column, channel) the matrix is banded: its half-width is about
channels · width · (filter height − 1). So a Cholesky factor costs pixels · half-width² operations once, and each image
4 · pixels · half-width, where a dense factor would take pixels³/3 and 2 · pixels². JAX takes the dense one, which on a
GPU is a few large products; it needs memory for pixels² numbers.
"""

from __future__ import annotations

import math

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit
from scipy.linalg import cho_solve_banded, cholesky_banded

from pymc_gibbsnn._compat import shape_inference
from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.threads import share
from pymc_gibbsnn.networks.layers.convolution import convolve, jax_convolution
from pymc_gibbsnn.networks.layers.windows import Windows

__all__ = ["BandedSolve"]

TOGETHER = 32  # images that are solved for at once, next to each other in memory


class BandedSolve(Op):
    """The solution X of (VᵀV + ρ I) X = B, for images B (n, channels, height, width).

    Parameters
    ----------
    windows : Windows
        The shape of the images, and the windows of the convolution V.

    Notes
    -----
    The inputs of a node are images B; filters (units, channels, *size), which make V; and ρ > 0, a number.
    """

    __props__ = ("windows",)

    def __init__(self, windows: Windows):
        self.windows = windows

    def make_node(self, *inputs):
        """Make the node of these inputs, which the class lists."""
        images, filters, ratio = (pt.as_tensor(x) for x in inputs)
        return Apply(self, [images, filters, ratio], [images.type()])

    @shape_inference
    def infer_shape(self, shapes):
        """Return the shape of the images."""
        return [shapes[0]]

    @property
    def half_width(self) -> int:
        """How far from its diagonal the matrix has entries."""
        w = self.windows
        reach = (w.size[0] - 1) * w.width + w.size[1] - 1
        return min((reach + 1) * w.channels, w.pixels) - 1

    def perform(self, node, inputs, outputs):
        """Compute the solution with SciPy."""
        images, filters, ratio = inputs
        n, channels, height, width = images.shape
        eye = np.eye(self.windows.pixels).reshape(height, width, channels, -1).transpose(3, 2, 0, 1)
        v = convolve(self.windows, eye, filters).reshape(self.windows.pixels, -1)
        matrix = v @ v.T + ratio * np.eye(len(v))
        band = np.zeros((self.half_width + 1, len(matrix)))
        for k in range(len(band)):
            band[k, : len(matrix) - k] = np.diagonal(matrix, -k)
        right = images.transpose(2, 3, 1, 0).reshape(-1, n)
        solution = cho_solve_banded((cholesky_banded(band, lower=True), True), right)
        solution = solution.reshape(height, width, channels, n).transpose(3, 2, 0, 1)
        outputs[0][0] = np.ascontiguousarray(solution, dtype=images.dtype)


def _numba(op, node):
    """Make the function of the inputs of :class:`BandedSolve` for Numba."""
    windows, half = op.windows, op.half_width
    (channels, height, width), (down, across), (rows, columns) = windows.image, windows.grid, windows.size
    (step_y, step_x), (margin_y, margin_x), pixels = windows.stride, windows.padding, windows.pixels

    @numba_njit
    def pixel(y, x, k):
        # The number of the pixel that entry k of the filter meets in the window at (y, x); −1 in the margin.
        c, rest = k // (rows * columns), k % (rows * columns)
        i = y * step_y + rest // columns - margin_y
        j = x * step_x + rest % columns - margin_x
        return (i * width + j) * channels + c if 0 <= i < height and 0 <= j < width else -1

    @numba_njit
    def factorise(filters, ratio):
        # Row i of the band holds columns i − half, ..., i of the lower triangle.
        products = np.dot(filters.T, filters)
        d, band = len(products), np.zeros((pixels, half + 1))
        for y in range(down):
            for x in range(across):
                for k in range(d):
                    i = pixel(y, x, k)
                    if i >= 0:
                        for l in range(d):
                            j = pixel(y, x, l)
                            if 0 <= j <= i:
                                band[i, j - i + half] += products[k, l]
        for i in range(pixels):
            band[i, half] += ratio
            for j in range(max(0, i - half), i + 1):
                first = max(0, i - half)  # which is right of where row j starts
                total = band[i, j - i + half]
                for k in range(first, j):
                    total -= band[i, k - i + half] * band[j, k - j + half]
                band[i, j - i + half] = math.sqrt(total) if j == i else total / band[j, half]
        return band

    @numba_njit
    def solve_part(b, images, band, solution):
        start = b * TOGETHER
        count = min(TOGETHER, len(images) - start)
        x = np.zeros((pixels, TOGETHER))
        for i in range(count):
            for c in range(channels):
                for p in range(height * width):
                    x[p * channels + c, i] = images[start + i, c, p // width, p % width]
        for i in range(pixels):
            to = x[i]
            for k in range(max(0, i - half), i):
                factor, by = band[i, k - i + half], x[k]
                for m in range(TOGETHER):
                    to[m] -= factor * by[m]
            to /= band[i, half]
        for i in range(pixels - 1, -1, -1):
            by = x[i]
            by /= band[i, half]
            for k in range(max(0, i - half), i):
                factor, to = band[i, k - i + half], x[k]
                for m in range(TOGETHER):
                    to[m] -= factor * by[m]
        for i in range(count):
            for c in range(channels):
                for p in range(height * width):
                    solution[start + i, c, p // width, p % width] = x[p * channels + c, i]

    @numba_njit
    def solve(images, filters, ratio):
        flat = np.ascontiguousarray(filters).reshape((len(filters), -1)).astype(np.float64)
        band, solution = factorise(flat, ratio.item()), np.empty_like(images)
        share(solve_part, (len(images) + TOGETHER - 1) // TOGETHER, (images, band, solution))
        return solution

    return solve


def _jax(op, node):
    """Make the function of the inputs of :class:`BandedSolve` for JAX, with a dense factor."""
    import jax.numpy as jnp
    from jax.scipy.linalg import cho_factor, cho_solve

    windows, dtype = op.windows, node.outputs[0].dtype
    forward = jax_convolution(windows)

    def solve(images, filters, ratio):
        images, filters, ratio = (jnp.asarray(x, dtype) for x in (images, filters, ratio))
        eye = jnp.eye(windows.pixels, dtype=dtype)
        v = forward(eye.reshape(-1, *windows.image), filters).reshape(windows.pixels, -1)
        factor = cho_factor(v @ v.T + ratio * eye, lower=True)
        return cho_solve(factor, images.reshape(len(images), -1).T).T.reshape(images.shape)

    return solve


declare(BandedSolve, numba=_numba, jax=_jax)

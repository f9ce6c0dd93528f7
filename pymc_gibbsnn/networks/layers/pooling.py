r"""The mean over the windows of an image, in each channel by itself, as an operation of PyTensor with its adjoint.

    P[i, c, y, x] = mean over the pixels of window (y, x) of A[i, c, ·, ·]

The adjoint gives each pixel the sum of the outputs whose windows cover it, divided by the number of pixels of a window.
"""

from __future__ import annotations

import math

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn._compat import DifferentiableOp, shape_inference
from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.threads import share
from pymc_gibbsnn.networks.layers.convolution import count_parts
from pymc_gibbsnn.networks.layers.windows import Windows

__all__ = ["Pooling", "pool"]


def pool(windows: Windows, images: np.ndarray) -> np.ndarray:
    """Average over the windows of images (..., channels, height, width), in NumPy."""
    flat = images.reshape(-1, *windows.image)
    return windows.of(flat).mean(axis=(-1, -2)).reshape(*images.shape[:-3], windows.channels, *windows.grid)


class Pooling(DifferentiableOp):
    """The mean over windows, or its adjoint.

    Parameters
    ----------
    windows : Windows
        The shape of the images, and the windows.
    adjoint : bool
        Whether to compute the adjoint, from (n, channels, down, across) to images (n, channels, height, width).
    """

    __props__ = ("windows", "adjoint")

    def __init__(self, windows: Windows, adjoint: bool = False):
        self.windows = windows
        self.adjoint = adjoint

    @property
    def gufunc_signature(self) -> str:
        """How axes of the input and of the output belong together, for PyTensor's batches."""
        return "(n,c,p,q)->(n,c,h,w)" if self.adjoint else "(n,c,h,w)->(n,c,p,q)"

    def _shape(self, rows) -> tuple:
        """Return the shape of the output for so many images."""
        return (rows, *(self.windows.image if self.adjoint else (self.windows.channels, *self.windows.grid)))

    def make_node(self, x):
        """Make the node of images or, for the adjoint, of outputs."""
        x = pt.as_tensor(x)
        x = x if x.dtype.startswith("float") else pt.cast(x, "float64")
        return Apply(self, [x], [pt.TensorType(x.dtype, self._shape(x.type.shape[0]))()])

    @shape_inference
    def infer_shape(self, shapes):
        """Return the shape of the output."""
        return [self._shape(shapes[0][0])]

    def perform(self, node, inputs, outputs):
        """Compute the output with NumPy."""
        [x], windows = inputs, self.windows
        expected = (windows.channels, *windows.grid) if self.adjoint else windows.image
        if x.shape[1:] != expected:
            raise ValueError(f"An average pool takes images of shape {('n', *expected)}; found {x.shape}.")
        if self.adjoint:
            shares = np.broadcast_to((x / math.prod(windows.size))[..., None, None], (*x.shape, *windows.size))
            result = windows.put_back(shares)
        else:
            result = pool(windows, x)
        outputs[0][0] = np.ascontiguousarray(result, dtype=x.dtype)

    def pullback(self, inputs, outputs, gradients):
        """Return the gradient."""
        return [Pooling(self.windows, not self.adjoint)(gradients[0])]


def _numba(op, node):
    """Make the function of the input of :class:`Pooling` for Numba."""
    windows = op.windows
    (channels, height, width), (down, across), (rows, columns) = windows.image, windows.grid, windows.size
    (step_y, step_x), (margin_y, margin_x), size = windows.stride, windows.padding, math.prod(windows.size)

    @numba_njit
    def forward_part(b, parts, images, out):
        n = len(images)
        for i in range(b * n // parts, (b + 1) * n // parts):
            for c in range(channels):
                for y in range(down):
                    for x in range(across):
                        total = 0.0
                        for r in range(rows):
                            h = y * step_y + r - margin_y
                            for s in range(columns):
                                w = x * step_x + s - margin_x
                                if 0 <= h < height and 0 <= w < width:
                                    total += images[i, c, h, w]
                        out[i, c, y, x] = total / size

    @numba_njit
    def forward(images):
        if images.shape[1:] != (channels, height, width):
            raise ValueError("An average pool was given images of another shape than its model was written for.")
        out = np.empty((len(images), channels, down, across), images.dtype)
        parts = count_parts(len(images))
        share(forward_part, parts, (parts, images, out))
        return out

    @numba_njit
    def back_part(b, parts, outputs, images):
        n = len(outputs)
        for i in range(b * n // parts, (b + 1) * n // parts):
            images[i] = 0
            for c in range(channels):
                for y in range(down):
                    for x in range(across):
                        part = outputs[i, c, y, x] / size
                        for r in range(rows):
                            h = y * step_y + r - margin_y
                            for s in range(columns):
                                w = x * step_x + s - margin_x
                                if 0 <= h < height and 0 <= w < width:
                                    images[i, c, h, w] += part

    @numba_njit
    def back(outputs):
        images, parts = np.empty((len(outputs), channels, height, width), outputs.dtype), count_parts(len(outputs))
        share(back_part, parts, (parts, outputs, images))
        return images

    return back if op.adjoint else forward


def _jax(op, node):
    """Make the function of the input of :class:`Pooling` for JAX."""
    import jax
    import jax.numpy as jnp

    windows, dtype = op.windows, node.outputs[0].dtype
    margins = [(0, 0), (0, 0), *((margin, margin) for margin in windows.padding)]

    def forward(images):
        sums = jax.lax.reduce_window(
            images, np.zeros((), dtype)[()], jax.lax.add, (1, 1, *windows.size), (1, 1, *windows.stride), margins
        )
        return sums / math.prod(windows.size)

    def back(outputs):
        images = jax.ShapeDtypeStruct((len(outputs), *windows.image), dtype)
        return jax.linear_transpose(forward, images)(outputs)[0]

    function = back if op.adjoint else forward
    return lambda x: function(jnp.asarray(x, dtype))


declare(Pooling, numba=_numba, jax=_jax)

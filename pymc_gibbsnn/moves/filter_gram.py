r"""The curvature that the filters of a convolution have through an activation and the layer above, as an operation.

For image i let Ã_i (places, d) be what the windows see, with a column of ones for a bias. With the slopes a_ij of the
activation at the places of filter j, and a matrix B_j from these places to the outputs of the layer above, the
operation computes

    G = Σ_i F_iᵀ F_i (units d, units d),     F_i = [B_1 diag(a_i1) Ã_i, ..., B_units diag(a_iunits) Ã_i].

For c outputs it costs c · units · d · (places + units · d) products an image. Of many images only every k-th is taken,
and G multiplied accordingly, so that there are at most about ``PRODUCTS`` of them.
"""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn._compat import shape_inference
from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.threads import share
from pymc_gibbsnn.backends.vector_math import copy, copy_matrix
from pymc_gibbsnn.networks.layers.convolution import AT_ONCE, add_products, count_parts, window_kernels
from pymc_gibbsnn.networks.layers.windows import Windows

__all__ = ["FilterGram"]

PRODUCTS = 2e7  # about a hundredth of a second of one core
ROWS = 40  # but at least so many rows of F for each of its columns


class FilterGram(Op):
    """The matrix G of this module.

    Parameters
    ----------
    windows : Windows
        The shape of the images, and the windows of the convolution.
    has_bias : bool
        Whether the filters have biases.

    Notes
    -----
    The inputs of a node are images (n, channels, height, width); slopes (n, units, places); and B (c, units, places).
    """

    __props__ = ("windows", "has_bias")

    def __init__(self, windows: Windows, has_bias: bool):
        self.windows = windows
        self.has_bias = has_bias

    def make_node(self, *inputs):
        """Make the node of these inputs, which the class lists."""
        images, slopes, b = (pt.as_tensor(x) for x in inputs)
        return Apply(self, [images, slopes, b], [pt.TensorType(images.dtype, (None, None))()])

    @shape_inference
    def infer_shape(self, shapes):
        """Return the shape of the output, from those of the inputs."""
        numbers = shapes[2][1] * (self.windows.numbers + self.has_bias)
        return [(numbers, numbers)]

    def perform(self, node, inputs, outputs):
        """Compute the output with NumPy."""
        images, slopes, b = inputs
        d = self.windows.numbers + self.has_bias
        columns, step = b.shape[1] * d, _step(len(images), *b.shape, d)
        taken, slopes = images[::step], slopes[::step]
        gram = np.zeros((columns, columns))
        for start in range(0, len(taken), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            f = np.einsum("cjp,njp,npk->ncjk", b, slopes[part], self._design(taken[part]), optimize=True)
            f = f.reshape(-1, columns)
            gram += f.T @ f
        outputs[0][0] = (gram * (len(images) / len(taken))).astype(node.outputs[0].dtype)

    def _design(self, images):
        """Make Ã (n, places, d) of images."""
        seen = self.windows.of(images).transpose(0, 1, 4, 5, 2, 3)
        seen = seen.reshape(len(images), self.windows.numbers, -1).swapaxes(1, 2)
        return np.concatenate([seen, np.ones((*seen.shape[:2], 1), seen.dtype)], axis=2) if self.has_bias else seen


def _step(n, c, units, places, d):
    """Return by how many images to go on from one that is taken to the next.

    Parameters
    ----------
    n : int
        The number of images.
    c : int
        The number of outputs of the layer above.
    units, d : int
        The number of filters, and of weights of each.
    places : int
        The number of places of a filter.
    """
    columns = units * d
    most = max(PRODUCTS / (c * columns * (places + columns)), ROWS * columns / c)
    return max(1, int(n / most))


def _numba(op, node):
    """Make the function of the inputs of :class:`FilterGram` for Numba."""
    windows, has_bias = op.windows, op.has_bias
    see, _ = window_kernels(windows)
    d, places, step_of = windows.numbers + has_bias, windows.places, numba_njit(_step)

    @numba_njit
    def part(number, parts, step, images, slopes, b, sums):
        n, (c, units, _) = (len(images) + step - 1) // step, b.shape
        seen, active = np.ones((places, d), images.dtype), np.empty((places, d), images.dtype)
        pulled, f = np.empty((c, places), images.dtype), np.empty((c, units * d), images.dtype)
        sums[number] = 0
        for i in range(number * n // parts, (number + 1) * n // parts):
            see(images[i * step], seen)
            f[:] = 0
            for j in range(units):
                m = 0
                for p in range(places):
                    slope = slopes[i * step, j, p]
                    if slope != 0:  # as ReLU has at half of them
                        copy(seen[p], active[m])
                        for k in range(c):
                            pulled[k, m] = b[k, j, p] * slope
                        m += 1
                add_products(pulled[:, :m], active[:m], f[:, j * d : (j + 1) * d])
            for j in range(units):  # the lower half, in blocks
                rows = slice(j * d, (j + 1) * d)
                add_products(f[:, rows].T, f[:, : (j + 1) * d], sums[number, rows, : (j + 1) * d])

    @numba_njit
    def gram(images, slopes, b):
        images, slopes, b = np.ascontiguousarray(images), np.ascontiguousarray(slopes), np.ascontiguousarray(b)
        n, (c, units, _) = len(images), b.shape
        step = step_of(n, c, units, places, d)
        taken = (n + step - 1) // step
        parts = count_parts(taken)
        sums = np.empty((parts, units * d, units * d), images.dtype)
        share(part, parts, (parts, step, images, slopes, b, sums))
        total = sums.sum(0) * images.dtype.type(n / taken)
        for j in range(1, units):
            rows = slice(j * d, (j + 1) * d)
            copy_matrix(total[rows, : j * d].T, total[:, rows])
        return total

    return gram


def _jax(op, node):
    """Make the function of the inputs of :class:`FilterGram` for JAX."""
    import jax
    import jax.numpy as jnp

    windows, dtype = op.windows, node.outputs[0].dtype
    margins = [(margin, margin) for margin in windows.padding]

    def gram(images, slopes, b):
        images, slopes, b = (jnp.asarray(x, dtype) for x in (images, slopes, b))
        n, (c, units, places) = len(images), b.shape
        step = _step(n, c, units, places, windows.numbers + op.has_bias)
        images, slopes = images[::step], slopes[::step]
        precision = jax.lax.Precision.HIGHEST
        seen = jax.lax.conv_general_dilated_patches(images, windows.size, windows.stride, margins, precision=precision)
        seen = seen.reshape(len(images), windows.numbers, -1)
        if op.has_bias:
            seen = jnp.concatenate([seen, jnp.ones((len(images), 1, places), dtype)], axis=1)
        f = jnp.einsum("cjp,njp,nkp->ncjk", b, slopes, seen, precision=precision)
        f = f.reshape(len(images) * c, -1)
        return jnp.matmul(f.T, f, precision=precision) * (n / len(images))

    return gram


declare(FilterGram, numba=_numba, jax=_jax)

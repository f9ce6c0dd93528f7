r"""The curvature that the filters of a convolution have through an activation and the layer above, as an operation.

For image i let Ã_i (places, d) be what the windows see, with a column of ones for a bias. Where a pool follows the
convolution, rows of Ã_i are means over its windows. With the slopes a_ij of the activation at the places of filter j,
and a matrix B_j from these places to the outputs of the layer above, the operation computes

    G = Σ_i F_iᵀ F_i (units d, units d),     F_i = [B_1 diag(a_i1) Ã_i, ..., B_units diag(a_iunits) Ã_i].

For c outputs it costs c · units · d · (places + units · d) products an image. Of many images only every k-th is taken,
and G multiplied accordingly, so that there are at most about ``PRODUCTS`` of them.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn._compat import shape_inference
from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.threads import share
from pymc_gibbsnn.networks.layers.convolution import AT_ONCE, add_products, count_parts, window_kernels
from pymc_gibbsnn.networks.layers.pooling import pool
from pymc_gibbsnn.networks.layers.windows import Windows

__all__ = ["FilterGram"]

PRODUCTS = 2e8  # about a tenth of a second of one core
ROWS = 20  # but at least so many rows of F for each of its columns


class FilterGram(Op):
    """The matrix G of this module.

    Parameters
    ----------
    windows : Windows
        The shape of the images, and the windows of the convolution.
    pool : Windows, optional
        The windows of the pool between the convolution and the activation.
    has_bias : bool
        Whether the filters have biases.

    Notes
    -----
    The inputs of a node are images (n, channels, height, width); slopes (n, units, places); and B (c, units, places).
    """

    __props__ = ("windows", "pool", "has_bias")

    def __init__(self, windows: Windows, pool: Windows | None, has_bias: bool):
        self.windows = windows
        self.pool = pool
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
        found = np.zeros((columns, columns))
        for start in range(0, len(taken), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            f = np.einsum("cjp,njp,npk->ncjk", b, slopes[part], self._design(taken[part]), optimize=True)
            f = f.reshape(-1, columns)
            found += f.T @ f
        outputs[0][0] = (found * (len(images) / len(taken))).astype(node.outputs[0].dtype)

    def _design(self, images):
        """Make Ã (n, places, d) of images."""
        seen = self.windows.of(images).transpose(0, 1, 4, 5, 2, 3)
        seen = seen.reshape(len(images), self.windows.numbers, *self.windows.grid)
        if self.pool is not None:
            seen = pool(replace(self.pool, channels=self.windows.numbers), seen)
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
    numbers, fine, across_fine = windows.numbers, windows.places, windows.grid[1]
    d, step_of = numbers + has_bias, numba_njit(_step)
    has_pool = op.pool is not None
    pooling = op.pool or windows  # any windows, where there is no pool
    (_, across), places = pooling.grid, pooling.places if has_pool else fine
    (rows, columns), (step_y, step_x), size = pooling.size, pooling.stride, math.prod(pooling.size)

    @numba_njit
    def average(seen, pooled):
        pooled[:] = 0
        for p in range(places):
            for r in range(rows):
                for s in range(columns):
                    window = seen[(p // across * step_y + r) * across_fine + p % across * step_x + s]
                    for k in range(d):
                        pooled[p, k] += window[k] / size

    @numba_njit
    def part(number, parts, step, images, slopes, b, sums):
        n, (c, units, _) = (len(images) + step - 1) // step, b.shape
        seen, pooled = np.ones((fine, d), images.dtype), np.empty((places, d), images.dtype)
        pulled, f = np.empty((c, places), images.dtype), np.empty((c, units * d), images.dtype)
        sums[number] = 0
        for i in range(number * n // parts, (number + 1) * n // parts):
            see(images[i * step], seen)
            if has_pool:
                average(seen, pooled)
            f[:] = 0
            for j in range(units):
                for k in range(c):
                    for p in range(places):
                        pulled[k, p] = b[k, j, p] * slopes[i * step, j, p]
                add_products(pulled, pooled if has_pool else seen, f[:, j * d : (j + 1) * d])
            add_products(f.T, f, sums[number])

    @numba_njit
    def gram(images, slopes, b):
        images, slopes, b = np.ascontiguousarray(images), np.ascontiguousarray(slopes), np.ascontiguousarray(b)
        n, (c, units, _) = len(images), b.shape
        step = step_of(n, c, units, places, d)
        taken = (n + step - 1) // step
        parts = count_parts(taken)
        sums = np.empty((parts, units * d, units * d), images.dtype)
        share(part, parts, (parts, step, images, slopes, b, sums))
        return sums.sum(0) * images.dtype.type(n / taken)

    return gram


def _jax(op, node):
    """Make the function of the inputs of :class:`FilterGram` for JAX."""
    import jax
    import jax.numpy as jnp

    windows, pooling, dtype = op.windows, op.pool, node.outputs[0].dtype
    margins = [(margin, margin) for margin in windows.padding]

    def gram(images, slopes, b):
        images, slopes, b = (jnp.asarray(x, dtype) for x in (images, slopes, b))
        n, (c, units, places) = len(images), b.shape
        step = _step(n, c, units, places, windows.numbers + op.has_bias)
        images, slopes = images[::step], slopes[::step]
        precision = jax.lax.Precision.HIGHEST
        seen = jax.lax.conv_general_dilated_patches(images, windows.size, windows.stride, margins, precision=precision)
        if pooling is not None:
            zero = np.zeros((), dtype)[()]
            seen = jax.lax.reduce_window(
                seen, zero, jax.lax.add, (1, 1, *pooling.size), (1, 1, *pooling.stride), "VALID"
            ) / math.prod(pooling.size)
        seen = seen.reshape(len(images), windows.numbers, -1)
        if op.has_bias:
            seen = jnp.concatenate([seen, jnp.ones((len(images), 1, places), dtype)], axis=1)
        f = jnp.einsum("cjp,njp,nkp->ncjk", b, slopes, seen, precision=precision)
        f = f.reshape(len(images) * c, -1)
        return jnp.matmul(f.T, f, precision=precision) * (n / len(images))

    return gram


declare(FilterGram, numba=_numba, jax=_jax)

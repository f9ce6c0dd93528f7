r"""Convolution of images with filters as an operation of PyTensor, with its two gradients.

    Z[i, α, y, x] = Σ_{β, r, s} W[α, β, r, s] A[i, β, y·stride + r, x·stride + s]

for image i, output channel α, input channel β and the place (r, s) in a filter (Piccioli, Troiani, Zdeborová, arXiv
2306.02729, eq. G19). As everywhere in machine learning, the filters are not turned around. The number Σ Z C, for any
array C of the shape of Z, is linear in each of the images A, the filters W and C. So its derivative in C is the
convolution, and those in W and in A are the other two operations that samplers need:

    Σ_{i, y, x} C[i, α, y, x] A[i, β, y·stride + r, x·stride + s], the moments of a regression for W, and
    Σ C[i, α, y, x] W[α, β, r, s] over what sees the pixel (y·stride + r, x·stride + s), which adds up to images again.

No window is copied for more than one image at a time, so that memory grows with the images alone.
"""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn._compat import DifferentiableOp, shape_inference
from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.threads import share
from pymc_gibbsnn.backends.vector_math import summing
from pymc_gibbsnn.networks.layers.windows import Windows

__all__ = ["Convolution", "WindowGram", "add_products", "convolve", "count_parts", "jax_convolution", "window_kernels"]

AT_ONCE = 256  # images that NumPy takes at once
PARTS, FEWEST = 64, 16  # into how many parts Numba divides images for its threads, and the fewest images of a part
THREE = ("outputs", "filters", "images")


def convolve(windows: Windows, images: np.ndarray, filters: np.ndarray) -> np.ndarray:
    """Convolve images (n, channels, height, width) with filters (units, channels, *size), in NumPy."""
    down, across = windows.grid
    outputs = np.empty((len(images), len(filters), down, across), np.result_type(images, filters))
    for start in range(0, len(images), AT_ONCE):
        seen = windows.of(images[start : start + AT_ONCE])
        product = np.tensordot(seen, filters, ([1, 4, 5], [1, 2, 3]))
        outputs[start : start + AT_ONCE] = np.moveaxis(product, -1, 1)
    return outputs


class Convolution(DifferentiableOp):
    """One of the three derivatives of Σ Z C, from two of outputs, filters and images to the third.

    Parameters
    ----------
    windows : Windows
        The shape of the images, and the windows through which filters see them.
    gives : {"outputs", "filters", "images"}
        What is computed. The inputs of a node are the other two, in this order.

    Notes
    -----
    Outputs have the shape (n, units, down, across), filters (units, channels, *size), images (n, channels, height,
    width).
    """

    __props__ = ("windows", "gives")

    def __init__(self, windows: Windows, gives: str = "outputs"):
        self.windows = windows
        self.gives = gives

    @property
    def takes(self) -> tuple[str, str]:
        """The names of the inputs."""
        return tuple(name for name in THREE if name != self.gives)

    @property
    def gufunc_signature(self) -> str:
        """How axes of inputs and of the output belong together, for PyTensor's batches."""
        axes = {"outputs": "(n,u,p,q)", "filters": "(u,c,r,s)", "images": "(n,c,h,w)"}
        return f"{','.join(axes[name] for name in self.takes)}->{axes[self.gives]}"

    def _shape(self, shapes: dict[str, tuple]) -> tuple:
        """Return the shape of what is computed, from those of the inputs."""
        w = self.windows
        units = shapes["outputs"][1] if "outputs" in shapes else shapes["filters"][0]
        rows = None if self.gives == "filters" else next(shapes[name][0] for name in shapes if name != "filters")
        known = {
            "outputs": (rows, units, *w.grid),
            "filters": (units, w.channels, *w.size),
            "images": (rows, *w.image),
        }
        return known[self.gives]

    def make_node(self, *inputs):
        """Make the node of these inputs, which the class lists."""
        inputs = [pt.as_tensor(x) for x in inputs]
        dtype = np.result_type(*(x.dtype for x in inputs)).name
        dtype = dtype if dtype.startswith("float") else "float64"
        inputs = [pt.cast(x, dtype) for x in inputs]
        shapes = dict(zip(self.takes, (x.type.shape for x in inputs), strict=True))
        return Apply(self, inputs, [pt.TensorType(dtype, self._shape(shapes))()])

    @shape_inference
    def infer_shape(self, shapes):
        """Return the shape of the output, from those of the inputs."""
        return [self._shape(dict(zip(self.takes, shapes, strict=True)))]

    def perform(self, node, inputs, outputs):
        """Compute the output with NumPy."""
        given = dict(zip(self.takes, inputs, strict=True))
        w = self.windows
        if "images" in given and given["images"].shape[1:] != w.image:
            raise ValueError(f"A convolution takes images of shape {('n', *w.image)}; found {given['images'].shape}.")
        if self.gives == "outputs":
            result = convolve(w, given["images"], given["filters"])
        elif self.gives == "filters":
            result = np.zeros(self._shape({name: x.shape for name, x in given.items()}), node.outputs[0].dtype)
            for start in range(0, len(given["images"]), AT_ONCE):
                part = slice(start, start + AT_ONCE)
                seen = w.of(given["images"][part])
                result += np.tensordot(given["outputs"][part], seen, ([0, 2, 3], [0, 2, 3]))
        else:
            result = w.put_back(np.einsum("nuyx,ucrs->ncyxrs", given["outputs"], given["filters"], optimize=True))
        outputs[0][0] = np.ascontiguousarray(result, dtype=node.outputs[0].dtype)

    def pullback(self, inputs, outputs, gradients):
        """Return the gradients: the number Σ Z C is linear in each of its three parts."""
        known = dict(zip(self.takes, inputs, strict=True)) | {self.gives: gradients[0]}
        return [
            Convolution(self.windows, name)(*(known[other] for other in THREE if other != name)) for name in self.takes
        ]


class WindowGram(Op):
    """The sum over images and places of x xᵀ, for the numbers x that a window covers: images to (numbers, numbers).

    Parameters
    ----------
    windows : Windows
        The shape of the images, and the windows.
    """

    __props__ = ("windows",)

    def __init__(self, windows: Windows):
        self.windows = windows

    def make_node(self, images):
        """Make the node of images (n, channels, height, width)."""
        images = pt.as_tensor(images)
        d = self.windows.numbers
        return Apply(self, [images], [pt.TensorType(images.dtype, (d, d))()])

    @shape_inference
    def infer_shape(self, shapes):
        """Return the shape of the output."""
        return [(self.windows.numbers, self.windows.numbers)]

    def perform(self, node, inputs, outputs):
        """Compute the output with NumPy."""
        [images] = inputs
        d = self.windows.numbers
        gram = np.zeros((d, d))
        for start in range(0, len(images), AT_ONCE):
            seen = self.windows.of(images[start : start + AT_ONCE])
            x = seen.transpose(0, 2, 3, 1, 4, 5).reshape(-1, d)
            gram += x.T @ x
        outputs[0][0] = gram.astype(images.dtype)


# Numba: what the windows of one image see lies in a small array, which stays in the nearest cache


@numba_njit
def count_parts(n):
    """Return into how many parts n images are divided."""
    return max(1, min(PARTS, n // FEWEST))


def window_kernels(windows: Windows):
    """Make the two functions that copy an image to what its windows see, and add that up again in the image.

    Returns
    -------
    see, put_back : compiled functions
        Of an image (channels, height, width) and an array (places, numbers).
    """
    channels, height, width = windows.image
    (down, across), (rows, columns) = windows.grid, windows.size
    (step_y, step_x), (margin_y, margin_x) = windows.stride, windows.padding
    has_margin = any(windows.padding)

    @numba_njit
    def see(image, seen):
        for y in range(down):
            for x in range(across):
                k, window = 0, seen[y * across + x]
                for c in range(channels):
                    for r in range(rows):
                        i = y * step_y + r - margin_y
                        for s in range(columns):
                            j = x * step_x + s - margin_x
                            inside = not has_margin or (0 <= i < height and 0 <= j < width)
                            window[k] = image[c, i, j] if inside else 0
                            k += 1

    @numba_njit
    def put_back(seen, image):
        image[:] = 0
        for y in range(down):
            for x in range(across):
                k, window = 0, seen[y * across + x]
                for c in range(channels):
                    for r in range(rows):
                        i = y * step_y + r - margin_y
                        for s in range(columns):
                            j = x * step_x + s - margin_x
                            if not has_margin or (0 <= i < height and 0 <= j < width):
                                image[c, i, j] += window[k]
                            k += 1

    return see, put_back


@summing
def _times_filters(seen, filters, out):
    """Compute seen (places, d) times filters (units, d), to out (units, places)."""
    for u in range(len(filters)):
        for p in range(len(seen)):
            window, w = seen[p], filters[u]
            total = out.dtype.type(0)
            for k in range(len(w)):
                total += window[k] * w[k]
            out[u, p] = total


@summing
def add_products(outputs, seen, sums):
    """Add outputs (units, places) times seen (places, d) to sums (units, d), four places at a time."""
    fours = len(seen) - len(seen) % 4
    for u in range(len(sums)):
        total = sums[u]
        for p in range(0, fours, 4):
            f0, f1, f2, f3 = outputs[u, p], outputs[u, p + 1], outputs[u, p + 2], outputs[u, p + 3]
            s0, s1, s2, s3 = seen[p], seen[p + 1], seen[p + 2], seen[p + 3]
            for k in range(len(total)):
                total[k] += f0 * s0[k] + f1 * s1[k] + f2 * s2[k] + f3 * s3[k]
        for p in range(fours, len(seen)):
            factor, window = outputs[u, p], seen[p]
            for k in range(len(total)):
                total[k] += factor * window[k]


def _numba(op, node):
    """Make the function of the inputs of :class:`Convolution` for Numba."""
    windows = op.windows
    see, put_back = window_kernels(windows)
    (channels, height, width), places, d = windows.image, windows.places, windows.numbers
    (down, across), (rows, columns) = windows.grid, windows.size

    @numba_njit
    def forward_part(b, parts, images, filters, out):
        n, seen = len(images), np.empty((places, d), images.dtype)
        for i in range(b * n // parts, (b + 1) * n // parts):
            see(images[i], seen)
            _times_filters(seen, filters, out[i])

    @numba_njit
    def forward(filters, images):
        filters, images = np.ascontiguousarray(filters), np.ascontiguousarray(images)
        if images.shape[1:] != (channels, height, width):
            raise ValueError("A convolution was given images of another shape than its model was written for.")
        n, units, parts = len(images), len(filters), count_parts(len(images))
        out = np.empty((n, units, places), images.dtype)
        share(forward_part, parts, (parts, images, filters.reshape((units, d)), out))
        return out.reshape((n, units, down, across))

    @numba_njit
    def moments_part(b, parts, outputs, images, sums):
        n, seen = len(images), np.empty((places, d), images.dtype)
        sums[b] = 0
        for i in range(b * n // parts, (b + 1) * n // parts):
            see(images[i], seen)
            add_products(outputs[i], seen, sums[b])

    @numba_njit
    def moments(outputs, images):
        outputs, images = np.ascontiguousarray(outputs), np.ascontiguousarray(images)
        n, units, parts = len(images), outputs.shape[1], count_parts(len(images))
        sums = np.empty((parts, units, d), images.dtype)
        share(moments_part, parts, (parts, outputs.reshape((n, units, places)), images, sums))
        return sums.sum(0).reshape((units, channels, rows, columns))

    @numba_njit
    def back_part(b, parts, outputs, filters, images):
        n, seen = len(outputs), np.empty((places, d), outputs.dtype)
        for i in range(b * n // parts, (b + 1) * n // parts):
            seen[:] = 0
            add_products(outputs[i].T, filters, seen)
            put_back(seen, images[i])

    @numba_njit
    def back(outputs, filters):
        outputs, filters = np.ascontiguousarray(outputs), np.ascontiguousarray(filters)
        n, units, parts = len(outputs), len(filters), count_parts(len(outputs))
        images = np.empty((n, channels, height, width), outputs.dtype)
        share(back_part, parts, (parts, outputs.reshape((n, units, places)), filters.reshape((units, d)), images))
        return images

    return {"outputs": forward, "filters": moments, "images": back}[op.gives]


def _numba_gram(op, node):
    """Make the function of images of :class:`WindowGram` for Numba."""
    see, _ = window_kernels(op.windows)
    places, d = op.windows.places, op.windows.numbers

    @numba_njit
    def part(b, parts, images, sums):
        n, seen = len(images), np.empty((places, d), images.dtype)
        sums[b] = 0
        for i in range(b * n // parts, (b + 1) * n // parts):
            see(images[i], seen)
            add_products(seen.T, seen, sums[b])

    @numba_njit
    def gram(images):
        images = np.ascontiguousarray(images)
        parts = count_parts(len(images))
        sums = np.empty((parts, d, d), images.dtype)
        share(part, parts, (parts, images, sums))
        return sums.sum(0)

    return gram


# JAX


def jax_convolution(windows: Windows):
    """Make JAX's convolution, of images and filters."""
    import jax

    margins = [(margin, margin) for margin in windows.padding]

    def forward(images, filters):
        precision = jax.lax.Precision.HIGHEST
        return jax.lax.conv_general_dilated(images, filters, windows.stride, margins, precision=precision)

    return forward


def _jax(op, node):
    """Make the function of the inputs of :class:`Convolution` for JAX."""
    import jax
    import jax.numpy as jnp

    windows, dtype = op.windows, node.outputs[0].dtype
    forward = jax_convolution(windows)

    def outputs(filters, images):
        filters, images = (jnp.asarray(x, dtype) for x in (filters, images))
        return forward(images, filters)

    def moments(outputs, images):
        outputs, images = (jnp.asarray(x, dtype) for x in (outputs, images))
        filters = jax.ShapeDtypeStruct((outputs.shape[1], windows.channels, *windows.size), dtype)
        return jax.linear_transpose(lambda w: forward(images, w), filters)(outputs)[0]

    def back(outputs, filters):
        outputs, filters = (jnp.asarray(x, dtype) for x in (outputs, filters))
        images = jax.ShapeDtypeStruct((len(outputs), *windows.image), dtype)
        return jax.linear_transpose(lambda a: forward(a, filters), images)(outputs)[0]

    return {"outputs": outputs, "filters": moments, "images": back}[op.gives]


def _jax_gram(op, node):
    """Make the function of images of :class:`WindowGram` for JAX."""
    import jax
    import jax.numpy as jnp

    windows = op.windows
    margins = [(margin, margin) for margin in windows.padding]

    def gram(images):
        seen = jax.lax.conv_general_dilated_patches(
            jnp.asarray(images), windows.size, windows.stride, margins, precision=jax.lax.Precision.HIGHEST
        )
        return jnp.einsum("nkyx,nlyx->kl", seen, seen)

    return gram


declare(Convolution, numba=_numba, jax=_jax)
declare(WindowGram, numba=_numba_gram, jax=_jax_gram)

"""Convolutions and average pools of images, as expressions for the mean of a variable of a PyMC model."""

from __future__ import annotations

import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable
from pytensor.graph.utils import MissingInputError
from pytensor.tensor.variable import TensorVariable

from pymc_gibbsnn._arguments import describe, pair
from pymc_gibbsnn.networks.layers.convolution import Convolution
from pymc_gibbsnn.networks.layers.pooling import Pooling
from pymc_gibbsnn.networks.layers.windows import Windows

__all__ = ["average_pool2d", "conv2d"]


def conv2d(
    images: ArrayLike | Variable,
    filters: ArrayLike | Variable,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
) -> TensorVariable:
    r"""Convolve images with filters: an expression for the mean of a variable of a PyMC model.

    .. math:: Z_{i \alpha y x} = \sum_{\beta r s} W_{\alpha \beta r s} A_{i, \beta, y s_y + r, x s_x + s}

    for image i, output channel α, input channel β and the pixel (r, s) of a filter [1]_ (eq. G19). The filters are not
    turned around, as is usual in machine learning. A bias of each channel is added to the result, as
    ``conv2d(A, W) + b[:, None, None]``. :class:`GibbsNN` reads it as a layer; it has a gradient, for other samplers,
    and compiles for Numba, C and JAX.

    Parameters
    ----------
    images : tensor_like, shape (n, channels, height, width)
        Images A: data or noisy activations.
    filters : tensor_like, shape (units, channels, filter height, filter width)
        Filters W, a variable with a Normal prior.
    stride : int or pair of int
        By how many pixels a filter moves from one place of the output to the next, down and across.
    padding : int or pair of int
        The width of a margin of zeros around each image, above and below, and on the left and right.

    Returns
    -------
    TensorVariable, shape (n, units, down, across)
        The convolution; down = ⌊(height + 2 padding − filter height)/stride⌋ + 1, and across likewise.

    Raises
    ------
    TypeError
        If stride or padding are no numbers.
    ValueError
        If they are no whole numbers or negative, or the stride is 0; if images or filters have another number of axes
        or no known shape, their channels differ, a filter is larger than an image with its margin, padding is not less
        than the filter, or a stride leads out of the image.

    References
    ----------
    .. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729,
       appendix G.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> with pm.Model():
    ...     W = pm.Normal("W", 0, 1, shape=(2, 1, 4, 4))
    ...     Z = pm.Normal("Z", pmg.conv2d(np.zeros((5, 1, 28, 28)), W, stride=2), 0.1)
    >>> Z.type.shape
    (5, 2, 13, 13)
    """
    images, image = _images(images)
    filters = pt.as_tensor(filters)
    if filters.ndim != 4:
        raise ValueError(f"filters must have shape (units, channels, height, width); found {_found(filters)}.")
    _, channels, *size = _lengths("filters", filters, 0)
    if channels != image[0]:
        raise ValueError(f"filters must have the {image[0]} channels of the images; found {channels}.")
    windows = _windows("filters", image, tuple(size), pair("stride", stride), pair("padding", padding, least=0))
    return Convolution(windows)(filters, images)


def average_pool2d(
    images: ArrayLike | Variable, size: int | tuple[int, int], stride: int | tuple[int, int] | None = None
) -> TensorVariable:
    r"""Average over windows of images: an expression for the mean of a variable of a PyMC model.

    .. math:: P_{i c y x} = \frac{1}{|w|} \sum_{(r, s) \in w} A_{i, c, y s_y + r, x s_x + s}

    for image i, channel c and a window w at each place of the output [1]_ (eq. G29). Pixels on the right and below that
    fill no window are left out.

    Parameters
    ----------
    images : tensor_like, shape (n, channels, height, width)
        Images A: data or noisy activations.
    size : int or pair of int
        Height and width of a window.
    stride : int or pair of int, optional
        By how many pixels a window moves from one place of the output to the next; by default its size. For
        :class:`GibbsNN` windows must not overlap.

    Returns
    -------
    TensorVariable, shape (n, channels, down, across)
        The averages; down = ⌊(height − size)/stride⌋ + 1, and across likewise.

    Raises
    ------
    TypeError
        If size or stride are no numbers.
    ValueError
        If they are no positive whole numbers, images have another number of axes or no known shape, a window is larger
        than an image, or a stride leads out of the image.

    References
    ----------
    .. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729,
       appendix G.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> pmg.average_pool2d(np.arange(16.0).reshape(1, 1, 4, 4), 2).eval()
    array([[[[ 2.5,  4.5],
             [10.5, 12.5]]]])
    """
    images, image = _images(images)
    size = pair("size", size)
    windows = _windows("windows", image, size, size if stride is None else pair("stride", stride), (0, 0))
    return Pooling(windows)(images)


def _images(images: ArrayLike | Variable) -> tuple[Variable, tuple[int, int, int]]:
    """Return images as a variable, and the shape of one image."""
    images = pt.as_tensor(images)
    if images.ndim != 4:
        hint = ": reshape them" if images.ndim == 2 else ": add an axis of one channel" if images.ndim == 3 else ""
        raise ValueError(f"images must have shape (n, channels, height, width); found {_found(images)}{hint}.")
    return images, _lengths("images", images, 1)


def _found(x: Variable) -> str:
    """Say in words what has the wrong number of axes."""
    return f"{x.ndim} axes in {describe(x.data)}" if hasattr(x, "data") else f"{x.ndim} axes in {describe(x)}"


def _lengths(name: str, x: Variable, first: int) -> tuple[int, ...]:
    """Return the lengths of the axes of an array from the given one on, which must be known."""
    lengths = x.type.shape[first:]
    if None in lengths:
        try:
            lengths = pytensor.function([], x.shape[first:], mode="FAST_COMPILE")()
        except MissingInputError:
            raise ValueError(
                f"{name} must have a known shape; found {describe(x)} of shape {x.type.shape}: give it one."
            ) from None
    return tuple(map(int, lengths))


def _windows(
    name: str, image: tuple[int, int, int], size: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
) -> Windows:
    """Make the windows on images, if they make sense.

    Parameters
    ----------
    name : str
        What the windows are called.
    image : tuple of int
        The shape (channels, height, width) of an image.
    size, stride, padding : tuple of int
        As in :class:`~pymc_gibbsnn.networks.layers.windows.Windows`.
    """
    whole = tuple(length + 2 * margin for length, margin in zip(image[1:], padding, strict=True))
    if any(a > b for a, b in zip(size, whole, strict=True)):
        raise ValueError(f"{name} must fit into the images, which are {whole} with their margins; found {size}.")
    if any(a >= b for a, b in zip(padding, size, strict=True)):
        raise ValueError(f"padding must be less than the size {size} of {name}; found {padding}.")
    if any(a > b for a, b in zip(stride, whole, strict=True)):
        raise ValueError(f"stride must not lead out of the images, which are {whole}; found {stride}.")
    return Windows(*image, size, stride, padding)

"""Noisy convolutional networks as plain PyMC models in one call."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import boolean, describe, each, pair, widths
from pymc_gibbsnn._data import finite, warn_of_size
from pymc_gibbsnn.models.images import average_pool2d, conv2d
from pymc_gibbsnn.models.noisy_layers import (
    data_arguments,
    dense_layers,
    deviations_of,
    latent_deviations,
    likelihood_of,
    read_targets,
    scales,
)
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.named_activations import named_activation

__all__ = ["cnn"]


def cnn(
    X: ArrayLike,
    y: ArrayLike,
    filters: int | Sequence[int],
    *,
    size: int | tuple[int, int] | list = 3,
    stride: int | tuple[int, int] | list = 1,
    padding: int | tuple[int, int] | list = 0,
    pool: int | tuple[int, int] | list | None = None,
    hidden: int | Sequence[int] = (),
    activation: str | PiecewiseLinear | Callable = "relu",
    noise: float | str | Sequence[float | str] = "learned",
    prior: float | str | Sequence[float | str] | None = "learned",
    likelihood: str | None = None,
    bias: bool = True,
    trials: int | ArrayLike | None = None,
    exposure: float | ArrayLike | None = None,
    lower: float | ArrayLike | None = None,
    upper: float | ArrayLike | None = None,
) -> pm.Model:
    r"""Write the model of a convolutional network with Gaussian noise after every operation.

    A convolutional layer l is

    .. math::

        Z_{l+1} \sim \mathrm{Normal}(\mathrm{conv}(A_l, W_l) + b_l, s), \quad
        P_{l+1} \sim \mathrm{Normal}(\mathrm{pool}(Z_{l+1}), s), \quad
        A_{l+1} \sim \mathrm{Normal}(\sigma(P_{l+1}), s),

    where the second argument of Normal is a standard deviation, W_l and b_l have the prior Normal(0, λ_l^{-1/2}), and a
    layer without a pool has Z in place of P. The images of the last one are flattened, and dense layers follow, as in
    :func:`mlp`. This is the network of [1]_ (appendix G and figure 5), for which ``filters=2, size=4, stride=2, pool=2,
    likelihood="probit", noise=10, prior=None`` stand. The model is plain PyMC: other orders of layers are written by
    hand, with :func:`conv2d` and :func:`average_pool2d`.

    Parameters
    ----------
    X : array_like, shape (n, height, width) or (n, channels, height, width)
        Images, finite; standardise them for the priors to make sense. They become the data variable "X".
    y : array_like, shape (n,) or (n, k)
        What is observed, as for :func:`mlp`; it becomes the data variable "y_data".
    filters : int or sequence of int
        How many filters each convolutional layer has.
    size, stride, padding : int, pair of int, or list of one for each convolutional layer
        Height and width of the filters, by how many pixels they move from one place to the next, and how many zeros
        surround the images. A tuple of two integers is for height and width, a list for the layers.
    pool : int, pair of int, or list of one for each convolutional layer, optional
        Height and width of the average pool of a layer; None for no pool.
    hidden : int or sequence of int
        Widths of the dense hidden layers above.
    activation : str, PiecewiseLinear or callable
        As for :func:`mlp`.
    noise : "learned", float, or a sequence of them
        Standard deviation s of the noise: one for all, or one for each noisy variable in its order, such as Z2, P2, A2,
        y. What "learned" means is described at :func:`mlp`.
    prior : "learned", float, or a sequence of them, optional
        Precision λ (one over the variance) of the prior of a layer's weights and biases: one for all layers, or one for
        each. Where it is "learned", the default, it has the prior that :func:`mlp` describes; there is none for each
        input, since a filter looks at all pixels alike. None makes λ the number of weights that come into a unit.
    likelihood : str, optional
        What y is given the last layer: a name that :func:`mlp` knows. Where none is given, it is "student" if the noise
        of y is learned and "normal" otherwise.
    bias : bool
        Whether the layers have biases, one for each channel of a convolution.
    trials, exposure, lower, upper : float or array_like, shape of y, optional
        What a likelihood of counts or of censored data needs, as in :func:`mlp`.

    Returns
    -------
    pm.Model
        A model with the free variables W1 (filters, channels, height, width), b1 (filters,), Z2, P2, A2 (images), W2
        (units, inputs), b2 and so on, the learned variances and precisions, and the observed variable y.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for.
    ValueError
        If data are not finite, shapes, filters or pools do not fit, there are no filters, labels do not count from 0
        without a gap or are of one class only, a noise or a precision is not positive, the noise of the last Z is
        "learned" by itself with a probit likelihood, or ``activation`` or another choice is none of those above.

    Warns
    -----
    UserWarning
        If the last axis of X looks like that of the channels: pass ``X.transpose(0, 3, 1, 2)``; or
        if the mean absolute value of a pixel, or of y, is above 30, as in images of bytes.

    References
    ----------
    .. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> X, y = np.random.normal(size=(20, 8, 8)), np.arange(20) % 10
    >>> model = pmg.cnn(X, y, 2, pool=2, noise=1, prior=None, likelihood="probit")
    >>> [rv.name for rv in model.free_RVs]
    ['W1', 'b1', 'Z2', 'P2', 'A2', 'W2', 'b2', 'Z3']
    """
    frames = X, y
    X = finite("X", X)
    kind, y, out, coords = read_targets(y, likelihood)
    if X.ndim not in (3, 4) or y.ndim not in (1, 2) or len(X) != len(y) or 0 in X.shape + y.shape:
        hint = ": X are flattened images: reshape them" if X.ndim == 2 else ""
        raise ValueError(
            f"X must have shape (n, height, width) or (n, channels, height, width), and y (n,) or (n, k), none of them "
            f"empty; found {X.shape} and {y.shape}{hint}."
        )
    if X.ndim == 4 and X.shape[1] == X.shape[2] > 4 >= X.shape[3]:
        warnings.warn(
            f"X of shape {X.shape} is read as images of {X.shape[1]} channels and {X.shape[2]} by {X.shape[3]} pixels. "
            "If the channels are the last axis, pass X.transpose(0, 3, 1, 2).",
            UserWarning,
            stacklevel=2,
        )
    warn_of_size("X", X, frames[0])
    if not kind.is_discrete:
        warn_of_size("y", y, frames[1])
    given = {"trials": trials, "exposure": exposure, "lower": lower, "upper": upper}
    kind, of_data = data_arguments(kind, likelihood, y, given)
    filters, hidden = widths("filters", filters, "one for each convolutional layer"), widths("hidden", hidden)
    layers = len(filters)
    if not layers:
        raise ValueError("filters must hold at least one number; mlp() writes a network without convolutions.")
    sizes, strides = _pairs("size", size, layers), _pairs("stride", stride, layers)
    paddings, pools = _pairs("padding", padding, layers, least=0), _pairs("pool", pool, layers, optional=True)
    function, bias = named_activation(activation), boolean("bias", bias)
    total = layers + len(hidden) + 1
    noisy = []
    for l, window in enumerate(pools, start=2):
        noisy += [f"Z{l}", *[f"P{l}"] * (window is not None), f"A{l}"]
    noisy += [f"{kind}{l}" for l in range(layers + 2, total + 1) for kind in "ZA"]
    noisy.append("y" if kind.has_noise else f"Z{total + 1}")
    noises = deviations_of(noise, noisy, kind)
    latent = None if likelihood_of(likelihood, noises[-1]) == "normal" and not of_data else kind
    names = [f"W{l}" for l in range(1, total + 1)]
    priors = [None] * total if prior is None else each("prior", prior, names, ["learned"], "a precision")
    coords |= {f"hidden_{l}": np.arange(width) for l, width in enumerate(hidden, start=layers + 2)}

    with pm.Model(coords=coords) as model:
        data = pm.Data("X", X)
        targets = pm.Data("y_data", y, dims=("row", "output")[: y.ndim])
        deviations = latent_deviations(noisy, noises)
        a = data[:, None] if X.ndim == 3 else data
        channels = 1 if X.ndim == 3 else X.shape[1]
        for i, units in enumerate(filters):
            l, fan_in = i + 1, channels * math.prod(sizes[i])
            of_weights, of_biases = scales(f"W{l}", fan_in if priors[i] is None else priors[i], fan_in, "")
            w = pm.Normal(f"W{l}", 0, **of_weights, shape=(units, channels, *sizes[i]))
            mean = conv2d(a, w, strides[i], paddings[i])
            if bias:
                mean = mean + pm.Normal(f"b{l}", 0, **of_biases, shape=units)[:, None, None]
            grid, channels = mean.type.shape[2:], units
            a = pm.Normal(f"Z{l + 1}", mean, deviations[f"Z{l + 1}"])
            if pools[i] is not None:
                mean = average_pool2d(a, pools[i])
                grid = mean.type.shape[2:]
                a = pm.Normal(f"P{l + 1}", mean, deviations[f"P{l + 1}"])
            a = pm.Normal(f"A{l + 1}", function(a), deviations[f"A{l + 1}"])
        widths_ = [channels * math.prod(grid), *hidden]
        model.add_coord("pixel", np.arange(widths_[0]))
        dims = ["pixel", *(f"hidden_{l}" for l in range(layers + 2, total + 1))]
        dense_priors = [d if one is None else one for d, one in zip(widths_, priors[layers:], strict=True)]
        flat = a.reshape((-1, widths_[0]))
        rest = {"first": layers + 1, "of_data": of_data}
        dense_layers(flat, widths_, dims, dense_priors, deviations, function, bias, targets, out, latent, **rest)
    return model


def _pairs(name: str, value, layers: int, least: int = 1, optional: bool = False) -> list[tuple[int, int] | None]:
    """Require an integer or a pair for all convolutional layers, or a list of one for each.

    Parameters
    ----------
    name : str
        The name of the argument.
    value : int, pair of int, or sequence of one for each layer
        What the user gave; a tuple of two integers is a pair, a list holds one for each layer.
    layers : int
        The number of convolutional layers.
    least : int
        The smallest integer that is allowed.
    optional : bool
        Whether None may stand in place of a pair.
    """
    values = value if isinstance(value, list) else [value] * layers
    if len(values) != layers:
        raise ValueError(
            f"{name} must be an integer, a pair in a tuple, or a list of one for each of the {layers} convolutional "
            f"layers; found {describe(value)}."
        )
    return [None if optional and one is None else pair(name, one, least) for one in values]

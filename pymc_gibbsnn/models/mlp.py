"""Noisy networks, with Gaussian noise on every pre- and post-activation, as plain PyMC models in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import boolean, finite, one_of, positive_array, widths
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.likelihoods import ArgmaxLabel, SignLabel
from pymc_gibbsnn.networks.likelihoods.class_labels import read_labels
from pymc_gibbsnn.networks.named_activations import named_activation

__all__ = ["mlp"]


def mlp(
    X: ArrayLike,
    y: ArrayLike,
    hidden: int | Sequence[int],
    *,
    activation: str | PiecewiseLinear | Callable = "relu",
    noise: float | Sequence[float] = 0.1,
    likelihood: str = "normal",
    bias: bool = True,
) -> pm.Model:
    r"""Write the model of a multilayer perceptron with Gaussian noise on every pre- and post-activation.

    .. math::

        Z_{l+1} \sim \mathrm{Normal}(A_l W_l^\top + b_l, s), \quad
        A_{l+1} \sim \mathrm{Normal}(\sigma(Z_{l+1}), s), \quad
        W_l, b_l \sim \mathrm{Normal}(0, d_l^{-1/2}),

    where the second argument of Normal is a standard deviation, A_1 = X, d_l is the width of layer l, and the last Z is
    observed as y [1]_ (eq. 7). For a probit likelihood the last Z is a latent, whose argmax or sign is the label y
    (appendix E). The latents Z_l and A_l, the noisy pre- and post-activations, are variables of the model like the
    weights, so that each has a closed-form conditional for :class:`GibbsNN`. The model is plain PyMC: it holds nothing
    that could not be written by hand.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Inputs of n samples, finite; standardise them for the priors to make sense. They become the data variable "X".
    y : array_like, shape (n,) or (n, k)
        What is observed; it becomes the data variable "y_data". These are finite targets of one or of k outputs, with
        integers taken as real numbers; for a probit likelihood they are labels of shape (n,) of two classes or more:
        integers from 0 up, or names, which are numbered in alphabetical order, or a pandas categorical, whose classes
        become the coordinate "class".
    hidden : int or sequence of int
        Widths of the hidden layers; an empty sequence gives linear regression.
    activation : str, PiecewiseLinear or callable
        A name ("identity", "relu", "leaky_relu", "abs", "sign", "hard_tanh", "relu6"; "tanh", "sigmoid", "gelu",
        "softplus", "silu", "erf"), a table, or an elementwise function of PyTensor variables.
    noise : float or sequence of float
        Standard deviation s of the noise: one number, or one for each of Z2, A2, Z3, ... up to y or, for a probit
        likelihood, the last Z. That of y is in the units of y.
    likelihood : {"normal", "probit"}
        What y is given the last layer: its noisy outputs themselves, or the class label that they give.
    bias : bool
        Whether the layers have biases.

    Returns
    -------
    pm.Model
        A model with the free variables W1, b1, Z2, A2, W2, b2, ... and the observed variable y, and with the dimensions
        "row", "feature", "hidden_2", ..., "output" or "class". Each W has shape (units, inputs); for a single output of
        shape (n,) the last weights are a vector and the last bias is a number.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for.
    ValueError
        If data are not finite, their shapes or the widths do not fit, labels do not count from 0, a noise is not
        positive, or a name is not known.

    References
    ----------
    .. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729.

    Examples
    --------
    >>> model = mlp(np.random.normal(size=(20, 3)), np.arange(20.0), hidden=5, noise=0.1)
    >>> [rv.name for rv in model.free_RVs]
    ['W1', 'b1', 'Z2', 'A2', 'W2', 'b2']
    """
    probit = one_of("likelihood", likelihood, ("normal", "probit")) == "probit"
    X = finite("X", X)
    y, classes = read_labels(y) if probit else (finite("y", y), None)
    if X.ndim != 2 or y.ndim not in (1, 2) or len(X) != len(y) or 0 in X.shape + y.shape:
        raise ValueError(
            f"X must have shape (n, d) and y (n,) or (n, k), none of them empty; found {X.shape} and {y.shape}."
        )
    hidden = widths("hidden", hidden)
    function = named_activation(activation)
    sigmas = positive_array(
        "noise",
        noise,
        2 * len(hidden) + 1,
        "Z2, A2, ..., y",
        "a standard deviation",
    )
    bias = boolean("bias", bias)
    layers = len(hidden) + 1
    sizes = [X.shape[1], *hidden]
    dims = ["feature", *(f"hidden_{l}" for l in range(2, layers + 1))]
    coords = {dim: np.arange(size) for dim, size in zip(dims, sizes, strict=True)}
    single = len(classes) == 2 if probit else y.ndim == 1
    if probit:
        coords["class"] = classes
    elif not single:
        coords["output"] = np.arange(y.shape[1])

    with pm.Model(coords=coords) as model:
        a = pm.Data("X", X, dims=("row", "feature"))
        targets = pm.Data("y_data", y, dims=("row", "output")[: y.ndim])
        for l in range(1, layers + 1):
            d, last = sizes[l - 1], l == layers
            out = (dims[l],) if not last else () if single else ("class",) if probit else ("output",)
            weights = pm.Normal(f"W{l}", 0, d**-0.5, dims=(*out, dims[l - 1]))
            mean = a @ weights.T
            if bias:
                mean = mean + pm.Normal(f"b{l}", 0, d**-0.5, dims=out or None)
            if last and probit:
                z = pm.Normal(f"Z{l + 1}", mean, sigmas[-1], dims=("row", *out))
                (SignLabel if single else ArgmaxLabel)("y", z, observed=targets, shape=z.shape[:1], dims="row")
            elif last:
                pm.Normal("y", mean, sigmas[-1], observed=targets, shape=mean.shape, dims=("row", *out))
            else:
                z = pm.Normal(f"Z{l + 1}", mean, sigmas[2 * l - 2], dims=("row", *out))
                a = pm.Normal(f"A{l + 1}", function(z), sigmas[2 * l - 1], dims=("row", *out))
    return model

"""Wide networks, whose weights are scaled as in the theory of the neural tangent kernel, as plain PyMC models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import number, positive, whole
from pymc_gibbsnn._data import check_labels, column_names, finite, warn_of_size
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.named_activations import named_activation

__all__ = ["wide_mlp"]


def wide_mlp(
    X: ArrayLike,
    y: ArrayLike,
    width: int,
    depth: int = 1,
    *,
    activation: str | PiecewiseLinear | Callable = "gelu",
    noise: float = 0.1,
    weight_scale: float = 2**0.5,
    bias_scale: float = 0.1,
    readout_scale: float = 1.0,
    readout_bias_scale: float = 0.1,
) -> pm.Model:
    r"""Write the model of a deterministic multilayer perceptron in NTK form, with a Gaussian likelihood.

    In this form, that of the theory of the neural tangent kernel (NTK), all weights are standard normal a priori, and
    factors that depend on the width scale them:

    .. math::

        f_1 = \frac{s_W}{\sqrt{d}} X W_1^\top + s_b b_1, \quad
        f_{l+1} = \frac{s_W}{\sqrt{h}} \psi(f_l) W_{l+1}^\top + s_b b_{l+1}, \quad
        y \sim \mathrm{Normal}(f_{L+1}, \sigma), \quad W_l, b_l \sim \mathrm{Normal}(0, 1),

    where the second argument of Normal is a standard deviation, and the last layer, the readout, has scales s_W and s_b
    of its own. As the width h grows, the prior of the outputs tends to a Gaussian process [1]_ (eq. 1), and samplers
    such as :class:`PCN` accept more. The model is plain PyMC: it holds nothing that could not be written by hand.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Inputs of n samples, finite and standardised. They become the data variable "X"; the names of the columns of
        a data frame become the coordinate "feature".
    y : array_like, shape (n,) or (n, k)
        Targets of one or of k outputs, finite. They become the data variable "y_data"; the names of the columns of a
        data frame (n, k) become the coordinate "output".
    width : int
        Number h of units of each hidden layer.
    depth : int
        Number L of hidden layers, at least one.
    activation : str, PiecewiseLinear or callable
        ψ: a name, "gelu" or any other that :func:`mlp` takes, a table, or an elementwise function of PyTensor
        variables.
    noise : float
        Standard deviation σ of the data, in the units of y.
    weight_scale, bias_scale : float
        s_W and s_b of the hidden layers, without units; there are no biases where s_b is 0.
    readout_scale, readout_bias_scale : float
        s_W and s_b of the readout, in the units of y; it has no bias where s_b is 0.

    Returns
    -------
    pm.Model
        A model with the free variables W1, b1, W2, b2, ... and the observed variable y, and with the dimensions "row",
        "feature", "hidden_2", ..., "output". Each W has shape (units, inputs); for targets of shape (n,) the last
        weights are a vector and the last bias is a number.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for.
    ValueError
        If data are not finite, the rows of X and y have other labels in pandas, shapes do not fit, a number is
        out of range, or ``activation`` is none of those above.

    Warns
    -----
    UserWarning
        If the mean absolute value of a column of X, or of y, is above 30, far from that of standardised data; with
        priors of your own for such data you may ignore this.

    References
    ----------
    .. [1] L. Pezzetti, S. Favaro, S. Peluchetti. Function-space MCMC for Bayesian wide neural networks.
       arXiv 2408.14325.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> model = pmg.wide_mlp(np.random.normal(size=(20, 3)), np.arange(20.0), width=50)
    >>> [rv.name for rv in model.free_RVs]
    ['W1', 'b1', 'W2', 'b2']
    """
    frames = X, y
    check_labels("y", y, "X", X)
    X, y = finite("X", X), finite("y", y)
    if X.ndim != 2 or y.ndim not in (1, 2) or len(X) != len(y) or 0 in X.shape + y.shape:
        raise ValueError(
            f"X must have shape (n, d) and y (n,) or (n, k), none of them empty; found {X.shape} and {y.shape}."
        )
    warn_of_size("X", X, frames[0])
    warn_of_size("y", y, frames[1])
    width, depth = whole("width", width, why=", the same for all hidden layers"), whole("depth", depth)
    noise, weight_scale = positive("noise", noise), positive("weight_scale", weight_scale)
    readout_scale = positive("readout_scale", readout_scale)
    scales = {"bias_scale": bias_scale, "readout_bias_scale": readout_bias_scale}
    bias_scale, readout_bias_scale = (
        number(name, scale, "a positive, finite number, or 0 for no bias", lambda x: x >= 0)
        for name, scale in scales.items()
    )
    psi, d = named_activation(activation), X.shape[1]
    dims = ["feature", *(f"hidden_{l}" for l in range(2, depth + 2))]
    coords = {dim: np.arange(size) for dim, size in zip(dims, [d, *[width] * depth], strict=True)}
    coords["feature"] = column_names(frames[0], d)
    out = ("output",) if y.ndim == 2 else ()
    if out:
        coords["output"] = column_names(frames[1], y.shape[1])
    with pm.Model(coords=coords) as model:
        a = pm.Data("X", X, dims=("row", "feature"))
        targets = pm.Data("y_data", y, dims=("row", *out))
        for l in range(1, depth + 2):
            last = l > depth
            s_w, s_b = (readout_scale, readout_bias_scale) if last else (weight_scale, bias_scale)
            to = out if last else (dims[l],)
            mean = a @ pm.Normal(f"W{l}", 0, 1, dims=(*to, dims[l - 1])).T * (s_w / (d if l == 1 else width) ** 0.5)
            if s_b:
                mean = mean + s_b * pm.Normal(f"b{l}", 0, 1, dims=to or None)
            a = psi(mean)
        pm.Normal("y", mean, noise, observed=targets, shape=mean.shape, dims=("row", *out))
    return model

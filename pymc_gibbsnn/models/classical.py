"""Networks without noise inside: plain PyMC models in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import finite
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.named_activations import named_activation

__all__ = ["classical_mlp"]

LIKELIHOODS = ("categorical", "bernoulli", "normal")


def classical_mlp(
    X: ArrayLike,
    y: ArrayLike,
    hidden: int | Sequence[int],
    *,
    activation: str | PiecewiseLinear | Callable = "sigmoid",
    likelihood: str = "categorical",
    prior_variance: float | Sequence[float] = 1.0,
    noise: float = 0.1,
    bias: bool = True,
    batch_size: int | None = None,
    total_size: int | None = None,
) -> pm.Model:
    r"""A multilayer perceptron whose only noise is that of the data.

    .. math::

        f = W_L \, \sigma(\cdots \sigma(W_1 x + b_1) \cdots) + b_L, \quad W_l, b_l \sim \mathrm{Normal}(0, \sqrt{v_l}),

    and y ~ Categorical(softmax f), Bernoulli(sigmoid f) or Normal(f, s) (Papamarkou, arXiv 2208.11389, eq. 3.1 to 3.3).
    The model is plain PyMC: it holds nothing that could not be written by hand.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Inputs, finite. Data variable "X".
    y : array_like, shape (n,), or (n, k) for a normal likelihood
        Integer labels from 0 up (categorical), 0 and 1 (bernoulli), or finite targets (normal). Data variable "y_data".
    hidden : int or sequence of int
        Widths of the hidden layers; an empty sequence gives (logistic) regression.
    activation : str, PiecewiseLinear or callable
        A name ("sigmoid", "tanh", "softplus", "relu", "leaky_relu", "abs", "identity", ...), a table, or an elementwise
        function of PyTensor variables.
    likelihood : {"categorical", "bernoulli", "normal"}
    prior_variance : float or sequence of float
        Variance v of weights and biases: one number, or one for each layer.
    noise : float
        Standard deviation s of a normal likelihood.
    bias : bool
        Whether the layers have biases.
    batch_size : int, optional
        Observe minibatches of that many rows, X and y paired, drawn with replacement: samplers then see another batch
        at every evaluation, and the posterior they find is approximate.
    total_size : int, optional
        With minibatches, the number of rows for which a batch stands, usually n: the likelihood is raised to the power
        total_size / batch_size. Without it the target is prior times likelihood of a batch.

    Returns
    -------
    pm.Model
        Free variables W1, b1, W2, b2, ... and observed y. W has shape (units, inputs); for a single output the last
        weights are a vector and the last bias a number.

    Raises
    ------
    ValueError
        If data are not finite, labels are no integers, their shapes or the widths do not fit, a variance or the noise
        is not positive, a batch is larger than the data, or a name is not known.

    Examples
    --------
    >>> model = classical_mlp(np.random.normal(size=(20, 3)), np.arange(20) % 4, hidden=5)
    >>> [rv.name for rv in model.free_RVs]
    ['W1', 'b1', 'W2', 'b2']
    """
    if likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood must be one of {LIKELIHOODS}; found {likelihood!r}.")
    X, y = finite("X", X), finite("y", y) if likelihood == "normal" else _labels(y, likelihood)
    if X.ndim != 2 or y.ndim not in (1, 2) or len(X) != len(y) or 0 in X.shape + y.shape:
        raise ValueError(f"X must have shape (n, d) and y (n,) or (n, k), none empty; found {X.shape} and {y.shape}.")
    hidden = [hidden] if np.ndim(hidden) == 0 else list(hidden)
    if any(width != int(width) or width < 1 for width in hidden):
        raise ValueError(f"hidden must hold positive integers, one a layer; found {hidden}.")
    sigmas = _standard_deviations(prior_variance, len(hidden) + 1)
    if not (np.isfinite(noise) and noise > 0):
        raise ValueError(f"noise is a standard deviation, positive and finite; found {noise}.")
    function = named_activation(activation)
    if batch_size is None and total_size is not None:
        raise ValueError("total_size goes with batch_size.")
    if batch_size is not None and not 1 <= batch_size <= len(X):
        raise ValueError(f"batch_size must lie between 1 and the {len(X)} rows of the data; found {batch_size}.")

    last = int(y.max()) + 1 if likelihood == "categorical" else None if y.ndim == 1 else y.shape[1]
    widths = [X.shape[1], *map(int, hidden), last]
    dims = ["feature", *(f"hidden_{l}" for l in range(2, len(widths))), "class" if y.ndim == 1 else "output"]
    coords = {dim: np.arange(width) for dim, width in zip(dims, widths, strict=True) if width is not None}
    with pm.Model(coords=coords) as model:
        a = pm.Data("X", X, dims=("row", "feature"))
        targets = pm.Data("y_data", y, dims=("row", "output")[: y.ndim])
        if batch_size is not None:
            a, targets = pm.Minibatch(a, targets, batch_size=int(batch_size))
        for l, (sigma, width) in enumerate(zip(sigmas, widths[1:], strict=True), start=1):
            a = function(a) if l > 1 else a
            out = (dims[l],) if width is not None else ()
            a = a @ pm.Normal(f"W{l}", 0, sigma, dims=(*out, dims[l - 1])).T
            if bias:
                a = a + pm.Normal(f"b{l}", 0, sigma, dims=out or None)
        observed = {"observed": targets}
        if batch_size is None:
            observed |= {"shape": tuple(a.shape)[: y.ndim], "dims": ("row", "output")[: y.ndim]}
        elif total_size is not None:
            observed |= {"total_size": int(total_size)}
        if likelihood == "categorical":
            pm.Categorical("y", logit_p=a, **observed)
        elif likelihood == "bernoulli":
            pm.Bernoulli("y", logit_p=a, **observed)
        else:
            pm.Normal("y", a, noise, **observed)
    return model


def _labels(y: ArrayLike, likelihood: str) -> np.ndarray:
    y = np.asarray(y)
    if y.dtype.kind not in "biu":
        raise ValueError(f"y must hold integer labels; found dtype {y.dtype}: cast it first.")
    y = y.astype("int64")
    most, known = (1, "0 and 1") if likelihood == "bernoulli" else (np.inf, "integers from 0 up, two classes or more")
    if y.ndim != 1 or y.size == 0 or y.min() < 0 or y.max() > most or y.max() == 0:
        raise ValueError(
            f"y must hold labels of shape (n,), {known}; found shape {y.shape} and labels {np.unique(y)[:5]}."
        )
    return y


def _standard_deviations(variance: float | Sequence[float], layers: int) -> np.ndarray:
    variances = np.asarray(variance, dtype=float)
    variances = np.full(layers, variances) if variances.ndim == 0 else variances
    if variances.shape != (layers,) or not (np.isfinite(variances) & (variances > 0)).all():
        raise ValueError(
            f"prior_variance must be a positive number, or {layers}, one for each layer; found {variance}."
        )
    return np.sqrt(variances)

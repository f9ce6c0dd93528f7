"""Classical Bayesian networks, whose only noise is that of the data, as plain PyMC models in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import boolean, one_of, positive, positive_array, whole, widths
from pymc_gibbsnn._data import check_labels, column_names, finite, warn_of_size
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.likelihoods import CLASSICAL
from pymc_gibbsnn.networks.named_activations import named_activation

__all__ = ["classical_mlp"]


def classical_mlp(
    X: ArrayLike,
    y: ArrayLike,
    hidden: int | Sequence[int],
    *,
    activation: str | PiecewiseLinear | Callable = "sigmoid",
    likelihood: str = "categorical",
    prior_variance: float | Sequence[float] = 1.0,
    noise: float = 0.1,
    trials: int = 1,
    bias: bool = True,
    batch_size: int | None = None,
    total_size: int | None = None,
) -> pm.Model:
    r"""Write the model of a multilayer perceptron whose only noise is that of the data.

    .. math::

        f = W_L \, \sigma(\cdots \sigma(W_1 x + b_1) \cdots) + b_L, \quad W_l, b_l \sim \mathrm{Normal}(0, \sqrt{v_l}),

    where the second argument of Normal is a standard deviation. The data follow y ~ Categorical(softmax f),
    Bernoulli(sigmoid f) or Normal(f, s) [1]_, Poisson(exp f) or Binomial(N, sigmoid f). The model is plain PyMC: it
    holds nothing that could not be written by hand. :class:`FNBG` is the sampler made for it.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Inputs of n samples, finite. They become the data variable "X" of the model; the names of the columns of a data
        frame become the coordinate "feature".
    y : array_like, shape (n,), or (n, k) for k outputs
        What is observed; it becomes the data variable "y_data". For "categorical" and "bernoulli" these are class
        labels of shape (n,), of two classes for "bernoulli": integers from 0 up, without a gap, or names, which are
        numbered in alphabetical order, or a pandas categorical; the classes become the coordinate "class", intervals
        and dates as texts. For "normal" they are finite real numbers, for "poisson" counts, for "binomial" numbers of
        successes; the names of the columns of a data frame (n, k) become the coordinate "output".
    hidden : int or sequence of int
        Widths of the hidden layers; an empty sequence gives linear or logistic regression.
    activation : str, PiecewiseLinear or callable
        A name, "sigmoid" or any other that :func:`mlp` takes, a table, or an elementwise function of PyTensor
        variables.
    likelihood : {"categorical", "bernoulli", "normal", "poisson", "binomial"}
        The likelihood: the distribution of y given the outputs f of the network.
    prior_variance : float or sequence of float
        Variance v of weights and biases: one number, or one for each layer.
    noise : float
        Standard deviation s of a normal likelihood, in the units of y.
    trials : int
        Number N of trials of a binomial likelihood, of which y counts the successes.
    bias : bool
        Whether the layers have biases.
    batch_size : int, optional
        Observe minibatches of that many rows, drawn with replacement, in which the rows of X and y stay paired.
        Samplers of this package then see another batch at every step, and the posterior that they find is approximate.
    total_size : int, optional
        With minibatches, the number of rows for which a batch stands, usually n: the likelihood of a batch is raised to
        the power total_size / batch_size. Without it the target is the prior times the likelihood of a batch.

    Returns
    -------
    pm.Model
        A model with the free variables W1, b1, W2, b2, ... and the observed variable y, and with the dimensions "row",
        "feature", "hidden_2", ..., and "class" or "output". Each W has shape (units, inputs); for a single output the
        last weights are a vector and the last bias is a number.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for.
    ValueError
        If data are not finite, the rows of X and y have other labels in pandas, class labels do not count from
        0 without a gap, shapes or widths do not fit, a variance, the noise or a number of rows is not positive, y holds
        more successes than ``trials``, ``total_size`` is given without ``batch_size``, a batch is larger than the data,
        or ``activation`` or ``likelihood`` is none of those above.

    Warns
    -----
    UserWarning
        If the mean absolute value of a column of X, or of y, is above 30, far from that of standardised data; with
        priors of your own for such data you may ignore this.

    References
    ----------
    .. [1] T. Papamarkou. The premise of approximate MCMC in Bayesian deep learning. arXiv 2208.11389, eq. 3.1 to 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> model = pmg.classical_mlp(np.random.normal(size=(20, 3)), np.arange(20) % 4, hidden=5)
    >>> [rv.name for rv in model.free_RVs]
    ['W1', 'b1', 'W2', 'b2']
    """
    kind = CLASSICAL[one_of("likelihood", likelihood, CLASSICAL)]
    frames = X, y
    check_labels("y", y, "X", X)
    X = finite("X", X)
    y, classes = kind.targets(y)
    if X.ndim != 2 or y.ndim not in (1, 2) or len(X) != len(y) or 0 in X.shape + y.shape:
        raise ValueError(f"X must have shape (n, d) and y (n,) or (n, k), none empty; found {X.shape} and {y.shape}.")
    warn_of_size("X", X, frames[0])
    if likelihood == "normal":
        warn_of_size("y", y, frames[1])
    hidden = widths("hidden", hidden)
    variances = positive_array("prior_variance", prior_variance, len(hidden) + 1, "the layers", "a variance")
    trials = whole("trials", trials)
    if likelihood == "binomial" and y.max() > trials:
        raise ValueError(f"y holds {y.max()} successes, more than there are trials: found trials={trials}.")
    noise, bias, function = positive("noise", noise), boolean("bias", bias), named_activation(activation)
    if batch_size is not None:
        batch_size = whole("batch_size", batch_size)
        if batch_size > len(X):
            raise ValueError(f"batch_size must be at most the {len(X)} rows of the data; found {batch_size}.")
    if total_size is not None:
        total_size = whole("total_size", total_size, why=", the number of rows for which a batch stands")
        if batch_size is None:
            raise ValueError(f"total_size goes with batch_size, which is None; found total_size={total_size}.")

    sizes = [X.shape[1], *hidden, kind.width(y, classes)]
    dims = ["feature", *(f"hidden_{l}" for l in range(2, len(sizes))), "class" if y.ndim == 1 else "output"]
    coords = {dim: np.arange(size) for dim, size in zip(dims, sizes, strict=True) if size is not None}
    coords["feature"] = column_names(frames[0], X.shape[1])
    if y.ndim == 2:
        coords["output"] = column_names(frames[1], y.shape[1])
    coords |= {} if classes is None else {"class": classes}
    with pm.Model(coords=coords) as model:
        a = pm.Data("X", X, dims=("row", "feature"))
        targets = pm.Data("y_data", y, dims=("row", "output")[: y.ndim])
        if batch_size is not None:
            a, targets = pm.Minibatch(a, targets, batch_size=batch_size)
        for l, (sigma, size) in enumerate(zip(np.sqrt(variances), sizes[1:], strict=True), start=1):
            a = function(a) if l > 1 else a
            out = (dims[l],) if size is not None else ()
            a = a @ pm.Normal(f"W{l}", 0, sigma, dims=(*out, dims[l - 1])).T
            if bias:
                a = a + pm.Normal(f"b{l}", 0, sigma, dims=out or None)
        observed = {"observed": targets}
        if batch_size is None:
            observed |= {"shape": tuple(a.shape)[: y.ndim], "dims": ("row", "output")[: y.ndim]}
        elif total_size is not None:
            observed |= {"total_size": total_size}
        kind.observe("y", a, {"noise": noise, "trials": trials}, **observed)
    return model

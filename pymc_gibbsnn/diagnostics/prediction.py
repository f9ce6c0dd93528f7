"""What a posterior of a classifier predicts."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import ArrayLike
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace

from pymc_gibbsnn._arguments import finite, model_of, posterior_of
from pymc_gibbsnn.networks.deterministic import ClassicalNetwork, read_classical
from pymc_gibbsnn.networks.function import matrices
from pymc_gibbsnn.networks.network import Network, NetworkError, evaluate
from pymc_gibbsnn.networks.reader import read_network

__all__ = ["class_probabilities"]

AT_ONCE = 2**23  # numbers in the widest layer of the draws that are evaluated together


def class_probabilities(
    idata,
    model: pm.Model | None = None,
    X_new: ArrayLike | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> xr.DataArray:
    r"""Predictive probabilities of classes, averaged over the draws of each chain.

    .. math:: p(y \mid x, D) \approx \frac{1}{v} \sum_{t=1}^v p(y \mid x, \theta_t)

    Many draws and all points are evaluated together. For the labels of a noisy network p(y | x, θ) is estimated by one
    label drawn for each draw, noise included.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned; its posterior must hold all weights and biases.
    model : pm.Model, optional
        With a classical network and a Categorical or Bernoulli likelihood, or a noisy network of labels; taken from the
        context by default.
    X_new : array_like, shape (m, d), optional
        Inputs at which to predict; by default those of the model, all rows where it sees minibatches.

    random_seed : int or Generator, optional
        Of the noise.

    Returns
    -------
    xarray.DataArray, (chain, point, class)
        Over chains, take ``.mean("chain")``.

    Raises
    ------
    ValueError
        If the posterior lacks weights, X_new has a wrong shape, or the likelihood is no classifier's.
    NetworkError
        If the model holds no network of labels that can be read, or a noisy one with scales that are drawn or offsets.

    References
    ----------
    .. [1] T. Papamarkou. The premise of approximate MCMC in Bayesian deep learning. arXiv 2208.11389, eq. 3.6, which
       lacks the factor 1/v.
    """
    network, weights, predict = _read(model_of(model), np.random.default_rng(random_seed))
    posterior = posterior_of("idata", idata)
    X = np.asarray(_inputs(network) if X_new is None else finite("X_new", X_new), pytensor.config.floatX)
    width = network.layers[0].shape[1]
    if X.ndim != 2 or X.shape[1] != width:
        raise ValueError(f"X_new must have shape (m, {width}); found {X.shape}.")
    draws = {}
    for variable in weights:
        if variable.name not in posterior:
            raise ValueError(
                f"The posterior lacks '{variable.name}': record it by naming it in var_names of pm.sample."
            )
        draws[variable] = posterior[variable.name].transpose("chain", "draw", ...).values.astype(X.dtype)
    widest = max(layer.shape[0] for layer in network.layers)
    together = max(1, AT_ONCE // max(1, widest * len(X)))
    chains, count = posterior.sizes["chain"], posterior.sizes["draw"]
    sums = [
        sum(predict(X, *(x[chain, i : i + together] for x in draws.values())) for i in range(0, count, together))
        for chain in range(chains)
    ]
    return xr.DataArray(
        np.stack(sums) / count,
        dims=("chain", "point", "class"),
        coords={"chain": posterior["chain"].values},
        name="probability",
    )


def _inputs(network: ClassicalNetwork | Network) -> np.ndarray:
    return network.data() if isinstance(network, Network) else network.data()[0]


def _read(model: pm.Model, rng: np.random.Generator):
    """(network, its weights and biases, function of inputs and a batch of draws of these: sums of probabilities)."""
    try:
        network = read_classical(model)
    except NetworkError as refusal:
        try:
            noisy = read_network(model, check_data=False)
        except NetworkError:
            raise refusal from None
        return _read_noisy(noisy, rng)
    if network.likelihood == "normal" or (network.likelihood == "bernoulli" and network.layers[-1].shape[0] != 1):
        raise NetworkError(f"'{network.name}' has no classes: give it a Categorical likelihood, or Bernoulli of (n,).")
    return network, network.variables, _evaluator(network)


def _read_noisy(network: Network, rng: np.random.Generator):
    last = network.layers[-1]
    if network.labels is None or (network.labels.kind == "sign" and last.shape[0] > 1):
        raise NetworkError(f"'{last.name}' has no classes: give the network an ArgmaxLabel, or a SignLabel of (n,).")
    if not all(isinstance(noise, Constant) for noise in network.noises.values()) or any(
        layer.offset is not None for layer in network.layers
    ):
        raise NetworkError(
            f"The labels of '{network.labels.name}' depend on other variables than the weights: predict them by "
            f"pm.set_data and pm.sample_posterior_predictive."
        )
    noises = {name: np.sqrt(evaluate(noise)) for name, noise in network.noises.items()}

    def predict(X, *draws):
        values = dict(zip([v.name for v in network.weights], draws, strict=True))
        a = X
        for l, layer in enumerate(network.layers):
            w, b = matrices(layer, values)
            z = a @ np.swapaxes(w, -1, -2) + b
            z = z + noises[layer.name] * rng.normal(size=z.shape)
            for activation in network.activations[l : l + 1]:
                a = activation.function(z)
                a = a + noises[activation.name] * rng.normal(size=a.shape)
        labels = z.argmax(-1) if network.labels.kind == "argmax" else (z[..., 0] > 0).astype(int)
        return (labels[..., None] == np.arange(max(2, last.shape[0]))).sum(axis=0)

    return network, network.weights, predict


def _evaluator(network: ClassicalNetwork):
    """A function of inputs (m, d) and a batch of draws of each variable: sums of probabilities, (m, classes)."""
    values = {v: pt.tensor(v.name, dtype=v.dtype, shape=(None, *(None,) * v.ndim)) for v in network.variables}
    x = pt.matrix("x")
    a = x[None]  # (draws or 1, points, units)
    for l, layer in enumerate(network.layers):
        if l > 0:
            activation = network.activations[l - 1]
            flat = a.reshape((-1, a.shape[-1]))
            [flat] = clone_replace([activation.output], {activation.z: flat}, rebuild_strict=False)
            a = flat.reshape(a.shape)
        w = values[layer.weights]
        w = w[..., None] if layer.layout == "vector" else w if layer.layout == "columns" else w.mT
        a = pt.matmul(a, w)
        if layer.has_bias:
            a = a + values[layer.bias].reshape((-1, 1, layer.shape[0]))
    if network.likelihood == "categorical":
        probabilities = pt.special.softmax(a, axis=-1)
    else:
        probabilities = pt.concatenate([pt.sigmoid(-a), pt.sigmoid(a)], axis=-1)
    # NumPy is fast at arrays of this size, and there is nothing to compile.
    mode = Mode(linker="py", optimizer="fast_compile")
    return pytensor.function([x, *values.values()], probabilities.sum(axis=0), mode=mode)

"""By what chains are judged, while they run and afterwards: the function of a network at some rows of its data.

These are its outputs. Where data are labels of classes by argmax or sign, they are the probabilities of classes, and
with a softmax the outputs less their mean over classes, since adding a number to the outputs of all classes changes
nothing. Where a second network learns how noisy each row is, they are the logarithms of this noise as well. Draws are
enough if the effective sample size (ESS) of each of these numbers is, as Vehtari et al. compute it for all chains
together (arXiv 1903.08008): where chains differ, it is small.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pymc as pm
import xarray as xr

from pymc_gibbsnn.networks.likelihoods import find_likelihood
from pymc_gibbsnn.networks.network import Network, NetworkError
from pymc_gibbsnn.networks.reader import only_network
from pymc_gibbsnn.prediction.conditionals import distribution_node
from pymc_gibbsnn.prediction.function import networks_of, variance_of
from pymc_gibbsnn.prediction.inputs import find_observed

__all__ = ["POINTS", "ess_of", "judged", "networks_to_judge", "that_matter"]

POINTS = 50  # at how many rows of the data, at most
LEAST_SD = 0.01  # of a probability; one with a smaller standard deviation is nearly the same in all draws


def networks_to_judge(model: pm.Model, name: str | None = None) -> list[Network]:
    """Read the noisy networks of a model; none if its function is not that of one of them, but a mean of its data."""
    try:
        return networks_of(model, name)
    except NetworkError:
        return []


def judged(
    model: pm.Model, networks: list[Network], name: str | None = None
) -> Callable[[xr.Dataset, xr.Dataset], dict[str, np.ndarray]]:
    """Return ``judge(posterior, space)`` for posteriors of a model with these networks.

    Its second argument is what :func:`pymc_gibbsnn.function_space` computes of the first. It returns the numbers by
    which chains are judged, as arrays (chain, draw, number) by name: "output" or "probability", perhaps "log_noise".
    """
    kind = None if networks else find_likelihood(distribution_node(find_observed(model, name)).op)
    has_classes = kind is not None and kind.has_classes
    network = only_network(networks) if networks else None
    likelihood = network and network.observation

    def judge(posterior: xr.Dataset, space: xr.Dataset) -> dict[str, np.ndarray]:
        output, name = space["output"].values, "probability" if has_classes else "output"
        if likelihood is not None and likelihood.ignores_shifts:
            output = output - output.mean(axis=-1, keepdims=True)
        if likelihood is not None and likelihood.is_logistic:
            variance = variance_of(network.layers[-1], network, posterior)
            if variance is not None:
                variance = np.reshape(variance, np.shape(variance) + (1,) * (output.ndim - np.ndim(variance)))
                output, name = likelihood.logistic_probabilities(output, variance), "probability"
        quantities = {name: output} | ({"log_noise": space["log_noise"].values} if "log_noise" in space else {})
        return {name: x.reshape(*x.shape[:2], -1) for name, x in quantities.items()}

    return judge


def that_matter(name: str, x: np.ndarray) -> np.ndarray:
    """Leave out probabilities (chain, draw, number) that are nearly the same in all draws, unless all of them are."""
    finite = x[np.isfinite(x).all(axis=(1, 2))]
    if name != "probability" or not len(finite):
        return x
    matter = finite.std(axis=(0, 1)) >= LEAST_SD
    return x[..., matter] if matter.any() else x


def ess_of(x: np.ndarray, method: str = "bulk") -> np.ndarray:
    """Compute the effective sample sizes of those numbers (chain, draw, number) that change in some chain.

    ArviZ takes all draws of what never changes for independent ones.
    """
    import arviz as az

    moves = np.ptp(x, axis=1).any(axis=0)
    return az.ess(xr.Dataset({"x": (("chain", "draw", "number"), x[..., moves])}), method=method)["x"].values

"""What a sweep reports of a network: norms of its layers, the noise of its variables, and their log densities."""

from __future__ import annotations

import math

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.network import Network

__all__ = ["log_densities", "statistic_names", "statistics"]


def statistic_names(network: Network, kinds: list[str | bool]) -> list[str]:
    """Names of the statistics of a network whose hidden layers interweave in these ways."""
    names = [f"norm_{layer.operator.name}" for layer in network.layers]
    names += [f"noise_{name}" for name, _ in network.noisy]
    hidden = zip(network.layers[:-1], kinds, strict=True)
    return names + [f"acceptance_{layer.operator.name}" for layer, kind in hidden if kind]


def statistics(
    network: Network, weights: list[Variable], noise: dict[str, tuple[Variable, Variable]]
) -> dict[str, Variable]:
    """Norms Σ W̃² of the layers, and mean squared noise over variance by latents and data.

    ``noise`` holds the sum and the number of squared noises.
    """
    norms = {f"norm_{layer.operator.name}": (w**2).sum() for layer, w in zip(network.layers, weights, strict=True)}
    variances = network.noises
    return norms | {f"noise_{name}": square / (variances[name] * n) for name, (square, n) in noise.items()}


def log_densities(
    network: Network, weights: list[Variable], noise: dict[str, tuple[Variable, Variable]]
) -> dict[str, Variable]:
    """Log densities of latents, data and weights, by name."""
    densities = {}
    for name, (square, n) in noise.items():
        variance = network.noises[name]
        densities[name] = -0.5 * (square / variance + n * pt.log(2 * math.pi * variance))
    for layer, w in zip(network.layers, weights, strict=True):
        densities[layer.operator.name] = layer.operator.log_prior(w)
    return densities

"""What a sweep reports about a network: norms of its weights, the noise of its latents and data, and log densities."""

from __future__ import annotations

import math

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.moves.random_inputs import log_densities_of_inputs
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.layers.weighted import Weighted
from pymc_gibbsnn.networks.network import Network

__all__ = ["log_densities", "statistic_names", "statistics"]


def statistic_names(network: Network) -> list[str]:
    """Return the names of the statistics of a network, apart from those that its moves report."""
    norms = [f"norm_{layer.operator.name}" for layer in network.layers if layer.operator.variables]
    return norms + [f"noise_{part.name}" for part in network.noisy]


def statistics(state: NetworkState) -> dict[str, Variable]:
    """Compute the statistics of a network after a sweep, by name.

    ``norm_W1`` and so on are Σ W² + Σ b² of each layer; ``noise_Z2`` and so on are, for each latent and the data, the
    mean square of the noise divided by its variance.
    """
    norms = {f"norm_{operator.name}": operator.squares(w).sum() for operator, w in _weights(state)}
    variances = state.network.noises
    return norms | {f"noise_{name}": square / (variances[name] * n) for name, (square, n) in state.noise.items()}


def log_densities(state: NetworkState) -> dict[str, Variable]:
    """Compute the log densities of weights, latents, data, and all else that was drawn with them, by name."""
    densities, variances = dict(state.densities), state.network.noises
    for name, (square, n) in state.noise.items():
        densities[name] = -0.5 * (square / variances[name] + n * pt.log(2 * math.pi * variances[name]))
    observation = state.network.observation
    if observation is not None and (of_data := observation.log_densities(state.outputs[-1])) is not None:
        densities[observation.name] = of_data.sum()
    if state.network.row_scale is not None:
        for name, (_, n) in state.noise.items():
            densities[name] -= n * pt.log(state.network.row_scale).mean()
    for operator, w in _weights(state):
        densities[operator.name] = operator.log_prior(w)
    for parameter in state.network.parameters:
        densities[parameter.name] = parameter.log_prior
    if state.network.random_inputs is not None:
        densities |= log_densities_of_inputs(state)
    return densities


def _weights(state: NetworkState) -> list[tuple[Weighted, Variable]]:
    """Pair the operator of each layer that has weights with the values of these weights."""
    pairs = zip((layer.operator for layer in state.network.layers), state.weights, strict=True)
    return [(operator, w) for operator, w in pairs if operator.variables]

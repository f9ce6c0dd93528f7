"""What a sweep reports of a network: norms of its layers, the noise of its variables, and their log densities."""

from __future__ import annotations

import math

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.layers.dense import Dense
from pymc_gibbsnn.networks.network import Network

__all__ = ["log_densities", "statistic_names", "statistics"]


def statistic_names(network: Network) -> list[str]:
    """Names of the statistics of a network, beside those of its moves."""
    norms = [f"norm_{layer.operator.name}" for layer in network.layers if layer.operator.variables]
    return norms + [f"noise_{name}" for name, _ in network.noisy]


def statistics(state: NetworkState) -> dict[str, Variable]:
    """Norms Σ W² + Σ b² of the layers, and mean squared noise over variance by latents and data."""
    norms = {f"norm_{operator.name}": operator.squares(w).sum() for operator, w in _weights(state)}
    variances = state.network.noises
    return norms | {f"noise_{name}": square / (variances[name] * n) for name, (square, n) in state.noise.items()}


def log_densities(state: NetworkState) -> dict[str, Variable]:
    """Log densities of variances and precisions that were drawn, latents, data and weights, by name."""
    densities, variances = dict(state.densities), state.network.noises
    for name, (square, n) in state.noise.items():
        densities[name] = -0.5 * (square / variances[name] + n * pt.log(2 * math.pi * variances[name]))
    for operator, w in _weights(state):
        densities[operator.name] = operator.log_prior(w)
    return densities


def _weights(state: NetworkState) -> list[tuple[Dense, Variable]]:
    """Operators that have weights, and these."""
    found = zip((layer.operator for layer in state.network.layers), state.weights, strict=True)
    return [(operator, w) for operator, w in found if operator.variables]

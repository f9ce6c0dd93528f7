"""What all orders of a sweep ask of a layer."""

from __future__ import annotations

from pytensor.graph.basic import Variable

from pymc_gibbsnn.moves.weights import (
    draw_weights,
    draw_weights_from_spectrum,
)
from pymc_gibbsnn.networks.network import Network

__all__ = ["draw_first_weights", "draw_layer_weights"]


def draw_first_weights(
    rng: Variable, network: Network, z: Variable, carry: dict[str, Variable]
) -> tuple[Variable, Variable]:
    """W̃ of the data layer, from what is kept of the data."""
    layer = network.layers[0]
    moments = layer.operator.moments(network.inputs, layer.centred(z))
    if "gram" in carry:
        return draw_weights(rng, carry["gram"], moments, layer.noise, layer.operator.precision)
    u, eigenvalues = carry["u"], carry["eigenvalues"]
    precision = layer.operator.precision
    return draw_weights_from_spectrum(rng, u, eigenvalues, moments, layer.noise, precision, network.is_thin)


def draw_layer_weights(rng: Variable, network: Network, l: int, a: Variable, z: Variable) -> tuple[Variable, Variable]:
    """W̃ of layer l given its input and output."""
    layer, n = network.layers[l], network.inputs.shape[0]
    operator = layer.operator
    gram, moments = operator.gram(a, n), operator.moments(a, layer.centred(z))
    return draw_weights(rng, gram, moments, layer.noise, operator.precision)

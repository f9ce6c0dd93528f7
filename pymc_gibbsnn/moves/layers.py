"""What all orders of a sweep ask of a layer."""

from __future__ import annotations

from pytensor.graph.basic import Variable

from pymc_gibbsnn.moves.weights import (
    draw_weights,
    draw_weights_from_spectrum,
    gram_matrix,
    predict,
    products,
)
from pymc_gibbsnn.networks.network import Dense, Network

__all__ = ["centred", "draw_first_weights", "draw_layer_weights", "mean", "split"]


def draw_first_weights(
    rng: Variable, network: Network, z: Variable, carry: dict[str, Variable]
) -> tuple[Variable, Variable]:
    """W̃ of the data layer, from what is kept of the data."""
    layer = network.layers[0]
    moments = products(network.inputs, centred(layer, z), layer.has_bias)
    if "gram" in carry:
        return draw_weights(rng, carry["gram"], moments, layer.noise, layer.precision)
    u, eigenvalues = carry["u"], carry["eigenvalues"]
    return draw_weights_from_spectrum(rng, u, eigenvalues, moments, layer.noise, layer.precision, network.is_thin)


def draw_layer_weights(rng: Variable, network: Network, l: int, a: Variable, z: Variable) -> tuple[Variable, Variable]:
    """W̃ of layer l given its input and output."""
    layer, n = network.layers[l], network.inputs.shape[0]
    gram, moments = gram_matrix(a, n, layer.has_bias), products(a, centred(layer, z), layer.has_bias)
    return draw_weights(rng, gram, moments, layer.noise, layer.precision)


def mean(layer: Dense, a: Variable, w: Variable) -> Variable:
    """Ã W̃ᵀ, and the offset if there is one."""
    m = predict(a, w, layer.has_bias)
    return m if layer.offset is None else m + layer.offset


def centred(layer: Dense, z: Variable) -> Variable:
    """Z less what the layer does not explain."""
    return z if layer.offset is None else z - layer.offset


def split(w: Variable, layer: Dense) -> tuple[Variable, Variable | float]:
    """(W, b) of W̃ = [W, b], with b = 0 for a layer without bias."""
    return (w[:, :-1], w[:, -1]) if layer.has_bias else (w, 0.0)

r"""The layer-parallel order of the Gibbs sweep: all weights, then all post-activations, then all pre-activations.

    all W̃_l | A_l, Z_{l+1};     all A_l | Z_l, W̃_l, Z_{l+1};     all Z_l | W̃_{l−1}, A_{l−1}, A_l

Inside each group no member depends on another (Piccioli, Troiani, Zdeborová, arXiv 2306.02729, appendix D). Layers of
one shape are drawn as one batch, pre-activations before one activation as the columns of one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.moves.layers import draw_first_weights, draw_layer_weights
from pymc_gibbsnn.moves.postactivations import draw_postactivations
from pymc_gibbsnn.moves.preactivations import draw_preactivations
from pymc_gibbsnn.moves.weights import draw_weights
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.layers.dense import transpose
from pymc_gibbsnn.networks.network import Network

__all__ = ["draw_layers_in_parallel"]


def draw_layers_in_parallel(
    rng: Variable,
    network: Network,
    weights: list[Variable],
    outputs: list[Variable],
    posts: list[Variable],
    carry: dict[str, Variable],
) -> tuple[Variable, list[Variable], list[Variable], list[Variable]]:
    """(rng, W̃ of all layers, Z of all layers, A of all hidden layers) after one pass."""
    layers, hidden = network.layers, network.activations
    operators = [layer.operator for layer in layers]
    weights, outputs, posts = list(weights), list(outputs), list(posts)

    rng, weights[0] = draw_first_weights(rng, network, outputs[0], carry)
    for group in _groups(range(1, len(layers)), lambda l: (operators[l].augmented_shape, operators[l].has_bias)):
        shared = all(operators[l].shares_prior for l in group)
        if len(group) == 1 or not shared:
            for l in group:
                rng, weights[l] = draw_layer_weights(rng, network, l, posts[l - 1], outputs[l])
            continue
        a = pt.stack([operators[l].design(posts[l - 1], network.inputs.shape[0]) for l in group])
        z = pt.stack([layers[l].centred(outputs[l]) for l in group])
        precision = pt.stack([operators[l].precision for l in group])
        rng, w = draw_weights(rng, transpose(a) @ a, transpose(a) @ z, _numbers(layers, group), precision)
        for i, l in enumerate(group):
            weights[l] = w[i]

    for group in _groups(range(len(hidden)), lambda l: layers[l + 1].shape):
        s = pt.stack([hidden[l].function(outputs[l]) for l in group])
        y = pt.stack(
            [layers[l + 1].centred(outputs[l + 1]) - operators[l + 1].intercept(weights[l + 1]) for l in group]
        )
        w, noise_below = pt.stack([operators[l + 1].linear(weights[l + 1]) for l in group]), _numbers(hidden, group)
        noise_above = _numbers(layers, [l + 1 for l in group])
        g = operators[group[0] + 1].gain(w, noise_below, noise_above)
        rng, a = draw_postactivations(rng, s, y, w, g, noise_below, noise_above)
        for i, l in enumerate(group):
            posts[l] = a[i]

    inputs = [network.inputs, *posts]
    for group in _groups(range(len(hidden)), lambda l: _table(hidden[l].function)):
        widths = [layers[l].shape[0] for l in group]
        m = pt.concatenate([layers[l].mean(inputs[l], weights[l]) for l in group], axis=1)
        a, z = (pt.concatenate([parts[l] for l in group], axis=1) for parts in (posts, outputs))
        noise_below, noise_above = (
            pt.concatenate([pt.full(width, parts[l].noise) for l, width in zip(group, widths, strict=True)])
            for parts in (layers, hidden)
        )
        rng, z = draw_preactivations(rng, z, m, a, noise_below, noise_above, hidden[group[0]].function)
        start = 0
        for l, width in zip(group, widths, strict=True):
            outputs[l], start = z[:, start : start + width], start + width
    return rng, weights, outputs, posts


def _groups(numbers: Iterable[int], key: Callable) -> list[list[int]]:
    """The numbers, those of one key together."""
    groups = {}
    for number in numbers:
        groups.setdefault(key(number), []).append(number)
    return list(groups.values())


def _table(function) -> tuple:
    """What is equal for equal activations."""
    if isinstance(function, PiecewiseLinear):
        return tuple(map(tuple, (function.breakpoints, function.slopes, function.intercepts)))
    return (function,)


def _numbers(parts, group: list[int]) -> Variable:
    """The noises of a group, to stand before its matrices."""
    return pt.stack([parts[l].noise for l in group])[:, None, None]

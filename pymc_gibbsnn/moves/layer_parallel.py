r"""The layer-parallel order of the Gibbs sweep: all weights, then all post-activations, then all pre-activations.

    all W̃_l | A_l, Z_{l+1};     all A_l | Z_l, W̃_l, Z_{l+1};     all Z_l | W̃_{l−1}, A_{l−1}, A_l

Inside each group no member depends on another (Piccioli, Troiani, Zdeborová, arXiv 2306.02729, appendix D). Layers of
one shape are drawn as one batch, pre-activations before one activation as the columns of one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.moves.layers import centred, draw_first_weights, draw_layer_weights, mean, split
from pymc_gibbsnn.moves.postactivations import draw_postactivations, gain
from pymc_gibbsnn.moves.preactivations import draw_preactivations
from pymc_gibbsnn.moves.weights import augment, draw_weights, transpose
from pymc_gibbsnn.networks.activations import PiecewiseLinear
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
    weights, outputs, posts = list(weights), list(outputs), list(posts)

    rng, weights[0] = draw_first_weights(rng, network, outputs[0], carry)
    for group in _groups(range(1, len(layers)), lambda l: (layers[l].augmented_shape, layers[l].has_bias)):
        shared = all(layers[l].precision.type.broadcastable[0] for l in group)
        if len(group) == 1 or not shared:
            for l in group:
                rng, weights[l] = draw_layer_weights(rng, network, l, posts[l - 1], outputs[l])
            continue
        a = pt.stack([augment(posts[l - 1], network.inputs.shape[0], layers[l].has_bias) for l in group])
        z = pt.stack([centred(layers[l], outputs[l]) for l in group])
        precision = pt.stack([layers[l].precision for l in group])
        rng, w = draw_weights(rng, transpose(a) @ a, transpose(a) @ z, _numbers(layers, group), precision)
        for i, l in enumerate(group):
            weights[l] = w[i]

    for group in _groups(range(len(hidden)), lambda l: layers[l + 1].shape):
        s = pt.stack([hidden[l].function(outputs[l]) for l in group])
        ws, bs = zip(*(split(weights[l + 1], layers[l + 1]) for l in group), strict=True)
        y = pt.stack([centred(layers[l + 1], outputs[l + 1]) - b for l, b in zip(group, bs, strict=True)])
        w, noise_below = pt.stack(ws), _numbers(hidden, group)
        noise_above = _numbers(layers, [l + 1 for l in group])
        g = gain(w, layers[group[0] + 1].shape, noise_below, noise_above)
        rng, a = draw_postactivations(rng, s, y, w, g, noise_below, noise_above)
        for i, l in enumerate(group):
            posts[l] = a[i]

    inputs = [network.inputs, *posts]
    for group in _groups(range(len(hidden)), lambda l: _table(hidden[l].function)):
        widths = [layers[l].shape[0] for l in group]
        m = pt.concatenate([mean(layers[l], inputs[l], weights[l]) for l in group], axis=1)
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

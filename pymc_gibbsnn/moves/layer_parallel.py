r"""The layer-parallel order of the Gibbs sweep: all weights, then all post-activations, then all pre-activations.

    all W̃_l | A_l, Z_{l+1};     all A_l | Z_l, W̃_l, Z_{l+1};     all Z_l | W̃_{l−1}, A_{l−1}, A_l

Inside each of the three groups no member depends on another, so that all may be drawn at the same time (Piccioli,
Troiani, Zdeborová, arXiv 2306.02729, appendix D). Weights, and post-activations, of layers of the same shape are
stacked and drawn as one batch; pre-activations of layers with the same activation are drawn side by side, as the
columns of one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.moves.postactivations import draw_postactivations
from pymc_gibbsnn.moves.preactivations import draw_preactivations
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.moves.weights import draw_weights, draw_weights_of
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.layers.dense import transpose

__all__ = ["all_postactivations", "all_preactivations", "all_weights_above_data"]


def all_weights_above_data(rng: Variable, state: NetworkState) -> tuple[Variable, NetworkState]:
    """Draw the weights W̃ of all layers but the first, given the inputs and outputs of each."""
    layers, weights = state.network.layers, list(state.weights)
    operators = [layer.operator for layer in layers]
    learning = [l for l in range(1, len(layers)) if operators[l].variables]
    for group in _groups(learning, lambda l: (operators[l].shape, operators[l].augmented_shape)):
        if len(group) == 1 or not all(operators[l].shares_prior for l in group):
            for l in group:
                rng, weights[l] = draw_weights_of(rng, layers[l], state.input(l), state.outputs[l], state.samples)
            continue
        a = pt.stack([operators[l].design(state.input(l), state.samples) for l in group])
        z = pt.stack([layers[l].centred(state.outputs[l]) for l in group])
        precision = pt.stack([operators[l].precision for l in group])
        size = len(group), *operators[group[0]].size
        rng, w = draw_weights(rng, transpose(a) @ a, transpose(a) @ z, _numbers(layers, group), precision, size)
        for i, l in enumerate(group):
            weights[l] = w[i]
    return rng, replace(state, weights=tuple(weights))


def all_postactivations(rng: Variable, state: NetworkState) -> tuple[Variable, NetworkState]:
    """Draw the post-activations A of all hidden layers, each given its pre-activations Z and the layer above."""
    layers, hidden, posts = state.network.layers, state.network.activations, list(state.posts)
    for group in _groups(range(len(hidden)), lambda l: layers[l + 1].shape):
        sites = [state.site(l) for l in group]
        s = pt.stack([site.activation.function(site.z) for site in sites])
        y, v = pt.stack([site.y for site in sites]), pt.stack([site.v for site in sites])
        noise_below, noise_above = _numbers(hidden, group), _numbers(layers, [l + 1 for l in group])
        g = sites[0].above.operator.gain(v, noise_below, noise_above)
        rng, a = draw_postactivations(rng, s, noise_below, y, *_linear(v, noise_below * g), noise_above)
        for i, l in enumerate(group):
            posts[l] = a[i]
    return rng, replace(state, posts=tuple(posts))


def all_preactivations(rng: Variable, state: NetworkState) -> tuple[Variable, NetworkState]:
    """Draw the pre-activations Z of all hidden layers, each given its mean from the layer below and its A."""
    layers, hidden, outputs = state.network.layers, state.network.activations, list(state.outputs)
    for group in _groups(range(len(hidden)), lambda l: _table(hidden[l].function)):
        widths = [state.outputs[l].shape[1] for l in group]
        m = pt.concatenate([state.site(l).mean for l in group], axis=1)
        a, z = (pt.concatenate([parts[l] for l in group], axis=1) for parts in (state.posts, state.outputs))
        noise_below, noise_above = (
            pt.concatenate([pt.full(width, parts[l].noise) for l, width in zip(group, widths, strict=True)])
            for parts in (layers, hidden)
        )
        rng, z = draw_preactivations(rng, z, m, a, noise_below, noise_above, hidden[group[0]].function)
        start = 0
        for l, width in zip(group, widths, strict=True):
            outputs[l], start = z[:, start : start + width], start + width
    return rng, replace(state, outputs=tuple(outputs))


def _linear(v: Variable, g: Variable) -> tuple[Callable, Callable]:
    """Return the maps A ↦ A Wᵀ and R ↦ R G of a batch of dense layers."""
    return lambda a: a @ transpose(v), lambda r: r @ g


def _groups(numbers: Iterable[int], key: Callable) -> list[list[int]]:
    """Group numbers by their key, in the order in which the keys first appear."""
    groups = {}
    for number in numbers:
        groups.setdefault(key(number), []).append(number)
    return list(groups.values())


def _table(function) -> tuple:
    """Return a key that is equal for equal activations: the table of a piecewise-linear one, or the function itself."""
    if isinstance(function, PiecewiseLinear):
        return tuple(map(tuple, (function.breakpoints, function.slopes, function.intercepts)))
    return (function,)


def _numbers(parts, group: list[int]) -> Variable:
    """Stack the noise variances of the parts of a group, in the shape (group, 1, 1) that fits its stacked matrices."""
    return pt.stack([parts[l].noise for l in group])[:, None, None]

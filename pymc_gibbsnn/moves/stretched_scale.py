r"""The scale of each unit along a stretch of layers, from the weights that come into it to those that go out of it.

Between the weights of a convolution and those of the next layer there may be a pool and an activation, in either order,
each with noise after it. All latents X_k of a unit (a channel) on such a stretch, Z, P and A say, can be multiplied by
one c, its incoming weights with them, and its outgoing weights divided by it. Where all activations have
σ(cz) = c σ(z), nothing else changes. With u = log c, as in :mod:`pymc_gibbsnn.moves.centred_scale`, exactly

    log p(u) = p u − ½ Q1 e^{2u} − ½ Q2 e^{−2u} + const,      p = d + Σ_k N_k − c_out,
    Q1 = Σ_k Σ (X_k − M_k)²/Δ_k + Σ Λ W̃²,      Q2 = Σ Λ' w²,

where M_k is the mean of X_k given what lies below, N_k how many numbers X_k has for the unit, d counts the weights that
come in, the bias included, and c_out those that go out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.moves.centred_scale import draw_scales
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.given import given
from pymc_gibbsnn.networks.network import Network

__all__ = ["stretched_conditional", "stretched_scales", "stretches"]


def stretches(network: Network) -> dict[int, tuple[int, int]]:
    """Find the stretches of a network that hold a pool or a layer without an activation above it.

    Returns
    -------
    dict of int to tuple of int
        For the number m − 1 of the last layer of a stretch, (l, m): the layers whose weights come in and go out.
    """
    ends, layers = {}, network.layers
    learning = [l for l, layer in enumerate(layers) if layer.operator.variables]
    for l, m in pairwise(learning):
        functions = [activation.function for activation in network.activations[l:m] if activation]
        is_plain = m == l + 1 and len(functions) == 1  # which pymc_gibbsnn.moves.centred_scale serves
        has_offset = any(layer.offset is not None for layer in layers[l:m])
        pairs = pairwise(layer.operator for layer in layers[l : m + 1])
        keeps_units = all(above.knows_units_of(below) for below, above in pairs)
        if keeps_units and not (is_plain or has_offset) and all(function.is_homogeneous for function in functions):
            ends[m - 1] = l, m
    return ends


def stretched_conditional(
    state: NetworkState, l: int, m: int
) -> tuple[Variable, Variable, Variable, dict[str, Variable]]:
    """Compute the conditional distribution of the scales of the units of layer l, up to layer m.

    Parameters
    ----------
    state : NetworkState
        The network.
    l, m : int
        The layers whose weights come in and go out.

    Returns
    -------
    p : Variable, ()
    incoming, outgoing : Variable, (h,)
        Q1 and Q2 of each unit.
    squares : dict of str to Variable, (h,)
        Σ (X_k − M_k)² of each unit, by the names of the latents.
    """
    first, last, above = (state.network.layers[k].operator for k in (l, m - 1, m))
    incoming, squares = first.incoming(state.weights[l]), {}
    count = given(first.fan_in - round(last.places * above.fan_out))
    for k in range(l, m):
        site = state.site(k)
        by_unit, places = site.layer.operator.by_unit, site.layer.operator.places
        parts = [(site.layer, site.z - site.mean)]
        if site.activation:
            parts.append((site.activation, site.post - site.activation.function(site.z)))
        for part, noise in parts:
            squares[part.name] = by_unit(noise**2)
            incoming = incoming + squares[part.name] / part.noise
            count = count + state.samples * places
    outgoing = last.by_unit(above.outgoing(state.weights[m])[None])
    return pt.cast(count, incoming.dtype), incoming, outgoing, squares


def stretched_scales(l: int, m: int) -> Callable:
    """Make the move that draws a scale for each unit of layer l and applies it to all up to the weights of layer m."""

    def step(rng: Variable, state: NetworkState) -> tuple[Variable, NetworkState]:
        *parameters, squares = stretched_conditional(state, l, m)
        rng, c = draw_scales(rng, *parameters)
        weights, outputs, posts = list(state.weights), list(state.outputs), list(state.posts)
        layers, activations = state.network.layers, state.network.activations
        for k in range(l, m):
            columns = layers[k].operator.spread(c)
            outputs[k] = outputs[k] * columns
            posts[k] = posts[k] * columns if activations[k] else outputs[k]
        weights[l] = layers[l].operator.scaled(weights[l], c)
        weights[m] = layers[m].operator.relieved(weights[m], layers[m - 1].operator.spread(c))
        squares = state.squares | {name: (square * c**2).sum() for name, square in squares.items()}
        new = {"weights": tuple(weights), "outputs": tuple(outputs), "posts": tuple(posts), "squares": squares}
        return rng, replace(state, **new)

    return step

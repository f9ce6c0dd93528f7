"""The noises of a network's latents, and the latents that other weights or inputs give with the same noises.

With E_l the noise of Z_l and F_l that of A_l, in the letters of :mod:`pymc_gibbsnn.moves`,

    E_{l+1} = Z_{l+1} − Ã_l W̃_lᵀ,   F_l = A_l − σ(Z_l).

Moves that hold these fixed see latents as functions of weights and inputs [1]_, and the data as drawn given the mean of
the last Z.

References
----------
.. [1] Y. Yu, X.-L. Meng. To center or not to center: that is not the question. J. Comput. Graph. Stat. 20 (2011).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, cast

from pytensor.graph.basic import Variable

from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.likelihoods import LatentLikelihood
from pymc_gibbsnn.networks.network import Activation

__all__ = ["Noises", "likelihood_of_means", "noises", "with_noises"]


class Noises(NamedTuple):
    """The noises of pre-activations Z, of every layer, and of post-activations A, of every hidden layer."""

    of_outputs: list[Variable]
    of_posts: list[Variable]


def noises(state: NetworkState) -> Noises:
    """Compute the noises E of Z and F of A in a network whose layers all have activations between them."""
    network = state.network
    of_outputs = [
        z - layer.mean(state.input(l), w)
        for l, (layer, w, z) in enumerate(zip(network.layers, state.weights, state.outputs, strict=True))
    ]
    of_posts = [
        a - cast(Activation, activation).function(z)
        for activation, a, z in zip(network.activations, state.posts, state.outputs, strict=False)
    ]
    return Noises(of_outputs, of_posts)


def with_noises(state: NetworkState, fixed: Noises) -> NetworkState:
    """Return the state with those Z and A that its inputs and weights give with these noises."""
    a, outputs, posts = state.network.inputs, [], []
    for l, (layer, w) in enumerate(zip(state.network.layers, state.weights, strict=True)):
        outputs.append(layer.mean(a, w) + fixed.of_outputs[l])
        if l < len(fixed.of_posts):
            a = cast(Activation, state.network.activations[l]).function(outputs[l]) + fixed.of_posts[l]
            posts.append(a)
    return replace(state, outputs=tuple(outputs), posts=tuple(posts))


class _ObservedOutput(NamedTuple):
    """Data y (n, units) that are the last Z itself, as a likelihood of its mean; its noise is not held fixed."""

    y: Variable

    def log_densities_of_means(self, mean: Variable, noise: Variable, variance: Variable) -> Variable:
        return -((self.y - mean) ** 2) / (2 * variance)

    def slopes_of_means(self, mean: Variable, noise: Variable, variance: Variable) -> Variable:
        return (self.y - mean) / variance


def likelihood_of_means(state: NetworkState) -> LatentLikelihood | _ObservedOutput:
    """Return the likelihood of the data of a network given the mean of its last Z."""
    return state.network.observation or _ObservedOutput(state.outputs[-1])

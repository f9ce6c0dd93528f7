r"""The scale of the last weights below class labels, moved with latents behind the labels integrated out.

Model, in the letters of :mod:`pymc_gibbsnn.moves`, for the last layer,

    Z = M + N(0, Δ),   M = Ã W̃ᵀ + offset,   W̃ ~ N(0, 1/Λ),   y = argmax Z, or y = 1[Z > 0].

The n k noises of Z tie the size of W̃ to that of Z, and the other way round. Labels fix both much less where classes are
far apart, and then plain Gibbs moves follow this ridge of the posterior in small steps. So W̃ becomes c W̃ given Ã,
y and, for the argmax, the noises of Z_j of all classes j but the label's; the latent Z_y of the label is integrated
out. If a prior precision τ ~ Gamma(α, β) of weights of this layer is learned, and serves nothing else, it becomes τ/c²,
so that their prior does not hold them back; the same goes for a learned variance 1/τ ~ InverseGamma(α, β). With u = log
c, and a sum over all such τ, exactly

    log p(u) = Σ_i log P_i(u) + p u − ½ Q e^{2u} − Σ_τ (2 α u + β τ e^{−2u}) + const,

    argmax:   P_i(u) = Φ((M_y − max_j (M_j + E_j))/√Δ),   with M at c W̃, and E = Z − M, the noises, as they are,
    sign:     P_i(u) = Φ(±M/√Δ),                          with + for the label 1 and − for 0.

Here p counts the weights whose precisions stay as they are, and Q = Σ Λ W̃² is the sum over these. One
Metropolis-Hastings step proposes u = h ξ, with a normal number ξ and a step size h whose logarithm is uniform.

This joins a move along an orbit [1]_ with one in which noises are held fixed [2]_. Z_y is left out of date: the draw of
Z given the labels, which does not read Z_y, must follow before anything reads it.

References
----------
.. [1] J. S. Liu, Y. N. Wu. Parameter expansion for data augmentation. Journal of the American Statistical Association
   94 (1999).
.. [2] Y. Yu, X.-L. Meng. To center or not to center: that is not the question. J. Comput. Graph. Stat. 20 (2011).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal, uniform

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.collapsed_variances import step_sizes
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.given import given
from pymc_gibbsnn.networks.likelihoods.label_likelihood import LabelLikelihood
from pymc_gibbsnn.networks.network import Layer, LearnedVariance, Network

__all__ = ["label_scale", "label_scale_density", "scales_of"]


def label_scale(rng: Variable, state: NetworkState) -> tuple[Variable, NetworkState]:
    """Move the scale of the last weights, and precisions that are theirs alone, by one Metropolis-Hastings step."""
    w, z, values = state.weights[-1], state.outputs[-1], state.values
    log_density, linear = label_scale_density(state)
    zero, one = pt.constant(np.array([0, 1], w.dtype))
    rng, xi = draw(normal, rng, zero, one)
    rng, uniforms = draw(uniform, rng, zero, one, size=(2,))
    u = step_sizes(uniforms[0]) * xi
    u = pt.switch(pt.log1p(-uniforms[1]) < log_density(u) - log_density(zero), u, 0)
    scales = scales_of(state.network, state.network.layers[-1:])
    values = values | {scale.value: scale.scaled(values[scale.value], u) for scale in scales}
    new = {
        "weights": (*state.weights[:-1], w * pt.exp(u)),
        "outputs": (*state.outputs[:-1], z + pt.expm1(u) * linear),
    }
    return rng, replace(state, values=values, network=state.read(values), **new)


def label_scale_density(state: NetworkState) -> tuple[Callable[[Variable], Variable], Variable]:
    """Return the log density of u, up to a constant, as a function of u; and Ã W̃ᵀ (n, k)."""
    layer, w = state.network.layers[-1], state.weights[-1]
    scales = scales_of(state.network, [layer])
    observation, operator = cast(LabelLikelihood, state.network.observation), layer.operator
    m = layer.mean(state.input(len(state.posts)), w)
    noise, linear = state.outputs[-1] - m, layer.centred(m)
    learned = {use.value for scale in scales for use in scale.uses}
    stays = np.ones(operator.augmented_shape, w.dtype)  # whether the precision of a weight stays as it is
    operator.linear(stays)[:] = operator.weights not in learned
    stays[:, -1] *= operator.bias not in learned
    count = given(np.asarray(stays.sum(), w.dtype))
    squares = (given(stays) * operator.precision * w**2).sum()
    precisions = [pt.exp(scale.log_precision(state.values[scale.value])) for scale in scales]

    def log_density(u: Variable) -> Variable:
        density = observation.log_densities_of_means(m + pt.expm1(u) * linear, noise, layer.noise).sum()
        density += count * u - squares * pt.exp(2 * u) / 2
        for scale, tau in zip(scales, precisions, strict=True):
            density -= (2 * scale.alpha * u + scale.rate * tau * pt.exp(-2 * u)).sum()
        return density

    return log_density, linear


def scales_of(network: Network, layers: Sequence[Layer]) -> list[LearnedVariance]:
    """List the learned scales of the weights and biases of these layers alone, at most one for each of them."""
    rest, scales = {v for layer in layers for v in layer.operator.variables}, []
    for scale in network.variances:
        users = {use.value for use in scale.uses}
        if users <= rest:
            scales.append(scale)
            rest -= users
    return scales

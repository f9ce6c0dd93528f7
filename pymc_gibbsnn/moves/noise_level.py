r"""The level of the noise of rows: the variance of the data's noise, moved against the scales of all rows.

Model, as in :mod:`pymc_gibbsnn.moves.row_scales`: one network gives G = Ã w̃ + N(0, v), where w̃ ~ N(0, 1/Λ) are the
weights of its last layer, and G sets the scale c of each row of another network,

    c² = f + 1/(exp(−a G − b) + 1/s),   y = m + c N(0, Δ) with k numbers in each row,   Δ ~ InverseGamma(α, β).

A larger Δ and smaller scales in all rows give y nearly the same noise. Plain Gibbs moves go from one to the other in
small steps, since Δ is tied to the scales, G to w̃, and w̃ to G. So Δ, w̃ and G move together, by a number t:

    Δ → eᵗ Δ,   w̃ → w̃ − (t/a) u,   G → G − (t/a) Ã u.

Held fixed are Ã, the noise of G, and the noises E and F of the other network in units of their deviations, so that its
latents Z and A move with c. The direction u is the regression of 1 on Ã that holds the noise c² Δ of the rows as steady
as the prior of w̃ allows, if f is small and s large; k/2 is the Fisher information that a row has of log(c² Δ):

    (k/2 ÃᵀÃ + Λ/a²) u = k/2 Ãᵀ1.

It depends on nothing that moves, so that the map is a translation of (log Δ, w̃, G), and with r² the sum of (y − m)² in
a row

    log p(t) = −½ Σ_rows [k log(c² Δ) + r²/(c² Δ)] − ½ Σ Λ w̃² − α log Δ − β/Δ + const.

One Metropolis-Hastings step proposes t = h ξ, with a standard normal number ξ and a step size h whose logarithm is
uniform.

Where the data have a distribution around a last latent of the other network, which is integrated out here
(:mod:`pymc_gibbsnn.moves.integrated_latent`), the variance of a number of y is c² V(Δ) in place of c² Δ in log p: V is
the sum of the variance of the noise of that latent and of one that is proportional to Δ, the noise of y around it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal, uniform

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.collapsed_variances import step_sizes
from pymc_gibbsnn.moves.plus_diagonal import plus_diagonal
from pymc_gibbsnn.moves.row_scales import choose, moved, other_network, squares_of_rows
from pymc_gibbsnn.moves.site import NetworkState, Site
from pymc_gibbsnn.networks.network import LearnedVariance, Network

__all__ = ["has_noise_level", "noise_level"]


def has_noise_level(network: Network) -> bool:
    """Whether the move can be made: a network gives scales of rows of another, whose data have a variance of their own.

    It is not made for a network of noise without hidden layers whose inputs have more columns than rows.
    """
    is_wide = len(network.layers) == 1 and network.is_thin
    return network.sets_noise_of is not None and not is_wide and _variance(network) is not None


def _variance(network: Network) -> LearnedVariance | None:
    """Return the variance of the data of the other network, which may also be that of its last latent around these."""
    other, data = network.sets_noise_of, network.observation.name
    for one in other.variances:
        parts = {use.part for use in one.uses}
        if one.shape == () and not one.is_precision and data in parts and parts <= {data, other.layers[-1].name}:
            return one
    return None


def noise_level(rng: Variable, state: NetworkState) -> tuple[Variable, NetworkState]:
    """Move the variance of data and the scales of all rows against each other by one Metropolis-Hastings step."""
    likelihood: Any = state.network.observation
    site, outputs = state.site(len(state.weights) - 1), likelihood.network.layers[-1].shape[0]
    variance: Any = _variance(state.network)
    alpha, rate = variance.of_noise
    noise = variance.noise_at(state.values[variance.value])
    other = other_network(state)
    zero, one = pt.constant(np.array([0, 1], site.z.dtype))
    rng, xi = draw(normal, rng, zero, one)
    rng, uniforms = draw(uniform, rng, zero, one, size=(2,))
    t = step_sizes(uniforms[0]) * xi
    u = _direction(site, likelihood.slope, outputs)
    w = site.w - t / likelihood.slope * u
    g = site.z - t / likelihood.slope * site.layer.operator.forward(site.a, u)
    old, new = likelihood.squared_scale(site.z), likelihood.squared_scale(g)
    values = state.values | {variance.value: variance.value_at(noise * pt.exp(t))}
    proposed = moved(other_network(replace(state, values=values, network=state.read(values))), pt.sqrt(new / old))

    def of_rows(c2: Variable, state: NetworkState) -> Variable:
        of_noise = pt.log(state.network.layers[-1].noise * pt.ones_like(state.outputs[-1])).sum()
        return (outputs * pt.log(c2) + squares_of_rows(state) / c2).sum() + of_noise

    change = of_rows(new, proposed) - of_rows(old, other)
    change += (site.layer.operator.precision * (w**2 - site.w**2)).sum()
    log_ratio = -change / 2 - alpha * t - rate / noise * pt.expm1(-t)
    accept = pt.log1p(-uniforms[1]) < log_ratio
    w, g, t = (pt.switch(accept, *pair) for pair in ((w, site.w), (g, site.z), (t, zero)))
    values = choose(accept, proposed, other).new_values
    values |= {variance.value: variance.value_at(noise * pt.exp(t))}
    moving = {"weights": (*state.weights[:-1], w), "outputs": (*state.outputs[:-1], g)}
    return rng, replace(state, values=values, network=state.read(values), **moving)


def _direction(site: Site, slope: Variable, outputs: int) -> Variable:
    """Compute u (1, d) for the last layer of the network of noise."""
    operator, information = site.layer.operator, outputs / 2
    gram = information * operator.gram(site.a, site.samples)
    target = information * operator.moments(site.a, pt.ones_like(site.z))
    factor = pt.linalg.cholesky(plus_diagonal(gram, operator.precision[0] / slope**2))
    half = pt.linalg.solve_triangular(factor, target, lower=True, b_ndim=2)
    return pt.linalg.solve_triangular(factor.T, half, lower=False, b_ndim=2).T

r"""The scales of heteroscedastic noise, drawn with the noise of latents in units of its deviation held fixed.

Model. A network with weights W̃, latents Z_l and A_l and data y (k numbers in each row) multiplies all noise of a row by
the scale c of this row, which depends on the output of another noisy network
(:mod:`pymc_gibbsnn.networks.likelihoods.row_noise`),

    c² = f + 1/(exp(−a G − b) + 1/s),   G ~ N(M, v),
    Z_l = A_{l−1} W_{l−1}ᵀ + b + c E_l,   A_l = σ(Z_l) + c F_l,   y = A_L W_Lᵀ + b + c N(0, Δ).

Given Z and A, all noises of a row tie c to its present value. Given E and F in their place, which is the other
parametrisation of interweaving [1]_, only the data do: with m(G) the mean of y given A, which moves with c, and
q(G) = Σ (y − m(G))²/Δ over the k numbers of a row, which may have a Δ each,

    log π(G) = −(G − M)²/2v − (k log c² + q(G)/c²)/2 + const.

With q held fixed, f = 0 and infinite s this is log-concave, and has its mode G* where

    G* = M − k a v/2 + t/a,   t eᵗ = a² v q/2c₀²,   c₀² = exp(a G + b) at G = M − k a v/2,

with the second derivative −(1 + t)/v there. One Metropolis-Hastings step proposes G of each row from the logistic
distribution of this mean and variance v/(1 + t), whose tails are heavier than those of π and which depends on the
present G by q alone. All rows are accepted or rejected by themselves, and their Z and A move with them.

References
----------
.. [1] Y. Yu, X.-L. Meng. To center or not to center: that is not the question. J. Comput. Graph. Stat. 20 (2011).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import uniform

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.fixed_noise import Noises, noises, with_noises
from pymc_gibbsnn.moves.site import Acceptance, Move, NetworkState, Nothing
from pymc_gibbsnn.networks.network import Network

__all__ = ["choose", "log_density_of_rows", "moved", "other_network", "row_scales", "squares_of_rows"]

STEPS = 4  # of Newton's method for the mode
WIDTH = math.sqrt(3) / math.pi  # the scale of a logistic distribution of standard deviation 1


def row_scales(network: Network) -> Move:
    """Make the move of the last pre-activation G of a network, which gives the scales of the rows of another."""

    def step(rng: Variable, state: NetworkState, memory: Nothing) -> tuple[Variable, NetworkState, Nothing, Acceptance]:
        l = len(state.weights) - 1
        observation: Any = state.network.observation
        site, slope, squared_scale = state.site(l), observation.slope, observation.squared_scale
        other = other_network(state)
        outputs = other.network.layers[-1].shape[0]
        g, noise = site.z, site.layer.noise
        zero, one = pt.constant(np.array([0, 1], g.dtype))
        size = state.samples, 1
        centre = site.mean - outputs * slope * noise / 2

        def log_density(g: Variable, squares: Variable) -> Variable:
            return -((g - site.mean) ** 2) / (2 * noise) + log_density_of_rows(other, squared_scale(g), squares)

        def log_proposal(g: Variable, place: Variable, width: Variable) -> Variable:
            z = abs(g - place) / width
            return -z - 2 * pt.log1p(pt.exp(-z)) - pt.log(width)

        def proposal(squares: Variable) -> tuple[Variable, Variable]:
            """Return place and scale of the proposal."""
            t = _lambert(pt.log(slope**2 * noise * squares / 2) - slope * centre - observation.intercept)
            return centre + t / slope, WIDTH * pt.sqrt(noise / (1 + t))

        squares = squares_of_rows(other)
        place, width = proposal(squares)
        rng, u = draw(uniform, rng, zero, one, size=size)
        new = place + width * (pt.log(u) - pt.log1p(-u))
        rng, u = draw(uniform, rng, zero, one, size=size)
        proposed = moved(other, pt.sqrt(squared_scale(new) / squared_scale(g)))
        new_squares = squares_of_rows(proposed)
        log_ratio = log_density(new, new_squares) - log_density(g, squares)
        log_ratio += log_proposal(g, *proposal(new_squares)) - log_proposal(new, place, width)
        accept = pt.log1p(-u) < log_ratio
        g = pt.switch(accept, new, g)
        values = choose(accept, proposed, other).new_values
        squares = state.squares | {site.layer.name: ((g - site.mean) ** 2).sum()}
        state = replace(state, values=values, outputs=(*state.outputs[:-1], g), squares=squares)
        return rng, state, memory, Acceptance(pt.cast(accept, g.dtype).mean())

    return Move.of(network.layers[-1].name, step, report=Acceptance)


def other_network(state: NetworkState) -> NetworkState:
    """Return the other network, whose noise this one sets, with latents and data not divided by scales of rows."""
    network = replace(state.network.sets_noise_of, row_scale=None)
    return NetworkState.begin(lambda values: network, state.values, state.tuning)


def moved(state: NetworkState, ratio: Variable, inputs: Variable | None = None) -> NetworkState:
    """Multiply the noise of all latents of a network by a number (n, 1) for each row, optionally at other inputs."""
    network = state.network if inputs is None else replace(state.network, inputs=inputs)
    scaled = Noises(*([ratio * noise for noise in of_kind] for of_kind in noises(state)))
    new = with_noises(replace(state, network=network), scaled)
    return replace(new, outputs=(*new.outputs[:-1], state.outputs[-1]))


def choose(accept: Variable, proposed: NetworkState, state: NetworkState) -> NetworkState:
    """Take the latents of a network from what is proposed, where that is accepted, (n, 1) or (); else as they are."""
    zs, posts = (
        tuple(pt.switch(accept, *pair) for pair in zip(*pairs, strict=True))
        for pairs in ((proposed.outputs[:-1], state.outputs[:-1]), (proposed.posts, state.posts))
    )
    return replace(state, outputs=(*zs, state.outputs[-1]), posts=posts)


def squares_of_rows(state: NetworkState) -> Variable:
    """Compute q (n, 1) of the rows of a network."""
    last = state.network.layers[-1]
    errors = state.outputs[-1] - last.mean(state.input(len(state.posts)), state.weights[-1])
    return (errors**2 / last.noise).sum(axis=1, keepdims=True)


def log_density_of_rows(state: NetworkState, squared_scale: Variable, squares: Variable) -> Variable:
    """Compute log p(y | A, c) (n, 1) of the rows of a network from c² and q, up to a constant."""
    return -(state.network.layers[-1].shape[0] * pt.log(squared_scale) + squares / squared_scale) / 2


def _lambert(log_x: Variable) -> Variable:
    """Compute nearly Lambert's W(x), the solution t of t eᵗ = x, of log x, by Newton's method for log t."""
    log_x = pt.clip(log_x, -50, 1e4)
    u = pt.switch(log_x > 1, pt.log(pt.maximum(log_x, 1)), log_x)
    for _ in range(STEPS):
        t = pt.exp(u)
        u -= (t + u - log_x) / (t + 1)
    return pt.exp(u)

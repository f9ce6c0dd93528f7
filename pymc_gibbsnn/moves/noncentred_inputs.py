r"""Rows of inputs that are not known, moved with the noises of all latents held fixed.

Given the first latents Z_2 of a row, its unknown inputs are known to within the noise of these, which may be small; a
draw given Z_2 (:mod:`pymc_gibbsnn.moves.random_inputs`) then moves them by as little. Here the latents of a row move
with its inputs, in the letters of :mod:`pymc_gibbsnn.moves` and with E and F the noises (:mod:`~.fixed_noise`):

    Z_{l+1} = Ã_l W̃_lᵀ + E_{l+1},   A_l = σ(Z_l) + F_l.

Of entries R of the row that are to move, the proposal is a draw from the prior given all others, with the component k
of a mixture and the factors f of the row, or given measured values x̃,

    k', f', x'_R ~ p(k, f, x_R | x_{−R}),   or   x'_R ~ p(x_R | k, f, x̃_R).

For each row R are, with equal probability, all entries that are not known, or one of them, chosen at random. The
proposal is accepted, for each row by itself, with the probability

    min(1, p(y | M(x') + E)/p(y | M(x) + E)),

where M(x) is the mean of the last latent, and E its noise. Where y is this latent itself, p is N(y; M, Δ). Where the
last latent G sets the scales c of the noise in another network, all noise of a row of this other network, divided by c,
is held fixed, too (:mod:`pymc_gibbsnn.moves.row_scales`), and p is the density of the data of the other network, whose
mean and whose scale c are those at x or x'. A last latent around which these data have a distribution is integrated out
(:mod:`pymc_gibbsnn.moves.integrated_latent`).

Below labels that are a function of Z_{L+1} that of the label is integrated out and left out of date: the draw of
Z_{L+1} given the labels must follow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import normal, uniform

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.factors_of_inputs import factors_of_rows
from pymc_gibbsnn.moves.fixed_noise import likelihood_of_means, noises, with_noises
from pymc_gibbsnn.moves.mixture_of_inputs import draw_components
from pymc_gibbsnn.moves.row_scales import choose, log_density_of_rows, moved, other_network, squares_of_rows
from pymc_gibbsnn.moves.site import NOTHING, Acceptance, Move, NetworkState, Nothing
from pymc_gibbsnn.networks.likelihoods.row_noise import RowNoise
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.networks.random_inputs import RandomInputs

__all__ = ["noncentred_inputs"]


def noncentred_inputs(network: Network) -> Move:
    """Make the move for a network with random inputs; it reports the share of rows in which it was accepted."""
    return Move.of(_inputs(network).name, _step, NOTHING, Acceptance)


def _step(rng: Variable, state: NetworkState, memory: Nothing) -> tuple[Variable, NetworkState, Nothing, Acceptance]:
    """Make the move; argument and result are those of :class:`~pymc_gibbsnn.moves.site.Move`."""
    inputs, fixed = _inputs(state.network), noises(state)
    rng, moving = _chosen(rng, state)
    rng, proposed = _proposal(rng, state, moving)
    values = state.values | proposed
    proposal = with_noises(replace(state, values=values, network=state.read(values)), fixed)
    noise = fixed.of_outputs[-1]
    if state.network.sets_noise_of is None:
        log_ratio = _log_density(state, proposal.outputs[-1] - noise, noise)
        log_ratio -= _log_density(state, state.outputs[-1] - noise, noise)
    else:
        other, proposal_of_other, log_ratio = _of_other_network(state, proposal)
    zero, one = pt.constant(np.array([0, 1], log_ratio.dtype))
    rng, u = draw(uniform, rng, zero, one, size=(state.samples,))
    accept = pt.log1p(-u) < pt.switch(pt.isnan(log_ratio), -np.inf, log_ratio)

    holes, chosen = inputs.holes, {}
    for value, new in proposed.items():
        of_entries = accept if new.ndim == 1 else accept[:, None]
        if holes is not None and value is inputs.value:
            of_entries = accept[holes.row]
        chosen[value] = pt.switch(of_entries, new, state.values[value])
    outputs, posts = (
        [pt.switch(accept[:, None], x, old) for x, old in zip(new, olds, strict=True)]
        for new, olds in ((proposal.outputs, state.outputs), (proposal.posts, state.posts))
    )
    values, squares = state.values, state.squares
    if state.network.sets_noise_of is not None:
        values = choose(accept[:, None], proposal_of_other, other).new_values
    values = values | chosen
    if state.network.observation is None:  # the last outputs are data
        last = state.network.layers[-1].name
        residuals = state.outputs[-1] - (outputs[-1] - noise)
        outputs[-1], squares = state.outputs[-1], squares | {last: (residuals**2).sum()}
    state = replace(
        state,
        values=values,
        network=state.read(values),
        outputs=tuple(outputs),
        posts=tuple(posts),
        squares=squares,
    )
    rows = accept if holes is None else accept[holes.rows]
    return rng, state, memory, Acceptance(pt.cast(rows, log_ratio.dtype).mean())


def _chosen(rng: Variable, state: NetworkState) -> tuple[Variable, Variable]:
    """Choose which entries (n, d) of each row are redrawn, as 1 and 0."""
    x, holes = state.network.inputs, _inputs(state.network).holes
    unknown = pt.ones_like(x) if holes is None else holes.indicators
    zero, one = pt.constant(np.array([0, 1], x.dtype))
    rng, u = draw(uniform, rng, zero, one, size=(state.samples, state.network.layers[0].shape[1]))
    rng, v = draw(uniform, rng, zero, one, size=(state.samples,))
    scores = (1 + u) * unknown
    one_of_them = pt.eq(scores, scores.max(axis=1, keepdims=True))
    return rng, pt.switch((v < 0.5)[:, None], unknown, unknown * one_of_them)


def _proposal(rng: Variable, state: NetworkState, moving: Variable) -> tuple[Variable, dict[Variable, Variable]]:
    """Draw entries from their prior and, where some are missing, components and factors of rows.

    Parameters
    ----------
    rng : Variable
        The random generator.
    state : NetworkState
        The state.
    moving : Variable, (n, d)
        Which entries are drawn, as 1 and 0; the others are kept.

    Returns
    -------
    rng : Variable
    proposed : dict of Variable to Variable
        The values that are proposed.
    """
    values, inputs = state.values, _inputs(state.network)
    x, value, holes = inputs.at(values), values[inputs.value], inputs.holes
    proposed: dict[Variable, Variable] = {}
    if inputs.mixture is not None and holes is not None:
        rng, component = draw_components(rng, inputs.mixture, x, 1 - moving, inputs.factor_model)
        proposed[inputs.mixture.value] = component
        inputs = _inputs(state.read(values | proposed))
    if (factors := inputs.factor_model) is not None and holes is not None:
        rng, xi = draw(normal, rng, pt.zeros_like(values[factors.value]), pt.constant(np.asarray(1, x.dtype)))
        kept = (1 - moving) / inputs.variance
        f = factors_of_rows(x - factors.center, kept, factors, xi)
        proposed[factors.value] = pt.cast(f, factors.value.dtype)
        inputs = _inputs(state.read(values | proposed))
    precision, linear = inputs.given_measurement()
    mean, deviation = linear / precision, pt.sqrt(1 / precision)
    if holes is not None:
        mean, deviation, moving = (
            (parameter + pt.zeros_like(x))[holes.row, holes.column] for parameter in (mean, deviation, moving)
        )
    rng, xi = draw(normal, rng, pt.zeros_like(value), pt.constant(np.asarray(1, value.dtype)))
    new = pt.switch(moving > 0, mean + deviation * xi, value)
    return rng, {**proposed, inputs.value: pt.cast(new, value.dtype)}


def _of_other_network(state: NetworkState, proposal: NetworkState) -> tuple[NetworkState, NetworkState, Variable]:
    """Return the network whose noise this one sets before and after a move of all rows, and the log ratio of densities.

    Parameters
    ----------
    state, proposal : NetworkState
        This network before and after the move.

    Returns
    -------
    before, after : NetworkState
    log_ratio : Variable, (n,)
    """
    other, likelihood = other_network(state), cast(RowNoise, state.network.observation)
    old, new = (likelihood.squared_scale(one.outputs[-1]) for one in (state, proposal))
    after = moved(other, pt.sqrt(new / old), other_network(proposal).network.inputs)
    log_ratio = log_density_of_rows(after, new, squares_of_rows(after))
    log_ratio -= log_density_of_rows(other, old, squares_of_rows(other))
    return other, after, log_ratio[:, 0]


def _log_density(state: NetworkState, mean: Variable, noise: Variable) -> Variable:
    """Compute log p(y | M + E) of each row (n,) from a mean M of the last latent and its noise E."""
    variance = state.network.layers[-1].noise
    return likelihood_of_means(state).log_densities_of_means(mean, noise, variance).sum(axis=1)


def _inputs(network: Network) -> RandomInputs:
    """Return the inputs of a network of which some are not known."""
    if network.random_inputs is None:
        raise ValueError("the inputs of the network are known.")
    return network.random_inputs

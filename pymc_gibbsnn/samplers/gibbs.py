r"""Gibbs sampling of the intermediate-noise network: one sweep over all weights and latents.

The target is the posterior of the noisy network of :mod:`pymc_gibbsnn.networks.network` [1]_, in the letters of
:mod:`pymc_gibbsnn.moves`. The lines of a sweep, from the data upwards, say what is drawn given what::

    V, π, μ, τ², k, f, A_1 | W̃_1, Z_2       if entries of the inputs A_1 are not known, with what is learned of them;
                                             also given W̃_1, Z_2 of the network whose noise this one sets
    W̃_1 | Z_2
    for each hidden layer l = 2..L:
        Z_l | W̃_{l−1}, W̃_l, Z_{l+1}        A_l integrated out (collapsed)
        W̃_{i−1}, Z_i, ..., A_{l−1}, Z_l, their noise held fixed | W̃_i, ..., W̃_l, Z_{l+1}      A_l integrated out
                                             (interweaving of each layer i < l, where l is the last one)
        W̃_{l−1}, Z_l | Z_l − Ã_{l−1} W̃_{l−1}ᵀ, W̃_l, Z_{l+1}      A_l integrated out (interweaving, of filters too)
        c_j, its noise held fixed            A_l integrated out (where σ allows it)
        ΔZ, Z_l | (Z_l − Ã_{l−1} W̃_{l−1}ᵀ)/sqrt(ΔZ), W̃_l, Z_{l+1}      A_l integrated out
        ΔA, ΔZ' | Z_l, W̃_l, Z_{l+1}          A_l integrated out
        A_l | Z_l, W̃_l, Z_{l+1}
        c_j, the scale of each unit          (where σ allows it)
        c, ΔZ, ΔA, the scale of the layer    (where σ allows it)
        W̃_{l−1}, Z_l, A_l, their noise held fixed, | A_{l−1}, Z_{l+1}      W̃_l integrated out (interweaving)
        W̃_l | A_l, Z_{l+1}
    c, λ, the scale of W̃_L | A_L, y          if y are class labels, the noise of Z_{L+1} held fixed
    W̃_1, ..., W̃_L, all noise held fixed      if y are class labels, the Z_{L+1} of the label integrated out;
                                             if y are counts, say, or have heavy tails (these before moves of layer L),
                                             or a normal distribution with one learned variance
    k, f, A_1, all noise held fixed           if entries of the inputs A_1 are not known, row by row
    parameters of the likelihood | Z_{L+1}, y         or with Z_{L+1} integrated out
    Z_{L+1} | W̃_L, A_L, y                    if y is not Z_{L+1} itself, but class labels, say; lines of layer L have
                                             Z_{L+1} integrated out if y is Gaussian given auxiliary variables
    Z_{L+1}, and noise of another network    if the scales of the rows of this other network depend on Z_{L+1}; where
                                             its data have a distribution around its own last latent, that latent is
                                             integrated out, whatever ``collapse`` says
    the same with W̃_L and that network's Δ   if Δ, the variance of that network's data, is learned
    Δ, λ | all others                        if they have conjugate priors

Here Δ are the variances of the noise, of Z_l, A_l and Z_{l+1} in a hidden layer, and λ the precisions of the priors. A
hidden layer draws those variances that are learned and are single numbers, of one variable's noise and nothing else;
the last line alone would hardly move them. With ``collapse=False`` the order of a hidden layer is that of Algorithm 1
of the paper: A_l, W̃_l, then Z_l given A_l. Interweaving integrates A_l out, but for the move that integrates W̃_l out,
and therefore comes just before A_l is drawn, in either order. The layer-parallel order is in
:mod:`pymc_gibbsnn.moves.layer_parallel`.

References
----------
.. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729 (2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import boolean, one_of, positive
from pymc_gibbsnn.backends.numba_kernels import MANY
from pymc_gibbsnn.moves.centred_scale import centred_scales
from pymc_gibbsnn.moves.collapsed_variances import collapsed_variances
from pymc_gibbsnn.moves.integrated_latent import last_latent_integrated, other_last_latent_integrated
from pymc_gibbsnn.moves.interweave_deep import interweave_deep
from pymc_gibbsnn.moves.interweave_filters import activation_above, interweave_filters
from pymc_gibbsnn.moves.interweave_marginal import interweave_marginal
from pymc_gibbsnn.moves.interweaving import interweaves_deep, interweaves_marginal, interweaving, kinds_of_interweaving
from pymc_gibbsnn.moves.joint_trajectory import has_joint_trajectory, joint_trajectory
from pymc_gibbsnn.moves.label_scale import label_scale
from pymc_gibbsnn.moves.layer_parallel import all_postactivations, all_preactivations, all_weights_above_data
from pymc_gibbsnn.moves.layer_scale import layer_scale
from pymc_gibbsnn.moves.likelihood_parameters import has_shift, likelihood_parameters, shift
from pymc_gibbsnn.moves.noise_level import has_noise_level, noise_level
from pymc_gibbsnn.moves.noncentred_inputs import noncentred_inputs
from pymc_gibbsnn.moves.noncentred_scale import noncentred_scales
from pymc_gibbsnn.moves.noncentred_variance import noncentred_variance
from pymc_gibbsnn.moves.postactivations import direct_latents, postactivations
from pymc_gibbsnn.moves.preactivations import (
    last_latents,
    preactivations,
    preactivations_collapsed,
    preactivations_collapsed_in_windows,
)
from pymc_gibbsnn.moves.random_inputs import random_inputs
from pymc_gibbsnn.moves.row_scales import row_scales
from pymc_gibbsnn.moves.site import Move, NetworkState, at, in_turn
from pymc_gibbsnn.moves.statistics import log_densities, statistic_names, statistics
from pymc_gibbsnn.moves.stretched_scale import stretched_scales, stretches
from pymc_gibbsnn.moves.variances import variances
from pymc_gibbsnn.moves.weights import data_weights, weights_above
from pymc_gibbsnn.networks.likelihoods.conditionally_gaussian import ConditionallyGaussian
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.samplers.transition import Arrays, Transition
from pymc_gibbsnn.samplers.watched import multiplications, watched
from pymc_gibbsnn.starts.annealing import annealed, can_be_annealed, choose_highest_variance
from pymc_gibbsnn.starts.fitted_start import can_be_fitted, fitted_start

__all__ = ["gibbs"]

FITTING = (
    "Fitting a starting point for each chain: the network without noise is fitted to the data before the first draw"
)
TUNE_STEPS, ANNEAL_STEPS = 1000, 2000  # how many tuning steps are enough from a fitted start, and with annealing


def gibbs(
    networks: Sequence[Network],
    further: Callable[[Network, int], Sequence[Move | Callable]] | None = None,
    *,
    collapse: bool = True,
    scale_move: bool = True,
    interweave: str | bool = "auto",
    schedule: str = "sequential",
    anneal: float | str | None = "auto",
) -> Transition:
    """Make the transition of Gibbs sampling: one sweep over each noisy network of a model in turn, given the others.

    Parameters
    ----------
    networks : sequence of Network
        The noisy networks of one model.
    further : callable, optional
        ``further(network, l)`` lists further moves of hidden layer l (:mod:`pymc_gibbsnn.moves.site`), which are made
        after all others of this layer, if it has an activation.
    collapse : bool
        Whether to draw pre-activations, and learned variances, with the post-activations integrated out. False gives
        the paper's Algorithm 1.
    scale_move : bool
        Whether to draw the scale of each unit whose activation is homogeneous (relu, leaky relu, abs, identity) or
        scale-free (sign), and whose pre-activation has no offset: with its noise scaled
        (:mod:`pymc_gibbsnn.moves.centred_scale`) and, if homogeneous, with its noise fixed
        (:mod:`pymc_gibbsnn.moves.noncentred_scale`); where its variances are learned, the scale of the layer
        (:mod:`pymc_gibbsnn.moves.layer_scale`); and that of the last weights below class labels
        (:mod:`pymc_gibbsnn.moves.label_scale`).
    interweave : {"auto", "pieces", "langevin", False}
        How to move the weights of each unit with the noise of its pre-activations held fixed: by Gaussian steps on the
        linear pieces of the activation (:mod:`pymc_gibbsnn.moves.interweave_pieces`), by a Langevin step
        (:mod:`pymc_gibbsnn.moves.interweave_langevin`), or not at all. "auto" chooses pieces up to 128 inputs, bias
        included, in the data layer, and up to 24 in others and in a data layer whose rows have scales or of which most
        inputs are drawn; it chooses Langevin for wider layers and for activations without a slope or without linear
        pieces. "auto" and "pieces" also make two more moves, below activations of linear pieces with a slope; their
        limits include the bias. One has the weights above integrated out
        (:mod:`pymc_gibbsnn.moves.interweave_marginal`), in data layers of up to 24 inputs and others of up to 65, where
        a dense layer of up to 128 inputs is above whose units share their prior. The other, in lower hidden layers of
        up to 24 inputs, has all latents above moving along (:mod:`pymc_gibbsnn.moves.interweave_deep`), where all
        layers above are dense, of up to 128 inputs, below such activations. The filters of a convolution have one move
        of their own (:mod:`pymc_gibbsnn.moves.interweave_filters`), where a dense layer follows or a pool and then a
        dense layer; "auto" makes it for up to 256 weights. Unless this is False, all weights of dense layers below a
        last latent also move together, by Hamiltonian dynamics (:mod:`pymc_gibbsnn.moves.joint_trajectory`), where data
        such as class labels or counts depend on that latent, and where real data are that last pre-activation itself or
        have Student's t distribution around it, with one learned variance, if the first layer has at most 24 inputs,
        bias included, and at least 20 units. And inputs that are not known move with all latents of their row
        (:mod:`pymc_gibbsnn.moves.noncentred_inputs`).
    schedule : {"sequential", "layer-parallel"}
        The latter draws all W̃, then all A, then all Z (:mod:`pymc_gibbsnn.moves.layer_parallel`); it is neither
        collapsed nor interweaved.
    anneal : "auto", float or None
        How a chain that is going to tune finds its way to equilibrium. If it would start with all weights at 0, "auto"
        starts it at a network that was fitted to the data (:mod:`pymc_gibbsnn.starts.fitted_start`), or anneals it,
        where the network cannot be fitted: the noise falls to its own variance while the chain tunes
        (:mod:`pymc_gibbsnn.starts.annealing`). A number is the variance, in squared units of the latents, from which
        every smaller Δ that is not drawn itself falls, whatever the start and the network, unless it is one on which
        scales of rows depend.

    Returns
    -------
    Transition
        Its statistics are ``lp``, the log density of the networks' variables and data; ``norm_W1`` and so on (by the
        names of weights), Σ W² + Σ b² of a layer; ``noise_Z2`` and so on (by the names of latents and data), the mean
        squared noise of a variable divided by its variance; ``acceptance_W1`` and so on, the acceptance of a layer's
        interweaving moves, ``marginal_acceptance_W1`` and ``deep_acceptance_W1``, that of the further ones of narrow
        layers; ``acceptance_G``, by the name of a latent G on which the scales of rows depend, that of its moves;
        ``step_size_W1`` and so on, their step size 1 − ρ where they are Langevin steps; ``acceptance_Z3`` and
        ``step_size_Z3``, by the name of the last latent, or data, those of the joint move of all weights below;
        ``acceptance_X``, by the name of inputs that are not known, the share of rows in which their own move was
        accepted.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for.
    ValueError
        If an argument has no such choice, ``anneal`` is not positive, "pieces" are asked of an activation that has
        none, or the layer-parallel order is to be collapsed or interweaved.
    """
    if anneal is not None and anneal != "auto":
        positive("anneal", anneal, ", the variance of the noise to begin with, 'auto' or None")
    one_of("schedule", schedule, ("sequential", "layer-parallel"))
    boolean("collapse", collapse)
    boolean("scale_move", scale_move)
    if schedule == "layer-parallel" and (collapse or interweave):
        raise ValueError(
            "schedule='layer-parallel' draws all pre-activations given all post-activations: pass collapse=False and "
            "interweave=False."
        )
    last = [network.layers[-1].name for network in networks]
    sweeps = [
        _sweep(network, collapse, scale_move, interweave, schedule, further, last.count(name) == 1)
        for network, name in zip(networks, last, strict=True)
    ]
    automatic = anneal == "auto"
    given = None if automatic else anneal
    fits = [automatic and can_be_fitted(network) for network in networks]
    # The entries of the carry that say from which variance the noise of a network falls; checkpoints have these names
    entries = [
        f"hottest_{network.weights[0].name}" if automatic and not fit and can_be_annealed(network) else None
        for network, fit in zip(networks, fits, strict=True)
    ]
    start = {name: value for sweep in sweeps for name, value in sweep.start.items()}
    start |= {name: pt.constant(np.asarray(0, pytensor.config.floatX)) for name in entries if name}

    def step(rng: Variable, values: dict, carry: dict, tuning: Variable) -> tuple[Variable, dict, dict, dict]:
        kept, stats, densities = dict(carry), {}, {}
        highest = {
            id(network): carry[entry] if entry else given for network, entry in zip(networks, entries, strict=True)
        }
        for network, sweep, entry in zip(networks, sweeps, entries, strict=True):

            def read(values: dict, network: Network = network) -> Network:
                new = _of_known_width(network.at(values))
                likelihood: Any = network.observation
                variance = highest[id(network)]
                if network.sets_noise_of is not None:  # which is annealed with it
                    other, variance = network.sets_noise_of.at(values), highest[id(network.sets_noise_of)]
                    other = other if variance is None else annealed(other, variance, tuning)
                    return replace(new, observation=replace(likelihood, network=other))
                return (new if variance is None else annealed(new, variance, tuning)).of_equal_rows()

            if entry:
                kept[entry] = pt.switch(tuning > 0, highest[id(network)], 0)

            state = NetworkState.begin(read, values, tuning)
            rng, state, kept, new_stats = sweep.step(rng, state, kept)
            values = state.new_values
            stats |= statistics(state) | new_stats
            densities |= log_densities(state)  # by name, so that data which networks share count once
        changed = {name: value for name, value in kept.items() if value is not carry[name]}
        return rng, values, changed, {"lp": sum(densities.values())} | stats

    names = ["lp"]
    for network, sweep in zip(networks, sweeps, strict=True):
        names += [name for name in (*statistic_names(network), *sweep.statistics) if name not in names]
    variables = list(dict.fromkeys(v for network in networks for v in network.variables))
    steps = {"auto": TUNE_STEPS, None: 0}.get(anneal, ANNEAL_STEPS)
    tune_steps = max([steps, *(sweep.tune_steps for sweep in sweeps)])
    tuned = {name: statistic for sweep in sweeps for name, statistic in sweep.tuned.items()}

    def find(point: Arrays, rng: np.random.Generator) -> tuple[Arrays, Arrays]:
        carry = {}
        for network, fit, entry in zip(networks, fits, entries, strict=True):
            if fit:
                point = point | fitted_start(network, point, rng)
            elif entry:
                carry[entry] = np.asarray(choose_highest_variance(network, point), pytensor.config.floatX)
        return point, carry

    def check() -> None:
        for network in networks:
            network.check_data()

    latents = [value for network in networks for value in network.latents]
    rows = networks[0].rows
    return Transition(
        variables, step, start, names, check, tune_steps, rows,
        latents=latents, tuned=tuned,
        find=find if any(fits) or any(entries) else None, search=FITTING if any(fits) else "",
        watched=watched(networks), multiplications=multiplications(networks),
    )  # fmt: skip


def _sweep(
    network: Network,
    collapse: bool,
    scale_move: bool,
    interweave: str | bool,
    schedule: str,
    further: Callable[[Network, int], Sequence[Move | Callable]] | None,
    is_alone: bool,
) -> Move:
    """Choose the moves of the sweep over one network, and put them in order.

    Parameters
    ----------
    network : Network
        The network.
    collapse, scale_move, interweave, schedule, further
        As in :func:`gibbs`.
    is_alone : bool
        Whether the last latent is that of no other network.

    Returns
    -------
    Move
        The whole sweep, as one move.
    """
    kinds, parallel = kinds_of_interweaving(network, interweave), schedule == "layer-parallel"
    learns = [bool(layer.operator.variables) for layer in network.layers]  # whether a layer has weights, unlike a pool
    if parallel and not (all(learns) and all(layer.operator.has_gain for layer in network.layers)):
        raise ValueError(
            "schedule='layer-parallel' is for dense layers; the network has convolutions or pools: leave it out."
        )
    moves: list[Move | Callable] = [data_weights(network)] if learns[0] else []  # W̃_1 | Z_2
    if parallel:
        moves += [
            all_weights_above_data,  # W̃_l | A_l, Z_{l+1}
            all_postactivations,  # A_l | Z_l, W̃_l, Z_{l+1}
            all_preactivations,  # Z_l | W̃_{l−1}, A_{l−1}, A_l
        ]
    stretched = stretches(network) if scale_move else {}
    # Where Z_{L+1} is integrated out, moves around the last layer are one, and some see each row's own variance
    integrates = collapse and isinstance(network.observation, ConditionallyGaussian)
    lower: list[Move | Callable] = []
    by_row: list[Move | Callable] = []
    for l, activation in enumerate(network.activations):
        if l - 1 in stretched:
            moves.append(stretched_scales(*stretched[l - 1]))  # c_j, through pools
        is_around = integrates and l == len(network.activations) - 1
        if is_around:
            lower, moves = moves, []
        layer, above = network.layers[l], network.layers[l + 1].operator
        weights = [weights_above] if learns[l + 1] else []
        if activation is None:
            if kinds[l]:
                continue  # the move of the filters draws this Z_l, which is below a pool
            moves.append(at(l, direct_latents, *weights))  # Z_l | W̃_{l−1}, W̃_l, Z_{l+1}, and then W̃_l | Z_l, Z_{l+1}
            continue
        function = activation.function
        scalable = scale_move and layer.offset is None and learns[l] and learns[l + 1]
        scalable = scalable and above.knows_units_of(layer.operator)
        # Whether a column of Z is a unit, and A can be integrated out in moves of it
        is_column = learns[l] and layer.operator.places == 1 and above.has_gain
        interweaved = [interweaving(network, l, kinds[l])] if kinds[l] and is_column else []
        has_marginal = is_column and interweaves_marginal(network, l, interweave)
        marginal = [interweave_marginal(network, l)] if has_marginal else []
        noncentred = [noncentred_scales] if scalable and is_column and function.is_homogeneous else []
        centred = [centred_scales] if scalable and (function.is_homogeneous or function.is_scale_free) else []
        # Which of ΔZ, ΔA and the ΔZ' above are learned variances of their own
        own_z, own_a, own_above = (
            part.name in network.own_variances for part in (layer, activation, network.layers[l + 1])
        )
        own_above &= not is_around
        if scalable and function.is_homogeneous and own_z and own_a:
            centred.append(layer_scale)  # c, ΔZ, ΔA
        added = [at(l, *further(network, l))] if further else []  # their site has computed no noise yet
        reaching = [i for i in range(l + 1) if kinds[i] and activation_above(network, i) == l]
        filters = [interweave_filters(network, i) for i in reaching]
        if parallel:
            moves += [at(l, *centred), *added]  # c_j
            continue
        if is_collapsed := collapse and (above.has_gain or above.tiles):
            draw = preactivations_collapsed if above.has_gain else preactivations_collapsed_in_windows
            moves.append(at(l, draw))  # Z_l | W̃_{l−1}, W̃_l, Z_{l+1}
        moves += filters  # W̃_{l−1}, Z_l | Z_l − conv(A_{l−1}, W̃_{l−1}), W̃_l, Z_{l+1}
        integrable = collapse and above.has_gain
        of_noise = [noncentred_variance] if integrable and own_z else []
        of_noise += [collapsed_variances] if integrable and (own_a or own_above) else []
        hidden = [
            *interweaved,  # W̃_{l−1}, Z_l | Z_l − Ã_{l−1} W̃_{l−1}ᵀ, W̃_l, Z_{l+1}
            *noncentred,  # c_j, its noise held fixed
            *of_noise,  # ΔZ with Z_l, its noise scaled; ΔA, ΔZ' | Z_l, W̃_l, Z_{l+1}
            postactivations,  # A_l | Z_l, W̃_l, Z_{l+1}
        ]
        if is_collapsed:
            rest = [
                *centred,  # c_j
                *marginal,  # W̃_{l−1}, Z_l, A_l | their noise, Z_{l+1}
                *weights,  # W̃_l | A_l, Z_{l+1}
            ]
            if is_around and above.shape[0] == 1 and above.scales_with_rows:
                by_row = [at(l, postactivations, *rest)]
                hidden = hidden if added else hidden[:-1]
            else:
                hidden += rest
        else:
            hidden += [
                *marginal,  # W̃_{l−1}, Z_l, A_l | their noise, Z_{l+1}
                *weights,  # W̃_l | A_l, Z_{l+1}
                preactivations,  # Z_l | W̃_{l−1}, A_{l−1}, A_l
                *centred,  # c_j
            ]
        if l == len(network.activations) - 1:  # W̃_{i−1}, Z_i, ..., A_{l−1}, Z_l | their noise, W̃_l, Z_{l+1}
            moves += [interweave_deep(network, i) for i in range(l) if interweaves_deep(network, i, interweave)]
        moves += [at(l, *hidden), *added]
    if len(network.activations) - 1 in stretched:
        moves.append(stretched_scales(*stretched[len(network.activations) - 1]))
    if scale_move and learns[-1] and network.observation is not None and network.observation.ignores_scale:
        moves.append(label_scale)  # c, λ
    name = network.layers[-1].name if is_alone else f"{network.layers[-1].name}_{network.weights[-1].name}"
    joint = [joint_trajectory(network, name)] if interweave and has_joint_trajectory(network) else []  # all W̃, Z and A
    if interweave and network.draws_inputs:
        joint.append(noncentred_inputs(network))  # k, f, A_1, all Z and A
    of_data: list[Move | Callable] = [likelihood_parameters] if network.parameters else []  # θ, of the data alone
    if has_shift(network):
        of_data.append(shift(network))  # cutpoints or centers, the last bias, Z_{L+1}
    if network.sets_noise_of is not None:
        of_rows = [*joint, row_scales(network)]  # Z_{L+1}, and with it all noise of a row of another network
        if has_noise_level(network):
            of_rows.append(noise_level)  # W̃_L, Z_{L+1}, and the variance of data of this other network
        has_latent = network.sets_noise_of.observation is not None  # the last one, around which its data are
        moves += [other_last_latent_integrated(*of_rows)] if has_latent else of_rows
    elif integrates:
        # All moves around the last layer with Z_{L+1} integrated out; then Z_{L+1}
        moves = [*lower, *joint, *of_data, last_latent_integrated(moves, by_row)]
    else:
        last = [last_latents] if network.observation else []
        moves += [*joint, *of_data, at(len(network.activations), *last)]  # Z_{L+1} | W̃_L, A_L, y
    if network.variances:
        moves.append(variances)  # Δ, λ | all others
    if network.draws_inputs:
        moves = [random_inputs, *moves]  # V, π, μ, τ², k, f, A_1 | W̃_1, Z_2
    return in_turn(*moves)


def _of_known_width(network: Network) -> Network:
    """Return the network with the columns of its inputs made known where they are many: products are chosen by that."""
    columns = network.layers[0].shape[1]
    return replace(network, inputs=pt.specify_shape(network.inputs, (None, columns))) if columns >= MANY else network

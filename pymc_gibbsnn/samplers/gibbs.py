r"""Gibbs sampling of the intermediate-noise network: one sweep over all weights and latents.

Target: the posterior of the noisy network of :mod:`pymc_gibbsnn.networks.network`. One sweep, from the data up::

    W̃_1 | Z_2
    for each hidden layer l = 2..L:
        Z_l | W̃_{l−1}, W̃_l, Z_{l+1}        A_l integrated out (collapsed)
        W̃_{l−1}, Z_l | Z_l − Ã_{l−1} W̃_{l−1}ᵀ, W̃_l, Z_{l+1}      A_l integrated out (interweaving)
        c_j, its noise held fixed            A_l integrated out (where σ allows it)
        A_l | Z_l, W̃_l, Z_{l+1}
        c_j, the scale of each unit          (where σ allows it)
        W̃_l | A_l, Z_{l+1}
    Z_{L+1} | W̃_L, A_L, y                    if y are class labels
    Δ, λ | all others                        if they have conjugate priors

With ``collapse=False`` the order of a hidden layer is that of Algorithm 1 of the paper: A_l, W̃_l, then Z_l given A_l.
Interweaving leaves A_l out of date and therefore comes just before A_l in either order. The layer-parallel order is in
:mod:`pymc_gibbsnn.moves.layer_parallel`.

References
----------
.. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729 (2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable

from pymc_gibbsnn._arguments import boolean, one_of, positive
from pymc_gibbsnn.moves.centred_scale import draw_scales
from pymc_gibbsnn.moves.interweaving import (
    TUNE_STEPS,
    interweave_layer,
    kinds_of_interweaving,
    start_of_interweaving,
)
from pymc_gibbsnn.moves.layer_parallel import draw_layers_in_parallel
from pymc_gibbsnn.moves.layers import draw_first_weights, draw_layer_weights
from pymc_gibbsnn.moves.network_scales import draw_network_scales
from pymc_gibbsnn.moves.noncentred_scale import draw_noncentred_scales
from pymc_gibbsnn.moves.postactivations import draw_postactivations
from pymc_gibbsnn.moves.preactivations import draw_preactivations, draw_preactivations_collapsed
from pymc_gibbsnn.moves.statistics import log_densities, statistic_names, statistics
from pymc_gibbsnn.moves.weights import spectrum
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.network import Activation, Layer, Network
from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["gibbs"]

ANNEAL_STEPS = 2000


def gibbs(
    networks: Sequence[Network],
    *,
    collapse: bool = True,
    scale_move: bool = True,
    interweave: str | bool = "auto",
    schedule: str = "sequential",
    anneal: float | None = None,
) -> Transition:
    """The Gibbs sweep of noisy networks: of each in turn, given the others.

    Parameters
    ----------
    networks : sequence of Network
        Of one model.
    collapse : bool
        Draw pre-activations with the post-activations integrated out. False gives the paper's Algorithm 1.
    scale_move : bool
        Draw the scale of each unit whose activation is homogeneous (relu, leaky relu, abs, identity) or scale-free
        (sign), and whose pre-activation has no offset: with its noise scaled (:mod:`pymc_gibbsnn.moves.centred_scale`)
        and, if homogeneous, with its noise fixed (:mod:`pymc_gibbsnn.moves.noncentred_scale`).
    interweave : {"auto", "pieces", "langevin", False}
        Move the weights of each unit with the noise of its pre-activations held fixed: by Gaussian steps on the linear
        pieces (:mod:`pymc_gibbsnn.moves.interweave_pieces`) or a Langevin step
        (:mod:`pymc_gibbsnn.moves.interweave_langevin`). "auto" takes pieces up to 128 inputs, bias included, in the
        data layer and 24 in others, and Langevin for wider layers and for activations without a slope or linear pieces.
    schedule : {"sequential", "layer-parallel"}
        The latter draws all W̃, then all A, then all Z (:mod:`pymc_gibbsnn.moves.layer_parallel`), neither
        collapsed nor interweaved.
    anneal : float, optional
        A variance: while the chain tunes, every smaller Δ that is not drawn itself falls geometrically from it to its
        own value.

    Returns
    -------
    Transition
        Its statistics: ``lp``, log density of the networks' variables and data; ``norm_W1``, ... (by the weights'
        names), Σ W² + Σ b² of a layer; ``noise_Z2``, ... (by the names of latents and data), the mean squared noise
        of a variable over its variance; ``acceptance_W1``, ..., the acceptance of a layer's interweaving moves.
    """
    if anneal is not None:
        positive("anneal", anneal, ", the variance of the noise to begin with, or None")
    one_of("schedule", schedule, ("sequential", "layer-parallel"))
    boolean("collapse", collapse)
    boolean("scale_move", scale_move)
    if schedule == "layer-parallel" and (collapse or interweave):
        raise ValueError(
            "schedule='layer-parallel' draws all pre-activations given all post-activations: pass collapse=False and "
            "interweave=False."
        )
    kinds = [kinds_of_interweaving(network, interweave) for network in networks]
    starts = [
        _start(network) | start_of_interweaving(network, kind) for network, kind in zip(networks, kinds, strict=True)
    ]
    keys = [{name: f"{name}_{i}" if i else name for name in start} for i, start in enumerate(starts)]

    def step(rng: Variable, state: dict, carry: dict, tuning: Variable) -> tuple[Variable, dict, dict, dict]:
        changed, stats, densities = {}, {}, {}
        for network, kind, key in zip(networks, kinds, keys, strict=True):
            own = {name: carry[key[name]] for name in key}
            rng, new, kept, found, terms = _sweep(
                rng,
                network,
                state,
                own,
                tuning,
                collapse=collapse,
                scale_move=scale_move,
                kinds=kind,
                layer_parallel=schedule == "layer-parallel",
                anneal=anneal,
            )
            state = state | new
            changed |= {key[name]: value for name, value in kept.items()}
            stats |= found
            densities |= terms  # data that networks share count once
        return rng, state, changed, {"lp": sum(densities.values())} | stats

    names = ["lp"]
    for network, kind in zip(networks, kinds, strict=True):
        names += [name for name in statistic_names(network, kind) if name not in names]
    variables = list(dict.fromkeys(v for network in networks for v in network.variables))
    tune_steps = ANNEAL_STEPS if anneal else TUNE_STEPS if any("langevin" in kind for kind in kinds) else 0

    def check() -> None:
        for network in networks:
            network.check_data()

    carry = {key[name]: value for start, key in zip(starts, keys, strict=True) for name, value in start.items()}
    latents = [value for network in networks for value in network.latents]
    return Transition(variables, step, carry, names, check, tune_steps, networks[0].inputs, latents=latents)


def _sweep(
    rng: Variable,
    network: Network,
    state: dict[Variable, Variable],
    carry: dict[str, Variable],
    tuning: Variable,
    *,
    collapse: bool,
    scale_move: bool,
    kinds: list[str | bool],
    layer_parallel: bool,
    anneal: float | None,
) -> tuple[Variable, dict[Variable, Variable], dict[str, Variable], dict[str, Variable], dict[str, Variable]]:
    """(rng, new values, changed carry, statistics, log densities by variable) after one sweep of one network."""
    now = _heated(network.at(state), anneal, tuning)
    # Products are chosen by the number of columns of the data, which their type does not tell.
    a = pt.specify_shape(now.inputs, (None, now.layers[0].shape[1]))
    now, n, layers = replace(now, inputs=a), a.shape[0], now.layers
    weights = [layer.operator.matrix(state) for layer in layers]
    outputs = [layer.operator.rows(pt.as_tensor(state.get(layer.output, layer.output))) for layer in layers]
    squares = {}  # Σ squared noise of latents and data, by name
    new, changed, acceptances = {}, {}, []

    if layer_parallel:
        posts = [state[activation.output] for activation in now.activations]
        rng, weights, outputs, posts = draw_layers_in_parallel(rng, now, weights, outputs, posts, carry)
    else:
        rng, weights[0] = draw_first_weights(rng, now, outputs[0], carry)
    for l, activation in enumerate(now.activations):
        below, above = layers[l], layers[l + 1]
        m = below.mean(a, weights[l])
        z, sigma = outputs[l], activation.function
        scalable = scale_move and below.offset is None
        if layer_parallel:
            a_new = posts[l]
        else:
            w = above.operator.linear(weights[l + 1])
            y = above.centred(outputs[l + 1]) - above.operator.intercept(weights[l + 1])
            g = above.operator.gain(w, activation.noise, above.noise)
            if collapse:
                rng, z = draw_preactivations_collapsed(rng, z, m, y, w, g, below.noise, sigma)
            if kinds[l]:
                rng, weights[l], z_new, acceptance, kept = interweave_layer(
                    rng, now, l, kinds[l], a, weights[l], z, y, w, g, carry, tuning
                )
                m, z = m + (z_new - z), z_new
                acceptances.append(acceptance)
                changed |= kept
            if scalable and sigma.is_homogeneous:
                priors = below.operator.incoming(weights[l]), above.operator.outgoing(weights[l + 1])
                power = below.operator.fan_in - above.operator.fan_out
                rng, c = draw_noncentred_scales(rng, m, z, y, w, g, *priors, activation.noise, power, sigma)
                weights[l] = below.operator.scaled(weights[l], c)
                weights[l + 1] = above.operator.relieved(weights[l + 1], c)
                m, z, w = m * c, z + m * (c - 1), above.operator.linear(weights[l + 1])
                g = above.operator.gain(w, activation.noise, above.noise)
            rng, a_new = draw_postactivations(rng, sigma(z), y, w, g, activation.noise, above.noise)
            if not collapse:
                rng, weights[l + 1] = draw_layer_weights(rng, now, l + 1, a_new, outputs[l + 1])
                rng, z = draw_preactivations(rng, z, m, a_new, below.noise, activation.noise, sigma)
        square = [((z - m) ** 2).sum(axis=0), ((a_new - sigma(z)) ** 2).sum(axis=0)]
        if scalable and (sigma.is_homogeneous or sigma.is_scale_free):
            law = scale_law(sigma, below, above, weights[l], weights[l + 1], square, activation.noise, n)
            rng, c = draw_scales(rng, *law)
            weights[l] = below.operator.scaled(weights[l], c)
            z = z * c
            square[0] = square[0] * c**2
            if sigma.is_homogeneous:
                a_new = a_new * c
                square[1] = square[1] * c**2
                weights[l + 1] = above.operator.relieved(weights[l + 1], c)
        if collapse:
            rng, weights[l + 1] = draw_layer_weights(rng, now, l + 1, a_new, outputs[l + 1])
        squares |= {below.name: square[0].sum(), activation.name: square[1].sum()}
        outputs[l], a = z, a_new
        new[activation.output] = a_new

    m, last = layers[-1].mean(a, weights[-1]), layers[-1]
    if network.labels:
        rng, outputs[-1] = network.labels.draw_latent(rng, outputs[-1], m, last.noise)
    squares[last.name] = ((outputs[-1] - m) ** 2).sum()

    for layer, w, z in zip(layers, weights, outputs, strict=True):
        new |= layer.operator.values(w)
        if layer.output in state:
            new[layer.output] = layer.operator.written(z, layer.output.ndim)
    noise = {name: (squares[name], pt.cast(n, a.dtype) * width) for name, width in network.noisy}
    rng, scales, densities = draw_network_scales(rng, network, state | new, noise)
    if scales:
        now = _heated(network.at(state | new | scales), anneal, tuning)
    stats = statistics(now, weights, noise)
    stats |= dict(zip(statistic_names(network, kinds)[len(stats) :], acceptances, strict=True))
    return rng, new | scales, changed, stats, densities | log_densities(now, weights, noise)


def _heated(network: Network, start: float | None, tuning: Variable) -> Network:
    """The network with every Δ below ``start`` replaced by Δ^(1 − r) start^r, r the share of tuning still to come."""
    drawn = {use.part for scale in network.scales for use in scale.uses}

    def hotter(part: Layer | Activation) -> Layer | Activation:
        if start is None or part.name in drawn:
            return part
        noise = part.noise * pt.maximum(start / part.noise, 1) ** tuning
        return replace(part, noise=pt.cast(noise, part.noise.dtype))

    return replace(
        network, layers=tuple(map(hotter, network.layers)), activations=tuple(map(hotter, network.activations))
    )


def _start(network: Network) -> dict[str, Variable]:
    """What of the data layer can be computed once: its spectrum, or ÃᵀÃ where units or draws differ in their prior."""
    first, a = network.layers[0].operator, network.inputs
    if isinstance(first.precision, Constant) and first.shares_prior:
        u, eigenvalues = spectrum(first, a, a.shape[0], first.precision, network.is_thin)
        return {"u": u, "eigenvalues": eigenvalues}
    return {"gram": first.gram(a, a.shape[0])}


def scale_law(
    function: PiecewiseLinear,
    below: Layer,
    above: Layer,
    w_below: Variable,
    w_above: Variable,
    squares: list[Variable],
    noise: Variable,
    n: Variable,
) -> tuple[Variable, Variable, Variable]:
    """(p, Q1, Q2) for the units between two layers, from the squared noise of each unit's Z and A."""
    d = w_below.shape[1]
    outgoing = above.operator.outgoing(w_above)
    incoming = below.operator.incoming(w_below) + squares[0] / below.noise
    if function.is_scale_free:
        return pt.cast(d + n, incoming.dtype), incoming, pt.zeros_like(incoming)
    exponent = pt.cast(d + 2 * n - above.operator.fan_out, incoming.dtype)
    return exponent, incoming + squares[1] / noise, outgoing

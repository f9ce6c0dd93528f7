r"""Gibbs sampling of the intermediate-noise network: one sweep over all weights and latents.

Target: the posterior of the noisy network of :mod:`pymc_gibbsnn.network`. One sweep, from the data up::

    W̃_1 | Z_2
    for each hidden layer l = 2..L:
        Z_l | W̃_{l−1}, W̃_l, Z_{l+1}        A_l integrated out (collapsed)
        W̃_{l−1}, Z_l | Z_l − Ã_{l−1} W̃_{l−1}ᵀ, W̃_l, Z_{l+1}      A_l integrated out (interweaving)
        A_l | Z_l, W̃_l, Z_{l+1}
        c_j, the scale of each unit          (where σ allows it)
        W̃_l | A_l, Z_{l+1}
    Z_{L+1} | W̃_L, A_L, y                    if y are class labels

With ``collapse=False`` the order of a hidden layer is that of Algorithm 1 of the paper: A_l, W̃_l, then Z_l given A_l.
Interweaving leaves A_l out of date and therefore comes just before A_l in either order.

References
----------
.. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729 (2023).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable

from pymc_gibbsnn.activations import PiecewiseLinear
from pymc_gibbsnn.conditionals.labels import draw_given_argmax, draw_given_sign
from pymc_gibbsnn.conditionals.postactivations import draw_postactivations, gain
from pymc_gibbsnn.conditionals.preactivations import draw_preactivations, draw_preactivations_collapsed
from pymc_gibbsnn.conditionals.scale import draw_scales
from pymc_gibbsnn.conditionals.weights import (
    augment,
    draw_weights,
    draw_weights_from_spectrum,
    predict,
    products,
    spectrum,
)
from pymc_gibbsnn.network import Activation, Dense, Network
from pymc_gibbsnn.transitions import Transition
from pymc_gibbsnn.transitions.interweaving import (
    TUNE_STEPS,
    interweave_layer,
    kinds_of_interweaving,
    start_of_interweaving,
)

__all__ = ["gibbs"]

ANNEAL_STEPS = 2000


def gibbs(
    network: Network,
    *,
    collapse: bool = True,
    scale_move: bool = True,
    interweave: str | bool = "auto",
    anneal: float | None = None,
) -> Transition:
    """The Gibbs sweep of a noisy network.

    Parameters
    ----------
    network : Network
    collapse : bool
        Draw pre-activations with the post-activations integrated out. False gives the paper's Algorithm 1.
    scale_move : bool
        Draw the scale of each unit whose activation is homogeneous (relu, leaky relu, abs, identity) or scale-free
        (sign).
    interweave : {"auto", "pieces", "langevin", False}
        Move the weights of each unit with the noise of its pre-activations held fixed: by Gaussian steps on the linear
        pieces (:mod:`pymc_gibbsnn.conditionals.interweaving`) or a Langevin step
        (:mod:`pymc_gibbsnn.conditionals.langevin`). "auto" takes pieces up to 128 inputs, bias included, in the data
        layer and 24 in others, and Langevin for wider layers and for activations without a slope.
    anneal : float, optional
        A variance: while the chain tunes, every smaller Δ falls geometrically from it to its own value.

    Returns
    -------
    Transition
        Its statistics: ``lp``, log density of the network's variables and data; ``norm_W1``, ... (by the weights'
        names), Σ W² + Σ b² of a layer; ``noise_Z2``, ... (by the names of latents and data), the mean squared noise
        of a variable over its variance; ``acceptance_W1``, ..., the acceptance of a layer's interweaving moves.
    """
    if anneal is not None and not (np.isfinite(anneal) and anneal > 0):
        raise ValueError(f"anneal is the variance of the noise to begin with, positive and finite; found {anneal}.")
    kinds = kinds_of_interweaving(network, interweave)
    carry = _start(network) | start_of_interweaving(network, kinds)
    acceptance_names = [f"acceptance_{layer.weights.name}" for layer in network.layers[:-1]] if interweave else []

    def step(rng: Variable, state: dict, carry: dict, tuning: Variable) -> tuple[Variable, dict, dict, dict]:
        now = network if anneal is None else _annealed(network, anneal, tuning)
        a, layers, hidden = now.inputs, now.layers, now.activations
        weights, outputs = map(list, zip(*(layer.matrices(state) for layer in layers), strict=True))
        posts = [state[activation.output] for activation in hidden]
        noise = []  # Σ squared noise of each latent and of the data
        changed, acceptances = {}, []

        rng, weights[0] = _draw_first_weights(rng, now, outputs[0], carry)
        for l, activation in enumerate(hidden):
            below, above = layers[l], layers[l + 1]
            m = predict(a, weights[l], below.has_bias)
            w, b = _split(weights[l + 1], above)
            y = outputs[l + 1] - b
            g = gain(w, above.shape, activation.noise, above.noise)
            z, sigma = outputs[l], activation.function
            if collapse:
                rng, z = draw_preactivations_collapsed(rng, z, m, y, w, g, below.noise, sigma)
            if interweave:
                rng, weights[l], z_new, acceptance, kept = interweave_layer(
                    rng, now, l, kinds[l], a, weights[l], z, y, w, g, carry, tuning
                )
                m, z = m + (z_new - z), z_new
                acceptances.append(acceptance)
                changed |= kept
            s = sigma(z)
            rng, a_new = draw_postactivations(rng, s, y, w, g, activation.noise, above.noise)
            if not collapse:
                rng, weights[l + 1] = _draw_weights(rng, above, a_new, outputs[l + 1])
                rng, z = draw_preactivations(rng, m, a_new, below.noise, activation.noise, sigma)
                s = sigma(z)
            squares = [((z - m) ** 2).sum(axis=0), ((a_new - s) ** 2).sum(axis=0)]
            if scale_move and (sigma.is_homogeneous or sigma.is_scale_free):
                law = scale_law(sigma, below, above, weights[l], weights[l + 1], squares, activation.noise, z.shape[0])
                rng, c = draw_scales(rng, *law)
                weights[l] = weights[l] * c[:, None]
                z = z * c
                squares[0] = squares[0] * c**2
                if sigma.is_homogeneous:
                    a_new = a_new * c
                    squares[1] = squares[1] * c**2
                    weights[l + 1] = _scale_columns(weights[l + 1], 1 / c, above)
            if collapse:
                rng, weights[l + 1] = _draw_weights(rng, above, a_new, outputs[l + 1])
            outputs[l], posts[l], a = z, a_new, a_new
            noise += [square.sum() for square in squares]

        m, last = predict(a, weights[-1], layers[-1].has_bias), layers[-1]
        if network.labels and network.labels.kind == "argmax":
            rng, outputs[-1] = draw_given_argmax(rng, outputs[-1], m, network.labels.value, last.noise)
        elif network.labels:
            labels = network.labels.value
            rng, outputs[-1] = draw_given_sign(rng, m, labels.reshape(m.shape), last.noise)
        residual = outputs[-1] - m
        noise.append((residual**2).sum())
        stats = _statistics(now, weights, outputs, noise) | dict(zip(acceptance_names, acceptances, strict=True))
        new = {activation.output: post for activation, post in zip(hidden, posts, strict=True)}
        for layer, w, z in zip(layers, weights, outputs, strict=True):
            new |= layer.values(w)
            if layer.output in state:
                new[layer.output] = z if layer.output.ndim == 2 else z[:, 0]
        return rng, new, changed, stats

    names = ["lp", *_statistic_names(network), *acceptance_names]
    tune_steps = ANNEAL_STEPS if anneal else TUNE_STEPS if "langevin" in kinds else 0
    return Transition(network.variables, step, carry, names, network.check_data, tune_steps, network.inputs)


def _annealed(network: Network, start: float, tuning: Variable) -> Network:
    """The network with every Δ below ``start`` replaced by Δ^(1 − r) start^r, r the share of tuning still to come."""

    def hotter(part: Dense | Activation) -> Dense | Activation:
        noise = part.noise * pt.maximum(start / part.noise, 1) ** tuning
        return replace(part, noise=pt.cast(noise, part.noise.dtype))

    return replace(
        network,
        layers=tuple(hotter(layer) for layer in network.layers),
        activations=tuple(hotter(activation) for activation in network.activations),
    )


def _start(network: Network) -> dict[str, Variable]:
    """What of the data layer can be computed once: its spectrum, or ÃᵀÃ where units or draws differ in their prior."""
    first, a = network.layers[0], network.inputs
    if isinstance(first.precision, Constant) and first.precision.type.broadcastable[0]:
        u, eigenvalues = spectrum(a, first.has_bias, first.precision, network.is_thin)
        return {"u": u, "eigenvalues": eigenvalues}
    return {"gram": products(a, augment(a, first.has_bias), first.has_bias)}


def _draw_first_weights(rng: Variable, network: Network, z: Variable, carry: dict):
    layer = network.layers[0]
    moments = products(network.inputs, z, layer.has_bias)
    if "gram" in carry:
        return draw_weights(rng, carry["gram"], moments, layer.noise, layer.precision)
    u, eigenvalues = carry["u"], carry["eigenvalues"]
    return draw_weights_from_spectrum(rng, u, eigenvalues, moments, layer.noise, layer.precision, network.is_thin)


def _draw_weights(rng: Variable, layer: Dense, a: Variable, z: Variable):
    augmented = augment(a, layer.has_bias)
    return draw_weights(rng, augmented.T @ augmented, augmented.T @ z, layer.noise, layer.precision)


def _split(w: Variable, layer: Dense) -> tuple[Variable, Variable | float]:
    """(W, b) of W̃ = [W, b], with b = 0 for a layer without bias."""
    return (w[:, :-1], w[:, -1]) if layer.has_bias else (w, 0.0)


def _scale_columns(w: Variable, factors: Variable, layer: Dense) -> Variable:
    """W times diag(factors); the bias stays."""
    return pt.concatenate([w[:, :-1] * factors, w[:, -1:]], axis=1) if layer.has_bias else w * factors


def scale_law(
    function: PiecewiseLinear,
    below: Dense,
    above: Dense,
    w_below: Variable,
    w_above: Variable,
    squares: list[Variable],
    noise: Variable,
    n: Variable,
) -> tuple[Variable, Variable, Variable]:
    """(p, Q1, Q2) for the units between two layers, from the squared noise of each unit's Z and A."""
    d = w_below.shape[1]
    incoming = squares[0] / below.noise + (below.precision * w_below**2).sum(axis=1)
    if function.is_scale_free:
        return pt.cast(d + n, incoming.dtype), incoming, pt.zeros_like(incoming)
    outgoing, _ = _split(above.precision * w_above**2, above)
    exponent = pt.cast(d + 2 * n - above.shape[0], incoming.dtype)
    return exponent, incoming + squares[1] / noise, outgoing.sum(axis=0)


def _statistics(network: Network, weights: list[Variable], outputs: list[Variable], noise: list[Variable]) -> dict:
    """Statistics of the new state from the squared noise of each latent and of the data."""
    n = pt.cast(outputs[-1].shape[0], outputs[-1].dtype)
    lp, norms, ratios = 0.0, [], []
    for square, (_, variance, width) in zip(noise, network.noisy, strict=True):
        lp -= 0.5 * (square / variance + n * width * pt.log(2 * math.pi * variance))
        ratios.append(square / (variance * n * width))
    for layer, w in zip(network.layers, weights, strict=True):
        # A row of precisions that all units share counts once for each.
        copies = layer.shape[0] if layer.precision.type.broadcastable[0] else 1
        lp -= 0.5 * ((layer.precision * w**2).sum() - copies * pt.log(layer.precision / (2 * math.pi)).sum())
        norms.append((w**2).sum())
    return {"lp": lp} | dict(zip(_statistic_names(network), norms + ratios, strict=True))


def _statistic_names(network: Network) -> list[str]:
    norms = [f"norm_{layer.weights.name}" for layer in network.layers]
    return norms + [f"noise_{name}" for name, _, _ in network.noisy]

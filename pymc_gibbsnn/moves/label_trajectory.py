r"""All weights below class labels, moved together by Hamiltonian dynamics, with latents behind labels integrated out.

Model, in the letters of :mod:`pymc_gibbsnn.moves`, for a network whose last layer gives labels,

    Z_{l+1} = Ã_l W̃_lᵀ + E_{l+1},   A_l = σ(Z_l) + F_l,   W̃_l ~ N(0, 1/Λ_l),
    y = argmax Z_{L+1}, or y = 1[Z_{L+1} > 0].

Given Z_{L+1} the weights are known as from a regression with n k targets, each to within its noise. The labels say far
less, least where classes are far apart, and moves given Z_{L+1} cross the posterior in small steps. So all W̃ move with
the noises E and F held fixed, and Z and A with them [1]_, as in :mod:`pymc_gibbsnn.moves.interweaving`, but through all
layers at once. The latent Z_y of the label is integrated out, as in :mod:`pymc_gibbsnn.moves.label_scale`. With M the
mean of Z_{L+1} at the new weights, exactly

    log π(W̃) = Σ_i log P_i − ½ Σ Λ W̃² + const,

    argmax:   P_i = Φ((M_y − max_j (M_j + E_j))/√Δ),   over the classes j other than y,
    sign:     P_i = Φ(±M/√Δ),                          with + for the label 1 and − for 0.

In the coordinates x = Λ^{1/2} W̃, with momenta p ~ N(0, I), a proposal is the end of some steps of the leapfrog method
[2]_. It is accepted with probability min(1, exp(H − H')), H = ½ |p|² − log π, which makes the move exact. The size of
the steps is h (1 + u)/2, with u uniform and the same for all of them, and h tuned to an acceptance of 0.8. On images,
longer paths moved outputs somewhat farther for each step, but all steps are written out, which takes long to compile. A
metric learned while tuning, of the form s ÃᵀÃ + Λ, allowed steps three times as long, and yet outputs moved no faster.

Z_y is left out of date: the draw of Z_{L+1} given the labels, which does not read Z_y, must follow.

References
----------
.. [1] Y. Yu, X.-L. Meng. To center or not to center: that is not the question. J. Comput. Graph. Stat. 20 (2011).
.. [2] R. M. Neal. MCMC using Hamiltonian dynamics. Handbook of Markov Chain Monte Carlo (2011).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal, uniform

from pymc_gibbsnn._compat import PYTENSOR_3
from pymc_gibbsnn._robbins_monro import robbins_monro
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.site import Move, NetworkState
from pymc_gibbsnn.networks.likelihoods.label_likelihood import LabelLikelihood
from pymc_gibbsnn.networks.network import Network

__all__ = ["has_label_trajectory", "label_density", "label_trajectory", "moved_with"]

STEPS = 8  # of the leapfrog method, in a move
TARGET_ACCEPTANCE = 0.8
TUNE_STEPS = 1000  # how many tuning steps the move needs


class StepSize(NamedTuple):
    """What the move remembers."""

    log_step: Variable  # log h
    tuned: Variable  # how many moves the chain has made


class Report(NamedTuple):
    """What the move reports: the acceptance probability of its proposal, and h."""

    acceptance: Variable
    step_size: Variable


def has_label_trajectory(network: Network) -> bool:
    """Whether the move can be made: data are class labels, and layers dense, with slopes by which weights matter.

    It is not made with PyTensor 2, where it has not been tried in JAX.
    """
    return (
        PYTENSOR_3
        and isinstance(network.observation, LabelLikelihood)
        and all(layer.operator.is_product for layer in network.layers)
        and not any(activation is None or activation.function.is_scale_free for activation in network.activations)
    )


def label_trajectory(network: Network) -> Move:
    """Make the move of all weights of a network of dense layers that gives class labels, which tunes its step size."""
    dtype, count = network.inputs.dtype, sum(math.prod(layer.operator.augmented_shape) for layer in network.layers)
    memory = StepSize(pt.constant(np.asarray(-math.log(count) / 2, dtype)), pt.zeros((), dtype=dtype))

    def step(rng: Variable, state: NetworkState, memory: StepSize) -> tuple[Variable, NetworkState, StepSize, Report]:
        operators = [layer.operator for layer in state.network.layers]
        deviations = [1 / pt.sqrt(operator.precision) for operator in operators]
        zero, one = pt.constant(np.array([0, 1], dtype))
        momenta = []
        for operator in operators:
            rng, xi = draw(normal, rng, zero, one, size=operator.size)
            momenta.append(xi)
        rng, uniforms = draw(uniform, rng, zero, one, size=(2,))
        h = pt.exp(memory.log_step) * (1 + uniforms[0]) / 2

        def at(w: Sequence[Variable]) -> tuple[Variable, list[Variable]]:
            """Compute log π, and its gradient in the coordinates x."""
            density = label_density(state, w)
            return density, [g * s for g, s in zip(pt.grad(density, w), deviations, strict=True)]

        def leap(*now: Variable) -> list[Variable]:
            """Make one step of the leapfrog method from W̃, p and ∇log π; the last of all is log π."""
            w, momenta, gradient = (now[i * len(operators) : (i + 1) * len(operators)] for i in range(3))
            half = [p + h / 2 * g for p, g in zip(momenta, gradient, strict=True)]
            moved = [x + h * s * p for x, s, p in zip(w, deviations, half, strict=True)]
            density, gradient = at(moved)
            return [*moved, *(p + h / 2 * g for p, g in zip(half, gradient, strict=True)), *gradient, density]

        w = [x.copy() for x in state.weights]  # by which nothing else is differentiated
        density, gradient = at(w)
        end = [*w, *momenta, *gradient, density]
        for _ in range(STEPS):  # not a loop of the program, in which JAX would not know the shapes of gradients
            end = leap(*end)
        new, new_momenta = end[: len(w)], end[len(w) : 2 * len(w)]
        kinetic = sum((p**2).sum() - (q**2).sum() for p, q in zip(momenta, new_momenta, strict=True)) / 2
        log_ratio = end[-1] - density + kinetic
        log_ratio = pt.switch(pt.isnan(log_ratio), -np.inf, log_ratio)
        accept = pt.log1p(-uniforms[1]) < log_ratio
        acceptance = pt.exp(pt.minimum(log_ratio, 0))
        state = moved_with(state, [pt.switch(accept, x, old) for x, old in zip(new, state.weights, strict=True)])

        tuned = memory.tuned + 1
        log_step = robbins_monro(memory.log_step, tuned, acceptance, TARGET_ACCEPTANCE, state.tuning)
        return rng, state, StepSize(log_step, tuned), Report(acceptance, pt.exp(memory.log_step))

    return Move.of(network.layers[-1].name, step, memory, Report, TUNE_STEPS, {"log_step": "step_size"})


def moved_with(state: NetworkState, weights: Sequence[Variable]) -> NetworkState:
    """Return the state with other weights W̃, in which all noises are as they were and Z and A have moved."""
    a, outputs, posts = state.network.inputs, [], []
    for l, (layer, w) in enumerate(zip(state.network.layers, weights, strict=True)):
        z, mean = state.outputs[l], layer.mean(state.input(l), state.weights[l])
        outputs.append(layer.mean(a, w) + (z - mean))
        if l < len(state.posts):
            function = state.network.activations[l].function
            a = function(outputs[l]) + (state.posts[l] - function(z))
            posts.append(a)
    return replace(state, weights=tuple(weights), outputs=tuple(outputs), posts=tuple(posts))


def label_density(state: NetworkState, weights: Sequence[Variable]) -> Variable:
    """Compute log π at weights W̃, with the noises of a state."""
    layers, last = state.network.layers, state.network.layers[-1]
    noise = state.outputs[-1] - last.mean(state.input(len(state.posts)), state.weights[-1])
    mean = moved_with(state, weights).outputs[-1] - noise
    density = cast(LabelLikelihood, state.network.observation).log_probability_of_means(mean, noise, last.noise)
    return density - sum((layer.operator.precision * w**2).sum() for layer, w in zip(layers, weights, strict=True)) / 2

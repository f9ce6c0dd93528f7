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

In the coordinates x = Λ^{1/2} W̃, with momenta p ~ N(0, I), a proposal is the end of 30 steps of the leapfrog method
[2]_,

    x ← x + h p/2,   p ← p + h ∇ log π,   x ← x + h p/2,

in which two half steps in a row are one step. It is accepted with probability min(1, exp(H − H')), H = ½ pᵀp − log π,
which makes the move exact. The size h of the steps is a tuned one times (1 + u)/2, with u uniform and the same for all
of them; the acceptance is tuned to 0.8. A metric learned while tuning, of the form s ÃᵀÃ + Λ, allowed steps three times
as long, and yet outputs moved no faster.

The gradient is that of backpropagation: with δ_l = ∂ log π/∂Z_l,

    ∇_l = Ã_lᵀ δ_{l+1} − Λ_l W̃_l,   δ_l = (δ_{l+1} W_l) ∘ σ'(Z_l),   δ_{L+1} = (φ/Φ)(m/√Δ) ∂m/∂Z_{L+1}/√Δ,

where m/√Δ is the argument of Φ above. It is written out, since that of PyTensor has shapes that JAX does not know in a
loop.

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
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal, uniform
from pytensor.tensor.type import TensorType

from pymc_gibbsnn._robbins_monro import robbins_monro
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.site import Move, NetworkState
from pymc_gibbsnn.networks.given import loose
from pymc_gibbsnn.networks.layers.dense import Dense
from pymc_gibbsnn.networks.likelihoods.label_likelihood import LabelLikelihood
from pymc_gibbsnn.networks.network import Activation, Network
from pymc_gibbsnn.random.log_normal_cdf import log_normal_cdf

__all__ = ["has_label_trajectory", "label_density", "label_trajectory", "moved_with", "path"]

STEPS = 30  # of the leapfrog method, in a move
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
    """Whether the move can be made: data are class labels, and layers dense, with slopes by which weights matter."""
    return (
        isinstance(network.observation, LabelLikelihood)
        and all(layer.operator.is_product for layer in network.layers)
        and not any(activation is None or activation.function.is_scale_free for activation in network.activations)
    )


def label_trajectory(network: Network) -> Move:
    """Make the move of all weights of a network of dense layers that gives class labels, which tunes its step size."""
    dtype, count = network.inputs.dtype, sum(math.prod(layer.operator.augmented_shape) for layer in network.layers)
    memory = StepSize(pt.constant(np.asarray(-math.log(count) / 2, dtype)), pt.zeros((), dtype=dtype))

    def step(rng: Variable, state: NetworkState, memory: StepSize) -> tuple[Variable, NetworkState, StepSize, Report]:
        zero, one = pt.constant(np.array([0, 1], dtype))
        momenta = []
        for layer in state.network.layers:
            rng, xi = draw(normal, rng, zero, one, size=layer.operator.size)
            momenta.append(xi)
        rng, uniforms = draw(uniform, rng, zero, one, size=(2,))
        weights, new_momenta = path(state, momenta, pt.exp(memory.log_step) * (1 + uniforms[0]) / 2)
        new = moved_with(state, weights)
        kinetic = sum((p**2).sum() - (q**2).sum() for p, q in zip(momenta, new_momenta, strict=True)) / 2
        log_ratio = label_density(state, new) - label_density(state, state) + kinetic
        log_ratio = pt.switch(pt.isnan(log_ratio), -np.inf, log_ratio)
        accept = pt.log1p(-uniforms[1]) < log_ratio
        acceptance = pt.exp(pt.minimum(log_ratio, 0))
        chosen = {
            name: tuple(
                pt.switch(accept, x, old) for x, old in zip(getattr(new, name), getattr(state, name), strict=True)
            )
            for name in ("weights", "outputs", "posts")
        }
        tuned = memory.tuned + 1
        log_step = robbins_monro(memory.log_step, tuned, acceptance, TARGET_ACCEPTANCE, state.tuning)
        return rng, replace(state, **chosen), StepSize(log_step, tuned), Report(acceptance, pt.exp(memory.log_step))

    return Move.of(network.layers[-1].name, step, memory, Report, TUNE_STEPS, {"log_step": "step_size"})


def path(
    state: NetworkState, momenta: Sequence[Variable], h: Variable, steps: int = STEPS
) -> tuple[list[Variable], list[Variable]]:
    """Follow the dynamics from the weights of a state.

    Parameters
    ----------
    state : NetworkState
        The state.
    momenta : sequence of Variable
        The momentum of the weights of each layer, in the coordinates x.
    h : Variable, ()
        The size of the steps.
    steps : int
        How many there are.

    Returns
    -------
    weights, momenta : list of Variable
        W̃ and p at the end.
    """
    network, observation = state.network, cast(LabelLikelihood, state.network.observation)
    operators = [cast(Dense, layer.operator) for layer in network.layers]
    functions = [cast(Activation, activation).function for activation in network.activations]
    of_outputs, of_posts = _noises(state)
    marks = observation.marks(of_outputs[-1])
    of_outputs[-1] = observation.seen(of_outputs[-1], marks)
    shifts = [
        e if layer.offset is None else e + layer.offset for layer, e in zip(network.layers, of_outputs, strict=True)
    ]
    deviations = [1 / pt.sqrt(operator.precision) for operator in operators]
    ones = [operator.ones for operator in operators if operator.ones is not None]
    kinds = [loose(TensorType(p.dtype, o.augmented_shape)) for p, o in zip(momenta, operators, strict=True)]
    start = [w / s + h / 2 * p for w, s, p in zip(state.weights, deviations, momenta, strict=True)]
    moving = [[kind.filter_variable(x) for kind, x in zip(kinds, part, strict=True)] for part in (start, momenta)]
    # All that is computed of the state enters the loop by name: what does not is computed anew in each of its turns
    fixed = [deviations, shifts, of_posts, ones, [h, network.inputs, marks, pt.sqrt(network.layers[-1].noise)]]

    def leap(*now: Variable) -> list[Variable]:
        """Make one step, at the middle of which the gradient is computed."""
        arrays = iter(now)
        x, p, deviations, shifts, noises, ones, rest = ([next(arrays) for _ in part] for part in [*moving, *fixed])
        h, a, marks, sigma = rest
        of_rows = iter(ones)
        maps = [o if o.ones is None else replace(o, ones=next(of_rows)) for o in operators]
        w = [s * x_ for s, x_ in zip(deviations, x, strict=True)]
        inputs, z = [a], []
        for l, operator in enumerate(maps):
            z.append(operator.forward(inputs[l], w[l]) + shifts[l])
            if l < len(functions):
                inputs.append(functions[l](z[l]) + noises[l])
        margin, slopes = observation.margin(z[-1], marks)
        u = margin / sigma
        delta = slopes * pt.exp(-(u**2) / 2 - log_normal_cdf(u)) / (math.sqrt(2 * math.pi) * sigma)
        for l in reversed(range(len(maps))):
            gradient = maps[l].moments(inputs[l], delta).T * deviations[l] - x[l]
            p[l] = kinds[l].filter_variable(p[l] + h * gradient)
            if l:
                delta = (delta @ maps[l].linear(w[l])) * functions[l - 1].derivative(z[l - 1])
        return [kind.filter_variable(x_ + h * p_) for kind, x_, p_ in zip(kinds, x, p, strict=True)] + p

    ends = pytensor.scan(
        leap,
        outputs_info=[*moving[0], *moving[1]],
        non_sequences=[array for part in fixed for array in part],
        n_steps=steps,
        return_updates=False,
    )
    x, p = ([end[-1] for end in part] for part in (ends[: len(kinds)], ends[len(kinds) :]))
    return [s * (x_ - h / 2 * p_) for s, x_, p_ in zip(deviations, x, p, strict=True)], p


def _noises(state: NetworkState) -> tuple[list[Variable], list[Variable]]:
    """Compute the noises E of Z and F of A."""
    network = state.network
    of_outputs = [
        z - layer.mean(state.input(l), w)
        for l, (layer, w, z) in enumerate(zip(network.layers, state.weights, state.outputs, strict=True))
    ]
    of_posts = [
        a - cast(Activation, activation).function(z)
        for activation, a, z in zip(network.activations, state.posts, state.outputs, strict=False)
    ]
    return of_outputs, of_posts


def moved_with(state: NetworkState, weights: Sequence[Variable]) -> NetworkState:
    """Return the state with other weights W̃, in which all noises are as they were and Z and A have moved."""
    a, outputs, posts = state.network.inputs, [], []
    of_outputs, of_posts = _noises(state)
    for l, (layer, w) in enumerate(zip(state.network.layers, weights, strict=True)):
        outputs.append(layer.mean(a, w) + of_outputs[l])
        if l < len(of_posts):
            a = state.network.activations[l].function(outputs[l]) + of_posts[l]
            posts.append(a)
    return replace(state, weights=tuple(weights), outputs=tuple(outputs), posts=tuple(posts))


def label_density(state: NetworkState, moved: NetworkState) -> Variable:
    """Compute log π at the weights of a state that has moved, with the noises of the one from which it came."""
    layers, last = state.network.layers, state.network.layers[-1]
    noise = _noises(state)[0][-1]
    density = cast(LabelLikelihood, state.network.observation).log_probability_of_means(
        moved.outputs[-1] - noise, noise, last.noise
    )
    return (
        density
        - sum((layer.operator.precision * w**2).sum() for layer, w in zip(layers, moved.weights, strict=True)) / 2
    )

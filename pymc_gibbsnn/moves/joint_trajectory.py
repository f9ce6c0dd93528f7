r"""All weights of a network and the scales of their priors, moved together by Hamiltonian dynamics.

Model, in the letters of :mod:`pymc_gibbsnn.moves`, for a network of dense layers with data y given the last latent,

    Z_{l+1} = Ã_l W̃_lᵀ + E_{l+1},   A_l = σ(Z_l) + F_l,   W̃_l ~ N(0, 1/Λ_l),   y ~ p(y | Z_{L+1}).

Given Z_{L+1} the weights are known as from a regression with n k targets, each to within the noise of Z_{L+1}. Data
such as class labels or counts may say far less than that, and moves given Z_{L+1} then cross the posterior in steps as
small as this noise. Below such data all W̃ move with the noises E and F held fixed, and Z and A
with them [1]_, as in :mod:`pymc_gibbsnn.moves.interweaving`, but through all layers at once. Learned precisions
τ ~ Gamma(α, β) of the priors of weights, if they serve nothing else, move too, or learned variances 1/τ. In the
coordinates

    x = Λ^{1/2} W̃,   u = ½ log(τ_0/τ),   with τ_0 the precisions before the move,

W̃ is e^u x/Λ_0^{1/2}, with the u of its precision, or 0 where that is known. With M the mean of Z_{L+1}, exactly

    log π(x, u) = Σ_i log P_i − ½ Σ x² − Σ_τ (2 α u + β τ_0 e^{−2u}) + const,   P_i = p(y_i | M_i + E_i).

Below labels by argmax or sign the latent Z_y of the label is integrated out, as in
:mod:`pymc_gibbsnn.moves.label_scale`:

    argmax:   P_i = Φ((M_y − max_j (M_j + E_j))/√Δ),   over the classes j other than y,
    sign:     P_i = Φ(±M/√Δ),                          with + for the label 1 and − for 0.

With q = (x, u) and momenta p ~ N(0, I), a proposal is the end of 30 steps of the leapfrog method [2]_,

    q ← q + h p/2,   p ← p + h ∇ log π,   q ← q + h p/2,

in which two half steps in a row are one step. It is accepted with probability min(1, exp(H − H')), H = ½ pᵀp − log π,
which makes the move exact. From move to move most of the momentum is kept, so that paths in a row make a long one [3]_:

    p ← 0.9 p + (1 − 0.9²)^{1/2} ξ,   ξ ~ N(0, I),   where p is turned round if the proposal before was rejected.

Around real data, y ~ StudentT(ν, Z, σ) or y = Z, the noise may be so small that h is tuned to tiny steps, and the other
moves of a sweep do more in the time. Where h is below 0.001 after tuning, so that ten moves in a row go less than 0.3
prior standard deviations, a proposal is a single step, whose acceptance is then what is reported; programs of JAX make
all steps, since their loops have fixed lengths. Where the other moves are cheap compared with this one, in layers of
few units or many inputs, it is not made for such data. Nor is it where their noise is heteroscedastic: it gained
nothing there.

The size h of the steps is a tuned one times (1 + v)/2, with v uniform and the same for all of them. The acceptance is
tuned to 0.9, since rejections break long paths. Metrics learned while tuning from the curvature of log π in x allowed
longer steps, and yet outputs moved more slowly: directions that are steep at a point are not narrow in the posterior.

The gradient is that of backpropagation: with δ_l = ∂ log π/∂Z_l and G_l = (Ã_lᵀ δ_{l+1})ᵀ ∘ e^u/Λ_0^{1/2},

    ∇_x = G − x,   ∇_u = Σ G x − 2 α + 2 β τ_0 e^{−2u},   with a sum over the weights whose precision it is,
    δ_l = (δ_{l+1} W_l) ∘ σ'(Z_l),   δ_{L+1} = ∂ Σ log P_i/∂M.

It is written out, since that of PyTensor has shapes that JAX does not know in a loop.

Where the data are Z_{L+1} itself, P_i is the density of Normal(M_i, Δ) at y_i, and E_{L+1} is not held fixed.

Below labels Z_y is left out of date: the draw of Z_{L+1} given the labels, which does not read Z_y, must follow.

References
----------
.. [1] Y. Yu, X.-L. Meng. To center or not to center: that is not the question. J. Comput. Graph. Stat. 20 (2011).
.. [2] R. M. Neal. MCMC using Hamiltonian dynamics. Handbook of Markov Chain Monte Carlo (2011).
.. [3] A. M. Horowitz. A generalized guided Monte Carlo algorithm. Physics Letters B 268 (1991).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
from pymc_gibbsnn.backends.loop_length import LoopLength
from pymc_gibbsnn.moves.fixed_noise import likelihood_of_means, noises, with_noises
from pymc_gibbsnn.moves.interweaving import WIDEST_ABOVE, WIDEST_BELOW
from pymc_gibbsnn.moves.label_scale import scales_of
from pymc_gibbsnn.moves.site import Move, NetworkState
from pymc_gibbsnn.networks.given import given, is_given, loose, sizes
from pymc_gibbsnn.networks.layers.dense import Dense
from pymc_gibbsnn.networks.network import Activation, LearnedVariance, Network
from pymc_gibbsnn.networks.substitution import substitute, unchanged

__all__ = ["has_joint_trajectory", "joint_density", "joint_trajectory", "path", "with_precisions"]

STEPS = 30  # of the leapfrog method, in a move
# Around real data: the smallest number of units in the first hidden layer with which the move is at most about half of
# a sweep, where interweaving moves of units with the weights above integrated out make sweeps long; and the smallest h
# that is worth it.
FEWEST, SHORTEST = 20, 1e-3
KEPT = 0.9  # the share of the momentum that is kept from move to move
TARGET_ACCEPTANCE = 0.9
TUNE_STEPS = 1000  # how many tuning steps the move needs


class Memory(NamedTuple):
    """What the move remembers."""

    log_step: Variable  # log h
    tuned: Variable  # how many moves the chain has made
    momentum: Variable  # p, of all x and then of all u, in one vector


class Report(NamedTuple):
    """What the move reports: the acceptance probability of its proposal, and h."""

    acceptance: Variable
    step_size: Variable


def has_joint_trajectory(network: Network) -> bool:
    """Whether likelihood and activations have slopes, layers are dense and, on real data, the move is worth it."""
    return (
        (network.observation is None or network.observation.has_slopes)
        and all(layer.operator.is_product for layer in network.layers)
        and not any(activation is None or activation.function.is_scale_free for activation in network.activations)
        and (_noise_of_data(network) is None or _is_worthwhile(network))
    )


def _noise_of_data(network: Network) -> Variable | None:
    """Return the variance of the noise of real data; None if data are of another kind."""
    return network.layers[-1].noise if network.observation is None else network.observation.noise


def _is_worthwhile(network: Network) -> bool:
    """Whether the move is quick beside the others, around real data whose noise is learned: else they mix as well."""
    first, *above = (layer.operator for layer in network.layers)
    is_quick = first.fan_in <= WIDEST_BELOW and all(operator.fan_in <= WIDEST_ABOVE for operator in above)
    is_known = is_given(_noise_of_data(network)) or network.row_scale is not None
    return bool(above) and is_quick and first.shape[0] >= FEWEST and not is_known


def joint_trajectory(network: Network, name: str | None = None) -> Move:
    """Make the move of all weights of a network, which tunes its step size.

    Parameters
    ----------
    network : Network
        The network.
    name : str, optional
        The name of the move's memory and statistics; by default that of the last latent.
    """
    dtype, count = network.inputs.dtype, sum(math.prod(layer.operator.augmented_shape) for layer in network.layers)
    size = count + _learned(network)
    log_step = pt.constant(np.asarray(-math.log(count) / 2, dtype))
    memory = Memory(log_step, pt.zeros((), dtype=dtype), given(np.zeros(size, dtype)))

    def steps(state: NetworkState, memory: Memory) -> Variable | int:
        if _noise_of_data(network) is None:
            return STEPS
        is_long = (state.tuning > 0) | (memory.log_step >= math.log(SHORTEST))
        return LoopLength(STEPS)(pt.switch(is_long, STEPS, 1))

    def step(rng: Variable, state: NetworkState, memory: Memory) -> tuple[Variable, NetworkState, Memory, Report]:
        zero, one = pt.constant(np.array([0, 1], dtype))
        rng, xi = draw(normal, rng, zero, one, size=sizes((size,)))
        rng, uniforms = draw(uniform, rng, zero, one, size=(2,))
        p = pt.switch(memory.tuned > 0, KEPT * memory.momentum + math.sqrt(1 - KEPT**2) * xi, xi)
        weights, u, new_p = path(state, p, pt.exp(memory.log_step) * (1 + uniforms[0]) / 2, steps(state, memory))
        new = with_noises(replace(state, weights=tuple(weights)), noises(state))
        change = joint_density(state, new, u) - joint_density(state, state, pt.zeros_like(u))
        log_ratio = change + ((p**2).sum() - (new_p**2).sum()) / 2
        log_ratio = pt.switch(pt.isnan(log_ratio), -np.inf, log_ratio)
        if network.observation is None:
            new = replace(new, outputs=(*new.outputs[:-1], state.outputs[-1]))
        accept = pt.log1p(-uniforms[1]) < log_ratio
        acceptance = pt.exp(pt.minimum(log_ratio, 0))
        chosen = {
            name: tuple(
                pt.switch(accept, x, old) for x, old in zip(getattr(new, name), getattr(state, name), strict=True)
            )
            for name in ("weights", "outputs", "posts")
        }
        state = replace(with_precisions(state, pt.switch(accept, u, 0)), **chosen)
        tuned = memory.tuned + 1
        log_step = robbins_monro(memory.log_step, tuned, acceptance, TARGET_ACCEPTANCE, state.tuning)
        remembered = Memory(log_step, tuned, pt.switch(accept, new_p, -p))
        return rng, state, remembered, Report(acceptance, pt.exp(memory.log_step))

    return Move.of(name or network.layers[-1].name, step, memory, Report, TUNE_STEPS, {"log_step": "step_size"})


def path(
    state: NetworkState, momentum: Variable, h: Variable, steps: Variable | int = STEPS
) -> tuple[list[Variable], Variable, Variable]:
    """Follow the dynamics from the weights of a state.

    Parameters
    ----------
    state : NetworkState
        The state.
    momentum : Variable, (weights and learned precisions,)
        The momentum of the x of each layer, in rows, and then of all u.
    h : Variable, ()
        The size of the steps.
    steps : int or Variable, ()
        How many there are.

    Returns
    -------
    weights : list of Variable
        W̃ of each layer at the end.
    u : Variable, (learned precisions,)
        All u, one precision after the other.
    momentum : Variable
        The momentum.
    """
    network = state.network
    operators = [cast(Dense, layer.operator) for layer in network.layers]
    functions = [cast(Activation, activation).function for activation in network.activations]
    (*of_outputs, last_noise), of_posts = noises(state)
    shifts = [
        e if layer.offset is None else e + layer.offset
        for layer, e in zip(network.layers, [*of_outputs, pt.zeros_like(last_noise)], strict=True)
    ]
    mean = state.outputs[-1].type()
    slopes = likelihood_of_means(state).slopes_of_means(mean, last_noise, network.layers[-1].noise)
    of_slopes = unchanged([slopes], [mean])
    places, deviations = _places(network), [1 / pt.sqrt(operator.precision) for operator in operators]
    priors = [_gamma(state, scale) for scale in _scales(network)]
    alpha, rate = (_in_line([prior[i] for prior in priors], h.dtype) for i in range(2))
    ones = [operator.ones for operator in operators if operator.ones is not None]
    shapes = [*(operator.augmented_shape for operator in operators), (_learned(network),)]
    momenta, start = _apart(momentum, shapes), []
    for w, s, p in zip(state.weights, deviations, momenta[:-1], strict=True):
        start.append(w / s + h / 2 * p)
    start.append(h / 2 * momenta[-1])
    kinds = [loose(TensorType(h.dtype, shape)) for shape in shapes]
    moving = [[kind.filter_variable(x) for kind, x in zip(kinds, part, strict=True)] for part in (start, momenta)]
    # All that is computed of the state enters the loop by name: what does not is computed anew in each of its turns
    fixed = [places, deviations, shifts, of_posts, ones, of_slopes, [alpha, rate, h, network.inputs]]

    def leap(*now: Variable) -> list[Variable]:
        """Make one step, at the middle of which the gradient is computed."""
        arrays = iter(now)
        q, p, places, deviations, shifts, noises, ones, of_slopes_now, rest = (
            [next(arrays) for _ in part] for part in [*moving, *fixed]
        )
        (*x, u), (alpha, rate, h, a) = q, rest
        of_rows = iter(ones)
        maps = [o if o.ones is None else replace(o, ones=next(of_rows)) for o in operators]
        deviations = [s * factors for s, factors in zip(deviations, _factors(u, places), strict=True)]
        w = [s * x_ for s, x_ in zip(deviations, x, strict=True)]
        inputs, z = [a], []
        for l, operator in enumerate(maps):
            z.append(operator.forward(inputs[l], w[l]) + shifts[l])
            if l < len(functions):
                inputs.append(functions[l](z[l]) + noises[l])
        [delta] = substitute([slopes], dict(zip([mean, *of_slopes], [z[-1], *of_slopes_now], strict=True)))
        sums = pt.zeros_like(_padded(u))
        for l in reversed(range(len(maps))):
            gradient = maps[l].moments(inputs[l], delta).T * deviations[l]
            p[l] = p[l] + h * (gradient - x[l])
            sums = pt.inc_subtensor(sums[places[l].ravel()], (gradient * x[l]).ravel())
            if l:
                delta = (delta @ maps[l].linear(w[l])) * functions[l - 1].derivative(z[l - 1])
        p[-1] = p[-1] + h * (sums[:-1] - 2 * alpha + 2 * rate * pt.exp(-2 * u))
        p = [kind.filter_variable(p_) for kind, p_ in zip(kinds, p, strict=True)]
        return [kind.filter_variable(q_ + h * p_) for kind, q_, p_ in zip(kinds, q, p, strict=True)] + p

    # In search of known lengths, PyTensor looks at all that first values are computed from: they come in afterwards
    starts = {kind(): x for part in moving for kind, x in zip(kinds, part, strict=True)}
    ends = pytensor.scan(
        leap,
        outputs_info=[*starts],
        non_sequences=[array for part in fixed for array in part],
        n_steps=steps,
        return_updates=False,
    )
    ends = substitute(ends, starts)
    q, p = ([end[-1] for end in part] for part in (ends[: len(kinds)], ends[len(kinds) :]))
    *x, u = (q_ - h / 2 * p_ for q_, p_ in zip(q, p, strict=True))
    factors = _factors(u, places)
    return [s * factor * x_ for s, factor, x_ in zip(deviations, factors, x, strict=True)], u, _in_line(p, h.dtype)


def with_precisions(state: NetworkState, u: Variable) -> NetworkState:
    """Return the state with learned precisions moved by u."""
    moved = {scale.value: scale.scaled(state.values[scale.value], part) for scale, part in _by_scale(state.network, u)}
    values = state.values | moved
    return replace(state, values=values, network=state.read(values))


def joint_density(state: NetworkState, moved: NetworkState, u: Variable) -> Variable:
    """Compute log π at the weights of a state that has moved, with the noises of the one from which it came, and u."""
    network, last = state.network, state.network.layers[-1]
    noise = noises(state).of_outputs[-1]
    density = likelihood_of_means(state).log_densities_of_means(moved.outputs[-1] - noise, noise, last.noise).sum()
    for layer, w, factors in zip(network.layers, moved.weights, _factors(u, _places(network)), strict=True):
        density -= (layer.operator.precision * (w / factors) ** 2).sum() / 2
    for scale, part in _by_scale(network, u):
        alpha, rate = _gamma(state, scale)
        density -= (2 * alpha * part + rate * pt.exp(-2 * part)).sum()
    return density


def _scales(network: Network) -> list[LearnedVariance]:
    """List the learned precisions that move."""
    return scales_of(network, network.layers)


def _learned(network: Network) -> int:
    """Count the learned precisions that move."""
    return sum(math.prod(scale.shape) for scale in _scales(network))


def _gamma(state: NetworkState, scale: LearnedVariance) -> tuple[Variable, Variable]:
    """Compute α and β τ_0 of a learned precision, in its shape."""
    zeros = given(np.zeros(scale.shape, scale.alpha.dtype))
    return scale.alpha + zeros, scale.rate * pt.exp(scale.log_precision(state.values[scale.value])) + zeros


def _places(network: Network) -> list[Variable]:
    """For each layer, the numbers (c, d) of the precisions that weights have; the last number if theirs is known."""
    count, start, numbers = _learned(network), 0, {}
    for scale in _scales(network):
        numbers |= {use.value: start + use.which for use in scale.uses}
        start += math.prod(scale.shape)
    places = []
    for layer in network.layers:
        operator = replace(cast(Dense, layer.operator), factor=1.0, bias_factor=1.0)
        known = operator.values(np.full(operator.augmented_shape, count))
        places.append(given(operator.matrix({v: numbers.get(v, x) for v, x in known.items()})))
    return places


def _factors(u: Variable, places: Sequence[Variable]) -> list[Variable]:
    """Compute for each layer the e^u of weights, 1 for those of a known precision."""
    return [pt.exp(_padded(u))[place] for place in places]


def _padded(u: Variable) -> Variable:
    """Append a 0 for all precisions that are known."""
    return pt.concatenate([u, pt.zeros((1,), u.dtype)])


def _in_line(parts: Sequence[Variable], dtype: str) -> Variable:
    """Write arrays, if there are any, in one vector."""
    return pt.concatenate([*(part.ravel() for part in parts), pt.zeros((0,), dtype)])


def _apart(vector: Variable, shapes: Sequence[tuple[int, ...]]) -> list[Variable]:
    """Take a vector apart into arrays of these shapes."""
    ends = [given(np.asarray(end)) for end in np.cumsum([0, *map(math.prod, shapes)])]
    return [vector[a:b].reshape(sizes(shape)) for a, b, shape in zip(ends, ends[1:], shapes, strict=False)]


def _by_scale(network: Network, u: Variable) -> Iterator[tuple[LearnedVariance, Variable]]:
    """Take u apart into those of each learned precision, in its shape."""
    scales = _scales(network)
    return zip(scales, _apart(u, [scale.shape for scale in scales]), strict=True)

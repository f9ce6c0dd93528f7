r"""Parameters of the likelihood, such as a dispersion or cutpoints, drawn by slice sampling along random lines.

Model. The parameters θ, as PyMC's unconstrained value variables in one vector, have a prior density p(θ) that may be
anything, and nothing else of the network depends on them than the data:

    π(θ) ∝ p(θ) Π_i p(y_i | Z_i, θ).

Where the likelihood knows p(y | M, θ) with Z = M + N(0, ΔZ) integrated out, that takes the place of p(y | Z, θ): θ
then moves together with Z, which must be drawn anew before anything reads it. Cutpoints between ordered grades are
drawn in this way [1]_; given Z, each could move no further than to the next Z.

Transition. On the line θ + t d an interval of length 1 is put around t = 0 at random, and searched by
:mod:`pymc_gibbsnn.random.slice_sampling`. The direction d is h ξ with standard normal numbers ξ for all parameters, or
for one of them alone, by turns at random. The logarithm of the step size h is uniform between those of 1 and 10, more
than enough: an interval that is too long shrinks to the length of the slice, one that is too short makes short steps.
Where a single parameter is normal with a standard deviation from 0.01 to 2, autocorrelation times are 1 to 12 sweeps.

Ordered grades do not tell a number t that is added to all cutpoints, to the bias b of the last layer and to Z. As PyMC
transforms them, θ_1 is the first cutpoint, and the other θ are logarithms of differences. So there is a second line,

    (θ_1 + t, b + t, Z + t),   π(t) ∝ p(θ_1 + t, θ_2, ...) exp(−½ Λ_b (b + t)²) Π_i p(y_i | Z_i + t, θ_1 + t, ...).

It is the same with the centers of a mixture of distributions around Z, from all of which t is then taken, and with any
other parameter without a transform that is added to Z. Whether one is so is tried with numbers when the move is made.

References
----------
.. [1] M. K. Cowles. Accelerating Monte Carlo Markov chain convergence for cumulative-link generalized linear models.
   Statistics and Computing 6 (1996).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.random import normal, uniform

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.collapsed_variances import step_sizes
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.forms import evaluate
from pymc_gibbsnn.networks.layers.dense import Dense
from pymc_gibbsnn.networks.likelihoods.factorised import FactorisedLikelihood
from pymc_gibbsnn.networks.likelihoods.ordered_grades import OrderedGrades
from pymc_gibbsnn.networks.network import Network, Parameter
from pymc_gibbsnn.networks.substitution import substitute
from pymc_gibbsnn.random.slice_sampling import search_slice

__all__ = ["has_shift", "likelihood_parameters", "shift"]

SMALLEST, LARGEST = 1.0, 10.0  # step sizes h
TRIES = 8  # points on the line


def likelihood_parameters(rng: Variable, state: NetworkState) -> tuple[Variable, NetworkState]:
    """Move all parameters of the likelihood of a network."""
    parameters, dtype = state.network.parameters, state.outputs[-1].dtype
    sizes = [math.prod(one.shape) for one in parameters]
    theta = [state.values[one.value] for one in parameters]
    symbols = [x.type() for x in theta]
    density = _log_density(state, dict(zip((one.value for one in parameters), symbols, strict=True)))
    zero, one = pt.constant(np.array([0, 1], dtype))
    rng, d = draw(normal, rng, zero, one, size=(sum(sizes),))
    rng, uniforms = draw(uniform, rng, zero, one, size=(4,))
    which = pt.floor(2 * uniforms[0] * sum(sizes))  # beyond the last one: all
    d = pt.switch(pt.eq(np.arange(sum(sizes)), which) | (which >= sum(sizes)), d, 0)
    d = step_sizes(uniforms[1], SMALLEST, LARGEST) * d
    ends = np.cumsum(sizes)
    parts = [d[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    directions = [part.reshape(one.shape) for part, one in zip(parts, parameters, strict=True)]

    def line(t: Variable) -> list[Variable]:
        return [x + pt.cast(t * part, x.dtype) for x, part in zip(theta, directions, strict=True)]

    def log_density(theta: list[Variable]) -> Variable:
        return substitute([density], dict(zip(symbols, theta, strict=True)))[0]

    low = -uniforms[2]
    rng, _, t = search_slice(rng, log_density(theta), low + uniforms[3], (low, low + 1), line, log_density, TRIES)
    values = state.values | {one.value: x for one, x in zip(parameters, line(t), strict=True)}
    return rng, replace(state, values=values, network=state.read(values))


def has_shift(network: Network) -> bool:
    """Whether a number that is added to the bias of the last layer can be taken back by parameters of the likelihood.

    So it is for grades around one latent, if their cutpoints are one parameter, a vector, and where a parameter is
    added to the only latent of each row.
    """
    return _counterpart(network) is not None


def shift(network: Network) -> Callable:
    """Make the move of the last bias, the last latent, and the parameter that takes the change back, by one number."""
    parameter, moved = cast(tuple[Variable, Callable], _counterpart(network))
    dtype = network.inputs.dtype

    def shifted(state: NetworkState, t: Variable) -> NetworkState:
        values = state.values | {parameter: moved(state.values[parameter], pt.cast(t, parameter.dtype))}
        w, z = pt.inc_subtensor(state.weights[-1][:, -1], t), state.outputs[-1] + t
        return replace(state, values=values, weights=(*state.weights[:-1], w), outputs=(*state.outputs[:-1], z))

    def move(rng: Variable, state: NetworkState) -> tuple[Variable, NetworkState]:
        symbol, (zero, one) = pt.scalar(dtype=dtype), pt.constant(np.array([0, 1], dtype))
        new = shifted(state, symbol)
        bias, precision = new.weights[-1][0, -1], state.network.layers[-1].operator.precision[0, -1]
        density = _log_density(new, {}) - precision * bias**2 / 2

        def log_density(t: Variable) -> Variable:
            return substitute([density], {symbol: t})[0]

        rng, uniforms = draw(uniform, rng, zero, one, size=(3,))
        h = step_sizes(uniforms[0], SMALLEST, LARGEST)
        interval = (-h * uniforms[1], h * (1 - uniforms[1]))
        start = h * (uniforms[2] - uniforms[1])
        rng, _, t = search_slice(rng, log_density(zero), start, interval, lambda t: t, log_density, TRIES)
        state = shifted(state, t)
        return rng, replace(state, network=state.read(state.values))

    return move


def _counterpart(network: Network) -> tuple[Variable, Callable[[Variable, Variable], Variable]] | None:
    """Return the value variable that takes a change of the last bias back, and how it moves; None if there is none."""
    operator, observation = network.layers[-1].operator, network.observation
    if not (isinstance(operator, Dense) and operator.has_bias and operator.shape[0] == 1 and operator.ones is None):
        return None
    if isinstance(observation, OrderedGrades):
        below = set(ancestors([observation.cutpoints]))
        of_cutpoints = [one for one in network.parameters if one.value in below]
        if [len(one.shape) for one in of_cutpoints] == [1]:
            return of_cutpoints[0].value, lambda x, t: pt.inc_subtensor(x[0], t)
    elif isinstance(observation, FactorisedLikelihood):
        for one in network.parameters:
            if one.value.name == one.name and _is_added(one, observation, network.parameters):
                return one.value, lambda x, t: x - t
    return None


def _is_added(one: Parameter, likelihood: FactorisedLikelihood, parameters: Sequence[Parameter]) -> bool:
    """Whether data have the same density if all numbers of a parameter are lowered by 1, and Z is raised by it."""
    z = pt.matrix(dtype=likelihood.latent.dtype)
    density, rng = likelihood.log_densities(z), np.random.default_rng(0)
    values = {each.value: rng.normal(size=each.shape).astype(each.value.dtype) for each in parameters}
    if set(explicit_graph_inputs([density])) - {z, *values}:
        return False  # other variables of the model, whose values are not known here
    here = rng.normal(size=(len(evaluate(likelihood.value)), 1)).astype(z.dtype)
    with np.errstate(all="ignore"):
        before = evaluate(density, values | {z: here})
        after = evaluate(density, values | {z: here + 1, one.value: values[one.value] - 1})
    return np.allclose(before, after, rtol=1e-4, atol=1e-4)


def _log_density(state: NetworkState, theta: dict[Variable, Variable]) -> Variable:
    """Return the log density of parameters with the given values, up to a constant."""
    z, mean = state.outputs[-1], state.network.layers[-1].mean(state.input(len(state.posts)), state.weights[-1])
    network = state.read(state.values | theta)
    noise = network.layers[-1].noise
    if network.observation is None:
        of_data = -0.5 * ((z - mean) ** 2 / noise + pt.log(noise))
    else:
        of_data = network.observation.log_densities_of_parameters(z, mean, noise)
    density = of_data.sum() + sum(one.log_prior for one in network.parameters)
    return pt.cast(pt.switch(pt.isnan(density), -np.inf, density), z.dtype)

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

References
----------
.. [1] M. K. Cowles. Accelerating Monte Carlo Markov chain convergence for cumulative-link generalized linear models.
   Statistics and Computing 6 (1996).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal, uniform

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.collapsed_variances import step_sizes
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.substitution import substitute
from pymc_gibbsnn.random.slice_sampling import search_slice

__all__ = ["likelihood_parameters"]

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

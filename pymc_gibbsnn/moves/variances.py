r"""Learned variances and precisions of the noise and the priors of a network, drawn at the end of its sweep.

Model. The residuals r_i are the noises of a latent or of the data, or weights, that share one variance v or one
precision τ; the c_i are known coefficients of their standard deviations:

    r_i ~ N(0, c_i² v),   v ~ InverseGamma(α, β);      or   r_i ~ N(0, c_i²/τ),   τ ~ Gamma(α, rate β).

Conditional. With the precision τ = 1/v, both cases are conjugate:

    τ | r ~ Gamma(α + N/2, rate β + Σ_i r_i²/2c_i²),     where N is the number of residuals.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.given import given, sizes
from pymc_gibbsnn.networks.network import LearnedVariance
from pymc_gibbsnn.random.vectorised_gamma import vectorised_gamma

__all__ = ["draw_variance", "log_density_of_variance", "moments", "variances"]


def variances(rng: Variable, state: NetworkState) -> tuple[Variable, NetworkState]:
    """Draw all learned variances and precisions of a network, one after the other."""
    values, noise, densities = state.new_values, state.noise, {}
    for number in range(len(state.network.variances)):
        scale = state.read(values).variances[number]
        rng, value = draw_variance(rng, scale, *moments(scale, values, noise))
        values = values | {scale.value: value}
        densities[scale.name] = log_density_of_variance(scale, scale.log_precision(value))
    return rng, replace(state, values=values, network=state.read(values), densities=densities)


def draw_variance(
    rng: Variable, scale: LearnedVariance, counts: Variable, squares: Variable
) -> tuple[Variable, Variable]:
    """Draw a learned variance or precision, as the value of its value variable.

    Parameters
    ----------
    rng : Variable
        The random generator.
    scale : LearnedVariance
        The variance or precision.
    counts, squares : Variable
        N and Σ r²/c², as :func:`moments` returns them.

    Returns
    -------
    rng, value : Variable
    """
    alpha, rate = _prior(scale)
    # τ | r ~ Gamma(α + N/2, rate β + Σ r²/2c²)
    size = sizes(scale.shape)
    rng, precision = draw(vectorised_gamma, rng, alpha + counts / 2, 1 / (rate + squares / 2), size=size)
    return rng, scale.value_of(pt.log(precision))


def log_density_of_variance(scale: LearnedVariance, log_precision: Variable) -> Variable:
    """Compute the prior log density of a variance or precision, of which log τ, or −log v, is given."""
    alpha, rate = _prior(scale)
    return _log_density(log_precision, alpha, rate, scale.is_precision, scale.is_log).sum()


def _prior(scale: LearnedVariance) -> list[Variable]:
    """Return the parameters α and β of the prior, in the shape of the variance or precision."""
    return [x + given(np.zeros(scale.shape, x.dtype)) for x in (scale.alpha, scale.rate)]


def moments(
    scale: LearnedVariance, values: dict[Variable, Variable], noise: dict[str, tuple[Variable, Variable]]
) -> tuple[Variable, Variable]:
    """Compute N and Σ r²/c² over all residuals that share a variance or precision.

    Parameters
    ----------
    scale : LearnedVariance
        The variance or precision, with the places where the network uses it.
    values : dict of Variable to Variable
        Values of weights and biases.
    noise : dict of str to tuple of Variable
        For each latent and the data, by name, the sum of their squared noises and how many these are; for inputs, those
        of each column in each component, (components, d).

    Returns
    -------
    counts, squares : Variable
        N and Σ r²/c², in the shape of the variance or precision.
    """
    dtype = scale.alpha.dtype
    squares, counts = (given(np.zeros(math.prod(scale.shape), dtype)) for _ in range(2))
    for use in scale.uses:
        which = given(use.which.ravel())
        if use.value is None:
            square, count = noise[use.part]
            ratio, count = (square / use.coefficient**2).ravel(), count.ravel()
        else:
            ratio = ((values[use.value] / use.coefficient) ** 2).ravel()
            count = given(np.ones(use.which.size, dtype))
        squares = pt.inc_subtensor(squares[which], ratio)
        counts = pt.inc_subtensor(counts[which], pt.cast(count, dtype))
    shape = sizes(scale.shape)
    return counts.reshape(shape), squares.reshape(shape)


def _log_density(
    log_precision: Variable, alpha: Variable, rate: Variable, is_precision: bool, is_log: bool
) -> Variable:
    """Compute the prior log density of a precision or a variance, elementwise.

    Parameters
    ----------
    log_precision : Variable
        The logarithm of the precision, or that of the variance with its sign changed.
    alpha, rate : Variable
        The parameters α and β of its prior.
    is_precision : bool
        Whether it is a precision with a Gamma prior, or else a variance with an InverseGamma prior.
    is_log : bool
        Whether the density is that of the logarithm.

    Returns
    -------
    Variable
    """
    of_log = alpha * (pt.log(rate) + log_precision) - rate * pt.exp(log_precision) - pt.gammaln(alpha)
    if is_log:
        return of_log
    return of_log - log_precision if is_precision else of_log + log_precision

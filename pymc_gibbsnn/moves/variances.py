r"""Variances and precisions of noises and priors that are drawn with a network, at the end of its sweep.

Model

    r_i ~ N(0, c_i² v),   v ~ InverseGamma(α, β);      or   r_i ~ N(0, c_i²/τ),   τ ~ Gamma(α, rate β)

Conditional: with the precision τ = 1/v, both are

    τ | r ~ Gamma(α + N/2, rate β + Σ_i r_i²/2c_i²),     N the number of r_i.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import _gamma

from pymc_gibbsnn._compat import draw
from pymc_gibbsnn.moves.site import Move, NetworkState
from pymc_gibbsnn.networks.network import Scale

__all__ = ["moments", "variances"]


@Move
def variances(rng: Variable, state: NetworkState, carry: dict) -> tuple[Variable, NetworkState, dict, dict]:
    """All variances and precisions of a network, one after the other."""
    values, noise, densities = state.new_values, state.noise, {}
    for number in range(len(state.network.scales)):
        scale = state.read(values).scales[number]
        counts, squares = moments(scale, values, noise)
        alpha, rate = (pt.broadcast_to(x, scale.shape) for x in (scale.alpha, scale.rate))
        # τ | r ~ Gamma(α + N/2, rate β + Σ r²/2c²)
        rng, precision = draw(_gamma, rng, alpha + counts / 2, 1 / (rate + squares / 2))
        log_scale = pt.log(precision) if scale.is_precision else -pt.log(precision)
        new = pt.cast(log_scale if scale.is_log else pt.exp(log_scale), scale.alpha.dtype)
        values = values | {scale.value: new}
        densities[scale.name] = _log_density(log_scale, alpha, rate, scale.is_precision, scale.is_log).sum()
    return rng, replace(state, values=values, network=state.read(values), densities=densities), carry, {}


def moments(
    scale: Scale, values: dict[Variable, Variable], noise: dict[str, tuple[Variable, Variable]]
) -> tuple[Variable, Variable]:
    """(N, Σ r²/c²) of all that a variance or precision serves, in its shape.

    ``values`` are those of weights and biases; ``noise`` holds the sum and the number of squared noises by the names of
    latents and data.
    """
    dtype, size = scale.alpha.dtype, int(np.prod(scale.shape))
    squares, counts = pt.zeros(size, dtype=dtype), pt.zeros(size, dtype=dtype)
    for use in scale.uses:
        which = use.which.ravel()
        if use.value is None:
            square, count = (x.reshape((1,)) for x in noise[use.part])
            ratio = square / use.coefficient**2
        else:
            ratio = ((values[use.value] / use.coefficient) ** 2).reshape((which.size,))
            count = np.ones(which.size, dtype)
        squares = pt.inc_subtensor(squares[which], ratio)
        counts = pt.inc_subtensor(counts[which], pt.cast(count, dtype))
    return counts.reshape(scale.shape), squares.reshape(scale.shape)


def _log_density(log_scale: Variable, alpha: Variable, rate: Variable, is_precision: bool, is_log: bool) -> Variable:
    """Log density of a precision or a variance, or of its logarithm where ``is_log``, elementwise."""
    log_precision = log_scale if is_precision else -log_scale
    of_log = alpha * (pt.log(rate) + log_precision) - rate * pt.exp(log_precision) - pt.gammaln(alpha)
    return of_log if is_log else of_log - log_scale

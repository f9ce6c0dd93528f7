"""Draws of the variances and precisions that belong to a network, at the end of its sweep."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.moves.variances import draw_precision, log_density
from pymc_gibbsnn.networks.network import Network, Scale

__all__ = ["draw_network_scales", "moments"]


def draw_network_scales(
    rng: Variable, network: Network, state: dict[Variable, Variable], noise: dict[str, tuple[Variable, Variable]]
) -> tuple[Variable, dict[Variable, Variable], dict[str, Variable]]:
    """(rng, new values, their log densities by name) of the scales of a network, one after the other.

    ``state`` holds the new weights and latents; ``noise`` the sum and the number of squared noises by latents and data.
    """
    new, densities = {}, {}
    for number in range(len(network.scales)):
        scale = network.at(state | new).scales[number]
        counts, squares = moments(scale, state, noise)
        alpha, rate = (pt.broadcast_to(x, scale.shape) for x in (scale.alpha, scale.rate))
        rng, precision = draw_precision(rng, alpha, rate, counts, squares)
        log_scale = pt.log(precision) if scale.is_precision else -pt.log(precision)
        new[scale.value] = pt.cast(log_scale if scale.is_log else pt.exp(log_scale), scale.alpha.dtype)
        densities[scale.name] = log_density(log_scale, alpha, rate, scale.is_precision, scale.is_log).sum()
    return rng, new, densities


def moments(
    scale: Scale, state: dict[Variable, Variable], noise: dict[str, tuple[Variable, Variable]]
) -> tuple[Variable, Variable]:
    """(N, Σ r²/c²) of all that a scale serves, in its shape."""
    dtype, size = scale.alpha.dtype, int(np.prod(scale.shape))
    squares, counts = pt.zeros(size, dtype=dtype), pt.zeros(size, dtype=dtype)
    for use in scale.uses:
        which = use.which.ravel()
        if use.value is None:
            square, count = (x.reshape((1,)) for x in noise[use.part])
            ratio = square / use.coefficient**2
        else:
            ratio = ((state[use.value] / use.coefficient) ** 2).reshape((which.size,))
            count = np.ones(which.size, dtype)
        squares = pt.inc_subtensor(squares[which], ratio)
        counts = pt.inc_subtensor(counts[which], pt.cast(count, dtype))
    return counts.reshape(scale.shape), squares.reshape(scale.shape)

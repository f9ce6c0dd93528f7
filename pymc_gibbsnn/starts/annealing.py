r"""Annealing: more noise while a chain tunes, under which it moves between the modes of the posterior more easily.

Let r be a variance and u, from 1 to 0, the share of the tuning that is still to come. Every variance that is not drawn
itself is then

    Δ(u) = max(Δ, r u⁶),

which falls from r to its own value: fast where noise is larger than what there is to learn, slowly between a tenth and
a thousandth of r, where hidden units take their places, and fast again where they have them [1]_. Networks that cannot
be fitted (:mod:`pymc_gibbsnn.starts.fitted_start`) are annealed by default, from an r of about the variance of their
pre-activations before data are seen.

References
----------
.. [1] S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi. Optimization by simulated annealing. Science 220 (1983).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.network import Activation, Layer, Network, evaluate

__all__ = ["annealed", "can_be_annealed", "choose_highest_variance"]

POWER = 6  # of u in the annealing schedule


def can_be_annealed(network: Network) -> bool:
    """Whether some Δ is not drawn itself, in a network that explains data and not the noise of others."""
    if network.sets_noise_of is not None:
        return False
    names = {layer.name for layer in network.layers} | {function.name for function in network.activations if function}
    return not names <= _drawn(network)


def choose_highest_variance(network: Network, point: dict[str, np.ndarray]) -> float:
    """Choose r for a chain that starts at a point: 0, which is no annealing, unless all weights are 0 there.

    Any other start was chosen by the user. From 0, r is the larger of the mean squares of the inputs and, in a
    regression, the targets.
    """
    if not network.has_weights_at_zero(point):
        return 0.0
    data = [network.data()] if network.observation else [network.data(), evaluate(network.observed)]
    with np.errstate(over="ignore"):
        r = max(float((np.asarray(x, "float64") ** 2).mean()) for x in data)
    return r if np.isfinite(r) else 0.0


def annealed(network: Network, highest: float | Variable, share: Variable) -> Network:
    """Return the network with every Δ that is not drawn itself replaced by max(Δ, r u⁶), r = highest, u = share."""
    drawn = _drawn(network)

    def with_more_noise(part: Layer | Activation | None) -> Layer | Activation | None:
        if part is None or part.name in drawn:
            return part
        noise = pt.maximum(part.noise, highest * share**POWER)
        return replace(part, noise=pt.cast(noise, part.noise.dtype))

    return replace(
        network,
        layers=tuple(map(with_more_noise, network.layers)),
        activations=tuple(map(with_more_noise, network.activations)),
    )


def _drawn(network: Network) -> set[str]:
    """Return the names of latents and data whose Δ is drawn with the network."""
    return {use.part for variance in network.variances for use in variance.uses}

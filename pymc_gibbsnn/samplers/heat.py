r"""Heat: more noise while a chain tunes, with which valleys of the posterior are shallow.

Let r be a variance and u, from 1 to 0, the share of the tuning that is still to come. Every variance that is not drawn
itself is then

    Δ(u) = max(Δ, r u⁶),

which falls from r to its own value: fast where noise is larger than what there is to learn, slowly between a tenth and
a thousandth of r, where hidden units take their places, and fast again where they have them [1]_.

References
----------
.. [1] S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi. Optimization by simulated annealing. Science 220 (1983).
"""

from __future__ import annotations

from dataclasses import replace

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.network import Activation, Layer, Network

__all__ = ["heated"]

POWER = 6  # of u in the law of the fall


def heated(network: Network, hottest: float, share: Variable) -> Network:
    """Return the network with every Δ that is not drawn itself replaced by max(Δ, r u⁶), of hottest r and share u."""
    drawn = {use.part for variance in network.variances for use in variance.uses}

    def hotter(part: Layer | Activation | None) -> Layer | Activation | None:
        if part is None or part.name in drawn:
            return part
        noise = pt.maximum(part.noise, hottest * share**POWER)
        return replace(part, noise=pt.cast(noise, part.noise.dtype))

    return replace(
        network, layers=tuple(map(hotter, network.layers)), activations=tuple(map(hotter, network.activations))
    )

"""The linear maps between the activations of a network; there is one kind in each file, and one entry in ``KINDS``.

What a kind of layer must answer stands in :mod:`pymc_gibbsnn.networks.layers.operator`.
"""

from pymc_gibbsnn.networks.layers.average_pool import AveragePool
from pymc_gibbsnn.networks.layers.conv2d import Conv2D
from pymc_gibbsnn.networks.layers.dense import Dense
from pymc_gibbsnn.networks.layers.operator import Operator

__all__ = ["KINDS", "Operator"]

KINDS: dict[str, type[Operator]] = {"dense": Dense, "conv2d": Conv2D, "average_pool2d": AveragePool}
"""The kinds by name. The last is asked first whether a term is its own: what a new kind takes, none before it does."""

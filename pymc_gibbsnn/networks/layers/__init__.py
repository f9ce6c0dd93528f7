"""The linear maps between the activations of a network; there is one kind in each file.

The docstring of :class:`~pymc_gibbsnn.networks.layers.dense.Dense` lists what a kind of layer must answer.
"""

from pymc_gibbsnn.networks.layers.average_pool import AveragePool
from pymc_gibbsnn.networks.layers.conv2d import Conv2D
from pymc_gibbsnn.networks.layers.dense import Dense

__all__ = ["AveragePool", "Conv2D", "Dense", "Operator"]

Operator = Dense | Conv2D | AveragePool

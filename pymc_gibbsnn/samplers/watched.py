"""What automatic thinning watches of a noisy network: numbers whose autocorrelation says how far sweeps are apart.

They are the outputs at some rows of the data, without noise, the logarithms of learned variances and precisions, and
parameters of the likelihood. The class of the largest output does not change when all outputs of a row are shifted, so
there it is their differences from the row's mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.given import given
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.prediction.function import forward
from pymc_gibbsnn.prediction.inputs import evenly_spaced

__all__ = ["multiplications", "watched"]

ROWS = 20  # at how many rows of the data, evenly spaced, outputs are watched


def watched(networks: Sequence[Network]) -> Variable:
    """Write the numbers that are watched, a vector, as an expression of the value variables of the networks."""
    numbers = []
    for network in networks:
        rows = given(evenly_spaced(len(network.data()), ROWS))
        rows = pt.minimum(rows, network.rows.shape[0] - 1)  # the data may be others, with fewer rows, when it runs
        *_, (outputs, _) = forward(network, {v.name: v for v in network.weights}, network.inputs[rows])
        if network.observation is not None and network.observation.ignores_shifts:
            outputs = outputs - outputs.mean(axis=-1, keepdims=True)
        numbers += [outputs, *(variance.log_precision(variance.value) for variance in network.variances)]
        numbers += [parameter.value for parameter in network.parameters]
        if network.draws_inputs:
            numbers += [one.value for one in network.random_inputs.identified]
    return pt.concatenate([x.ravel() for x in numbers])


def multiplications(networks: Sequence[Network]) -> int:
    """Count the multiplications by weights when the outputs of all rows of the data are computed once."""
    operators = [(len(network.data()), layer.operator) for network in networks for layer in network.layers]
    return sum(n * op.shape[0] * op.fan_in for n, op in operators if op.variables)

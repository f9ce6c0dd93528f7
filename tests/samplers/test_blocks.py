"""Partitions of parameters into blocks."""

import numpy as np
import pymc as pm
import xarray as xr

import pymc_gibbsnn as pmg
from pymc_gibbsnn.samplers.blocks import flat_layers, partition


def test_partitions():
    layers = flat_layers({"W": (2, 5), "b": (), "v": (3,)})
    assert [list(block) for block in partition("node", layers)] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
        [10],
        [11, 12, 13],
    ]
    for blocks, count in (("layer", 3), ("all", 1), (2, 9), (5, 4), ([[0, 13], list(range(1, 13))], 2)):
        found = partition(blocks, layers)
        assert len(found) == count
        np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.arange(14))
    assert max(map(len, partition(2, layers))) == 2


def test_correlated_parameters_share_a_block():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(2, 500, 1))
    theta = np.concatenate([shared + 0.1 * rng.normal(size=(2, 500, 2)), rng.normal(size=(2, 500, 2))], axis=2)
    theta[..., [1, 3]] = theta[..., [3, 1]]
    theta[1] += 100  # chains in different places say nothing
    with pm.Model() as model:
        pm.Normal("theta", shape=4)
    idata = {"posterior": xr.Dataset({"theta": (("chain", "draw", "d"), theta)})}
    assert pmg.correlated_blocks(idata, model, largest=2) == [[0, 3], [1, 2]]

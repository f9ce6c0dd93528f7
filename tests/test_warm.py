"""``python -m pymc_gibbsnn.warm``: after it, the sweep of another network of the same architecture compiles nothing."""

import numpy as np

import pymc_gibbsnn as pmg
from pymc_gibbsnn import warm
from tests.backends.fast_numba.test_linker import compiled

X = np.random.default_rng(0).normal(size=(17, 4))


def test_a_network_that_is_warm_compiles_nothing(capsys):
    y = np.stack([warm.TARGETS, warm.TARGETS], axis=1)  # of two outputs, as in test_gibbs.py: compiled once
    warm.warm({"two outputs": {"y": y, "hidden": 3, "noise": 0.3, "prior": None}})
    assert capsys.readouterr().out.startswith("two outputs")
    with compiled() as names, pmg.mlp(X, X[:, :2], hidden=6, noise=0.3, prior=None) as model:
        pmg.GibbsNN().step(model.initial_point())
    assert names == []


def test_common_networks():
    assert len(warm.NETWORKS) == 12
    for arguments in warm.NETWORKS.values():
        pmg.mlp(np.ones((warm.ROWS, 2)), **arguments)

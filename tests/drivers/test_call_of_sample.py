"""What a step reads off the call of ``pm.sample``, and says before anything is drawn."""

import warnings

import numpy as np
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends import machine
from tests import helpers
from tests.helpers import pm_sample

X = np.random.default_rng(0).normal(size=(8, 2))


def test_more_draws_than_memory_holds(monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda: 10_000)
    model = pmg.mlp(X, X[:, 0], 3, noise=0.3, prior=None)
    with pytest.warns(UserWarning, match=r"GiB.*Z2.*var_names=") as warned:
        pm_sample(model)
    assert {one.filename for one in warned if "GiB" in str(one.message)} == {helpers.__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pm_sample(model, var_names=["b2"])

"""Draws in a store on disk."""

import sys

import numpy as np
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.drivers import sample as sampling
from tests.helpers import pmg_sample

X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.maximum(X[:, 0], 0) + 0.1 * np.random.default_rng(1).normal(size=8)


@pytest.fixture
def model():
    return pmg.mlp(X, Y, 3, noise=0.3)


def test_a_store(model, tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "SECONDS_A_CALL", 0)
    path = tmp_path / "draws.zarr"
    expected, found = pmg_sample(model, 5), pmg_sample(model, 5, store=path)
    for group in ("posterior", "sample_stats", "observed_data"):
        for name, variable in expected[group].data_vars.items():
            np.testing.assert_array_equal(found[group][name], variable)
            assert found[group][name].dims == variable.dims
    assert found["posterior"].attrs["inference_library"] == "pymc_gibbsnn"
    with pytest.raises(FileExistsError, match="give another path, or append=True"):
        pmg_sample(model, store=path)
    more = pmg_sample(model, 3, store=path, append=True, random_seed=8)
    np.testing.assert_array_equal(more["posterior"]["draw"], np.arange(8))
    np.testing.assert_array_equal(more["posterior"]["W1"].values[:, :5], expected["posterior"]["W1"].values)
    assert not np.allclose(more["posterior"]["W1"].values[:, 5:], expected["posterior"]["W1"].values[:, :3])
    assert len(list((path / "posterior" / "W1" / "c").rglob("*"))) < 10
    with pytest.raises(ValueError, match="holds the posterior"):
        pmg_sample(model, 3, store=path, append=True, chains=3)


def test_zarr_missing(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ImportError, match="pip install zarr"):
        pmg_sample(model, store=tmp_path / "draws.zarr")

"""Noise that is hotter while a chain tunes."""

import numpy as np
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.samplers.heat import heated
from tests.helpers import PYTHON, pm_sample, value

X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.maximum(X[:, 0], 0) + 0.1 * np.random.default_rng(1).normal(size=8)


@pytest.fixture
def model():
    return pmg.mlp(X, Y, 3, noise=0.3)


def test_noise_falls_to_its_own_value(model):
    network = read_network(model)
    for share in (1.0, 0.5, 0.0):
        hot = heated(network, pt.constant(4.0), pt.constant(share))
        for part, now in zip([*network.layers, *network.activations], [*hot.layers, *hot.activations], strict=True):
            np.testing.assert_allclose(value(now.noise), max(value(part.noise), 4.0 * share**6))
    cold = heated(network, pt.constant(0.01), pt.constant(1.0))
    assert value(cold.layers[0].noise) == value(network.layers[0].noise)


@pytest.mark.parametrize("cores", [1, 2])
def test_the_share_of_tuning_to_come_reaches_the_sweep(model, cores):
    """The mean squared noise in units of the hotter variance stays near 1 only if both fall together."""
    with model:
        step = pmg.GibbsNN(anneal=1e4, compile_kwargs=PYTHON)
    idata = pm_sample(model, draws=30, step=step, tune=30, cores=cores, discard_tuned_samples=False)
    warmup, after = (idata[group]["noise_Z2"].values for group in ("warmup_sample_stats", "sample_stats"))
    assert warmup.shape == (2, 30)
    for ratios in (warmup[:, 10:], after):
        assert 0.5 < np.median(ratios) < 2
    posterior, hot = idata["posterior"], idata["warmup_posterior"]
    residual = hot["Z2"].values - (X @ np.swapaxes(hot["W1"].values, -1, -2) + hot["b1"].values[..., None, :])
    found = np.log((residual**2).mean((0, 2, 3)))
    expected = np.log(np.maximum(0.09, 1e4 * (1 - np.arange(30) / 30) ** 6))
    np.testing.assert_allclose(found[3:], expected[3:], atol=0.8)
    residual = posterior["Z2"].values - (
        X @ np.swapaxes(posterior["W1"].values, -1, -2) + posterior["b1"].values[..., None, :]
    )
    np.testing.assert_allclose((residual**2).mean(), 0.09, rtol=0.3)


@pytest.mark.parametrize("anneal", [0, -1.0, np.nan, np.inf])
def test_an_impossible_start_of_annealing_is_refused(model, anneal):
    with pytest.raises(ValueError, match="anneal must be a positive, finite number"):
        pmg.GibbsNN(model=model, anneal=anneal)

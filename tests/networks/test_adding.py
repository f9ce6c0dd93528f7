"""A likelihood that is added as docs/adding.rst says is read, sampled exactly, and predicts."""

from unittest.mock import patch

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.likelihoods import NOISY
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.starts.fitted_start import can_be_fitted
from tests.helpers import MOSTLY_PYTHON, compile_draw, pm_sample, pmg_sample, random_point
from tests.samplers.test_gibbs import NUMBA, check_geweke, gibbs
from tests.test_documents import DOCUMENTS

X = np.random.default_rng(3).normal(size=(8, 2))
COUNTS = np.random.default_rng(4).poisson(np.exp(1 + X[:, 0]))


@pytest.fixture(scope="module", autouse=True)
def counts():
    """The class and its entry as the page has them, without the lines after them that sample."""
    [block] = [block for block in DOCUMENTS["docs/adding.rst"] if "class CountLikelihood" in block]
    with patch.dict(NOISY):
        exec(block[: block.index("counts = ")], {"pm": pm})
        yield NOISY["poisson"][0]


def network(**kwargs) -> pm.Model:
    return pmg.mlp(X, COUNTS, 3, likelihood="poisson", **({"noise": 0.5, "prior": None} | kwargs))


def test_log_density():
    model = network()
    step, point = gibbs(model), random_point(model, 0)
    for _ in range(3):
        point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], model.compile_logp(mode="AS_WRITTEN")(point))


def test_learned_noise():
    names = [rv.name for rv in pmg.mlp(X, COUNTS, 3, likelihood="poisson").free_RVs]
    assert "variance_Z3" in names
    assert "variance_y" not in names


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
def test_the_move_of_a_latent_leaves_its_distribution_invariant(counts, mode):
    """Latents that are drawn from their distributions given a count, by quantiles, have the same ones afterwards."""
    rng, grid = np.random.default_rng(6), np.linspace(-8, 8, 20_001)
    m, y, noise = np.array([0.5, -1.0, 2.0, 0.0]), np.array([3, 0, 1, 30]), 0.8
    masses = stats.norm.pdf(grid, m[:, None], np.sqrt(noise)) * stats.poisson.pmf(y[:, None], np.exp(grid))
    below = masses.cumsum(axis=1) / masses.sum(axis=1, keepdims=True)
    z = np.stack([np.interp(rng.random(20_000), of_one, grid) for of_one in below], axis=1)
    likelihood, m = counts("y", pt.constant(np.tile(y, (len(z), 1)))), np.tile(m, (len(z), 1))

    def moves(generator):
        new = pt.constant(z)
        for _ in range(3):
            generator, new, squares = likelihood.draw_latent(generator, new, pt.constant(m), pt.constant(noise))
            assert squares is None
        return generator, new

    new = compile_draw(moves, mode)()
    assert ((new != z).mean(axis=0) > 0.5).all()
    for i, of_one in enumerate(below):
        assert stats.kstest(np.interp(new[:, i], grid, of_one), "uniform").pvalue > 1e-3


@pytest.mark.slow
def test_geweke():
    check_geweke(pmg.mlp(X, COUNTS, [], likelihood="poisson", noise=1.0, prior=None), 6000, **NUMBA)


@pytest.mark.slow
def test_geweke_with_a_hidden_layer():
    check_geweke(network(noise=1.0), 12_000, interweave=False, **NUMBA)


@pytest.mark.slow
def test_a_chain_starts_at_zero_and_finds_the_data():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60, 2))
    y = rng.poisson(np.exp(2 + x[:, 0]))
    with pmg.mlp(x, y, 4, likelihood="poisson", noise=0.3, prior=None) as model:
        assert not can_be_fitted(read_network(model))
        idata = pm.sample(
            200, tune=200, step=pmg.GibbsNN(), chains=2, cores=1, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
        outputs = pmg.function_space(idata)["output"].mean(("chain", "draw"))
        predicted = pmg.predict(idata, X_new=x, random_seed=2)
    assert np.corrcoef(outputs, 2 + x[:, 0])[0, 1] > 0.9
    assert np.corrcoef(predicted["mean"], y)[0, 1] > 0.8


def test_log_predictive_against_quadrature():
    x, grid = np.ones((4, 1)), np.linspace(-8, 8, 4001)
    with pmg.mlp(x, [3, 1, 0, 2], [], likelihood="poisson", noise=0.7, prior=None) as model:
        idata = pm_sample(model, 50)
        found = pmg.log_predictive(idata, X_new=x[:1], y_new=[2], latent_draws=2000, random_seed=1)
    mean = (idata.posterior["W1"][..., 0] + idata.posterior["b1"]).values
    density = stats.norm.pdf(grid, mean[..., None], 0.7) @ (stats.poisson.pmf(2, np.exp(grid))) * (grid[1] - grid[0])
    np.testing.assert_allclose(found["log_likelihood"][..., 0], np.log(density), atol=0.1)


@pytest.mark.slow
def test_jax():
    idata = pmg_sample(network(), 10)
    assert np.isfinite(idata.posterior["W1"]).all()

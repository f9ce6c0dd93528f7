"""Likelihoods that mlp and cnn write by name: counts, positive numbers, shares, classes, mixtures, censored data."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.likelihoods.censored import CensoredLikelihood
from pymc_gibbsnn.networks.likelihoods.lognormal import LogNormalLikelihood
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.starts.fitted_start import fitted_start
from pymc_gibbsnn.starts.working_response import working_response
from tests.helpers import LEAN, PYTHON, pmg_sample, random_point, slow_but

N = 80
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
F = np.sin(X[:, 0]) + X[:, 1] / 2
HOURS = RNG.uniform(1, 3, N)
DATA = {
    "poisson": (RNG.poisson(HOURS * np.exp(1 + F)), {"exposure": HOURS}),
    "negative_binomial": (RNG.negative_binomial(3, 3 / (3 + np.exp(1 + F))), {"exposure": 2}),
    "gamma": (RNG.gamma(3, np.exp(F) / 3), {}),
    "lognormal": (np.exp(F + 0.3 * RNG.normal(size=N)), {}),
    "beta": (RNG.beta(8 / (1 + np.exp(-F)), 8 / (1 + np.exp(F))), {}),
    "categorical": (np.digitize(F, [-0.5, 0.5]), {}),
    "mixture": (F + RNG.choice([-1, 1], N) + 0.2 * RNG.normal(size=N), {}),
    "normal": (np.minimum(F + 0.3 * RNG.normal(size=N), 0.8), {"upper": 0.8}),
}
LEARNED = {
    "negative_binomial": {"alpha_y"},
    "gamma": {"alpha_y"},
    "beta": {"nu_y"},
    "mixture": {"weights_y", "centers_y", "variances_y"},
}
QUICK = {"negative_binomial", "categorical"}


def model_of(name, hidden=3):
    y, arguments = DATA[name]
    return pmg.mlp(X, y, hidden, likelihood=name, **arguments)


@pytest.mark.parametrize("name", slow_but(QUICK, DATA))
def test_what_is_written_is_read_and_has_the_log_density_of_pymc(name):
    model = model_of(name)
    network = read_network(model)
    assert {one.name for one in network.parameters} == LEARNED.get(name, set())
    known = {"lognormal": LogNormalLikelihood, "normal": CensoredLikelihood}
    assert name not in known or type(network.observation) is known[name]
    assert not set(network.variables) ^ set(model.value_vars)  # all is drawn with the network
    step, point = pmg.GibbsNN(model=model, compile_kwargs=PYTHON, rng=1, **LEAN), random_point(model, 0)
    for _ in range(2):
        point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], model.compile_logp(**PYTHON)(point), rtol=1e-7)


def test_numbers_for_each_datum_are_data():
    """So that predictions may have others. Bounds alone say that data are censored normal data."""
    assert "exposure" in model_of("poisson").named_vars
    assert "exposure" not in model_of("negative_binomial").named_vars
    y, upper = DATA["normal"][0], np.linspace(1, 2, N)
    assert "upper" in pmg.mlp(X, y, 3, likelihood="normal", upper=upper).named_vars
    assert type(read_network(pmg.mlp(X, y, 3, upper=0.8)).observation) is CensoredLikelihood
    images = RNG.normal(size=(N, 4, 4))
    assert "exposure" in pmg.cnn(images, DATA["poisson"][0], 1, likelihood="poisson", exposure=HOURS).named_vars


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA)
def test_what_users_do(name):
    """By pmg.sample alone; what is predicted follows the function."""
    model, arguments = model_of(name), DATA[name][1]
    idata = pmg_sample(model, draws=100, tune=200, step=pmg.GibbsNN(model=model, **LEAN))
    more = {"exposure": HOURS[:20]} if name == "poisson" else {}
    found = pmg.predict(idata, model, {"X": X[:20]} | more, random_seed=1)
    predicted = found["probability"][:, -1] if "probability" in found else found["mean"]
    assert np.corrcoef(predicted.values.ravel() / more.get("exposure", 1), F[:20])[0, 1] > 0.6
    assert set(arguments) <= {"exposure", "upper"}
    density = pmg.log_predictive(idata, model, {"X": X[:5]} | {k: v[:5] for k, v in more.items()}, DATA[name][0][:5])
    assert np.isfinite(density["log_density"]).all()
    assert len(pmg.summary(idata, model))


def test_the_log_density_of_lognormal_data_with_the_latent_integrated_out():
    mean, y = np.zeros(3), np.array([0.2, 1.0, 5.0])
    found = LogNormalLikelihood.log_probability(mean, np.array(0.4), y, None, [mean, np.array(0.3)])
    np.testing.assert_allclose(found, stats.lognorm.logpdf(y, 0.5))


# Starts


def test_the_working_response_of_counts_is_that_of_weighted_least_squares():
    """At the point z of expansion, t = z + (y − μ)/μ and p = μ, with μ = e exp z."""
    model = model_of("poisson")
    network = read_network(model)
    targets, variances = working_response(network.observation, model.initial_point(), (N, 1))
    z = -np.log(HOURS[:, None] * variances)
    np.testing.assert_allclose(targets, z + DATA["poisson"][0][:, None] * variances - 1, rtol=1e-6)


def test_of_normal_data_the_working_response_is_the_data():
    with pm.Model() as model:
        z = pm.Normal("Z", pm.Data("X", X) @ pm.Normal("W", 0, 1, shape=2), 0.5)
        pm.CustomDist("y", z, logp=lambda value, z: -2 * (value - z) ** 2, observed=F)
    targets, variances = working_response(read_network(model).observation, model.initial_point(), (N, 1))
    np.testing.assert_allclose(targets[:, 0], F, atol=1e-8)
    np.testing.assert_allclose(variances, 0.25)


@pytest.mark.parametrize("name", ["poisson", "beta", "lognormal"])
def test_chains_start_at_the_function(name):
    model = model_of(name, hidden=5)
    start = fitted_start(read_network(model), model.initial_point(), np.random.default_rng(1))
    assert np.corrcoef(np.ravel(start["Z3"]), F)[0, 1] > 0.85

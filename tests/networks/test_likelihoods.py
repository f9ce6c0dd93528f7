"""Likelihoods: what is read from PyMC, their densities in every backend against PyMC's own, their data, predictions."""

import arviz as az
import numba
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import expit

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.deterministic import read_classical
from pymc_gibbsnn.networks.likelihoods import CLASSICAL
from pymc_gibbsnn.networks.likelihoods.argmax_label import ArgmaxLikelihood
from pymc_gibbsnn.networks.likelihoods.sign_label import SignLikelihood
from tests.helpers import PYTHON, check_mean, random_point, slow

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 3))
TARGETS = {
    "categorical": np.arange(20) % 3,
    "bernoulli": np.arange(20) % 2,
    "normal": RNG.normal(size=(20, 2)),
    "poisson": RNG.poisson(2, size=20),
    "binomial": RNG.integers(6, size=(20, 2)),
}


def test_every_classical_likelihood_is_tested():
    assert TARGETS.keys() == CLASSICAL.keys()


@pytest.mark.parametrize("name", TARGETS)
def test_log_densities(name):
    """NumPy, JAX and Numba's loops, with what the formulas leave out, against PyMC's log density of the data."""
    jax = pytest.importorskip("jax")
    model = pmg.classical_mlp(X, TARGETS[name], [], likelihood=name, noise=0.5, trials=5)
    likelihood = read_classical(model).likelihood
    point = random_point(model, 1)
    f = X @ point["W1"].T + point["b1"]
    z = 3 * f.reshape(20, -1).T.copy()  # far enough out for logistic functions to bend
    model.set_data("X", 3 * X)
    point["b1"] = 3 * point["b1"]
    expected = model.compile_logp(model.observed_RVs, mode="AS_WRITTEN")(point)
    parts = [likelihood.data, likelihood.dispersion, likelihood.constant]
    y, dispersion, constant = pytensor.function([], parts, mode="AS_WRITTEN")()
    found = [likelihood.log_density(z, y.T, np)]
    with jax.enable_x64(True):
        found.append(likelihood.log_density(jax.numpy.asarray(z), jax.numpy.asarray(y.T), jax.numpy))
    kernel = likelihood.kernel
    found.append(numba.njit(lambda z, y, scratch: kernel(z, y, scratch))(z, y, np.empty((2, 20))))
    for one in found:  # PyMC's own normal is off by 2e-9 a number
        np.testing.assert_allclose(float(one) / dispersion + constant, expected, rtol=1e-9)


@pytest.mark.parametrize("name", [slow("poisson"), "binomial"])
def test_sampling_counts(name):
    """The network's sweep, its log density included, is the general one."""
    model = pmg.classical_mlp(X, TARGETS[name], [2], likelihood=name, trials=5, batch_size=8, total_size=20)
    step = pmg.FNBG(model=model, compile_kwargs=PYTHON, scale=0.2)
    assert "acceptance_W1_1" in step.transition.stats
    step.set_rng(1)
    point, [found] = step.step(model.initial_point())
    assert 0 < found["acceptance_rate"] < 1
    full = pmg.classical_mlp(X, TARGETS[name], [2], likelihood=name, trials=5)
    step = pmg.FNBG(model=full, compile_kwargs=PYTHON, scale=0.2)
    point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], full.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-10)


@pytest.mark.slow
def test_counts_against_quadrature():
    """One weight, the posterior of which is a one-dimensional integral."""
    x, y = np.linspace(-1, 1, 10)[:, None], np.array([0, 1, 0, 1, 2, 1, 3, 2, 4, 3])
    trials, grid = np.arange(10) % 3 + 4, np.linspace(-4, 4, 4001)
    likelihoods = {
        "poisson": (lambda f: pm.Poisson("y", pt.exp(f), observed=y), lambda f: stats.poisson(np.exp(f)).logpmf(y)),
        "binomial": (
            lambda f: pm.Binomial("y", trials, p=pm.math.sigmoid(f), observed=y),
            lambda f: stats.binom(trials, expit(f)).logpmf(y),
        ),
    }
    for build, log_density in likelihoods.values():
        with pm.Model() as model:
            build(x @ pm.Normal("w", 0, 1, shape=1))
        log_p = np.array([log_density(x[:, 0] * w).sum() - w**2 / 2 for w in grid])
        p = np.exp(log_p - log_p.max())
        mean, square = (p * grid).sum() / p.sum(), (p * grid**2).sum() / p.sum()
        with model:
            idata = pm.sample(
                20_000,
                tune=500,
                step=pmg.FNBG(compile_kwargs=PYTHON),
                chains=1,
                random_seed=1,
                progressbar=False,
                compute_convergence_checks=False,
            )
        w = idata["posterior"]["w"].values[..., 0]
        check_mean(w, mean)
        check_mean(w**2, square)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda f: pm.Poisson("y", f**2, observed=[1] * 20), "'y', which is Poisson, is no exponential"),
        (lambda f: pm.Binomial("y", 3, p=f**2, observed=[1] * 20), "'y', which is Binomial, is no sigmoid"),
        (lambda f: pm.Bernoulli("y", f**2, observed=[1] * 20), "probability of 'y' is no sigmoid"),
        (lambda f: pm.Poisson("y", pt.exp(f), observed=[-1] * 20), "integers from 0 up; found \\[-1\\]"),
        (
            lambda f: pm.Binomial("y", np.arange(20), logit_p=f, observed=[2] * 20),
            "integers from 0 to the number of trials; found \\[2\\]",
        ),
    ],
)
def test_refused_by_name(build, message):
    with pm.Model() as model:
        build(X @ pm.Normal("w", 0, 1, shape=3))
    with pytest.raises(pmg.NetworkError, match=message):
        read_classical(model).check_data()


@pytest.mark.parametrize(
    ("y", "likelihood", "message"),
    [
        (np.arange(20.0) + 0.5, "poisson", "y must hold whole numbers from 0 up; found \\[0.5"),
        (np.arange(20) - 1, "binomial", "whole numbers from 0 up; found \\[-1"),
        (np.arange(20), "binomial", "y holds 19 successes, more than there are trials: found trials=5"),
    ],
)
def test_bad_targets(y, likelihood, message):
    with pytest.raises(ValueError, match=message):
        pmg.classical_mlp(X, y, 2, likelihood=likelihood, trials=5)


@pytest.mark.parametrize("name", [slow("poisson"), "binomial"])
def test_means_of_counts(name):
    model = pmg.classical_mlp(X, TARGETS[name], [2], likelihood=name, trials=5)
    draws = {rv.name: RNG.normal(size=(1, 4, *rv.shape.eval())) for rv in model.free_RVs}
    posterior = {"posterior": az.convert_to_dataset(draws)}
    found = pmg.function_space(posterior, model, X[:5])["output"].values[0]
    a = expit(X[:5] @ np.swapaxes(draws["W1"][0], 1, 2) + draws["b1"][0][:, None])
    w, b = draws["W2"][0], draws["b2"][0]
    f = a @ np.swapaxes(w, 1, 2) + b[:, None] if w.ndim == 3 else (a @ w[..., None])[..., 0] + b[:, None]
    np.testing.assert_allclose(found, np.exp(f) if name == "poisson" else 5 * expit(f), rtol=1e-6)
    with pytest.raises(pmg.NetworkError, match="'y' has no classes"):
        pmg.class_probabilities(posterior, model)


@pytest.mark.parametrize("sigma", [np.array(0.7), np.array([0.3, 1.0, 2.0])])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_labels_with_their_latent_integrated_out(sigma, scale):
    """The quadrature over the largest entry beside one by SciPy, also where some classes are all but impossible."""
    means, sds = scale * np.random.default_rng(1).normal(size=(4, 3)), np.broadcast_to(sigma, 3)
    found = ArgmaxLikelihood.integrated_probabilities(means, sigma)
    for m, p in zip(means, found, strict=True):
        for c in range(3):
            others = [j for j in range(3) if j != c]
            expected, _ = quad(
                lambda u, m=m, c=c, others=others: stats.norm.pdf(u)
                * np.prod(stats.norm.cdf((m[c] + sds[c] * u - m[others]) / sds[others])),
                -12, 12, points=np.clip((m - m[c]) / sds[c], -12, 12), epsabs=1e-12,
            )  # fmt: skip
            assert p[c] == pytest.approx(expected, abs=1e-10)
    m = means[:, :1]
    found = SignLikelihood.integrated_probabilities(m, 0.7)
    np.testing.assert_allclose(found, np.stack([stats.norm.cdf(0, m, 0.7), stats.norm.sf(0, m, 0.7)], axis=-1))


def test_probabilities_of_labels_have_no_noise_of_their_own():
    """All noise of a network without hidden layers is integrated out, so that equal draws give equal probabilities."""
    with pm.Model() as model:
        w = pm.Normal("w", 0, 1, shape=(3, 3))
        pmg.ArgmaxLabel("y", pm.Normal("z", pm.Data("X", X) @ w, 1), observed=np.arange(20) % 3)
    posterior = {"posterior": az.convert_to_dataset({"w": np.ones((1, 50, 3, 3)) * [1, 0, -4]})}
    p = pmg.predict(posterior, model, [[0.0, 0.0, 0.0], [3.0, 0.0, 0.0]], random_seed=1)["probability"].values
    np.testing.assert_allclose(p[0], 1 / 3)
    assert 0 < p[1, 2] < 1e-16  # no draw has this label

"""Likelihoods that are Gaussian given auxiliary variables: Laplace errors, labels and successes by logits."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats
from scipy.special import expit

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.likelihoods.laplace import LaplaceLikelihood
from pymc_gibbsnn.networks.likelihoods.logistic import LogitBernoulliLikelihood, LogitBinomialLikelihood
from pymc_gibbsnn.networks.likelihoods.lognormal import LogNormalLikelihood
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import LEAN, MODES, MOSTLY_PYTHON, compile_draw, pm_sample, slow, slow_but
from tests.samplers.test_gibbs import NUMBA, check_geweke, gibbs

N, D = 6, 2
X = np.random.default_rng(0).normal(size=(N, D))
Y, LABELS = np.random.default_rng(1).normal(size=N), np.array([0, 1, 1, 0, 1, 0])
TRIALS, SUCCESSES = np.array([1, 2, 5, 40, 3, 1]), np.array([0, 2, 1, 30, 3, 1])


def variance(name="v"):
    return pm.InverseGamma(name, 3, 2)


FORMS = {
    "laplace": (Y, lambda z, y: pm.Laplace("y", z, 0.7, observed=y)),
    "laplace, learned": (Y, lambda z, y: pm.Laplace("y", z, pt.sqrt(variance()) * np.linspace(1, 2, N), observed=y)),
    "bernoulli": (LABELS, lambda z, y: pm.Bernoulli("y", logit_p=z, observed=y)),
    "bernoulli, p": (LABELS, lambda z, y: pm.Bernoulli("y", p=pm.math.sigmoid(z), observed=y)),
    "binomial": (SUCCESSES, lambda z, y: pm.Binomial("y", pm.Data("trials", TRIALS), logit_p=z, observed=y)),
    "binomial, 40": (SUCCESSES, lambda z, y: pm.Binomial("y", 40, logit_p=z, observed=y)),
}
KINDS = {
    "laplace": LaplaceLikelihood,
    "bernoulli": LogitBernoulliLikelihood,
    "binomial": LogitBinomialLikelihood,
}


def network(form, units=None, hidden=True):
    data, observe = FORMS[form]
    data = (
        data if units is None else np.stack([data, np.roll(data, 1) % 2 if data.dtype.kind == "i" else -data], axis=1)
    )
    with pm.Model() as model:
        x, y = pm.Data("X", X), pm.Data("y_data", data)
        if hidden:
            Z2 = pm.Normal("Z2", x @ pm.Normal("W1", 0, 1, shape=(2, D)).T, 0.8)
            x = pm.Normal("A2", pt.maximum(Z2, 0), 0.9)
        W2 = pm.Normal("W2", 0, 0.7, shape=2 if units is None else (2, units))
        b2 = pm.Normal("b2", 0, 0.5, shape=units)
        observe(pm.Normal("Z3", x @ W2 + b2, pt.sqrt(variance("v3"))), y)
    return model


# Oracle 1: the conditional of Z given y, by quadrature


M, VARIANCE, SCALE = 1.0, 2.0, 0.8
CASES = {
    LaplaceLikelihood: [0.9, 5.0, -3.0],
    LogNormalLikelihood: [0.3, 1.0, 2.0, 50.0],
    LogitBernoulliLikelihood: [0, 1],
    LogitBinomialLikelihood: [(0, 1), (1, 3), (7, 50), (50, 50)],
}


def likelihood_of(kind, y):
    if kind in (LaplaceLikelihood, LogNormalLikelihood):
        return kind("y", pt.constant(y), pt.constant(SCALE**2))
    if kind is LogitBernoulliLikelihood:
        return kind("y", pt.constant(y))
    return kind("y", pt.constant(y[:, 0]), pt.constant(y[:, 1]))


def density(kind, y, z):
    """p(y | z), by SciPy."""
    if kind is LaplaceLikelihood:
        return stats.laplace.pdf(y, z, SCALE)
    if kind is LogNormalLikelihood:
        return stats.lognorm.pdf(y, SCALE, scale=np.exp(z))
    successes, trials = y if kind is LogitBinomialLikelihood else (y, 1)
    return stats.binom.pmf(successes, trials, expit(z))


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
@pytest.mark.parametrize("kind", CASES)
def test_the_latent_against_quadrature(kind, mode):
    """Each row is a chain of its own."""
    cases = np.array(CASES[kind])
    y = np.repeat(cases, 4000, axis=0)
    z, likelihood = pytensor.shared(np.full((len(y), 1), M)), likelihood_of(kind, y)

    def build(generator):
        return likelihood.draw_latent(generator, z, pt.constant(np.full((len(y), 1), M)), pt.constant(VARIANCE))[:2]

    one_pass = compile_draw(build, mode)
    for _ in range(60):
        z.set_value(one_pass())
    grid = np.linspace(-9, 12, 8001)
    for one, found in zip(CASES[kind], np.split(z.get_value()[:, 0], len(cases)), strict=True):
        masses = stats.norm.pdf(grid, M, VARIANCE**0.5) * density(kind, one, grid)
        cdf = integrate.cumulative_simpson(masses, x=grid, initial=0)
        assert stats.kstest(found, lambda x, cdf=cdf: np.interp(x, grid, cdf / cdf[-1])).pvalue > 1e-3, one


@pytest.mark.parametrize("mode", MODES)
def test_precisions_of_laplace_errors(mode):
    """They are inverse Gaussian, also where an error is tiny or large."""
    errors, n = np.array([1e-9, 0.03, 1.0, 5.0, 100.0]), 4000
    squares, likelihood = pytensor.shared(np.repeat(errors, n) ** 2), likelihood_of(LaplaceLikelihood, Y)
    drawn = compile_draw(lambda rng: likelihood.draw_precisions(rng, squares), mode)()
    for error, found in zip(errors, np.split(drawn, len(errors)), strict=True):
        law = stats.invgauss(1 / error) if error > 1e-6 else stats.invgamma(0.5, scale=0.5)
        assert stats.kstest(found, law.cdf).pvalue > 1e-3, error


@pytest.mark.parametrize(("scale", "sigma"), [(0.5, 0.3), (0.05, 1.0), (2.0, 0.01), (1e-4, 1.0)])
def test_laplace_densities_with_the_latent_integrated_out(scale, sigma):
    """Against quadrature; both the Gaussian and the kink are narrow in turn."""
    mean, y = np.zeros(4), np.array([0.0, 0.3, -2.0, 40.0])
    found = LaplaceLikelihood.log_probability(mean, np.array(sigma), y, None, [mean, np.array(scale)])
    grid = np.sinh(np.linspace(-25, 25, 100_001)) * 1e-9
    for one, log in zip(y, found, strict=True):
        z = np.unique(np.concatenate([grid, one + grid, np.linspace(-100, 100, 200_001)]))
        exact = stats.norm.logpdf(z, 0, sigma) + stats.laplace.logpdf(one, z, scale)
        assert abs(np.log(np.trapezoid(np.exp(exact - exact.max()), z)) + exact.max() - log) < 1e-4


# Oracle 2: the sweep


MODELS = [*((form, None) for form in FORMS), ("laplace", 2), ("bernoulli", 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "units"), MODELS)
def test_geweke(form, units):
    check_geweke(network(form, units), 6000, interweave=False, **NUMBA)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["laplace", "bernoulli"])
@pytest.mark.parametrize("kwargs", [{}, {"interweave": "langevin"}, {"collapse": False, "interweave": False}])
def test_geweke_of_other_moves(form, kwargs):
    check_geweke(network(form), 12_000, tune=500, **kwargs, **NUMBA)


@pytest.mark.slow
def test_geweke_without_hidden_units():
    check_geweke(network("binomial", hidden=False), 6000, **NUMBA)


QUICK = {("laplace, learned", None), ("binomial", None), ("bernoulli", 2)}


@pytest.mark.parametrize(("form", "units"), slow_but(QUICK, MODELS))
def test_log_density_of_the_sweep(form, units):
    model = network(form, units)
    kind = read_network(model).observation
    assert isinstance(kind, KINDS[form.split(",")[0]])
    step, point = gibbs(model, **LEAN), model.initial_point()
    for _ in range(3):
        point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], model.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-8)


# What users meet


@pytest.mark.parametrize("form", [slow("bernoulli"), "binomial", "laplace"])
def test_predictions(form):
    """Means and log densities of a linear network, against sums over the posterior and quadrature over the latent."""
    model = network(form, hidden=False)
    idata = pm_sample(model, 20, tune=5, step=gibbs(model), var_names=["W2", "b2", "v3"])
    draws = {name: idata["posterior"][name].values for name in ("W2", "b2", "v3")}
    mean = (X @ draws["W2"][..., None])[..., 0] + draws["b2"][..., None]
    sigma, grid = np.sqrt(draws["v3"])[..., None, None], np.linspace(-9, 9, 20_001)
    z, y = mean[..., None] + sigma * grid, FORMS[form][0]
    kind = KINDS[form]
    data = [(one, n) for one, n in zip(y, TRIALS, strict=True)] if form == "binomial" else y
    terms = [
        density(kind, one, z[:, :, i]) if kind is not LaplaceLikelihood else stats.laplace.pdf(one, z[:, :, i], 0.7)
        for i, one in enumerate(data)
    ]
    exact = integrate.simpson(np.stack(terms, axis=2) * stats.norm.pdf(grid), x=grid)
    found = pmg.log_predictive(idata, model, random_seed=1, extend_inferencedata=False)
    np.testing.assert_allclose(found["log_likelihood"], np.log(exact), atol=1e-5)
    assert (found["latent_mcse"] == 0).all()
    new = {"X": X, "trials": TRIALS} if form == "binomial" else X
    np.testing.assert_allclose(pmg.function_space(idata, model, new)["output"], mean)
    predicted = pmg.predict(idata, model, new, random_seed=1)
    assert ("probability" if form == "bernoulli" else "mean") in predicted


def test_mlp_of_labels_and_errors():
    for likelihood, y in (("bernoulli", np.array(["no", "yes"])[LABELS]), ("laplace", Y)):
        model = pmg.mlp(X, y, 3, likelihood=likelihood)
        assert isinstance(read_network(model).observation, KINDS[likelihood])

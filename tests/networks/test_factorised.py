"""Likelihoods of which PyMC gives the density: how they are read, the conditional of the latent, sweeps and scores."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import expit, gammaln, logsumexp

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.likelihoods.elliptical_slice import elliptical_slice
from pymc_gibbsnn.networks.reader import read_network, read_networks
from pymc_gibbsnn.prediction.quadrature import log_integral
from tests.helpers import (
    LEAN,
    MODES,
    MOSTLY_PYTHON,
    PYTHON,
    compile_draw,
    pm_sample,
    pmg_sample,
    random_point,
    slow_but,
)
from tests.samplers.test_gibbs import NUMBA, check_geweke, gibbs

N = 6
X = np.random.default_rng(0).normal(size=(N, 2))
EXPOSURE = np.random.default_rng(1).normal(size=N)
COUNTS, SHARES = np.array([0, 3, 1, 0, 7, 2]), np.linspace(0.1, 0.9, N)
exp, sigmoid = pm.math.exp, pm.math.sigmoid


def laplace(value, z, scale):
    return -abs(value - z) / scale - pt.log(2 * scale)


def lognormal(z, size):
    return pm.LogNormal.dist(z, 0.5, size=size) + 1


def between(lower, z, scale, upper):
    normal = pm.Normal.dist(z, scale)
    return pm.math.logdiffexp(pm.logcdf(normal, upper), pm.logcdf(normal, lower))


FAMILIES = {
    "Poisson": lambda Z: pm.Poisson("y", exp(Z + EXPOSURE), observed=COUNTS),
    "NegativeBinomial": lambda Z: pm.NegativeBinomial(
        "y", mu=exp(Z), alpha=pm.Gamma("alpha", 2, 1), observed=pm.Data("counts", COUNTS)
    ),
    "ZeroInflatedPoisson": lambda Z: pm.ZeroInflatedPoisson("y", pm.Beta("psi", 2, 2), exp(Z), observed=COUNTS),
    "ZeroInflatedNegativeBinomial": lambda Z: pm.ZeroInflatedNegativeBinomial("y", 0.7, exp(Z), 3, observed=COUNTS),
    "Binomial": lambda Z: pm.Binomial("y", COUNTS + 2, logit_p=Z, observed=COUNTS),
    "Bernoulli": lambda Z: pm.Bernoulli("y", logit_p=Z, observed=COUNTS % 2),
    "Gamma": lambda Z: pm.Gamma("y", mu=exp(Z), sigma=0.3, observed=SHARES),
    "Beta": lambda Z: pm.Beta("y", mu=sigmoid(Z), nu=pm.Gamma("nu", 20, 1), observed=SHARES),
    "Weibull": lambda Z: pm.Weibull("y", 2, exp(Z), observed=SHARES),
    "Exponential": lambda Z: pm.Exponential("y", scale=exp(Z), observed=SHARES),
    "Laplace": lambda Z: pm.Laplace("y", Z, 0.5, observed=SHARES),
    "AsymmetricLaplace": lambda Z: pm.AsymmetricLaplace("y", b=1.0, kappa=1.5, mu=Z, observed=SHARES),
    "Logistic": lambda Z: pm.Logistic("y", Z, 0.5, observed=SHARES),
    "VonMises": lambda Z: pm.VonMises("y", Z, 2.0, observed=SHARES),
    "Normal": lambda Z: pm.Normal("y", 0, exp(Z), observed=SHARES),
    "NormalMixture": lambda Z: pm.NormalMixture(
        "y", [0.3, 0.7], mu=Z[:, None] + np.array([-1, 1.0]), sigma=[0.2, 0.3], observed=SHARES
    ),
    "Truncated": lambda Z: pm.Truncated("y", pm.Normal.dist(Z, 1), lower=0, observed=SHARES),
    "Censored": lambda Z: pm.Censored("y", pm.Normal.dist(Z, 1), lower=0.3, upper=None, observed=SHARES.clip(0.3)),
    "logp": lambda Z: pm.CustomDist("y", Z, pm.HalfNormal("s"), logp=laplace, observed=SHARES),
    "interval": lambda Z: pm.CustomDist("y", Z, 0.5, SHARES + 0.5, logp=between, observed=SHARES),
    "dist": lambda Z: pm.CustomDist("y", Z, dist=lognormal, observed=SHARES + 1),
    "columns": lambda Z: pm.Poisson("y", exp(Z), observed=np.stack([COUNTS, COUNTS[::-1]], 1)),
    "replicates": lambda Z: pm.Poisson("y", exp(Z)[:, None], observed=np.stack([COUNTS, COUNTS[::-1]], 1)),
    "two parameters": lambda Z: pm.NegativeBinomial("y", mu=exp(Z[:, 0]), alpha=exp(Z[:, 1]), observed=COUNTS),
    "Categorical": lambda Z: pm.Categorical("y", logit_p=Z, observed=COUNTS % 2),
    "Multinomial": lambda Z: pm.Multinomial(
        "y", 4, pm.math.softmax(Z, axis=-1), observed=np.stack([COUNTS % 5, 4 - COUNTS % 5], 1)
    ),
}
WIDE = {"columns", "two parameters", "Categorical", "Multinomial"}
BY_ROW = {"replicates", *WIDE} - {"columns"}


def model_of(name: str, x=X) -> pm.Model:
    """A network with one hidden layer whose last latent has one number a row, or two."""
    outputs = (2,) if name in WIDE else ()
    with pm.Model() as model:
        Z2 = pm.Normal("Z2", pm.Data("X", x) @ pm.Normal("W1", 0, 1, shape=(2, 3)), 0.5)
        A2 = pm.Normal("A2", pm.math.maximum(Z2, 0), 0.5)
        FAMILIES[name](pm.Normal("Z3", A2 @ pm.Normal("W2", 0, 0.6, shape=(3, *outputs)), 0.5))
    return model


def vars_of(model: pm.Model) -> list:
    return [model[name] for name in ("W1", "Z2", "A2", "W2", "Z3")]


# Reading


@pytest.mark.parametrize("name", slow_but({"Poisson", "Normal", "NormalMixture", "dist"}, FAMILIES))
def test_the_log_density_is_that_of_the_model(name):
    """Elements of Z, or rows where they are taken together, also where other variables of the model have moved."""
    model = model_of(name)
    network = read_network(model)
    assert getattr(network.observation, "is_by_row", False) == (name in BY_ROW)
    step, point = gibbs(model, vars=vars_of(model)), random_point(model, 0)
    others = [rv for rv in model.free_RVs if rv not in vars_of(model)]
    of_others = model.compile_logp(vars=others, **PYTHON)(point) if others else 0
    for _ in range(2):
        point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], model.compile_logp(**PYTHON)(point) - of_others, rtol=1e-7)


def test_two_networks_in_one_likelihood_are_drawn_in_turn():
    with pm.Model() as model:
        Z = pm.Normal("Z", X @ pm.Normal("W", 0, 1, shape=2), 0.5)
        G = pm.Normal("G", X @ pm.Normal("V", 0, 1, shape=2), 0.5)
        pm.NegativeBinomial("y", mu=exp(Z), alpha=exp(G), observed=COUNTS)
    assert [network.layers[-1].name for network in read_networks(model)] == ["G", "Z"]
    step, point = gibbs(model, **LEAN), random_point(model, 0)
    for _ in range(2):
        point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], model.compile_logp(**PYTHON)(point), rtol=1e-7)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda Z: pm.Poisson("y", exp(Z - Z.mean()), observed=COUNTS),
            r"'y', which is Poisson, .* holds sum\(Z\), which",
        ),
        (
            lambda Z: pm.Poisson("y", exp(pt.cumsum(Z)), observed=COUNTS),
            "its density holds .*, which takes rows together",
        ),
        (
            lambda Z: pm.Poisson("y", exp(Z[::-1]), observed=COUNTS),
            "the same row of 'Z', which has 6 rows; .* on others",
        ),
        (lambda Z: pm.Poisson("y", exp(Z[[0, 0]]), observed=COUNTS[:2]), r"which has shape \(2,\), depend on others"),
        (
            lambda Z: pm.MvNormal("y", exp(Z), np.eye(N), observed=SHARES),
            "'y', which is MultivariateNormal, .* together",
        ),
        (
            lambda Z: pm.NegativeBinomial("y", mu=exp(Z), alpha=-1.0, observed=COUNTS),
            "A parameter of 'y' is out of its range",
        ),
        (lambda Z: pm.Poisson("y", exp(Z), observed=COUNTS - 1), r"data of 'y' must be possible .* found \[-1\]"),
        (
            lambda Z: pm.Gamma("y", mu=exp(Z), sigma=1.0, observed=-SHARES),
            "data of 'y' must be possible .* of density 0",
        ),
        (lambda Z: pm.Beta("y", mu=sigmoid(Z), nu=5, observed=SHARES * np.nan), "'y'"),
        (
            lambda Z: (pm.Poisson("y", exp(Z), observed=COUNTS), pm.Poisson("v", exp(Z), observed=COUNTS)),
            "nothing else",
        ),
    ],
)
def test_what_is_refused(build, message):
    with pm.Model() as model:
        build(pm.Normal("Z", X @ pm.Normal("W", 0, 1, shape=2), 0.5))
    with pytest.raises(pmg.NetworkError, match=message):
        pmg.GibbsNN(model=model)


def test_parameters_out_of_range_are_those_of_their_row():
    """PyMC's check of all rows together is one for each, where Z is the mean of counts itself."""
    with pm.Model() as model:
        pm.Poisson("y", pm.Normal("Z", X @ pm.Normal("W", 0, 1, shape=2), 0.5), observed=COUNTS)
    z = np.array([[1.0], [-1.0], [2.0], [-0.1], [3.0], [0.5]])
    found = read_network(model).observation.log_densities(pt.constant(z)).eval(mode="AS_WRITTEN")
    np.testing.assert_allclose(found, np.where(z > 0, stats.poisson.logpmf(COUNTS[:, None], abs(z)), -np.inf))


# The conditional of the latent


CONDITIONALS = {
    "Poisson": (
        lambda Z, y: pm.Poisson("y", exp(Z + 1), observed=y),
        [0, 2, 9],
        lambda z, y: stats.poisson.logpmf(y, np.exp(z + 1)),
    ),
    "Beta": (
        lambda Z, y: pm.Beta("y", mu=sigmoid(Z), nu=50, observed=y),
        [0.01, 0.4, 0.9],
        lambda z, y: stats.beta.logpdf(y, 50 * expit(z), 50 * expit(-z)),
    ),
    "Gamma": (
        lambda Z, y: pm.Gamma("y", 2, 2 * exp(-Z), observed=y),
        [0.02, 1, 30.0],
        lambda z, y: stats.gamma.logpdf(y, 2, scale=np.exp(z) / 2),
    ),
    "CustomDist": (
        lambda Z, y: pm.CustomDist("y", Z, 0.2, logp=laplace, observed=y),
        [-2, 0, 1.0],
        lambda z, y: stats.laplace.logpdf(y, z, 0.2),
    ),
    "interval": (
        lambda Z, y: pm.CustomDist("y", Z, 0.2, y + 0.5, logp=between, observed=y),
        [-2, 0, 1.0],
        lambda z, y: np.log(stats.norm.cdf(y + 0.5, z, 0.2) - stats.norm.cdf(y, z, 0.2)),
    ),
}


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
@pytest.mark.parametrize("name", CONDITIONALS)
def test_the_latent_against_quadrature(name, mode):
    """Latents all of which start at one place, and then those that are drawn from their distribution already."""
    build, values, log_density = CONDITIONALS[name]
    n, m, noise, rng, grid = 6000, 0.3, 0.9, np.random.default_rng(2), np.linspace(-8, 8, 16_001)
    y = np.repeat(values, n // 3)
    with pm.Model() as model:
        build(pm.Normal("Z", np.ones((n, 1)) @ pm.Normal("W", 0, 1, shape=1), 1), y)
    likelihood = read_network(model).observation
    with np.errstate(all="ignore"):
        masses = np.exp(stats.norm.logpdf(grid, m, noise**0.5) + log_density(grid, np.array(values)[:, None]))
    below = masses.cumsum(axis=1) / masses.sum(axis=1, keepdims=True)
    exact = np.concatenate([np.interp(rng.random(n // 3), of_one, grid) for of_one in below])
    current = pytensor.shared(np.full((n, 1), 0.5))
    one_move = compile_draw(
        lambda rng: likelihood.draw_latent(rng, current, pt.full_like(current, m), pt.constant(noise))[:2], mode
    )
    for start, moves in ((np.full(n, 0.5), 100), (exact, 2)):
        current.set_value(start[:, None])
        for _ in range(moves):
            current.set_value(one_move())
        z = current.get_value()[:, 0]
        assert ((z != start).reshape(3, -1).mean(axis=1) > 0.8).all()
        for of_one, part in zip(below, z.reshape(3, -1), strict=True):
            assert stats.kstest(np.interp(part, grid, of_one), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("mode", MODES)
def test_rows_with_one_density_move_together(mode):
    """π(z) ∝ N(z; 0, I) exp(−(z₁ z₂)²): draws by rejection are still draws of it after two steps."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(60_000, 2))
    z = z[rng.random(len(z)) < np.exp(-((z[:, 0] * z[:, 1]) ** 2))]
    start, expected = np.split(z[: len(z) // 2 * 2], 2)

    def moves(generator, z=start):
        z = pt.constant(z)
        for _ in range(2):
            generator, z = elliptical_slice(
                generator, z, 0 * z, pt.constant(1.0), lambda z: -((z[:, :1] * z[:, 1:]) ** 2)
            )
        return generator, z

    found = compile_draw(moves, mode)()
    assert (found != start).all(axis=1).mean() > 0.9
    for function in (lambda z: z[:, 0], lambda z: abs(z[:, 0] * z[:, 1]), lambda z: z[:, 0] + z[:, 1]):
        assert stats.ks_2samp(function(found), function(expected)).pvalue > 1e-3


@pytest.mark.slow
def test_a_density_far_narrower_than_the_noise():
    """Few tries find nothing there, and latents stay, which must not favour any place."""
    rng = np.random.default_rng(4)
    sd = 1 / 3000
    z = sd * rng.normal(size=(40_000, 1))

    def moves(generator, z=z):
        z = pt.constant(z)
        for _ in range(30):
            generator, z = elliptical_slice(generator, z, 0 * z, pt.constant(1.0), lambda z: -0.5 * (z / sd) ** 2)
        return generator, z

    found = compile_draw(moves)()
    assert 0.3 < (found != z).mean() < 1
    assert stats.kstest(found[:, 0] / sd, "norm").pvalue > 1e-3


# Sweeps


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [
        lambda Z, y: pm.Poisson("y", exp(Z), observed=y),
        lambda Z, y: pm.Laplace("y", Z, 0.5, observed=y),
        lambda Z, y: pm.Beta("y", 5 * sigmoid(Z), 5 * sigmoid(-Z), observed=y),
    ],
)
def test_geweke(build):
    with pm.Model() as model:
        y = pm.Data("y_data", SHARES if "Poisson" not in build.__code__.co_names else COUNTS)
        Z2 = pm.Normal("Z2", X @ pm.Normal("W1", 0, 0.5, shape=(2, 2)), 0.5)
        A2 = pm.Normal("A2", pt.maximum(Z2, 0), 0.5)
        build(pm.Normal("Z3", A2 @ pm.Normal("W2", 0, 0.4, shape=2) + pm.Normal("b2", 0, 0.4), 0.4), y)
    check_geweke(model, 12_000, interweave=False, **NUMBA)


@pytest.mark.slow
def test_geweke_with_the_joint_move_of_weights():
    """With the scale of the last weights learned."""
    with pm.Model() as model:
        Z2 = pm.Normal("Z2", X @ pm.Normal("W1", 0, 0.5, shape=(2, 2)), 0.5)
        A2 = pm.Normal("A2", pt.maximum(Z2, 0), 0.5)
        scale = pm.Gamma("scale", 8, 1) ** -0.5
        Z3 = pm.Normal("Z3", A2 @ pm.Normal("W2", 0, scale, shape=2) + pm.Normal("b2", 0, 0.4), 0.4)
        pm.Poisson("y", exp(Z3), observed=pm.Data("y_data", COUNTS))
    check_geweke(model, 6000, **NUMBA)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_pm_sample(name):
    """Beside NUTS for what is not of the network."""
    model = model_of(name)
    step = pmg.GibbsNN(vars_of(model), model=model, **NUMBA)
    idata = pm_sample(model, 10, tune=10, step=step, compute_convergence_checks=False)
    for rv in model.free_RVs:
        x = idata.posterior[rv.name].values
        assert np.isfinite(x).all()
        assert (np.ptp(x, axis=(0, 1)) > 0).all(), rv.name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Poisson", "NormalMixture", "Categorical", "dist"])
def test_pmg_sample(name):
    idata = pmg_sample(model_of(name), 10)
    assert np.isfinite(idata.posterior["W1"]).all()


@pytest.mark.slow
def test_pmg_sample_beside_another_step():
    model = model_of("NegativeBinomial")
    steps = [pmg.GibbsNN(vars_of(model), model=model), pmg.MALA([model["alpha"]], model=model)]
    idata = pmg_sample(model, 200, tune=200, step=steps)
    assert idata.posterior["alpha"].std() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("level", [-1, 3])
def test_a_chain_finds_the_means_of_counts(level):
    """Their logarithms, the outputs, with 200 rows."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 2))
    truth = level + 1.5 * np.abs(x[:, 0]) - x[:, 1]
    with pm.Model() as model:
        W1, b1 = pm.Normal("W1", 0, 1, shape=(2, 5)), pm.Normal("b1", 0, 1, shape=5)
        A2 = pm.Normal("A2", pm.math.maximum(pm.Normal("Z2", x @ W1 + b1, 0.1), 0), 0.1)
        W2, b2 = pm.Normal("W2", 0, 1, shape=5), pm.Normal("b2", 0, 3)
        pm.Poisson("y", exp(pm.Normal("Z3", A2 @ W2 + b2, 0.1)), observed=rng.poisson(np.exp(truth)))
    idata = pm_sample(
        model, 500, tune=2000, var_names=pmg.without_latents(model), compile_kwargs=NUMBA["compile_kwargs"]
    )
    found = pmg.function_space(idata, model)["output"].mean(("chain", "draw")).values
    assert np.sqrt(np.mean((found - truth) ** 2)) < (0.15 if level > 0 else 0.35)


# Densities of new data


def of_draws(model: pm.Model, seed: int = 0):
    """A posterior of three draws."""
    rng = np.random.default_rng(seed)
    latents = ("Z2", "A2", "Z3", "Z")
    free = [rv for rv in model.free_RVs if rv.name not in latents]
    return {
        "posterior": az.convert_to_dataset(
            {rv.name: rng.uniform(0.3, 0.9, size=(1, 3, *rv.shape.eval())) for rv in free}
        )
    }


SCORED = {
    "Poisson": (
        lambda Z: pm.Poisson("y", exp(Z), observed=[0, 5, 500]),
        lambda z: stats.poisson.logpmf([0, 5, 500], np.exp(z)),
    ),
    "NegativeBinomial": (
        lambda Z: pm.NegativeBinomial("y", mu=exp(Z), alpha=3.0, observed=[0, 5, 50]),
        lambda z: stats.nbinom.logpmf([0, 5, 50], 3, 3 / (3 + np.exp(z))),
    ),
    "Gamma": (
        lambda Z: pm.Gamma("y", 2, 2 * exp(-Z), observed=[0.02, 1, 30]),
        lambda z: stats.gamma.logpdf([0.02, 1, 30], 2, scale=np.exp(z) / 2),
    ),
    "Beta": (
        lambda Z: pm.Beta("y", mu=sigmoid(Z), nu=50, observed=[0.01, 0.4, 0.9]),
        lambda z: stats.beta.logpdf([0.01, 0.4, 0.9], 50 * expit(z), 50 * expit(-z)),
    ),
    "NormalMixture": (
        lambda Z: pm.NormalMixture("y", [0.3, 0.7], Z[:, None] + np.array([-1, 1]), sigma=0.1, observed=[-2.0, 0, 5]),
        lambda z: np.logaddexp(
            np.log(0.3) + stats.norm.logpdf([-2, 0, 5], z - 1, 0.1),
            np.log(0.7) + stats.norm.logpdf([-2, 0, 5], z + 1, 0.1),
        ),
    ),
    "CustomDist": (
        lambda Z: pm.CustomDist("y", Z, 0.25, logp=laplace, observed=[-2.0, 0, 3]),
        lambda z: stats.laplace.logpdf([-2, 0, 3], z, 0.25),
    ),
    "replicates": (
        lambda Z: pm.Poisson("y", exp(Z)[:, None], observed=[[0, 1], [5, 2], [9, 30]]),
        lambda z: stats.poisson.logpmf(np.array([[0, 1], [5, 2], [9, 30]]), np.exp(z)[..., None]).sum(-1),
    ),
}


@pytest.mark.parametrize("name", SCORED)
def test_log_predictive_against_brute_force(name):
    """Sums over so many places that they are exact, where the network has no hidden layer."""
    build, log_density = SCORED[name]
    x = X[:3]
    with pm.Model() as model:
        build(pm.Normal("Z", pm.Data("X", x) @ pm.Normal("W", 0, 1, shape=2), 0.7))
    idata = of_draws(model)
    found = pmg.log_predictive(idata, model, extend_inferencedata=False)
    assert (found["latent_mcse"] == 0).all()
    means = idata["posterior"]["W"].values[0] @ x.T
    u = np.linspace(-14, 14, 400_001)[:, None]
    for mean, densities in zip(means, found["log_likelihood"].values[0], strict=True):
        with np.errstate(all="ignore"):
            terms = log_density(mean + 0.7 * u) + stats.norm.logpdf(u) + np.log(u[1] - u[0])
        np.testing.assert_allclose(densities, logsumexp(np.nan_to_num(terms, nan=-np.inf), axis=0), rtol=0, atol=1e-6)


def test_log_predictive_integrates_the_activations_below_too():
    """With one hidden unit that is off, Z has the variance ΔZ + ΔA W²."""
    with pm.Model() as model:
        A = pm.Normal(
            "A2", 0 * pm.math.maximum(pm.Normal("Z2", pm.Data("X", X) @ pm.Normal("W1", 0, 1, shape=(2, 1)), 1), 0), 0.6
        )
        pm.Poisson("y", exp(pm.Normal("Z3", A @ pm.Normal("W2", 0, 1, shape=1), 0.5)), observed=COUNTS)
    idata = of_draws(model)
    found = pmg.log_predictive(idata, model, latent_draws=2, random_seed=1, extend_inferencedata=False)
    u = np.linspace(-12, 12, 100_001)[:, None]
    for w, densities in zip(idata["posterior"]["W2"].values[0, :, 0], found["log_likelihood"].values[0], strict=True):
        terms = stats.poisson.logpmf(COUNTS, np.exp(np.hypot(0.5, 0.6 * w) * u)) + stats.norm.logpdf(u)
        np.testing.assert_allclose(densities, logsumexp(terms + np.log(u[1] - u[0]), axis=0), atol=1e-6)


@pytest.mark.parametrize("is_smooth", [False, True])
@pytest.mark.parametrize("y", [0, 500, 100_000])
@pytest.mark.parametrize("s", [0.01, 0.1, 3.0])
def test_quadrature_far_from_the_mean(y, s, is_smooth):
    """By Laplace's approximation with its next term, which is exact to 1e-6 for many counts; a plain sum for none."""
    found = log_integral(lambda z: y * z - np.exp(z) - gammaln(y + 1), np.zeros(1), np.full(1, s), is_smooth)
    u = np.linspace(-40, 1300, 4_000_001) if y else np.linspace(-12, 12, 1_000_001)
    if y:  # around the mode, which Newton's method finds
        mode = np.log(y)
        for _ in range(200):
            mode -= np.clip((mode / s**2 - y + np.exp(mode)) / (1 / s**2 + np.exp(mode)), -1, 1)
        u = (mode + np.linspace(-12, 12, 1_000_001) / np.sqrt(1 / s**2 + np.exp(mode))) / s
    terms = y * s * u - np.exp(s * u) - gammaln(y + 1) + stats.norm.logpdf(u) + np.log(u[1] - u[0])
    np.testing.assert_allclose(found, logsumexp(terms), rtol=1e-12, atol=1e-6)


def count_calls(density, mean, is_smooth=True):
    """Integrate a log density for latents of variance 1; return the result, and how often the density was computed."""
    calls = []

    def counted(z):
        calls.append(z)
        return density(z)

    return log_integral(counted, mean, np.ones(1), is_smooth), len(calls)


@pytest.mark.parametrize("case", ["counts", "kink", "two modes"])
def test_quadrature_of_what_should_be_smooth(case):
    """Counts need half of the evaluations at most; a kink, or a second mode in a few data, is noticed."""
    mean = np.linspace(0.5, 2, 101)
    y = np.random.default_rng(2).poisson(np.exp(mean))
    density = {
        "counts": lambda z: stats.poisson.logpmf(y, np.exp(z)),
        "kink": lambda z: -3 * abs(z - 0.3),
        "two modes": lambda z: stats.norm.logpdf(3, z**2, 0.1),
    }[case]
    exact, slow = count_calls(density, mean, is_smooth=False)
    found, quick = count_calls(density, mean)
    assert (quick < 0.5 * slow) == (case == "counts")
    np.testing.assert_allclose(found, exact, atol=1e-8)

import warnings
from functools import partial

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy.special import ndtr
from scipy.stats import multivariate_normal, norm

import pymc_gibbsnn as pmg
from pymc_gibbsnn import _compat
from pymc_gibbsnn.diagnostics.scoring import log_predictive_density
from tests.helpers import slow

RNG = np.random.default_rng(0)
X = RNG.normal(size=(9, 2))
Y = np.sin(X[:, 0])


def prior_draws(model, chains=2, draws=20, data=False):
    """What stands for a posterior: draws of all that serves every row."""
    rvs = [rv for rv in model.free_RVs if rv.name[0] not in "ZA"]
    values = pm.draw(rvs, draws=chains * draws, random_seed=1, mode="AS_WRITTEN")
    values = {rv.name: v.reshape(chains, draws, *v.shape[1:]) for rv, v in zip(rvs, values, strict=True)}
    groups = _compat.data_groups(model) if data else {}
    return _compat.inference_data({"posterior": _compat.dataset(model, values, 0)} | groups)


def numbers(idata):
    return {name: x.values for name, x in _compat.dataset_of(idata, "posterior").items()}


def check_error(found, expected):
    """The errors of log likelihoods are those that are said."""
    ratio = (found["log_likelihood"].values - expected) / found["latent_mcse"].values
    assert 0.6 < np.sqrt(np.mean(ratio**2)) < 1.5
    assert np.abs(np.mean(ratio)) < 5 / np.sqrt(ratio.size)


@pytest.mark.parametrize(("depth", "single"), [(1, True), slow(1, False), slow(2, True), (2, False)])
def test_a_linear_network_in_closed_form(depth, single):
    sds = np.array([0.5, 0.3, 0.4, 0.6, 0.7])[-2 * depth - 1 :]
    y = Y if single else np.c_[Y, -Y]
    model = pmg.mlp(X, y, [3] * depth, activation="identity", noise=sds, prior=None)
    idata = prior_draws(model)
    found = pmg.log_predictive(idata, model, X + 0.1, y, latent_draws=1000, random_seed=1)
    weights, expected = numbers(idata), np.empty((2, 20, 9))
    for place in np.ndindex(2, 20):
        mean, covariance, noises = X + 0.1, np.zeros((2, 2)), iter(sds**2)
        for l in range(1, depth + 2):
            w, b = (weights[f"{kind}{l}"][place] for kind in "Wb")
            w = np.atleast_2d(w)
            mean, covariance = mean @ w.T + b, w @ covariance @ w.T + next(noises) * np.eye(len(w))
            covariance = covariance + (next(noises) * np.eye(len(w)) if l <= depth else 0)
        expected[place] = [multivariate_normal.logpdf(y[i], mean[i], covariance) for i in range(9)]
    check_error(found, expected)


@pytest.mark.parametrize("likelihood", [slow("normal"), "probit"])
def test_a_relu_by_quadrature(likelihood):
    y = (Y > 0).astype(int) if likelihood == "probit" else Y
    model = pmg.mlp(X, y, 1, noise=[0.9, 0.5, 0.6], likelihood=likelihood, prior=None)
    idata = prior_draws(model)
    found = pmg.log_predictive(idata, model, X, y, latent_draws=1000, random_seed=1)
    weights, expected = numbers(idata), np.empty((2, 20, 9))
    grid = np.linspace(-7, 7, 400)
    z, a = 0.9 * grid, 0.5 * grid
    density = norm.pdf(grid) * (grid[1] - grid[0])
    for place in np.ndindex(2, 20):
        w1, b1, w2, b2 = (weights[name][place] for name in ("W1", "b1", "W2", "b2"))
        for i in range(9):
            mean = w2 * (np.maximum(z + X[i] @ w1[0] + b1, 0)[:, None] + a) + b2
            p = norm.pdf(Y[i], mean, 0.6) if likelihood == "normal" else ndtr((2 * y[i] - 1) * mean / 0.6)
            expected[(*place, i)] = np.log(density @ p @ density)
    check_error(found, expected)


def test_labels_of_several_classes():
    model = pmg.mlp(X, np.arange(9) % 3, 3, noise=0.7, likelihood="probit", prior=None)
    idata = prior_draws(model, draws=1500)
    shares = pmg.predict(idata, model, X, random_seed=2)["probability"].values
    total = 0
    for k in range(3):
        found = pmg.log_predictive(idata, model, X, np.full(9, k), latent_draws=1, random_seed=k)
        p, error = np.exp(found["log_density"].values), found["mcse"].values
        assert (np.abs(p - shares[:, k]) < 5 * np.sqrt(shares[:, k] / 3000 + (error * p) ** 2)).all()
        total = total + p
    assert (np.abs(total - 1) < 0.03).all()


@pytest.mark.parametrize(
    "build",
    [
        slow(lambda: pmg.classical_mlp(X, np.arange(9) % 3, 3)),
        lambda: pmg.classical_mlp(X, np.arange(9) % 2, 3, likelihood="bernoulli"),
        slow(lambda: pmg.wide_mlp(X, Y, 20)),
    ],
)
def test_classical_networks(build):
    """Nothing is drawn; the data are those that were fitted, whatever the model holds now."""
    model = build()
    idata = prior_draws(model, data=True)
    y, mean = model["y_data"].get_value(), pmg.function_space(idata, model)["output"].values
    p = np.stack([1 - mean, mean], -1) if model["y"].owner.op.name == "bernoulli" else mean
    expected = norm.logpdf(y, mean, 0.1) if y.dtype.kind == "f" else np.log(p[:, :, np.arange(9), y])
    model.set_data("X", X[:4] + 1)
    found = pmg.log_predictive(idata, model)
    np.testing.assert_allclose(found["log_likelihood"], expected, rtol=1e-6)
    np.testing.assert_array_equal(_compat.dataset_of(idata, "log_likelihood")["y"], found["log_likelihood"])
    assert not found["latent_mcse"].any()
    assert np.isclose(found["log_density"].mean(), log_predictive_density(expected))
    again = pmg.log_predictive({"posterior": _compat.dataset_of(idata, "posterior")}, model, X, y)
    xr.testing.assert_allclose(again, found)


def leave_one_out(mean, covariance, noise, y):
    """Exact log densities of y ~ Normal(mean, covariance + noise I), each given all others."""
    found = []
    for i in range(len(y)):
        rest = np.delete(np.arange(len(y)), i)
        s = covariance + noise * np.eye(len(y))
        gain = np.linalg.solve(s[np.ix_(rest, rest)], s[rest, i])
        found.append(norm.logpdf(y[i], mean[i] + gain @ (y[rest] - mean[rest]), np.sqrt(s[i, i] - gain @ s[rest, i])))
    return np.array(found)


@pytest.mark.parametrize("latents", [False, True])
def test_leave_one_out_of_a_conjugate_model(latents):
    c, n = np.array([1.0, -0.5]), 30
    rng = np.random.default_rng(1)
    X, Y = rng.uniform(-1, 1, size=(n, 2)), rng.normal(size=n) / 2
    with pm.Model() as model:
        inputs = pm.Data("X", X)
        if latents:
            a = pm.Normal("A2", inputs @ pm.Normal("W", 0, 1, shape=(2, 2)).T, 0.3)
            pm.Normal("y", a @ c, 0.4, observed=Y)
            noise, prior = 0.4**2 + 0.3**2 * c @ c, c @ c
        else:
            pm.Normal("y", inputs @ pm.Normal("W", 0, 1, shape=2), 0.5, observed=Y)
            noise, prior = 0.5**2, 1.0
    expected = leave_one_out(np.zeros(n), prior * X @ X.T, noise, Y)
    # the posterior of v = Wᵀ c, and of W given v
    precision = X.T @ X / noise + np.eye(2) / prior
    v = rng.multivariate_normal(np.linalg.solve(precision, X.T @ Y / noise), np.linalg.inv(precision), size=(2, 1000))
    if latents:
        free = rng.normal(size=(2, 1000, 2, 2))
        v = free + c[:, None] * ((v - np.einsum("k,...kd->...d", c, free)) / prior)[..., None, :]
    idata = _compat.inference_data({"posterior": az.convert_to_dataset({"W": v})} | _compat.data_groups(model))
    found = pmg.log_predictive(idata, model, latent_draws=100, random_seed=1)
    loo = az.loo(idata, pointwise=True)
    elpd = getattr(loo, "elpd_i", getattr(loo, "loo_i", None))
    np.testing.assert_allclose(np.asarray(elpd), expected, atol=0.05)
    assert (found["log_density"].values > expected).all()
    assert bool((found["latent_mcse"] > 0).all()) == latents


@pytest.mark.parametrize("likelihood", ["normal", "student", "sign", "argmax"])
def test_standard_deviations_may_be_whole_numbers(likelihood):
    y = (Y > 0).astype(int) if likelihood in ("sign", "argmax") else 100 * Y

    def build(sigma):
        with pm.Model() as model:
            x = pm.Data("X", X)
            w = pm.Normal("W1", 0, 50, shape=(2, 3))
            z = pm.Normal("Z2", x @ w, sigma)
            a = pm.Normal("A2", pm.math.maximum(z, 0), sigma)
            mean = a @ pm.Normal("W2", 0, 50, shape=(3, 2) if likelihood == "argmax" else 3)
            if likelihood == "normal":
                pm.Normal("y", mean, sigma, observed=y)
                return model
            z = pm.Normal("Z3", mean, sigma)
            if likelihood == "student":
                pm.StudentT("y", 4, z, sigma=sigma, observed=y)
            else:
                {"sign": pmg.SignLabel, "argmax": pmg.ArgmaxLabel}[likelihood]("y", z, observed=y)
        return model

    idata = prior_draws(build(100.0))
    whole, real = (pmg.log_predictive(idata, build(sigma), X, y, random_seed=2) for sigma in (100, 100.0))
    np.testing.assert_allclose(whole["log_density"], real["log_density"], rtol=1e-12)


def test_latents_are_drawn_once_for_new_data_and_often_for_data_that_were_fitted():
    model = pmg.mlp(X, X[:, 0], 3, noise=0.1, prior=None)
    idata = prior_draws(model, data=True)
    new = pmg.log_predictive(idata, model, X, X[:, 0], random_seed=1)
    xr.testing.assert_identical(new, pmg.log_predictive(idata, model, X, X[:, 0], latent_draws=1, random_seed=1))
    fitted = pmg.log_predictive(idata, model, random_seed=1)
    xr.testing.assert_identical(fitted, pmg.log_predictive(idata, model, latent_draws=20, random_seed=1))
    assert np.isnan(new["latent_mcse"]).all()
    assert (fitted["latent_mcse"] > 0).all()


def test_bad_arguments_are_refused():
    model = pmg.mlp(X, np.arange(9) % 3, 3, likelihood="probit", noise=0.1, prior=None)
    idata = prior_draws(model)
    for arguments, message in [
        ({"X_new": X}, "X_new needs y_new"),
        ({"X_new": X, "y_new": np.zeros(4, int)}, r"y_new must have shape \(9,\)"),
        ({"X_new": X, "y_new": np.full(9, 3)}, r"labels from 0 to 2; found \[3\]"),
        ({"X_new": X, "y_new": np.full(9, np.nan)}, "y_new holds 9 values that are NaN"),
        ({"latent_draws": 0}, "latent_draws must be a positive integer"),
    ]:
        with pytest.raises(ValueError, match=message):
            pmg.log_predictive(idata, model, **arguments)
    posterior = _compat.dataset_of(idata, "posterior").drop_vars("b1")
    with pytest.raises(ValueError, match="The posterior lacks 'b1'"):
        pmg.log_predictive({"posterior": posterior}, model)


def test_labels_of_an_expression_of_a_latent_are_refused():
    with pm.Model() as model:
        inputs = pm.Data("X", X)
        z = pm.Normal("Z2", inputs @ pm.Normal("W1", shape=2), 0.5)
        pmg.SignLabel("y", z - 2.0, observed=(Y > 0).astype(int), shape=inputs.shape[0])
    with pytest.raises(pmg.NetworkError, match="'y' is not given by a noisy pre-activation"):
        pmg.log_predictive(prior_draws(model), model, X, (Y > 0).astype(int))


@pytest.mark.parametrize("categories", [slow([1, 0]), slow([4, 7]), ["no", "yes"]])
@pytest.mark.parametrize("build", [partial(pmg.mlp, likelihood="probit", noise=0.3), slow(pmg.classical_mlp)])
def test_labels_may_be_the_names_of_their_classes(build, categories):
    """New labels score as the same ones when they were fitted, in whatever form they are given."""
    numbers = (X[:, 0] > 0).astype(int)
    y = pd.Categorical.from_codes(numbers, categories)
    model = build(X, y, [])
    idata = prior_draws(model)
    expected = pmg.log_predictive(idata, model, random_seed=1)["log_density"]
    forms = [y, pd.Series(y), np.asarray(y), list(y)] + [numbers] * (categories == ["no", "yes"])
    for form in forms:
        found = pmg.log_predictive(idata, model, X, form, random_seed=1)["log_density"]
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match=r"y_new must hold labels of the classes .*; found "):
        pmg.log_predictive(idata, model, X, np.full(9, 3 if categories[0] != "no" else "perhaps"))


def test_the_columns_of_new_targets_are_those_of_the_data():
    frame = pd.DataFrame({"u": Y, "v": Y + 10})
    model = pmg.mlp(X, frame, [], noise=0.5, prior=None)
    idata = prior_draws(model)
    pmg.log_predictive(idata, model, X, frame)
    for columns in (["v", "u"], ["u", "w"]):
        with pytest.raises(ValueError, match=r"columns of y_new must be .* \['u', 'v'\], in this order"):
            pmg.log_predictive(idata, model, X, frame.set_axis(columns, axis=1))


@pytest.mark.parametrize("through_another", [False, True])
def test_a_latent_on_which_the_scale_depends_too_is_drawn(through_another):
    x, y, w = np.array([[0.5], [-1.0]]), np.array([0.3, 1.0]), 0.8
    with pm.Model() as model:
        z = pm.Normal("Z", pm.Data("X", x) @ pm.Normal("W", shape=1), 1)
        scale = pm.Normal("S", z, 0.5) if through_another else z
        pm.Normal("y", z, pm.math.exp(scale), observed=y)
    idata = prior_draws(model)
    _compat.dataset_of(idata, "posterior")["W"].values[:] = w
    found = pmg.log_predictive(idata, model, x, y, latent_draws=200, random_seed=1)["log_density"]
    grid = np.linspace(-10, 10, 2001)
    of_z = norm.pdf(grid, w * x, 1)
    if through_another:
        e, weights = np.polynomial.hermite_e.hermegauss(60)
        of_y = [norm.pdf(one, grid[:, None], np.exp(grid[:, None] + 0.5 * e)) @ weights / weights.sum() for one in y]
    else:
        of_y = [norm.pdf(one, grid, np.exp(grid)) for one in y]
    np.testing.assert_allclose(found, np.log((of_z * of_y).sum(1) * (grid[1] - grid[0])), atol=0.1)


@pytest.mark.parametrize("single", [slow(True), False])
def test_noise_by_row_by_quadrature(single):
    """Given G all is linear and normal; G is of one number."""
    y = Y if single else np.c_[Y, -Y]
    with pm.Model() as model:
        inputs = pm.Data("X", X)
        g = pm.Normal("Z_G", inputs @ pm.Normal("V", 0, 0.5, shape=2), 0.9)
        scale = pmg.row_scale(g, floor=0.1)
        z = pm.Normal("Z2", inputs @ pm.Normal("W1", 0, 0.3, shape=(3, 2)).T, 0.05 * scale[:, None])
        a = pm.Normal("A2", z, 0.7 * scale[:, None])
        if single:
            pm.Normal("y", a @ pm.Normal("W2", 0, 0.3, shape=3), 0.5 * scale, observed=y)
        else:
            pm.Normal("y", a @ pm.Normal("W2", 0, 0.3, shape=(2, 3)).T, 0.5 * scale[:, None], observed=y)
    idata = prior_draws(model)
    found = pmg.log_predictive(idata, model, X, y, latent_draws=40, random_seed=1)
    weights, expected = numbers(idata), np.empty((2, 20, 9))
    grid = np.linspace(-7, 7, 400)
    of_g = norm.pdf(grid) * (grid[1] - grid[0])
    for place in np.ndindex(2, 20):
        w1, w2, v = weights["W1"][place], np.atleast_2d(weights["W2"][place]), weights["V"][place]
        covariance = 0.25 * np.eye(len(w2)) + (0.49 + 0.0025) * w2 @ w2.T
        for i in range(9):
            squares = np.exp(X[i] @ v + 0.9 * grid) + 0.1
            residual = (y[i] - X[i] @ w1.T @ w2.T) / np.sqrt(squares)[:, None]
            p = multivariate_normal.pdf(residual, np.zeros(len(w2)), covariance) / squares ** (len(w2) / 2)
            expected[(*place, i)] = np.log(of_g @ p)
    check_error(found, expected)
    assert found["latent_mcse"].max() < 0.1  # 0.16 and 0.20 were G drawn without strata
    odd, even = (pmg.log_predictive(idata, model, X, y, latent_draws=k, random_seed=1) for k in (3, 4))
    xr.testing.assert_identical(odd, even)


def test_a_row_with_extreme_noise_does_not_change_others():
    x, y = np.array([[800, 0], *X[:3]]), np.r_[0, Y[:3]]
    with pm.Model() as model:
        inputs = pm.Data("X", x)
        scale = pm.math.exp(pm.Normal("G", inputs @ pm.Normal("V", 0, 1, shape=2), 0.5) / 2)
        z = pm.Normal("Z2", inputs @ pm.Normal("W1", 0, 0.1, shape=(3, 2)).T, 0.5 * scale[:, None])
        a = pm.Normal("A2", pm.math.maximum(z, 0), 0.5 * scale[:, None])
        pm.Normal("y", a @ pm.Normal("W2", 0, 1, shape=3), scale, observed=y)
    idata = prior_draws(model)
    _compat.dataset_of(idata, "posterior")["V"].values[:] = [1, 0]
    found = pmg.log_predictive(idata, model, x, y, random_seed=1)["log_density"]
    others = pmg.log_predictive(idata, model, x[1:], y[1:], random_seed=1)
    np.testing.assert_allclose(found[1:], others["log_density"], atol=0.1)
    assert -450 < found[0] < -350  # the scale of its row is e^400


def test_a_density_that_is_the_same_in_all_draws_has_no_error():
    """Where classes are certain, as in a point far from all others."""
    x = np.array([[-1e4], [-1.0], [1.0], [1e4]])
    with pm.Model() as model:
        w = pm.Normal("w", 1, 0.1)
        pm.Bernoulli("y", logit_p=x[:, 0] * w, observed=np.array([0, 0, 1, 1]))
    idata = {"posterior": xr.Dataset({"w": (("chain", "draw"), 1 + 0.1 * np.random.default_rng(0).random((2, 50)))})}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = pmg.log_predictive(idata, model, y_new=None)
    np.testing.assert_array_equal(found["mcse"] == 0, [True, False, False, True])


def test_the_density_of_what_is_impossible_is_zero():
    with pm.Model() as model:
        z = pm.Normal("Z2", X @ pm.Normal("w", 0, 1, shape=2), 0.5)
        pm.Exponential("y", pm.math.exp(z), observed=np.ones(len(X)))
    y = np.r_[-1, np.ones(len(X) - 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = pmg.log_predictive(prior_draws(model), model, y_new=y, latent_draws=20, random_seed=1)
    assert found["log_density"][0] == -np.inf
    assert found["mcse"][0] == found["latent_mcse"][0] == 0
    assert np.isfinite(found.isel(point=slice(1, None))).all().to_array().all()

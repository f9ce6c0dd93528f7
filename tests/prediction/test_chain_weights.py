import warnings
from functools import cache

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy.special import logsumexp

import pymc_gibbsnn as pmg
from pymc_gibbsnn import _compat
from pymc_gibbsnn.prediction import new_rows

CHAINS, DRAWS, WEIGHTS = 3, 40, np.array([0.6, 0.1, 0.3])
RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = X[:, 0]


@cache
def classical(labels=False):
    """A network without latents, and what stands for its posterior."""
    y = (Y > 0).astype(int) if labels else Y
    model = pmg.classical_mlp(X, y, 3, likelihood="bernoulli" if labels else "normal", noise=0.4)
    return model, prior_draws(model)


def prior_draws(model, chains=CHAINS, draws=DRAWS, spread=1.0):
    """Draws of all that serves every row, of which those of later chains lie closer together."""
    rvs = [rv for rv in model.free_RVs if rv.name[0] not in "ZA"]
    values = pm.draw(rvs, draws=chains * draws, random_seed=1, mode="AS_WRITTEN")
    by_chain = np.arange(1, chains + 1).repeat(draws)
    values = {
        rv.name: (spread * v / by_chain.reshape(-1, *[1] * (v.ndim - 1))).reshape(chains, draws, *v.shape[1:])
        for rv, v in zip(rvs, values, strict=True)
    }
    return _compat.inference_data({"posterior": _compat.dataset(model, values, 0)} | _compat.data_groups(model))


def of_chain(idata, c):
    return _compat.inference_data({"posterior": _compat.dataset_of(idata, "posterior").isel(chain=[c])})


@pytest.mark.parametrize("at_once", [new_rows.AT_ONCE, 40])
def test_moments_are_those_of_the_mixture_of_chains(at_once, monkeypatch):
    monkeypatch.setattr(new_rows, "AT_ONCE", at_once)
    model, idata = classical()
    found = pmg.predict(idata, model, X[:5], weights=WEIGHTS, random_seed=1)
    parts = [pmg.predict(of_chain(idata, c), model, X[:5], random_seed=1) for c in range(CHAINS)]
    mean = sum(w * part["mean"] for w, part in zip(WEIGHTS, parts, strict=True))
    between = sum(w * (part["mean"] - mean) ** 2 for w, part in zip(WEIGHTS, parts, strict=True))
    np.testing.assert_allclose(found["mean"], mean, atol=1e-12)
    for kind, more in (("sd", between), ("sd_epistemic", between), ("sd_aleatoric", 0)):
        variance = sum(w * part[kind] ** 2 for w, part in zip(WEIGHTS, parts, strict=True)) + more
        np.testing.assert_allclose(found[kind] ** 2, variance, rtol=1e-6)


@pytest.mark.parametrize("at_once", [new_rows.AT_ONCE, 40])
def test_quantiles_are_those_of_weighted_draws(at_once, monkeypatch):
    monkeypatch.setattr(new_rows, "AT_ONCE", at_once)
    model, idata = classical()
    levels = (0, 0.3113, 1)
    found = pmg.predict(idata, model, X[:3], weights=WEIGHTS, quantiles=levels, samples=True, random_seed=1)
    for i, y in enumerate(found["samples"].values.reshape(-1, 3).T):
        by_draw, order = WEIGHTS.repeat(DRAWS) / DRAWS, y.argsort()
        first = int(np.flatnonzero(by_draw[order].cumsum() >= levels[1])[0])
        np.testing.assert_array_equal(found["quantiles"][:, i], y[order][[0, first, -1]])


def test_chains_of_weight_0_are_left_out():
    model, idata = classical()
    ask = {"random_seed": 1, "samples": True}
    found = pmg.predict(idata, model, X[:3], weights=[1 - 1e-9, 1e-9, 0], **ask)
    xr.testing.assert_identical(found, pmg.predict(of_chain(idata, 0), model, X[:3], **ask))


def test_infinite_variances_of_chains_of_weight_0_do_not_count():
    with pm.Model() as model:
        x = pm.Data("X", X[:, :1])
        pm.StudentT("y", pm.Gamma("nu", 2, 1), mu=x @ pm.Normal("W", 0, 1, shape=1), sigma=0.3, observed=Y)
    nu = np.array([1.5, 5.0])[:, None] * np.ones(20)
    values = {"nu": nu, "W": np.random.default_rng(1).normal(size=(2, 20, 1))}
    idata = _compat.inference_data({"posterior": _compat.dataset(model, values, 0)})
    assert np.isfinite(pmg.predict(idata, model, weights=[0, 1], random_seed=1)["sd"]).all()
    assert np.isinf(pmg.predict(idata, model, weights=[0.1, 0.9], random_seed=1)["sd"]).all()


def test_probabilities_of_classes_are_averaged_over_weighted_chains():
    model, idata = classical(labels=True)
    found = pmg.predict(idata, model, X[:5], weights=WEIGHTS, random_seed=1)
    by_chain = pmg.class_probabilities(idata, model, X[:5], random_seed=1).values
    np.testing.assert_allclose(found["probability"], np.tensordot(WEIGHTS, by_chain, 1))
    parts = [pmg.predict(of_chain(idata, c), model, X[:5], random_seed=1) for c in range(CHAINS)]
    expected = sum(w * part["expected_entropy"] for w, part in zip(WEIGHTS, parts, strict=True))
    np.testing.assert_allclose(found["expected_entropy"], expected)


@pytest.mark.parametrize("labels", [False, True])
def test_latents_that_are_drawn_twice_have_the_weights_of_their_chains(labels):
    """A chain that counts three times as much as the other one is as good as three copies of it."""
    y = (Y > 0).astype(int) if labels else Y
    noise = [0.5] * 4 + [1.0 if labels else 0.05]
    model = pmg.mlp(X, y, [2, 2], likelihood="probit" if labels else "normal", noise=noise, prior=None)
    idata = prior_draws(model, chains=2, draws=2000)
    posterior = _compat.dataset_of(idata, "posterior")
    posterior = xr.concat([posterior.isel(chain=[0]), 0.1 * posterior.isel(chain=[1])], "chain")
    copies = posterior.isel(chain=[0, 0, 0, 1]).assign_coords(chain=np.arange(4))
    weighted, expected = (
        pmg.predict(_compat.inference_data({"posterior": x}), model, X[:8], weights=w, random_seed=1)
        for x, w in ((posterior, [0.75, 0.25]), (copies, None))
    )
    for name in ("expected_entropy",) if labels else ("sd_epistemic", "sd_aleatoric"):
        np.testing.assert_allclose(weighted[name].mean(), expected[name].mean(), rtol=0.03)


@pytest.mark.parametrize("hidden", [2, [2, 2]])
def test_equal_weights_are_the_default(hidden):
    model = pmg.mlp(X, Y, hidden, noise=0.5, prior=None)
    idata, equal = prior_draws(model), np.full(CHAINS, 1 / CHAINS)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "sd_epistemic is 0")
        found, expected = (pmg.predict(idata, model, X[:4], weights=w, random_seed=1) for w in (equal, None))
    xr.testing.assert_allclose(found, expected)


def test_log_densities_are_those_of_the_mixture_of_chains():
    model, idata = classical()
    found = pmg.log_predictive(idata, model, X[:5], Y[:5], weights=WEIGHTS)
    by_chain = logsumexp(found["log_likelihood"].values, axis=1) - np.log(DRAWS)
    np.testing.assert_allclose(found["log_density"], logsumexp(by_chain, axis=0, b=WEIGHTS[:, None]))
    parts = [pmg.log_predictive(of_chain(idata, c), model, X[:5], Y[:5]) for c in range(CHAINS)]
    shares = [w * np.exp(part["log_density"] - found["log_density"]) for w, part in zip(WEIGHTS, parts, strict=True)]
    squares = sum((share * part["mcse"]) ** 2 for share, part in zip(shares, parts, strict=True))
    np.testing.assert_allclose(found["mcse"], np.sqrt(squares), rtol=1e-6)


def lines():
    """A line through 0, and draws of three chains near three slopes, of which data agree with two."""
    rng = np.random.default_rng(3)
    y = np.where(np.arange(30) < 20, 1.0, -1.0) * X[:, 0] + 0.3 * rng.normal(size=30)
    with pm.Model() as model:
        x = pm.Data("X", X[:, :1])
        W = pm.Normal("W", 0, 1, shape=1)
        pm.Normal("y", x @ W, 0.3, observed=y)
    slopes = np.array([1.0, -1.0, 0.0])[:, None, None] + 0.02 * rng.normal(size=(3, 400, 1))
    data = _compat.data_groups(model)
    return model, _compat.inference_data({"posterior": _compat.dataset(model, {"W": slopes}, 0)} | data)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_stacking_weights_are_where_the_leave_one_out_density_is_highest():
    model, idata = lines()
    weights = pmg.stacking_weights(idata, model)
    assert weights.dims == ("chain",)
    assert "log_likelihood" not in idata
    np.testing.assert_allclose(weights.sum(), 1)
    assert weights[0] > weights[1] > 0.1
    likelihood = pmg.log_predictive(idata, model, extend_inferencedata=False)["log_likelihood"]
    left_out = []
    for c in range(3):
        y = likelihood.isel(chain=[c]).drop_vars("chain").to_dataset(name="y")
        one = az.loo(_compat.inference_data({"posterior": y.mean("point"), "log_likelihood": y}), pointwise=True)
        left_out.append(np.asarray(one.elpd_i if _compat.ARVIZ_1 else one.loo_i))
    p = np.exp(left_out)
    slope = (p / (weights.values @ p)).mean(axis=1)  # 1 at the maximum, or less where a weight is 0
    np.testing.assert_allclose(slope[weights > 0.01], 1, atol=0.02)
    assert (slope < 1.02).all()


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_a_row_that_no_chain_explains_leaves_the_weights_of_the_others():
    """Its density is 0 in double precision."""
    with pm.Model() as model:
        x = pm.Data("X", np.r_[X[:, :1], [[1.0]]])
        pm.Normal("y", x @ pm.Normal("W", 0, 1, shape=1), 0.05, observed=np.r_[Y, 9.0])
    slopes = np.array([0.0, 0.3, 1.0])[:, None, None] + 0.001 * np.random.default_rng(3).normal(size=(3, 100, 1))
    groups = {"posterior": _compat.dataset(model, {"W": slopes}, 0)} | _compat.data_groups(model)
    weights = pmg.stacking_weights(_compat.inference_data(groups), model)
    np.testing.assert_allclose(weights, [0, 0, 1], atol=1e-3)


def test_a_single_chain_has_the_weight_1():
    model, idata = lines()
    one = _compat.inference_data({"posterior": _compat.dataset_of(idata, "posterior").isel(chain=[1])})
    weights = pmg.stacking_weights(one, model)
    assert weights.values == [1]
    assert weights["chain"] == [1]


def test_the_summary_averages_by_weights():
    model, idata = classical()
    found = pmg.summary(idata, model, weights=[0, 1, 0])
    alone = pmg.summary(of_chain(idata, 1), model)
    np.testing.assert_allclose(found["mean"], alone["mean"])
    np.testing.assert_allclose(found["sd"], alone["sd"])
    pooled = pmg.summary(idata, model)
    np.testing.assert_allclose(pmg.summary(idata, model, weights=[1 / 3] * 3)["sd"], pooled["sd"])
    assert list(found["r_hat"]) == list(pooled["r_hat"])
    posterior = _compat.dataset_of(idata, "posterior").copy(deep=True)
    posterior["W1"][2, 5] = np.nan
    broken = pmg.summary(_compat.inference_data({"posterior": posterior}), model, weights=[0, 1, 0])
    assert broken.loc["output", "mean"] == pytest.approx(alone.loc["output", "mean"])


def test_weights_are_aligned_by_the_numbers_of_chains():
    model, idata = classical()
    turned = xr.DataArray(WEIGHTS[::-1], {"chain": np.arange(CHAINS)[::-1]})
    found, expected = (pmg.predict(idata, model, X[:2], weights=w, random_seed=1) for w in (turned, WEIGHTS))
    xr.testing.assert_identical(found, expected)
    with pytest.raises(ValueError, match=r"weights must be of chains \[0, 1, 2\]; found \[5, 6, 7\]"):
        pmg.predict(idata, model, weights=turned.assign_coords(chain=[5, 6, 7]))


@pytest.mark.parametrize(
    "wrong",
    [
        [0.5, 0.5],
        [0.6, 0.6, -0.2],
        [np.nan, 0.5, 0.5],
        [1, 1, 1],
        [0.3, 0.3, 0.3],
        "stacking",
        1.0,
        pd.Series(WEIGHTS),
        xr.DataArray(WEIGHTS, dims="draw"),
    ],
)
def test_wrong_weights_are_refused(wrong):
    model, idata = classical()
    asks = (pmg.predict, pmg.summary, lambda *a, **b: pmg.log_predictive(*a, X, Y, **b))
    for ask in asks:
        with pytest.raises(
            ValueError, match="weights must be 3 numbers, one for each chain in their order, that are not"
        ):
            ask(idata, model, weights=wrong)


def test_weights_may_have_been_printed_with_two_digits():
    model, idata = classical()
    found, expected = (pmg.predict(idata, model, X[:2], weights=w, random_seed=1) for w in ([0.33] * 3, None))
    xr.testing.assert_allclose(found, expected)

"""Inputs whose rows are drawn from a mixture: how it is read, its conditionals, the sweep, and predictions."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import stats

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import MODES, MOSTLY_PYTHON, QUIET, slow, slow_but
from tests.moves.test_random_inputs import (
    FAST,
    HOLES,
    NEW,
    D,
    N,
    Y,
    learned_error,
    measured,
    missing,
    move_of_inputs,
)
from tests.samplers.test_gibbs import NUMBA, check_geweke

pytestmark = pytest.mark.filterwarnings("ignore:Data in .* contains missing values")

K = 3
RNG = np.random.default_rng(0)
MEANS, DEVIATIONS = RNG.normal(size=(K, D)), np.exp(0.3 * RNG.normal(size=(K, D)))
ALPHA = np.array([0.4, 1.0, 2.5])


def components(rows=N, weights=None):
    weights = pm.Dirichlet("pi", ALPHA) if weights is None else weights
    return pm.Categorical("c", weights, shape=rows)


def learned(rows=N, columns=D):
    """A mixture with conjugate priors of all that it has."""
    c = components(rows)
    mean = pm.Normal("mu", 0.2, 1.5, shape=(K, columns))
    return mean[c], pt.sqrt(pm.InverseGamma("tau2", 5, 4, shape=(K, columns)))[c]


def known(rows=N):
    c = components(rows, np.array([0.2, 0.5, 0.3]))
    return pt.as_tensor(MEANS)[c], pt.as_tensor(DEVIATIONS)[c]


# How it is read


@pytest.mark.parametrize(
    ("prior", "names"),
    [
        (learned, ["mu", "tau2_log__", "pi_simplex__"]),
        (known, []),
        (
            lambda: (
                pm.Normal("mu", 0, 1, shape=(K, D))[c := components(weights=np.array([0.2, 0.5, 0.3]))],
                pt.sqrt(pm.InverseGamma("tau2", 3, 1, shape=K)[c])[:, None],
            ),
            ["mu", "tau2_log__"],
        ),
        slow(
            lambda: (
                pm.Normal("mu", 0, 1, shape=K)[components(), None],
                np.array([1.0, 2, 3]) / pt.sqrt(pm.Gamma("t", 3, 1)),
            ),
            ["mu", "t_log__", "pi_simplex__"],
        ),
        slow(
            lambda: (0.3, 2 * pt.sqrt(pm.InverseGamma("v", 3, 1, shape=(K, D)))[components()]),
            ["v_log__", "pi_simplex__"],
        ),
        # m is for other steps
        slow(lambda: (2 * pm.Normal("m", shape=(K, 1))[components()] + 1, 1.0), ["pi_simplex__"]),
    ],
)
def test_which_variables_are_drawn(prior, names):
    for model in (missing(prior=prior), measured(prior=prior)):
        inputs = read_network(model).random_inputs
        assert [v.name for v in inputs.of_columns] == names
        assert inputs.of_rows[1].name == "c"
        step, point = pmg.GibbsNN(model=model, **FAST), model.initial_point()
        for _ in range(3):
            point, [found] = step.step(point)
        drawn = [rv for rv in model.basic_RVs if model.rvs_to_values[rv] in step.vars or rv in model.observed_RVs]
        logp = model.compile_logp(drawn, mode="AS_WRITTEN")
        np.testing.assert_allclose(found["lp"], logp(point), rtol=1e-6)


def test_weights_without_a_transform():
    def prior():
        c = components(weights=pm.Dirichlet("pi", ALPHA, transform=None, default_transform=None))
        return pt.as_tensor(MEANS)[c], 1.0

    model = missing(prior=prior)
    step, point = pmg.GibbsNN(model=model, **FAST), model.initial_point()
    for _ in range(3):
        point, [found] = step.step(point)
    np.testing.assert_allclose(point["pi"].sum(), 1)
    np.testing.assert_allclose(found["lp"], model.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-6)


def reversed_rows():
    return pt.as_tensor(MEANS)[components()[::-1]], 1.0


def columns_left_out():
    return pt.as_tensor(np.c_[MEANS, MEANS])[components(), D:], 1.0


def two_mixtures():
    return pt.as_tensor(MEANS)[components()], pt.as_tensor(DEVIATIONS)[pm.Categorical("d", np.ones(K) / K, shape=N)]


def used_elsewhere():
    c = components()
    pm.Normal("other", pt.as_tensor(MEANS)[c, 0], 1, observed=np.zeros(N))
    return pt.as_tensor(MEANS)[c], 1.0


def in_a_potential():
    c = components()
    pm.Potential("tilt", -c.sum())
    return pt.as_tensor(MEANS)[c], 1.0


def one_for_all_rows():
    c = pm.Categorical("c", np.array([0.2, 0.5, 0.3]), shape=1)
    return pm.Normal("mu", 0, 1, shape=(K, D))[c], pt.sqrt(pm.InverseGamma("tau2", 5, 4, shape=(K, D)))[c]


@pytest.mark.parametrize(
    "prior", [reversed_rows, columns_left_out, two_mixtures, used_elsewhere, in_a_potential, one_for_all_rows]
)
def test_other_forms_are_left_to_other_steps(prior):
    model = missing(prior=prior)
    inputs = read_network(model).random_inputs
    assert inputs.mixture is None
    assert not inputs.learned
    assert "c" not in {v.name for v in pmg.GibbsNN(model=model, **FAST).vars}


def test_what_is_learned_moves_with_its_components():
    """A step that is not to move the components leaves their means and variances to others, too."""
    model = missing(prior=learned)
    of_rows = [rv for rv in model.free_RVs if rv.name not in ("c", "pi", "mu", "tau2")]
    step = pmg.GibbsNN(of_rows, model=model, **FAST)
    assert {v.name for v in step.vars} == {rv.name for rv in of_rows}
    with pytest.raises(pmg.NetworkError, match=r"vars must name .*; not of the network \['mu', 'tau2_log__'\]"):
        pmg.GibbsNN([*of_rows, model["mu"], model["tau2"]], model=model)


@pytest.mark.parametrize(
    "prior",
    [
        lambda: ((m := pm.Normal("m", shape=(K, D)))[c := components()], pt.exp(m)[c]),
        lambda: ((v := pm.InverseGamma("v", 5, 4, shape=(K, D)))[c := components()], pt.sqrt(v)[c]),
    ],
    ids=["mean", "variance"],
)
def test_means_that_are_also_scales_have_no_closed_form(prior):
    names = [v.name for v in read_network(missing(prior=prior)).random_inputs.of_columns]
    assert names == ["pi_simplex__"]


def test_a_component_that_is_impossible_adds_nothing_to_the_density():
    weights = np.tile([1.0, 0.0, 0.0], (N, 1))
    weights[1:] = [0.2, 0.5, 0.3]
    model = missing(prior=lambda: (pt.as_tensor(MEANS)[c := components(weights=weights)], pt.as_tensor(DEVIATIONS)[c]))
    step, point = pmg.GibbsNN(model=model, **FAST), model.initial_point()
    for _ in range(3):
        point, [found] = step.step(point)
        assert point["c"][0] == 0
    np.testing.assert_allclose(found["lp"], model.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-6)


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
def test_standardised_inputs_in_each_mode(mode):
    model = pmg.mlp(HOLES, Y, 2, standardise=True)
    step, point = pmg.GibbsNN(model=model, compile_kwargs={"mode": mode}), model.initial_point()
    for _ in range(3):
        point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], model.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-6)


def test_as_many_means_as_weights():
    def prior():
        return pt.as_tensor(MEANS)[components(weights=np.array([0.4, 0.6]))], 1.0

    with pytest.raises(pmg.NetworkError, match="'c' has the probabilities of 2 components, but 'X' has the means of 3"):
        pmg.GibbsNN(model=missing(prior=prior))


# Oracle 1: the conditionals


@pytest.mark.parametrize(("place", "mode"), slow_but({("far", "JAX")}, product(("near 0", "far"), MODES)))
def test_components_against_enumeration(place, mode):
    """Many rows with the same two inputs, of which the first lacks an entry that has a value."""
    copies, columns = 20_000, np.array([1e4, -3e5, 20.0]) if place == "far" else np.zeros(3)
    x = np.tile(np.array([[0.3, np.nan, 0.5], [-0.2, 0.4, 1.1]]) + columns, (copies, 1))
    weights = np.array([0.2, 0.5, 0.3])

    def prior():
        c = components(2 * copies, weights)
        return pt.as_tensor(MEANS + columns)[c], pt.as_tensor(DEVIATIONS)[c]

    model = missing(x, prior=prior, y=np.zeros(2 * copies))
    values = model.initial_point() | {"X_unobserved": np.full(copies, 0.7) + columns[1]}
    _, c = move_of_inputs(model, values, mode)()
    for i, row in enumerate(np.array([[0.3, 0.7, 0.5], [-0.2, 0.4, 1.1]])):
        exact = weights * stats.norm.pdf(row, MEANS, DEVIATIONS).prod(axis=1)
        found = np.bincount(c[i::2], minlength=K)
        assert stats.chisquare(found, copies * exact / exact.sum()).pvalue > 1e-3


@pytest.mark.parametrize(("kind", "mode"), slow_but({(missing, "NUMBA")}, product((missing, measured), MODES)))
def test_weights_means_and_variances_against_their_closed_form(kind, mode):
    """Given the old components: π, then μ given the old τ², then τ² given this μ."""
    draws = 1500 if mode != "JAX" else 500
    model = kind(prior=learned)
    values = model.initial_point() | {"tau2_log__": RNG.normal(size=(K, D)), "mu": MEANS, "c": np.arange(N) % K}
    name = read_network(model).random_inputs.value.name
    values[name] = np.random.default_rng(3).normal(size=values[name].shape)
    x = values[name] if kind is measured else HOLES.copy()
    if kind is missing:
        x[np.isnan(x)] = values[name]
    move = move_of_inputs(model, values, mode)
    _, _, mu, tau2, pi = (np.stack(found) for found in zip(*(move() for _ in range(draws)), strict=True))
    indicators = np.tile(values["c"][:, None] == np.arange(K), (draws, 1, 1)).astype(float)
    counts, variances = indicators.sum(axis=1), np.exp(values["tau2_log__"])
    sums = np.einsum("snk,nd->skd", indicators, x)
    precision = 1 / 1.5**2 + counts[..., None] / variances
    u = stats.norm.cdf((mu - (0.2 / 1.5**2 + sums / variances) / precision) * np.sqrt(precision))
    squares = (indicators[..., None] * (x[:, None] - mu[:, None]) ** 2).sum(axis=1)
    v = stats.invgamma.cdf(np.exp(tau2), 5 + counts[..., None] / 2, scale=4 + squares / 2)
    for numbers in (u, v):
        assert stats.kstest(numbers.ravel(), "uniform").pvalue > 1e-3
    pi = np.exp(np.concatenate([pi, -pi.sum(axis=1, keepdims=True)], axis=1))
    pi /= pi.sum(axis=1, keepdims=True)
    alpha = ALPHA + counts
    w = stats.beta.cdf(pi, alpha, alpha.sum(axis=1, keepdims=True) - alpha)
    for k in range(K):
        assert stats.kstest(w[:, k], "uniform").pvalue > 1e-3


# Oracle 2: the sweep as a whole


@pytest.mark.slow
@pytest.mark.parametrize("interweave", [False, "auto"])
def test_geweke(interweave):
    """Nothing is known of the inputs, so that all they have is drawn from the prior."""

    def prior():
        c = pm.Categorical("c", pm.Dirichlet("pi", np.array([2.0, 3.0])), shape=5)
        mean = pm.Normal("mu", [[-0.5], [0.6]], 0.4, shape=(2, 2))
        return mean[c], pt.sqrt(pm.InverseGamma("tau2", 12, 4, shape=(2, 2)))[c]

    model = missing(np.full((5, 2), np.nan), prior=prior, y=Y[:5], noise=1.0)
    check_geweke(model, 8000, interweave=interweave, **NUMBA)


# Predictions


def posterior(draws, **further):
    """Draws around values of what is learned; of ``further`` variables around those that are given."""
    rng = np.random.default_rng(0)

    def around(center, scale=0.1):
        return center + scale * rng.normal(size=(2, draws, *np.shape(center)))

    weights = np.exp(around(np.log([0.2, 0.5, 0.3])))
    arrays = {
        "pi": weights / weights.sum(axis=-1, keepdims=True),
        "mu": around(2 * MEANS),
        "tau2": np.exp(around(2 * np.log(DEVIATIONS) - 1)),
        "error2": np.exp(around(-2.0)),
        "W1": around(rng.normal(size=(2, D))),
        "b1": around(rng.normal(size=2)),
        "W2": around(rng.normal(size=2)),
    } | {name: around(center) for name, center in further.items()}
    return {
        "posterior": xr.Dataset(
            {name: (("chain", "draw", *(f"{name}_{i}" for i in range(x.ndim - 2))), x) for name, x in arrays.items()}
        )
    }


def brute_force(posterior, x_new, error, copies, noise=0.5):
    """Draws of the mean of y and of y at new rows, given each draw of the posterior: (draw, copy, row)."""
    rng, means, ys = np.random.default_rng(1), [], []
    p = {name: x.values.reshape(-1, *x.shape[2:]) for name, x in posterior.items()}
    for s in range(len(p["pi"])):
        error2 = 0.0 if error is None else np.broadcast_to(error(p["error2"][s]) ** 2, x_new.shape[1:])
        sd = np.sqrt(p["tau2"][s] + error2)
        logs = np.where(np.isnan(x_new)[:, None], 0, stats.norm.logpdf(np.nan_to_num(x_new)[:, None], p["mu"][s], sd))
        shares = p["pi"][s] * np.exp(logs.sum(axis=-1))
        c = np.stack([rng.choice(K, size=copies, p=share / share.sum()) for share in shares], axis=1)
        mean, variance = p["mu"][s][c], p["tau2"][s][c]
        if error is None:
            x = np.where(np.isnan(x_new), mean + np.sqrt(variance) * rng.normal(size=mean.shape), x_new)
        else:
            certainty = np.where(np.isnan(x_new), 0, 1 / error2)
            precision = 1 / variance + certainty
            centre = (mean / variance + certainty * np.nan_to_num(x_new)) / precision
            x = centre + rng.normal(size=centre.shape) / np.sqrt(precision)
        mean, y = through_network(rng, x, {name: values[s] for name, values in p.items()}, noise)
        means.append(mean)
        ys.append(y)
    return np.stack(means), np.stack(ys)


def through_network(rng, x, p, noise):
    """Draw the mean of y and y given inputs and parameters."""
    z = x @ p["W1"].T + p["b1"]
    a = np.maximum(z + noise * rng.normal(size=z.shape), 0) + noise * rng.normal(size=z.shape)
    mean = a @ p["W2"]
    return mean, mean + noise * rng.normal(size=mean.shape)


def check_predictions(model, idata, mean, y):
    """Compare predictions at new rows with draws of the mean of y and of y there, (draw, copy, row)."""
    found = pmg.predict(idata, model, NEW, samples=True, random_seed=1)
    for i in range(len(NEW)):
        own = found["samples"].values.reshape(600, -1)[:, i]
        assert abs(found["mean"].values[i] - mean[..., i].mean()) < 5 * own.std() / 600**0.5
        assert abs(own.std() / y[..., i].std() - 1) < 0.15
    y_new = np.array([0.3, -0.4, 1.0])
    density = stats.norm.pdf(y_new, mean, 0.5).mean((0, 1))
    scores = pmg.log_predictive(idata, model, NEW, y_new, latent_draws=60, random_seed=1)
    np.testing.assert_allclose(np.exp(scores["log_density"]), density, rtol=0.04)


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (missing, None),
        slow(lambda prior: measured(np.array([1.5, 0.2, 2.0]), prior=prior), lambda e: np.array([1.5, 0.2, 2.0])),
        (lambda prior: measured(learned_error(), prior=prior), lambda e: 2 * np.sqrt(e)),
    ],
    ids=["missing", "measured", "a learned error"],
)
def test_predictions_against_brute_force(build, error):
    idata = posterior(300)
    check_predictions(build(prior=learned), idata, *brute_force(idata["posterior"], NEW, error, 300))


@pytest.mark.slow
def test_known_entries_tell_of_those_that_are_missing():
    """Two clusters far apart: one entry of a row says in which it is, and so what the others are about."""
    rng = np.random.default_rng(2)
    cluster = rng.integers(2, size=200)
    x = np.array([[-2.0, -2.0], [2.0, 2.0]])[cluster] + 0.2 * rng.normal(size=(200, 2))
    y = np.where(cluster, 1.0, -1.0) + 0.1 * rng.normal(size=200)
    truth, x[rng.random(200) < 0.3, 0] = x[:, 0].copy(), np.nan
    with pmg.mlp(x, y, 3, standardise=True) as model:
        names = [*pmg.without_latents(), "X_unobserved"]
        step = pmg.GibbsNN(sweeps_per_draw=1, **FAST)
        idata = pm.sample(100, tune=100, chains=1, cores=1, step=step, var_names=names, random_seed=1, **QUIET)
    drawn = idata["posterior"]["X_unobserved"].values[0]
    assert (abs(drawn - truth[np.isnan(x[:, 0])]) < 1).mean() > 0.95
    found = pmg.predict(idata, model, [[np.nan, 2.0], [np.nan, -2.0], [np.nan, np.nan]], random_seed=1)
    assert abs(found["mean"].values[:2] - [1, -1]).max() < 0.3
    assert found["sd"].values[2] > 0.7

"""Inputs that are missing or measured with error: how they are read, their conditionals, and the sweep."""

from itertools import product

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import stats
from scipy.special import softmax

import pymc_gibbsnn as pmg
from pymc_gibbsnn.moves.random_inputs import random_inputs
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks import network as networks_module
from pymc_gibbsnn.networks.reader import read_network, read_networks
from pymc_gibbsnn.starts.fitted_start import can_be_fitted, fitted_start
from tests.helpers import (
    MODES,
    MOSTLY_PYTHON,
    QUIET,
    check_mean,
    check_moments,
    check_same_distribution,
    compile_draw,
    of_known_lengths,
    slow,
    slow_but,
    value,
)
from tests.samplers.test_gibbs import NUMBA, check_geweke

pytestmark = pytest.mark.filterwarnings("ignore:Data in .* contains missing values")

N, D = 8, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
HOLES = np.where(RNG.random((N, D)) < 0.3, np.nan, X)
Y = np.maximum(X[:, 0], 0) - X[:, 1] + 0.2 * RNG.normal(size=N)
FAST = {"compile_kwargs": {"mode": "AS_WRITTEN"}}


def noisy_network(x, y=Y, units=2, scale=1.0, noise=0.5, mean=None, deviation=1.0, noise_units=None, heavy_tails=False):
    """A network with a hidden layer on inputs x, perhaps standardised, whose noise another one may set."""
    if mean is not None:
        x = (x - pm.Data("X_mean", mean)) / pm.Data("X_scale", deviation)
    if noise_units is not None:
        scale = pmg.row_scale(network_of_noise(x, noise_units), slope=0.7, floor=0.1)
    sigma, scale = noise * scale, scale[:, None] if np.ndim(scale) else scale
    W1, b1 = pm.Normal("W1", 0, 1, shape=(units, x.type.shape[1] or D)), pm.Normal("b1", 0, 1, shape=units)
    A2 = pm.Normal("A2", pt.maximum(pm.Normal("Z2", x @ W1.T + b1, noise * scale), 0), noise * scale)
    mean, data = A2 @ pm.Normal("W2", 0, 1, shape=units), pm.Data("y_data", y)
    if heavy_tails:
        pm.StudentT("y", np.float64(5), pm.Normal("Z3", mean, 0.8 * sigma), sigma=sigma, observed=data)
    else:
        pm.Normal("y", mean, sigma, observed=data)


def network_of_noise(x, units):
    """A network of one output, linear or with a hidden layer."""
    d = x.type.shape[1] or D
    if units:
        Z = pm.Normal("Z2_noise", x @ pm.Normal("V1", 0, 1, shape=(units, d)).T, 0.8)
        x, d = pm.Normal("A2_noise", pt.maximum(Z, 0), 0.6), units
    return pm.Normal("G", x @ pm.Normal("V", 0, 1, shape=d), 0.7)


def learned(columns=D):
    """Means and standard deviations of columns with conjugate priors."""
    return pm.Normal("mu", 0.2, 1.5, shape=columns), pt.sqrt(pm.InverseGamma("tau2", 5, 4, shape=columns))


def missing(x=HOLES, prior=learned, network=noisy_network, **arguments):
    with pm.Model() as model:
        network(pm.Normal("X", *prior(), observed=x), **arguments)
    return model


def measured(error=0.4, prior=learned, network=noisy_network, x=X, **arguments):
    with pm.Model() as model:
        true = pm.Normal("x", *prior(), shape=x.shape)
        pm.Normal("x_measured", true, error() if callable(error) else error, observed=pm.Data("X", x))
        network(true, **arguments)
    return model


def learned_error(shape=None):
    return lambda: 2 * pt.sqrt(pm.InverseGamma("error2", 6, 1, shape=shape))


# How they are read


def test_missing_entries_are_variables_of_the_network():
    model = missing()
    network = read_network(model)
    names = [v.name for v in network.random_inputs.variables]
    assert names == ["X_unobserved", "mu", "tau2_log__"]
    assert {"X_unobserved", "mu", "tau2_log__"} < {v.name for v in network.variables}
    assert pmg.without_latents(model) == ["mu", "tau2", "W1", "b1", "W2"]
    means = np.nanmean(HOLES, axis=0)
    np.testing.assert_allclose(network.data(), np.where(np.isnan(HOLES), means, HOLES))
    x = pytensor.function([network.random_inputs.value], network.inputs, mode="AS_WRITTEN", on_unused_input="ignore")(
        X[np.isnan(HOLES)]
    )
    np.testing.assert_allclose(x, X)


@pytest.mark.parametrize("x", [np.ma.masked_invalid(HOLES), np.full((N, D), np.nan)], ids=["masked", "all"])
def test_masked_arrays_and_columns_without_any_value(x):
    model = missing(x)
    assert read_network(model).random_inputs.value.name == "X_unobserved"
    step, point = pmg.GibbsNN(model=model, **FAST), model.initial_point()
    for _ in range(2):
        point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], model.compile_logp(mode="AS_WRITTEN")(point))


@pytest.mark.parametrize(
    ("prior", "names"),
    [
        (lambda: (0.3, 1.2), []),
        slow(lambda: (np.arange(3.0), np.array([1, 2, 3])), []),
        (lambda: (X, np.exp(X)), []),
        slow(lambda: (pm.Normal("m"), pt.sqrt(pm.InverseGamma("v", 3, 1))), ["m", "v_log__"]),
        (
            lambda: (pm.Normal("m", shape=(1, 3)), np.array([1.0, 2, 3]) / pt.sqrt(pm.Gamma("t", 3, 1))),
            ["m", "t_log__"],
        ),
        (lambda: (2 * pm.Normal("m"), pm.HalfNormal("s")), []),  # these are for other steps
        (lambda: (np.arange(N)[:, None] * (v := pm.InverseGamma("v", 3, 1)), pt.sqrt(v)), []),
        slow(lambda: (pm.Normal("m", shape=(N, D)), pt.sqrt(pm.InverseGamma("v", 3, 1, shape=(N, D)))), []),
        slow(lambda: (pm.Normal("m", pm.Normal("m0"), 1), 1), ["m"]),
    ],
)
def test_which_means_and_variances_are_drawn(prior, names):
    for model in (missing(prior=prior), measured(prior=prior)):
        network = read_network(model)
        assert [v.name for v in network.random_inputs.variables[1:]] == names
        step, point = pmg.GibbsNN(model=model, **FAST), model.initial_point()
        for _ in range(2):
            point, [found] = step.step(point)
        drawn = [
            rv for rv in model.basic_RVs if model.rvs_to_values[rv] in network.variables or rv in model.observed_RVs
        ]
        logp = model.compile_logp(drawn, mode="AS_WRITTEN")
        np.testing.assert_allclose(found["lp"], logp(point), rtol=1e-6)


@pytest.mark.parametrize("error", [0.3, np.array([0.1, 0.2, 0.3]), np.exp(X), learned_error(), learned_error(D)])
def test_measurements(error):
    model = measured(error)
    names = [v.name for v in read_network(model).random_inputs.variables]
    assert names == ["x", "mu", "tau2_log__"] + ["error2_log__"] * callable(error)
    step, point = pmg.GibbsNN(model=model, **FAST), model.initial_point()
    for _ in range(3):
        point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], model.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-6)


def another_network(x):
    noisy_network(x)
    pm.Normal("u", x @ pm.Normal("V", 0, 1, shape=D), 0.5, observed=Y)


def two_products(x):
    Z = x @ pm.Normal("W1", 0, 1, shape=(D, 1)) + x @ pm.Normal("V", 0, 1, shape=(D, 1))
    pm.Normal("y", Z, 0.5, observed=Y[:, None])


def in_the_noise(x):
    noisy_network(x, scale=pt.exp(x[:, 0]))


def changed(x):
    noisy_network(pt.exp((x - 1) / 2))


def activated(x):
    A = pm.Normal("A", pt.maximum(x, 0), 0.1)
    pm.Normal("y", A @ pm.Normal("W", 0, 1, shape=D), 0.5, observed=Y)


def skipped(x):
    A2 = pm.Normal("A2", pt.maximum(pm.Normal("Z2", x @ pm.Normal("W1", 0, 1, shape=(2, D)).T, 1), 0), 1)
    pm.Normal("y", A2 @ pm.Normal("W2", 0, 1, shape=2) + x @ pm.Normal("V", 0, 1, shape=D), 0.5, observed=Y)


def linear_in_its_noise(x):
    pm.Normal("y", x @ pm.Normal("W", 0, 1, shape=D), pt.exp(x[:, 0]), observed=Y)


def standardised_in_the_offset(x):
    Z2 = pm.Normal("Z2", ((x - 1) / 2) @ pm.Normal("W1", 0, 1, shape=(2, D)).T + pm.Normal("beta") * x[:, :1], 1)
    pm.Normal("y", pm.Normal("A2", pt.maximum(Z2, 0), 1) @ pm.Normal("W2", 0, 1, shape=2), 0.5, observed=Y)


@pytest.mark.parametrize("kind", [missing, measured])
@pytest.mark.parametrize(
    ("network", "message"),
    [
        (linear_in_its_noise, r"'[xX]', inputs that are .* enters 'y' and the scale of its noise, too: let a second"),
        (standardised_in_the_offset, "enters the mean of 'Z2' twice"),
        (another_network, r"must enter '(Z2|u)' and nothing else, but \['(Z2|u)'\] depend on it"),
        (two_products, "enters the mean of 'y' twice"),
        (in_the_noise, r"must enter 'Z2' and nothing else, but \['A2', 'y'\] depend on it"),
        (skipped, r"must enter '(Z2|y)' and nothing else, but \['(Z2|y)'\] depend on it"),
        (activated, r"'[Xx]', inputs that are .* enters 'A' through"),
    ],
)
def test_what_is_refused(kind, network, message):
    with pytest.raises(pmg.NetworkError, match=message):
        pmg.GibbsNN(model=kind(network=network), **FAST)


def test_inputs_enter_as_they_are():
    with pytest.raises(pmg.NetworkError, match=r"'X', inputs that are missing .* let it enter as it is, X @ W.T, or"):
        pmg.GibbsNN(model=missing(network=changed))


def test_a_variable_that_nothing_measures_is_refused():
    with pm.Model() as model:
        noisy_network(pm.Normal("x", 0, 1, shape=(N, D)))
    with pytest.raises(pmg.NetworkError, match=r"'x' enters a layer.* be measured, pm.Normal\('x_measured'"):
        pmg.GibbsNN(model=model)


def test_errors_that_depend_on_the_inputs_are_left_to_other_steps():
    with pm.Model() as model:
        true = pm.Normal("x", 0, 1, shape=X.shape)
        pm.Normal("x_measured", true, 0.1 * abs(true) + 0.1, observed=X)
        pm.Normal("y", true @ pm.Normal("W", 0, 1, shape=D), 0.5, observed=Y)
    with pytest.raises(pmg.NetworkError, match="'x'"):
        pmg.GibbsNN(model=model)


def test_measurements_of_another_shape_are_refused():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=X.shape)
        pm.Normal("x_measured", x, 1, observed=X[:1])
        noisy_network(x)
    with pytest.raises(pmg.NetworkError, match=r"'x' has the shape \(8, 3\), but its measurement .* \(1, 3\)"):
        read_network(model)


@pytest.mark.parametrize("kind", [missing, measured])
def test_standard_deviations_must_be_positive(kind):
    with pytest.raises(pmg.NetworkError, match=r"sigma of '(X_unobserved|x)' must be positive"):
        pmg.GibbsNN(model=kind(prior=lambda: (0, np.array([1, 0, 1]))))


# Oracle 1: the conditional against a dense Gaussian, with many rows that are draws of one distribution


COPIES = 20_000
PATTERNS = np.array([[0.3, np.nan, np.nan], [np.nan, -0.7, np.nan]])
MU, TAU, ERROR = np.array([0.4, -1.0, 2.0]), np.array([0.5, 1.5, 0.8]), np.array([0.6, 0.9, 0.3])
BY_ROW = np.array([1.0, 0.4])  # the scales of rows of each pattern
STANDARDISED = {"mean": np.array([0.5, -2.0, 1.0]), "deviation": np.array([2.0, 0.7, 1.0])}
CONDITIONALS = {
    "holes": {"known": PATTERNS},
    "holes, a prior by entry": {"known": PATTERNS, "tau": TAU * np.array([[1.0], [2.0]])},
    "holes, scales of rows": {"known": PATTERNS, "scale": BY_ROW},
    "measured": {},
    "measured by entry": {"error": ERROR * np.array([[1.0], [3.0]])},
    "measured, scales of rows": {"scale": BY_ROW},
    "holes, standardised": {"known": PATTERNS} | STANDARDISED,
    "holes, standardised, scales of rows": {"known": PATTERNS, "scale": BY_ROW} | STANDARDISED,
    "measured, standardised": STANDARDISED,
    "holes, two networks": {"known": PATTERNS, "noise_units": 0},
    "holes, standardised, two networks": {"known": PATTERNS, "noise_units": 0} | STANDARDISED,
    "measured, two networks": {"noise_units": 0},
}
QUICK = {
    *(("holes", mode) for mode in MODES),
    ("holes, standardised", "AS_WRITTEN"),
    ("measured by entry", "AS_WRITTEN"),
    ("measured, scales of rows", "JAX"),
    ("holes, standardised, two networks", "AS_WRITTEN"),
    ("measured, two networks", "NUMBA"),
}


def move_of_inputs(model, values, mode, seed=0):
    """A function that moves the inputs from these values of value variables, and returns what it has drawn."""
    networks = read_networks(model)
    network, drawn = networks[0], networks[0].random_inputs.variables
    constants = {v: pt.constant(np.asarray(values[v.name], v.dtype)) for one in networks for v in one.variables}

    def read(values):
        return network.at(values).of_equal_rows()

    def build(rng):
        rng, state = random_inputs(rng, NetworkState.begin(read, constants, pt.constant(0.0)))
        return of_known_lengths([rng, *(state.values[v] for v in drawn)])

    return compile_draw(build, mode, seed)


@pytest.mark.parametrize(("name", "mode"), slow_but(QUICK, product(CONDITIONALS, MODES)))
def test_the_conditional_against_a_dense_gaussian(name, mode):
    case = {"known": None, "tau": TAU, "error": ERROR, "scale": None, "mean": None, "deviation": 1.0}
    case |= {"noise_units": None}
    case |= CONDITIONALS[name]
    which = np.tile([0, 1], COPIES)
    spread = {key: x[which] if np.ndim(x) and len(x) == 2 else x for key, x in case.items()}
    scale = 1.0 if case["scale"] is None else spread["scale"]
    rng = np.random.default_rng(1)
    w, b, z, x_measured = rng.normal(size=(4, D)), rng.normal(size=4), rng.normal(size=(2, 4)), rng.normal(size=(2, D))
    arguments = {"units": 4, "y": np.zeros(2 * COPIES), "scale": scale, "prior": lambda: (MU, spread["tau"])}
    arguments |= {key: case[key] for key in ("mean", "deviation", "noise_units")}
    if case["known"] is None:
        model = measured(spread["error"], x=x_measured[which], **arguments)
    else:
        model = missing(spread["known"], **arguments)
    v, g = rng.normal(size=(1, D)), np.array([0.4, -0.8])
    values = model.initial_point() | {"W1": w, "b1": b, "Z2": z[which], "V": v[0], "G": g[which]}
    value = move_of_inputs(model, values, mode)()
    scale, w = case["scale"], w / case["deviation"]
    if case["noise_units"] == 0:
        scale, v = np.sqrt(0.1 + np.exp(0.7 * g)), v / case["deviation"]
        g = g + (v @ case["mean"] if case["mean"] is not None else 0)
    b = b - w @ (case["mean"] if case["mean"] is not None else np.zeros(D))
    missing_ = np.ones((2, D), bool) if case["known"] is None else np.isnan(case["known"])
    x = np.full((2 * COPIES, D), np.nan)
    x[missing_[which]] = np.ravel(value)
    for i in range(2):
        m, noise = missing_[i], (0.5 * (1 if scale is None else scale[i])) ** 2
        tau, error = (np.broadcast_to(case[key], (2, D))[i] for key in ("tau", "error"))
        precision, linear = np.diag(1 / tau**2), MU / tau**2
        known = np.zeros(D)
        if case["known"] is None:
            precision, linear = precision + np.diag(1 / error**2), linear + x_measured[i] / error**2
        else:
            known = np.nan_to_num(case["known"][i])
        precision, linear = precision + w.T @ w / noise, linear + w.T @ (z[i] - b - w @ known) / noise
        if case["noise_units"] == 0:
            precision, linear = precision + v.T @ v / 0.49, linear + v.T @ (g[i] - v @ known) / 0.49
        precision, linear = precision[np.ix_(m, m)], linear[m]
        covariance = np.linalg.inv(precision)
        check_moments(x[i::2][:, m], covariance @ linear, covariance)


@pytest.mark.parametrize("kind", [missing, slow(measured)])
def test_means_and_variances_of_columns_against_their_closed_form(kind):
    """One mean of each column, and one variance, with coefficients, of the first and the last two columns."""

    def prior():
        pair = pm.InverseGamma("tau2", 3, 2, shape=2)
        return pm.Normal("mu", [0.1, -0.2, 0.3], 0.7, shape=D), np.array([1, 2, 3]) * pt.sqrt(pair[np.array([0, 1, 1])])

    model = kind(prior=prior)
    values = model.initial_point() | {"tau2_log__": np.log([0.5, 2])}
    name = read_network(model).random_inputs.value.name
    values[name] = np.random.default_rng(3).normal(size=values[name].shape)
    x = values[name] if kind is measured else HOLES.copy()
    if kind is missing:
        x[np.isnan(x)] = values[name]
    move = move_of_inputs(model, values, "AS_WRITTEN")
    _, mu, tau2 = (np.stack(draws) for draws in zip(*(move() for _ in range(2000)), strict=True))
    variance = 1 / (1 / 0.49 + N / (np.array([1, 4, 9]) * np.array([0.5, 2, 2])))
    mean = variance * (np.array([0.1, -0.2, 0.3]) / 0.49 + x.sum(0) / (np.array([1, 4, 9]) * np.array([0.5, 2, 2])))
    check_moments(mu, mean, np.diag(variance))
    squares = ((x - mu[:, None]) ** 2).sum(1) / np.array([1, 4, 9])
    for k, columns in enumerate(([0], [1, 2])):
        exact = stats.invgamma(3 + N * len(columns) / 2, scale=2 + squares[:, columns].sum(1) / 2)
        assert stats.kstest(exact.cdf(np.exp(tau2[:, k])), "uniform").pvalue > 1e-3


def test_a_learned_error_against_its_closed_form():
    model = measured(learned_error(D), prior=lambda: (0, 1))
    values = model.initial_point() | {"x": np.random.default_rng(3).normal(size=(N, D))}
    move = move_of_inputs(model, values, "AS_WRITTEN")
    error2 = np.exp([move()[1] for _ in range(2000)])
    rate = 1 + ((X - values["x"]) ** 2).sum(0) / 4 / 2
    for k in range(D):
        assert stats.kstest(error2[:, k], stats.invgamma(6 + N / 2, scale=rate[k]).cdf).pvalue > 1e-3


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
def test_where_few_rows_change_their_part_of_gram_matrices_is_replaced(mode, monkeypatch):
    """The draws are those with matrices that are formed anew in every sweep."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(40, D))
    x[[3, 17, 17, 38], [0, 1, 2, 1]] = np.nan
    model = missing(x, y=rng.normal(size=40), **STANDARDISED)
    assert value(read_network(model).changing_rows).tolist() == [38, 17, 3]

    def draws():
        step, point = pmg.GibbsNN(model=model, rng=1, compile_kwargs={"mode": mode}), model.initial_point()
        for _ in range(4):
            point, _ = step.step(point)
        return point, step.carry

    point, carry = draws()
    squares, a = carry["unit_squares_W1"], (x - STANDARDISED["mean"]) / STANDARDISED["deviation"]
    a, lasting = np.column_stack([a, np.ones(40)]), ~np.isnan(x).any(axis=1)
    of_lasting = np.einsum("hn,nd,ne->hde", squares[:, lasting], a[lasting], a[lasting])
    np.testing.assert_allclose(carry["unit_gram_W1"], of_lasting, atol=1e-10)
    np.testing.assert_allclose(carry["gram_W1"], a[lasting].T @ a[lasting], atol=1e-10)
    monkeypatch.setattr(networks_module, "FEW", 0)
    other, carry = draws()
    assert "unit_gram_W1" not in carry
    for name, x in point.items():
        np.testing.assert_allclose(other[name], x, atol=1e-7)


# Oracle 2: the sweep as a whole


@pytest.mark.slow
@pytest.mark.parametrize("interweave", [False, "pieces", "langevin"])
def test_geweke_of_missing_entries(interweave):
    """Known entries stay as they are: the prior of the others does not depend on them."""
    model = missing(HOLES[:5], prior=lambda: (MU, TAU), y=Y[:5], noise=1.0)
    check_geweke(model, 8000, interweave=interweave, **NUMBA)


def narrow():
    """Learned means and variances with which a chain that also draws the data moves fast."""
    return pm.Normal("mu", 0.2, 0.4, shape=2), pt.sqrt(pm.InverseGamma("tau2", 12, 4, shape=2))


@pytest.mark.slow
def test_geweke_of_learned_means_and_variances():
    model = missing(np.full((5, 2), np.nan), prior=narrow, y=Y[:5], noise=1.0)
    check_geweke(model, 8000, **NUMBA)


@pytest.mark.slow
def test_geweke_of_rows_with_scales():
    scale = np.array([0.5, 1, 2, 1, 0.7])
    model = missing(HOLES[:5], prior=lambda: (MU, TAU), y=Y[:5], noise=1.0, scale=scale)
    check_geweke(model, 8000, interweave=False, **NUMBA)


@pytest.mark.slow
@pytest.mark.parametrize(("interweave", "noise_units"), [(False, None), ("auto", None), ("auto", 2)])
def test_geweke_of_measured_inputs(interweave, noise_units):
    """The measurements are drawn anew in each round, as the data are."""
    model = measured(learned_error(), x=X[:5, :2], prior=narrow, y=Y[:5], noise=1.0, noise_units=noise_units)
    names = [rv.name for rv in model.free_RVs]
    values = [model.rvs_to_values[rv].name for rv in model.free_RVs]
    of_y = model.replace_rvs_by_values(model["y"].owner.op.dist_params(model["y"].owner))
    of_y = pytensor.function(model.value_vars, of_y, mode="AS_WRITTEN", on_unused_input="ignore")

    def functions(draws):
        flat = [np.reshape(x, (len(x), -1)) for x in draws]
        return np.stack([f for x in flat for f in (x.mean(1), (x**2).mean(1), x[:, 0] ** 3)], axis=1)

    *prior, y, x_measured = pm.draw([model[name] for name in [*names, "y", "x_measured"]], 4000, random_seed=3)
    prior = [np.log(x) if name.endswith("2") and name[0] in "te" else x for name, x in zip(names, prior, strict=True)]
    forward = functions([*prior, y, x_measured])
    step = pmg.GibbsNN(model=model, rng=1, interweave=interweave, **NUMBA)
    step.stop_tuning()
    point, rng, chain = {name: x[0] for name, x in zip(values, prior, strict=True)}, np.random.default_rng(5), []
    for _ in range(30_000):
        mean, sd = of_y(*(point[v.name] for v in model.value_vars))
        new_y = mean + sd * rng.normal(size=mean.shape)
        new_x = point["x"] + 2 * np.exp(point["error2_log__"] / 2) * rng.normal(size=point["x"].shape)
        model["y_data"].set_value(new_y)
        model["X"].set_value(new_x)
        point, _ = step.step(point)
        chain.append([*(point[name] for name in values), new_y, new_x])
    found = functions([np.stack(x) for x in zip(*chain, strict=True)])
    for k in range(found.shape[1]):
        check_mean(found[:, k], forward[:, k].mean(), f"function {k}", forward[:, k].std() / len(forward) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interweave", "draws", "heavy_tails"), [(False, 50_000, False), ("auto", 16_000, False), ("auto", 16_000, True)]
)
def test_geweke_of_missing_entries_of_two_networks(interweave, draws, heavy_tails):
    """A network and the one that sets its noise take the same inputs."""
    more = {"noise_units": 2, "heavy_tails": heavy_tails}
    model = missing(HOLES[:5], prior=lambda: (MU, TAU), y=Y[:5], noise=1.0, **more)
    check_geweke(model, draws, interweave=interweave, **NUMBA)


def linear(x, y=Y):
    pm.Normal("y", x @ pm.Normal("W", 0, 1, shape=D), 0.5, observed=y)


def test_a_linear_regression_with_a_missing_entry_by_quadrature():
    """Given the missing entry the posterior of the weights is known, and so is the density of y."""
    x = X.copy()
    x[2, 1] = np.nan
    model = missing(x, prior=lambda: (0.5, 0.8), network=linear)
    with model:
        idata = pm.sample(4000, tune=100, chains=2, step=pmg.GibbsNN(**NUMBA), random_seed=2, cores=1, **QUIET)
    grid = np.linspace(-5, 6, 2001)
    density = []
    for entry in grid:
        full = np.where(np.isnan(x), entry, x)
        density.append(stats.multivariate_normal.logpdf(Y, cov=0.25 * np.eye(N) + full @ full.T))
    density = np.exp(np.array(density) - max(density)) * stats.norm.pdf(grid, 0.5, 0.8)
    density /= density.sum()
    draws = idata["posterior"]["X_unobserved"].values[..., 0]
    for power in (1, 2, 3):
        check_mean(draws**power, density @ grid**power, f"entry to the power {power}")


ROWS = 12


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["missing", "measured"])
def test_against_nuts(kind):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(ROWS, 2))
    y = x[:, 0] - x[:, 1] + 0.3 * rng.normal(size=ROWS)

    def network(x):
        W1, b1 = pm.Normal("W1", 0, 1, shape=(2, 2)), pm.Normal("b1", 0, 1, shape=2)
        A2 = pm.Normal("A2", pt.tanh(pm.Normal("Z2", x @ W1.T + b1, 0.6)), 0.6)
        pm.Normal("y", A2 @ pm.Normal("W2", 0, 1, shape=2), 0.6, observed=y)

    if kind == "missing":
        x[[0, 0, 3, 7], [0, 1, 1, 0]] = np.nan
        model = missing(x, prior=lambda: learned(2), network=network)
    else:
        model = measured(learned_error(), prior=lambda: learned(2), network=network, x=x)

    def functions(posterior):
        unknown = "x" if kind == "measured" else "X_unobserved"
        f = {name: posterior[name] for name in ("mu", "tau2", unknown)}
        if kind == "measured":
            f["error2"] = posterior["error2"]
        weights = (posterior["W1"].values, posterior["b1"].values, posterior["W2"].values)
        found = {"norm": (weights[0] ** 2).sum((-1, -2)), "norm2": (weights[2] ** 2).sum(-1)}
        new = np.array([[0.5, -0.5], [1.0, 1.0]])
        hidden = np.tanh(np.einsum("kd,csjd->cskj", new, weights[0]) + weights[1][:, :, None])
        outputs = (hidden * weights[2][:, :, None]).sum(-1)
        found |= {f"f{i}": outputs[..., i] for i in range(2)}
        for name, values in f.items():
            flat = values.values.reshape(*values.shape[:2], -1)
            found |= {f"{name}{i}": flat[..., i] for i in range(min(4, flat.shape[-1]))}
        return found

    with model:
        nuts = pm.sample(4000, tune=2000, chains=2, cores=1, random_seed=1, target_accept=0.95, **QUIET)
        ours = pm.sample(20_000, tune=500, chains=2, cores=1, random_seed=2, step=pmg.GibbsNN(**NUMBA), **QUIET)
    check_same_distribution(functions(ours["posterior"]), functions(nuts["posterior"]), powers=(1,))


# What users meet


@pytest.mark.parametrize("kind", [missing, measured])
def test_other_steps_may_move_the_prior_of_the_inputs(kind):
    """A regression of the inputs on other data, and a half-normal scale."""
    others = RNG.normal(size=(N, 2))

    def prior():
        return others @ pm.Normal("gamma", 0, 1, shape=(2, D)), pm.HalfNormal("s")

    model = kind(prior=prior)
    with model:
        steps = [pmg.GibbsNN(**FAST), pm.Slice([model["gamma"], model["s"]], **FAST)]
        idata = pm.sample(5, tune=5, chains=1, cores=1, step=steps, random_seed=1, **QUIET)
    assert len(np.unique(idata["posterior"]["s"])) > 3


@pytest.mark.parametrize("kind", [missing, measured])
def test_a_chain_starts_at_a_fit_to_completed_inputs(kind):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(80, 2))
    y = np.maximum(x[:, 0], 0) + 0.05 * rng.normal(size=80)
    holes = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    model = kind(x=holes if kind is missing else x, prior=lambda: learned(2), y=y, noise=0.1, units=3)
    network = read_network(model)
    assert can_be_fitted(network)
    start = fitted_start(network, model.initial_point(), np.random.default_rng(1))
    value = start[network.random_inputs.value.name]
    if kind is measured:
        np.testing.assert_array_equal(value, x)
    else:
        np.testing.assert_allclose(value, np.broadcast_to(np.nanmean(holes, 0), x.shape)[np.isnan(holes)])
    complete = network.data()
    f = np.maximum(complete @ start["W1"].T + start["b1"], 0) @ start["W2"]
    known = ~np.isnan(holes).any(axis=1)
    assert (y - f)[known].std() < 0.2


# Predictions


def posterior_of(model, draws, seed=0):
    """Draws of what all rows share, close together, so that predictions spread by the inputs and the noise."""
    rng = np.random.default_rng(seed)
    names = pmg.without_latents(model)
    shapes = {name: model[name].shape.eval() for name in names}
    positive = {name for name in names if name.endswith("2") and name[0] in "te"}
    draws = {name: rng.normal(size=shape) + 0.1 * rng.normal(size=(2, draws, *shape)) for name, shape in shapes.items()}
    draws = {name: np.exp(0.3 * x) if name in positive else x for name, x in draws.items()}
    return {
        "posterior": xr.Dataset(
            {name: (("chain", "draw", *(f"{name}_{i}" for i in range(x.ndim - 2))), x) for name, x in draws.items()}
        )
    }


def brute_force(posterior, x_new, error=None, copies=400, noise=0.5, seed=1):
    """Draws of y at new rows, given each draw of the posterior: (draw, copy, row)."""
    rng = np.random.default_rng(seed)
    p = {name: x.values.reshape(-1, *x.shape[2:])[:, None, None] for name, x in posterior.items()}
    size = (len(p["mu"]), copies, *x_new.shape)
    mean, variance = p["mu"], p["tau2"]
    if error is not None:
        certainty = np.where(np.isnan(x_new), 0, 1 / error(p) ** 2)
        variance, mean = (
            1 / (1 / variance + certainty),
            (mean / variance + certainty * np.nan_to_num(x_new)) / (1 / variance + certainty),
        )
    x = mean + np.sqrt(variance) * rng.normal(size=size)
    x = np.where(np.isnan(x_new), x, x_new) if error is None else x
    if "V" in p:  # the scales of rows are those of a linear network
        g = (x * p["V"]).sum(-1)
        noise = noise * np.sqrt(0.1 + np.exp(0.7 * (g + 0.7 * rng.normal(size=g.shape))))
    z, each = (x[..., None, :] * p["W1"]).sum(-1) + p["b1"], np.asarray(noise)[..., None]
    a = np.maximum(z + each * rng.normal(size=z.shape), 0)
    a = a + each * rng.normal(size=z.shape)
    mean_of_y = (a * p["W2"]).sum(-1)
    return mean_of_y, noise, mean_of_y + noise * rng.normal(size=mean_of_y.shape)


NEW = np.array([[0.5, np.nan, -1.0], [np.nan, np.nan, np.nan], [0.2, 1.0, 0.0]])
PREDICTED = {
    "missing": (missing, None),
    "missing, two networks": (lambda: missing(noise_units=0), None),
    "measured": (lambda: measured(np.array([0.4, 0.2, 0.7])), lambda p: np.array([0.4, 0.2, 0.7])),
    "measured, a learned error": (lambda: measured(learned_error()), lambda p: 2 * np.sqrt(p["error2"][..., None])),
}


@pytest.mark.parametrize("name", slow_but(["missing", "measured, a learned error"], PREDICTED))
def test_predictions_against_brute_force(name):
    build, error = PREDICTED[name]
    model = build()
    idata = posterior_of(model, 1000)
    mean, noise, y = brute_force(idata["posterior"], NEW, error)
    found = pmg.predict(idata, model, NEW, samples=True, random_seed=1)
    for i in range(len(NEW)):
        own = found["samples"].values.reshape(2000, -1)[:, i]
        error_of_mean = own.std() / 2000**0.5
        assert abs(found["mean"].values[i] - mean[..., i].mean()) < 5 * error_of_mean
        assert abs(own.std() / y[..., i].std() - 1) < 0.12
    y_new = np.array([0.3, -0.4, 1.0])
    density = stats.norm.pdf(y_new, mean, noise).mean((0, 1))
    scores = pmg.log_predictive(idata, model, NEW, y_new, latent_draws=40, random_seed=1)
    np.testing.assert_allclose(np.exp(scores["log_density"]), density, rtol=0.03)


@pytest.mark.parametrize("kind", [missing, measured])
def test_predictions_of_the_data_themselves(kind):
    """Without new rows those of the model are taken, with their holes."""
    model = kind()
    idata, data = posterior_of(model, 1000), HOLES if kind is missing else X
    error = None if kind is missing else lambda p: 0.4
    mean, *_ = brute_force(idata["posterior"], data, error, copies=200)
    found = pmg.predict(idata, model, random_seed=1)
    assert (abs(found["mean"] - mean.mean((0, 1))) < 5 * found["sd"] / 2000**0.5).all()
    scores = pmg.log_predictive(idata, model, random_seed=1, extend_inferencedata=False)
    density = stats.norm.pdf(Y, mean, 0.5).mean((0, 1))
    np.testing.assert_allclose(np.exp(scores["log_density"]), density, rtol=0.05)


def test_new_rows_need_not_lack_what_the_old_ones_lack():
    model = missing()
    idata = posterior_of(model, 50)
    one = pmg.predict(idata, model, np.ma.masked_invalid(NEW), random_seed=1)["mean"]
    np.testing.assert_array_equal(one, pmg.predict(idata, model, {"X": NEW}, random_seed=1)["mean"])
    with pytest.raises(ValueError, match="X_new holds 1 values that are NaN or infinite"):
        pmg.predict(idata, model, np.where(NEW == 1, np.inf, NEW))
    with pytest.warns(UserWarning, match="Column 2 of X_new is on average"):
        pmg.predict(idata, model, np.where(np.isnan(NEW), np.nan, 100 * NEW + [0, 0, 500]))


def test_the_function_is_that_of_numbers():
    """At the model's own rows means of columns stand in the holes; new rows must be whole."""
    model = missing()
    idata = posterior_of(model, 50)
    found = pmg.function_space(idata, model)["output"]
    completed = np.where(np.isnan(HOLES), np.nanmean(HOLES, axis=0), HOLES)
    np.testing.assert_allclose(found, pmg.function_space(idata, model, completed)["output"])
    with pytest.raises(ValueError, match="X_new holds 4 values that are NaN"):
        pmg.function_space(idata, model, NEW)


@pytest.mark.parametrize("kind", [missing, measured])
def test_priors_that_differ_between_rows_are_not_known_at_new_ones(kind):
    model = kind(prior=lambda: (X, 1.0))
    with pytest.raises(pmg.NetworkError, match=r"prior of '[Xx]' or its measurement differs from row to row"):
        pmg.predict(posterior_of(model, 5), model, NEW)


# Drivers, starts and models


@pytest.mark.slow
@pytest.mark.parametrize("kind", [missing, measured])
def test_both_drivers_and_starts(kind):
    model = kind()
    name = "X_unobserved" if kind is missing else "x"
    names = [*pmg.without_latents(model), name] + ["X"] * (kind is missing)
    with model:
        ours = pmg.sample(20, step=pmg.GibbsNN(), tune=10, chains=2, random_seed=1, progressbar=False, var_names=names)
        starts = pmg.initial_values(model, "prior", chains=2, random_seed=1)
        pm.sample(2, tune=0, step=pmg.GibbsNN(**FAST), initvals=starts, chains=2, cores=1, **QUIET)
        last = pmg.sample(3, step=pmg.GibbsNN(), tune=2, chains=2, progressbar=False)
        assert name not in last["posterior"]
        more = pmg.continue_from(last, pmg.GibbsNN(**FAST), tune=3, random_seed=1)
    draws = ours["posterior"][name].values
    assert draws.std(axis=1).min() > 0
    if kind is missing:
        completed = ours["posterior"]["X"].values
        np.testing.assert_allclose(completed[..., np.isnan(HOLES)], draws)
        np.testing.assert_allclose(completed[0, 0][~np.isnan(HOLES)], HOLES[~np.isnan(HOLES)])
    guess = read_network(model).random_inputs.guessed_values(RNG)
    np.testing.assert_allclose(more["initvals"][0][name], guess[name])
    start = more["initvals"][0]
    x = X if kind is measured else read_network(model).data()
    assert abs(start["Z2"] - x @ start["W1"].T - start["b1"]).max() < 5 * 0.5


LIKELIHOODS = {
    "student": Y,
    "normal": np.c_[Y, -Y],
    "probit": (Y > 0).astype(int),
    "categorical": np.digitize(Y, [-0.5, 0.5]),
    "ordered": np.digitize(Y, [-0.5, 0.5]),
    "poisson": np.exp(Y).round(),
}


@pytest.mark.parametrize("likelihood", ["normal", "student"])
@pytest.mark.parametrize(("hidden", "noise_hidden"), [(3, 2), slow([], []), slow(3, []), slow([], 2)])
def test_mlp_with_missing_values_and_heteroscedastic_noise(hidden, noise_hidden, likelihood):
    model = pmg.mlp(HOLES, Y, hidden, noise_hidden=noise_hidden, likelihood=likelihood, standardise=True)
    assert [network.draws_inputs for network in read_networks(model)] == [True, False]
    step, point = pmg.GibbsNN(model=model, **FAST), model.initial_point()
    assert [v.name for v in step.vars].count("X_unobserved") == 1
    for _ in range(3):
        point, [found] = step.step(point)
    terms = model.compile_logp(sum=False, mode="AS_WRITTEN")(point)  # more than NumPy can add in one call
    np.testing.assert_allclose(found["lp"], sum(x.sum() for x in terms), rtol=1e-6, atol=1e-5)


def test_inputs_of_two_networks_that_other_data_depend_on_are_refused():
    with pm.Model() as model:
        x = pm.Normal("X", 0, 1, observed=HOLES)
        noisy_network(x, noise_units=0)
        pm.Normal("u", x[:, 0], 1, observed=Y)
    with pytest.raises(pmg.NetworkError, match=r"must enter 'G' and 'Z2' and nothing else, but \['u'\] depend on it"):
        pmg.GibbsNN(model=model)


@pytest.mark.parametrize(
    ("likelihood", "hidden"),
    slow_but({("student", 3), ("normal", 0)}, product(LIKELIHOODS, (3, 0))),
)
def test_mlp_with_missing_values(likelihood, hidden):
    model = pmg.mlp(HOLES, LIKELIHOODS[likelihood], hidden or [], likelihood=likelihood)
    assert [v.name for v in read_network(model).random_inputs.variables] == [
        "X_unobserved",
        "component_X",
        "factors_X",
        "mean_X",
        "variance_X_log__",
        "weights_X_simplex__",
        "loadings_X",
    ]
    step, point = pmg.GibbsNN(model=model, **FAST), model.initial_point()
    for _ in range(3):
        point, [found] = step.step(point)
    ours = model.compile_logp(mode="AS_WRITTEN")(point)
    np.testing.assert_allclose(found["lp"], ours, rtol=1e-6, atol=1e-5)


def test_mlp_of_a_data_frame_with_missing_values():
    frame = pd.DataFrame(HOLES, columns=["a", "b", "c"])
    model = pmg.mlp(frame, Y, 2, noise=0.3, prior=None)
    assert list(model.coords["feature"]) == ["a", "b", "c"]
    idata = posterior_of(model, 5)
    idata["posterior"]["variance_X"] = np.exp(idata["posterior"]["variance_X"])
    weights = idata["posterior"]["weights_X"]
    idata["posterior"]["weights_X"] = weights.copy(data=softmax(weights.values, axis=-1))
    found = pmg.predict(idata, model, frame[:4])
    assert np.isfinite(found["mean"]).all()
    with pytest.raises(ValueError, match="columns of X_new must be those of the data"):
        pmg.predict(idata, model, frame[["b", "a", "c"]])
    assert "X" in [v.name for v in pmg.mlp(X, Y, 2).data_vars]

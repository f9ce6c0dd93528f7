"""Hidden units of dense networks, against the general path with the same random numbers, quadrature and many draws."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.integrate import quad
from scipy.stats import norm

import pymc_gibbsnn as pmg
from pymc_gibbsnn import _compat
from pymc_gibbsnn._frames import Feature
from pymc_gibbsnn.diagnostics.partial_dependence import partial_dependence
from pymc_gibbsnn.networks.activations import ACTIVATIONS, PiecewiseLinear
from pymc_gibbsnn.prediction import forward_draws, log_predictive, new_rows
from pymc_gibbsnn.prediction.dense_units import read_dense_units
from pymc_gibbsnn.prediction.expected import expected_values
from pymc_gibbsnn.prediction.forward_draws import ForwardDraws
from pymc_gibbsnn.prediction.mean_activation import mean_activation
from pymc_gibbsnn.prediction.new_rows import NewRows
from pymc_gibbsnn.prediction.table import input_table
from tests.helpers import slow_but

RNG = np.random.default_rng(4)
X = RNG.normal(size=(12, 2))
Y = np.sin(X[:, 0])
X_NEW = RNG.normal(size=(5, 2))
COUNTS = np.arange(12) % 4
FIXED = {"noise": 0.6, "prior": None}
DEEP = {"noise": [0.6, 0.3, 0.5, 0.2, 0.4], "prior": None}
STEP = PiecewiseLinear([-0.5, 0.5], [1.0, 0.0, 2.0], [0.0, 0.3, -1.0])


def from_prior(model, draws, factor=1.0):
    """Draws of all parameters from the prior in the place of a posterior's."""
    rvs = [rv for name in pmg.without_latents(model) if (rv := model[name]) in model.free_RVs]
    values = pm.draw(rvs, draws=draws, random_seed=1, mode="AS_WRITTEN")
    values = [np.sort(x) if "cutpoints" in rv.name else x for rv, x in zip(rvs, values, strict=True)]
    values = {rv.name: (x * factor if rv.name[0] in "Wb" else x)[None] for rv, x in zip(rvs, values, strict=True)}
    return _compat.inference_data({"posterior": _compat.dataset(model, values, 0)})


def with_an_offset():
    """A network beside a term of groups, of which the rows are another pm.Data."""
    with pm.Model() as model:
        z = pm.Normal("Z2", pm.Data("X", X) @ pm.Normal("W1", shape=(2, 3)) + pm.Normal("b1", shape=3), 0.6)
        a = pm.Normal("A2", pm.math.maximum(z, 0), 0.3)
        u = pm.Normal("u", shape=4)[pm.Data("g", COUNTS)]
        pm.Normal("y", a @ pm.Normal("W2", shape=3) + u, 0.4, observed=Y)
    return model


def with_holes():
    x = X.copy()
    x[::3, 1] = np.nan
    return pmg.mlp(x, Y, 3, likelihood="normal", **FIXED)


NAMES = ["identity", "leaky_relu", "abs", "sign", "hard_tanh", "relu6", "tanh", "sigmoid", "gelu", "softplus", "silu"]
MODELS = {
    "default": lambda: pmg.mlp(X, Y, 3),
    "normal": lambda: pmg.mlp(X, Y, 3, likelihood="normal", **FIXED),
    "two outputs": lambda: pmg.mlp(X, np.c_[Y, -Y], [3, 2], likelihood="normal", **DEEP),
    "no bias": lambda: pmg.mlp(X + 1, Y, 3, likelihood="normal", bias=False, **FIXED),
    "rows": lambda: pmg.mlp(X, Y, 3, likelihood="normal", noise_hidden=2, noise="learned", prior=None),
    "standardised": lambda: pmg.mlp(30 * X + 1000, 5 * Y + 40, 3, standardise=True),
    "offset": with_an_offset,
    "student": lambda: pmg.mlp(X, Y, [3, 2], likelihood="student", **FIXED),
    "laplace": lambda: pmg.mlp(X, Y, 3, likelihood="laplace", **FIXED),
    "mixture": lambda: pmg.mlp(X, Y, 3, likelihood="mixture", **FIXED),
    "poisson": lambda: pmg.mlp(X, COUNTS, 2, likelihood="poisson", noise=0.3, prior=None),
    "negative_binomial": lambda: pmg.mlp(X, COUNTS, 2, likelihood="negative_binomial", noise=0.3, prior=None),
    "binomial": lambda: pmg.mlp(X, COUNTS, 3, likelihood="binomial", trials=np.full(12, 5), **FIXED),
    "gamma": lambda: pmg.mlp(X, np.exp(Y), 2, likelihood="gamma", noise=0.3, prior=None),
    "beta": lambda: pmg.mlp(X, 0.5 + Y / 3, 3, likelihood="beta", **FIXED),
    "lognormal": lambda: pmg.mlp(X, np.exp(Y), 2, likelihood="lognormal", noise=0.3, prior=None),
    "censored": lambda: pmg.mlp(X, np.minimum(Y, 0.5), 3, likelihood="normal", upper=np.full(12, 0.5), **FIXED),
    "bernoulli": lambda: pmg.mlp(X, (Y > 0).astype(int), 3, likelihood="bernoulli", **FIXED),
    "categorical": lambda: pmg.mlp(X, COUNTS, 3, likelihood="categorical", **FIXED),
    "probit": lambda: pmg.mlp(X, COUNTS, [3, 3], likelihood="probit", **FIXED),
    "ordered": lambda: pmg.mlp(X, COUNTS, 3, likelihood="ordered", **FIXED),
} | {
    name: lambda name=name: pmg.mlp(X, Y, [3, 2], activation=name, likelihood="normal", **DEEP)
    for name in [*NAMES, "step"]
}
MODELS["step"] = lambda: pmg.mlp(X, Y, [3, 2], activation=STEP, likelihood="normal", **DEEP)
QUICK = {"default", "two outputs", "standardised", "probit", "step"}


def rows_of(model):
    """New rows of all data of a model."""
    x = 30 * X_NEW + 1000 if "X_mean" in model else X_NEW
    others = {"trials": [5] * 5, "upper": [0.5] * 5, "g": [0, 3, 1, 2, 0]}
    return {"X": x} | {name: new for name, new in others.items() if name in model}


@pytest.mark.parametrize("name", slow_but(QUICK, MODELS))
def test_predictions_are_those_of_the_graph_of_pymc(name, monkeypatch):
    model = MODELS[name]()
    idata, new = from_prior(model, 50), rows_of(model)
    assert ForwardDraws(NewRows(model, _compat.dataset_of(idata, "posterior"), new))._dense
    found = pmg.predict(idata, model, new, samples=True, random_seed=1)
    monkeypatch.setattr(forward_draws, "read_dense_units", lambda rows, network: None)
    expected = pmg.predict(idata, model, new, samples=True, random_seed=1)
    assert set(found) == set(expected)
    for one in (found, expected):  # the parts of the variance are differences of larger numbers
        for key in [key for key in one if key.startswith("sd_")]:
            one[key] = one[key] ** 2 / one["sd"] ** 2
    for key, x in found.items():
        np.testing.assert_allclose(x, expected[key], rtol=2e-5, atol=1e-6, err_msg=key)


Y_NEW = {"two outputs": np.c_[Y, -Y][:5], "probit": COUNTS[:5], "poisson": COUNTS[:5]}


@pytest.mark.parametrize(
    "name", slow_but({"default", "probit"}, ["default", "two outputs", "rows", "probit", "poisson"])
)
def test_log_densities_are_those_of_the_graph_of_pymc(name, monkeypatch):
    model = MODELS[name]()
    idata, new, y = from_prior(model, 30, 0.3 if name == "poisson" else 1), rows_of(model), Y_NEW.get(name, Y[:5])
    read = []
    monkeypatch.setattr(
        log_predictive,
        "read_dense_units",
        lambda *args, **options: read.append(read_dense_units(*args, **options)) or read[-1],
    )
    found = pmg.log_predictive(idata, model, new, y, latent_draws=4, random_seed=1)
    monkeypatch.setattr(log_predictive, "read_dense_units", lambda *args, **options: None)
    expected = pmg.log_predictive(idata, model, new, y, latent_draws=4, random_seed=1)
    xr.testing.assert_allclose(found, expected, rtol=1e-9)
    assert [one for one in read if one] or name == "probit"  # whose several classes need Z itself


def two_in_one_mean():
    """Two networks, whose outputs are added."""
    with pm.Model() as model:
        x, mean = pm.Data("X", X), 0.0
        for k in "ab":
            z = pm.Normal(f"Z{k}", x @ pm.Normal(f"W{k}", shape=(2, 3)), 0.5)
            a = pm.Normal(f"A{k}", pm.math.maximum(z, 0), 0.3)
            mean = mean + a @ pm.Normal(f"V{k}", shape=3)
        pm.Normal("y", mean, 0.4, observed=Y)
    return model


def test_two_networks_in_one_mean_are_predicted():
    model = two_in_one_mean()
    posterior = _compat.dataset_of(from_prior(model, 4000), "posterior")
    found = pmg.predict({"posterior": posterior}, model, X_NEW, random_seed=1)
    mean = expected_values(model, posterior, X_NEW, latent_draws=30, random_seed=2)
    error = found["sd_aleatoric"].values / np.sqrt(4000)
    assert (np.abs(found["mean"] - mean.mean(axis=0)) < 5 * error).all()
    np.testing.assert_allclose(found["sd_epistemic"], mean.std(axis=0), rtol=0.1)
    density = pmg.log_predictive({"posterior": posterior}, model, X_NEW, Y[:5], random_seed=1)
    assert np.isfinite(density["log_density"]).all()


@pytest.mark.parametrize("make", [with_holes, lambda: pmg.classical_mlp(X, Y, 3, likelihood="normal")])
def test_other_networks_are_left_to_the_graph(make):
    model = make()
    rows = NewRows(model, _compat.dataset_of(from_prior(model, 3), "posterior"), X_NEW)
    assert not ForwardDraws(rows)._dense


def test_rounding_is_small_for_inputs_far_from_zero():
    """Single precision holds their spread, as their mean belongs to the bias."""
    x = RNG.uniform(-1, 1, size=(200, 1)) + 3e4
    model = pmg.mlp(X[:, :1], Y, 3, likelihood="normal", noise=1e-6, prior=None)
    w, b = RNG.normal(size=(1, 40, 3, 1)), RNG.normal(size=(1, 40, 3))
    b, v = b - 3e4 * w[..., 0], RNG.normal(size=(1, 40, 3))
    values = {"W1": w, "b1": b, "W2": v, "b2": np.zeros((1, 40))}
    posterior = _compat.dataset(model, values, 0)
    with pytest.warns(UserWarning, match="standard deviations from the mean"):
        found = pmg.predict({"posterior": posterior}, model, x, random_seed=1)
    mean = np.einsum("cdnu,cdu->n", np.maximum(x @ w.mT + b[:, :, None], 0), v) / 40
    np.testing.assert_allclose(found["mean"], mean, atol=1e-5)


def test_blocks_of_rows_and_draws_change_nothing(monkeypatch):
    model = MODELS["two outputs"]()
    idata = from_prior(model, 60)
    expected = pmg.predict(idata, model, X_NEW, random_seed=1)
    monkeypatch.setattr(new_rows, "IN_CACHE", 20)  # of which a row and draw have three
    xr.testing.assert_allclose(pmg.predict(idata, model, X_NEW, random_seed=1), expected, rtol=1e-5)


# The mean over latents


@pytest.mark.parametrize("function", [*ACTIVATIONS.values(), STEP, np.tanh, lambda z: np.logaddexp(0, z)])
@pytest.mark.parametrize("s", [0.01, 0.7])
def test_the_mean_of_an_activation_is_an_integral(function, s):
    means = np.array([-3.0, -0.5, 0.0, 0.2, 0.504, 5.99])
    kinks = function.breakpoints if isinstance(function, PiecewiseLinear) else np.array([])

    def integral(m):
        inside = [float(e) for e in kinks if abs(e - m) < 9 * s]
        return quad(
            lambda z: float(function(np.array([z]))[0]) * norm.pdf(z, m, s), m - 9 * s, m + 9 * s, points=inside or None
        )[0]

    found = mean_activation(function, means[None], np.full((1, 6), s))
    np.testing.assert_allclose(found[0], [integral(m) for m in means], atol=2e-7)


def test_without_noise_the_mean_is_the_activation():
    z = np.array([[-1.0, -0.2, 0.1, 3.0]])
    for function in (*ACTIVATIONS.values(), STEP):
        np.testing.assert_allclose(mean_activation(function, z, np.zeros((1, 4))), function(z))


LATENTS = {
    "normal": MODELS["normal"],
    "two outputs": MODELS["two outputs"],
    "student": lambda: pmg.mlp(X, Y, 3, likelihood="student", **FIXED),
    "tanh": lambda: pmg.mlp(X, Y, 3, activation="tanh", likelihood="normal", **FIXED),
    "rows": MODELS["rows"],
    "offset": with_an_offset,
    "poisson": lambda: pmg.mlp(X, COUNTS, 2, likelihood="poisson", noise=[0.3, 1.2, 0.3], prior=None),
    "bernoulli": MODELS["bernoulli"],
}


@pytest.mark.parametrize("name", slow_but({"normal"}, LATENTS))
def test_expected_values_are_means_of_many_draws_of_all_latents(name, monkeypatch):
    """Each draw of the posterior stands there often, and y is drawn for each."""
    model, repeats = LATENTS[name](), 5000
    once = _compat.dataset_of(from_prior(model, 8, 0.5 if name == "poisson" else 1), "posterior")
    many = once.isel(draw=np.repeat(np.arange(8), repeats)).assign_coords(draw=np.arange(8 * repeats))
    new = rows_of(model)
    found = expected_values(model, once, new, latent_draws=2000, random_seed=2)
    found = found[..., 1] if name == "bernoulli" else found
    monkeypatch.setattr(forward_draws, "read_dense_units", lambda rows, network: None)
    y = pmg.predict({"posterior": many}, model, new, samples=True, random_seed=1)["samples"].values[0]
    y = y.reshape(8, repeats, *y.shape[1:])
    assert (np.abs(found - y.mean(axis=1)) < 4.5 * y.std(axis=1) * np.sqrt(1 / repeats + 1 / 2000)).all()


NOISY = {"noise": [1.5, 0.01, 0.01], "prior": None}
BANDS = {
    "normal": lambda: pmg.mlp(X, Y, 3, likelihood="normal", **NOISY),
    "student": lambda: pmg.mlp(X, Y, 3, likelihood="student", **NOISY),
    "rows": lambda: pmg.mlp(X, Y, 3, likelihood="normal", noise_hidden=2, noise=1.0, prior=None),
    "softplus": lambda: pmg.mlp(X, Y, 3, activation="softplus", likelihood="normal", **NOISY),
}


@pytest.mark.parametrize("name", slow_but({"normal"}, BANDS))
def test_bands_of_partial_dependence_are_the_epistemic_part(name):
    """Of a table with a single row, where the mean over rows is no other than E[y | x, θ]."""
    model, draws, at = BANDS[name](), 8000, np.linspace(-0.5, 0.5, 4)
    idata = from_prior(model, draws)
    x = np.c_[at, np.full(4, 0.2)]
    table = input_table(model, x[:1])
    posterior = _compat.dataset_of(idata, "posterior")
    feature = Feature("0", [0], None)
    f, _ = partial_dependence(model, posterior, table, [feature], [at[:, None]], random_seed=1)
    found = pmg.predict(idata, model, x, random_seed=2)
    epistemic, latent = f.var(axis=0), found["sd_aleatoric"].values ** 2
    error = np.sqrt((2 * (epistemic + latent) ** 2 + 8 * latent**2) / draws)  # of predict, of which latent is a bound
    assert (np.abs(found["sd_epistemic"].values ** 2 - epistemic) < 4 * error).all()
    np.testing.assert_allclose(found["mean"], f.mean(axis=0), atol=4 * np.sqrt((latent / draws).max()))

import subprocess
import sys
import warnings
from functools import cache, partial

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy.stats import norm, poisson

import pymc_gibbsnn as pmg
from pymc_gibbsnn import _compat
from pymc_gibbsnn._data import warn_of_rows
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.prediction import new_rows
from tests.helpers import LEAN, slow, slow_but

RNG = np.random.default_rng(0)
X, U = RNG.normal(size=(9, 2)), RNG.normal(size=(9, 1))
Y = np.sin(X[:, 0])
X_NEW = np.r_[RNG.normal(size=(3, 2)), X[:1]]
GROUPS = np.arange(9) % 3
CHAINS, DRAWS = 2, 400


def prior_draws(model):
    """What stands for a posterior: draws of all that serves every row."""
    rvs = [rv for rv in model.free_RVs if rv.name[0] not in "ZA"]
    values = pm.draw(rvs, draws=CHAINS * DRAWS, random_seed=1, mode="AS_WRITTEN")
    values = {rv.name: v.reshape(CHAINS, DRAWS, *v.shape[1:]) for rv, v in zip(rvs, values, strict=True)}
    return _compat.inference_data({"posterior": _compat.dataset(model, values, 0)})


def with_learned_scales():
    """A network in a larger model: learned noise and prior scales, an intercept for each group, no bias."""
    with pm.Model() as model:
        inputs, groups = pm.Data("X", X), pm.Data("groups", GROUPS)
        delta = pm.InverseGamma("delta", 3, 0.5)
        w1 = pm.Normal("W1", 0, tau=pm.Gamma("lam", 2, 2, shape=2), shape=(3, 2))
        z = pm.Normal("Z2", inputs @ w1.T, pt.sqrt(delta))
        a = pm.Normal("A2", pm.math.tanh(z), pt.sqrt(delta))
        effect = pm.Normal("effect", 0, pm.HalfNormal("spread"), shape=3)
        pm.Normal("y", a @ pm.Normal("W2", 0, 1, shape=3) + effect[groups], pt.sqrt(delta), observed=Y, shape=len(Y))
    return model


def by_hand():
    """Inputs that are no pm.Data, used twice; a noise that has a size but no row in its mean; softplus and clip."""
    with pm.Model() as model:
        inputs = pm.Data("X", X, dims=("row", "feature"))
        w1 = pm.Normal("W1", 0, 1, dims=("hidden", "feature"), shape=(2, 2))
        noise = pm.Normal("Z", 0, 0.4, shape=(inputs.shape[0], 2))
        z = pm.Normal("Z2", pt.softplus(inputs @ w1.T) + noise, 0.3)
        a = pm.Normal("A2", pt.clip(z, -1, 1), 0.3)
        mean = a @ pm.Normal("W2", 0, 1, shape=2) + inputs[:, 0]
        pm.StudentT("y", nu=4, mu=mean, sigma=0.5, observed=Y, dims="row")
    return model


MODELS = {
    "noisy": lambda: pmg.mlp(X, np.c_[Y, -Y], [3, 2], noise=0.5, prior=None),
    "binary": lambda: pmg.mlp(X, (Y > 0).astype(int), 3, noise=0.5, likelihood="probit", prior=None),
    "classes": lambda: pmg.mlp(X, np.arange(9) % 3, 3, noise=0.5, likelihood="probit", prior=None),
    "classical": lambda: pmg.classical_mlp(X, np.arange(9) % 3, 3),
    "wide": lambda: pmg.wide_mlp(X, Y, 20, depth=2),
    "scales": with_learned_scales,
    "by hand": by_hand,
}


@cache
def fixed(name):
    model = MODELS[name]()
    return model, prior_draws(model)


def new_data(name):
    return {"X": X_NEW, "groups": np.array([2, 2, 0, 1])} if name == "scales" else X_NEW


@pytest.mark.parametrize("name", slow_but({"noisy", "classes", "scales", "by hand"}, MODELS))
def test_the_distribution_of_posterior_prediction_by_pymc(name):
    model, idata = fixed(name)
    found = pmg.predict(idata, model, new_data(name), samples=True, random_seed=1)["samples"].values
    with MODELS[name]() as changed:
        given = new_data(name) if name == "scales" else {"X": X_NEW}
        if changed["y"].owner.op.name in ("argmax_label", "sign_label"):
            given = given | {"y_data": np.zeros(4, int)}
        if name in ("scales", "by hand"):  # their y has nine rows for PyMC: the new ones are four of them
            repeat = np.arange(9) % 4
            given = {key: x[repeat] for key, x in (given if isinstance(given, dict) else {"X": X_NEW}).items()}
        pm.set_data(given)
        expected = pm.sample_posterior_predictive(
            idata, random_seed=2, progressbar=False, compile_kwargs={"mode": "AS_WRITTEN"}
        )["posterior_predictive"]["y"].values[:, :, :4]
    assert found.shape == expected.shape
    classes = range(int(expected.max())) if expected.dtype.kind == "i" else ()
    functions = (
        [lambda y, k=k: y == k for k in classes]
        or [
            np.tanh,
            lambda y: np.tanh(y) ** 2,
            lambda y: np.tanh(y * np.roll(y, 1, axis=2)),  # rows are independent given what serves them all
            lambda y: np.tanh(y.reshape(*y.shape[:3], -1).prod(-1)),
        ]
    )
    for function in functions:
        x, y = (np.asarray(function(z), float).reshape(CHAINS * DRAWS, -1) for z in (found, expected))
        error = np.sqrt(x.var(0) / len(x) + y.var(0) / len(y)) + 1e-9
        assert (np.abs(x.mean(0) - y.mean(0)) < 5 * error).all(), (x.mean(0), y.mean(0), error)


@pytest.mark.parametrize("name", slow_but({"noisy", "binary", "scales", "by hand"}, MODELS))
def test_predictions_are_those_of_the_new_inputs_whatever_the_model_holds(name):
    model, idata = fixed(name)
    expected = pmg.predict(idata, model, new_data(name), random_seed=1)
    posterior = _compat.dataset_of(idata, "posterior")
    latents = {
        rv.name: (("chain", "draw"), np.full((CHAINS, DRAWS), 7.0)) for rv in model.free_RVs if rv.name[0] in "ZA"
    }
    recorded = {"posterior": posterior.assign(latents)}
    xr.testing.assert_identical(pmg.predict(recorded, model, new_data(name), random_seed=1), expected)
    before = {v.name: v.get_value() for v in model.data_vars}
    with MODELS[name]() as changed:
        assert all(np.array_equal(before[v.name], v.get_value()) for v in changed.data_vars)  # nothing was set
        pm.set_data({"X": X_NEW[:2] + 5})
        xr.testing.assert_identical(pmg.predict(idata, X_new=new_data(name), random_seed=1), expected)
        pm.set_data(new_data(name) if name == "scales" else {"X": X_NEW})
        xr.testing.assert_identical(pmg.predict(idata, random_seed=1), expected)


def test_what_is_returned():
    model, idata = fixed("noisy")
    found = pmg.predict(idata, model, X_NEW, quantiles=[0.1, 0.9], samples=True, random_seed=1)
    y = found["samples"]
    assert (
        abs(found["mean"] - y.mean(("chain", "draw"))) < 5 * y.std(("chain", "draw")) / y[:, :, 0, 0].size ** 0.5
    ).all()
    variance, squares = y.var(("chain", "draw")), (y - y.mean(("chain", "draw"))) ** 2
    assert (abs(found["sd"] ** 2 - variance) < 5 * squares.std(("chain", "draw")) / y[:, :, 0, 0].size ** 0.5).all()
    np.testing.assert_allclose(found["quantiles"].sel(quantile=0.9), np.quantile(y, 0.9, axis=(0, 1)))
    assert found["mean"].dims == ("point", "output")
    again = pmg.predict(idata, model, X_NEW, random_seed=2)
    assert not np.allclose(again["mean"], found["mean"])
    frame = pd.DataFrame(X_NEW, index=list("abcd"))
    found = pmg.predict(idata, model, frame, random_seed=2)
    np.testing.assert_array_equal(found["mean"], again["mean"])
    assert found["point"].values.tolist() == list("abcd")
    found = pmg.predict(idata, model, frame.set_index(pd.MultiIndex.from_product([[1, 2], [3, 4]])), random_seed=2)
    assert found["point"].values.tolist() == ["(1, 3)", "(1, 4)", "(2, 3)", "(2, 4)"]  # which files can hold
    found = pmg.predict(idata, model, frame.set_index(pd.date_range("2026-01-01", periods=4)), random_seed=2)
    assert found["point"].dtype.kind == "M"
    xr.testing.assert_identical(pmg.predict(idata, model, X_NEW.tolist(), random_seed=2), again)
    with pm.Model(coords={"class": ["cat", "dog", "eel"]}) as named:
        z = pm.Normal("Z2", pm.Data("X", X) @ pm.Normal("W1", 0, 1, shape=(2, 3)), 1)
        pmg.ArgmaxLabel("y", z, observed=np.arange(9) % 3)
    found = pmg.predict(prior_draws(named), named, X_NEW, random_seed=1)
    assert found["class"].values.tolist() == ["cat", "dog", "eel"]
    best = found["probability"].values.argmax(-1)
    np.testing.assert_array_equal(found["label"], found["class"].values[best])


@pytest.mark.parametrize(
    ("likelihood", "inverse"),
    [
        (lambda eta: pm.Normal("y", eta, 3, observed=Y), lambda eta: eta),
        (lambda eta: pm.StudentT("y", nu=1.5, mu=eta, sigma=3, observed=Y), lambda eta: eta),
        (lambda eta: pm.Poisson("y", pt.exp(eta), observed=np.arange(9)), np.exp),
    ],
)
def test_means_have_no_noise_of_the_data(likelihood, inverse):
    """The mean given the weights is averaged, not draws of y, which differ more, and whose tails may be heavy."""
    with pm.Model() as model:
        likelihood(pm.Data("X", X) @ pm.Normal("W1", 0, 1, shape=2))
    idata = prior_draws(model)
    found = pmg.predict(idata, model, X_NEW, random_seed=1)["mean"]
    w = _compat.dataset_of(idata, "posterior")["W1"].values.reshape(-1, 2)
    np.testing.assert_allclose(found, inverse(w @ X_NEW.T).mean(0))


@pytest.mark.parametrize(
    "likelihood",
    [
        lambda eta: pm.StudentT("y", nu=3, mu=eta, sigma=3, observed=Y),
        lambda eta: pm.Laplace("y", eta, 2, observed=Y),
        lambda eta: pm.Logistic("y", eta, 2, observed=Y),
        lambda eta: pm.LogNormal("y", eta, 0.5, observed=Y + 2),
        lambda eta: pm.Gamma("y", 2, pt.exp(eta), observed=Y + 2),
        lambda eta: pm.Exponential("y", pt.exp(eta), observed=Y + 2),
        lambda eta: pm.Beta("y", pt.exp(eta), 2, observed=np.full(9, 0.5)),
        lambda eta: pm.NegativeBinomial("y", mu=pt.exp(eta), alpha=2, observed=np.arange(9)),
        lambda eta: pm.Binomial("y", 100, pt.sigmoid(eta), observed=np.arange(9)),
        lambda eta: pm.BetaBinomial("y", pt.exp(eta), 2, 100, observed=np.arange(9)),
        lambda eta: pm.MvNormal("y", pt.stack([eta, -eta], 1), np.eye(2), observed=np.c_[Y, Y]),
    ],
)
def test_the_mean_of_each_likelihood_is_that_of_its_draws(likelihood):
    with pm.Model() as model:
        likelihood(pm.Data("X", X) @ pm.Normal("W1", 0, 0.5, shape=2))
    found = pmg.predict(prior_draws(model), model, X_NEW, samples=True, random_seed=1)
    y, axes = found["samples"].astype(float), ("chain", "draw")
    difference = found["mean"] - y.mean(axes)
    assert (abs(difference) < 4.5 * y.std(axes) / (CHAINS * DRAWS) ** 0.5).all()
    assert (difference != 0).any()


def test_the_mean_of_any_other_likelihood_is_that_of_draws():
    with pm.Model() as model:
        mean = pm.Data("X", X) @ pm.Normal("W1", 0, 1, shape=2)
        pm.TruncatedNormal("y", mean, 1, lower=-1, observed=np.maximum(Y, -0.9))
    found = pmg.predict(prior_draws(model), model, X_NEW, samples=True, random_seed=1)
    np.testing.assert_allclose(found["mean"], found["samples"].mean(("chain", "draw")))


def test_infinite_parameters_hide_no_dependence_on_other_rows():
    with pm.Model() as model:
        inputs = pm.Data("X", X)
        upper = pt.where(inputs[:, 0] > 0, np.inf, 9 + inputs[:, 0].mean())
        pm.TruncatedNormal("y", inputs @ pm.Normal("W1", 0, 1, shape=2), 1, upper=upper, observed=Y)
    with pytest.raises(NetworkError, match="one row of it depends on other rows"):
        pmg.predict(prior_draws(model), model, X_NEW)


@pytest.mark.parametrize("options", [{}, slow({"likelihood": "student"}), slow({"noise_hidden": 2})])
def test_models_in_single_precision_are_predicted(options):
    with pytensor.config.change_flags(floatX="float32"):
        model = pmg.mlp(X, Y, 3, noise="learned", prior=None, **options)
        idata = prior_draws(model)
        single = pmg.predict(idata, model, X_NEW, random_seed=1)
        density = pmg.log_predictive(idata, model, X, Y, random_seed=1)["log_density"]
    same = _compat.dataset_of(idata, "posterior").astype(float)
    double = pmg.mlp(X, Y, 3, noise="learned", prior=None, **options)
    xr.testing.assert_allclose(
        single, pmg.predict({"posterior": same}, double, X_NEW, random_seed=1), rtol=1e-4, atol=1e-4
    )
    expected = pmg.log_predictive({"posterior": same}, double, X, Y, random_seed=1)["log_density"]
    np.testing.assert_allclose(density, expected, rtol=1e-3)


@pytest.mark.parametrize("name", ["noisy", "classical"])
def test_many_rows_are_predicted_in_parts(name, monkeypatch):
    model, idata = fixed(name)
    X_many = np.repeat(X_NEW, 5, axis=0)
    whole = pmg.predict(idata, model, X_many, samples=True, random_seed=1)
    monkeypatch.setattr(new_rows, "AT_ONCE", 3000)
    parts = pmg.predict(idata, model, X_many, samples=True, random_seed=1)
    assert {key: x.shape for key, x in whole.items()} == {key: x.shape for key, x in parts.items()}
    if name == "classical":
        np.testing.assert_allclose(whole["probability"], parts["probability"])
    x, y = (np.tanh(found["samples"].values.astype(float)).reshape(CHAINS * DRAWS, -1) for found in (whole, parts))
    assert (np.abs(x.mean(0) - y.mean(0)) < 5 * np.sqrt(2 * x.var(0) / len(x)) + 1e-9).all()


@pytest.mark.parametrize(
    ("name", "missing"), [("noisy", "b1"), ("noisy", "W2"), ("scales", "delta"), ("scales", "effect"), ("wide", "b3")]
)
def test_nothing_is_taken_from_the_prior(name, missing):
    model, idata = fixed(name)
    posterior = _compat.dataset_of(idata, "posterior").drop_vars(missing)
    with pytest.raises(ValueError, match=f"The posterior lacks '{missing}'"):
        pmg.predict({"posterior": posterior}, model, new_data(name))


def test_scales_of_priors_alone_are_not_needed():
    model, idata = fixed("scales")
    posterior = _compat.dataset_of(idata, "posterior").drop_vars(["lam", "spread"])
    found = pmg.predict({"posterior": posterior}, model, new_data("scales"), random_seed=1)
    xr.testing.assert_identical(found, pmg.predict(idata, model, new_data("scales"), random_seed=1))


def by_rows(**rows):
    """A noisy network with something that has a row for each row of the data."""
    with pm.Model() as model:
        inputs = pm.Data("X", X)
        a = pm.Normal("A2", inputs @ pm.Normal("W1", 0, 1, shape=(2, 3)), 0.3)
        mean = a @ pm.Normal("W2", 0, 1, shape=3)
        if "groups" in rows:
            mean = mean + pm.Normal("effect", 0, 1, shape=3)[rows["groups"]]
        if "effects" in rows:
            mean = mean + pm.Normal("effect", 0, 1, shape=9)
        if "process" in rows:
            mean = mean + pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(2, 1.0)).prior("f", X=inputs, reparameterize=False)
        if "rotated" in rows:
            mean = mean + pt.linalg.cholesky(inputs @ inputs.T + pt.eye(inputs.shape[0])) @ pm.Normal(
                "v", 0, 1, shape=inputs.shape[0]
            )
        if "centred" in rows:
            mean = mean + (inputs - inputs.mean(0))[:, 0]
        if "potential" in rows:
            pm.Potential("p", -(a[0, 0] ** 2))
        pm.Normal("y", mean, 0.1, observed=Y)
    return model


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"groups": GROUPS}, r"'y' at new inputs is not known: it depends on a constant of shape \(9,\)"),
        ({"effects": True}, "it depends on 'effect', which has a row for each row"),
        ({"process": True}, "The distribution of 'f' at new inputs is not known: one row of it depends on other rows"),
        ({"rotated": True}, "The distribution of 'y' at new inputs is not known: one row of it depends on other rows"),
        ({"centred": True}, "The distribution of 'y' at new inputs is not known: one row of it depends on other rows"),
        ({"potential": True}, r"The potential 'p' acts on \['A2'\]"),
    ],
)
@pytest.mark.parametrize("count", [4, 9])
def test_distributions_that_are_not_known_at_new_rows_are_refused(rows, message, count):
    model = by_rows(**rows)
    shapes = {"W1": (2, 3), "W2": (3,), "effect": (9 if "effects" in rows else 3,), "f": (9,), "v": (9,)}
    posterior = az.convert_to_dataset({name: RNG.normal(size=(2, 5, *shape)) for name, shape in shapes.items()})
    with pytest.raises(pmg.NetworkError, match=message):
        pmg.predict({"posterior": posterior}, model, np.resize(X_NEW, (count, 2)))


def test_inputs_without_pm_data():
    models = []
    for wrap in (lambda x: x, lambda x: pm.Data("X", x)):
        with pm.Model() as model:
            inputs = wrap(X)
            w, v = (pm.Normal(name, 0, 1, shape=(2, 3)) for name in ("W1", "V"))
            a = pm.Normal("A2", inputs @ w + pt.tanh(inputs @ v), 0.3)
            pm.Normal("y", a @ pm.Normal("W2", 0, 1, shape=3), 0.1, observed=Y)
        models.append(model)
    idata = prior_draws(models[0])
    found, expected = (pmg.predict(idata, model, X_NEW, random_seed=1) for model in models)
    xr.testing.assert_identical(found, expected)


def test_bad_arguments_are_refused():
    model, idata = fixed("scales")
    for given, message in [
        (X_NEW[:, :1], r"X_new must have shape \(m, 2\), rows like those of 'X'; found \(4, 1\)"),
        (np.full((3, 2), np.nan), "X_new holds 6 values that are NaN"),
        (X_NEW, "'y' at new inputs is not known: it depends on 'groups'"),
        ({"X": X_NEW, "groups": [0, 1]}, "same number of rows; found {'X': 4, 'groups': 2}"),
        ({"X": X_NEW, "groups": [0, 1, 1.5, 0]}, "groups must hold whole numbers"),
        ({"X": [[1.0, 2.0], [3.0]], "groups": [0, 1]}, "X must be an array; found lists of different lengths in it"),
        ({"Q": X_NEW}, r"names 'Q', but 'y' depends on the pm.Data \['X', 'groups'\]"),
        ({}, r"X_new must hold new rows of the pm.Data \['X', 'groups'\], by their names; found {}"),
    ]:
        with pytest.raises(ValueError, match=message):
            pmg.predict(idata, model, given)
    for wrong in ([2], "a", ["a", 0.5], [[0.1], [0.2, 0.3]]):
        with pytest.raises(ValueError, match="quantiles must be numbers from 0 to 1; found "):
            pmg.predict(idata, model, new_data("scales"), quantiles=wrong)
    with pytest.raises(ValueError, match="thin must be a positive integer; found 0"):
        pmg.predict(idata, model, new_data("scales"), thin=0)
    with pytest.raises(TypeError, match=r"found an array of shape \(4, 2\): new rows are given by their name, X_new="):
        pmg.predict(idata, X_NEW)
    with pytest.raises(TypeError, match="found none: give model=, or call this inside `with model:`"):
        pmg.predict(idata, X_new=X_NEW)
    posterior = _compat.dataset_of(idata, "posterior")
    other = posterior.drop_vars("W2").assign(W2=(("chain", "draw", "unit"), np.ones((CHAINS, DRAWS, 4))))
    with pytest.raises(ValueError, match=r"'W2' has shape \(4,\) in the posterior, but \(3,\) in the model"):
        pmg.predict({"posterior": other}, model, new_data("scales"))
    with pytest.raises(ValueError, match="'delta' in the posterior holds"):
        pmg.predict({"posterior": posterior.assign(delta=np.nan * posterior["delta"])}, model, new_data("scales"))
    with pm.Model() as two:
        w = pm.Normal("W", 0, 1, shape=2)
        for name in "uv":
            pm.Normal(name, pm.Data(f"X{name}", X) @ w, 1, observed=Y)
    idata = prior_draws(two)
    with pytest.raises(pmg.NetworkError, match="say which in name="):
        pmg.predict(idata, two, X_NEW)
    assert pmg.predict(idata, two, X_NEW, name="v")["mean"].shape == (4,)


SCRIPT = """
import sys
import warnings
import numpy as np
import xarray as xr
import pymc_gibbsnn as pmg

X, y, X_new = (np.load(sys.argv[1])[name] for name in ("X", "y", "X_new"))
posterior = xr.open_zarr(sys.argv[2], group="posterior", consolidated=False)
model = pmg.mlp(X, y, [3, 2], noise=0.5)
np.save(sys.argv[3], pmg.predict({"posterior": posterior}, model, X_new, random_seed=1)["mean"])
"""


@pytest.mark.slow
def test_a_posterior_read_from_a_file_in_another_process(tmp_path):
    """The same numbers as before, without the model's coordinates too."""
    pytest.importorskip("zarr")
    model, idata = fixed("noisy")
    expected = pmg.predict(idata, model, X_NEW, random_seed=1)
    arrays = {name: x.values for name, x in _compat.dataset_of(idata, "posterior").items()}
    bare = az.from_dict({"posterior": arrays}) if _compat.ARVIZ_1 else az.from_dict(posterior=arrays)
    xr.testing.assert_identical(pmg.predict(bare, model, X_NEW, random_seed=1), expected)
    data, file, out = (str(tmp_path / name) for name in ("data.npz", "idata.zarr", "mean.npy"))
    np.savez(data, X=X, y=np.c_[Y, -Y], X_new=X_NEW)
    _compat.dataset_of(idata, "posterior").to_zarr(file, group="posterior", consolidated=False)
    subprocess.run([sys.executable, "-c", SCRIPT, data, file, out], check=True)
    np.testing.assert_array_equal(np.load(out), expected["mean"])


def test_recorded_latents_are_warned_of_once():
    """By default PyMC records them, and its version 6 takes them for those of new rows."""
    quiet = {"tune": 2, "chains": 1, "cores": 1, "progressbar": False, "compute_convergence_checks": False}
    names = ["W1", "b1", "W2", "b2"]
    with pmg.mlp(X, Y, 2, noise=0.5, prior=None) as model:
        plain = {"compile_kwargs": {"mode": "AS_WRITTEN"}, **LEAN}
        step = pmg.GibbsNN(**plain)
        with pytest.warns(
            UserWarning, match=r"The latents Z2, A2 are recorded.*var_names=\['W1', 'b1', 'W2', 'b2'\]"
        ) as w:
            idata = pm.sample(5, step=step, random_seed=1, **quiet)
        [ours] = [one for one in w if "latents" in str(one.message)]
        assert ours.filename == __file__
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "The latents")
            pm.sample(5, step=step, random_seed=1, **quiet)
            named = pm.sample(5, step=pmg.GibbsNN(**plain), var_names=names, random_seed=1, **quiet)
    expected = pmg.predict(named, model, X_NEW, random_seed=1)
    xr.testing.assert_identical(pmg.predict(idata, model, X_NEW, random_seed=1), expected)


def test_a_model_that_holds_one_row():
    model = pmg.mlp(X[:1], Y[:1], 2, noise=0.3, prior="relevance")
    idata = prior_draws(model)
    expected = pmg.predict(idata, model, X[:1], random_seed=1)
    xr.testing.assert_equal(pmg.predict(idata, model, random_seed=1), expected)


@pytest.mark.parametrize("name", ["point", "quantile"])
def test_dimensions_of_outputs_with_the_names_of_other_axes(name):
    with pm.Model(coords={"row": np.arange(len(X)), name: [5, 6]}) as model:
        mean = pm.Data("X", X) @ pm.Normal("W", 0, 1, shape=(X.shape[1], 2))
        pm.Normal("y", mean, 1, observed=np.c_[Y, Y], dims=("row", name))
    found = pmg.predict(prior_draws(model), model, X[:2])
    assert found["mean"].dims == ("point", "output")


def test_numbers_of_groups_that_the_model_does_not_know():
    with pm.Model() as model:
        x, groups = pm.Data("X", X), pm.Data("groups", np.arange(len(X)) % 3)
        pm.Normal("y", x @ pm.Normal("W", 0, 1, shape=X.shape[1]) + pm.Normal("e", shape=3)[groups], 1, observed=Y)
    with pytest.raises(NetworkError, match=r"'y' at new .*: it cannot be computed there, index 7 is out"):
        pmg.predict(prior_draws(model), model, {"X": X[:2], "groups": [0, 7]})


def frame_of(*columns):
    return pd.DataFrame(X, columns=["a", "b"])[list(columns)]


@pytest.mark.parametrize(
    "ask", [pmg.predict, *map(slow, [pmg.log_predictive, pmg.function_space, pmg.summary, "continue_from"])]
)
def test_the_posterior_of_another_model_is_refused(ask):
    """Of the same names and shapes, but of other columns, or of these in another order, or of another width."""
    if ask == "continue_from":

        def ask(idata, model):
            return pmg.continue_from(idata, pmg.GibbsNN(model=model), tune=1, model=model)

    fitted = pmg.mlp(frame_of("a", "b"), Y, 3, noise=0.1, prior=None)
    idata = prior_draws(fitted)
    ask(idata, fitted)
    ask(idata, pmg.mlp(X, Y, 3, noise=0.1, prior=None))  # which names no columns
    with pytest.raises(ValueError, match=r"number 1 of its .* along 'feature' is a in the posterior, but b in"):
        ask(idata, pmg.mlp(frame_of("b", "a"), Y, 3, noise=0.1, prior=None))
    with pytest.raises(ValueError, match=r"number 2 of .* is b in the posterior, but z in the model. Build"):
        ask(idata, pmg.mlp(frame_of("a", "b").rename(columns={"b": "z"}), Y, 3, noise=0.1, prior=None))
    with pytest.raises(
        ValueError, match=r"has shape \(3,.*\) in the posterior, but \(4,.*\) in the model: they do not"
    ):
        ask(idata, pmg.mlp(frame_of("a", "b"), Y, 4, noise=0.1, prior=None))
    with pytest.raises(ValueError, match=r"idata must hold draws; its posterior has no draws. A run that tunes"):
        ask({"posterior": _compat.dataset_of(idata, "posterior").isel(draw=slice(0))}, fitted)


def test_coordinates_by_number_and_axes_in_another_order():
    model = pmg.mlp(X, Y, 3, noise=0.1, prior=None)
    posterior = _compat.dataset_of(prior_draws(model), "posterior")
    expected = pmg.function_space({"posterior": posterior}, model)["output"]
    turned = posterior.transpose("feature", "chain", "hidden_2", "draw")
    np.testing.assert_array_equal(pmg.function_space({"posterior": turned}, model)["output"], expected)
    with pytest.raises(ValueError, match=r"number 1 of its .* along 'feature' is 1 in the posterior, but 0 in"):
        pmg.predict({"posterior": posterior.isel(feature=[1, 0])}, model)


@pytest.mark.parametrize(
    ("names", "others"),
    [
        (pd.to_datetime(["2020-01-01", "2021-01-01"]), None),
        (np.array(["2020-01-01", "2021-01-01"], "datetime64[D]"), None),
        (pd.to_timedelta([1, 2], "D"), None),
        ([2020, 2021], [2020.0, 2021.0]),
        (np.array([0.1, 0.2], "float32"), [0.1, 0.2]),
        ([True, False], [1, 0]),
        (["a", "b"], [0, 1]),
        (["ä", 1], None),
    ],
)
def test_coordinates_that_are_the_same_in_another_dtype(names, others):
    def effects(names):
        with pm.Model(coords={"kind": names}) as model:
            inputs, kinds = pm.Data("X", X), pm.Data("kinds", GROUPS % 2)
            mean = inputs @ pm.Normal("w", shape=2) + pm.Normal("of_kind", dims="kind")[kinds]
            pm.Normal("y", mean, 1.0, observed=Y, shape=mean.shape)
        return model

    model = effects(names)
    posterior = _compat.dataset_of(prior_draws(model), "posterior")
    other = effects(names if others is None else others)
    expected, found = (pmg.predict({"posterior": posterior}, of, random_seed=1)["mean"] for of in (model, other))
    np.testing.assert_array_equal(found, expected)


def test_labels_of_rows_do_not_matter_to_latents():
    def with_latents(labels):
        with pm.Model(coords={"row": labels, "unit": range(3)}) as model:
            z = pm.Normal("Z2", pm.Data("X", X) @ pm.Normal("W1", shape=(3, 2)).T, 0.5, dims=("row", "unit"))
            a = pm.Normal("A2", pt.maximum(z, 0), 0.5, dims=("row", "unit"))
            pm.Normal("y", a @ pm.Normal("W2", shape=3), 0.5, observed=Y)
        return model

    first, second = with_latents([*"abcdefghi"]), with_latents([*"ABCDEFGHI"])
    values = {rv.name: pm.draw(rv, 4, random_seed=1, mode="AS_WRITTEN")[None] for rv in first.free_RVs}
    idata = {"posterior": _compat.dataset(first, values, 0)}
    start = pmg.continue_from(idata, pmg.GibbsNN(model=second), tune=1, model=second)["initvals"][0]
    np.testing.assert_array_equal(start["Z2"], values["Z2"][0, -1])


def test_groups_that_are_not_known_are_refused():
    """pandas writes -1 for them, by which NumPy would take the last group."""
    model = with_learned_scales()
    idata = prior_draws(model)
    pmg.predict(idata, model, {"X": X_NEW, "groups": [0, 1, 2, 2]})
    with pytest.raises(ValueError, match="groups holds -1, but 'groups' is an index, of groups, say"):
        pmg.predict(idata, model, {"X": X_NEW, "groups": [0, 1, 2, -1]})
    with pm.Model() as counted:  # whole numbers from which indices are only computed
        counts = pm.Data("counts", np.c_[np.abs(np.arange(9) - 4), GROUPS])
        of_group, kind = pm.Normal("of_group", shape=3), pt.cast(counts[:, 0] > 2, "int64")
        mean = pm.Normal("w") * counts[:, 0] + of_group[counts[:, 1]] + of_group[kind]
        pm.Normal("y", mean, 1.0, observed=Y, shape=mean.shape)
    pmg.predict(prior_draws(counted), counted, {"counts": [[-1, 0], [2, 1]]})


def test_weights_that_are_observed_are_taken_from_the_data():
    model = pm.observe(pmg.mlp(X, Y, 3, noise=0.1, prior=None), {"b1": np.array([1.0, 2.0, 3.0])})
    idata = prior_draws(model)
    posterior = _compat.dataset_of(idata, "posterior")
    full = posterior.assign(b1=(("chain", "draw", "hidden_2"), np.tile([1.0, 2.0, 3.0], (CHAINS, DRAWS, 1))))
    expected = pmg.predict({"posterior": full}, pmg.mlp(X, Y, 3, noise=0.1, prior=None), X_NEW, random_seed=1)
    found = pmg.predict(idata, model, X_NEW, name="y", random_seed=1)
    np.testing.assert_allclose(found["mean"], expected["mean"], atol=1e-7)  # one of them in single precision


@pytest.mark.parametrize(
    "make", [pmg.mlp, pmg.wide_mlp, partial(pmg.classical_mlp, likelihood="normal")], ids=["mlp", "wide", "classical"]
)
def test_rows_with_the_same_labels_in_another_order_are_refused(make):
    frame, y = frame_of("a", "b"), pd.Series(Y)
    for right in (y, y.iloc[::-1].to_numpy(), y.set_axis(range(9, 18)), y.set_axis([*"abcdefghi"])):
        make(frame, right, 3)
    make(frame.set_axis([0, *range(8)]), y.set_axis([*range(8), 7]), 3)  # of which neither is an order of the other
    with pytest.raises(
        ValueError,
        match=r"rows of y have the labels of those of X in another order. .* give y.loc\[X.index\]; if",
    ):
        make(frame, y.iloc[::-1], 3)


DATES = pd.date_range("2020-01-01", periods=9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X.drop([2, 5]), y), "2, 5 in y alone. .* give both with the same ones, y.loc"),
        (lambda X, y: (X.iloc[1:], y.shift(-1).dropna()), "0 in y alone; 8 in X alone"),
        (lambda X, y: (X.set_axis(DATES).iloc[1:], y.set_axis(DATES).shift(-1).dropna()), "2020-01-01 .* in y alone"),
        (
            lambda X, y: (X.set_axis([*"abcdefghi"]), y.set_axis(DATES)),
            "and 6 more in y alone; a, b, c and 6 more in X",
        ),
        (lambda X, y: (X, y.to_frame().iloc[:-1].set_axis(range(1, 9))), "0 in X alone"),
    ],
    ids=["filtered", "shifted", "shifted dates", "others", "fewer"],
)
def test_rows_with_other_labels_are_refused(change, message):
    frame, y = change(frame_of("a", "b"), pd.Series(Y))
    with pytest.raises(ValueError, match=f"rows of y have other labels than those of X: .*{message}"):
        pmg.mlp(frame, y, 3, noise=0.1, prior=None)


def test_rows_that_are_only_counted_go_with_any_labels():
    """As those of a frame that a scaler has made of some rows, or of targets whose labels were dropped."""
    shuffled = np.random.default_rng(0).permutation(20)[:9]
    for labels, others in [(range(9), shuffled), (shuffled, range(9)), (range(9), DATES), (shuffled, shuffled)]:
        pmg.mlp(frame_of("a", "b").set_axis(labels), pd.Series(Y).set_axis(others), 3, noise=0.1, prior=None)


NORMAL = np.random.default_rng(5).normal(size=(9, 2))


@pytest.mark.parametrize("ask", [pmg.predict, pmg.function_space])
def test_new_rows_in_other_units_are_warned_of_once(ask):
    model = pmg.mlp(pd.DataFrame(NORMAL, columns=["a", "b"]), Y, 3, noise=0.1, prior=None)
    idata, other = prior_draws(model), pd.DataFrame(NORMAL * [1, 100], columns=["a", "b"])
    with pytest.warns(UserWarning, match="Column 'b' of X_new is on average .* standard deviations") as found:
        ask(idata, model, X_new=other)
    assert [warning.filename for warning in found] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask(idata, model, X_new=2 * NORMAL)
        ask(idata, model)


def test_single_rows_that_are_far_away_are_told_in_one_warning():
    model = pmg.mlp(pd.DataFrame(NORMAL, columns=["a", "b"]), Y, 3, noise=0.1, prior=None)
    idata, many = prior_draws(model), np.random.default_rng(6).normal(size=(200, 2))
    for far, count in [({7: 50.0}, 1), ({7: 40.0, 9: -50.0, 11: 30.0}, 3)]:
        rows = many.copy()
        rows[list(far), 1] = list(far.values())
        [row] = [i for i, value in far.items() if abs(value) == 50]
        frame = pd.DataFrame(rows, columns=["a", "b"])
        message = rf"{count} of the 200 rows of X_new lie far .* row {row}, column 'b' is {far[row]:.0f}, and the data"
        for ask in (pmg.predict, pmg.function_space):
            with pytest.warns(UserWarning, match=message) as found:
                ask(idata, model, frame)
            assert [warning.filename for warning in found] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pmg.predict(idata, model, many)


@pytest.mark.parametrize("draw", ["normal", "exponential", "uniform"])
def test_test_sets_of_the_same_distribution_are_not_warned_of(draw):
    rng = np.random.default_rng(8)
    x, new = (getattr(rng, draw)(size=(n, 20)) for n in (100, 10_000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_rows("X_new", new, x, new, 2)
        warn_of_rows("X_new", new[:, 0], np.zeros(100), new[:, 0], 2)  # a column without a scale


def test_new_targets_and_images_in_other_units_are_warned_of():
    model = pmg.mlp(NORMAL, NORMAL[:, 0], 3, noise=0.1, prior=None)
    with pytest.warns(UserWarning, match="^y_new is on average") as found:
        pmg.log_predictive(prior_draws(model), model, NORMAL, 100 * NORMAL[:, 0])
    assert [warning.filename for warning in found] == [__file__]
    images = np.random.default_rng(1).random((9, 4, 4))
    model = pmg.cnn(images, Y, 2, noise=0.1, prior=None)
    with pytest.warns(UserWarning, match="^X_new is on average"):
        pmg.predict(prior_draws(model), model, 255 * images)


def test_rows_of_new_data_in_another_order_are_refused():
    model = pmg.mlp(frame_of("a", "b"), Y, 3, noise=0.1, prior=None)
    with pytest.raises(ValueError, match=r"rows of y_new have the labels of those of X_new in another order"):
        pmg.log_predictive(prior_draws(model), model, frame_of("a", "b"), pd.Series(Y)[::-1])


def test_columns_whose_names_are_no_strings():
    years = (2020, 2021)
    for names, written in [(years, years), (pd.to_datetime(["2020", "2021"]), None), ([(1, 2), (1, 3)], None)]:
        frame = pd.DataFrame(X[:, :2], columns=names)
        model = pmg.mlp(frame, Y, [], noise=1, prior=None)
        assert model.coords["feature"] == (written or tuple(map(str, frame.columns)))
        idata = prior_draws(model)
        pmg.predict(idata, model, frame)
        with pytest.raises(ValueError, match="columns of X_new must be those of the data"):
            pmg.predict(idata, model, frame.iloc[:, ::-1])
    model = pmg.mlp(X[:, :2], Y, [], noise=1, prior=None)
    for columns, allowed in ([0, 1], True), (["a", "b"], True), ([1, 0], False):
        frame = pd.DataFrame(X[:, :2], columns=columns)
        if allowed:
            pmg.predict(idata, model, frame)
        else:
            with pytest.raises(ValueError, match="columns of X_new"):
                pmg.predict(idata, model, frame)


@pytest.mark.parametrize("names", [pd.to_datetime(["2020", "2021"]), [0.5, 1.5], ["a", "b"], [7, 8]])
def test_a_model_by_hand_takes_its_own_frame(names):
    frame = pd.DataFrame(X[:, :2], columns=names)
    with pm.Model(coords={"row": np.arange(len(X)), "feature": list(frame.columns)}) as model:
        x = pm.Data("X", frame.to_numpy(), dims=("row", "feature"))
        pm.Normal("y", x @ pm.Normal("W", 0, 1, shape=2), 1, observed=Y)
    idata = prior_draws(model)
    xr.testing.assert_equal(
        pmg.predict(idata, model, frame, random_seed=1), pmg.predict(idata, model, X[:, :2], random_seed=1)
    )


def by_hand(observe) -> tuple[dict, pm.Model]:
    """A posterior of weights w and v, and the model that ``observe(w, v)`` makes."""
    with pm.Model() as model:
        observe(pm.Normal("w", shape=2), pm.Normal("v", shape=2))
    draws = {
        name: (("chain", "draw", "k"), np.random.default_rng(i).normal(size=(2, 5, 2))) for i, name in enumerate("wv")
    }
    return {"posterior": xr.Dataset(draws)}, model


def test_inputs_of_mean_and_scale_are_one_array():
    """Constants that are equal are replaced together, wherever they stand."""
    x = np.random.default_rng(3).normal(size=(12, 2))
    idata, model = by_hand(lambda w, v: pm.Normal("y", x @ w, pt.exp(x @ v), observed=x[:, 0]))
    new = pmg.log_predictive(idata, model, x[:4], x[:4, 0])["log_density"].values
    np.testing.assert_allclose(new, pmg.log_predictive(idata, model)["log_density"].values[:4])


@pytest.mark.parametrize("as_data", [False, True])
def test_the_models_own_rows_of_several_arrays(as_data):
    """Inputs that are vectors, and a second matrix beside the inputs, are no question as long as rows stay the same."""
    x = np.random.default_rng(3).normal(size=(12, 2))
    keep = pm.Data if as_data else lambda name, x: x
    idata, model = by_hand(
        lambda w, v: pm.Normal(
            "y", keep("a", x[:, 0]) * w[0] + keep("b", x[:, 1]) * w[1], 1 + x[:, 0] ** 2, observed=x[:, 0]
        )
    )
    assert pmg.predict(idata, model)["mean"].shape == (12,)
    idata, model = by_hand(lambda w, v: pm.Normal("y", x @ w, pt.exp((x**2) @ v), observed=x[:, 0]))
    assert pmg.predict(idata, model)["mean"].shape == (12,)


def test_several_vectors_may_be_set_to_other_rows():
    x = np.random.default_rng(3).normal(size=(12, 2))
    idata, model = by_hand(
        lambda w, v: pm.Normal("y", pm.Data("a", x[:, 0]) * w[0] + pm.Data("b", x[:, 1]) * w[1], 0.5, observed=x[:, 0])
    )
    expected = pmg.predict(idata, model, samples=True, random_seed=1)["mean"].values[:5]
    pm.set_data({"a": x[:5, 0], "b": x[:5, 1]}, model=model)
    assert pmg.predict(idata, model)["mean"].shape == expected.shape
    pm.set_data({"b": x[:4, 1]}, model=model)
    with pytest.raises(pmg.NetworkError, match=r"must be one array, best a pm.Data; found \['b', 'a'\]"):
        pmg.predict(idata, model)


def test_what_is_not_drawn_anew_may_have_a_prior_that_is_nan_there():
    x = np.random.default_rng(3).random((12, 2))
    with pm.Model() as model:
        inputs = pm.Data("X", x)
        pm.Normal("y", inputs @ pm.Normal("w", 0, pt.sqrt(inputs.mean()), shape=2), 0.5, observed=x[:, 0])
    idata = {"posterior": xr.Dataset({"w": (("chain", "draw", "k"), np.ones((2, 5, 2)))})}
    assert np.isfinite(pmg.predict(idata, model, -x)["mean"]).all()


def test_columns_that_are_missing_or_unknown_are_named():
    frame = pd.DataFrame(X, columns=["age", "height"])
    model = pmg.mlp(frame, Y, 3, noise=0.1, prior=None)
    idata = prior_draws(model)
    for new, found in [
        (frame[["height", "age"]], r"found \['height', 'age'\]"),
        (frame[["age"]], r"it lacks \['height'\]"),
        (frame.assign(weight=1.0), r"it has \['weight'\] beside"),
        (frame.rename(columns={"age": "Age"}), r"it lacks \['age'\] and it has \['Age'\] beside"),
    ]:
        with pytest.raises(ValueError, match=rf"\['age', 'height'\], in this order; {found}\."):
            pmg.predict(idata, model, new)


def test_every_thinth_draw():
    model, idata = fixed("noisy")
    some = {"posterior": _compat.dataset_of(idata, "posterior").isel(draw=slice(None, None, 7))}
    found = pmg.predict(idata, model, X_NEW, thin=7, samples=True, random_seed=1)
    xr.testing.assert_identical(found, pmg.predict(some, model, X_NEW, samples=True, random_seed=1))
    for read in (pmg.log_predictive, lambda *data, **options: pmg.function_space(*data[:3], thin=options["thin"])):
        new = read(idata, model, X_NEW, np.zeros((4, 2)), thin=7)
        assert new.sizes["draw"] == some["posterior"].sizes["draw"]


def test_probabilities_of_one_of_several_labels():
    with pm.Model() as model:
        f = pm.Data("X", X) @ pm.Normal("w", 0, 1, shape=2)
        for name, sign in (("y", 1), ("v", -1)):
            pm.Bernoulli(name, logit_p=sign * f, observed=GROUPS == 0)
    idata = prior_draws(model)
    draws = _compat.dataset_of(idata, "posterior")["w"].values[:, ::5]
    found = pmg.class_probabilities(idata, model, X_NEW, name="v", thin=5)
    np.testing.assert_allclose(found[..., 1], (1 / (1 + np.exp(np.einsum("nj,cdj->cdn", X_NEW, draws)))).mean(1))
    with pytest.raises(pmg.NetworkError, match="say which in name="):
        pmg.class_probabilities(idata, model, X_NEW)


COMPOSED = {  # how y is observed, its mean, and the log density of y = 1
    "Weibull": (
        lambda f: pm.Weibull("y", 1, pm.math.exp(f), observed=np.exp(Y)),
        np.exp,
        lambda f: -f - np.exp(-f),
    ),
    "ZeroInflatedPoisson": (
        lambda f: pm.ZeroInflatedPoisson("y", 0.5, pm.math.exp(f), observed=GROUPS),
        lambda f: np.exp(f) / 2,
        lambda f: np.log(0.5) + poisson.logpmf(1, np.exp(f)),
    ),
    "NormalMixture": (
        lambda f: pm.NormalMixture("y", [0.25, 0.75], pm.math.stack([f, -f], axis=1), 1, observed=Y),
        lambda f: -f / 2,
        lambda f: np.log(0.25 * norm.pdf(1, f) + 0.75 * norm.pdf(1, -f)),
    ),
    "Censored": (
        lambda f: pm.Censored("y", pm.Normal.dist(f, 1), lower=None, upper=100.0, observed=Y),
        lambda f: f,
        lambda f: norm.logpdf(1, f),
    ),
    "Truncated": (
        lambda f: pm.Truncated("y", pm.Exponential.dist(pm.math.exp(f)), lower=0.5, observed=np.full(len(Y), 1.0)),
        lambda f: 0.5 + np.exp(-f),
        lambda f: f - np.exp(f) / 2,
    ),
    "HurdlePoisson": (
        lambda f: pm.HurdlePoisson("y", 0.5, pm.math.exp(f), observed=GROUPS),
        lambda f: np.exp(f) / (1 - np.exp(-np.exp(f))) / 2,
        lambda f: np.log(0.5) + poisson.logpmf(1, np.exp(f)) - np.log1p(-np.exp(-np.exp(f))),
    ),
}


@pytest.mark.parametrize("likelihood", COMPOSED)
def test_distributions_that_pymc_builds_of_others(likelihood):
    observe, mean, log_density = COMPOSED[likelihood]
    with pm.Model() as model:
        observe(pm.Data("X", X) @ pm.Normal("w", 0, 0.3, shape=2))
    idata = prior_draws(model)
    f = np.einsum("nj,cdj->cdn", X_NEW, _compat.dataset_of(idata, "posterior")["w"].values)
    y = pmg.predict(idata, model, X_NEW, samples=True, random_seed=1)["samples"].values
    residual = (y - mean(f)).reshape(-1, 4)
    assert (abs(residual.mean(0)) < 5 * residual.std(0) / np.sqrt(len(residual))).all()
    assert residual.std(0).min() > 0
    found = pmg.log_predictive(idata, model, X_NEW, np.ones(4, int))
    np.testing.assert_allclose(found["log_likelihood"], log_density(f), rtol=1e-6)


def test_bounds_of_new_rows_may_be_infinite():
    """As those of the data may; the row without bounds has the density of what is not censored."""
    x, y = np.linspace(-1, 1, 8)[:, None], np.linspace(-1, 1, 8)
    model = pmg.mlp(x, y, 2, likelihood="normal", noise=0.5, prior=None, upper=np.r_[np.full(7, 5.0), np.inf])
    draws = {rv.name: np.full((1, 2, *rv.shape.eval()), 0.5) for rv in model.free_RVs if rv.name[0] in "Wb"}
    posterior = {"posterior": az.convert_to_dataset(draws)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "sd_epistemic is 0")  # all draws are the same
        pmg.predict(posterior, model)
        new = {"X": x[[0, 0, 0]], "upper": [np.inf, 7.0, 0.0]}
        output = pmg.function_space(posterior, model, new)["output"].values
        density = pmg.log_predictive(posterior, model, new, np.zeros(3), random_seed=1)["log_likelihood"].values
    np.testing.assert_allclose(output, output[0, 0, 0])
    assert np.all(density[..., 2] > density[..., 0])  # a mass, not a density
    with pytest.raises(ValueError, match="upper holds 1 values that are NaN"):
        pmg.predict(posterior, model, {"X": x[:2], "upper": [np.nan, 1.0]})

from functools import partial

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_gibbsnn as pmg
from pymc_gibbsnn.prediction import function, new_rows
from pymc_gibbsnn.prediction.function import forward
from tests.helpers import slow

RNG = np.random.default_rng(0)
X = RNG.normal(size=(9, 2))


def posterior(**shapes):
    dims = {name: ("chain", "draw", *(f"{name}_{i}" for i in range(len(shape)))) for name, shape in shapes.items()}
    values = {name: (dims[name], RNG.normal(size=(2, 20, *shape))) for name, shape in shapes.items()}
    return {"posterior": xr.Dataset(values, coords={"chain": [0, 1], "draw": np.arange(20)})}


def test_norms_of_a_noisy_network():
    idata = posterior(W1=(3, 2), b1=(3,), W2=(3,), b2=())
    space = pmg.function_space(idata, pmg.mlp(X, X[:, 0], 3, noise=0.1, prior=None), X[:4])
    w = {name: v.values for name, v in idata["posterior"].items()}
    units = np.sort((w["W1"] ** 2).sum(-1) + w["b1"] ** 2)
    np.testing.assert_allclose(space["unit_norm_W1"], units)
    np.testing.assert_allclose(space["norm"][..., 0], units.sum(-1))
    np.testing.assert_allclose(space["norm"][..., 1], (w["W2"] ** 2).sum(-1) + w["b2"] ** 2)
    assert "unit_norm_W2" not in space
    order = [2, 0, 1]  # a symmetry of the network
    swapped = {"W1": w["W1"][:, :, order], "b1": w["b1"][:, :, order], "W2": w["W2"][:, :, order], "b2": w["b2"]}
    swapped = {"posterior": idata["posterior"].copy(data=swapped)}
    xr.testing.assert_allclose(pmg.function_space(swapped, pmg.mlp(X, X[:, 0], 3, noise=0.1, prior=None), X[:4]), space)


def test_a_deterministic_network_for_arviz():
    with pm.Model() as model:
        inputs = pm.Data("X", X)
        w, v = pm.Normal("W", 0, 1, shape=(2, 3)), pm.Normal("V", 0, 1, shape=3)
        f = pm.Deterministic("f", pm.math.tanh(inputs @ w) @ v)
        pm.Normal("y", f, pm.HalfNormal("sigma"), observed=X[:, 0])
    idata = posterior(W=(2, 3), V=(3,), sigma=())
    new = RNG.normal(size=(5, 2))
    space = pmg.function_space(idata, model, new)
    w, v = (idata["posterior"][name].values for name in "WV")
    np.testing.assert_allclose(space["output"], (np.tanh(new @ w) @ v[..., None])[..., 0])
    np.testing.assert_allclose(space["norm"].sel(parameter="V"), (v**2).sum(-1))
    assert pmg.function_space(idata, model)["output"].shape == (2, 20, 9)
    np.testing.assert_array_equal(model["X"].get_value(), X)
    assert len(az.summary(space)) == 7
    assert np.isfinite(az.rhat(space)["output"].values).all()
    with pytest.raises(ValueError, match="rows like those of 'X'"):
        pmg.function_space(idata, model, new[:, :1])
    with pytest.raises(ValueError, match="lacks 'V'"):
        pmg.function_space({"posterior": idata["posterior"].drop_vars("V")}, model)


@pytest.mark.parametrize("new", [1.9, 300, -1, 1e30])
def test_whole_numbers_are_replaced_by_what_their_dtype_holds(new):
    with pm.Model() as model:
        x = pm.Data("X", np.ones((9, 2), "uint8"))
        pm.Poisson("y", pm.math.exp(x @ pm.Normal("w", 0, 1, shape=2)), observed=np.ones(9, int))
    idata = posterior(w=(2,))
    for evaluate in (lambda x: pmg.function_space(idata, model, x), lambda x: pmg.predict(idata, model, x)):
        evaluate(np.full((3, 2), 2.0))
        with pytest.raises(ValueError, match="X_new must hold whole numbers that uint8 can hold, the dtype of 'X'"):
            evaluate(np.full((3, 2), new))


def test_models_without_a_function_are_refused():
    def labels_inside():
        inputs = pm.Data("X", X)
        s = pm.Bernoulli("s", logit_p=inputs @ pm.Normal("W", 0, 1, shape=2))
        pm.Normal("y", s, 1, observed=X[:, 0])

    def without_a_mean():
        pm.Cauchy("y", pm.Data("X", X) @ pm.Normal("W", 0, 1, shape=2), 1, observed=X[:, 0])

    for build, message in [
        (lambda: pm.Normal("x"), "observes \\[\\]"),
        (labels_inside, "'s' depends on the inputs and is no Normal"),
        (without_a_mean, "mean of 'y', which is not known: The mean of the Cauchy"),
    ]:
        with pm.Model() as model:
            build()
        with pytest.raises(pmg.NetworkError, match=message):
            pmg.function_space(posterior(W=(2,)), model)


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_function_of_a_network_whose_data_have_changed(by_hand):
    """The targets still have nine rows when the inputs have four: the network is the same, and so is its function."""
    idata = posterior(W1=(3, 2), b1=(3,), W2=(3,), b2=())
    if by_hand:
        with pm.Model(coords={"row": np.arange(9)}) as model:
            inputs = pm.Data("X", X)
            b1 = pm.Normal("b1", 0, 1, shape=3)
            z = pm.Normal("Z2", inputs @ pm.Normal("W1", 0, 1, shape=(3, 2)).T + b1, 0.1)
            a = pm.Normal("A2", pm.math.maximum(z, 0), 0.1)
            mean = a @ pm.Normal("W2", 0, 1, shape=3) + pm.Normal("b2", 0, 1)
            pm.Normal("y", mean, 0.1, observed=X[:, 0], dims="row")
    else:
        model = pmg.mlp(X, X[:, 0], 3, noise=0.1, prior=None)
    expected = pmg.function_space(idata, model, X[:4])
    assert "unit_norm_W1" in expected
    model.set_data("X", X[:4])
    xr.testing.assert_identical(pmg.function_space(idata, model), expected)
    xr.testing.assert_identical(pmg.function_space(idata, model, X[:4]), expected)
    with pytest.raises(pmg.NetworkError, match="shape"):
        pmg.GibbsNN(model=model, compile_kwargs={"mode": "AS_WRITTEN"})
    model.set_data("X", X)
    pmg.GibbsNN(model=model, compile_kwargs={"mode": "AS_WRITTEN"})


def test_a_model_whose_posterior_prediction_was_drawn_is_read_as_before():
    idata = posterior(W1=(3, 2), b1=(3,), W2=(3,), b2=())
    model = pmg.mlp(X, X[:, 0], 3, noise=0.1, prior=None)
    expected = pmg.function_space(idata, model)
    model.observed_RVs.append(model["y"])  # as PyMC 5.28 does
    xr.testing.assert_identical(pmg.function_space(idata, model), expected)


def test_columns_of_new_inputs_are_those_of_the_data():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 2)), columns=["a", "b"])
    for build in (pmg.mlp, partial(pmg.classical_mlp, likelihood="normal")):
        model = build(frame, frame["a"], 3)
        shapes = {rv.name: rv.shape.eval() for rv in model.free_RVs}
        idata = {"posterior": xr.Dataset({
            name: (("chain", "draw", *(f"{name}_{i}" for i in range(len(shape)))), np.ones((1, 4, *shape)))
            for name, shape in shapes.items() if name[0] in "Wb"
        })}  # fmt: skip
        pmg.function_space(idata, model, frame)
        for read in (pmg.function_space, pmg.summary):
            with pytest.raises(ValueError, match="columns of X_new must be those of the data"):
                read(idata, model, frame[["b", "a"]])


# Models that predict takes

N = 60  # more rows than summary takes
MANY, GROUPS = np.random.default_rng(1).normal(size=(N, 2)), np.arange(N) % 3
REAL = np.sin(MANY[:, 0])
POSITIVE, UNIT = np.exp(REAL), np.full(N, 0.5)


def both(f):
    return pm.math.stack([f, -f], axis=1)


MEANS = {
    "NegativeBinomial": (lambda f: pm.NegativeBinomial("y", mu=pm.math.exp(f), alpha=2, observed=GROUPS), np.exp),
    "Beta": (lambda f: pm.Beta("y", mu=pm.math.sigmoid(f), nu=3, observed=UNIT), lambda f: 1 / (1 + np.exp(-f))),
    "LogNormal": (lambda f: pm.LogNormal("y", f, 1, observed=POSITIVE), lambda f: np.exp(f + 0.5)),
    "Weibull": (lambda f: pm.Weibull("y", 1, pm.math.exp(f), observed=POSITIVE), np.exp),
    "ZeroInflatedPoisson": (
        lambda f: pm.ZeroInflatedPoisson("y", 0.5, pm.math.exp(f), observed=GROUPS),
        lambda f: np.exp(f) / 2,
    ),
    "MvNormal": (
        lambda f: pm.MvNormal("y", both(f), np.eye(2), observed=np.c_[REAL, -REAL]),
        lambda f: np.stack([f, -f], axis=-1),
    ),
    "NormalMixture": (lambda f: pm.NormalMixture("y", [0.25, 0.75], both(f), 1, observed=REAL), lambda f: -f / 2),
    # Those of which PyMC does not know the mean: without their bounds.
    "Censored": (
        lambda f: pm.Censored("y", pm.LogNormal.dist(f, 1), lower=None, upper=2.0, observed=np.minimum(POSITIVE, 2)),
        lambda f: np.exp(f + 0.5),
    ),
    "Truncated": (
        lambda f: pm.Truncated("y", pm.Gamma.dist(2, pm.math.exp(f)), lower=0.1, upper=4, observed=POSITIVE),
        lambda f: 2 * np.exp(-f),
    ),
    "HurdlePoisson": (
        lambda f: pm.HurdlePoisson("y", psi=0.3, mu=pm.math.exp(f), observed=GROUPS),
        lambda f: 0.3 * np.exp(f),
    ),
    "HurdleGamma": (
        lambda f: pm.HurdleGamma("y", psi=0.3, mu=pm.math.exp(f), sigma=2, observed=np.where(GROUPS > 0, POSITIVE, 0)),
        lambda f: 0.3 * np.exp(f),
    ),
}


def linear(draws, x=MANY):
    """The function x @ w (chain, draw, row) of a posterior."""
    return np.einsum("nj,cdj->cdn", x, draws["posterior"]["w"].values)


@pytest.mark.parametrize("likelihood", [slow(x) if x.startswith("Hurdle") else x for x in MEANS])
def test_the_mean_of_any_likelihood_at_new_rows_and_at_some_of_its_own(likelihood):
    observe, mean = MEANS[likelihood]
    with pm.Model() as model:
        observe(pm.Data("X", MANY) @ pm.Normal("w", 0, 1, shape=2))
    idata = posterior(w=(2,))
    f = linear(idata)
    np.testing.assert_allclose(pmg.function_space(idata, model, MANY[:4])["output"], mean(f[..., :4]))
    table = pmg.summary(idata, model)
    rows = np.linspace(0, N - 1, 50).astype(int)
    assert table.loc["output", "numbers"] == mean(f[..., rows])[0, 0].size
    assert table.loc["output", "mean"] == pytest.approx(mean(f[..., rows]).mean())


def test_several_data_are_given_by_their_names():
    with pm.Model() as model:
        effect = pm.Normal("effect", 0, 1, shape=3)[pm.Data("groups", GROUPS)]
        f = pm.math.tanh(pm.Data("X", MANY) @ pm.Normal("w", 0, 1, shape=2))
        pm.Normal("y", f + effect, 1, observed=REAL)
    idata = posterior(w=(2,), effect=(3,))
    new = {"X": MANY[:4] + 1, "groups": [2, 2, 0, 1]}
    effects = idata["posterior"]["effect"].values
    space = pmg.function_space(idata, model, new)
    np.testing.assert_allclose(space["output"], np.tanh(linear(idata, new["X"])) + effects[..., new["groups"]])
    np.testing.assert_allclose(
        pmg.function_space(idata, model)["output"], np.tanh(linear(idata)) + effects[..., GROUPS]
    )
    assert pmg.summary(idata, model, new).loc["output", "numbers"] == 4
    assert pmg.summary(idata, model).loc["output", "numbers"] == 50


@pytest.mark.parametrize("noisy", [slow(False), True])
def test_one_of_several_observed_variables_is_named(noisy):
    with pm.Model() as model:
        inputs = pm.Data("X", MANY)
        for name, sign in (("y", 1), ("v", -1)):
            w = pm.Normal(f"w_{name}", 0, 1, shape=2)
            if noisy:
                a = pm.Normal(f"A_{name}", pm.math.tanh(pm.Normal(f"Z_{name}", inputs @ w[:, None], 0.1)), 0.1)
                pm.Normal(name, a @ pm.Normal(f"u_{name}", 0, 1, shape=1), 0.1, observed=REAL)
            else:
                pm.Normal(name, sign * (inputs @ w), 1, observed=REAL)
    idata = posterior(w_y=(2,), w_v=(2,), u_y=(1,), u_v=(1,))
    with pytest.raises(pmg.NetworkError, match=r"observes \['y', 'v'\]: say which in name="):
        pmg.function_space(idata, model)
    with pytest.raises(pmg.NetworkError, match="'x' is not among them"):
        pmg.function_space(idata, model, name="x")
    w, u = (idata["posterior"][name].values for name in ("w_v", "u_v"))
    f = np.einsum("nj,cdj->cdn", MANY[:4], w)
    expected = np.tanh(f) * u if noisy else -f
    np.testing.assert_allclose(pmg.function_space(idata, model, MANY[:4], name="v")["output"], expected)
    assert pmg.summary(idata, model, name="v").loc["output", "numbers"] == 50


def test_minibatches_are_read_as_all_rows():
    model = pmg.classical_mlp(MANY, REAL, 3, likelihood="normal", batch_size=10, total_size=N)
    whole = pmg.classical_mlp(MANY, REAL, 3, likelihood="normal")
    idata = posterior(W1=(3, 2), b1=(3,), W2=(3,), b2=())
    for new in (None, MANY[:4]):
        xr.testing.assert_allclose(pmg.function_space(idata, model, new), pmg.function_space(idata, whole, new))
    assert pmg.summary(idata, model).loc["output", "numbers"] == 50


@pytest.mark.filterwarnings("ignore:Data in y contains missing values")
@pytest.mark.parametrize("columns", [1, 2])
def test_rows_whose_targets_are_missing_are_rows_like_others(columns):
    y = np.c_[REAL, -REAL][:, :columns].squeeze()
    y[3] = np.nan
    with pm.Model() as model:
        w = pm.Normal("w", 0, 1, shape=2)
        f = pm.Data("X", MANY) @ w
        pm.Normal("y", f if columns == 1 else both(f), pm.HalfNormal("sigma"), observed=y)
    idata = posterior(w=(2,), sigma=())
    idata["posterior"]["sigma"] = abs(idata["posterior"]["sigma"])
    f = linear(idata)[..., None] * [1, -1] if columns == 2 else linear(idata)
    np.testing.assert_allclose(pmg.function_space(idata, model)["output"], f)
    np.testing.assert_allclose(pmg.function_space(idata, model, MANY[:4])["output"], f[:, :, :4])
    np.testing.assert_allclose(pmg.predict(idata, model, MANY[:4])["mean"], f[:, :, :4].mean((0, 1)))
    assert pmg.log_predictive(idata, model, MANY[:4], y[-4:])["log_density"].shape == (4,)
    with pytest.raises(ValueError, match="'y' has missing values: give X_new and y_new"):
        pmg.log_predictive(idata, model)


def test_rows_that_depend_on_each_other_are_read_together():
    """At the model's own rows the function is known, whatever they have to do with each other."""
    with pm.Model() as model:
        inputs = pm.Data("X", MANY)
        f = (inputs - inputs.mean(0)) @ pm.Normal("w", 0, 1, shape=inputs.shape[1]) + pm.Normal("u", 0, 1, shape=N)
        pm.NegativeBinomial("y", mu=pm.math.exp(f), alpha=2, observed=GROUPS)
    idata = posterior(w=(2,), u=(N,))
    expected = np.exp(linear(idata, MANY - MANY.mean(0)) + idata["posterior"]["u"].values)
    np.testing.assert_allclose(pmg.function_space(idata, model)["output"], expected)
    assert pmg.summary(idata, model).loc["output", "numbers"] == 50
    with pytest.raises(pmg.NetworkError, match="'y' at new inputs is not known: it depends on 'u'"):
        pmg.function_space(idata, model, MANY[:4])


def test_inputs_of_a_network_are_standardised_as_the_model_does():
    idata = posterior(W1=(3, 2), W2=(3,))
    with pm.Model() as model:
        inputs = (pm.Data("X", MANY) - 3) / 2
        a = pm.Normal("A2", pm.math.tanh(pm.Normal("Z2", inputs @ pm.Normal("W1", 0, 1, shape=(3, 2)).T, 0.1)), 0.1)
        pm.Normal("y", a @ pm.Normal("W2", 0, 1, shape=3), 0.1, observed=REAL)
    w1, w2 = (idata["posterior"][name].values for name in ("W1", "W2"))
    expected = np.einsum("cdhn,cdh->cdn", np.tanh(w1 @ ((MANY - 3) / 2).T), w2)
    for new in (MANY[:4], {"X": MANY[:4]}):
        np.testing.assert_allclose(pmg.function_space(idata, model, new)["output"], expected[..., :4])


def test_new_rows_that_are_none_or_not_those_of_the_inputs():
    idata, model = posterior(W1=(3, 2), b1=(3,), W2=(3,), b2=()), pmg.mlp(X, X[:, 0], 3, noise=0.1, prior=None)
    for new, message in [
        (X[:0], r"X_new must have shape \(m, 2\), rows like those of 'X'; found \(0, 2\)"),
        ([[1.0, 2.0], [3.0]], "X_new must be an array; found lists of different lengths in it"),
        ({}, "X_new must hold new rows of the pm.Data \\['X'\\], by their names; found {}"),
        ({"Q": X}, "X_new names 'Q', but 'y' depends on the pm.Data \\['X'\\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            pmg.function_space(idata, model, new)


def test_every_thinth_draw():
    idata, model = posterior(W1=(3, 2), b1=(3,), W2=(3,), b2=()), pmg.mlp(X, X[:, 0], 3, noise=0.1, prior=None)
    found = pmg.function_space(idata, model, thin=7)
    xr.testing.assert_identical(found, pmg.function_space(idata, model).isel(draw=[0, 7, 14]))
    with pytest.raises(ValueError, match="thin must be a positive integer"):
        pmg.function_space(idata, model, thin=0)


def test_as_few_rows_and_draws_at_a_time_as_fit_in_memory(monkeypatch):
    for name in ("AT_ONCE", "IN_CACHE"):
        monkeypatch.setattr(new_rows, name, 1000)
    x = np.random.default_rng(0).normal(size=(60, 2))
    idata, noisy = posterior(W1=(50, 2), b1=(50,), W2=(50,), b2=()), pmg.mlp(x, x[:, 0], 50, noise=0.1, prior=None)
    sizes = []

    def spied(network, weights, a):
        for pair in forward(network, weights, a):
            sizes.append(pair[0].size)
            yield pair

    monkeypatch.setattr(function, "forward", spied)
    w = {name: v.values for name, v in idata["posterior"].items()}
    expected = np.maximum(w["W1"] @ x.T + w["b1"][..., None], 0)
    expected = np.einsum("cdhn,cdh->cdn", expected, w["W2"]) + w["b2"][..., None]
    np.testing.assert_allclose(pmg.function_space(idata, noisy)["output"], expected)
    assert max(sizes) == 1000
    classical = pmg.classical_mlp(x, x[:, 0], 50, activation="relu", likelihood="normal")
    for noiseless in (False, True):
        rows = new_rows.NewRows(classical, idata["posterior"], noiseless=noiseless)
        counts = [len(range(*these.indices(60))) for these in rows.chunks()]
        draws = [(i, d.stop - d.start) for i, these in enumerate(rows.chunks()) for d, _ in rows.batches(these)]
        assert sum(counts) == 60
        assert max(counts[i] * n * 50 for i, n in draws) <= 1000
    np.testing.assert_allclose(pmg.function_space(idata, classical)["output"], expected)

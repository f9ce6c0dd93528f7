from functools import partial

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_gibbsnn as pmg

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
    with pytest.raises(ValueError, match="X_new must have rows like those of 'X'"):
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
    def two_inputs():
        a, b = pm.Data("A", X), pm.Data("B", X)
        w = pm.Normal("W", 0, 1, shape=2)
        pm.Normal("y", pm.math.tanh((a + b) @ w), 1, observed=X[:, 0])

    def labels_inside():
        inputs = pm.Data("X", X)
        s = pm.Bernoulli("s", logit_p=inputs @ pm.Normal("W", 0, 1, shape=2))
        pm.Normal("y", s, 1, observed=X[:, 0])

    def without_a_mean():
        pm.Cauchy("y", pm.Data("X", X) @ pm.Normal("W", 0, 1, shape=2), 1, observed=X[:, 0])

    for build, message in [
        (lambda: pm.Normal("x"), "one observed variable; found \\[\\]"),
        (two_inputs, "must be one pm.Data .*\\['A', 'B'\\]|\\['B', 'A'\\]"),
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
        for function in (pmg.function_space, pmg.summary):
            with pytest.raises(ValueError, match="columns of X_new must be those of the data"):
                function(idata, model, frame[["b", "a"]])

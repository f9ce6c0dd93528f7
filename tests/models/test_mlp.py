import warnings

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.activations import ACTIVATIONS
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import LEAN, slow

X = np.random.default_rng(0).normal(size=(9, 2))
Y = X[:, 0]


def test_mlp_is_the_model_one_would_write_by_hand():
    noise = [0.1, 0.2, 0.3]
    model = pmg.mlp(X, Y, 4, noise=noise, prior=None)
    with pm.Model() as by_hand:
        w1 = pm.Normal("W1", 0, 2**-0.5, shape=(4, 2))
        b1 = pm.Normal("b1", 0, 2**-0.5, shape=4)
        z2 = pm.Normal("Z2", X @ w1.T + b1, 0.1)
        a2 = pm.Normal("A2", pm.math.maximum(z2, 0), 0.2)
        w2 = pm.Normal("W2", 0, 0.5, shape=4)
        b2 = pm.Normal("b2", 0, 0.5)
        pm.Normal("y", a2 @ w2 + b2, 0.3, observed=Y)
    rng = np.random.default_rng(1)
    point = {name: rng.normal(size=np.shape(x)) for name, x in model.initial_point().items()}
    logps = [m.compile_logp(mode="AS_WRITTEN")(point) for m in (model, by_hand)]
    np.testing.assert_allclose(*logps, rtol=1e-11)


@pytest.mark.parametrize("prior", [["learned", "learned"], ["relevance", 5.0]], ids=["layers", "relevance"])
def test_learned_scales_are_the_model_one_would_write_by_hand(prior):
    model = pmg.mlp(X, Y, 4, noise=["learned", 0.2, "learned"], prior=prior)
    with pm.Model() as by_hand:
        variance_z2 = pm.InverseGamma("variance_Z2", 5, 0.0001)
        variance_y = pm.InverseGamma("variance_y", 1, 0.001)
        tau1 = pm.Gamma("precision_W1", 2, 1, shape=2 if prior[0] == "relevance" else ())
        tau2 = pm.Gamma("precision_W2", 2, 0.5) if prior[1] == "learned" else 5.0
        w1 = pm.Normal("W1", 0, tau=tau1, shape=(4, 2))
        b1 = pm.Normal("b1", 0, 1, shape=4)
        z2 = pm.Normal("Z2", X @ w1.T + b1, variance_z2**0.5)
        a2 = pm.Normal("A2", pm.math.maximum(z2, 0), 0.2)
        w2 = pm.Normal("W2", 0, tau=tau2, shape=4)
        b2 = pm.Normal("b2", 0, tau=1 if prior[1] == "learned" else 5.0)
        z3 = pm.Normal("Z3", a2 @ w2 + b2, variance_y**0.5)
        pm.StudentT("y", 4.0, z3, sigma=variance_y**0.5, observed=Y)
    rng = np.random.default_rng(1)
    point = {name: rng.normal(size=np.shape(x)) for name, x in model.initial_point().items()}
    logps = [m.compile_logp(mode="AS_WRITTEN")(point) for m in (model, by_hand)]
    np.testing.assert_allclose(*logps)


@pytest.mark.parametrize("prior", ["learned", 5.0])
def test_below_class_labels_the_learned_prior_of_the_last_layer_is_wider(prior):
    labels = np.arange(9) % 2
    model = pmg.mlp(X, labels, 4, noise=[0.1, 0.2, 1.0], prior=["learned", prior], likelihood="bernoulli")
    with pm.Model() as by_hand:
        w1 = pm.Normal("W1", 0, tau=pm.Gamma("precision_W1", 2, 1), shape=(4, 2))
        z2 = pm.Normal("Z2", X @ w1.T + pm.Normal("b1", 0, 1, shape=4), 0.1)
        a2 = pm.Normal("A2", pm.math.maximum(z2, 0), 0.2)
        w2 = pm.Normal("W2", 0, tau=pm.Gamma("precision_W2", 2, 0.5 * 3**2) if prior == "learned" else prior, shape=4)
        b2 = pm.Normal("b2", 0, 3) if prior == "learned" else pm.Normal("b2", 0, tau=prior)
        pm.Bernoulli("y", logit_p=pm.Normal("Z3", a2 @ w2 + b2, 1), observed=labels)
    rng = np.random.default_rng(1)
    point = {name: rng.normal(size=np.shape(x)) for name, x in model.initial_point().items()}
    logps = [m.compile_logp(mode="AS_WRITTEN")(point) for m in (model, by_hand)]
    np.testing.assert_allclose(*logps)


@pytest.mark.parametrize(
    ("likelihood", "classes", "scale"),
    [
        ("probit", 2, 3),
        ("probit", 3, 3),
        ("categorical", 3, 3),
        ("bernoulli", 2, 3),
        ("binomial", 2, 1),
        ("ordered", 3, 1),
        ("poisson", 3, 1),
        ("student", 3, 1),
    ],
)
def test_only_below_class_labels_the_last_bias_has_a_wider_prior(likelihood, classes, scale):
    trials = {"trials": 2} if likelihood == "binomial" else {}
    b2 = pmg.mlp(X, np.arange(9) % classes, 4, likelihood=likelihood, **trials)["b2"].owner
    assert (b2.op.dist_params(b2)[1].eval() == scale).all()


@pytest.mark.parametrize(
    ("options", "likelihood"),
    [
        ({}, "student"),
        ({"noise": [0.1, 0.1, "learned"]}, "student"),
        ({"hidden": []}, "student"),
        ({"noise": 0.1}, "normal"),
        ({"noise": ["learned", "learned", 0.1]}, "normal"),
        ({"noise_hidden": 2}, "normal"),
    ],
)
def test_outliers_are_allowed_for_where_the_noise_of_y_is_learned_alike_in_all_rows(options, likelihood):
    called = {"hidden": 3} | options
    assert pmg.mlp(X, Y, **called).str_repr() == pmg.mlp(X, Y, **called, likelihood=likelihood).str_repr()


@pytest.mark.parametrize(
    ("y", "kwargs"),
    [
        (Y, {"prior": "relevance"}),
        slow(X, {"prior": "learned"}),
        slow(np.arange(9) % 3, {"prior": None, "likelihood": "probit"}),
    ],
    ids=["relevance", "outputs", "labels"],
)
def test_one_step_draws_all_that_is_learned(y, kwargs):
    model = pmg.mlp(X, y, [4, 3], noise="learned", **kwargs)
    step = pmg.GibbsNN(model=model, compile_kwargs={"mode": "AS_WRITTEN"}, rng=1, **LEAN)
    assert set(step.vars) == set(model.value_vars)
    before = model.initial_point()
    after, [stats] = step.step(before)
    assert all((after[name] != before[name]).any() for name in before)
    np.testing.assert_allclose(stats["lp"], model.compile_logp(mode="AS_WRITTEN")(after))


def test_integers_are_taken_as_numbers():
    model = pmg.mlp(X, np.arange(9), 2, noise=0.1, prior=None)
    np.testing.assert_array_equal(model["y_data"].get_value(), np.arange(9.0))


@pytest.mark.parametrize(
    "model",
    [
        pmg.mlp(X, Y, 4, noise=0.1, prior=None),
        pmg.mlp(X, X, 4, noise=0.1, prior=None),
        pmg.mlp(X, np.arange(9) % 3, 4, likelihood="probit", noise=0.1, prior=None),
        pmg.mlp(X, np.arange(9) % 2, 4, likelihood="probit", noise=0.1, prior=None),
        pmg.classical_mlp(X, Y, 4, likelihood="normal"),
        pmg.classical_mlp(X, X, 4, likelihood="normal"),
        pmg.classical_mlp(X, np.arange(9) % 3, 4),
        pmg.classical_mlp(X, np.arange(9) % 2, 4, likelihood="bernoulli"),
        pmg.wide_mlp(X, Y, 4),
        pmg.wide_mlp(X, X, 4),
    ],
    ids=[
        "mlp",
        "mlp-outputs",
        "argmax",
        "sign",
        "normal",
        "outputs",
        "categorical",
        "bernoulli",
        "wide",
        "wide-outputs",
    ],
)
@pytest.mark.filterwarnings("ignore:The following trace variables were implicitly frozen")
def test_another_number_of_rows_is_predicted(model):
    weights = {name: x for name, x in model.initial_point().items() if name[0] in "Wb"}
    with model:
        pm.set_data({"X": np.ones((12, 2))})
        predictive = pm.sample_posterior_predictive(
            [weights] * 2,
            var_names=["y"],
            predictions=True,
            progressbar=False,
            random_seed=1,
            compile_kwargs={"mode": "AS_WRITTEN"},
        )
    assert predictive["predictions"]["y"].shape[:3] == (1, 2, 12)


def test_numbers_beside_truth_values():
    """NumPy keeps the columns of such a data frame as objects."""
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(c=X[:, 0] > 0)
    model = pmg.mlp(frame, Y.astype(object), 2, noise=0.1, prior=None)
    np.testing.assert_array_equal(model["X"].get_value(), np.column_stack([X, X[:, 0] > 0]))
    np.testing.assert_array_equal(model.rvs_to_values[model["y"]].eval(), Y)


def test_an_activation_written_in_pytensor():
    import pytensor.tensor as pt

    model = pmg.mlp(X, Y, 2, activation=lambda z: pt.clip(z, -1, 1), noise=0.1, prior=None)
    network = read_network(model)
    assert network.activations[0].function == ACTIVATIONS["hard_tanh"]


YEARS = pd.DataFrame({"years": 2000 + 9 * X[:, 0], "heat": X[:, 1]})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: pmg.mlp(YEARS, Y, 4, noise=0.1, prior=None),
            "Column 'years' of X holds numbers of about 2e.03.*standardise.*new rows",
        ),
        (
            lambda: pmg.mlp(X, 5000 * X, 4, noise=0.1, prior=None),
            "Column 0 of y holds numbers of about .*scale predictions back",
        ),
        (lambda: pmg.mlp(np.c_[X, np.full(9, 99)], Y, 4, noise=0.1, prior=None), "Column 2 of X .*same in all rows"),
        (lambda: pmg.mlp(X, 5000 * Y, 4, noise="learned", prior=None), "^y holds"),
        (lambda: pmg.classical_mlp(1000 * X, np.arange(9) % 3, 4), "Column 0 of X"),
        (lambda: pmg.classical_mlp(X, 5000 * Y, 4, likelihood="normal"), "^y holds"),
        (lambda: pmg.wide_mlp(X, 5000 * Y, 9), "^y holds"),
        (lambda: pmg.cnn(np.full((9, 4, 4), 200), Y, 2, noise=0.1, prior=None), "^X holds.*X / 255"),
    ],
    ids=["inputs", "outputs", "constant", "target", "classical", "classical target", "wide", "images"],
)
def test_large_numbers_are_warned_of(build, message):
    with pytest.warns(UserWarning, match=message) as found:
        build()
    assert [warning.filename for warning in found] == [__file__]


def test_counts_labels_and_outliers_may_be_large():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pmg.mlp(X, np.where(np.arange(9) == 4, 150, Y), 4, likelihood="student", noise=0.1, prior=None)
        pmg.classical_mlp(X, np.arange(9) * 100, 4, likelihood="poisson")
        pmg.mlp(np.repeat(X, 11, axis=0), np.arange(99), 4, likelihood="probit", noise=0.1, prior=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": X[0]}, "X must have shape"),
        ({"X": X[:3]}, "X must have shape"),
        ({"y": Y[:0], "X": X[:0]}, "none of them empty"),
        ({"X": np.where(X > 1, np.nan, X), "missing": "refuse"}, "X holds .* NaN or infinite"),
        ({"X": np.where(X > 1, np.inf, X)}, "X holds .* infinite"),
        ({"y": np.where(Y[0] == Y, np.inf, Y)}, "y holds 1 values that are NaN or infinite"),
        ({"y": np.array(["a"] * 9)}, "y must hold numbers; found 'a'"),
        ({"y": np.arange(9).astype("M8[ns]")}, "y must hold numbers; found .* in an array of dtype datetime64"),
        ({"hidden": 0}, "hidden must hold positive integers"),
        ({"hidden": [3, 2.5]}, "hidden must hold positive integers"),
        ({"noise": 0.0}, "noise must be a standard deviation"),
        ({"noise": [0.1, -0.1, 0.1]}, "noise must be a standard deviation"),
        ({"noise": [0.1, 0.1]}, "noise must be .* one for each of Z2, A2, y, which are 3; found \\[0.1, 0.1\\]"),
        ({"noise": "relevance"}, "noise must be .* or 'learned', .*; found 'relevance'"),
        ({"prior": -1}, "prior must be a precision, a positive, finite number or 'learned' or 'relevance'.*found -1"),
        ({"prior": ["learned"]}, "one for each of W1, W2, which are 2"),
        (
            {"y": np.arange(9) % 2, "likelihood": "probit", "noise": [0.1, 0.1, "learned"]},
            "The noise of 'Z3' must be a number where labels are observed",
        ),
        ({"activation": "softmax"}, "activation must be one of"),
        ({"activation": 3}, "activation must be a name"),
        ({"likelihood": "cauchy"}, "likelihood must be 'student'"),
        ({"likelihood": ""}, "likelihood must be 'student'"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        pmg.mlp(**({"X": X, "y": Y, "hidden": 3} | change))


@pytest.fixture
def model():
    return pmg.mlp(X, Y, [3, 2], noise=0.1, prior=None)


def test_zero_start(model):
    start = pmg.initial_values(model, "zero")
    assert {name: x.shape for name, x in start.items()} == {n: x.shape for n, x in model.initial_point().items()}
    assert not any(x.any() for x in start.values())


def test_prior_start_is_consistent(model):
    first, second = pmg.initial_values(model, "prior", chains=2, random_seed=1)
    assert not np.allclose(first["W1"], second["W1"])
    noise = first["A2"] - np.maximum(first["Z2"], 0)
    assert 0.05 < noise.std() < 0.2


def test_informed_start(model):
    teacher = {name: pm.draw(model[name], random_seed=1) for name in ("W1", "b1", "W2", "b2", "W3", "b3")}
    start = pmg.initial_values(model, "informed", teacher=teacher, random_seed=2)
    np.testing.assert_array_equal(start["W1"], teacher["W1"])
    noise = start["Z2"] - X @ teacher["W1"].T - teacher["b1"]
    assert 0.05 < noise.std() < 0.2
    np.testing.assert_equal(pmg.initial_values(model, "informed", teacher=start), start)


@pytest.mark.parametrize(
    ("kind", "teacher", "message"),
    [
        ("warm", None, "kind must be"),
        ("informed", None, "needs teacher="),
        ("zero", {}, "needs teacher="),
        ("informed", {"W9": 1.0}, "names 'W9'"),
        ("informed", {"W1": np.zeros(3)}, "'W1' must be finite and of shape"),
        ("informed", {"W1": np.zeros((3, 2))}, "lacks"),
    ],
)
def test_bad_starts_are_refused(model, kind, teacher, message):
    with pytest.raises(ValueError, match=message):
        pmg.initial_values(model, kind, teacher=teacher)


def test_function_space(model):
    with model:
        idata = pm.sample(
            5,
            step=pmg.GibbsNN(compile_kwargs={"mode": "AS_WRITTEN"}, **LEAN),
            tune=0,
            chains=2,
            cores=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
        space = pmg.function_space(idata, X_new=X[:4])
    w = {name: x.values[1, 3] for name, x in idata["posterior"].data_vars.items()}
    a = np.maximum(X[:4] @ w["W1"].T + w["b1"], 0)
    a = np.maximum(a @ w["W2"].T + w["b2"], 0)
    np.testing.assert_allclose(space["output"].values[1, 3], a @ w["W3"] + w["b3"])
    np.testing.assert_allclose(space["norm"].values[1, 3, 0], (w["W1"] ** 2).sum() + (w["b1"] ** 2).sum())
    with pytest.raises(ValueError, match="X_new must have shape"):
        pmg.function_space(idata, model, X[:, :1])

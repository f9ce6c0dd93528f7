import numpy as np
import pymc as pm
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.reader import read_network

RNG = np.random.default_rng(0)
X = RNG.normal(3, 2, size=(12, 3))


def relu_network(point, X):
    return np.maximum(X @ point["W1"].T + point["b1"], 0) @ point["W2"].T + point["b2"]


def noiseless_layers(study):
    z = study.X @ study.teacher["W1"].T + study.teacher["b1"]
    return z, np.maximum(z, 0)


def test_a_teacher_is_a_draw_of_the_joint_distribution():
    study = pmg.teacher_student((3, 4, 1), n=3000, n_test=7, noise=0.1, random_seed=1)
    assert study.X.shape == (3000, 3)
    assert study.X_test.shape == (7, 3)
    assert abs(study.X.mean()) < 0.05
    assert {name: v.shape for name, v in study.teacher.items()} == {
        name: v.shape for name, v in study.model.initial_point().items()
    }
    np.testing.assert_allclose(study.f_test, relu_network(study.teacher, study.X_test))
    np.testing.assert_array_equal(study.model["y_data"].get_value(), study.y)
    z, _ = noiseless_layers(study)
    noises = [
        study.teacher["Z2"] - z,
        study.teacher["A2"] - np.maximum(study.teacher["Z2"], 0),
        study.y - study.teacher["A2"] @ study.teacher["W2"] - study.teacher["b2"],
    ]
    for noise in noises:
        assert 0.095 < noise.std() < 0.105
    again = pmg.teacher_student((3, 4, 1), n=3000, n_test=7, noise=0.1, random_seed=1)
    np.testing.assert_array_equal(study.y, again.y)
    assert not np.array_equal(study.y, pmg.teacher_student((3, 4, 1), n=3000, noise=0.1, random_seed=2).y)


def test_teachers_without_noise():
    study = pmg.teacher_student((3, 4, 2), n=20, n_test=7, noise=0.1, noisy=False, random_seed=1)
    z, a = noiseless_layers(study)
    np.testing.assert_allclose(study.teacher["Z2"], z)
    np.testing.assert_allclose(study.teacher["A2"], a)
    np.testing.assert_allclose(study.y, relu_network(study.teacher, study.X))


@pytest.mark.parametrize(("classes", "noisy"), [(2, True), (2, False), (3, True), (3, False)])
def test_labels(classes, noisy):
    study = pmg.teacher_student(
        (3, 4, classes), n=20, n_test=7, noise=0.1, likelihood="probit", noisy=noisy, random_seed=1
    )
    last = study.teacher["Z3"]
    np.testing.assert_array_equal(study.y, last > 0 if classes == 2 else last.argmax(1))
    if not noisy:
        np.testing.assert_allclose(last, relu_network(study.teacher, study.X))
    assert read_network(study.model).observation is not None


def test_a_model_keeps_its_inputs_and_is_copied():
    y = X[:, 0]
    model = pmg.mlp(X, y, 4, noise=0.1, prior=None)
    study = pmg.teacher_student(model, n_test=3000, random_seed=1)
    np.testing.assert_array_equal(study.X, X)
    np.testing.assert_allclose(study.X_test.mean(0), X.mean(0), atol=0.2)
    np.testing.assert_array_equal(model["y_data"].get_value(), y)
    assert not np.allclose(study.y, y)
    assert "score" not in model.named_vars
    assert pmg.teacher_student(model, n=30).X.shape == (30, 3)


def test_a_model_by_hand_that_observes_constants():
    with pm.Model() as model:
        w = pm.Normal("W", 0, 1, shape=(4, 3))
        z = pm.Normal("Z", X @ w.T, 0.1)
        a = pm.Normal("A", pm.math.maximum(z, 0), 0.1)
        v = pm.Normal("V", 0, 1, shape=4)
        pm.Normal("y", a @ v, 0.1, observed=X[:, 0])
    study = pmg.teacher_student(model, n_test=5, random_seed=1)
    [observed] = study.model.observed_RVs
    np.testing.assert_array_equal(study.model.rvs_to_values[observed].eval(), study.y)
    logp = study.model.compile_logp(mode="AS_WRITTEN")
    assert logp(study.teacher) > -1000
    with pytest.raises(pmg.NetworkError, match="must be one"):
        pmg.teacher_student(model, n=30)


def deterministic(kind, y=None):
    targets = {"normal": np.zeros((12, 3)), "bernoulli": np.arange(12) % 2, "categorical": np.arange(12) % 3}[kind]
    with pm.Model() as model:
        inputs = pm.Data("X", X)
        w, v = (pm.Normal(name, 0, 1, shape=(4, 3)) for name in "WV")
        f = pm.math.tanh(inputs @ w.T) @ v
        targets = pm.Data("targets", targets) if y is None else y
        if kind == "normal":
            pm.Normal("y", f, pm.HalfNormal("sigma"), observed=targets)
        elif kind == "bernoulli":
            pm.Bernoulli("y", logit_p=f[:, 0], observed=targets)
        else:
            pm.Categorical("y", logit_p=f, observed=targets)
    return model


@pytest.mark.parametrize("kind", ["normal", "bernoulli", "categorical"])
def test_any_other_model(kind):
    study = pmg.teacher_student(deterministic(kind), n=15, n_test=4, random_seed=1)
    f = np.tanh(study.X_test @ study.teacher["W"].T) @ study.teacher["V"]
    if kind == "bernoulli":
        f = 1 / (1 + np.exp(-f[:, 0]))
    elif kind == "categorical":
        f = np.exp(f) / np.exp(f).sum(1, keepdims=True)
    np.testing.assert_allclose(study.f_test, f)
    assert len(study.y) == 15
    start = pmg.initial_values(study.model, "informed", teacher=study.teacher)
    np.testing.assert_equal(start, study.teacher)
    assert set(pmg.initial_values(study.model, "prior")) == set(study.teacher)
    if kind == "normal":
        quiet = pmg.teacher_student(study.model, noisy=False, n_test=4)
        expected = np.tanh(quiet.X @ quiet.teacher["W"].T) @ quiet.teacher["V"]
        np.testing.assert_allclose(quiet.y, expected)
    else:
        with pytest.raises(ValueError, match="has no value without noise"):
            pmg.teacher_student(study.model, noisy=False)


def test_a_noisy_network_of_a_smooth_activation():
    with pm.Model() as model:
        inputs = pm.Data("X", X)
        w = pm.Normal("W", 0, 1, shape=(4, 3))
        z = pm.Normal("Z", inputs @ w.T, 0.1)
        a = pm.Normal("A", pm.math.tanh(z), 0.1)
        v = pm.Normal("V", 0, 1, shape=4)
        pm.Normal("y", a @ v, 0.1, observed=X[:, 0])
    study = pmg.teacher_student(model, n_test=5, random_seed=1)
    np.testing.assert_allclose(study.f_test, np.tanh(study.X_test @ study.teacher["W"].T) @ study.teacher["V"])


def test_bad_arguments_are_refused():
    def two_outputs():
        with pm.Model() as model:
            inputs = pm.Data("X", X)
            w = pm.Normal("W", 0, 1, shape=3)
            for name in "uv":
                pm.Normal(name, inputs @ w, 1, observed=X[:, 0])
        return model

    cases = [
        (((3, 4, 1),), {}, ValueError, "and n; found"),
        (((3,),), {"n": 5}, ValueError, "at least two layers"),
        (((3, 1),), {"n": 0}, ValueError, "n must be a positive integer"),
        (((3, 1), 5), {"n_test": 1.5}, ValueError, "n_test must be a positive integer"),
        ((deterministic("normal"),), {"noise": 0.1}, ValueError, "describe a network"),
        ((two_outputs(),), {}, pmg.NetworkError, "one observed variable"),
        ((deterministic("normal", np.zeros((12, 3))), 5), {}, pmg.NetworkError, "observes constants"),
    ]
    for arguments, options, error, message in cases:
        with pytest.raises(error, match=message):
            pmg.teacher_student(*arguments, **options)

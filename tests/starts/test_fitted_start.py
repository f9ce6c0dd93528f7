"""Chains that start from zero are started at a fitted network, before their first tuning step."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.optimize import check_grad
from scipy.signal import correlate
from scipy.special import softmax
from scipy.stats import gumbel_r, logistic
from scipy.stats import t as student_t
from threadpoolctl import ThreadpoolController

import pymc_gibbsnn as pmg
from pymc_gibbsnn.drivers import starts
from pymc_gibbsnn.networks.activations import ACTIVATIONS
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.networks.smooth import Smooth
from pymc_gibbsnn.prediction.function import forward
from pymc_gibbsnn.starts.evidence import learned_scales
from pymc_gibbsnn.starts.fitted_start import can_be_fitted, fitted_start
from pymc_gibbsnn.starts.least_squares import LAST, Fit, LeastSquares
from pymc_gibbsnn.starts.quasi_newton import Found, QuasiNewton
from tests.helpers import LEAN, PYTHON, pmg_sample, slow

RNG = np.random.default_rng(0)
WIDTHS, NOISES = [(4, 3), (3, 4), (2, 4)], [1e-4, 2e-4, 3e-4, 1e-4, 2e-4]  # (c, d) of W̃: no bias in the second layer
FIT = Fit([RNG.normal(size=shape) for shape in WIDTHS], [RNG.uniform(1, 2, size=shape) for shape in WIDTHS])


def regression(n=30):
    x = np.random.default_rng(1).normal(size=(n, 2))
    return LeastSquares(x, np.random.default_rng(2).normal(size=(n, 2)), [Smooth(pt.tanh), ACTIVATIONS["relu"]], NOISES)


def output(problem, fit):
    return problem.forward(fit, problem.inputs)[1][-1]


@pytest.mark.parametrize("spread", [1.0, RNG.uniform(0.5, 2, size=(30, 2))], ids=["equal", "unequal"])
@pytest.mark.parametrize("degrees", [np.inf, 4.0])
def test_a_linearised_network_agrees_with_differences(monkeypatch, degrees, spread):
    monkeypatch.setattr("pymc_gibbsnn.starts.least_squares.NUMBERS", 200)  # several blocks of rows
    problem = replace(regression(), degrees=degrees, spread=spread)
    now = problem.linearised(FIT)
    assert now.objective == pytest.approx(problem.objective(FIT, now.variance))
    steps = 1e-6 * np.eye(FIT.size)
    change = [
        problem.objective(FIT.moved(s), now.variance) - problem.objective(FIT.moved(-s), now.variance) for s in steps
    ]
    np.testing.assert_allclose(now.gradient, np.array(change) / 2e-6, rtol=1e-5, atol=1e-3)
    jacobian = (
        np.array([((output(problem, FIT.moved(s)) - output(problem, FIT.moved(-s))) / spread).ravel() for s in steps])
        / 2e-6
    )
    errors = (output(problem, FIT) - problem.targets) / spread
    importance = 1 if degrees == np.inf else 5 / (4 + errors.ravel() ** 2 / now.variance)
    assert now.squares == pytest.approx((importance * errors.ravel() ** 2).sum())
    prior = np.diag(np.concatenate([p.ravel() for p in FIT.precisions]))
    matrix = importance * jacobian @ jacobian.T / now.variance + prior
    np.testing.assert_allclose(now.matrix, matrix, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(now.covariance @ now.matrix, np.eye(FIT.size), atol=1e-6)


def test_the_variance_counts_where_errors_are_smaller(monkeypatch):
    """The gradient is that of the whole objective: of squared errors over v, and of log v."""
    monkeypatch.setattr("pymc_gibbsnn.starts.least_squares.NUMBERS", 200)
    problem = replace(regression(), functions=[ACTIVATIONS["relu"], ACTIVATIONS["relu"]])
    f, v = output(problem, FIT), problem.linearised(FIT).variance
    assert problem.linearised(FIT).excess == 0
    assert not problem.linearised(FIT).gradient_of_v.any()
    problem = replace(problem, targets=f + 0.5 * v**0.5 * np.random.default_rng(3).normal(size=f.shape))
    now = problem.linearised(FIT)
    assert now.excess > 0

    def whole(fit):
        v = problem.reach(fit) @ problem.noises / problem.targets.size
        return problem.objective(fit, v) + problem.targets.size * np.log(v) / 2

    steps = 1e-6 * np.eye(FIT.size)
    change = [whole(FIT.moved(s)) - whole(FIT.moved(-s)) for s in steps]
    np.testing.assert_allclose(now.gradient + now.gradient_of_v, np.array(change) / 2e-6, rtol=1e-5, atol=1e-3)
    assert np.linalg.eigvalsh(now.matrix_of_v).min() > -1e-9 * np.abs(now.matrix_of_v).max()


@pytest.mark.parametrize("degrees", [np.inf, 4.0])
def test_the_objective_is_the_log_density_of_errors(degrees):
    problem, v = replace(regression(), degrees=degrees), 0.7
    other = FIT.moved(0.1 * RNG.normal(size=FIT.size))
    found = problem.objective(other, v) - other.prior - (problem.objective(FIT, v) - FIT.prior)
    densities = [student_t.logpdf(problem.targets, degrees, output(problem, fit), v**0.5).sum() for fit in (FIT, other)]
    assert found == pytest.approx(densities[0] - densities[1])


def test_the_variance_of_all_noise_together():
    problem, rng, errors = regression(n=200), np.random.default_rng(3), []
    clean = output(problem, FIT)
    for _ in range(100):
        a = problem.inputs
        for l, w in enumerate(FIT.weights):
            a = a if a.shape[1] == w.shape[1] else np.column_stack([a, np.ones(len(a))])
            z = a @ w.T
            z += rng.normal(0, NOISES[2 * l] ** 0.5, size=z.shape)
            a = problem.functions[l](z) if l < 2 else z
            a += rng.normal(0, NOISES[2 * l + 1] ** 0.5, size=z.shape) if l < 2 else 0
        errors.append((a - clean) ** 2)
    np.testing.assert_allclose(problem.linearised(FIT).variance, np.mean(errors), rtol=0.05)


def test_units_that_do_the_same_become_one():
    """A third unit that is a multiple of the second one can go, because the second one can do its work."""
    x, relu = np.random.default_rng(1).normal(size=(50, 2)), ACTIVATIONS["relu"]
    below, above = np.array([[1.0, 0.2, 0.1], [-0.5, 1.0, 0.3], [-1.0, 2.0, 0.6]]), np.array([[1.0, 0.7, 0.5, 0.1]])
    fit = Fit([below, above], [np.full((3, 3), 1e-6), np.full((1, 4), 1e-6)])
    problem = LeastSquares(x, np.zeros((50, 1)), [relu], [1e-6, 1e-6, 1e-6])
    y = output(problem, fit)
    problem = LeastSquares(x, y, [relu], problem.noises)
    pruned = problem.fitted(problem.pruned(fit, [2]), 4)
    assert [w.shape for w in pruned.weights] == [(2, 3), (1, 3)]
    assert np.abs(output(problem, pruned) - y).max() < 1e-3
    wider = pruned.wider([3], RNG)
    assert [p.shape for p in wider.precisions] == [(5, 3), (1, 6)]
    np.testing.assert_allclose(output(problem, wider), output(problem, pruned))


@pytest.mark.parametrize(
    ("scores", "is_long", "rounds"),
    [
        (np.zeros(99), True, 5),
        (-np.arange(99.0), False, 5),
        (np.r_[np.zeros(4), -np.full(95, 2.0)], True, 10),
        (np.r_[np.zeros(4), -np.full(95, 0.9)], True, 5),
        (-2 * np.arange(99.0), True, 30),
    ],
    ids=["nothing better", "short", "once", "hardly better", "again and again"],
)
def test_a_search_goes_on_while_the_best_network_is_new(scores, is_long, rounds, monkeypatch):
    left = iter(scores)
    monkeypatch.setattr(LeastSquares, "fitted", lambda self, fit, steps: fit)
    monkeypatch.setattr(LeastSquares, "pruned", lambda self, fit, widths: Fit(FIT.weights, FIT.precisions))
    monkeypatch.setattr(LeastSquares, "judged", lambda self, fit: (next(left), 1.0))
    monkeypatch.setattr("pymc_gibbsnn.starts.least_squares.MOST", 205)  # five rounds of 41 steps
    monkeypatch.setattr("pymc_gibbsnn.starts.least_squares.LONGEST", (10**12, 1230))
    regression().search(FIT, RNG, is_long)
    assert len(list(left)) == len(scores) - rounds


def test_a_round_that_fails_loses_no_network(monkeypatch):
    fits = iter([FIT, FIT, np.linalg.LinAlgError, FIT, FIT])

    def fitted(self, fit, steps):
        found = next(fits) if steps == LAST else fit
        if found is np.linalg.LinAlgError:
            raise found
        return fit

    monkeypatch.setattr(LeastSquares, "fitted", fitted)
    monkeypatch.setattr(LeastSquares, "pruned", lambda self, fit, widths: Fit(FIT.weights, FIT.precisions))
    monkeypatch.setattr("pymc_gibbsnn.starts.least_squares.MOST", 205)  # five rounds of 41 steps
    assert regression().search(FIT, RNG) is not None
    assert next(fits, None) is None


def test_where_noise_is_learned_the_search_is_short(monkeypatch):
    found = []
    monkeypatch.setattr(LeastSquares, "search", lambda self, fit, rng, is_long: found.append(is_long))
    x = np.random.default_rng(1).normal(size=(30, 2))
    for noise in (0.1, "learned"):
        model = pmg.mlp(x, x[:, 0], 3, noise=noise)
        fitted_start(read_network(model), model.initial_point(), np.random.default_rng(1))
    assert found == [True, False]


@pytest.mark.parametrize("widths", [slow((4, 5, 1)), (3, 3, 3, 2)])
def test_the_teacher_is_found(widths):
    study = pmg.teacher_student(widths, n=150, n_test=5, noise=0.01, noisy=False, random_seed=1)
    network, point = read_network(study.model), study.model.initial_point()
    point |= fitted_start(network, point, np.random.default_rng(1))
    assert (_output(study, point) - study.y).std() < 0.01


def _output(study, point):
    a, layers = study.X, sum(name.startswith("W") for name in point)
    for l in range(1, layers):
        z = a @ point[f"W{l}"].T + point[f"b{l}"]
        np.testing.assert_allclose(point[f"Z{l + 1}"], z)
        a = np.maximum(z, 0)
        np.testing.assert_allclose(point[f"A{l + 1}"], a)
    return a @ point[f"W{layers}"].T + point[f"b{layers}"]


X = np.random.default_rng(0).normal(size=(12, 2))
Y = np.maximum(X[:, 0], 0) + 0.1 * np.random.default_rng(1).normal(size=12)
SILENT = SimpleNamespace(say=lambda what: None)
IMAGES = np.random.default_rng(2).normal(size=(12, 6, 6))


@pytest.mark.parametrize(
    "make",
    [
        lambda: pmg.mlp(X, np.arange(12) % 2, 3, noise=0.1, likelihood="probit", prior=None),
        lambda: _with_noise_of(lambda: pm.HalfNormal("s")),
        lambda: pmg.cnn(RNG.normal(size=(12, 1, 6, 6)), Y, 2, noise="learned", prior=None),
        lambda: pmg.mlp(np.zeros((12, 400)), Y, 40, noise=0.1, prior=None),
        lambda: pmg.mlp(np.zeros((12, 100)), Y, 20, noise="learned", prior=None),
        slow(lambda: pmg.cnn(np.zeros((200, 28, 28)), np.zeros(200), 64, noise=0.1, prior=None)),
    ],
    ids=[
        "class labels of dense layers",
        "noise drawn by another step",
        "learned noise on images",
        "too large",
        "too large with learned noise",
        "too many filters",
    ],
)
def test_other_networks_are_not_fitted(make):
    assert not can_be_fitted(read_network(make()))
    assert can_be_fitted(read_network(_with_noise_of(lambda: 0.1)))


def _with_noise_of(sigma):
    with pm.Model() as model:
        W1, W2, s = pm.Normal("W1", 0, 1, shape=(2, 3)), pm.Normal("W2", 0, 1, shape=3), sigma()
        Z = pm.Normal("Z", pm.math.dot(X, W1), s, shape=(12, 3))
        A = pm.Normal("A", pm.math.maximum(Z, 0), 0.1, shape=(12, 3))
        pm.Normal("y", pm.math.dot(A, W2), 0.1, observed=Y)
    return model


@pytest.mark.parametrize(
    "make",
    [lambda y: pmg.mlp(X, y, 3, noise=0.1, prior=None), slow(lambda y: pmg.cnn(IMAGES, y, 2, noise=0.1, prior=None))],
)
def test_data_that_cannot_be_fitted(make):
    model = make(1e200 * Y)
    assert fitted_start(read_network(model), model.initial_point(), np.random.default_rng(1)) == {}


# Learned scales


def shared_scales():
    """A model whose learned scales are a variance, a precision of noise, and precisions of an input or a layer."""
    x = np.random.default_rng(1).normal(size=(40, 2))
    y = np.maximum(x @ [[1.0, -1.0], [0.5, 0.2]], 0) + 0.1 * np.random.default_rng(2).normal(size=(40, 2))
    with pm.Model() as model:
        v, t = pm.InverseGamma("v", 2, 0.1, initval=0.02), pm.Gamma("t", 3, 0.05, initval=50.0)
        r, s = pm.Gamma("r", 2, [1.0, 2.0], shape=2), pm.InverseGamma("s", 3, 2, default_transform=None)
        W1, b1 = pm.Normal("W1", 0, r**-0.5, shape=(3, 2)), pm.Normal("b1", 0, 1, shape=3)
        W2 = pm.Normal("W2", 0, 0.7 * s**0.5, shape=(2, 3))
        Z = pm.Normal("Z", x @ W1.T + b1, 0.5 * t**-0.5, shape=(40, 3))
        A = pm.Normal("A", pm.math.tanh(Z), v**0.5, shape=(40, 3))
        pm.Normal("y", A @ W2.T, 2 * v**0.5, observed=y)
    return model, x, y


def test_learned_scales_end_where_the_evidence_is_stationary():
    """The evidence is written in full, with its determinants, and its slope by each scale is found by differences."""
    model, x, y = shared_scales()
    network, point, rng = read_network(model), model.initial_point(), np.random.default_rng(3)
    fit = Fit([rng.normal(size=(3, 3)), rng.normal(size=(2, 3))], [])

    tanh = Smooth(pt.tanh)

    def at(point):
        t, v, r, s = np.exp(point["t_log__"]), np.exp(point["v_log__"]), np.exp(point["r_log__"]), point["s"]
        precisions = [np.column_stack([np.tile(r, (3, 1)), np.ones(3)]), np.full((2, 3), 1 / (0.49 * s))]
        return LeastSquares(x, y, [tanh], [0.25 / t, v, 4 * v]), replace(fit, precisions=precisions)

    for _ in range(200):
        point |= learned_scales(network, point, *at(point))

    def evidence(point):
        problem, fit = at(point)
        now = problem.linearised(fit)
        priors = np.concatenate([p.ravel() for p in fit.precisions])
        found = -now.objective - y.size * np.log(now.variance) / 2 + np.log(priors).sum() / 2
        found -= np.linalg.slogdet(now.matrix)[1] / 2
        v, r, s = point["v_log__"], point["r_log__"], np.log(point["s"])
        return found - 2 * v - 0.1 * np.exp(-v) + (2 * r - [1, 2] * np.exp(r)).sum() - 3 * s - 2 * np.exp(-s)

    def slope(name, change):
        one, other = ({name: np.asarray(change(point[name], h))} for h in (1e-5, -1e-5))
        return (evidence(point | one) - evidence(point | other)) / 2e-5

    assert slope("v_log__", lambda x, h: x + h) == pytest.approx(0, abs=1e-4)
    assert slope("r_log__", lambda x, h: x + np.array([h, 0])) == pytest.approx(0, abs=1e-4)
    assert slope("r_log__", lambda x, h: x + np.array([0, h])) == pytest.approx(0, abs=1e-4)
    assert slope("s", lambda x, h: x * np.exp(h)) == pytest.approx(0, abs=1e-4)
    assert point["t_log__"] == model.initial_point()["t_log__"]  # the scale of hidden noise alone


@pytest.mark.parametrize("factor", [slow(0.1), slow(10.0), -1.0])
def test_a_factor_of_the_weights_does_not_change_learned_scales(factor):
    """Weights with a factor, and a prior that makes up for it, are the same model."""

    def found(factor):
        with pm.Model() as model:
            s = pm.Gamma("s", 2, 1)
            W1, b1 = pm.Normal("W1", 0, s**-0.5 / abs(factor), shape=(2, 3)), pm.Normal("b1", 0, s**-0.5, shape=3)
            W2 = pm.Normal("W2", 0, 1, shape=3)
            Z = pm.Normal("Z", factor * pm.math.dot(X, W1) + b1, 0.1, shape=(12, 3))
            A = pm.Normal("A", pm.math.tanh(Z), 0.1, shape=(12, 3))
            pm.Normal("y", pm.math.dot(A, W2), 0.1, observed=Y)
        return fitted_start(read_network(model), model.initial_point(), np.random.default_rng(1))["s_log__"]

    np.testing.assert_allclose(found(factor), found(1.0), rtol=1e-6)


def test_of_several_learned_variances_in_one_array_those_of_hidden_noise_stay():
    with pm.Model() as model:
        v = pm.InverseGamma("v", 1, 0.001, shape=3)
        W1, W2 = pm.Normal("W1", 0, 1, shape=(2, 3)), pm.Normal("W2", 0, 1, shape=3)
        Z = pm.Normal("Z", pm.math.dot(X, W1), v[0] ** 0.5, shape=(12, 3))
        A = pm.Normal("A", pm.math.maximum(Z, 0), v[1] ** 0.5, shape=(12, 3))
        pm.Normal("y", pm.math.dot(A, W2), v[2] ** 0.5, observed=Y)
    point = model.initial_point()
    new = fitted_start(read_network(model), point, np.random.default_rng(1))
    stays = new["v_log__"] == point["v_log__"]
    assert stays.tolist() == [True, True, False]


def test_learned_scales_that_multiply_each_other_settle():
    """Four variances whose product is that of the noise: each is moved given the others."""
    with pm.Model() as model:
        scales = [pm.InverseGamma(f"v{i}", 3, 1) for i in range(4)]
        W1, W2 = pm.Normal("W1", 0, 1, shape=(2, 3)), pm.Normal("W2", 0, 1, shape=3)
        Z = pm.Normal("Z", pm.math.dot(X, W1), 0.01, shape=(12, 3))
        A = pm.Normal("A", pm.math.maximum(Z, 0), 0.01, shape=(12, 3))
        pm.Normal("y", pm.math.dot(A, W2), (scales[0] * scales[1] * scales[2] * scales[3]) ** 0.5, observed=Y)
    network, point, rng = read_network(model), model.initial_point(), np.random.default_rng(3)
    fit = Fit([rng.normal(size=(3, 2)), rng.normal(size=(1, 3))], [np.ones((3, 2)), np.ones((1, 3))])
    sums = []
    for _ in range(30):
        sums.append(sum(point[f"v{i}_log__"] for i in range(4)))
        problem = LeastSquares(X, Y[:, None], [ACTIVATIONS["relu"]], [1e-4, 1e-4, np.exp(sums[-1])])
        point |= learned_scales(network, point, problem, fit)
    assert sums[-1] == pytest.approx(sums[-2], abs=0.01)


@pytest.mark.parametrize("noise", [slow(1e-4), 1e-6])
def test_inputs_that_are_not_standardised(noise):
    """The covariance of the weights is then close to singular."""
    model = pmg.mlp(1e4 * X, Y, 5, noise=noise, prior=None)
    assert fitted_start(read_network(model), model.initial_point(), np.random.default_rng(1))


@pytest.mark.parametrize("likelihood", [slow("normal"), "student"])
def test_learned_noise_is_fitted(likelihood):
    """The fit finds the teacher and the size of the noise; a few outliers do not matter under Student's t."""
    study = pmg.teacher_student((3, 4, 1), n=200, n_test=5, noise=0.1, noisy=False, random_seed=1)
    y = study.y + 0.1 * np.random.default_rng(2).normal(size=200)
    outliers = [3, 30, 100] if likelihood == "student" else []
    y[outliers] += 10
    model = pmg.mlp(study.X, y, 4, noise="learned", prior="relevance", likelihood=likelihood)
    network, point = read_network(model), model.initial_point()
    assert can_be_fitted(network)
    new = fitted_start(network, point, np.random.default_rng(1))
    a = np.maximum(study.X @ new["W1"].T + new["b1"], 0)
    errors = np.delete(a @ new["W2"] + new["b2"] - y, outliers)
    assert errors.std() < 0.15
    shares = 2 if likelihood == "student" else 1  # the last latent and the data have noise of the same variance
    assert shares * np.exp(new["variance_y_log__"]) == pytest.approx(errors.var(), rel=0.3)
    if outliers:
        np.testing.assert_allclose(new["Z3"], a @ new["W2"] + new["b2"])
    assert set(new) == set(point) - {"variance_Z2_log__", "variance_A2_log__"}


# Networks with convolutions


def images_of(study, point):
    """The output without noise of a network with a filter layer, a pool and a dense layer, from textbook sums."""
    z = np.array([[correlate(x, w[0], "valid") for w in point["W1"]] for x in study.X]) + point["b1"][:, None, None]
    p = z.reshape(*z.shape[:2], z.shape[2] // 2, 2, z.shape[3] // 2, 2).mean((3, 5))
    a = np.maximum(p, 0)
    for name, value in {"Z2": z, "P2": p, "A2": a}.items():
        np.testing.assert_allclose(point[name].reshape(value.shape), value, atol=1e-14)
    return a.reshape(len(a), -1) @ point["W2"].T + point["b2"]


@pytest.mark.slow
def test_a_convolutional_teacher_is_found():
    model = pmg.cnn(np.zeros((150, 6, 6)), np.zeros(150), 2, size=3, pool=2, noise=0.01, prior=None)
    study = pmg.teacher_student(model, 150, n_test=5, noisy=False, random_seed=1)
    network, point = read_network(study.model), study.model.initial_point()
    assert can_be_fitted(network)
    point |= fitted_start(network, point, np.random.default_rng(1))
    assert (images_of(study, point) - study.y).std() < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_labels_of_images_are_fitted_by_their_probabilities(classes):
    labels = np.arange(150) % classes
    model = pmg.cnn(np.zeros((150, 6, 6)), labels, 2, size=3, pool=2, noise=0.1, likelihood="probit", prior=None)
    study = pmg.teacher_student(model, 150, n_test=5, random_seed=1)
    network, point = read_network(study.model), study.model.initial_point()
    assert can_be_fitted(network)
    point |= fitted_start(network, point, np.random.default_rng(1))
    f, z = images_of(study, point), point["Z3"]
    found, latent = ((f > 0).ravel(), z > 0) if classes == 2 else (f.argmax(1), z.argmax(1))
    assert (found == study.y).mean() > 0.85
    assert (latent == study.y).all()
    assert np.isfinite(study.model.compile_logp(mode="AS_WRITTEN")(point))


def test_the_quasi_newton_objective_and_its_noise():
    """They are those that networks of dense layers have, and the gradient agrees with differences."""
    model, rng = pmg.mlp(X, Y, 3, noise=0.1, prior=None), np.random.default_rng(1)
    network, precisions = read_network(model), [np.full((3, 3), 2.0), np.full((1, 4), 3.0)]
    noises = [1e-2, 2e-2, 3e-2]
    problem = QuasiNewton(network, X, Y[:, None], noises, precisions, rng)
    weights = problem.drawn()
    dense = LeastSquares(X, Y[:, None], [ACTIVATIONS["relu"]], noises)
    fit = Fit(problem.matrices(weights), precisions)
    assert problem.variance(weights) == pytest.approx(dense.linearised(fit).variance)
    value, _ = problem.objective(weights, 0.5)
    assert value == pytest.approx(dense.objective(fit, 0.5))
    assert check_grad(lambda w: problem.objective(w, 0.5)[0], lambda w: problem.objective(w, 0.5)[1], weights) < 1e-4


@pytest.mark.parametrize("classes", [2, 3])
def test_the_quasi_newton_objective_of_labels(classes):
    """It is -Σ log P(y | f) for logistic noise of variance v, and what the prior adds."""
    y, rng = np.arange(12) % classes, np.random.default_rng(1)
    network = read_network(pmg.mlp(X, y, 3, noise=0.1, likelihood="probit", prior=None))
    precisions = [np.full((3, 3), 2.0), np.full((1 if classes == 2 else classes, 4), 3.0)]
    problem = QuasiNewton(network, X, y, [0.01] * 3, precisions, rng)
    weights, v = problem.drawn(), 0.5
    w1, w2 = problem.matrices(weights)
    f = np.maximum(X @ w1[:, :-1].T + w1[:, -1], 0) @ w2[:, :-1].T + w2[:, -1]
    if classes == 2:
        p = logistic.cdf((2 * y - 1) * f[:, 0], scale=np.sqrt(3 * v) / np.pi)
    else:
        p = softmax(f * gumbel_r.std() / np.sqrt(v), axis=1)[np.arange(12), y]  # noise added to each f is Gumbel's
    value, _ = problem.objective(weights, v)
    assert value == pytest.approx(-np.log(p).sum() + (w1**2).sum() + 1.5 * (w2**2).sum())
    assert check_grad(lambda w: problem.objective(w, v)[0], lambda w: problem.objective(w, v)[1], weights) < 1e-4
    assert problem.fitted(weights, 2).error == np.inf


def test_one_network_is_fitted_to_labels(monkeypatch):
    network, asked = read_network(pmg.cnn(IMAGES, np.arange(12) % 3, 2, noise=0.1, likelihood="probit", prior=None)), []
    precisions = [np.ones((2, 10)), np.ones((3, 33))]
    problem = QuasiNewton(network, IMAGES.reshape(12, -1), np.arange(12) % 3, [0.01] * 3, precisions, RNG)
    monkeypatch.setattr(problem, "fitted", lambda w, steps: asked.append(steps) or Found(w, w[0], np.inf))
    problem.search()
    assert asked == [320]


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_probabilities_are_close_to_those_of_normal_noise(classes):
    n, v = 20, 0.3
    m = np.random.default_rng(1).normal(size=(1, n, 1 if classes == 2 else classes))
    y = np.random.default_rng(2).integers(classes, size=n)
    network = read_network(pmg.mlp(np.zeros((n, 2)), y, 3, noise=0.1, likelihood="probit", prior=None))
    p = network.observation.integrated_probabilities(m[..., 0] if classes == 2 else m, np.sqrt(v))[0]
    for i in range(n):
        row = slice(i, i + 1)
        found = network.observation.logistic_log_probability(pt.constant(m[0, row]), pt.constant(v), y[row])
        assert np.exp(found.eval(mode="AS_WRITTEN")) == pytest.approx(p[i, y[i]], abs=0.05)


@pytest.mark.slow
def test_a_part_of_the_data_is_fitted_where_all_is_too_much_work():
    images = np.random.default_rng(1).normal(size=(3000, 28, 28))
    network = read_network(pmg.cnn(images, images[:, 0, 0], 8, size=4, stride=2, noise=0.1, prior=None))
    assert can_be_fitted(network)
    operators = [layer.operator for layer in network.layers if layer.operator.variables]
    precisions = [np.ones(operator.augmented_shape) for operator in operators]
    inputs, targets = images.reshape(3000, -1), images[:, 0, :1]
    problem = QuasiNewton(network, inputs, targets, [0.01] * 3, precisions, np.random.default_rng(1))
    assert 2000 < len(problem.inputs) < 3000
    weights, values = problem.drawn(), {}
    for operator, w in zip(operators, problem.matrices(weights), strict=True):
        values |= {v.name: x for v, x in operator.values(w).items()}
    chosen = np.isin(inputs[:, 1], problem.inputs[:, 1])
    *_, (f, _) = forward(network, values, inputs[chosen])
    value, _ = problem.objective(weights, 1.0)
    assert value == pytest.approx((((targets[chosen] - f) ** 2).sum() + (weights**2).sum()) / 2)


SETUP = [1e-6] * 3, [np.ones((2, 10)), np.ones((1, 33))], np.random.default_rng(1)


def test_less_work_where_a_step_is_much(monkeypatch):
    """Sixteen networks in five rounds where a step is little work, and a single one where it is much."""
    problem = QuasiNewton(
        read_network(pmg.cnn(IMAGES, Y, 2, noise=1e-3, prior=None)), IMAGES.reshape(12, -1), Y[:, None], *SETUP
    )
    asked = []
    monkeypatch.setattr(problem, "fitted", lambda w, steps: asked.append(steps) or Found(w, w[0], 3.0))
    problem.search()
    assert [asked.count(steps) for steps in (20, 40, 80, 160, 320)] == [16, 8, 4, 2, 1]
    asked.clear()
    problem.work = 1e8
    problem.search()
    assert asked == [320]
    monkeypatch.setattr(problem, "fitted", lambda w, steps: Found(w, np.nan, np.nan))
    assert problem.search() is None


def test_learned_priors_and_factors():
    with pm.Model() as model:
        s = pm.Gamma("s", 2, 2)
        W1, W2 = pm.Normal("W1", 0, s**-0.5, shape=(2, 3)), pm.Normal("W2", 0, 1, shape=(3, 1))
        Z = pm.Normal("Z", 0.5 * pm.math.dot(X, W1), 0.1, shape=(12, 3))
        A = pm.Normal("A", pm.math.maximum(Z, 0), 0.1, shape=(12, 3))
        pm.Normal("y", pm.math.dot(A, W2), 0.1, observed=Y[:, None])
    point = model.initial_point()
    new = fitted_start(read_network(model), point, np.random.default_rng(1))
    assert set(new) == {"W1", "W2", "Z", "A", "s_log__"}
    np.testing.assert_allclose(new["Z"], 0.5 * X @ new["W1"])
    np.testing.assert_allclose(((new["A"] @ new["W2"])[:, 0] - Y).std(), 0, atol=0.3)
    assert model.compile_logp(mode="AS_WRITTEN")(point | new) > model.compile_logp(mode="AS_WRITTEN")(point)


# In the drivers


@pytest.fixture(scope="module")
def steps():
    """A step that looks for a start and one that does not, compiled once for all tests below."""
    model = pmg.mlp(X, Y, 3, noise=0.05, prior=None)
    return [pmg.GibbsNN(model=model, anneal=anneal, compile_kwargs=PYTHON, **LEAN) for anneal in ("auto", None)]


def chain(step, point, *, tune, seed=1):
    if tune is None:
        step.set_rng(np.random.default_rng(seed))
    else:
        step.setup_chain(np.random.default_rng(seed), tune=tune, draws=3)
    points = []
    for _ in range(3):
        point, _ = step.step(point)
        points.append(point)
    return points


def assert_equal(one, other):
    for a, b in zip(one, other, strict=True):
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def test_after_the_start_draws_are_plain_sweeps(steps):
    """The chain that found a start is, draw by draw, the plain chain from that start."""
    auto, plain = steps
    point = auto.model.initial_point()
    found = chain(auto, point, tune=2)
    rng = np.random.default_rng(1)
    start, _ = auto.transition.find(point, np.random.default_rng(rng.integers(2**63)))
    assert start["W1"].any()
    plain.setup_chain(rng, tune=2, draws=3)
    expected = []
    for _ in range(3):
        start, _ = plain.step(start)
        expected.append(start)
    assert_equal(found, expected)


@pytest.mark.parametrize(("start", "tune"), [("zero", 0), ("zero", None), ("prior", 2)])
def test_a_start_is_looked_for_by_a_driver_that_tunes_and_where_the_user_chose_none(steps, start, tune):
    auto, plain = steps
    point = auto.model.initial_point() | pmg.initial_values(auto.model, start, random_seed=1)
    found, expected = chain(auto, point, tune=tune), chain(plain, point, tune=tune)
    if start == "prior":  # a seed for the search has been drawn
        assert np.abs(found[0]["W1"] - point["W1"]).max() < 1.5
    else:
        assert_equal(found, expected)


def test_targets_may_change_under_a_step_that_is_called_by_hand():
    """As in Geweke's joint test."""
    model = pmg.mlp(X, Y, 3, noise=0.3, prior=None)
    step = pmg.GibbsNN(model=model, rng=1, compile_kwargs=PYTHON, **LEAN)
    point, _ = step.step(model.initial_point())
    model.set_data("y_data", Y + 1)
    point, [stats] = step.step(point)
    np.testing.assert_allclose(stats["lp"], model.compile_logp(mode="AS_WRITTEN")(point))


@pytest.mark.slow
def test_starts_in_jax(steps, monkeypatch):
    """Each chain finds its own, but of many chains with one start only the first few; draws go on from there."""
    monkeypatch.setattr(starts, "SEARCHES", 2)
    asked = []
    model = steps[0].model
    step = pmg.GibbsNN(model=model, interweave=False, scale_move=False)
    find = step.transition.find
    step.transition.__dict__["find"] = lambda point, rng: asked.append(find(point, rng)) or asked[-1]
    idata = pmg_sample(model, 5, step=step, tune=1, chains=3, var_names=["W1", "b1", "W2", "b2"])
    assert len(asked) == 2
    assert np.abs(asked[0][0]["W1"] - asked[1][0]["W1"]).max() > 0.01
    assert idata["posterior"]["W1"].values.std((0, 1)).min() > 0
    pmg_sample(model, 5, step=step, tune=0, chains=3, var_names=["W1", "b1", "W2", "b2"])
    assert len(asked) == 2


@pytest.mark.parametrize(
    "build",
    [
        lambda: pmg.mlp(X, Y, 3, noise=0.3, prior=None),
        slow(lambda: pmg.mlp(X, Y, 3, noise=0.3, activation="tanh", prior=None)),
        slow(lambda: pmg.cnn(IMAGES, IMAGES[:, 0, 0], 2, noise=0.3, prior=None)),
    ],
    ids=["relu", "tanh", "images"],
)
def test_starts_found_side_by_side_are_those_found_one_after_another(build, monkeypatch, request):
    """Other networks than the first call compiled functions, which threads must not do at once."""
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    model, said = build(), []
    transition, points, seeds = pmg.GibbsNN(model=model).transition, [model.initial_point()] * 3, [1, 2, 3]
    expected, _ = starts.find_starts([transition], points, seeds, SILENT)
    all_have_begun = threading.Barrier(3, timeout=60)

    def find(point, rng):
        all_have_begun.wait()
        assert {library["num_threads"] for library in ThreadpoolController().select(user_api="blas").info()} == {1}
        return transition.find(point, rng)

    monkeypatch.setattr(starts, "ENOUGH", 0)
    monkeypatch.setattr(starts, "threads_of_blas", lambda: 5)
    sys.setswitchinterval(1e-6)
    flags = pytensor.config.mode, pytensor.config.traceback__limit
    telling = SimpleNamespace(say=said.append)
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        found, _ = starts.find_starts([replace(transition, find=find)], points, seeds, telling)
    assert_equal(found, expected)
    assert flags == (pytensor.config.mode, pytensor.config.traceback__limit)
    assert said == [f"Fitting starting points, {ended} of 3" for ended in range(4)]


def test_threads_may_call_an_activation_at_once(request):
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    function = Smooth(pt.tanh)
    with ThreadPoolExecutor(3) as pool:
        for x in pool.map(
            lambda n: np.abs(function(np.linspace(0, 1, n)) - np.tanh(np.linspace(0, 1, n))), [*range(300)]
        ):
            assert x.max(initial=0) < 1e-12


@pytest.mark.parametrize("reason", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_or_an_error_ends_all_searches(steps, monkeypatch, reason):
    transition, points = steps[0].transition, [steps[0].model.initial_point()] * 2
    first, ended, raises = iter([True]), threading.Event(), threading.Event()

    def find(point, rng):
        if next(first, False):
            assert raises.wait(60)
            raise reason
        try:
            raises.set()
            for _ in range(6000):
                time.sleep(0.01)
        except SystemExit:  # from outside
            ended.set()
            raise

    monkeypatch.setattr(starts, "ENOUGH", 0)
    monkeypatch.setattr(starts, "threads_of_blas", lambda: 2)
    with pytest.raises(reason):
        starts.find_starts([replace(transition, find=find)], points, [1, 2], SILENT)
    assert ended.wait(60)


def test_small_networks_are_searched_one_after_another(steps, monkeypatch):
    threads, said = [], []

    def find(point, rng):
        threads.append(threading.current_thread())
        return point, {}

    monkeypatch.setattr(starts, "threads_of_blas", lambda: 2)
    transition, points = replace(steps[0].transition, find=find), [steps[0].model.initial_point()] * 2
    starts.find_starts([transition], points, [1, 2], SimpleNamespace(say=said.append))
    assert threads == [threading.main_thread()] * 2
    assert said == [f"Fitting starting points, {ended} of 2" for ended in range(3)]

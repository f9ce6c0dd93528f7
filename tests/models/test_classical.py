"""Classical networks and the data to try them on."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit, log_softmax
from scipy.stats import norm

import pymc_gibbsnn as pmg
from tests.helpers import in_python, random_point

X = np.random.default_rng(0).normal(size=(12, 3))


def forward(point, activation):
    a = X
    for l in range(1, 4):
        a = a @ point[f"W{l}"].T + point[f"b{l}"]
        a = activation(a) if l < 3 else a
    return a


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli", "normal"])
@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu"])
def test_log_density(likelihood, activation):
    rng = np.random.default_rng(1)
    y = {"categorical": np.arange(12) % 4, "bernoulli": np.arange(12) % 2, "normal": rng.normal(size=(12, 2))}[
        likelihood
    ]
    variances = [10, 4, 2]
    model = pmg.classical_mlp(
        X, y, [4, 2], activation=activation, likelihood=likelihood, prior_variance=variances, noise=0.3
    )
    point = random_point(model, 2)
    f = forward(point, {"sigmoid": expit, "tanh": np.tanh, "relu": lambda z: np.maximum(z, 0)}[activation])
    expected = {
        "categorical": lambda: log_softmax(f, axis=1)[np.arange(12), y].sum(),
        "bernoulli": lambda: np.log(np.where(y == 1, expit(f), expit(-f))).sum(),
        "normal": lambda: norm(f, 0.3).logpdf(y).sum(),
    }[likelihood]()
    for l, variance in enumerate(variances, start=1):
        expected += sum(norm(0, variance**0.5).logpdf(point[name]).sum() for name in (f"W{l}", f"b{l}"))
    np.testing.assert_allclose(model.compile_logp(mode="AS_WRITTEN")(point), expected, rtol=1e-10)


@in_python()
def test_predictions_at_new_inputs():
    model = pmg.classical_mlp(X, np.arange(12) % 3, 4)
    with model:
        prior = pm.sample_prior_predictive(5, random_seed=1)
        pm.set_data({"X": X[:7]})
        y = pm.sample_posterior_predictive(prior["prior"], var_names=["y"], random_seed=1, progressbar=False)
    assert y["posterior_predictive"]["y"].shape[-1] == 7


@pytest.mark.parametrize(
    ("y", "kwargs", "message"),
    [
        (np.arange(12.0) % 3, {}, "integer labels; found dtype float64: .*, or likelihood='normal' if they are real"),
        (np.arange(12) % 3, {"likelihood": "bernoulli"}, "0 and 1"),
        (np.zeros(12, int), {}, "two classes"),
        (np.arange(12) % 3, {"likelihood": "probit"}, "likelihood must be"),
        (np.arange(12) % 3, {"activation": "tahn"}, "activation must be one of"),
        (np.arange(12) % 3, {"prior_variance": [1, 2, 3]}, "one number or 2, one for each of the layers"),
        (np.arange(12) % 3, {"prior_variance": -1}, "positive"),
        (np.arange(12) % 3, {"batch_size": 13}, "12 rows"),
        (np.arange(12) % 3, {"total_size": 12}, "goes with batch_size"),
        (np.arange(12) % 3, {"noise": 0}, "noise"),
        (np.arange(11) % 3, {}, r"\(12, 3\) and \(11,\)"),
    ],
)
def test_bad_input(y, kwargs, message):
    with pytest.raises(ValueError, match=message):
        pmg.classical_mlp(X, y, 4, **kwargs)


def test_noisy_xor():
    X_train, y_train, X_test, y_test = pmg.noisy_xor(400, 40, random_seed=3)
    for x, y in ((X_train, y_train), (X_test, y_test)):
        bits = x > 0.5
        np.testing.assert_array_equal(y, bits[:, 0] ^ bits[:, 1])
        corners, counts = np.unique(bits, axis=0, return_counts=True)
        assert len(corners) == 4
        assert set(counts) == {len(x) // 4}
        assert ((x > -0.55) & (x < 0.45) | (x > 0.55) & (x < 1.55)).all()
    offset = np.where(X_train > 0.5, X_train - 0.55, X_train + 0.55)
    np.testing.assert_allclose(offset.mean(0), 0.5, atol=5 / np.sqrt(12 * 400))
    assert (np.diff(y_train) != 0).sum() > 100  # not sorted by corner
    np.testing.assert_array_equal(X_train, pmg.noisy_xor(400, 40, random_seed=3)[0])
    with pytest.raises(ValueError, match="multiple of 4"):
        pmg.noisy_xor(10, 4)

"""What is recorded of a model with a network."""

import numpy as np
import pymc as pm
import pytest

import pymc_gibbsnn as pmg

X = np.random.default_rng(0).normal(size=(8, 2))
NOISY = ["W1_noise", "b1_noise", "W2_noise", "precision_W1_noise", "precision_W2_noise"]
NOISY += [f"variance_{name}_noise" for name in ("Z2", "A2", "Z3")]


def beside_an_effect():
    with pm.Model() as model:
        effect = pm.Exponential("Zeta", 1.0)
        Z2 = pm.Normal("hidden", X @ pm.Normal("A", 0, 1, shape=(3, 2)).T, 0.5)
        A2 = pm.Normal("active", pm.math.tanh(Z2), 0.5)
        pm.Normal("y", A2 @ pm.Normal("W2", 0, 1, shape=3) + effect, 0.5, observed=X[:, 0])
    return model


def images():
    pixels = np.random.default_rng(1).normal(size=(8, 6, 6))
    return pmg.cnn(pixels, X[:, 0], 2, pool=2, noise=0.5, prior=None)


def of_new_inputs():
    model = pmg.mlp(X, X[:, 0], 3, noise=0.5, prior=None)
    pm.set_data({"X": X[:5]}, model, coords={"row": range(5)})
    return model


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: pmg.mlp(X, X[:, 0], 3, noise=0.5, prior=None), ["W1", "b1", "W2", "b2"]),
        (lambda: pmg.mlp(X, X[:, 0] > 0, 3, noise=0.5, likelihood="probit", prior=None), ["W1", "b1", "W2", "b2"]),
        (
            lambda: pmg.mlp(X, X[:, 0], 3, noise=0.5, noise_hidden=2, bias=False, prior=None),
            ["W1", "W2", *NOISY],
        ),
        (lambda: pmg.mlp(X, X[:, 0], 3, noise=0.5, likelihood="student", prior=None), ["W1", "b1", "W2", "b2"]),
        (  # shares that add up to 1 have one number less where they are drawn
            lambda: pmg.mlp(X, X[:, 0], 3, noise=0.5, likelihood="mixture", prior=None),
            ["W1", "b1", "W2", "b2", "weights_y", "centers_y", "variances_y"],
        ),
        (images, ["W1", "b1", "W2", "b2"]),
        (of_new_inputs, ["W1", "b1", "W2", "b2"]),
        (lambda: pmg.classical_mlp(X, X[:, 0] > 0, 3), ["W1", "b1", "W2", "b2"]),
        (beside_an_effect, ["Zeta", "A", "W2"]),
    ],
)
def test_all_but_the_latents(build, expected):
    model = build()
    found = pmg.without_latents(model)
    assert sorted(found) == sorted(expected)
    assert found == [rv.name for rv in model.free_RVs if rv.name in found]
    with model:
        assert pmg.without_latents() == found

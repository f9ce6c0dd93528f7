"""Classical networks: what of them is read, and what is refused by name."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.deterministic import read_classical
from pymc_gibbsnn.networks.network import NetworkError
from tests.helpers import PYTHON

X = np.random.default_rng(0).normal(size=(30, 3))


def classical(build, likelihood=pm.Bernoulli):
    with pm.Model() as model:
        w, v = pm.Normal("w", 0, 1, shape=(4, 3)), pm.Normal("v", 0, 1, shape=4)
        f = build(w, v)
        kwargs = {"mu": f, "sigma": 1} if likelihood is pm.Normal else {"logit_p": f}
        likelihood("y", observed=np.arange(30) % 2, **kwargs)
    return model


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda w, v: pt.tanh(X @ w.T) @ pt.exp(v), "a variable with a Normal prior"),
        (lambda w, v: pt.tanh(X @ w.T + v) @ v, "twice"),
        (lambda w, v: (pt.tanh(X @ w.T) * v) @ v, "elementwise|activation"),
        (lambda w, v: (pt.tanh(X @ w.T) * np.arange(4)) @ v, "constant"),
        (lambda w, v: pt.special.softmax(X @ w.T, axis=1) @ v, "one activation"),
        (lambda w, v: pt.tanh(pm.Data("X", X[:, :2]) @ w.T) @ v, "takes 3 inputs, but the input data has 2"),
    ],
)
def test_reader_refuses_by_name(build, message):
    with pytest.raises(NetworkError, match=message):
        read_classical(classical(build))


def test_reader_knows_layouts_and_refuses_other_likelihoods():
    with pm.Model() as model:
        w = pm.Normal("w", 0, [[1.0], [2.0], [3.0]], shape=(3, 4))
        b = pm.Normal("b", 0, 1)
        v = pm.Normal("v", 0, 1, shape=4)
        pm.Normal("y", pt.sqrt(2) * pt.maximum(X @ w, 0) @ v + b, 0.5, observed=X[:, 0])
    network = read_classical(model)
    assert [layer.layout for layer in network.layers] == ["columns", "vector"]
    assert [layer.shape for layer in network.layers] == [(4, 3), (1, 4)]
    with pm.Model() as model:
        w = pm.Normal("w", 0, 1, shape=3)
        pm.Geometric("y", pm.math.sigmoid(X @ w), observed=np.arange(1, 31))
    with pytest.raises(NetworkError, match="geometric"):
        read_classical(model)
    step = pmg.FNBG(model=model, compile_kwargs=PYTHON)  # by the general sweep
    assert len(step.transition.start()["log_scale"]) == 1

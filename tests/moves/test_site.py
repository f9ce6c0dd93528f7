"""A sweep over a network in the middle of which stands a layer of another kind, written here."""

from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.samplers.gibbs import gibbs
from tests.helpers import dense, random_point

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(7, 3)), RNG.normal(size=7)
POOL = np.kron(np.eye(2), [[0.5, 0.5]])  # (2, 4)
DENSE = dense(POOL.shape)


@dataclass(frozen=True, eq=False)
class AveragePool:
    """Means of pairs: all that a sweep asks of a layer without weights."""

    shape = POOL.shape
    fan_in = 4
    variables = ()
    gain = staticmethod(DENSE.gain)
    rows = staticmethod(DENSE.rows)
    written = staticmethod(DENSE.written)
    by_unit = staticmethod(DENSE.by_unit)

    def matrix(self, values):
        return None

    def values(self, w):
        return {}

    def forward(self, a, w):
        return a @ POOL.T

    def linear(self, w):
        return pt.constant(POOL)

    def intercept(self, w):
        return 0.0


def fixed_pool():
    """The model that this is, with the matrix of the pool written out."""
    with pm.Model() as model:
        W1, b1 = pm.Normal("W1", 0, 1, shape=(4, 3)), pm.Normal("b1", 0, 1, shape=4)
        A2 = pm.Normal("A2", pt.maximum(pm.Normal("Z2", X @ W1.T + b1, 0.4), 0), 0.3)
        A3 = pm.Normal("A3", pm.Normal("Z3", A2 @ POOL.T, 0.3), 0.5)
        pm.Normal("y", A3 @ pm.Normal("W3", 0, 1, shape=2) + pm.Normal("b3", 0, 1), 0.4, observed=Y)
    return model


class Pooled(pmg.GibbsNN):
    """A step for the network of a model, whose second layer is made a pool once it is read."""

    @staticmethod
    def build_transition(model, vars, **kwargs):
        network = read_network(model)
        first, pool, last = network.layers
        return gibbs([replace(network, layers=(first, replace(pool, operator=AveragePool()), last))], **kwargs)


def with_weights():
    """The same model with weights in place of the pool."""
    with pm.Model() as model:
        W1, b1 = pm.Normal("W1", 0, 1, shape=(4, 3)), pm.Normal("b1", 0, 1, shape=4)
        A2 = pm.Normal("A2", pt.maximum(pm.Normal("Z2", X @ W1.T + b1, 0.4), 0), 0.3)
        A3 = pm.Normal("A3", pm.Normal("Z3", A2 @ pm.Normal("W2", 0, 1, shape=(2, 4)).T, 0.3), 0.5)
        pm.Normal("y", A3 @ pm.Normal("W3", 0, 1, shape=2) + pm.Normal("b3", 0, 1), 0.4, observed=Y)
    return model


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"collapse": False, "interweave": False},
        {"collapse": False, "interweave": False, "schedule": "layer-parallel"},
    ],
    ids=["default", "plain", "layer-parallel"],
)
def test_a_layer_without_weights(kwargs):
    """Its own moves are left out, and the log density is that of the model with its matrix written out."""
    model = with_weights()
    step = Pooled(model=model, rng=1, compile_kwargs={"mode": "FAST_COMPILE"}, **kwargs)
    point = random_point(model, 1)
    before = dict(point)
    for _ in range(3):
        point, [stats] = step.step(point)
    assert (point["W2"] == before["W2"]).all()
    assert "norm_W2" not in stats
    point = {name: value for name, value in point.items() if name != "W2"}
    assert all((value != before[name]).all() for name, value in point.items())
    np.testing.assert_allclose(stats["lp"], fixed_pool().compile_logp(mode="FAST_COMPILE")(point), rtol=1e-9)

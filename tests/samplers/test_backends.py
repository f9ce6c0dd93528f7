"""Every kind of network takes two sweeps on every backend, and knows its log density after them.

By default one network runs, in Python and JAX, which no other test compiles: priors by weight in both layers, no bias
and a learned noise, by the plain sweep. The others, and Numba, take minutes to compile.
"""

from itertools import product

import numpy as np
import pymc as pm
import pytest

import pymc_gibbsnn as pmg
from tests.helpers import MODES, slow_but

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 2))
Y = RNG.normal(size=(6, 2))
LABELS = np.array([0, 1, 2, 0, 1, 2])


def relu(z):
    return pm.math.maximum(z, 0)


def written(activation=relu, sds=(1.0, 1.0), bias=False, widths=(3, 2), offset=False, noise=0.5):
    """A network written by hand: ``sds`` are the prior scales of the weights of each layer."""
    with pm.Model() as model:
        a, d = pm.Data("X", X), X.shape[1]
        noise = pm.InverseGamma("variance", 3, 1) ** 0.5 if noise is None else noise
        for l, (width, sd) in enumerate(zip(widths, sds, strict=True), 1):
            shape = (width, d)
            w = pm.Normal(f"W{l}", 0, RNG.uniform(0.5, 2, shape) if sd == "weight" else sd, shape=shape)
            mean = a @ w.T
            if bias:
                mean = mean + pm.Normal(f"b{l}", 0, 1, shape=width)
            if l == len(widths):
                break
            z = pm.Normal(f"Z{l + 1}", mean, noise)
            a, d = pm.Normal(f"A{l + 1}", activation(z), 0.5), width
        if offset:
            mean = mean + pm.Normal("intercept", 0, 1)
        pm.Normal("y", mean, 0.5, observed=Y)
    return model


def scaled_by_unit():
    with pm.Model() as model:
        data = pm.Data("X", X)
        by_unit = pm.Gamma("by_unit", 2, 1, shape=(3, 1))
        w1 = pm.Normal("W1", 0, 1 / by_unit**0.5, shape=(3, 2))
        a = pm.Normal("A2", relu(pm.Normal("Z2", data @ w1.T, 0.5)), 0.5)
        pm.Normal("y", a @ pm.Normal("W2", 0, 1, shape=(2, 3)).T, 0.5, observed=Y)
    return model


def two_networks():
    with pm.Model() as model:
        data = pm.Data("X", X)
        for i, activation in enumerate((relu, pm.math.sgn)):
            w = pm.Normal(f"V{i}", 0, np.array([[1.0, 2.0], [0.5, 1.0]]), shape=(2, 2))
            a = pm.Normal(f"A{i}", activation(pm.Normal(f"Z{i}", data @ w.T, 0.5)), 0.5)
            pm.Normal(f"y{i}", a @ pm.Normal(f"W{i}", 0, 1, shape=(2, 2)).T, 0.5, observed=Y)
    return model


PARALLEL = {"collapse": False, "interweave": False, "schedule": "layer-parallel"}
PLAIN = {"collapse": False, "scale_move": False, "interweave": False}
QUICK = {("by weight", "AS_WRITTEN")}
NETWORKS = {
    "by weight": (lambda: written(sds=("weight", "weight"), noise=None), PLAIN),
    "by weight, default": (lambda: written(sds=("weight", "weight")), {}),
    "by weight, bias": (lambda: written(sds=("weight", 1.0), bias=True), {}),
    "by weight, sign": (lambda: written(pm.math.sgn, sds=(1.0, "weight")), {}),
    "by weight, tanh": (lambda: written(pm.math.tanh, sds=("weight", "weight")), {}),
    "by weight, langevin": (lambda: written(sds=("weight", "weight")), {"interweave": "langevin"}),
    "by weight, layer-parallel": (
        lambda: written(sds=("weight", "weight", "weight"), widths=(3, 3, 2)),
        PARALLEL,
    ),
    "by weight, offset": (lambda: written(sds=("weight", "weight"), offset=True), {}),
    "by unit, learned": (scaled_by_unit, {}),
    "two networks": (two_networks, {}),
    "classes": (lambda: pmg.mlp(X, LABELS, 3, noise=0.5, likelihood="probit", prior=None), {}),
    "deep, learned noise": (lambda: written(sds=(1.0, 1.0, 1.0), widths=(3, 2, 2), bias=True, noise=None), {}),
}


@pytest.mark.parametrize(
    ("name", "mode"),
    slow_but(QUICK, product(NETWORKS, MODES)),
)
def test_two_sweeps(name, mode):
    build, options = NETWORKS[name]
    model = build()
    moved = None
    if name == "by weight, offset":
        moved = [rv for rv in model.free_RVs if rv.name != "intercept"]
    step = pmg.GibbsNN(moved, model=model, rng=1, compile_kwargs={"mode": mode}, **options)
    point = model.initial_point(random_seed=1)
    for _ in range(2):
        point, [stats] = step.step(point)
    assert all(np.isfinite(value).all() for value in point.values())
    if moved is None:
        np.testing.assert_allclose(stats["lp"], model.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-6, atol=1e-6)

"""Sweeps of many model forms in Numba against the same sweeps in Python, number by number.

Draws are replaced by functions of their parameters, so that both must agree to rounding. What is drawn is tested
elsewhere; this is a test of all that Numba computes around it, from parameters as each form of a model has them.
"""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.type_other import NoneTypeT

import pymc_gibbsnn as pmg
from tests.helpers import random_point, slow_but

RNG = np.random.default_rng(0)
X, Y, CLASSES, IMAGES = RNG.normal(size=(12, 3)), RNG.normal(size=12), np.arange(12) % 3, RNG.normal(size=(12, 6, 6))
OF_UNITS, OF_WEIGHTS = np.array([0.5, 1.0, 2.0, 0.7]), RNG.uniform(0.5, 2, size=(4, 3))


def wave(x):
    """Numbers between -1 and 1 in the shape of x, each another one."""
    return pt.cos(1.7 * pt.cumsum(pt.ones_like(x).ravel())).reshape(x.shape)


def normal(mean, sd):
    return mean + sd * wave(mean + 0 * sd)


STAND_INS = {
    "normal": normal,
    "uniform": lambda low, high: low + (high - low) * (0.5 + 0.45 * wave(low + 0 * high)),
    "isotropic_normal": lambda mean, variance: normal(mean, pt.sqrt(variance)),
    "gamma": lambda shape, scale: shape * scale * (1 + 0.3 * wave(shape * scale)),
    "generalised_inverse_gaussian": lambda p, a, b: pt.exp(0.2 * pt.tanh(0.01 * p + pt.log1p(b) - pt.log1p(a))),
    "piecewise_normal": lambda m, v, t, kappa, *_: normal((m / v + t) / (1 / v + kappa), 0.1),
    "coupled_piecewise_normal": lambda z, m, v, y, w, g, *_: normal(m + pt.sqrt(v) * pt.tanh((y - z @ w.T) @ g), 0.1),
    "truncated_normal": lambda m, sd, low, high: pt.clip(normal(m, sd), low + 0.01, high - 0.01),
    "argmax_normal": lambda z, m, v, y: pt.switch(
        pt.eq(pt.arange(m.shape[1]), y[:, None]), 5 + 0.1 * m, pt.tanh(normal(m, pt.sqrt(v)))
    ),
}
STAND_INS["coupled_smooth_normal"] = STAND_INS["coupled_piecewise_normal"]


def stand_in(op, rng, size, *parameters):
    """What takes the place of a draw."""
    first, *rest = parameters
    if not isinstance(size.type, NoneTypeT):
        first = first + pt.zeros(size, dtype=first.dtype)
    return SimpleNamespace(outputs=[rng, STAND_INS[op.name](first, *rest)])


def by_hand(of_weights, of_biases, of_readout, transposed=False, offset=0.0, activation=pm.math.tanh, noise=0.5):
    """A network whose standard deviations of priors and noise are numbers, arrays, or functions that make variables."""

    def build():
        with pm.Model() as model:
            s1, s2, s3, s = (x() if callable(x) else x for x in (of_weights, of_biases, of_readout, noise))
            W1 = pm.Normal("W1", 0, s1, shape=(3, 4) if transposed else (4, 3))
            Z2 = pm.Normal("Z2", X @ (W1 if transposed else W1.T) / 1.7 + pm.Normal("b1", 0, s2, shape=4) + offset, s)
            A2 = pm.Normal("A2", activation(Z2), s)
            y = A2 @ pm.Normal("W2", 0, s3, shape=(4, 2)) + pm.Normal("b2", 0, 1, shape=2)
            pm.Normal("y", y, s, observed=np.c_[Y, -Y])
        return model

    return build


def deviation(name, *shape):
    return lambda: pm.Gamma(name, 3, 2, shape=shape) ** -0.5


def relu(z):
    return pt.maximum(z, 0)


def labelled():
    with pm.Model() as model:
        W1, b1 = pm.Normal("W1", 0, 1, shape=(4, 3)), pm.Normal("b1", 0, OF_UNITS, shape=4)
        A2 = pm.Normal("A2", relu(pm.Normal("Z2", X @ W1.T + b1, 0.5)), 0.5)
        W2 = pm.Normal("W2", 0, pm.Gamma("t", 3, 2, shape=(3, 1)) ** -0.5, shape=(3, 4))
        Z3 = pm.Normal("Z3", A2 @ W2.T + pm.Normal("b2", 0, OF_UNITS[:3], shape=3) + [0.1, 0.2, 0.3], 1)
        pmg.ArgmaxLabel("y", Z3, observed=CLASSES)
    return model


def with_effects_of_groups():
    with pm.Model() as model:
        for name in ("_first", "_second"):
            W1 = pm.Normal("W1" + name, 0, OF_UNITS[:, None], shape=(4, 3))
            Z2 = pm.Normal("Z2" + name, X @ W1.T + pm.Normal("b1" + name, 0, OF_UNITS, shape=4), 0.5)
            A2, effects = pm.Normal("A2" + name, relu(Z2), 0.5), pm.Normal("g" + name, 0, 1, shape=3)
            pm.Normal("y" + name, A2 @ pm.Normal("W2" + name, 0, 1, shape=4) + effects[CLASSES], 0.5, observed=Y)
    return model


def measured():
    with pm.Model() as model:
        v, errors = pm.InverseGamma("v", 3, 2), np.linspace(0.3, 2, 12)
        A2 = pm.Normal("A2", relu(pm.Normal("Z2", X @ pm.Normal("W1", 0, 1, shape=(4, 3)).T, 0.5)), 0.5)
        Z3 = pm.Normal("Z3", A2 @ pm.Normal("W2", 0, 1, shape=4), pt.sqrt(v))
        pm.Normal("y", Z3, pt.sqrt(v) * errors, observed=Y)
    return model


FORMS = {
    "priors of units": by_hand(OF_UNITS[:, None], OF_UNITS, OF_UNITS[:, None], activation=relu),
    "priors of units, transposed": by_hand(OF_UNITS, OF_UNITS, OF_UNITS[:2], transposed=True),
    "a prior of each weight": by_hand(OF_WEIGHTS, OF_UNITS, OF_WEIGHTS[:, :2], offset=np.arange(4.0)),
    "learned priors of units": by_hand(
        deviation("t", 4, 1), deviation("u", 4), deviation("v", 1, 2), noise=deviation("n")
    ),
    "learned priors of inputs": by_hand(
        deviation("t", 3), deviation("u"), deviation("v", 4, 1), offset=0.3, activation=relu
    ),
    "learned priors of weights": by_hand(
        deviation("t", 3, 4), 0.7, deviation("v", 4, 2), transposed=True, activation=relu
    ),
    "labels": labelled,
    "two networks with effects of groups": with_effects_of_groups,
    "two labels": lambda: pmg.mlp(X, CLASSES > 0, [3, 4], noise="learned", prior="relevance", likelihood="probit"),
    "heavy tails": lambda: pmg.mlp(X, Y, [3, 4], noise="learned", prior="relevance", likelihood="student"),
    "errors of measurement": measured,
    "fewer rows than inputs": lambda: pmg.mlp(X[:2].repeat(3, 1), np.eye(2), 3, noise=0.5, prior="relevance"),
    "images": lambda: pmg.cnn(IMAGES, CLASSES, 2, pool=2, noise="learned", prior="learned", likelihood="probit"),
}
MOVES = {
    "all": {},
    "plain": {"collapse": False, "scale_move": False, "interweave": False},
}


QUICK = {("labels", "plain")}


@pytest.mark.parametrize(
    ("form", "moves"),
    slow_but(QUICK, product(FORMS, MOVES)),
)
def test_numba_computes_what_python_does(form, moves, monkeypatch):
    monkeypatch.setattr("pymc_gibbsnn.backends.draw.apply_to_types", stand_in)
    model, found = FORMS[form](), {}
    start = {name: x / 2 for name, x in random_point(model, 5).items()}
    for mode in ("NUMBA", "AS_WRITTEN"):
        step = pmg.GibbsNN(model=model, rng=1, anneal=None, compile_kwargs={"mode": mode}, **MOVES[moves])
        step.stop_tuning()
        after = step.step(start)[0]
        found[mode] = after, step.step(after)[0]
    for numba, python in zip(*found.values(), strict=True):
        for name, x in python.items():
            np.testing.assert_allclose(numba[name], x, rtol=1e-7, atol=1e-9, err_msg=name)

"""Products times a number: the same draws as of the model that has the number in its prior."""

import numpy as np
import pymc as pm
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import slow_but

N, D, H = 12, 3, 4
RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(N, D)), RNG.normal(size=N)

# How the readout may be written, and the number by which its weights are multiplied
READOUTS = {
    "after": (lambda a, w: a @ w / np.sqrt(H), H**-0.5),
    "weights": (lambda a, w: a @ (w * 0.3), 0.3),
    "both": (lambda a, w: 2 * (a @ (w / 4)), 0.5),
    "minus": (lambda a, w: -(a @ w), -1.0),
    "latents": (lambda a, w: (a / 4) @ w, 0.25),
    "minus latents": (lambda a, w: -a @ w, -1.0),
    "sum": (lambda a, w: (a * w).sum(axis=1) * 0.7, 0.7),
}


BIAS = 0.5


def ntk(readout=lambda a, w: a @ w, first=1.0, last=1.0):
    """A network whose weights are standard normal before ``first`` and ``last`` multiply their scales."""
    bias = 1.0 if first != 1 else BIAS
    with pm.Model() as model:
        W1, b1 = pm.Normal("W1", 0, first, shape=(H, D)), pm.Normal("b1", 0, BIAS / bias, shape=H)
        product = X @ W1.T if first != 1 else (X @ W1.T) * D**-0.5
        Z2 = pm.Normal("Z2", product + bias * b1, 0.3)
        A2 = pm.Normal("A2", pm.math.maximum(Z2, 0), 0.2)
        W2, b2 = pm.Normal("W2", 0, last, shape=H), pm.Normal("b2", 0, BIAS / bias)
        pm.Normal("y", readout(A2, W2) + bias * b2, 0.4, observed=Y)
    return model


def draws(model, scale, mode="AS_WRITTEN", count=5):
    """(points, log densities) of a chain whose readout starts at the same W̃."""
    point = model.initial_point() | {"W2": np.linspace(-1, 1, H) / scale}
    step = pmg.GibbsNN(model=model, rng=1, compile_kwargs={"mode": mode})
    points, lps = [], []
    for _ in range(count):
        point, [stats] = step.step(point)
        points.append(point)
        lps.append(stats["lp"])
    return points, lps


@pytest.mark.parametrize("form", slow_but({"both"}, READOUTS))
def test_the_number_may_stand_in_the_prior_instead(form):
    readout, factor = READOUTS[form]
    model = ntk(readout)
    points, lps = draws(model, factor)
    others, _ = draws(ntk(first=D**-0.5, last=abs(factor)), 1)
    logp = model.compile_logp(mode="AS_WRITTEN")
    for point, other, lp in zip(points, others, lps, strict=True):
        np.testing.assert_allclose(point["W2"] * factor, other["W2"], rtol=1e-8)
        np.testing.assert_allclose(point["W1"] * D**-0.5, other["W1"], rtol=1e-8)
        np.testing.assert_allclose(point["b1"] * BIAS, other["b1"], rtol=1e-8)
        np.testing.assert_allclose(point["Z2"], other["Z2"], rtol=1e-8)
        np.testing.assert_allclose(lp, logp(point), rtol=1e-10)


def test_norms_are_those_of_the_weights_as_they_are():
    model = ntk(READOUTS["after"][0])
    network = read_network(model)
    assert [layer.operator.factor for layer in network.layers] == pytest.approx([D**-0.5, H**-0.5])
    points, _ = draws(model, 1, count=2)
    step = pmg.GibbsNN(model=model, rng=1, compile_kwargs={"mode": "AS_WRITTEN"})
    point, [stats] = step.step(points[-1])
    assert stats["norm_W1"] == pytest.approx((point["W1"] ** 2).sum() + (point["b1"] ** 2).sum())
    assert stats["norm_W2"] == pytest.approx((point["W2"] ** 2).sum() + point["b2"] ** 2)


@pytest.mark.parametrize("mode", ["NUMBA", "JAX"])
@pytest.mark.slow
def test_on_other_backends(mode):
    points, lps = draws(model := ntk(READOUTS["sum"][0]), 0.7, mode)
    np.testing.assert_allclose(lps[-1], model.compile_logp(mode="AS_WRITTEN")(points[-1]), rtol=1e-8)

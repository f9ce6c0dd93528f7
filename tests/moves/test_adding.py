"""The move that docs/adding.rst adds leaves the distribution of its model unchanged, and runs where others do."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import check_mean, compile_draw, pm_sample, random_point
from tests.samplers import test_gibbs
from tests.samplers.test_gibbs import NUMBA, check_geweke
from tests.test_documents import DOCUMENTS

rng = np.random.default_rng(0)
X = rng.normal(size=(6, 2))
Y = X[:, :1] * X[:, 1:]


@pytest.fixture(scope="module")
def page():
    """What the blocks of the section define."""
    defined = {}
    for block in DOCUMENTS["docs/adding.rst"]:
        if "signs" in block and "pm.sample" not in block:
            exec(block, defined)
    return defined


def test_signs_of_units_leave_the_density_unchanged(page):
    model = pmg.mlp(X, Y, [3, 4], activation="tanh", noise=0.4)
    network, point = read_network(model), random_point(model, 1)
    values = {v: pt.constant(point[v.name]) for v in model.value_vars}
    state = NetworkState.begin(network.at, values, pt.constant(0.0))

    def build(rng):
        rng, site = page["draw_signs"](rng, state.site(0))
        return rng, *(state.put(0, site).new_values[v] for v in values), site.mean

    draw, logp, seen = compile_draw(build), model.compile_logp(mode="AS_WRITTEN"), set()
    for _ in range(100):
        *new, mean = draw()
        new = dict(zip((v.name for v in values), new, strict=True))
        np.testing.assert_allclose(logp(new), logp(point), rtol=1e-12)
        np.testing.assert_allclose(mean, X @ new["W1"].T + new["b1"])
        seen.add(tuple(new["b1"] == point["b1"]))
    assert len(seen) == 8


@pytest.mark.slow
def test_geweke_with_the_signs_of_units(page, monkeypatch):
    """The precision of the data is drawn after the move, so that weights of other signs than A would show in it."""
    with pm.Model() as model:
        sd = pm.Gamma("precision", 4, 4) ** -0.5
        Z2 = pm.Normal("Z2", X @ pm.Normal("W1", 0, 1, shape=(2, 2)).T, 0.5)
        A2 = pm.Normal("A2", pm.math.tanh(Z2), 0.5)
        pm.Normal("y", A2 @ pm.Normal("W2", 0, 1, shape=(1, 2)).T, sd, observed=pm.Data("y_data", Y))
    monkeypatch.setattr(
        test_gibbs, "gibbs", lambda model, **kwargs: page["GibbsWithSigns"](model=model, rng=1, **kwargs)
    )
    check_geweke(model, 4000, interweave=False, **NUMBA)


@pytest.mark.slow
def test_signs_of_units_in_pm_sample(page):
    with pmg.mlp(X, Y, 3, activation="tanh", noise=0.4) as model:
        step = page["GibbsWithSigns"](compile_kwargs={"mode": "NUMBA"})
    idata = pm_sample(model, 400, step, tune=100)
    check_mean(idata["posterior"]["b1"].values[..., 0], 0, "bias")
    assert abs(idata["sample_stats"]["kept_signs_W1"][:, -1] - 0.5).max() < 0.1
    assert step.carry["sweeps_W1"] >= 500

"""Chains that go on from what ``pm.sample`` returned."""

import re
from functools import cache

import numpy as np
import pymc as pm
import pytest

import pymc_gibbsnn as pmg
from tests.helpers import PYTHON, in_python, pm_sample, pmg_sample, slow

X = np.random.default_rng(0).normal(size=(8, 2))
Y = X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=8)

with pm.Model() as REGRESSION:
    pm.Normal("y", X @ pm.Normal("w", shape=2) + pm.Normal("b"), 0.3, observed=Y)
NETWORK = pmg.mlp(X, Y, 3, noise=0.3, prior=None)


@cache
def mala(mode="AS_WRITTEN", **options):
    return pmg.MALA(model=REGRESSION, compile_kwargs={"mode": mode}, **options)


@cache
def langevin(mode="AS_WRITTEN", **options):
    options = {"interweave": "langevin", "scale_move": False} | options
    return pmg.GibbsNN(model=NETWORK, compile_kwargs={"mode": mode}, **options)


def further(step, point, draws=4):
    """Draws by hand, after the tuning."""
    step.stop_tuning()
    found = []
    for _ in range(draws):
        point, _ = step.step(point)
        found.append(point)
    return found


@pytest.mark.parametrize(
    ("model", "step"),
    [
        (REGRESSION, mala),
        slow(REGRESSION, lambda: mala("NUMBA")),
        (NETWORK, langevin),
        (NETWORK, lambda: langevin(interweave="pieces")),
    ],
    ids=["MALA", "MALA in Numba", "Langevin", "pieces"],
)
def test_a_chain_goes_on_as_if_it_had_not_ended(model, step):
    """Given the same random numbers: the step that has made the draws still knows all that it remembers."""
    step = step()
    idata = pm_sample(model, 5, step, tune=20, chains=1)
    arguments = pmg.continue_from(idata, step, model=model)
    assert (arguments["tune"], arguments["chains"]) == (0, 1)
    point = arguments["initvals"][0]
    step.rng = np.random.default_rng(3)
    expected = further(step, point)
    copy = arguments["step"]
    copy.set_rng(np.random.default_rng(3))
    for one, other in zip(further(copy, point), expected, strict=True):
        for name, x in other.items():
            np.testing.assert_allclose(one[name], x, rtol=1e-8, atol=1e-10, err_msg=name)


def test_each_chain_takes_its_own_step_size_and_last_draw():
    """In this process, in others, and in JAX; with two steps that report a step size each."""
    with REGRESSION:
        steps = [pmg.MALA([REGRESSION[name]], compile_kwargs=PYTHON) for name in "wb"]
    idata = pm_sample(REGRESSION, 5, steps, tune=20)
    tuned = idata["sample_stats"]["step_size"].values[:, -1]
    assert tuned.shape == (2, 2)
    assert len({*tuned.flat}) == 4
    arguments = pmg.continue_from(idata, steps, model=REGRESSION)
    for chain, start in enumerate(arguments["initvals"]):
        for name in "wb":
            np.testing.assert_array_equal(start[name], idata["posterior"][name].values[chain, -1])
    for cores in (1, 2):
        more = pm_sample(REGRESSION, 3, cores=cores, **arguments)
        np.testing.assert_allclose(more["sample_stats"]["step_size"], np.broadcast_to(tuned[:, None], (2, 3, 2)))
    more = pmg_sample(REGRESSION, 3, **arguments)
    again = pmg.continue_from(more, arguments["step"], model=REGRESSION)
    for i, name in enumerate(["step_size", "step_size_1"]):
        np.testing.assert_allclose(more["sample_stats"][name].values[:, -1], tuned[:, i])
        np.testing.assert_allclose(np.exp(again["step"][i].tuned["log_step"]), tuned[:, i])
    assert not steps[0].tuned


@in_python()
def test_what_idata_lacks_is_named():
    draws = pm_sample(NETWORK, 2, langevin(), var_names=["W1", "b1", "W2", "b2"])
    with pytest.raises(ValueError, match=r"does not hold the draws of \['Z2', 'A2'\]. Pass tune="):
        pmg.continue_from(draws, langevin(), model=NETWORK)
    found = pmg.continue_from(draws, langevin(), tune=4, random_seed=1, model=NETWORK)
    assert found["tune"] == 4
    assert "log_step_W1" in found["step"].tuned
    for start, chain in zip(found["initvals"], (0, 1), strict=True):
        weights = {name: draws["posterior"][name].values[chain, -1] for name in ("W1", "b1")}
        np.testing.assert_array_equal(start["W1"], weights["W1"])
        noise = start["Z2"] - X @ weights["W1"].T - weights["b1"]
        assert 0.1 < noise.std() < 0.6
    assert pm_sample(NETWORK, 2, **found)["posterior"].sizes["draw"] == 2

    everything = pm_sample(REGRESSION, 2, mala())
    others = [
        (pmg.FNBG(model=REGRESSION, compile_kwargs=PYTHON), "what FNBG has tuned (log_scale)"),
        (
            pmg.MALA([REGRESSION["w"]], model=REGRESSION, compile_kwargs=PYTHON),
            "what the steps have tuned that PyMC chooses for ['b']",
        ),
        (pm.Metropolis(model=REGRESSION), "what Metropolis has tuned"),
    ]
    assert (
        pmg.continue_from(everything, mala(momentum_refresh=0.5), model=REGRESSION)["tune"] == 0
    )  # it draws its momentum
    for step, message in others:
        with pytest.raises(ValueError, match=rf"does not hold {re.escape(message)}.*Pass tune="):
            pmg.continue_from(everything, step, model=REGRESSION)
        assert pmg.continue_from(everything, step, tune=3, model=REGRESSION)["tune"] == 3
    with pytest.raises(ValueError, match=r"idata holds no draws of \['b'\], without which no chain can go on"):
        pmg.continue_from(pm_sample(REGRESSION, 2, mala(), var_names=["w"]), mala(), model=REGRESSION)
    everything["posterior"]["w"].values[1, -1] = np.nan
    with pytest.raises(ValueError, match=r"The chains \[1\] of idata end at numbers that are not finite"):
        pmg.continue_from(everything, mala(), model=REGRESSION)

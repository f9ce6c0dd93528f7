"""What a step reads off the call of ``pm.sample``, and says before anything is drawn."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn import _compat
from pymc_gibbsnn.backends import machine
from pymc_gibbsnn.drivers import call_of_sample, step
from tests import helpers
from tests.helpers import pm_sample

X = np.random.default_rng(0).normal(size=(8, 2))


def test_more_draws_than_memory_holds(monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda: 10_000)
    model = pmg.mlp(X, X[:, 0], 3, noise=0.3, prior=None)
    with pytest.warns(UserWarning, match=r"GiB.*Z2.*var_names=") as warned:
        pm_sample(model)
    assert {one.filename for one in warned if "GiB" in str(one.message)} == {helpers.__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pm_sample(model, var_names=["b2"])


@pytest.mark.parametrize(
    ("asked", "cost"),
    [
        ({}, r"\(40,000 numbers a draw, 1,280\.0 MB in all, and PyMC's check of R-hat and ESS takes 28 s or more"),
        ({"compute_convergence_checks": False}, r"\(40,000 numbers a draw, 1,280\.0 MB in all\)"),
        ({"chains": 1}, r"\(40,000 numbers a draw, 320\.0 MB in all\)"),
    ],
)
def test_recorded_latents_are_told_in_memory_and_time(monkeypatch, asked, cost):
    model = pmg.mlp([[0.0], [1.0]], [0.0, 1.0], 2, noise=0.1, prior=None)
    latents = [model.rvs_to_values[model[name]] for name in ("Z2", "A2")]
    asked = {"initvals": None, "chains": 4, "draws": 1000, "tune": 0, "compute_convergence_checks": True} | asked
    caller = SimpleNamespace(f_code=SimpleNamespace(co_filename=__file__), f_lineno=1)
    call = SimpleNamespace(f_locals=asked | {"var_names": None}, f_back=caller)
    monkeypatch.setattr(call_of_sample, "call_in_pymc", lambda name: call)
    monkeypatch.setattr(call_of_sample, "memory_warning", lambda sizes, draws: "")
    with pytest.warns(UserWarning, match=rf"The latents Z2, A2 are recorded {cost}"):
        assert call_of_sample.check_call_of_sample(model, dict.fromkeys(["Z2", "A2"], 160_000), latents)


@pytest.mark.parametrize("call", [None, SimpleNamespace(f_locals={})], ids=["other functions", "other variables"])
def test_another_release_of_pymc(call, monkeypatch):
    """In which calls have other names, or their variables: chains are drawn as by a step that is called by hand."""
    for module in (_compat, call_of_sample, step):
        monkeypatch.setattr(module, "call_in_pymc", lambda *functions: call)
    draws = pm_sample(pmg.mlp(X, X[:, 0], 3), tune=5, var_names=["W1"])["posterior"]["W1"].values
    assert np.isfinite(draws).all()
    assert (draws[0] != draws[1]).all()

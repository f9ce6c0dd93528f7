"""What ends a run before all its draws are made, and what is told of each draw."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

import pymc_gibbsnn as pmg
from pymc_gibbsnn.drivers import program as programs
from pymc_gibbsnn.drivers import until
from pymc_gibbsnn.drivers.mixing import ess_of
from tests.helpers import pmg_sample

X = np.random.default_rng(0).normal(size=(30, 2))
MODEL = pmg.mlp(X, X[:, 0], (), noise=0.3, prior=None)
STEP = pmg.GibbsNN(model=MODEL)


def run(draws, **arguments):
    return pmg_sample(MODEL, draws, step=STEP, **({"tune": 0} | arguments))


def test_enough_effective_draws_end_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "MOST_A_CALL", 50)
    found = run(100_000, until={"ess": 500})
    draws = found["posterior"].sizes["draw"]
    assert 250 <= draws < 1000
    summary = pmg.summary(found, MODEL)  # counts what was asked for
    assert summary.loc["output", "ess_bulk"] >= 500
    assert summary.verdict.startswith("All chains agree on the outputs")
    path = tmp_path / "draws.zarr"
    run(draws // 2, store=path)
    again = run(100_000, resume=path, until={"ess": 500})
    assert draws // 2 < again["posterior"].sizes["draw"] < 1000
    n = min(draws, again["posterior"].sizes["draw"])
    np.testing.assert_array_equal(again["posterior"]["W1"][:, :n], found["posterior"]["W1"][:, :n])


def test_a_time_limit(tmp_path, monkeypatch):
    path = tmp_path / "draws.zarr"
    with pytest.raises(TimeoutError, match=r"before anything was drawn\. The run goes on with resume="):
        run(10, store=path, until={"seconds": 1e-3})
    assert run(10, resume=path)["posterior"].sizes["draw"] == 10
    monkeypatch.setattr(programs, "MOST_A_CALL", 10)
    now = {"seconds": 0.0}  # the time is up when something has been drawn
    monkeypatch.setattr(until, "time", SimpleNamespace(perf_counter=lambda: now["seconds"]))
    found = run(10**7, until={"seconds": 1e9, "ess": 10**9}, callback=lambda **_: now.update(seconds=1e12))
    assert 1 <= found["posterior"].sizes["draw"] <= 10


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"until": 400}, TypeError, "until must be a dictionary, such as .*; found 400"),
        ({"until": {"rhat": 1.01}}, ValueError, "until may hold 'ess' and 'seconds'; found 'rhat'"),
        ({"until": {"ess": -1}}, ValueError, r"until\['ess'\] must be a positive, finite number; found -1"),
        ({"until": {"ess": 100}, "var_names": ["b1"]}, ValueError, "W1"),
    ],
)
def test_impossible_ends_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        run(10, **arguments)


def test_a_callback_is_told_of_each_draw():
    told = []
    found = run(3, tune=2, callback=lambda trace, draw: told.append(draw))
    for chain in range(2):
        draws = [draw for draw in told if draw.chain == chain]
        assert [draw.draw_idx for draw in draws] == [0, 1, 2, 3, 4]
        assert [draw.tuning for draw in draws] == [True, True, False, False, False]
        assert [draw.is_last for draw in draws] == [False] * 4 + [True]
        np.testing.assert_array_equal([draw.point["W1"] for draw in draws[2:]], found["posterior"]["W1"][chain])
        np.testing.assert_array_equal([draw.stats[0]["lp"] for draw in draws[2:]], found["sample_stats"]["lp"][chain])


def test_a_callback_may_end_a_run(tmp_path):
    def stop(trace, draw):
        if draw.draw_idx == 20:
            raise KeyboardInterrupt

    found = run(10_000, callback=stop, store=tmp_path / "draws.zarr")
    assert 20 < found["posterior"].sizes["draw"] < 10_000

    def fail(trace, draw):
        if draw.draw_idx == 20:
            raise ValueError("no such file")

    with pytest.raises(ValueError, match="no such file"):
        run(10_000, callback=fail, store=tmp_path / "others.zarr")
    assert pmg.open(tmp_path / "others.zarr")["posterior"].sizes["draw"] > 20


@pytest.mark.slow
def test_chains_that_do_not_move_have_no_effective_draws():
    """All steps of this size are rejected; ArviZ takes equal draws for independent ones."""
    with pmg.classical_mlp(X, X[:, 0], 2, activation="relu", likelihood="normal", noise=0.01) as model:
        step = pmg.MALA(step_size=50.0)
    start = {name: np.ones_like(x) for name, x in model.initial_point().items()}
    found = pmg_sample(model, 300, step=step, tune=0, until={"ess": 50}, initvals=start)
    assert np.ptp(found["posterior"]["W1"].values, axis=1).max() == 0
    assert found["posterior"].sizes["draw"] == 300


def random_posterior(model, draws):
    """Two chains of independent weights."""
    rng, start = np.random.default_rng(1), model.initial_point()
    values = {
        rv.name: rng.normal(size=(2, draws, *start[rv.name].shape)) for rv in model.free_RVs if rv.name[0] in "Wb"
    }
    dims = {name: ["chain", "draw", *(f"{name}_{i}" for i in range(x.ndim - 2))] for name, x in values.items()}
    coords = {"chain": [0, 1], "draw": np.arange(draws)}
    return xr.Dataset({name: (dims[name], x) for name, x in values.items()}, coords)


@pytest.mark.parametrize("still", [[], [1], [0, 1]], ids=["none", "one", "both"])
def test_draws_of_a_chain_that_does_not_move_do_not_end_a_run(still):
    """ArviZ takes equal draws for independent ones."""
    model = pmg.mlp(X, X[:, 0], 2, noise=0.3, prior=None)
    posterior = random_posterior(model, 150)
    for x in posterior.values():
        x.values[still] = x.values[still, :1]
    run_until = until.Until({"ess": 50}, model, 0.0)
    run_until.take(posterior)
    assert run_until.is_reached == (not still)


def test_numbers_that_do_not_change_have_no_effective_draws():
    x = np.random.default_rng(1).normal(size=(2, 150, 3))
    x[..., 1] = 1
    assert len(ess_of(x)) == 2
    assert not len(ess_of(x[..., 1:2]))


def test_a_run_ends_by_the_numbers_of_the_summary():
    """The same rows and statistics, of outputs or probabilities, whatever the run records beside them."""
    for likelihood, y in (("normal", X[:, 0]), ("probit", np.arange(30) % 3)):
        with pmg.mlp(X, y, 2, noise=0.3, prior=None, likelihood=likelihood) as model:
            posterior = random_posterior(model, 150)
        row = "output" if likelihood == "normal" else "probability"
        least = pmg.summary({"posterior": posterior}, model).loc[row, "ess_bulk"]
        run_until = until.Until({"ess": least - 1e-6}, model, 0.0)
        for part in (slice(0, 60), slice(60, 150)):
            run_until.take(posterior.isel(draw=part))
        assert run_until.is_reached
        run_until.ess, run_until.next = least + 1e-6, 150
        assert not run_until.is_reached

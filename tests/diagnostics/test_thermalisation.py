from dataclasses import replace
from importlib import import_module

import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr

import pymc_gibbsnn as pmg
from pymc_gibbsnn import _compat
from pymc_gibbsnn.models.teachers import check_teacher
from pymc_gibbsnn.plots import plot_rhat, plot_thermalisation
from tests.helpers import in_python

QUIET = {"cores": 1, "quiet": True, "compile_kwargs": {"mode": "AS_WRITTEN"}}


@pytest.fixture(scope="module", autouse=True)
def python():
    with in_python():
        yield


@pytest.fixture(scope="module")
def study():
    return pmg.teacher_student((3, 2, 1), n=40, n_test=30, noise=0.1, random_seed=1)


@pytest.fixture(scope="module")
def step(study):
    return pmg.GibbsNN(model=study.model, sweeps_per_draw=2, compile_kwargs={"mode": "AS_WRITTEN"})


@pytest.fixture(scope="module")
def found(study, step):
    starts = ["zero", "prior", "prior"]
    return pmg.thermalisation(study, step=step, starts=starts, draws=60, block=10, points=7, random_seed=0, **QUIET)


def test_what_is_returned(study, found):
    assert list(found["chain"].values) == ["informed", "zero", "prior 1", "prior 2"]
    assert list(found["start"].values) == ["zero", "prior 1", "prior 2"]
    assert found["rhat"].dims == found["rhat_rank"].dims == ("start", "block", "point")
    assert found["rhat"].shape == (3, 6, 7)
    np.testing.assert_array_equal(found["draw"][:3], [2, 4, 6])
    np.testing.assert_array_equal(found["block"][:2], [10, 30])
    assert set(found["verdict"].values) <= {"thermalised", "not thermalised", "undecided"}
    for start in found["start"].values:
        assert f"{start}: {found['verdict'].sel(start=start).item()}" in found.attrs["verdict"]
    series = found["series"]
    assert float(series.sel(chain="informed")[0]) < float(series.sel(chain="zero")[0])
    assert not np.allclose(series.sel(chain="prior 1"), series.sel(chain="prior 2"))


def test_chains_that_were_run_already(study, step, monkeypatch):
    results = {}
    with study.model:
        for seed, kind in enumerate(("informed", "zero")):
            teacher = study.teacher if kind == "informed" else None
            results[kind] = pm.sample(
                60,
                tune=0,
                chains=1,
                step=step,
                initvals=pmg.initial_values(kind=kind, teacher=teacher),
                random_seed=seed,
                progressbar=False,
                compute_convergence_checks=False,
                **QUIET,
            )
    monkeypatch.setattr(import_module("pymc_gibbsnn.diagnostics.thermalisation"), "NUMBERS", 59 * 30)  # two parts
    again = pmg.thermalisation(study, results, block=20)
    assert again.attrs["sweeps_per_draw"] == 2  # as the draws say
    stats = {group: _compat.dataset_of(results["zero"], group) for group in ("posterior", "sample_stats")}
    stats["sample_stats"] = stats["sample_stats"].assign(sweeps_per_draw=stats["sample_stats"]["sweeps_per_draw"] + 1)
    with pytest.raises(ValueError, match=r"have \[2, 3\] sweeps a draw"):
        pmg.thermalisation(study, results | {"zero": stats}, block=20)
    error = ((pmg.function_space(results["zero"], study.model, study.X_test)["output"] - study.f_test) ** 2).mean(
        "point"
    )
    np.testing.assert_allclose(again["series"].sel(chain="zero"), error[0])
    norm = pmg.thermalisation(study, results, block=20, test_function=lambda space: space["norm"].sel(layer=1))
    w = results["informed"]["posterior"]
    expected = (w["W1"] ** 2).sum(["hidden_2", "feature"]) + (w["b1"] ** 2).sum("hidden_2")
    np.testing.assert_allclose(norm["series"].sel(chain="informed"), expected[0])
    for figure in (plot_thermalisation, plot_rhat):
        figure(again)

    for change, message in [
        ({"results": {"informed": results["informed"]}}, "one chain only"),
        ({"results": {"zero": results["zero"]}}, "lack the chain 'informed'"),
        ({"block": 31}, "two blocks of 31"),
        ({"block": 3}, "at least 10"),
        ({"test_function": lambda space: 0 * space["norm"].sel(layer=1)}, "'informed' is constant"),
        ({"test_function": lambda space: space["norm"]}, "must return a DataArray"),
    ]:
        with pytest.raises(ValueError, match=message):
            pmg.thermalisation(study, **({"results": results, "block": 20} | change))


def test_the_score_is_the_gradient(study, found):
    rng = np.random.default_rng(0)
    point = {name: rng.normal(size=np.shape(v)) for name, v in study.teacher.items()}
    noise = point["Z2"] - study.X @ point["W1"].T - point["b1"]
    gradient = noise.T @ study.X - 0.01 * 3 * point["W1"]
    [score] = study.model.replace_rvs_by_values([study.model["score"]])
    values = {v: point[v.name] for v in study.model.value_vars}
    function = pytensor.function(list(values), score, mode="AS_WRITTEN", on_unused_input="ignore")
    np.testing.assert_allclose(function(*values.values()), gradient.mean())
    assert found["score"].shape == found["series"].shape
    assert (found["score_time"].values <= 120).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draws": 99}, "two blocks"),
        ({"starts": []}, "no uninformed chain"),
        ({"block": 5}, "at least 10"),
    ],
)
def test_bad_runs_are_refused(study, change, message):
    with pytest.raises(ValueError, match=message):
        pmg.thermalisation(study, **change)


def test_teachers_of_another_model_are_refused(study):
    other = pmg.teacher_student((3, 4, 1), n=40, n_test=30, noise=0.1, random_seed=1)
    with pytest.raises(ValueError, match="teacher does not belong to the model: \\['A2', 'W1', 'W2', 'Z2', 'b1'\\]"):
        pmg.thermalisation(replace(study, teacher=other.teacher))
    with pytest.raises(ValueError, match="other data than the study as 'y'"):
        pmg.thermalisation(replace(study, y=study.y + 1))
    with pytest.raises(ValueError, match="other data than the study as the inputs"):
        pmg.thermalisation(replace(study, X=study.X + 1))
    for name, wrong in [("W1", "Z2"), ("Z2", "Z2"), ("A2", "A2"), ("W2", "y"), ("b2", "y")]:
        with pytest.raises(ValueError, match=f"'{wrong}' has .* times the variance"):
            pmg.thermalisation(replace(study, teacher=study.teacher | {name: 2 + study.teacher[name]}))
    for k, noisy in ((2, True), (3, False)):
        labels = {"likelihood": "probit", "noise": 0.1, "noisy": noisy}
        check_teacher(pmg.teacher_student((3, 4, k), n=30, n_test=5, random_seed=1, **labels))


def test_annealing_spares_the_informed_chain(study, monkeypatch):
    tunes = []

    def sample(draws, *, tune, chains, var_names, **_):
        tunes.append(tune)
        rng = np.random.default_rng(tune)
        values = {n: rng.normal(size=(chains, draws, *study.teacher[n].shape)) for n in var_names if n != "score"}
        dims = {n: ("chain", "draw", *(f"{n}_{i}" for i in range(v.ndim - 2))) for n, v in values.items()}
        coords = {"chain": np.arange(chains), "draw": np.arange(draws)}
        return {"posterior": xr.Dataset({n: (dims[n], v) for n, v in values.items()}, coords=coords)}

    monkeypatch.setattr(pm, "sample", sample)
    for anneal in (None, 1.0):
        pmg.thermalisation(study, step=pmg.GibbsNN(model=study.model, anneal=anneal), tune=7, draws=100)
    assert tunes == [7, 7, 0, 7]


# Figures


def test_figures(found):
    panels = plot_thermalisation(found).get_figure().axes
    assert len(panels) == 4
    assert [len(panel.lines) > 0 for panel in panels] == [True] * 4
    assert len(plot_rhat(found, start="zero").lines) == 5
    with pytest.raises(ValueError, match="start must be one of"):
        plot_rhat(found, start="warm")

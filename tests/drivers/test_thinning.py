"""Automatic thinning: what it aims at, and that both drivers choose it while tuning, and by the seed alone."""

import logging

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_gibbsnn as pmg
from pymc_gibbsnn.drivers import chain_loop, thinning
from pymc_gibbsnn.drivers.plan import schedule_of
from pymc_gibbsnn.drivers.thinning import Thinning, most_sweeps
from pymc_gibbsnn.networks.reader import read_networks
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.samplers.watched import multiplications, watched
from tests.helpers import PYTHON, QUIET, autoregression, in_python, pm_sample, pmg_sample

X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.maximum(X[:, 0], 0) + 0.1 * np.random.default_rng(1).normal(size=8)
ASKED = {"tune": 100, "thin": 1, "chains": 4, "local_rows": False}


def autoregressive(correlation, steps, chains, seed):
    """Independent series (step, chain) in equilibrium, one step of which is a sweep."""
    rng = np.random.default_rng(seed)
    return np.stack([autoregression(rng, correlation, steps) for _ in range(chains)], axis=1)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 0.97])
@pytest.mark.parametrize("chains", [1, 4])
def test_draws_are_worth_what_was_asked_for(correlation, chains):
    """400 over all chains and 100 in each, if that takes few enough sweeps, of the slowest number that is watched."""
    worth, sweeps = [], []
    for seed in range(10):
        found = Thinning(1000, 1000, chains, 1000)
        while found.steps < 1000:
            steps = found.next_choice - found.steps
            slow = autoregressive(correlation, steps * found.sweeps, chains, [seed, found.steps])[:: found.sweeps]
            fast = autoregressive(0, steps, chains, [seed, found.steps, 1])
            found.add(np.stack([slow, fast], axis=-1))
        draws = autoregressive(correlation, 1000 * found.sweeps, chains, [seed, 2])[:: found.sweeps]
        worth.append(float(az.ess(np.ascontiguousarray(draws.T))))
        sweeps.append(found.sweeps)
    assert np.min(worth) > 400
    planned = 2 * (1 + correlation) / (1 - correlation) * 400 / (chains * 1000)
    assert np.median(sweeps) <= 2 * planned + 2


def test_choices_come_at_fixed_steps_and_look_at_equal_sweeps():
    series, chosen = autoregressive(0.99, 1000, 3, 1)[..., None], []
    at_once, bit_by_bit = Thinning(1000, 1000, 3, 50), Thinning(1000, 1000, 3, 50)
    while at_once.steps < 1000:
        chosen.append(at_once.next_choice)
        at_once.add(series[at_once.steps : at_once.next_choice])
    for i in range(1000):
        again = Thinning(1000, 1000, 3, 50)
        again.restore(bit_by_bit.state())
        again.add(series[i : i + 1])
        bit_by_bit = again
    assert chosen == [125, 250, 500, 1000]
    assert at_once.sweeps == bit_by_bit.sweeps > 1


def test_few_steps_and_numbers_that_stand_still_leave_the_choice_as_it_was():
    few, stuck = Thinning(30, 1000, 4, 20, sweeps=3), Thinning(400, 1000, 4, 20, sweeps=3)
    for found in (few, stuck):
        series = autoregressive(0.9, found.tune, 4, 1)[..., None] * (found is few)
        while found.steps < found.tune:
            found.add(series[found.steps : found.next_choice])
    assert few.sweeps == stuck.sweeps == 3


def test_large_networks_make_fewer_sweeps():
    rows = {10: 10, 20_000: 1_000_000 // (20_000 * (3 * 3 + 4)), 1_000_000: 1}
    for n, most in rows.items():
        networks = read_networks(pmg.mlp(np.zeros((n, 2)), np.zeros(n), 3, noise=0.3, prior=None))
        assert most_sweeps([Transition([], None, multiplications=multiplications(networks))]) == most


def test_what_is_watched():
    """Outputs as function_space has them, and logarithms of what is learned; labels leave shifts of outputs open."""
    model = pmg.mlp(X, Y, 3, noise="learned", prior="relevance")
    transition = pmg.GibbsNN(model=model, compile_kwargs=PYTHON).transition
    rng, point = np.random.default_rng(1), model.initial_point()
    point = {name: rng.normal(size=np.shape(x)) for name, x in point.items()}
    weights = {name: (("chain", "draw", *"ab"[: np.ndim(x)]), x[None, None]) for name, x in point.items()}
    posterior = xr.Dataset({name: weights[name] for name in ("W1", "b1", "W2", "b2")})
    outputs = pmg.function_space({"posterior": posterior}, model)["output"].values.ravel()
    found = transition.watch(point)
    np.testing.assert_allclose(found[: len(X)], outputs)
    logs = sorted(np.concatenate([np.ravel(x) for name, x in point.items() if name.endswith("_log__")]))
    np.testing.assert_allclose(sorted(abs(found[len(X) :])), sorted(np.abs(logs)))
    labelled = pmg.mlp(X, np.arange(8) % 3, 3, noise=0.3, prior=None, likelihood="probit")
    point = {name: rng.normal(size=np.shape(x)) for name, x in labelled.initial_point().items()}
    watch = pmg.GibbsNN(model=labelled, compile_kwargs=PYTHON).transition.watch
    np.testing.assert_allclose(watch(point | {"b2": point["b2"] + 5}), watch(point))
    assert watched(read_networks(labelled)).ndim == 1


def test_pm_sample_chooses_while_tuning(monkeypatch):
    """By the seed alone: in one process or in several, and whatever the step was used for before."""
    monkeypatch.setattr(thinning, "MOST_SWEEPS", 3)
    model = pmg.mlp(X, Y, 3, noise=0.3, prior=None)
    step = pmg.GibbsNN(model=model, compile_kwargs=PYTHON)
    assert step.sweeps_per_draw == "auto"
    runs = [
        pm_sample(model, 10, tune=48, step=step, cores=cores, discard_tuned_samples=False, **QUIET) for cores in (1, 2)
    ]
    stats = [run["sample_stats"]["sweeps_per_draw"].values for run in runs]
    np.testing.assert_array_equal(*stats)
    np.testing.assert_array_equal(*(run["posterior"]["W1"].values for run in runs))
    assert (stats[0] == 3).all()  # ten draws are few
    assert (runs[0]["warmup_sample_stats"]["sweeps_per_draw"] == 1).all()


def test_a_step_goes_on_in_the_middle_of_its_tuning(monkeypatch):
    monkeypatch.setattr(thinning, "MOST_SWEEPS", 2)
    model = pmg.mlp(X, Y, 3, noise=0.3, prior=None)
    one, two = (pmg.GibbsNN(model=model, compile_kwargs=PYTHON, anneal=None) for _ in range(2))
    for seed, step in enumerate((one, two)):
        step.setup_chain(np.random.default_rng(seed), 48, 10)
    point = model.initial_point()
    for _ in range(30):
        point, _ = one.step(point)
    two.sampling_state, there = one.sampling_state, point
    for _ in range(20):
        point, [stats] = one.step(point)
        there, [again] = two.step(there)
    assert stats == again
    assert stats["sweeps_per_draw"] == 2


@pytest.mark.slow
@in_python()
def test_pmg_sample_chooses_by_the_seed_alone(tmp_path, monkeypatch):
    """Whatever a call of the program takes, and where a run that was interrupted goes on."""
    model = pmg.mlp(X, Y, 3, noise=0.3, prior=None)

    def run(**arguments):
        step = pmg.GibbsNN(model=model, interweave=False, scale_move=False)
        return pmg_sample(model, 10, step=step, tune=80, **arguments)

    expected = run()
    stats = expected["sample_stats"]["sweeps_per_draw"].values
    assert (stats > 1).all()
    assert (stats == stats[0, 0]).all()
    monkeypatch.setattr(chain_loop, "SECONDS_A_CALL", 1e-9)  # one draw a call
    np.testing.assert_array_equal(run()["posterior"]["W1"], expected["posterior"]["W1"])

    def interrupt(trace, draw):
        if draw.draw_idx == 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(store=tmp_path / "draws", callback=interrupt)
    found = run(resume=tmp_path / "draws")
    np.testing.assert_array_equal(found["posterior"]["W1"], expected["posterior"]["W1"])
    np.testing.assert_array_equal(found["sample_stats"]["sweeps_per_draw"], stats)
    more = pmg.continue_from(found, pmg.GibbsNN(model=model, interweave=False), tune=1, model=model)
    assert more["step"].first_sweeps.tolist() == stats[:, -1].tolist()


def test_other_samplers_take_part_unless_they_ask_for_several_steps():
    with pm.Model() as model:
        noise = pm.HalfNormal("noise")
        z = pm.Normal("z", X @ pm.Normal("w", shape=2), 0.3, shape=8)
        pm.Normal("y", z, noise, observed=Y)
    gibbs = pmg.GibbsNN(model=model, compile_kwargs=PYTHON)
    for sweeps, expected in ((1, (100, 1)), (5, (0, 5))):
        mala = pmg.MALA([noise], model=model, sweeps_per_draw=sweeps)
        found = schedule_of([gibbs, mala], draws=100, **ASKED).thinning
        assert (found.tune, found.sweeps) == expected
    with pytest.raises(TypeError, match="sweeps_per_draw must be a positive integer; found 'auto'"):
        pmg.MALA([noise], model=model, sweeps_per_draw="auto")


def test_the_user_is_told_that_a_start_is_fitted(caplog):
    model = pmg.mlp(X, Y, 3, noise=0.3, prior=None)
    step = pmg.GibbsNN(model=model, compile_kwargs=PYTHON)
    with caplog.at_level(logging.INFO, logger="pymc"):
        for tune in (0, 1):
            pm_sample(model, 2, tune=tune, step=step, **QUIET)
            said = [record.message for record in caplog.records if record.message.startswith("Fitting a start")]
            assert len(said) == tune


def test_no_draws_after_the_tuning_are_no_error():
    """PyMC allows them, to look at the tuning alone."""
    found = Thinning(60, 0, 4, 10)
    found.add(autoregressive(0.9, found.next_choice, 4, 1)[..., None])
    while found.steps < 60:
        found.add(autoregressive(0.9, found.next_choice - found.steps, 4, found.steps)[..., None])
    assert found.sweeps == 10


def test_fewer_rows_may_be_set_than_a_step_was_made_with():
    model = pmg.mlp(X, Y, 3, noise=0.3, prior=None)
    transition, point = pmg.GibbsNN(model=model, compile_kwargs=PYTHON).transition, model.initial_point()
    with model:
        pm.set_data({"X": X[:4], "y_data": Y[:4]})
    assert np.isfinite(transition.watch(point)).all()


def test_nothing_is_watched_where_nothing_can_be_chosen(monkeypatch):
    monkeypatch.setattr(thinning, "MOST_MULTIPLICATIONS", 1)
    model = pmg.mlp(X, Y, 3, noise=0.3, prior=None)
    step = pmg.GibbsNN(model=model, compile_kwargs=PYTHON)
    step.setup_chain(np.random.default_rng(1), 100, 10)
    assert step.thinning.tune == 0
    assert schedule_of([step], draws=10, **ASKED).thinning.tune == 0

"""What the step methods with stochastic gradients do with a model, and what they refuse."""

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_gibbsnn as pmg
from tests.gaussian_models import run
from tests.helpers import PYTHON, QUIET, slow

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=60), RNG.normal(size=60)
ALL = [pmg.ISGD, pmg.SGLD, pmg.SGHMC, pmg.ConstantSGD]


def regression(size=10, **kwargs):
    with pm.Model() as model:
        x, y = pm.Minibatch(pm.Data("x", X), pm.Data("y_data", Y), batch_size=size)
        pm.Normal("y", pm.Normal("w") * x, 0.8, observed=y, **{"total_size": 60, **kwargs})
    return model


def whole():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("w") * X, 0.8, observed=Y)
    return model


@pytest.mark.parametrize("sampler", ALL)
def test_models_that_are_refused(sampler):
    with pytest.raises(ValueError, match=r"'y' observes a minibatch of 10 of 60 rows without total_size.*=60"):
        sampler(model=regression(total_size=None))
    step = sampler(model=regression())
    with pytest.raises(ValueError, match=r"total_size of 'y' must be the number of rows, 60; found 600.*temperature"):
        sampler(model=regression(total_size=600)).transition.check()
    with pm.Model() as model:
        x, y = pm.Minibatch(X, batch_size=10), pm.Minibatch(Y, batch_size=10)
        pm.Normal("y", pm.Normal("w") * x, 0.8, observed=y, total_size=60)
    with pytest.raises(ValueError, match=r"minibatches of different rows.*in one call"):
        sampler(model=model)
    with pm.Model() as model:
        pm.Poisson("count", 3)
    with pytest.raises(ValueError, match=r"\['count'\] are discrete"):
        sampler(model=model)
    pm.set_data({"x": X[:50], "y_data": Y[:50]}, model=step.model)
    with pytest.raises(ValueError, match="must be the number of rows, 50; found 60"):
        step.set_rng(1)


@pytest.mark.parametrize("sampler", [pmg.ISGD, pmg.ConstantSGD])
def test_a_gradient_without_noise_is_refused_by_what_lives_on_it(sampler):
    with pytest.raises(ValueError, match=rf"{sampler.__name__} takes its step size from the noise.*pm.Minibatch.*MALA"):
        sampler(model=whole())


@pytest.mark.parametrize("sampler", [pmg.SGLD, slow(pmg.SGHMC)])
def test_a_gradient_without_noise_works_with_a_warning(sampler):
    with pytest.warns(UserWarning, match=rf"the gradient is exact, and {sampler.__name__} still is not.*MALA"):
        step = sampler(model=whole(), compile_kwargs=PYTHON, rng=1)
    step.setup_chain(1, tune=200, draws=400)
    draws, _ = run(step, 200)
    step.tune = False
    draws, stats = run(step, 400, {"w": draws["w"][-1]})
    H = 1 + X @ X / 0.64
    assert abs(draws["w"].mean() - X @ Y / 0.64 / H) < 1 / H**0.5
    assert 0.5 < draws["w"].var() * H < 2
    assert (stats["exact"] == 0).all()


def test_batches_of_one_row_are_not_gaussian():
    with pytest.raises(ValueError, match="found batches of one row"):
        pmg.ISGD(model=regression(1), noise="gaussian")
    pmg.ISGD(model=regression(1))


@pytest.mark.parametrize(
    ("sampler", "arguments", "message"),
    [
        (pmg.ISGD, {"noise": "beta"}, "noise must be 'alpha' or 'gaussian'; found 'beta'"),
        (pmg.ISGD, {"scheme": "a"}, "scheme must be 'A', 'B' or 'C'; found 'a'"),
        (pmg.ISGD, {"rate": 0.1}, "rate must be 'layer' or 'single'; found 0.1"),
        (pmg.ISGD, {"bound": None}, "bound must be 'eigenvalue' or 'diagonal'; found None"),
        (pmg.ISGD, {"momentum": 1}, r"momentum must be a number in \[0, 1\); found 1"),
        (pmg.ISGD, {"temperature": 0}, "temperature must be a positive, finite number; found 0"),
        (pmg.SGLD, {"step_size": -1}, "step_size must be .*, or None to be learned; found -1"),
        (pmg.SGLD, {"start": "sgd"}, "start must be 'adam' or None; found 'sgd'"),
        (pmg.SGLD, {"cycle": 1}, "cycle must be an integer of at least 2; found 1"),
        (pmg.SGLD, {"decay": 0.5}, r"decay must be two numbers \(a, γ\).*found 0.5"),
        (pmg.SGLD, {"decay": (10, 2)}, r"decay\[1\] must be a power between 0 and 1; found 2"),
        (pmg.SGLD, {"decay": (10, 0.5), "cycle": 10}, "decay and cycle exclude each other"),
        (pmg.SGLD, {"preconditioned": "rmsprop"}, "preconditioned must be True or False; found 'rmsprop'"),
        (pmg.SGLD, {"control_variates": 0.3}, "control_variates must be a dictionary .* found 0.3"),
        (pmg.SGLD, {"control_variates": {}}, r"control_variates must hold a value of 'w'; found \[\]"),
        (pmg.SGLD, {"control_variates": {"w": [1, 2]}}, r"control_variates\['w'\] must have the shape \(\)"),
        (pmg.SGHMC, {"friction": 0}, "friction must be the share of the velocity .* found 0"),
        (pmg.SGHMC, {"noise_estimate": -1}, "noise_estimate must be at least 0, .* found -1"),
        (pmg.ConstantSGD, {"diagonal": 1}, "diagonal must be True or False; found 1"),
    ],
)
def test_arguments_that_are_refused(sampler, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        sampler(model=regression(), **arguments)


def test_control_variates_need_batches():
    with pytest.raises(ValueError, match="control_variates are for models that observe minibatches"):
        pmg.SGLD(model=whole(), control_variates={"w": 0.0})


@pytest.mark.parametrize(("sampler", "more"), [(pmg.SGLD, {}), (pmg.SGHMC, {"noise_estimate": 0.0})])
def test_a_chain_that_diverges_stays_where_it_was_last_finite(sampler, more):
    transition = sampler(model=regression(), step_size=0.1, preconditioned=False, start=None, **more).transition
    graph = transition.graph()
    step = graph.stages["step"]
    outputs = [*step.state.values(), step.carry["stopped"]]
    move = pytensor.function(graph.inputs, outputs, mode="AS_WRITTEN", on_unused_input="ignore")
    carry = transition.start().values()
    for w, expected in ((1.0, 0), (1e300, 1)):  # steps from 1e300 lead to what counts as infinite
        after, stopped = move(np.random.default_rng(1), w, *carry, 0.0)
        assert stopped == expected
        assert (after == w) == expected


def test_a_chain_that_diverges_stops_with_advice_and_keeps_what_was_drawn():
    step = pmg.SGLD(model=regression(), step_size=0.1, start=None, compile_kwargs=PYTHON, rng=1)
    with pytest.warns(UserWarning, match=r"has left the finite numbers.*has diverged: take a smaller step size"):
        draws, stats = run(step, 400)
    finite = np.isfinite(draws["w"])
    assert finite[:10].all()
    assert not finite[-1]
    np.testing.assert_array_equal(finite, np.isfinite(stats["lp"]))
    with regression() as model, pytest.warns(UserWarning, match="diverged.*The draws before that are returned"):
        idata = pmg.sample(
            400, tune=0, step=pmg.SGLD(step_size=0.1, start=None), chains=1, random_seed=1, progressbar=False
        )
    assert np.isfinite(idata["posterior"]["w"]).all()
    assert 10 < idata["posterior"].sizes["draw"] < 400
    assert model is not None


@pytest.mark.parametrize(("sampler", "given"), [(pmg.ISGD, {}), (pmg.SGHMC, {"step_size": 0.01})])
def test_without_tuning_nothing_is_learned(sampler, given):
    step = sampler(model=regression(), compile_kwargs=PYTHON, rng=1, **given)
    step.setup_chain(1, tune=0, draws=10)
    with pytest.raises(FloatingPointError, match=r"what it learns from gradients is not known.*more tuning draws"):
        step.step(step.model.initial_point())


def test_steps_between_draws_are_those_that_draws_would_show():
    """pmg.sample computes statistics for the last step of a draw alone, by other code than the steps before it."""
    drawn = {}
    for each in (1, 4):
        with regression():
            step = pmg.SGHMC(step_size=0.01, noise_estimate=0, preconditioned=False, sweeps_per_draw=each)
            drawn[each] = pmg.sample(40 // each, tune=0, step=step, chains=2, random_seed=1, progressbar=False)
    for every, fourth in ((drawn[1].posterior, drawn[4].posterior), (drawn[1].sample_stats, drawn[4].sample_stats)):
        for name in set(fourth) & {"w", "lp", "kinetic_temperature", "step_size"}:
            np.testing.assert_allclose(every[name][:, 3::4], fourth[name], rtol=1e-9)
    assert {"lp", "kinetic_temperature"} <= set(drawn[4].sample_stats)


def test_step_sizes_decay_and_go_in_cycles():
    with regression() as model:
        decay = pmg.SGLD(step_size=1e-3, decay=(5, 0.5), start=None, compile_kwargs=PYTHON, rng=1)
        cycle = pmg.SGLD(step_size=1e-3, cycle=8, start=None, compile_kwargs=PYTHON, rng=1)
    decay.tune = cycle.tune = False
    k = np.arange(20)
    np.testing.assert_allclose(run(decay, 20)[1]["step_size"], 1e-3 * (1 + k / 5) ** -0.5)
    draws, stats = run(cycle, 20)
    np.testing.assert_allclose(stats["step_size"], 5e-4 * (np.cos(np.pi * (k % 8) / 8) + 1))
    np.testing.assert_array_equal(stats["exploring"], k % 8 < 4)
    assert model is not None
    assert len(np.unique(draws["w"])) == 20


def test_gradients_with_a_control_variate_are_exact_there():
    """At θ̂ there is no noise left, on any batch."""
    with regression():
        step = pmg.SGLD(step_size=1e-5, temperature=1e-12, control_variates={"w": 0.7}, start=None,
                        compile_kwargs=PYTHON, rng=1)  # fmt: skip
    slope = -0.7 + X @ (Y - 0.7 * X) / 0.64
    for _ in range(5):
        point, _ = step.step({"w": np.array(0.7)})
        np.testing.assert_allclose(point["w"], 0.7 + 1e-5 * slope, rtol=1e-7)


def test_groups_are_layers_or_variables():
    labels = (X > 0).astype(int)
    with pmg.classical_mlp(X[:, None], labels, 3, likelihood="bernoulli", batch_size=10, total_size=60):
        apart, together = pmg.ISGD(), pmg.ISGD(noise="gaussian")
        single = pmg.ISGD(rate="single")
    rates = [[name for name in step.transition.stats if name.startswith("lambda")] for step in (apart, together)]
    assert rates[0] == ["lambda_W1", "lambda_b1", "lambda_W2", "lambda_b2"]
    assert rates[1] == ["lambda_W1", "lambda_W2"]
    assert "lambda" in single.transition.stats


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ALL)
def test_a_network_from_zero_in_numba(sampler):
    """All weights zero is where a network has no gradient: Adam starts beside it."""
    x = np.random.default_rng(1).normal(size=(300, 2))
    labels = (x[:, 0] * x[:, 1] > 0).astype(int)
    model = pmg.classical_mlp(
        x, labels, 10, activation="relu", likelihood="bernoulli", batch_size=30, total_size=300, prior_variance=2
    )
    with model:
        idata = pm.sample(300, tune=500, step=sampler(sweeps_per_draw=5), chains=2, cores=1, random_seed=1, **QUIET)
        p = pmg.class_probabilities(idata, X_new=x)
    assert (p.mean("chain").argmax("class").values == labels).mean() > 0.93

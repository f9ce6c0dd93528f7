"""Samplers on minibatches: a fresh batch a step, rows paired, the distribution of the scheme, and what is refused."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.stats import norm

import pymc_gibbsnn as pmg
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.plain import PlainTarget
from pymc_gibbsnn.targets.whitening import WhitenedTarget
from tests.gaussian_models import run
from tests.helpers import PYTHON, QUIET, check_mean, compile_draw, slow

X = np.array([0.4, -0.3, 1.4])
Y = np.array([1.9, 0.8, 0.1])
BATCH = 2
RNG = np.random.default_rng(0)
X_200 = RNG.normal(size=200)
Y_200 = X_200 + RNG.normal(size=200)


def regression(x=X, y=Y, size=BATCH, slope_scale=1.0, **kwargs):
    """A slope w ~ N(0.3, slope_scale) by itself: three rows of which a batch shows two."""
    with pm.Model() as model:
        x, y = pm.Minibatch(pm.Data("x", x), pm.Data("y_data", y), batch_size=size)
        w = pm.Normal("w", 0.3, slope_scale)
        pm.Normal("y", w * x, 0.8, observed=y, **{"total_size": len(X), **kwargs})
    return model


def step(sampler, model, size, **kwargs):
    argument = "step_size" if sampler is pmg.MALA else "beta"
    with pytest.warns(UserWarning, match=f"{sampler.__name__} is not exact on minibatches.*{argument}={size / 2:g}"):
        return sampler(model=model, **{argument: size}, **kwargs)


def stationary_distribution(sampler, size):
    """(grid, probabilities) of w under a chain that draws a batch a step, by the matrix of its transitions.

    Of each batch it has the Metropolis-Hastings kernel; the chain has their mean.
    """
    grid, spacing = np.linspace(-6, 6, 601, retstep=True)  # of φ, w = 0.3 + φ
    kernel = np.zeros((len(grid), len(grid)))
    batches = list(product(range(len(X)), repeat=BATCH))
    for rows in map(list, batches):
        x, residual = X[rows], Y[rows] - np.multiply.outer(0.3 + grid, X[rows])
        weight = len(X) / BATCH / 0.8**2
        likelihood, slope = -0.5 * weight * (residual**2).sum(1), weight * (x * residual).sum(1)
        shrunk = np.sqrt(1 - min(size, 1) ** 2)
        mean, deviation = {
            pmg.PCN: (shrunk * grid, size),
            pmg.PCNL: (shrunk * grid + (1 - shrunk) * slope, size),
            pmg.MALA: (grid + size**2 / 2 * (slope - grid), size),
        }[sampler]
        log_proposal = norm.logpdf(grid, mean[:, None], deviation)
        log_density = likelihood - grid**2 / 2
        log_ratio = log_density - log_density[:, None] + log_proposal.T - log_proposal
        moves = np.exp(log_proposal + np.minimum(log_ratio, 0)) * spacing
        np.fill_diagonal(moves, 0)
        np.fill_diagonal(moves, 1 - moves.sum(1))
        kernel += moves / len(batches)
    probabilities = np.linalg.matrix_power(kernel, 2**12)[300]
    return 0.3 + grid, probabilities / probabilities.sum()


def check_distribution(draws, sampler, size, least_ess=400):
    grid, probabilities = stationary_distribution(sampler, size)
    mean = probabilities @ grid
    check_mean(draws, mean, "mean", least_ess=least_ess)
    check_mean((draws - mean) ** 2, probabilities @ (grid - mean) ** 2, "variance", least_ess=least_ess)


STEPS = [(pmg.PCN, 0.6), (pmg.PCNL, 0.7), (pmg.MALA, 0.6)]


@pytest.mark.parametrize("sampler", [slow(pmg.PCN), slow(pmg.PCNL), slow(pmg.MALA)])
def test_the_distribution_of_a_chain_on_minibatches(sampler):
    size = dict(STEPS)[sampler]
    draws, stats = run(step(sampler, regression(), size, compile_kwargs=PYTHON, rng=1), 3000)
    check_distribution(draws["w"][50:], sampler, size, least_ess=200)
    assert (stats["exact"] == 0).all()


def test_the_distribution_is_near_the_posterior_where_steps_are_small_and_far_where_not():
    precision = 1 + X @ X / 0.64
    mean, variance = 0.3 + X @ (Y - 0.3 * X) / 0.64 / precision, 1 / precision
    near, far = (stationary_distribution(pmg.MALA, size) for size in (0.1, 0.6))
    moments = [(p @ grid, p @ grid**2 - (p @ grid) ** 2) for grid, p in (near, far)]
    np.testing.assert_allclose(moments[0], [mean, variance], rtol=0.03)
    assert moments[1][1] > 1.2 * variance


@pytest.mark.parametrize("sampler", [slow(pmg.PCNL), slow(pmg.PCN), pmg.MALA])
def test_in_the_whole_program(sampler):
    size = dict(STEPS)[sampler]
    with regression() as model:
        idata = pmg.sample(
            3000, tune=0, step=step(sampler, model, size), thin=2, chains=4, random_seed=1, progressbar=False
        )
    check_distribution(idata["posterior"]["w"].values, sampler, size)
    assert (idata["sample_stats"]["exact"].values == 0).all()


@pytest.mark.slow
def test_in_numba():
    with regression() as model:
        idata = pm.sample(8000, tune=0, step=step(pmg.MALA, model, 0.6), chains=1, random_seed=1, **QUIET)
    check_distribution(idata["posterior"]["w"].values, pmg.MALA, 0.6)


@pytest.mark.parametrize(("sampler", "mode"), [(pmg.PCNL, "AS_WRITTEN"), slow(pmg.MALA, "JAX")])
def test_lp_at_a_fixed_point_is_that_of_another_batch_each_time(sampler, mode):
    model = regression(X_200, Y_200, 10, total_size=200)
    _, stats = run(step(sampler, model, 1e-9, compile_kwargs={"mode": mode}, rng=1), 250, {"w": np.array(0.7)})
    assert len(np.unique(np.round(stats["lp"], 6))) == 250
    exact = norm.logpdf(0.7, 0.3, 1) + norm.logpdf(Y_200, 0.7 * X_200, 0.8).sum()
    check_mean(stats["lp"], exact, "lp", least_ess=100)
    np.testing.assert_allclose(stats["acceptance_rate"], 1, atol=1e-4)


@pytest.mark.slow
def test_the_mean_on_many_rows_is_that_of_the_posterior():
    """A batch that stays for ever gives .75 where .96 is right; small steps are nearly exact."""
    model = regression(X_200, Y_200, 10, total_size=200)
    draws, _ = run(step(pmg.MALA, model, 0.05, compile_kwargs=PYTHON, rng=1), 2000)
    precision = 1 + X_200 @ X_200 / 0.64
    check_mean(draws["w"][200:], (0.3 + X_200 @ Y_200 / 0.64) / precision, "w", least_ess=100)


@pytest.mark.parametrize("make", [PlainTarget, WhitenedTarget])
def test_density_and_gradient_are_those_of_the_same_rows(make):
    """X and y paired, with total_size, on a batch drawn from the chain's generator: what all samplers build on."""
    target = make(regression(slope_scale=0.5))

    def build(rng):
        rng, data = target.draw_data(rng, target.start())
        place = target.place([pt.constant(0.7)], data, with_gradient=True)
        prior = target.log_prior(place.position, data)
        return rng, data["rows"], place.log_likelihood, place.gradient[0], prior

    draw, seen = compile_draw(build), set()
    for _ in range(30):
        rows, log_likelihood, slope, prior = draw()
        w = 0.7 if make is PlainTarget else 0.3 + 0.5 * 0.7
        residual = Y[rows] - w * X[rows]
        expected = 1.5 * norm.logpdf(residual, 0, 0.8).sum() + norm.logpdf(w, 0.3, 0.5)
        np.testing.assert_allclose(log_likelihood + prior, expected)
        slope_of_data = 1.5 * (X[rows] * residual).sum() / 0.64
        if make is PlainTarget:
            np.testing.assert_allclose(slope, slope_of_data - (w - 0.3) / 0.25)
        else:
            np.testing.assert_allclose(slope, 0.5 * slope_of_data)
        seen.add(tuple(rows))
    assert len(seen) > 5


def test_rows_that_are_set_later_are_drawn():
    model = regression()
    mala = step(pmg.MALA, model, 1e-9, compile_kwargs=PYTHON, rng=1)
    pm.set_data({"x": np.r_[X, 5.0], "y_data": np.r_[Y, 50.0]}, model=model)
    mala.set_rng(1)
    _, stats = run(mala, 50)
    assert stats["lp"].min() < -1000 < stats["lp"].max()
    pm.set_data({"x": np.r_[X, 5.0], "y_data": Y}, model=model)
    with pytest.raises(ValueError, match=r"as many rows each; found {\"'x'\": 4, \"'y_data'\": 3}"):
        mala.set_rng(1)


# What is refused


def by_hand(mean, observed, **kwargs):
    with pm.Model() as model:
        pm.Normal("y", mean(pm.Normal("w")), 1, observed=observed, **kwargs)
    return model


SAMPLERS = [
    lambda model: pmg.PCN(model=model),
    lambda model: pmg.PCNL(model=model),
    lambda model: pmg.MALA(model=model, step_size=0.1),
]


@pytest.mark.parametrize("make", [*SAMPLERS, lambda model: pmg.FNBG(model=model, blocks="all")])
def test_what_is_not_paired_is_refused(make):
    x, y = pm.Minibatch(X_200, batch_size=10), pm.Minibatch(pm.math.constant(Y_200, name="targets"), batch_size=10)
    with pytest.raises(ValueError, match=r"10 rows of 'targets'.*in one call"):
        make(by_hand(lambda w: w * x, y, total_size=200))
    with pytest.raises(ValueError, match=r"distribution of 'y' depends on a minibatch and what it observes is none"):
        make(by_hand(lambda w: w * x, Y_200[:10]))
    x, y = pm.Minibatch(X_200, Y_200[:100], batch_size=10)
    with pytest.raises(ValueError, match=r"as many rows each; found .*200.*100"):
        make(by_hand(lambda w: w * x, y, total_size=200))
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("local", x, 1), 1, observed=np.zeros(10))
    with pytest.raises(ValueError, match="prior of 'local' depends on a minibatch"):
        make(model)


@pytest.mark.parametrize("make", SAMPLERS)
def test_a_batch_that_would_count_as_all_data_is_refused(make):
    x, y = pm.Minibatch(X_200, Y_200, batch_size=10)
    with pytest.raises(ValueError, match=r"'y' observes a minibatch of 10 of 200 rows without total_size.*=200"):
        make(by_hand(lambda w: w * x, y))
    with pytest.raises(ValueError, match=r"total_size of 'y' must be positive.*found -200"):
        make(by_hand(lambda w: w * x, y, total_size=-200))


@pytest.mark.parametrize(
    ("sampler", "kwargs", "message"),
    [
        (pmg.PCN, {"beta": None}, "beta=None tunes.*several times as widely"),
        (pmg.PCNL, {"beta": None}, "Give a small beta"),
        (pmg.MALA, {}, "Give a small step_size"),
        (pmg.PCN, {"reparametrise": True}, r"given all rows of the data, but \['y'\] hold minibatches"),
        (pmg.MALA, {"reparametrise": True}, "observe all rows, or leave reparametrise out"),
    ],
)
def test_what_needs_all_rows_is_refused_on_minibatches(sampler, kwargs, message):
    with pytest.raises(ValueError, match=message):
        sampler(model=regression(), **kwargs)


def test_no_transition_compiles_with_a_minibatch_that_nobody_draws():
    model = regression()
    density, [w] = model.logp(), model.value_vars
    frozen = Transition([w], lambda rng, state, carry, tuning: (rng, {}, {}, {"lp": density}), {}, ["lp"])
    with pytest.raises(NotImplementedError, match="does not draw minibatches, of which the model holds one of 'x'"):
        frozen.graph()

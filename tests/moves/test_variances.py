"""Variances and precisions that are drawn with the network."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.moves.variances import moments
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import LEAN, random_point
from tests.samplers.test_gibbs import NUMBA, check_geweke

N, D, H = 5, 2, 3
X = np.random.default_rng(0).normal(size=(N, D))
Y = np.random.default_rng(1).normal(size=N)
FAST = {"compile_kwargs": {"mode": "AS_WRITTEN"}}


def network(noises, priors):
    """A network of one hidden layer with standard deviations of (Z2, A2, y) and of (W1, b1, W2, b2)."""
    y = pm.Data("y_data", Y)
    W1, b1 = pm.Normal("W1", 0, priors[0], shape=(H, D)), pm.Normal("b1", 0, priors[1], shape=H)
    Z2 = pm.Normal("Z2", X @ W1.T + b1, noises[0])
    A2 = pm.Normal("A2", pt.maximum(Z2, 0), noises[1])
    W2, b2 = pm.Normal("W2", 0, priors[2], shape=H), pm.Normal("b2", 0, priors[3])
    pm.Normal("y", A2 @ W2 + b2, noises[2], observed=y)


def one_noise():
    sd = pt.sqrt(pm.InverseGamma("delta", 3, 2))
    network([sd] * 3, [1, 1, 0.5, 0.5])


def noise_of_each_layer():
    delta = pm.InverseGamma("delta", 3, 2, shape=3)
    network([delta[i] ** 0.5 for i in range(3)], [1, 1, 1, 1])


def precisions():
    tau, lambda1, lambda2 = pm.Gamma("tau", 3, 2), pm.Gamma("lambda1", 4, 2), pm.Gamma("lambda2", 4, 3)
    network([1, 1, tau**-0.5], [lambda1**-0.5, 1, 1 / pt.sqrt(2 * lambda2), lambda2**-0.5])


def relevance_of_inputs():
    """One precision for each input, and one for each unit."""
    inputs, units = pm.Gamma("inputs", 3, 3, shape=D), pm.InverseGamma("units", 3, 3, shape=H)
    network([1, 1, 1], [1 / pt.sqrt(inputs), pt.sqrt(units), 1, 1])


def product_of_scales():
    common, local = pm.InverseGamma("common", 3, 2), pm.InverseGamma("local", 3, 2, shape=(H, D))
    network([1, 1, 1], [pt.sqrt(common * local), 1, 1, 1])


def hyperprior_without_transform():
    rate = pm.HalfNormal("rate", 1)
    network([pt.sqrt(pm.InverseGamma("delta", 3, rate, default_transform=None))] * 3, [1, 1, 1, 1])


MODELS = [one_noise, noise_of_each_layer, precisions, relevance_of_inputs, product_of_scales]


@pytest.mark.parametrize(
    ("build", "interweave"),
    [*((build, "auto") for build in [*MODELS, hyperprior_without_transform]), (relevance_of_inputs, "langevin")],
)
def test_lp_is_the_log_density_of_the_model(build, interweave):
    with pm.Model() as model:
        build()
    others = [v for v in model.free_RVs if v.name == "rate"]
    point = model.initial_point()
    step = pmg.GibbsNN(model=model, rng=1, interweave=interweave, **FAST)
    for _ in range(2):
        point, [stats] = step.step(point)
    assert {model.rvs_to_values[v] for v in model.free_RVs} - {model.rvs_to_values[v] for v in others} == set(step.vars)
    lp = stats["lp"] + (model.compile_logp(vars=others, mode="AS_WRITTEN")(point) if others else 0)
    np.testing.assert_allclose(lp, model.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-7)


@pytest.mark.parametrize("build", MODELS)
def test_the_conditional_is_the_joint_density_along_the_scale(build):
    """Oracle 6, as a function of the log of each scale."""
    with pm.Model() as model:
        build()
    found = read_network(model)
    point = random_point(model, 3)
    logp = model.compile_logp(mode="AS_WRITTEN")
    z, a, w2 = point["Z2"], point["A2"], point["W2"]
    residuals = {
        "Z2": z - X @ point["W1"].T - point["b1"], "A2": a - np.maximum(z, 0), "y": Y - a @ w2 - point["b2"]
    }  # fmt: skip
    noise = {name: (pt.constant((r**2).sum()), pt.constant(float(r.size))) for name, r in residuals.items()}
    for scale in found.variances:
        state = {v: pt.constant(point[v.name]) for v in found.variables}
        counts, squares = moments(scale, state, noise)
        counts, squares, alpha, rate = pytensor.function(
            [], [counts, squares, scale.alpha, scale.rate], mode="AS_WRITTEN", givens=state
        )()
        moved = dict(point)
        moved[scale.value.name] = point[scale.value.name] + np.random.default_rng(4).normal(size=scale.shape)
        log_tau, log_tau_new = ((1 if scale.is_precision else -1) * p[scale.value.name] for p in (point, moved))
        alpha, rate = alpha + counts / 2, rate + squares / 2
        expected = (alpha * (log_tau_new - log_tau) - rate * (np.exp(log_tau_new) - np.exp(log_tau))).sum()
        np.testing.assert_allclose(logp(moved) - logp(point), expected, rtol=1e-7, err_msg=scale.name)


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(one_noise, marks=pytest.mark.slow),
        pytest.param(noise_of_each_layer, marks=pytest.mark.slow),
        pytest.param(precisions, marks=pytest.mark.slow),
        pytest.param(relevance_of_inputs, marks=pytest.mark.slow),
        pytest.param(product_of_scales, marks=pytest.mark.slow),
    ],
)
def test_geweke_with_random_scales(build):
    with pm.Model() as model:
        build()
    check_geweke(model, 6000 if build is precisions else 20_000, **NUMBA)


@pytest.mark.slow
def test_geweke_with_langevin_steps_and_random_precisions():
    with pm.Model() as model:
        relevance_of_inputs()
    check_geweke(model, 20_000, interweave="langevin", **NUMBA)


def test_scales_that_serve_something_else_are_left_to_other_steps():
    with pm.Model() as model:
        delta = pm.InverseGamma("delta", 3, 2)
        network([pt.sqrt(delta)] * 3, [1, 1, 1, 1])
        pm.Potential("penalty", -delta)
    assert not read_network(model).variances


def test_vars_choose_which_scales_are_drawn():
    with pm.Model() as model:
        precisions()
    chosen = [rv for rv in model.free_RVs if rv.name != "lambda1"]
    assert [scale.name for scale in read_network(model, chosen).variances] == ["tau", "lambda2"]


def test_what_users_do():
    with pm.Model() as model:
        one_noise()
        step = pmg.GibbsNN(anneal=1.0, **FAST, **LEAN)
        start = pmg.initial_values(kind="prior", random_seed=1)
        idata = pm.sample(
            20, tune=20, chains=1, step=step, initvals=start, progressbar=False, random_seed=1,
            compute_convergence_checks=False,
        )  # fmt: skip
        other = pmg.sample(
            20, step=pmg.GibbsNN(**LEAN), tune=5, chains=2, initvals=start, random_seed=1, progressbar=False
        )
    assert model["delta"].name in idata["posterior"]
    assert (other["posterior"]["delta"].values > 0).all()
    assert np.ptp(other["posterior"]["delta"].values) > 0

"""pCN, pCNL and MALA: the distributions of their draws."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.stats import norm

import pymc_gibbsnn as pmg
from tests.gaussian_models import MODELS, WIDE_X, X, run
from tests.helpers import PYTHON, QUIET, check_mean, check_moments, check_same_distribution, slow

# The distributions of draws


@pytest.mark.parametrize("sampler", [slow(pmg.PCN), pmg.PCNL])
def test_without_likelihood_the_prior_is_kept_and_all_is_accepted(sampler):
    covariance = np.array([[1.0, 0.6], [0.6, 2.0]])
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("location", 1, 2), [0.5, 1.5])
        pm.MvNormal("z", x, covariance)
        pm.MvNormal("rows", np.zeros(2), covariance, shape=(2, 2))
        step = sampler(beta=1, compile_kwargs=PYTHON, rng=1)
    values, stats = run(step, 500)
    np.testing.assert_allclose(stats["acceptance_rate"], 1, atol=1e-9)
    assert (stats["accepted"] == 1).all()
    logp = model.compile_logp(mode="AS_WRITTEN")({name: x[7] for name, x in values.items()})
    np.testing.assert_allclose(stats["lp"][7], logp, atol=1e-6)
    draws = np.c_[values["location"], values["x"], values["z"], values["rows"].reshape(-1, 4)]
    shared = np.full((5, 5), 4.0)
    shared[1:, 1:] += np.kron([[1, 1], [1, 1]], np.diag([0.25, 2.25]))
    shared[3:, 3:] += covariance
    expected = np.zeros((9, 9))
    expected[:5, :5], expected[5:7, 5:7], expected[7:, 7:] = shared, covariance, covariance
    check_moments(draws[10:], np.r_[np.ones(5), np.zeros(4)], expected)


@pytest.mark.parametrize(("sampler", "rows"), [(pmg.PCN, 20), slow(pmg.PCNL, 3)])
def test_a_linear_readout_alone_is_drawn_exactly_and_all_is_accepted(sampler, rows):
    x, rng = np.random.default_rng(2).normal(size=(rows, 4)), np.random.default_rng(3)
    y = rng.normal(size=(rows, 2))
    with pm.Model():
        w, b = pm.Normal("w", 0, 0.7, shape=(4, 2)), pm.Normal("b", 0.5, 1.3, shape=2)
        pm.Normal("y", x @ w + b, 0.6, observed=y)
        step = sampler(reparametrise=True, compile_kwargs=PYTHON, rng=1)
    values, stats = run(step, 500)
    np.testing.assert_allclose(stats["acceptance_rate"], 1, atol=1e-12)
    design = np.c_[x, np.ones(rows)]
    precision = design.T @ design / 0.36 + np.diag(1 / np.r_[np.full(4, 0.49), 1.69])
    for j in range(2):
        mean = np.linalg.solve(precision, design.T @ y[:, j] / 0.36 + np.r_[np.zeros(4), 0.5 / 1.69])
        check_moments(np.c_[values["w"][:, :, j], values["b"][:, j]], mean, np.linalg.inv(precision))


@pytest.mark.slow
def test_where_the_network_is_linear_in_all_its_weights_nothing_is_lost():
    """pCNL with ℓ constant: a likelihood that does not depend on what moves leaves N(0, I), acceptance 1."""
    with pm.Model():
        w, v = pm.Normal("w", 0, 2, shape=3), pm.Normal("v", 0, 1, shape=2)
        pm.Normal("y", X[:, :2] @ v + 0 * w.sum(), 0.5, observed=X[:, 2])
        step = pmg.PCNL(reparametrise=True, beta=0.9, compile_kwargs=PYTHON, rng=1, sweeps_per_draw=3)
    values, stats = run(step, 1500)
    np.testing.assert_allclose(stats["acceptance_rate"], 1, atol=1e-12)
    check_moments(values["w"][5:] / 2, np.zeros(3), np.eye(3))


def test_a_classical_network_by_pm_sample_against_quadrature():
    """In Numba, where users run it."""
    x, y = np.array([[-1.0], [0.4], [1.5]]), np.array([-0.6, 0.9, 0.5])
    with pmg.classical_mlp(x, y, 1, activation="tanh", likelihood="normal", noise=0.8, bias=False):
        step = pmg.PCN(beta=0.7, sweeps_per_draw=10, compile_kwargs={"mode": "NUMBA"})
        idata = pm.sample(800, tune=20, chains=2, cores=1, step=step, random_seed=1, **QUIET)
    w, v = np.meshgrid(*[np.linspace(-6, 6, 241)] * 2)
    weights = norm.pdf(w) * norm.pdf(v)
    weights *= norm.pdf(y, v[..., None] * np.tanh(w[..., None] * x[:, 0]), 0.8).prod(-1)
    drawn = [idata["posterior"][name].values.reshape(2, -1) for name in ("W1", "W2")]
    for f in (lambda w, v: v * np.tanh(w), lambda w, v: (v * np.tanh(w)) ** 2, lambda w, v: w**2, lambda w, v: v**2):
        check_mean(f(*drawn), np.average(f(w, v), weights=weights))


@pytest.mark.parametrize("refresh", [slow(1.0), 0.3])
def test_mala_on_an_asymmetric_target(refresh):
    """A correlated Gaussian and a Gamma, sampled in its logarithm, whose moments are known."""
    covariance = np.array([[1.0, 0.8], [0.8, 4.0]])
    with pm.Model() as model:
        pm.MvNormal("x", [1.0, -1.0], covariance)
        pm.Gamma("g", 3, 2)
        idata = pmg.sample(
            4000, tune=1000, step=pmg.MALA(momentum_refresh=refresh), thin=4, chains=4, random_seed=1, progressbar=False
        )
    posterior, stats = idata["posterior"], idata["sample_stats"]
    x, g = posterior["x"].values, posterior["g"].values
    truths = {"x0": (x[..., 0], 1), "x1": (x[..., 1], -1), "cov": ((x[..., 0] - 1) * (x[..., 1] + 1), 0.8)}
    truths |= {"var0": ((x[..., 0] - 1) ** 2, 1), "var1": ((x[..., 1] + 1) ** 2, 4)}
    truths |= {"g": (g, 1.5), "g²": (g**2, 3), "log g": (np.log(g), 0.922784335 - np.log(2))}
    for name, (draws, truth) in truths.items():
        check_mean(draws, truth, name)
    low, high = (0.45, 0.7) if refresh == 1 else (0.8, 0.96)  # around 0.574, and 0.9
    assert low < float(stats["acceptance_rate"].mean()) < high
    point = {"x": x[1, 7], "g_log__": np.log(g[1, 7])}
    np.testing.assert_allclose(stats["lp"].values[1, 7], model.compile_logp(mode="AS_WRITTEN")(point), atol=1e-6)


def test_a_chain_with_kept_momentum_stays_in_equilibrium_from_its_first_step():
    """Its first momentum is not 0, from which it would roll down towards the mode, but is drawn."""
    rng = np.random.default_rng(7)
    with pm.Model() as model:
        pm.Normal("x", 0, 1, shape=2000)
        step = pmg.MALA(momentum_refresh=0.03, step_size=0.1, compile_kwargs=PYTHON, rng=1)
    point, found = {"x": rng.normal(size=2000)}, []
    for _ in range(20):
        point, _ = step.step(point)
        found.append((point["x"] ** 2).mean())
    assert model is not None
    np.testing.assert_allclose(found, 1, atol=4 * (2 / 2000) ** 0.5)


def test_mala_is_that_of_blackjax():
    """In distribution: the same step size and target, ε = sqrt(2 step_size)."""
    blackjax = pytest.importorskip("blackjax")
    import jax
    import jax.numpy as jnp

    def log_density(x):
        return -(x**2).sum() / 2 - jnp.exp(x).sum()

    kernel = blackjax.mala(log_density, step_size=0.3)
    state = kernel.init(jnp.zeros(2))
    keys = jax.random.split(jax.random.key(0), 20_000)
    _, theirs = jax.lax.scan(
        lambda s, key: (lambda new, info: (new, (new.position, info.acceptance_rate)))(*kernel.step(key, s)),
        state,
        keys,
    )
    with pm.Model():
        x = pm.Normal("x", shape=2)
        pm.Potential("skew", -pt.exp(x).sum())
        idata = pmg.sample(5000, tune=0, step=pmg.MALA(step_size=0.6**0.5), chains=4, random_seed=1, progressbar=False)
    found = idata["posterior"]["x"].values
    position, rate = map(np.asarray, theirs)
    for power in (1, 2):
        truth = position[:, 0] ** power
        check_mean(found[..., 0] ** power, truth.mean(), "x", truth.std() / np.sqrt(2000))
    assert abs(float(idata["sample_stats"]["acceptance_rate"].mean()) - rate.mean()) < 0.02


SAMPLERS = {
    "pCN": lambda: pmg.PCN(beta=None),
    "pCN, readout out": lambda: pmg.PCN(reparametrise=True, beta=None),
    "pCNL": lambda: pmg.PCNL(beta=None),
    "pCNL, readout out": lambda: pmg.PCNL(reparametrise=True, beta=0.7),
    "MALA": pmg.MALA,
    "MALA, readout out": lambda: pmg.MALA(reparametrise=True, momentum_refresh=0.5),
}


def functions(posterior):
    """Series (chain, draw) of what can be compared of a network on wide data."""
    w1, w2 = posterior["W1"].values, posterior["W2"].values
    a = np.tanh(0.6 * np.einsum("nd,...hd->...nh", WIDE_X, w1) + posterior["b1"].values[..., None, :])
    outputs = np.einsum("...nh,...kh->...nk", a, w2) + 0.3 * posterior["b2"].values[..., None, :]
    scaled = (w1**2).mean((-2, -1)) * np.exp(-2 * posterior["log_scale"].values)
    found = {"f00": outputs[..., 0, 0], "f31": outputs[..., 3, 1], "log scale": posterior["log_scale"].values}
    return found | {"w1": scaled, "w2": (w2**2).mean((-2, -1)), "b2": posterior["b2"].values[..., 0]}


@cache
def nuts():
    with MODELS["wide data"]():
        idata = pm.sample(2000, tune=1000, chains=2, cores=1, random_seed=1, target_accept=0.9, **QUIET)
    return functions(idata["posterior"])


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_nuts_on_the_same_model_agrees(name):
    with MODELS["wide data"]():
        thin = {"pCN": 60, "MALA": 150}.get(name, 20)
        idata = pmg.sample(
            3000, tune=1000, thin=thin, step=SAMPLERS[name](), chains=4, random_seed=2, progressbar=False
        )
    check_same_distribution(functions(idata["posterior"]), nuts())


@pytest.mark.slow
def test_steps_in_turn_have_the_distribution_of_the_model():
    """The hierarchical scale has a step of its own: what the other remembers must not go stale."""
    with MODELS["wide data"]() as model:
        weights = [model[name] for name in ("W1", "b1", "W2", "b2")]
        steps = [pmg.PCN([model["log_scale"]], beta=0.7), pmg.PCN(weights, reparametrise=True, beta=0.6)]
        idata = pmg.sample(3000, tune=500, thin=100, step=steps, chains=4, random_seed=3, progressbar=False)
    check_same_distribution(functions(idata["posterior"]), nuts(), powers=(1,))

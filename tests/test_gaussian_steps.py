"""pCN, pCNL and MALA: their ratios against direct densities, their laws, the models they read and refuse."""

from functools import cache

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.util import _get_seeds_per_chain
from scipy.stats import multivariate_normal, norm

import pymc_gibbsnn as pmg
from pymc_gibbsnn import _compat
from pymc_gibbsnn._numba import with_fast_products
from pymc_gibbsnn.readout import readout_target
from pymc_gibbsnn.transitions import mala as mala_module
from pymc_gibbsnn.transitions import pcn as pcn_module
from pymc_gibbsnn.transitions import pcnl as pcnl_module
from pymc_gibbsnn.whitening import plain_target, whitened_target
from tests.helpers import check_mean, check_moments, compile_draw

PYTHON = {"mode": "FAST_COMPILE"}
QUIET = {"progressbar": False, "compute_convergence_checks": False}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 3))
WIDE_X = RNG.normal(size=(4, 7))


def network(X, outputs=None, hidden=4, layout="rows", noise=0.3, prior_mean=0.0):
    """A network with a hierarchical prior scale of its first layer, and its prior means anywhere."""
    _, d = X.shape
    y = np.sin(X[:, 0]) if outputs is None else np.sin(X[:, :1] + np.arange(outputs))
    k = () if outputs is None else (outputs,)
    with pm.Model() as model:
        data = pm.Data("X", X)
        log_scale = pm.Normal("log_scale", 0.2, 0.7)
        if layout == "rows":
            W1 = pm.Normal("W1", 0, pt.exp(log_scale), shape=(hidden, d))
            W2 = pm.Normal("W2", prior_mean, 0.7, shape=(*k, hidden))
            a = pt.tanh(0.6 * data @ W1.T + pm.Normal("b1", 0.1, 1.3, shape=hidden))
            mean = a @ W2.T
        else:
            W1 = pm.Normal("W1", 0, pt.exp(log_scale), shape=(d, hidden))
            W2 = pm.Normal(
                "W2", prior_mean, np.linspace(0.6, 0.9, hidden).reshape((-1, *[1] * len(k))), shape=(hidden, *k)
            )
            a = pt.tanh(0.6 * data @ W1 + pm.Normal("b1", 0.1, 1.3, shape=hidden))
            mean = 1.7 * (a @ W2) / 0.9
        b2 = pm.Normal("b2", -0.4, 1.1, shape=k)
        pm.Normal("y", mean + 0.3 * b2 - 0.1, noise, observed=y)
    return model


MODELS = {
    "vector": lambda: network(X),
    "more features than rows": lambda: network(X, hidden=8),
    "matrix": lambda: network(X, outputs=2, prior_mean=0.3),
    "columns": lambda: network(X, outputs=2, hidden=7, layout="columns", prior_mean=0.3),
    "wide data": lambda: network(WIDE_X, outputs=2, hidden=3),
    "wide data, columns": lambda: network(WIDE_X, layout="columns", hidden=5),
}


class Numbers:
    """A target at numbers: φ anywhere, ℓ, its gradient, and the variables there."""

    def __init__(self, target):
        self.target = target
        state = dict.fromkeys(target.variables)
        constants = pytensor.function([], list(target.constants.values()), mode="FAST_COMPILE")()
        self.constants = dict(zip(target.constants, constants, strict=True))
        as_graph = {name: pt.constant(x) for name, x in self.constants.items()}
        self.phi = [x.type() for x in target.coordinates.values()]
        shapes = pytensor.function([], [x.shape for x in target.coordinates.values()], mode="FAST_COMPILE")()
        self.shapes = [tuple(shape) for shape in shapes]
        log_likelihood, gradient = target.gradient(self.phi, as_graph)
        outputs = [target.log_likelihood(self.phi, as_graph), target.log_prior(self.phi, as_graph), log_likelihood]
        self.function = pytensor.function(
            self.phi, [*outputs, *gradient], mode="FAST_COMPILE", on_unused_input="ignore"
        )
        assert set(state) == set(target.variables)

    def __call__(self, phi):
        found = self.function(*phi)
        return float(found[0]), float(found[1]), found[3:]

    def random(self, rng):
        return [rng.normal(size=shape) for shape in self.shapes]

    def states(self, phi, draws=1, seed=0):
        """Draws of the variables given φ."""
        as_graph = {name: pt.constant(x) for name, x in self.constants.items()}
        phi = [pt.constant(x) for x in phi]

        def build(rng):
            rng, state = self.target.draw(rng, phi, as_graph)
            return rng, *(state[v] for v in self.target.variables)

        draw = compile_draw(build, seed=seed)
        names = [v.name for v in self.target.variables]
        return [
            dict(zip(names, np.atleast_1d(draw()) if len(names) == 1 else draw(), strict=True)) for _ in range(draws)
        ]


@cache
def logp(name):
    return MODELS[name]().compile_logp(mode="FAST_COMPILE")


# The densities


@pytest.mark.parametrize("name", ["vector", "columns"])
def test_whitened_density_is_that_of_the_model(name):
    model = MODELS[name]()
    numbers, rng = Numbers(whitened_target(model)), np.random.default_rng(1)
    for _ in range(3):
        phi = numbers.random(rng)
        [point] = numbers.states(phi)
        log_likelihood, log_prior, _ = numbers(phi)
        np.testing.assert_allclose(log_likelihood + log_prior, logp(name)(point), rtol=0, atol=1e-9)
        # log |dx/dφ| from the scales
        jacobian = norm.logpdf(np.concatenate([x.ravel() for x in phi])).sum() - log_prior
        scale = {"W1": point["log_scale"], "log_scale": np.log(0.7), "b1": np.log(1.3), "b2": np.log(1.1)}
        expected = sum(scale[k] * np.size(x) for k, x in point.items() if k != "W2")
        expected += np.log(
            np.broadcast_to(0.7 if name == "vector" else np.linspace(0.6, 0.9, 7)[:, None], point["W2"].shape)
        ).sum()
        np.testing.assert_allclose(jacobian, expected)


def direct_marginal(model, point):
    """log p(y | inner weights) of a network, the readout integrated out by a dense Gaussian."""
    data, y = model["X"].get_value(), model.rvs_to_values[model["y"]].data
    y = y.reshape((len(y), -1))
    w, columns = point["W1"], point["W1"].shape[0] == data.shape[1]
    a = np.tanh(0.6 * data @ (w if columns else w.T) + point["b1"])
    h, k = a.shape[1], y.shape[1]
    factor = 1.7 / 0.9 if columns else 1.0
    prior_mean = float(np.mean(model["W2"].owner.op.dist_params(model["W2"].owner)[0].eval()))
    scale = np.linspace(0.6, 0.9, h) if columns else np.full(h, 0.7)
    psi = np.c_[factor * a * scale, np.full(len(y), 0.3 * 1.1)]
    mean = factor * a.sum(1) * prior_mean + 0.3 * -0.4 - 0.1
    covariance = psi @ psi.T + 0.09 * np.eye(len(y))
    return sum(multivariate_normal.logpdf(y[:, j], mean, covariance) for j in range(k)), psi, y - mean[:, None]


@pytest.mark.parametrize(("name", "reduce"), [*((name, True) for name in MODELS), ("wide data", False)])
def test_the_readout_is_integrated_out(name, reduce):
    """ℓ against a dense Gaussian, its gradient against differences."""
    model = MODELS[name]()
    numbers, rng = Numbers(readout_target(model, reduce=reduce)), np.random.default_rng(2)
    assert any(x.startswith("basis") for x in numbers.constants) == (reduce and "wide data" in name)
    for _ in range(2):
        phi = numbers.random(rng)
        log_likelihood, _, gradient = numbers(phi)
        [point] = numbers.states(phi)
        np.testing.assert_allclose(log_likelihood, direct_marginal(model, point)[0], rtol=1e-10)
        for i, slope in enumerate(gradient):
            direction, ends = rng.normal(size=slope.shape), []
            for sign in (1, -1):
                moved = list(phi)
                moved[i] = phi[i] + sign * 1e-5 * direction
                ends.append(numbers(moved)[0])
            difference = (ends[0] - ends[1]) / 2e-5
            np.testing.assert_allclose((slope * direction).sum(), difference, rtol=1e-5, atol=1e-6)


def test_the_gradient_reaches_a_noise_that_is_moved():
    with pm.Model() as model:
        log_noise = pm.Normal("log_noise", -1, 0.4)
        w, v = pm.Normal("w", 0, 1, shape=3), pm.Normal("v", 0, 0.7, shape=3)
        b = pm.Normal("b", pt.exp(log_noise), 0.8)
        pm.Normal("y", pt.tanh(X[:, :1] * w) @ v + b + log_noise, pt.exp(log_noise), observed=X[:, 1])
        pm.Normal("z", w.sum(), 0.6, observed=0.4)
    numbers, rng = Numbers(readout_target(model)), np.random.default_rng(3)
    phi = numbers.random(rng)
    log_likelihood, _, gradient = numbers(phi)
    noise, w = np.exp(-1 + 0.4 * phi[0]), phi[1]
    psi = np.c_[0.7 * np.tanh(X[:, :1] * w), np.full(6, 0.8)]
    direct = multivariate_normal.logpdf(X[:, 1], np.full(6, noise + np.log(noise)), psi @ psi.T + noise**2 * np.eye(6))
    np.testing.assert_allclose(log_likelihood, direct + norm.logpdf(0.4, w.sum(), 0.6), rtol=1e-10)
    up, down = (numbers([phi[0] + step, phi[1]])[0] for step in (1e-6, -1e-6))
    np.testing.assert_allclose(gradient[0], (up - down) / 2e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["matrix", "more features than rows", "wide data, columns"])
def test_the_readout_is_drawn_from_its_conditional(name):
    """Its moments against the dense Gaussian; φ_out made of it is N(0, I)."""
    model = MODELS[name]()
    numbers = Numbers(readout_target(model))
    phi = numbers.random(np.random.default_rng(4))
    states = numbers.states(phi, draws=4000)
    _, psi, residual = direct_marginal(model, states[0])
    columns = states[0]["W1"].shape[0] == model["X"].get_value().shape[1]
    scale = np.r_[np.linspace(0.6, 0.9, psi.shape[1] - 1) if columns else np.full(psi.shape[1] - 1, 0.7), 1.1]
    prior_mean = 0.3 if name == "matrix" else 0.0
    precision = psi.T @ psi / 0.09 + np.eye(psi.shape[1])
    covariance = np.linalg.inv(precision)
    factor = np.linalg.cholesky(precision)
    for j in range(residual.shape[1]):
        theta = np.array(
            [np.r_[np.atleast_2d(s["W2"])[j] if s["W2"].ndim == 2 else s["W2"], s["b2"].reshape(-1)[j]] for s in states]
        )
        whitened = (theta - np.r_[np.full(psi.shape[1] - 1, prior_mean), -0.4]) / scale
        mean = covariance @ psi.T @ residual[:, j] / 0.09
        check_moments(whitened, mean, covariance)
        check_moments((whitened - mean) @ factor, np.zeros(len(mean)), np.eye(len(mean)))


def test_log_determinant_of_the_reparametrisation():
    """ℓ is the joint density at θ(φ_out), with |det dθ/dφ_out| by autodiff, over N(φ_out; 0, I): for any φ_out."""
    model = MODELS["vector"]()
    numbers, rng = Numbers(readout_target(model)), np.random.default_rng(5)
    for _ in range(2):
        phi = numbers.random(rng)
        [point] = numbers.states(phi)
        _, psi, residual = direct_marginal(model, point)
        h = psi.shape[1]
        u = np.linalg.cholesky(psi.T @ psi + 0.09 * np.eye(h)).T
        phi_out = pt.vector("phi_out")
        scale = np.r_[np.full(h - 1, 0.7), 1.1]
        inverse = np.linalg.inv(u)
        theta = scale * (inverse @ (0.3 * phi_out + inverse.T @ psi.T @ residual[:, 0]))
        theta, jacobian = pytensor.function(
            [phi_out], [theta, pytensor.gradient.jacobian(theta, phi_out)], mode="FAST_COMPILE"
        )(rng.normal(size=h))
        value = np.linalg.solve(jacobian, theta - scale * (inverse @ inverse.T @ psi.T @ residual[:, 0]))
        point |= {"W2": theta[:-1], "b2": np.asarray(theta[-1] - 0.4)}
        _, log_prior, _ = numbers(phi)
        found = logp("vector")(point) + np.linalg.slogdet(jacobian)[1] - norm.logpdf(value).sum() - log_prior
        np.testing.assert_allclose(found, numbers(phi)[0], rtol=1e-9)


# The ratios


def proposal(module, target, monkeypatch, **kwargs):
    """``propose`` of a sampler, as a function of u that gives (v, log ratio)."""
    caught = {}
    monkeypatch.setattr(module, "metropolis_hastings", lambda target, propose, **_: caught.update(propose=propose))
    getattr(module, module.__name__.split(".")[-1])(target, **kwargs)
    return caught["propose"]


SAMPLERS = {
    "pcn": (pcn_module, {"beta": 0.6}),
    "pcnl": (pcnl_module, {"beta": 0.6}),
    "mala": (mala_module, {"step_size": 0.3}),
    "underdamped": (mala_module, {"step_size": 0.3, "momentum_refresh": 0.2}),
}


@pytest.mark.parametrize(
    ("sampler", "name", "make"),
    [
        ("pcn", "vector", whitened_target),
        ("pcnl", "vector", whitened_target),
        ("pcnl", "wide data", readout_target),
        ("underdamped", "wide data", readout_target),
        ("mala", "vector", plain_target),
    ],
)
def test_acceptance_is_the_ratio_of_direct_densities(sampler, name, make, monkeypatch):
    model = MODELS[name]()
    module, kwargs = SAMPLERS[sampler]
    numbers = Numbers(make(model))
    target, constants = numbers.target, {k: pt.constant(x) for k, x in numbers.constants.items()}
    propose = proposal(module, target, monkeypatch, **kwargs)
    rng = np.random.default_rng(6)
    u, old = numbers.random(rng), numbers.random(rng)

    def evaluate(position):
        return target.place(position, constants, True)

    def build(random):
        place = evaluate([pt.constant(x) for x in u])
        names = [f"momentum_{x}" for x in target.coordinates]
        memory = dict(zip(names, map(pt.constant, old), strict=True)) if sampler == "underdamped" else {}
        size = pt.constant(kwargs.get("beta", kwargs.get("step_size")))
        random, v, log_ratio, moved, stayed = propose(random, place, size, evaluate, memory)
        return random, log_ratio, *v.position, *moved.values(), *stayed.values()

    found = compile_draw(build)()
    log_ratio, v = found[0], found[1 : len(u) + 1]

    def log_density(phi):
        log_likelihood, log_prior, _ = numbers(phi)
        if make is readout_target:
            log_likelihood = direct_marginal(model, numbers.states(phi)[0])[0]
        elif make is whitened_target:
            log_likelihood = logp(name)(numbers.states(phi)[0]) - log_prior
        else:
            return logp(name)(dict(zip([x.name for x in target.variables], phi, strict=True)))
        return log_likelihood + sum(norm.logpdf(x).sum() for x in phi)

    def log_proposal(u, v):
        gradient = numbers(u)[2]
        total = 0.0
        for x, y, g in zip(u, v, gradient, strict=True):
            if sampler.startswith("pcn"):
                s = np.sqrt(1 - 0.6**2)
                total += norm.logpdf(y, s * x + (1 - s) * g * (sampler == "pcnl"), 0.6).sum()
            else:
                slope = g if make is plain_target else g - x
                total += norm.logpdf(y, x + 0.3**2 / 2 * slope, 0.3).sum()
        return total

    expected = log_density(v) - log_density(u)
    if sampler == "underdamped":
        # On the space of positions and momenta the step is a volume-preserving involution with a flip.
        end, start = found[len(u) + 1 : 2 * len(u) + 1], found[2 * len(u) + 1 :]
        expected += sum(norm.logpdf(m).sum() for m in end) - sum(norm.logpdf(m).sum() for m in start)
        slopes = [g if make is plain_target else g - x for g, x in zip(numbers(v)[2], v, strict=True)]
        back = [y - 0.3 * (m - 0.15 * g) for y, m, g in zip(v, end, slopes, strict=True)]
        for x, y in zip(back, u, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-12)
    else:
        expected += log_proposal(v, u) - log_proposal(u, v)
    assert abs(expected) > 1e-3
    np.testing.assert_allclose(log_ratio, expected, rtol=0, atol=1e-10)


# The laws


def run(step, draws, point=None):
    """Values of the variables and statistics over some draws of a step."""
    point, values, stats = point or step.model.initial_point(), [], []
    for _ in range(draws):
        point, [found] = step.step(point)
        values.append({name: np.array(x) for name, x in point.items()})
        stats.append(found)
    return tuple({name: np.array([row[name] for row in rows]) for name in rows[0]} for rows in (values, stats))


@pytest.mark.parametrize("sampler", [pmg.PCN, pmg.PCNL])
def test_without_likelihood_the_prior_is_kept_and_all_is_accepted(sampler):
    covariance = np.array([[1.0, 0.6], [0.6, 2.0]])
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("location", 1, 2), [0.5, 1.5])
        pm.MvNormal("z", x, covariance)
        pm.MvNormal("rows", np.zeros(2), covariance, shape=(2, 2))
        step = sampler(beta=1, compile_kwargs=PYTHON, rng=1)
    values, stats = run(step, 1500)
    np.testing.assert_allclose(stats["acceptance_rate"], 1, atol=1e-9)
    assert (stats["accepted"] == 1).all()
    logp = model.compile_logp(mode="FAST_COMPILE")({name: x[7] for name, x in values.items()})
    np.testing.assert_allclose(stats["lp"][7], logp, atol=1e-6)
    draws = np.c_[values["location"], values["x"], values["z"], values["rows"].reshape(-1, 4)]
    shared = np.full((5, 5), 4.0)
    shared[1:, 1:] += np.kron([[1, 1], [1, 1]], np.diag([0.25, 2.25]))
    shared[3:, 3:] += covariance
    expected = np.zeros((9, 9))
    expected[:5, :5], expected[5:7, 5:7], expected[7:, 7:] = shared, covariance, covariance
    check_moments(draws[10:], np.r_[np.ones(5), np.zeros(4)], expected)


@pytest.mark.parametrize(("sampler", "rows"), [(pmg.PCN, 20), (pmg.PCNL, 3)])
def test_a_linear_readout_alone_is_drawn_exactly_and_all_is_accepted(sampler, rows):
    x, rng = np.random.default_rng(2).normal(size=(rows, 4)), np.random.default_rng(3)
    y = rng.normal(size=(rows, 2))
    with pm.Model():
        w, b = pm.Normal("w", 0, 0.7, shape=(4, 2)), pm.Normal("b", 0.5, 1.3, shape=2)
        pm.Normal("y", x @ w + b, 0.6, observed=y)
        step = sampler(reparametrise=True, compile_kwargs=PYTHON, rng=1)
    values, stats = run(step, 2000)
    np.testing.assert_allclose(stats["acceptance_rate"], 1, atol=1e-12)
    design = np.c_[x, np.ones(rows)]
    precision = design.T @ design / 0.36 + np.diag(1 / np.r_[np.full(4, 0.49), 1.69])
    for j in range(2):
        mean = np.linalg.solve(precision, design.T @ y[:, j] / 0.36 + np.r_[np.zeros(4), 0.5 / 1.69])
        check_moments(np.c_[values["w"][:, :, j], values["b"][:, j]], mean, np.linalg.inv(precision))


def test_where_the_network_is_linear_in_all_its_weights_nothing_is_lost():
    """pCNL with ℓ constant: a likelihood that does not depend on what moves leaves N(0, I), acceptance 1."""
    with pm.Model():
        w, v = pm.Normal("w", 0, 2, shape=3), pm.Normal("v", 0, 1, shape=2)
        pm.Normal("y", X[:, :2] @ v + 0 * w.sum(), 0.5, observed=X[:, 2])
        step = pmg.PCNL(reparametrise=True, beta=0.9, compile_kwargs=PYTHON, rng=1, sweeps_per_draw=3)
    values, stats = run(step, 1500)
    np.testing.assert_allclose(stats["acceptance_rate"], 1, atol=1e-12)
    check_moments(values["w"][5:] / 2, np.zeros(3), np.eye(3))


@pytest.mark.parametrize("refresh", [pytest.param(1.0, marks=pytest.mark.slow), 0.3])
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
    assert 0.45 < float(stats["acceptance_rate"].mean()) < 0.7
    point = {"x": x[1, 7], "g_log__": np.log(g[1, 7])}
    np.testing.assert_allclose(stats["lp"].values[1, 7], model.compile_logp(mode="FAST_COMPILE")(point), atol=1e-6)


def test_mala_is_that_of_blackjax():
    """In law: the same step size and target, ε = sqrt(2 step_size)."""
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


LAWS = {
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
@pytest.mark.parametrize("name", LAWS)
def test_nuts_on_the_same_model_agrees(name):
    with MODELS["wide data"]():
        thin = {"pCN": 60, "MALA": 150}.get(name, 20)
        idata = pmg.sample(3000, tune=1000, thin=thin, step=LAWS[name](), chains=4, random_seed=2, progressbar=False)
    found = functions(idata["posterior"])
    for quantity, expected in nuts().items():
        for power in (1, 2):
            truth = expected**power
            mcse = truth.std() / np.sqrt(float(az.ess(truth, method="mean")))
            check_mean(found[quantity] ** power, truth.mean(), f"{quantity} to the power {power}", mcse)


@pytest.mark.slow
def test_steps_in_turn_have_the_law_of_the_model():
    """The hierarchical scale has a step of its own: what the other remembers must not go stale."""
    with MODELS["wide data"]() as model:
        weights = [model[name] for name in ("W1", "b1", "W2", "b2")]
        steps = [pmg.PCN([model["log_scale"]], beta=0.7), pmg.PCN(weights, reparametrise=True, beta=0.6)]
        idata = pmg.sample(3000, tune=500, thin=100, step=steps, chains=4, random_seed=3, progressbar=False)
    found = functions(idata["posterior"])
    for quantity, expected in nuts().items():
        mcse = expected.std() / np.sqrt(float(az.ess(expected, method="mean")))
        check_mean(found[quantity], expected.mean(), quantity, mcse)


# The drivers


@pytest.mark.parametrize(
    ("sampler", "name"),
    [(pmg.PCNL, "vector"), pytest.param(pmg.PCN, "wide data", marks=pytest.mark.slow)],
)
def test_the_whole_program_draws_what_the_step_draws_in_jax(sampler, name):
    model = MODELS[name]()
    step = sampler(model=model, beta=None, reparametrise=True, sweeps_per_draw=2, compile_kwargs={"mode": "JAX"})
    with model:
        idata = pmg.sample(4, tune=0, thin=1, step=step, chains=2, random_seed=7, progressbar=False)
    for chain, seed in enumerate(_get_seeds_per_chain(7, 2)):
        step.set_rng(0)
        step.tune = False
        step._jax_key = step._jax_key | {"jax_state": np.random.SeedSequence([int(seed), 0]).generate_state(2)}
        values, stats = run(step, 4)
        for name, found in values.items():
            np.testing.assert_allclose(idata["posterior"][name][chain], found, rtol=1e-6)
        for name, found in stats.items():
            np.testing.assert_allclose(idata["sample_stats"][name][chain], found, rtol=1e-6)


def test_several_steps_take_turns():
    """Each begins from where the others have brought the variables."""
    with MODELS["vector"]() as model:
        scale = pmg.PCN([model["log_scale"]], beta=0.5)
        rest = pmg.PCN([model[name] for name in ("W1", "b1", "W2", "b2")], beta=0.3, reparametrise=True)
        idata = pmg.sample(20, tune=0, step=[scale, rest], thin=3, chains=2, random_seed=7, progressbar=False)
    posterior, stats = idata["posterior"], idata["sample_stats"]
    point = {v.name: posterior[v.name].values[1, -1] for v in model.free_RVs}
    marginal = direct_marginal(model, point)[0]
    prior = norm.logpdf(point["b1"], 0.1, 1.3).sum() + norm.logpdf(point["W1"], 0, np.exp(point["log_scale"])).sum()
    # lp of the last step, with the scale that the first has just moved.
    rest_of_model = norm.logpdf(point["log_scale"], 0.2, 0.7)
    np.testing.assert_allclose(stats["lp_1"].values[1, -1], marginal + prior + rest_of_model, atol=1e-6)


def test_changes_by_others_are_seen():
    """ℓ is not remembered from one draw to the next."""
    with MODELS["vector"]() as model:
        step = pmg.PCN([model["W1"]], beta=1e-6, compile_kwargs=PYTHON, rng=1)
    point = model.initial_point()
    step.step(point)
    for shift in (1.0, 2.0):
        moved = {name: x + shift for name, x in point.items()}
        new, [stats] = step.step(moved)
        np.testing.assert_allclose(stats["lp"], _expected_lp(model, new), atol=1e-4)
        assert stats["acceptance_rate"] > 0.99
        np.testing.assert_array_equal(new["W2"], moved["W2"])
    model.set_data("X", 2 * X)
    step.set_rng(1)
    new, [stats] = step.step(moved)
    np.testing.assert_allclose(stats["lp"], _expected_lp(model, new), atol=1e-4)


def _expected_lp(model, point):
    return model.compile_logp(mode="FAST_COMPILE")(point)


@pytest.mark.parametrize("sampler", [pmg.PCN, pmg.PCNL, pmg.MALA])
def test_the_step_size_is_tuned_during_tuning_alone(sampler):
    kwargs = {"beta": None} if sampler is not pmg.MALA else {}
    with MODELS["vector"]():
        step = sampler(compile_kwargs=PYTHON, **kwargs)
        idata = pm.sample(50, tune=150, chains=1, step=step, random_seed=1, discard_tuned_samples=False, **QUIET)
    tuned, after = (idata[group]["step_size"].values[0] for group in ("warmup_sample_stats", "sample_stats"))
    assert len(set(tuned)) > 100
    assert len(set(after)) == 1
    assert {"lp", "acceptance_rate", "accepted", "step_size"} <= set(idata["sample_stats"].data_vars)
    target = 0.3 if sampler is pmg.PCN else 0.574
    assert abs(idata["warmup_sample_stats"]["acceptance_rate"].values[0, 50:].mean() - target) < 0.12


@pytest.mark.slow
def test_numba_and_the_row_space_at_some_width():
    """The default backend, on wide data, by pm.sample; the complement keeps its prior."""
    x, rng = np.random.default_rng(4).normal(size=(5, 40)), np.random.default_rng(5)
    model = pmg.wide_mlp(x, rng.normal(size=(5, 2)), width=8)
    with model:
        idata = pm.sample(
            2000,
            tune=300,
            chains=1,
            random_seed=1,
            step=pmg.PCN(beta=None, reparametrise=True, sweeps_per_draw=2),
            **QUIET,
        )
    w = idata["posterior"]["W1"].values[0]
    _, _, v = np.linalg.svd(x)
    complement = w @ v[5:].T
    check_moments(complement[:, 3, :6], np.zeros(6), np.eye(6))
    assert np.abs(np.corrcoef(complement[1:, 0, 0], complement[:-1, 0, 0])[0, 1]) < 0.1


# Models and bad input


def test_wide_mlp_is_in_ntk_form():
    y = np.ones((6, 2))
    model = pmg.wide_mlp(X, y, width=5, depth=2, activation="gelu", noise=0.2, weight_scale=1.5, bias_scale=0.3)
    assert model.eval_rv_shapes() == {"W1": (5, 3), "b1": (5,), "W2": (5, 5), "b2": (5,), "W3": (2, 5), "b3": (2,)}
    point = {name: RNG.normal(size=shape) for name, shape in model.eval_rv_shapes().items()}
    a = X
    for l in (1, 2):
        z = 1.5 / a.shape[1] ** 0.5 * a @ point[f"W{l}"].T + 0.3 * point[f"b{l}"]
        a = z * norm.cdf(z)
    mean = a @ point["W3"].T / 5**0.5 + 0.1 * point["b3"]
    expected = norm.logpdf(y, mean, 0.2).sum() + sum(norm.logpdf(x).sum() for x in point.values())
    np.testing.assert_allclose(model.compile_logp(mode="FAST_COMPILE")(point), expected)
    single = pmg.wide_mlp(X, y[:, 0], width=4, activation="relu", bias_scale=0, readout_bias_scale=0)
    assert single.eval_rv_shapes() == {"W1": (4, 3), "W2": (4,)}
    assert "wide" not in readout_target(single).constants


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 0}, "width must be a positive integer; found 0"),
        ({"depth": 1.5}, "depth must be"),
        ({"noise": 0}, "noise must be finite and positive"),
        ({"bias_scale": -1}, "bias_scale must be"),
        ({"activation": "rleu"}, "activation must be one of.*found 'rleu'"),
        ({"y": np.ones(5)}, r"found \(6, 3\) and \(5,\)"),
        ({"X": X * np.nan}, "X holds 18 values"),
    ],
)
def test_impossible_networks_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        pmg.wide_mlp(**({"X": X, "y": np.ones(6), "width": 3} | arguments))


@pytest.mark.parametrize("beta", [0, -0.1, 1.1, np.nan])
@pytest.mark.parametrize("sampler", [pmg.PCN, pmg.PCNL])
def test_beta_outside_its_range_is_refused(sampler, beta):
    with MODELS["vector"](), pytest.raises(ValueError, match=r"beta must be in \(0, 1\]"):
        sampler(beta=beta)


def test_impossible_steps_of_mala_are_refused():
    with MODELS["vector"]():
        with pytest.raises(ValueError, match=r"step_size must be positive and finite.*found 0"):
            pmg.MALA(step_size=0)
        with pytest.raises(ValueError, match=r"momentum_refresh.*\(0, 1\]; found 0"):
            pmg.MALA(momentum_refresh=0)
    with pm.Model():
        pm.Poisson("count", 3)
        with pytest.raises(ValueError, match="'count' is discrete"):
            pmg.MALA()


def test_priors_that_are_not_gaussian_are_named():
    with pm.Model() as model:
        s = pm.HalfNormal("s")
        w = pm.Normal("w", 0, s, shape=2)
        pm.Normal("t", 0, 1, transform=pm.distributions.transforms.log)
        pm.MvNormal("m", np.zeros(2), np.stack([np.eye(2), 2 * np.eye(2)]), shape=(2, 2))
        with pytest.raises(ValueError, match=r"prior of 's' is no Normal or MvNormal but half.*vars="):
            pmg.PCN()
        with pytest.raises(ValueError, match="'t' is transformed"):
            pmg.PCN([model["t"]])
        with pytest.raises(ValueError, match="'m' has a covariance for each row"):
            pmg.PCNL([model["m"]])
        with pytest.raises(ValueError, match=r"free variables of the model; \['other'\] are not"):
            pmg.PCN([w, pt.scalar("other")])
        assert [v.name for v in pmg.PCN([w]).transition.variables] == ["w"]


def refused(build):
    with pm.Model():
        w, v = pm.Normal("w", 0, 1, shape=3), pm.Normal("v", 0, 1, shape=3)
        build(w, v)
        with pytest.raises(pmg.NetworkError) as error:
            pmg.PCN(reparametrise=True)
    return str(error.value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda w, v: pm.Normal("y", pt.exp(X @ w), 1, observed=X[:, 0]), "mean of 'y' is not linear in weights"),
        (
            lambda w, v: pm.Bernoulli("y", logit_p=X @ w, observed=np.ones(6)),
            "likelihood 'y' is no Normal but bernoulli",
        ),
        (lambda w, v: pm.Normal("y", X @ w, pt.exp(v).sum() * np.ones(6), observed=X[:, 0]), "sigma of 'y' has shape"),
        (lambda w, v: pm.Normal("y", (X * w) @ w, 1, observed=X[:, 0]), "'w' enters the model in another way too"),
        (
            lambda w, v: pm.Normal("y", X @ w, pt.exp(w.sum()), observed=X[:, 0]),
            "'w' enters the model in another way too",
        ),
        (lambda w, v: None, "observes nothing"),
        (
            lambda w, v: [pm.Normal(f"y{i}", X @ x, 1, observed=X[:, 0]) for i, x in enumerate((w, v))],
            "likelihoods 'y0', 'y1' each have a linear readout",
        ),
        (
            lambda w, v: pm.Normal("y", X @ pm.Normal("u", 0, [1.0, 2.0], shape=(3, 2)), 1, observed=X[:, :2]),
            "prior scale of 'u' differs between outputs",
        ),
    ],
)
def test_readouts_that_cannot_be_integrated_out_are_refused(build, message):
    assert message in refused(build)


def test_a_readout_among_other_terms_is_found():
    """Two blocks of features, a factor around all, an offset that moves, and a second likelihood of inner weights."""
    with pm.Model() as model:
        w, v, u = pm.Normal("w", shape=3), pm.Normal("v", 0.2, 0.8, shape=3), pm.Normal("u", shape=2)
        s, b = pm.Normal("s"), pm.Normal("b", 0.1, 1.5)
        pm.Normal("y", -(pt.tanh(X * w) @ v - X[:, :2] @ u + b) / 2 + s**2, 0.4, observed=X[:, 0])
        pm.Normal("z", w * s, 0.5, observed=np.ones(3))
    target = readout_target(model)
    assert list(target.coordinates) == ["whitened_w", "whitened_s"]
    numbers, rng = Numbers(target), np.random.default_rng(8)
    w, s = phi = numbers.random(rng)
    psi = np.c_[np.tanh(X * w) * 0.8, -X[:, :2], np.full(6, 1.5)] / -2
    mean = -(np.tanh(X * w).sum(1) * 0.2 + 0.1) / 2 + s**2
    expected = multivariate_normal.logpdf(X[:, 0], mean, psi @ psi.T + 0.16 * np.eye(6))
    np.testing.assert_allclose(numbers(phi)[0], expected + norm.logpdf(1, w * s, 0.5).sum(), rtol=1e-7)
    [point] = numbers.states(phi)
    assert {name: x.shape for name, x in point.items()} == model.eval_rv_shapes()


def test_a_matrix_times_its_transpose_is_one_half_mirrored():
    mode = with_fast_products(_compat.compilation_mode("NUMBA"))
    x = pt.matrix("x")
    function = pytensor.function([x], x @ x.T, mode=mode)
    assert any(type(node.op).__name__ == "Gram" for node in function.maker.fgraph.apply_nodes)
    for shape in ((3, 5), (64, 7), (150, 9)):
        matrix = RNG.normal(size=shape)
        for ordered in (matrix, np.asfortranarray(matrix)):
            np.testing.assert_allclose(function(ordered), matrix @ matrix.T, rtol=1e-12, atol=1e-12)

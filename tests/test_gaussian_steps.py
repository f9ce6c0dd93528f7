"""pCN, pCNL and MALA: their ratios against direct densities, their laws, the models they read and refuse."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import multivariate_normal, norm

from pymc_gibbsnn.readout import readout_target
from pymc_gibbsnn.transitions import mala as mala_module
from pymc_gibbsnn.transitions import pcn as pcn_module
from pymc_gibbsnn.transitions import pcnl as pcnl_module
from pymc_gibbsnn.whitening import plain_target, whitened_target
from tests.helpers import check_moments, compile_draw

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
        np.testing.assert_allclose(log_likelihood + log_prior, logp(name)(point), rtol=0, atol=1e-7)
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


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("reduce", [True, False])
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
    direct = multivariate_normal.logpdf(X[:, 1], noise + np.log(noise), psi @ psi.T + noise**2 * np.eye(6))
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


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(
    ("name", "make"), [("vector", whitened_target), ("wide data", readout_target), ("vector", plain_target)]
)
def test_acceptance_is_the_ratio_of_direct_densities(sampler, name, make, monkeypatch):
    if make is plain_target and sampler.startswith("pcn"):
        pytest.skip("not whitened")
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
    np.testing.assert_allclose(log_ratio, expected, rtol=0, atol=1e-10 if make is readout_target else 1e-7)

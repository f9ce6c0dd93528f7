"""The densities that pCN, pCNL and MALA move on, and their acceptance ratios."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import multivariate_normal, norm

from pymc_gibbsnn.samplers import mala as mala_module
from pymc_gibbsnn.samplers import pcn as pcn_module
from pymc_gibbsnn.samplers import pcnl as pcnl_module
from pymc_gibbsnn.targets.plain import PlainTarget
from pymc_gibbsnn.targets.readout import ReadoutTarget
from pymc_gibbsnn.targets.whitening import WhitenedTarget
from tests.gaussian_models import MODELS, Numbers, X, direct_marginal, logp
from tests.helpers import check_moments, compile_draw, slow

# The densities


@pytest.mark.parametrize("name", ["vector", "columns"])
def test_whitened_density_is_that_of_the_model(name):
    model = MODELS[name]()
    numbers, rng = Numbers(WhitenedTarget(model)), np.random.default_rng(1)
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


@pytest.mark.parametrize(("name", "reduce"), [*((name, True) for name in MODELS), ("wide data", False)])
def test_the_readout_is_integrated_out(name, reduce):
    """ℓ against a dense Gaussian, its gradient against differences."""
    model = MODELS[name]()
    numbers, rng = Numbers(ReadoutTarget(model, reduce=reduce)), np.random.default_rng(2)
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
    numbers, rng = Numbers(ReadoutTarget(model)), np.random.default_rng(3)
    phi = numbers.random(rng)
    log_likelihood, _, gradient = numbers(phi)
    noise, w = np.exp(-1 + 0.4 * phi[0]), phi[1]
    psi = np.c_[0.7 * np.tanh(X[:, :1] * w), np.full(6, 0.8)]
    direct = multivariate_normal.logpdf(X[:, 1], np.full(6, noise + np.log(noise)), psi @ psi.T + noise**2 * np.eye(6))
    np.testing.assert_allclose(log_likelihood, direct + norm.logpdf(0.4, w.sum(), 0.6), rtol=1e-10)
    up, down = (numbers([phi[0] + step, phi[1]])[0] for step in (1e-6, -1e-6))
    np.testing.assert_allclose(gradient[0], (up - down) / 2e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["matrix", slow("more features than rows"), slow("wide data, columns")])
def test_the_readout_is_drawn_from_its_conditional(name):
    """Its moments against the dense Gaussian; φ_out made of it is N(0, I)."""
    model = MODELS[name]()
    numbers = Numbers(ReadoutTarget(model))
    phi = numbers.random(np.random.default_rng(4))
    states = numbers.states(phi, draws=800)
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
    numbers, rng = Numbers(ReadoutTarget(model)), np.random.default_rng(5)
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
            [phi_out], [theta, pytensor.gradient.jacobian(theta, phi_out)], mode="AS_WRITTEN"
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
        ("pcn", "vector", WhitenedTarget),
        ("pcnl", "vector", WhitenedTarget),
        ("pcnl", "wide data", ReadoutTarget),
        ("underdamped", "wide data", ReadoutTarget),
        ("mala", "vector", PlainTarget),
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
        if make is ReadoutTarget:
            log_likelihood = direct_marginal(model, numbers.states(phi)[0])[0]
        elif make is WhitenedTarget:
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
                slope = g if make is PlainTarget else g - x
                total += norm.logpdf(y, x + 0.3**2 / 2 * slope, 0.3).sum()
        return total

    expected = log_density(v) - log_density(u)
    if sampler == "underdamped":
        # On the space of positions and momenta the step is a volume-preserving involution with a flip.
        end, start = found[len(u) + 1 : 2 * len(u) + 1], found[2 * len(u) + 1 :]
        expected += sum(norm.logpdf(m).sum() for m in end) - sum(norm.logpdf(m).sum() for m in start)
        slopes = [g if make is PlainTarget else g - x for g, x in zip(numbers(v)[2], v, strict=True)]
        back = [y - 0.3 * (m - 0.15 * g) for y, m, g in zip(v, end, slopes, strict=True)]
        for x, y in zip(back, u, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-12)
    else:
        expected += log_proposal(v, u) - log_proposal(u, v)
    assert abs(expected) > 1e-3
    np.testing.assert_allclose(log_ratio, expected, rtol=0, atol=1e-10)

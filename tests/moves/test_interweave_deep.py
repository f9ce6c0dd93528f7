"""The interweaving move in which all latents above move along, against densities written down by brute force."""

from functools import cache
from itertools import pairwise, product

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import multivariate_normal, norm

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.moves.interweave_deep import DeepInputs, InterweaveDeep, _tables
from pymc_gibbsnn.networks.activations import ACTIVATIONS
from tests.helpers import MODES, MOSTLY_PYTHON, slow, slow_but

ZIGZAG = pmg.PiecewiseLinear([-0.5, 0.5], [1, -1, 2], [0, 0.2, -0.5])
NETWORKS = {  # numbers of units from the layer that moves to the data, and activations
    "two layers": ((3, 2, 1), ("relu", "relu")),
    "two outputs": ((3, 4, 2), ("leaky_relu", "abs")),
    "three layers": ((3, 2, 4, 2), ("relu", "zigzag", "hard_tanh")),
    "linear": ((3, 2, 4, 2), ("identity", "identity", "identity")),
}


class Network:
    """A random network above the input of a layer; the target of a unit, all noise held fixed."""

    def __init__(self, name, n=12, d=3, seed=0):
        rng = np.random.default_rng(seed)
        self.widths, names = NETWORKS[name]
        self.functions = [ZIGZAG if name == "zigzag" else ACTIVATIONS[name] for name in names]
        self.x, self.w = np.c_[rng.normal(size=(n, d - 1)), np.ones(n)], rng.normal(size=(self.widths[0], d))
        self.noise = [0.3 * rng.normal(size=(n, width)) for width in self.widths[:-1]]
        self.noise_of_posts = [0.3 * rng.normal(size=(n, width)) for width in self.widths[:-2]]
        self.weights = [rng.normal(size=(units, below)) for below, units in pairwise(self.widths)]
        self.biases = [rng.normal(size=units) for units in self.widths[1:-1]]
        v = self.weights[-1]
        self.covariance = 0.2 * np.eye(len(v)) + 0.1 * v @ v.T
        self.precision = rng.uniform(0.5, 2, size=(1, d))
        self.y = self.output(self.w)[1] + 0.5 * rng.normal(size=(n, self.widths[-1]))

    def output(self, w):
        """All Z, and f."""
        zs = [self.x @ w.T + self.noise[0]]
        for function, noise, weights, bias, above in zip(
            self.functions, self.noise_of_posts, self.weights, self.biases, self.noise[1:], strict=False
        ):
            zs.append((function(zs[-1]) + noise) @ weights.T + bias + above)
        return zs, self.functions[-1](zs[-1]) @ self.weights[-1].T

    def log_target(self, w):
        likelihood = multivariate_normal(cov=self.covariance).logpdf(self.y - self.output(w)[1]).sum()
        return likelihood + norm(0, self.precision**-0.5).logpdf(w).sum()

    def log_proposal(self, w, w_new, j, rho):
        """The density of the proposal, with derivatives of f by small differences, which on pieces are exact."""
        _, f = self.output(w)
        g = np.empty((*f.shape, len(w[j])))
        for k in range(len(w[j])):
            near = w.copy()
            near[j, k] += 1e-7
            g[..., k] = (self.output(near)[1] - f) / 1e-7
        inverse = np.linalg.inv(self.covariance)
        q = np.einsum("nck,ce,nel->kl", g, inverse, g) + np.diag(self.precision[0])
        gradient = np.einsum("nck,ce,ne->k", g, inverse, self.y - f) - self.precision[0] * w[j]
        mean = w[j] + (1 - rho) * np.linalg.solve(q, gradient)
        return multivariate_normal(mean, (1 - rho**2) * np.linalg.inv(q)).logpdf(w_new[j])

    def log_ratio(self, w, w_new, j, rho):
        forth, back = self.log_proposal(w, w_new, j, rho), self.log_proposal(w_new, w, j, rho)
        return self.log_target(w_new) - self.log_target(w) + back - forth

    def arguments(self, rho, log_u, xi):
        (z, *latents), _ = self.output(self.w)
        weights = np.concatenate([w.ravel() for w in self.weights])
        above = np.concatenate(latents, axis=1), weights, np.array(self.widths), self.y, np.linalg.inv(self.covariance)
        return DeepInputs(self.x, self.w, z, *above, self.precision, rho, log_u, xi, _tables(self.functions))


@cache
def compiled(mode, name):
    ranks = DeepInputs(2, 2, 2, 2, 1, 1, 2, 2, 2, 2, 2, 3, 3)
    inputs = DeepInputs(*(pt.tensor(dtype="float64", shape=(None,) * rank) for rank in ranks))
    outputs = InterweaveDeep()(*inputs._replace(widths=np.array(NETWORKS[name][0])))
    inputs = [x for x in inputs if x is not inputs.widths]
    move = pytensor.function(inputs, outputs, mode=with_our_kernels(compilation_mode(mode)))
    return lambda arguments: move(*(x for x in arguments if x is not arguments.widths))


ALWAYS, NEVER = -np.inf, np.inf


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
@pytest.mark.parametrize("name", NETWORKS)
def test_acceptance_is_that_of_the_densities(name, mode):
    """Oracle 11, at random pairs: a uniform number just below the ratio accepts, one just above it does not."""
    move, h = compiled(mode, name), 3
    for seed in range(6):
        network, rng, j = Network(name, seed=seed), np.random.default_rng(seed), seed % h
        rho, xi, only = rng.uniform(0, 0.9, size=(1, h)), rng.normal(size=(1, h, 3)), np.arange(h) == j
        w_new, *latents, accepted = move(network.arguments(rho, np.where(only, ALWAYS, NEVER)[None], xi))
        assert accepted.sum() == 1
        expected, _ = network.output(np.asarray(w_new))
        np.testing.assert_allclose(np.concatenate(latents, axis=1), np.concatenate(expected, axis=1), atol=1e-12)
        log_ratio = network.log_ratio(network.w, np.asarray(w_new), j, rho[0, j])
        for difference, outcome in ((-1e-4, 1), (1e-4, 0)):  # of small differences
            log_u = np.where(only, log_ratio + difference, NEVER)
            *_, accepted = move(network.arguments(rho, log_u[None], xi))
            assert accepted[0, j] == outcome, (log_ratio, difference)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA", slow("JAX")])
@pytest.mark.parametrize("first", [0, 1])
def test_a_second_visit_starts_from_the_first(first, mode):
    """What is kept of the latents above is that of the unit's new weights, for the same unit and for others."""
    name = "three layers"
    move, h, rng, moved = compiled(mode, name), 3, np.random.default_rng(5), 0
    for seed in range(20):
        network = Network(name, seed=seed)
        rho, xi = rng.uniform(0, 0.9, size=(2, h)), rng.normal(size=(2, h, 3))
        visits = np.arange(h) == np.array([[first], [1]])
        log_u = [np.where(visits, [[ALWAYS], [second]], NEVER) for second in (NEVER, ALWAYS)]
        w, w_new = (np.asarray(move(network.arguments(rho, x, xi))[0]) for x in log_u)
        log_ratio = network.log_ratio(w, w_new, 1, rho[1, 1])
        for difference, outcome in ((-1e-4, 1), (1e-4, 0)):
            log_u = np.where(visits, [[ALWAYS], [log_ratio + difference]], NEVER)
            *_, accepted = move(network.arguments(rho, log_u, xi))
            assert accepted[1, 1] == outcome, (log_ratio, difference)
        (z, *_), (z_new, *_) = network.output(w), network.output(w_new)
        moved += (np.sign(z_new[1]) != np.sign(z[1])).any()
    assert moved > 5


QUICK = {("two layers", "NUMBA"), ("three layers", "NUMBA"), ("two layers", "JAX")}


@pytest.mark.parametrize(("name", "mode"), slow_but(QUICK, product(NETWORKS, MODES[1:])))
def test_backends_agree(name, mode):
    network, rng = Network(name, n=40, d=4), np.random.default_rng(1)
    arguments = network.arguments(
        rng.uniform(size=(2, 3)), np.log(rng.uniform(size=(2, 3))), rng.normal(size=(2, 3, 4))
    )
    for found, expected in zip(compiled(mode, name)(arguments), compiled(MODES[0], name)(arguments), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA", slow("JAX")])
def test_linear_layers_are_always_accepted(mode):
    network, rng = Network("linear"), np.random.default_rng(3)
    numbers = rng.uniform(size=(2, 3)), np.full((2, 3), -1e-9), rng.normal(size=(2, 3, 3))
    *_, accepted = compiled(mode, "linear")(network.arguments(*numbers))
    assert accepted.all()


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA", slow("JAX")])
def test_units_without_a_factor_stay(mode):
    """With a weight of precision 0 that the data do not determine, Q is singular."""
    network = Network("two layers")
    network.x[:, 0] = network.precision[:, 0] = 0
    arguments = network.arguments(np.full((1, 3), 0.5), np.full((1, 3), ALWAYS), np.ones((1, 3, 3)))
    w, *_, accepted = compiled(mode, "two layers")(arguments)
    assert not accepted.any()
    np.testing.assert_array_equal(w, network.w)


@pytest.mark.parametrize(("hidden", "moving"), [(4, []), ([4, 3], ["W1"]), ([4, 3, 2], ["W1", "W2"])])
def test_lower_layers_make_the_move(hidden, moving):
    x = np.random.default_rng(0).normal(size=(30, 3))
    model = pmg.mlp(x, x[:, 0], hidden, noise=0.3, prior=None)
    step = pmg.GibbsNN(model=model, compile_kwargs={"mode": "AS_WRITTEN"})
    found = {name for name in step.transition.stats if name.startswith("deep")}
    assert found == {f"deep_acceptance_{w}" for w in moving}
    point, [stats] = step.step(model.initial_point())
    assert stats["lp"] == pytest.approx(float(model.compile_logp(mode="AS_WRITTEN")(point)))

"""The interweaving move of filters against densities and matrices written down by brute force."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import multivariate_normal, norm

from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.moves import filter_gram
from pymc_gibbsnn.moves.filter_gram import FilterGram
from pymc_gibbsnn.moves.interweave_filters import (
    FilterConditional,
    interweave_filters,
    makes_filter_move,
    propose,
    reach,
)
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.layers.windows import Windows
from pymc_gibbsnn.networks.reader import read_network
from tests import image_models
from tests.helpers import MOSTLY_PYTHON, check_moments, compile_draw, random_point, value
from tests.image_models import write

CASES = {
    "plain": (Windows(2, 3, 4, (2, 2), (1, 2)), True),
    "padding, no bias": (Windows(1, 3, 3, (2, 2), (1, 1), (1, 0)), False),
}


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
@pytest.mark.parametrize("name", CASES)
def test_gram(mode, name, monkeypatch):
    """Against the matrix F of each image, made by convolving with one weight at a time; all images, and every third."""
    windows, has_bias = CASES[name]
    rng, n, c, units = np.random.default_rng(0), 40, 3, 2
    places, d = windows.places, windows.numbers + has_bias
    images, slopes = rng.normal(size=(n, *windows.image)), rng.normal(size=(n, units, places))
    slopes[rng.random(slopes.shape) < 0.3] = 0
    b = rng.normal(size=(c, units, places))

    seen = windows.of(images).transpose(0, 1, 4, 5, 2, 3).reshape(n, windows.numbers, *windows.grid)
    columns = [seen[:, k] for k in range(windows.numbers)] + [np.ones_like(seen[:, 0])] * has_bias
    f = np.array(
        [[b[:, j] @ (s[j] * x[i].ravel()) for j in range(units) for x in columns] for i, s in enumerate(slopes)]
    )

    variables = pt.tensor4(), pt.tensor3(), pt.tensor3()
    gram = FilterGram(windows, has_bias)(*variables)
    compiled = pytensor.function(variables, gram, mode=with_our_kernels(compilation_mode(mode)))
    np.testing.assert_allclose(compiled(images, slopes, b), np.einsum("ikc,ilc->kl", f, f), rtol=1e-10)
    if mode != "NUMBA":  # whose code is compiled with the number
        columns = units * d
        monkeypatch.setattr(filter_gram, "PRODUCTS", 40 / 3 * c * columns * (places + columns))
        monkeypatch.setattr(filter_gram, "ROWS", 0)
        some = pytensor.function(variables, gram, mode=with_our_kernels(compilation_mode(mode)))(images, slopes, b)
        np.testing.assert_allclose(some, np.einsum("ikc,ilc->kl", f[::3], f[::3]) * 40 / 14, rtol=1e-10)


REACH = {
    "conv dense": [(0, 1)],
    "conv act pool": [(0, 2), None],
    "conv pool act": [(1, 2), None],
    "conv conv": [None, (1, 2)],
    "conv pool conv": [None, None, (2, 3)],
    "dense conv": [None, (1, 2)],
}


@pytest.mark.parametrize("name", REACH)
def test_reach(name):
    network = read_network(write(name))
    layers = range(len(network.activations))
    assert [reach(network, l) for l in layers] == REACH[name]
    assert [makes_filter_move(network, l) for l in layers] == [found is not None for found in REACH[name]]


class Filters:
    """The filters of a network at a random point, and the density of theirs with what lies above integrated out."""

    def __init__(self, name, l):
        model = write(name)
        network = read_network(model)
        self.point, (self.k, m) = random_point(model, 3), reach(network, l)
        values = {v: pt.constant(self.point[v.name]) for v in network.variables}
        state = NetworkState.begin(network.at, values, pt.constant(0.0))
        self.conditional = FilterConditional.of(state, l, self.k, m)
        self.w, self.z, self.a = (value(x) for x in (state.weights[l], state.outputs[self.k], state.input(l)))
        # matrices from Z to Y, and from noise to Y, layer by layer
        operators = [network.layers[i].operator for i in range(l, m + 1)]
        w_m = value(state.weights[m])
        dense = operators[-1].linear(w_m)
        noise_y, noise_a = (float(value(x)) for x in (network.layers[m].noise, network.activations[self.k].noise))
        self.v, inner = dense, noise_a * np.eye(dense.shape[1])
        if m > self.k + 1:
            pooled = operators[-2].forward(np.eye(operators[-2].shape[1])).T
            self.v = dense @ pooled
            inner = float(value(network.layers[m - 1].noise)) * np.eye(len(pooled)) + noise_a * pooled @ pooled.T
        self.covariance = noise_y * np.eye(len(dense)) + dense @ inner @ dense.T
        self.y = value(state.outputs[m]) - (w_m[:, -1] if operators[-1].has_bias else 0)
        self.operators, self.function = operators[: self.k - l + 1], network.activations[self.k].function
        self.precision = np.broadcast_to(value(operators[0].precision), self.w.shape)

    def moved(self, step):
        z = self.operators[0].forward(self.a, step)
        return self.operators[1].forward(z) if len(self.operators) == 2 else z

    def log_target(self, w):
        z = self.z + self.moved(w - self.w)
        likelihood = multivariate_normal(cov=self.covariance).logpdf(self.y - self.function(z) @ self.v.T).sum()
        return likelihood + norm(0, self.precision**-0.5).logpdf(w).sum()

    def log_proposal(self, w, w_new, rho):
        z = self.z + self.moved(w - self.w)
        slopes, columns = self.function.derivative(z), []
        for unit in np.eye(w.size):
            columns.append((slopes * self.moved(unit.reshape(w.shape))) @ self.v.T)
        j, inverse = np.array(columns), np.linalg.inv(self.covariance)
        q = np.einsum("knc,cd,lnd->kl", j, inverse, j) + np.diag(self.precision.ravel())
        r = self.y - self.function(z) @ self.v.T
        gradient = np.einsum("knc,cd,nd->k", j, inverse, r) - (self.precision * w).ravel()
        covariance = np.linalg.inv(q)
        mean = w.ravel() + (1 - rho) * covariance @ gradient
        return multivariate_normal(mean, (1 - rho**2) * covariance).logpdf(w_new.ravel())


@pytest.mark.parametrize("name", ["conv dense", "conv act pool", "conv pool act", "conv conv"])
def test_acceptance_is_that_of_the_densities(name):
    """Oracle 11: the ratio of the move is that of direct densities, at random pairs."""
    filters = Filters(name, 1 if name == "conv conv" else 0)
    conditional, rng = filters.conditional, np.random.default_rng(1)
    rho, xi = pt.scalar(), pt.matrix()
    w, z = pt.constant(filters.w), pt.constant(filters.z)
    log_ratio, new = propose(conditional, conditional.at(w, z, conditional.residual_pull(z)), rho, xi)
    move = pytensor.function([rho, xi], [log_ratio, *new[:3], conditional.residual_pull(new[1])], mode="AS_WRITTEN")
    changed = 0
    for persistence in (0.0, 0.3, 0.8):
        found, w_new, z_new, pull, expected_pull = move(persistence, rng.normal(size=filters.w.shape))
        expected = (
            filters.log_target(w_new)
            - filters.log_target(filters.w)
            + filters.log_proposal(w_new, filters.w, persistence)
            - filters.log_proposal(filters.w, w_new, persistence)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-8)
        np.testing.assert_allclose(z_new - filters.z, filters.moved(w_new - filters.w), atol=1e-12)
        np.testing.assert_allclose(pull, expected_pull, atol=1e-12)
        changed += (filters.function.derivative(z_new) != filters.function.derivative(filters.z)).sum()
    assert changed > 0


@pytest.mark.parametrize("name", ["conv act pool", "conv pool act"])
def test_what_was_integrated_out_is_drawn(name, monkeypatch):
    """The pool above the activation, or the convolution below it, given all else: a Gaussian for each image."""
    monkeypatch.setattr(image_models, "IMAGES", np.random.default_rng(0).normal(size=(4000, 1, 3, 4)))
    model = write(name, np.array([0.5, 0.4, 0.3, 0.2]))
    network, point = read_network(model), random_point(model, 3)
    values = {v: pt.constant(point[v.name]) for v in network.variables}

    def build(rng):
        state = NetworkState.begin(network.at, values, pt.constant(0.0))
        rng, state, _, _ = interweave_filters(network, 0).step(rng, state, {})
        return rng, *state.outputs, state.site(0).mean, state.weights[2]

    z, pooled, y, mean, w = compile_draw(build)()
    pool = network.layers[1].operator
    average, dense = pool.forward(np.eye(pool.shape[1])).T, w[:, :-1]
    if name == "conv act pool":  # the pool P given σ(Z), with A integrated out, and Y
        prior, drawn, above, observed = average @ np.maximum(z, 0).T, pooled, dense, y - w[:, -1]
        before, noise = 0.3**2 * np.eye(len(average)) + 0.4**2 * average @ average.T, 0.2**2
    else:  # the convolution Z given its mean and the pool
        prior, drawn, above, observed = mean.T, z, average, pooled
        before, noise = 0.5**2 * np.eye(average.shape[1]), 0.4**2
    gain = before @ above.T @ np.linalg.inv(above @ before @ above.T + noise * np.eye(len(above)))
    expected = prior.T + (observed - prior.T @ above.T) @ gain.T
    check_moments(drawn - expected, np.zeros(drawn.shape[1]), before - gain @ above @ before)

"""The interweaving move with the weights above integrated out, against densities written down by brute force."""

import math
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import multivariate_normal, norm

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.moves.interweave_marginal import InterweaveMarginal, MarginalInputs
from pymc_gibbsnn.networks.activations import ACTIVATIONS
from tests.helpers import MODES, MOSTLY_PYTHON, slow, slow_but

TABLES = ["relu", "leaky_relu", "abs", "sign", "hard_tanh", "identity"]
FUNCTIONS = ACTIVATIONS | {"zigzag": pmg.PiecewiseLinear([-0.5, 0.5], [1, -1, 2], [0, 0.2, -0.5])}


class Layer:
    """A random layer and the one above it, with variances of rows; the target of a unit with W' integrated out."""

    def __init__(self, function, n=12, d=3, h=3, c=2, seed=0, scale=1.0):
        rng = np.random.default_rng(seed)
        self.function = function
        self.x = np.c_[rng.normal(size=(n, d - 1)), np.ones(n)]
        self.w, self.noise = rng.normal(size=(h, d)), 0.3 * rng.normal(size=(n, h))
        self.z = self.x @ self.w.T + self.noise
        self.post = function(self.z) + 0.3 * rng.normal(size=(n, h))
        self.variances = scale * rng.uniform(0.1, 0.4, size=n)
        self.precision, self.above = rng.uniform(0.5, 2, size=(1, d)), rng.uniform(0.5, 2, size=h + 1)
        self.y = self.design(self.post) @ rng.normal(size=(h + 1, c))
        self.y += np.sqrt(self.variances)[:, None] * rng.normal(size=(n, c))

    @staticmethod
    def design(post):
        return np.c_[post, np.ones(len(post))]

    def covariance(self, post, j):
        """The covariance of a column of Y given the weights that go out of unit j."""
        others = np.delete(self.design(post), j, axis=1)
        return np.diag(self.variances) + (others / np.delete(self.above, j)) @ others.T

    def outgoing(self, post, j, eta):
        """The weights that go out of unit j, drawn with the normal numbers ``eta``."""
        k = np.linalg.inv(self.covariance(post, j))
        p = self.above[j] + post[:, j] @ k @ post[:, j]
        return post[:, j] @ k @ self.y / p + eta / np.sqrt(p)

    def move(self, z, post, w, j):
        """Z and A with other weights of unit j, their noise as it is."""
        z, post, old = z.copy(), post.copy(), z[:, j]
        z[:, j] = self.x @ w[j] + self.noise[:, j]
        post[:, j] += self.function(z[:, j]) - self.function(old)
        return z, post

    def log_target(self, w, post, j, out):
        likelihood = multivariate_normal(cov=self.covariance(post, j)).logpdf((self.y - np.outer(post[:, j], out)).T)
        return likelihood.sum() + norm(0, self.precision**-0.5).logpdf(w).sum()

    def log_proposal(self, w, w_new, z, post, j, out, rho):
        k = np.linalg.inv(self.covariance(post, j))
        design = self.function.derivative(z[:, j])[:, None] * self.x
        q = out @ out * design.T @ k @ design + np.diag(self.precision[0])
        gradient = design.T @ k @ (self.y - np.outer(post[:, j], out)) @ out - self.precision[0] * w[j]
        mean = w[j] + (1 - rho) * np.linalg.solve(q, gradient)
        return multivariate_normal(mean, (1 - rho**2) * np.linalg.inv(q)).logpdf(w_new[j])

    def log_ratio(self, w, w_new, z, post, j, eta, rho):
        z_new, post_new = self.move(z, post, w_new, j)
        out = self.outgoing(post, j, eta)
        there = self.log_target(w_new, post_new, j, out) + self.log_proposal(w_new, w, z_new, post_new, j, out, rho)
        return there - self.log_target(w, post, j, out) - self.log_proposal(w, w_new, z, post, j, out, rho)

    def arguments(self, rho, log_u, xi, eta):
        root = self.variances**-0.5
        b, y = root[:, None] * self.design(self.post), root[:, None] * self.y
        table = self.function.edges, self.function.slopes, self.function.intercepts
        of_layer = self.x, self.w, self.z, root, b, y, self.precision, self.above
        return [np.asarray(x, "float64") for x in MarginalInputs(*of_layer, rho, log_u, xi, eta, *table)]


@cache
def compiled(mode):
    ranks = MarginalInputs(2, 2, 2, 1, 2, 2, 2, 1, 2, 2, 3, 3, 1, 1, 1)
    inputs = [pt.tensor(dtype="float64", shape=(None,) * rank) for rank in ranks]
    return pytensor.function(inputs, InterweaveMarginal()(*inputs), mode=with_our_kernels(compilation_mode(mode)))


ALWAYS, NEVER = -np.inf, np.inf


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
@pytest.mark.parametrize("function", [*TABLES, "zigzag"])
def test_acceptance_is_that_of_the_densities(function, mode):
    """Oracle 11, at random pairs: a uniform number just below the ratio accepts, one just above it does not."""
    move, h = compiled(mode), 3
    for seed in range(6):
        layer, rng, j = Layer(FUNCTIONS[function], seed=seed), np.random.default_rng(seed), seed % h
        rho, xi, eta = rng.uniform(0, 0.9, size=(1, h)), rng.normal(size=(1, h, 3)), rng.normal(size=(1, h, 2))
        only = np.arange(h) == j
        w_new, z_new, accepted = move(*layer.arguments(rho, np.where(only, ALWAYS, NEVER)[None], xi, eta))
        assert accepted.sum() == 1
        np.testing.assert_allclose(z_new, layer.x @ np.asarray(w_new).T + layer.noise, atol=1e-12)
        log_ratio = layer.log_ratio(layer.w, w_new, layer.z, layer.post, j, eta[0, j], rho[0, j])
        for difference, outcome in ((-1e-9, 1), (1e-9, 0)):
            log_u = np.where(only, log_ratio + difference, NEVER)
            *_, accepted = move(*layer.arguments(rho, log_u[None], xi, eta))
            assert accepted[0, j] == outcome, (log_ratio, difference)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA", slow("JAX")])
@pytest.mark.parametrize("first", [0, 1])
def test_a_second_visit_starts_from_the_first(first, mode):
    """What is kept of the layer above is that of the unit's new post-activations, for the same unit and for others."""
    move, h, rng, moved = compiled(mode), 3, np.random.default_rng(5), 0
    for seed in range(20):
        layer = Layer(FUNCTIONS["zigzag"], seed=seed)
        rho, xi, eta = rng.uniform(0, 0.9, size=(2, h)), rng.normal(size=(2, h, 3)), rng.normal(size=(2, h, 2))
        visits = np.arange(h) == np.array([[first], [1]])
        log_u = [np.where(visits, [[ALWAYS], [second]], NEVER) for second in (NEVER, ALWAYS)]
        (w, *_), (w_new, z_new, _) = (move(*layer.arguments(rho, x, xi, eta)) for x in log_u)
        z, post = layer.move(layer.z, layer.post, w, first)
        log_ratio = layer.log_ratio(w, w_new, z, post, 1, eta[1, 1], rho[1, 1])
        for difference, outcome in ((-1e-8, 1), (1e-8, 0)):
            log_u = np.where(visits, [[ALWAYS], [log_ratio + difference]], NEVER)
            *_, accepted = move(*layer.arguments(rho, log_u, xi, eta))
            assert accepted[1, 1] == outcome, (log_ratio, difference)
        moved += (np.sign(z_new) != np.sign(layer.z)).any()
    assert moved > 5


QUICK = {(1, "relu", "NUMBA"), (3, "hard_tanh", "NUMBA"), (1, "sign", "NUMBA"), (1, "relu", "JAX")}


@pytest.mark.parametrize(("c", "function", "mode"), slow_but(QUICK, product([1, 3], TABLES, MODES[1:])))
def test_backends_agree(c, function, mode):
    layer, rng = Layer(ACTIVATIONS[function], n=700, d=4, h=5, c=c), np.random.default_rng(1)
    layer.z[:, 0] += 9  # a unit of which most samples have the last slope
    numbers = [rng.uniform(size=(2, 5)), np.log(rng.uniform(size=(2, 5))), rng.normal(size=(2, 5, 4))]
    arguments = layer.arguments(*numbers, rng.normal(size=(2, 5, c)))
    for found, expected in zip(compiled(mode)(*arguments), compiled(MODES[0])(*arguments), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA", slow("JAX")])
def test_a_linear_layer_is_always_accepted(mode):
    layer, rng = Layer(ACTIVATIONS["identity"]), np.random.default_rng(3)
    numbers = rng.uniform(size=(2, 3)), np.full((2, 3), -1e-9), rng.normal(size=(2, 3, 3)), rng.normal(size=(2, 3, 2))
    *_, accepted = compiled(mode)(*layer.arguments(*numbers))
    assert accepted.all()


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA", slow("JAX")])
def test_small_noise_leaves_the_ratio_its_digits(mode):
    """The log ratio of a linear layer is 0, whatever its noise; both targets are of the size n/ΔZ'."""
    layer, rng = Layer(ACTIVATIONS["identity"], n=2000, scale=1e-7), np.random.default_rng(3)
    numbers = rng.uniform(size=(2, 3)), np.full((2, 3), -1e-4), rng.normal(size=(2, 3, 3)), rng.normal(size=(2, 3, 2))
    *_, accepted = compiled(mode)(*layer.arguments(*numbers))
    assert accepted.all()


def exact(x):
    """The same numbers as fractions."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(x, "float64"))


def eliminated(a, b):
    """The solution of A X = B, and the determinant of A, by elimination of fractions; A is positive definite."""
    a, b, determinant = a.copy(), b.copy(), Fraction(1)
    for k in range(len(a)):
        determinant *= a[k, k]
        b[k], a[k] = b[k] / a[k, k], a[k] / a[k, k]
        for i in range(len(a)):
            if i != k:
                b[i], a[i] = b[i] - a[i, k] * b[k], a[i] - a[i, k] * a[k]
    return b, determinant


def exact_log_ratio(layer, w_new, z_new, j, eta, rho):
    """The log ratio of a move of unit j without rounding, but for the draw of the weights that go out of it."""
    root, x = exact(layer.variances**-0.5), exact(layer.x)
    b, y = root[:, None] * exact(layer.design(layer.post)), root[:, None] * exact(layer.y)
    others, post = np.delete(b, j, axis=1), b[:, j]
    gram = others.T @ others + np.diag(exact(np.delete(layer.above, j)))

    def less_fit(columns):
        return columns - others @ eliminated(gram, others.T @ columns)[0]

    p = Fraction(layer.above[j]) + post @ less_fit(post[:, None])[:, 0]
    out = exact((post @ less_fit(y) / p).astype(float) + eta / float(p) ** 0.5)
    change = root * (exact(layer.function(z_new[:, j])) - exact(layer.function(layer.z[:, j])))
    step, precision = exact(w_new[j]) - exact(layer.w[j]), exact(layer.precision[0])

    def log_densities(w, z, post, step):
        """The target, and the proposal of a step from there."""
        w, rest = exact(w[j]), y - np.outer(post, out)
        target = -((rest * less_fit(rest)).sum() + (precision * w**2).sum()) / 2
        design = (root * exact(layer.function.derivative(z[:, j])))[:, None] * x
        q = (out @ out) * (design.T @ less_fit(design)) + np.diag(precision)
        drift, determinant = eliminated(q, (design.T @ less_fit(rest @ out[:, None])[:, 0] - precision * w)[:, None])
        error = step - (1 - Fraction(rho)) * drift[:, 0]
        return target, math.log(determinant) / 2 - float(error @ q @ error) / (2 * (1 - rho**2))

    here, there = log_densities(layer.w, layer.z, post, step), log_densities(w_new, z_new, post + change, -step)
    return float(there[0] - here[0]) + there[1] - here[1]


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA", slow("JAX")])
def test_units_that_nearly_do_the_same_leave_the_ratio_its_digits(mode):
    """Outputs are a thousand times as large as what tells units apart, and 1e5 times as large as the noise above."""
    move, n, h, j = compiled(mode), 20, 4, 1
    for seed in range(3):
        layer, rng = Layer(ACTIVATIONS["relu"], n=n, h=h, c=1, seed=seed, scale=1e-4), np.random.default_rng(seed)
        layer.x[:, 0], layer.precision[0, 0] = np.arange(n) % 2, 1e-6  # units are large in one half of the rows
        layer.w += np.column_stack([rng.uniform(1000, 2000, size=h), np.zeros(h), np.full(h, -500)])
        layer.z = layer.x @ layer.w.T + layer.noise
        layer.post = layer.function(layer.z) + 0.01 * rng.normal(size=(n, h))
        layer.y = layer.design(layer.post) @ rng.normal(size=(h + 1, 1)) / 1000
        layer.y += np.sqrt(layer.variances)[:, None] * rng.normal(size=(n, 1))
        rho, xi, eta = rng.uniform(0, 0.9, size=(1, h)), rng.normal(size=(1, h, 3)), rng.normal(size=(1, h, 1))
        only = np.arange(h) == j
        w_new, z_new, accepted = move(*layer.arguments(rho, np.where(only, ALWAYS, NEVER)[None], xi, eta))
        assert accepted.sum() == 1
        log_ratio = exact_log_ratio(layer, w_new, z_new, j, eta[0, j], rho[0, j])
        for difference, outcome in ((-1e-3, 1), (1e-3, 0)):
            log_u = np.where(only, log_ratio + difference, NEVER)
            *_, accepted = move(*layer.arguments(rho, log_u[None], xi, eta))
            assert accepted[0, j] == outcome, (log_ratio, difference)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA", slow("JAX")])
def test_units_that_are_lost_to_rounding_stay(mode):
    """What the other units leave of a unit's output is far below its rounding error, and may be 0 or less."""
    numbers = np.full((1, 3), 0.5), np.full((1, 3), -0.1), np.ones((1, 3, 3)), np.ones((1, 3, 1))
    for seed in range(20):
        layer = Layer(ACTIVATIONS["relu"], n=30, c=1, seed=seed, scale=1e-2)
        layer.post[:] = layer.post[:, :1] * [1e8, 1.5e8, 2e8]
        layer.above[:] = 1e-3
        w, z, accepted = compiled(mode)(*layer.arguments(*numbers))
        assert np.isfinite(w).all()
        assert np.isfinite(z).all()
        np.testing.assert_array_equal(w[accepted[0] == 0], layer.w[accepted[0] == 0])


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA", slow("JAX")])
def test_units_without_a_factor_stay(mode):
    """With a weight of precision 0 that the data do not determine, Q is singular."""
    layer = Layer(ACTIVATIONS["relu"])
    layer.x[:, 0] = layer.precision[:, 0] = 0
    w, z, accepted = compiled(mode)(
        *layer.arguments(np.full((1, 3), 0.5), np.full((1, 3), ALWAYS), np.ones((1, 3, 3)), np.ones((1, 3, 2)))
    )
    assert not accepted.any()
    np.testing.assert_array_equal(w, layer.w)
    np.testing.assert_array_equal(z, layer.z)


@pytest.mark.parametrize(
    ("inputs", "hidden", "interweave", "moving"),
    [(3, [40, 3], "auto", ["W1", "W2"]), (3, [70, 3], "auto", ["W1"]), (30, 3, "auto", []), (3, 3, "langevin", [])],
)
def test_narrow_layers_make_the_move(inputs, hidden, interweave, moving):
    x = np.random.default_rng(0).normal(size=(10, inputs))
    model = pmg.mlp(x, x[:, 0], hidden, noise=0.3, prior=None)
    step = pmg.GibbsNN(model=model, interweave=interweave, compile_kwargs={"mode": "AS_WRITTEN"})
    found = {name for name in step.transition.stats if name.startswith("marginal")}
    assert found == {f"marginal_acceptance_{w}" for w in moving}

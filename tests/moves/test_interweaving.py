"""The interweaving moves against densities written down by brute force."""

from functools import cache
from itertools import product
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.type import random_generator_type
from scipy.stats import multivariate_normal, norm

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.moves.interweave_langevin import langevin_step
from pymc_gibbsnn.moves.interweave_pieces import Interweave
from pymc_gibbsnn.moves.weights import Spectrum, spectrum
from pymc_gibbsnn.networks.activations import ACTIVATIONS
from tests.helpers import MODES, MOSTLY_PYTHON, compile_draw, dense, slow, slow_but, value

TABLES = ["relu", "leaky_relu", "abs", "sign", "hard_tanh", "identity"]
FUNCTIONS = ACTIVATIONS | {
    "zigzag": pmg.PiecewiseLinear([-0.5, 0.5], [1, -1, 2], [0, 0.2, -0.5]),
    "jump": pmg.PiecewiseLinear([0.0], [1, 1], [0, 0.5]),
}


class Layer:
    """A random layer, what lies above it, and the target of its weights with the noise of Z fixed."""

    def __init__(self, function, n=12, d=3, h=2, c=2, seed=0):
        rng = np.random.default_rng(seed)
        self.function = function
        self.x = np.c_[rng.normal(size=(n, d - 1)), np.ones(n)]
        self.w, self.v = rng.normal(size=(h, d)), rng.normal(size=(c, h))
        self.noise = 0.3 * rng.normal(size=(n, h))
        self.z = self.x @ self.w.T + self.noise
        self.y = function(self.z) @ self.v.T + 0.3 * rng.normal(size=(n, c))
        self.precision = rng.uniform(0.5, 2, size=(1, d))
        self.covariance = 0.2 * np.eye(c) + 0.1 * self.v @ self.v.T
        self.g = np.linalg.solve(self.covariance, self.v)

    def log_target(self, w):
        z = self.x @ w.T + self.noise
        likelihood = multivariate_normal(cov=self.covariance).logpdf(self.y - self.function(z) @ self.v.T).sum()
        return likelihood + norm(0, self.precision**-0.5).logpdf(w).sum()

    def pull(self, w):
        z = self.x @ w.T + self.noise
        return z, (self.y - self.function(z) @ self.v.T) @ self.g

    def gaussian_on_pieces(self, w, j):
        """Mean and covariance of unit j's weights on the pieces that hold Z at w."""
        z, pull = self.pull(w)
        a = self.function.derivative(z[:, j])
        kappa = self.v[:, j] @ self.g[:, j]
        q = kappa * (self.x * (a**2)[:, None]).T @ self.x + np.diag(self.precision[0])
        gradient = self.x.T @ (a * pull[:, j]) - self.precision[0] * w[j]
        return w[j] + np.linalg.solve(q, gradient), np.linalg.inv(q)

    def log_proposal(self, w, w_new, j, rho):
        mean, covariance = self.gaussian_on_pieces(w, j)
        return multivariate_normal(mean + rho * (w[j] - mean), (1 - rho**2) * covariance).logpdf(w_new[j])

    def arguments(self, rho, log_u, xi, kept=None):
        table = self.function.edges, self.function.slopes, self.function.intercepts
        (n, d), h = self.x.shape, len(self.w)
        gram, squares = kept or (np.zeros((h, d, d)), np.zeros((h, n)))
        arrays = self.x, self.w, self.z, self.y, self.v, self.g, self.precision, rho, log_u, xi, gram, squares, *table
        return [np.asarray(array, "float64") for array in arrays]


@cache
def compiled(mode, dtype="float64"):
    ranks = [2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 2, 1, 1, 1]
    dtypes = [dtype] * 10 + ["float64"] + [dtype] * 4
    inputs = [pt.tensor(dtype=dtype, shape=(None,) * rank) for dtype, rank in zip(dtypes, ranks, strict=True)]
    return pytensor.function(inputs, Interweave()(*inputs), mode=with_our_kernels(compilation_mode(mode)))


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
@pytest.mark.parametrize("function", [*TABLES, "zigzag", "jump"])
def test_acceptance_on_pieces_is_that_of_the_densities(function, mode):
    """Oracle 11, at random pairs: a uniform number just below the ratio accepts, one just above it does not."""
    move, h = compiled(mode), 2
    for seed in range(6):
        layer = Layer(FUNCTIONS[function], seed=seed)
        rng = np.random.default_rng(seed)
        rho, xi = rng.uniform(0, 0.9, size=(1, h)), rng.normal(size=(1, h, 3))
        j = seed % h
        others = np.full(h, np.inf)  # never accepted
        forced = np.where(np.arange(h) == j, -np.inf, others)
        w_new, z_new, _, _, accepted = move(*layer.arguments(rho, forced[None], xi))
        assert accepted.sum() == 1
        np.testing.assert_allclose(z_new, layer.x @ np.asarray(w_new).T + layer.noise, atol=1e-12)
        log_ratio = (
            layer.log_target(w_new)
            - layer.log_target(layer.w)
            + layer.log_proposal(w_new, layer.w, j, rho[0, j])
            - layer.log_proposal(layer.w, w_new, j, rho[0, j])
        )
        for difference, outcome in ((-1e-9, 1), (1e-9, 0)):
            log_u = np.where(np.arange(h) == j, log_ratio + difference, others)
            *_, accepted = move(*layer.arguments(rho, log_u[None], xi))
            assert accepted[0, j] == outcome, (log_ratio, difference)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA", slow("JAX")])
def test_a_second_move_starts_from_the_first(mode):
    """What is kept of a unit (residual, pieces, Gram matrix, factor) is that of its new weights."""
    move, h = compiled(mode), 2
    rng, moved = np.random.default_rng(5), 0
    for seed in range(20):
        layer = Layer(FUNCTIONS["zigzag"], seed=seed)
        rho, xi = rng.uniform(0, 0.9, size=(2, h)), rng.normal(size=(2, h, 3))
        always, never = -np.inf, np.inf
        first, *_ = move(*layer.arguments(rho, np.array([[always, never], [never, never]]), xi))
        second, z, *_ = move(*layer.arguments(rho, np.array([[always, never], [always, never]]), xi))
        log_ratio = layer.log_target(second) - layer.log_target(first)
        log_ratio += layer.log_proposal(second, first, 0, rho[1, 0]) - layer.log_proposal(first, second, 0, rho[1, 0])
        for difference, outcome in ((-1e-8, 1), (1e-8, 0)):
            log_u = np.array([[always, never], [log_ratio + difference, never]])
            *_, accepted = move(*layer.arguments(rho, log_u, xi))
            assert accepted[1, 0] == outcome, (log_ratio, difference)
        moved += (np.sign(z[:, 0]) != np.sign(layer.z[:, 0])).any()
    assert moved > 5


QUICK = {(1, "relu", "NUMBA"), (3, "hard_tanh", "NUMBA"), (1, "relu", "JAX")}


@pytest.mark.parametrize(("c", "function", "mode"), slow_but(QUICK, product([1, 3], TABLES, MODES[1:])))
def test_backends_agree_on_pieces(c, function, mode):
    layer = Layer(ACTIVATIONS[function], n=40, d=4, h=3, c=c)
    rng = np.random.default_rng(1)
    arguments = layer.arguments(rng.uniform(size=(2, 3)), np.log(rng.uniform(size=(2, 3))), rng.normal(size=(2, 3, 4)))
    for found, expected in zip(compiled(mode)(*arguments), compiled(MODES[0])(*arguments), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
def test_pieces_in_single_precision(mode):
    layer = Layer(ACTIVATIONS["relu"], n=40, d=4, h=3, c=2)
    rng = np.random.default_rng(1)
    arguments = layer.arguments(rng.uniform(size=(2, 3)), np.log(rng.uniform(size=(2, 3))), rng.normal(size=(2, 3, 4)))
    single = [x.astype("float64" if k == 10 else "float32") for k, x in enumerate(arguments)]
    for found, expected in zip(compiled(mode, "float32")(*single), compiled(MODES[0])(*arguments), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", ["NUMBA", slow("JAX")])
def test_kept_gram_matrices_are_those_of_the_pieces(mode):
    layer = Layer(ACTIVATIONS["relu"], n=60, d=4, h=3)
    rng, kept = np.random.default_rng(2), None
    moved = 0
    for _ in range(30):
        numbers = rng.uniform(size=(2, 3)), np.log(rng.uniform(size=(2, 3))), rng.normal(size=(2, 3, 4))
        layer.w, layer.z, *kept, accepted = compiled(mode)(*layer.arguments(*numbers, kept))
        moved += accepted.sum()
        gram, squares = kept
        np.testing.assert_array_equal(squares.T, layer.function.derivative(layer.z) ** 2)
        np.testing.assert_allclose(gram, np.einsum("jn,nk,nl->jkl", squares, layer.x, layer.x), atol=1e-12)
    assert moved > 90


ALWAYS = np.full((1, 2), 0.5), np.full((1, 2), -np.inf), np.ones((1, 2, 3))  # ρ, log u and ξ of proposals that win


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA", slow("JAX")])
def test_units_without_a_factor_stay(mode):
    """With a weight of precision 0 that the data do not determine, Q is singular."""
    layer = Layer(ACTIVATIONS["relu"])
    layer.x[:, 0] = layer.precision[:, 0] = 0
    w, z, *_, accepted = compiled(mode)(*layer.arguments(*ALWAYS))
    assert not accepted.any()
    np.testing.assert_array_equal(w, layer.w)
    np.testing.assert_array_equal(z, layer.z)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA", slow("JAX")])
def test_no_proposal_without_a_factor_is_accepted(mode):
    """Where all pieces are flat, a weight of precision 0 leaves Q singular."""
    layer = Layer(ACTIVATIONS["relu"], h=1)
    layer.precision[:, 0] = 0
    down, numbers = -1e3 * np.eye(3)[2], (np.zeros((1, 1)), np.full((1, 1), -np.inf))
    factor = np.linalg.cholesky(np.linalg.inv(layer.gaussian_on_pieces(layer.w, 0)[1]))
    for step, moves in ((0 * down, True), (down, False)):
        *_, accepted = compiled(mode)(*layer.arguments(*numbers, (factor.T @ step)[None, None]))
        assert accepted.all() == moves


def test_gram_matrices_that_rounding_has_spoilt_are_formed_anew():
    layer = Layer(ACTIVATIONS["relu"])
    spoilt = -np.ones((2, 3, 3)), (layer.function.derivative(layer.z) ** 2).T
    outputs = [compiled("NUMBA")(*layer.arguments(*ALWAYS, kept)) for kept in (spoilt, None)]
    for found, expected in zip(*outputs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA", slow("JAX")])
def test_a_linear_layer_is_always_accepted(mode):
    layer = Layer(ACTIVATIONS["identity"])
    rng = np.random.default_rng(3)
    numbers = rng.uniform(size=(2, 2)), np.full((2, 2), -1e-9), rng.normal(size=(2, 2, 3))
    *_, accepted = compiled(mode)(*layer.arguments(*numbers))
    assert accepted.all()


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize(
    ("mode", "function"), [*((MODES[0], name) for name in TABLES), *(slow(mode, "relu") for mode in MODES[1:])]
)
def test_acceptance_of_langevin_is_that_of_the_densities(mode, function, thin):
    """Oracle 11, with a preconditioner built from the identity matrix, move by move."""
    function = ACTIVATIONS[function]
    layer = Layer(function, n=4 if thin else 12, d=6 if thin else 3)
    d = layer.x.shape[1]
    h, log_step = len(layer.w), np.log(0.3)
    arrays = {name: pt.constant(getattr(layer, name)) for name in "wzyv"}
    x, operator = pt.constant(layer.x[:, :-1]), dense((h, d - 1), True, layer.precision)
    known = {name: getattr(operator, name) for name in ("precision", "moments", "forward")} | {"size": (h, d)}
    parts = {
        "layer": SimpleNamespace(operator=SimpleNamespace(**known)),
        "activation": SimpleNamespace(function=function),
    }
    site = SimpleNamespace(a=x, gain=pt.constant(layer.g), **arrays, **parts)
    basis = Spectrum(*(pt.constant(value(a)) for a in spectrum(operator, x, x.shape[0], operator.precision, thin)))

    def build(rng):
        return langevin_step(rng, site, basis, pt.constant(log_step))

    # C, the covariance of the Gaussian approximation: the inverse of a sum of Kronecker products
    points = norm.ppf((np.arange(1000) + 0.5) / 1000)
    cross = np.mean(points * function(points)) ** 2
    own = max(cross, np.mean(function.derivative(points) ** 2))
    curvature = layer.v.T @ layer.g * np.where(np.eye(h), own, cross)
    covariance = np.linalg.inv(
        np.kron(curvature, layer.x.T @ layer.x) + np.kron(np.eye(h), np.diag(layer.precision[0]))
    )

    def proposal(w):
        z, pull = layer.pull(w)
        gradient = (function.derivative(z) * pull).T @ layer.x - layer.precision * w
        mean = w.ravel() + 0.3 * covariance @ gradient.ravel()
        return multivariate_normal(mean, (1 - 0.7**2) * covariance)

    draw, accepted = compile_draw(build, mode), 0
    for _ in range(30):
        w_new, z_new, acceptance = draw()
        if (w_new != layer.w).any():
            accepted += 1
            np.testing.assert_allclose(z_new - layer.x @ w_new.T, layer.noise, atol=1e-12)
            log_ratio = (
                layer.log_target(w_new)
                - layer.log_target(layer.w)
                + proposal(w_new).logpdf(layer.w.ravel())
                - proposal(layer.w).logpdf(w_new.ravel())
            )
            np.testing.assert_allclose(acceptance, np.exp(min(log_ratio, 0)), rtol=1e-8)
    assert accepted > 2


def model():
    x = np.random.default_rng(0).normal(size=(30, 3))
    return pmg.mlp(x, np.maximum(x[:, 0], 0), [4, 2], noise=0.3, prior=None)


def test_step_sizes_change_only_while_tuning():
    step = pmg.GibbsNN(model=model(), interweave="langevin", scale_move=False, compile_kwargs={"mode": "AS_WRITTEN"})
    assert step.default_tune_steps > 0
    point = step.model.initial_point()
    sizes = []
    for k in range(30):
        if k == 20:
            step.stop_tuning()
        point, [stats] = step.step(point)
        assert 0 <= stats["acceptance_W1"] <= 1
        sizes.append([float(step.carry[f"log_step_W{l}"]) for l in (1, 2)])
    sizes = np.array(sizes)
    assert (np.diff(sizes[:20], axis=0) != 0).any(axis=0).all()
    assert (sizes[19:] == sizes[19]).all()
    assert (sizes <= 0).all()


@pytest.mark.slow
def test_tuning_reaches_its_target():
    idata = sample(interweave="langevin", tune=600, draws=600)
    for l in (1, 2):
        assert 0.4 < idata["sample_stats"][f"acceptance_W{l}"].values.mean() < 0.75


def test_auto_takes_pieces_for_narrow_layers_and_needs_no_tuning():
    step = pmg.GibbsNN(model=model(), anneal=None, compile_kwargs={"mode": "AS_WRITTEN"})
    assert "unit_gram_W1" in step.carry
    assert step.default_tune_steps == 0


def test_auto_takes_langevin_for_wide_layers_and_for_steps():
    x = np.random.default_rng(0).normal(size=(20, 200))
    for wide in (
        pmg.mlp(x, x[:, 0], 2, noise=1, prior=None),
        pmg.mlp(x[:, :2], x[:, 0], 2, noise=1, activation="sign", prior=None),
    ):
        assert "log_step_W1" in pmg.GibbsNN(model=wide, compile_kwargs={"mode": "AS_WRITTEN"}).carry


@pytest.mark.parametrize("activation", ["relu", "sign"])
def test_langevin_with_a_scale_that_is_sampled(activation):
    x = np.random.default_rng(0).normal(size=(12, 2))
    with pm.Model() as hierarchical:
        s = pm.HalfNormal("s", 1)
        W1 = pm.Normal("W1", 0, s, shape=(3, 2))
        Z2 = pm.Normal("Z2", x @ W1.T, 0.5)
        A2 = pm.Normal("A2", ACTIVATIONS[activation](Z2), 0.5)
        pm.Normal("y", A2 @ pm.Normal("W2", 0, 1, shape=3), 0.5, observed=x[:, 0])
    vars_ = [v for v in hierarchical.free_RVs if v.name != "s"]
    step = pmg.GibbsNN(vars_, model=hierarchical, interweave="langevin", compile_kwargs={"mode": "AS_WRITTEN"})
    _, [stats] = step.step(hierarchical.initial_point())
    assert np.isfinite(stats["lp"])


@pytest.mark.parametrize("mode", ["AS_WRITTEN", slow("NUMBA")])
def test_langevin_in_single_precision(mode):
    with pytensor.config.change_flags(floatX="float32"):
        x = np.random.default_rng(0).normal(size=(30, 3)).astype("float32")
        single = pmg.mlp(x, x[:, 0], 4, noise=0.3, prior=None)
        step = pmg.GibbsNN(model=single, interweave="langevin", sweeps_per_draw=2, compile_kwargs={"mode": mode})
        state = {v: v for v in step.vars}
        _, new, _, _ = step.transition.step(
            random_generator_type(), state, {k: v.type() for k, v in step.transition.carry.items()}, pt.scalar()
        )
        assert {v.dtype for v in new.values()} == {"float32"}
        point, _ = step.step(single.initial_point())
        assert all(np.isfinite(x).all() for x in point.values())


def test_a_step_that_is_used_again_tunes_again():
    step = pmg.GibbsNN(model=model(), interweave="langevin", compile_kwargs={"mode": "AS_WRITTEN"})
    step.stop_tuning()
    step.set_rng(1)
    assert step.tune
    step.setup_chain(1, tune=0, draws=10)
    assert not step.tune


def test_an_unknown_move_is_refused():
    with pytest.raises(ValueError, match=r"interweave must be .* found 'fast'"):
        pmg.GibbsNN(model=model(), interweave="fast")


def sample(interweave, tune, draws):
    with model():
        step = pmg.GibbsNN(interweave=interweave)
        return pm.sample(
            draws, tune=tune, step=step, chains=1, random_seed=1, progressbar=False, compute_convergence_checks=False
        )

"""Both moves of a unit's scale against densities written down by brute force."""

from functools import cache
from itertools import product

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import multivariate_normal, norm

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.jax_backend import register_jax, xla_options
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.moves.centred_scale import scale_conditional
from pymc_gibbsnn.moves.noncentred_scale import NoncentredScale
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.activations import ACTIVATIONS
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import MODES, random_point, slow, slow_but, value

HOMOGENEOUS = ["relu", "leaky_relu", "abs", "identity"]
NETWORKS = {
    "one layer": {"hidden": 3},
    "no bias": {"hidden": [2, 3], "bias": False},
    "leaky": {"hidden": 2, "activation": "leaky_relu"},
    "abs": {"hidden": 2, "activation": "abs"},
    "sign": {"hidden": [2, 2], "activation": "sign"},
    "zero everywhere": {"hidden": 2, "activation": lambda z: pt.clip(z, 0.0, 0.0)},
    "more outputs than units": {"hidden": 2},
}

# Oracle 6: differences of the joint density


@pytest.mark.parametrize("name", NETWORKS)
def test_the_scale_distribution_is_the_joint_density_along_the_orbit(name):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 2)), rng.normal(size=(5, 4 if name.startswith("more") else 2))
    model = pmg.mlp(x, y, **({"noise": 0.5, "prior": None} | NETWORKS[name]))
    network = read_network(model)
    point = random_point(model, 1)
    values = {v: pt.constant(point[v.name]) for v in network.variables}
    site = NetworkState.begin(network.at, values, pt.constant(0.0)).site(0)
    p, q1, q2 = (value(x) for x in scale_conditional(site))
    function, w_below, w_above = site.activation.function, value(site.w), value(site.w_above)
    logp = model.compile_logp(mode="AS_WRITTEN")
    c = np.exp(rng.normal(size=len(q1)) / 3)
    moved = dict(point)
    moved["W1"] = point["W1"] * c[:, None]
    if site.layer.operator.has_bias:
        moved["b1"] = point["b1"] * c
    moved["Z2"] = point["Z2"] * c
    jacobian = p * np.log(c).sum()
    if function.is_homogeneous:
        moved["A2"], moved["W2"] = point["A2"] * c, point["W2"] / c
        powers = w_below.shape[1] + 2 * len(x) - len(w_above)
    else:
        powers = w_below.shape[1] + len(x)
    assert p == powers
    expected = jacobian - (q1 * (c**2 - 1)).sum() / 2 - (q2 * (c**-2 - 1)).sum() / 2
    np.testing.assert_allclose(logp(moved) - logp(point) + jacobian, expected, rtol=1e-8)


class Layer:
    """A random layer and the distribution of its weights and those above it, with the noise of Z fixed."""

    def __init__(self, function, c=2, n=12, d=3, h=3, seed=0):
        rng = np.random.default_rng(seed)
        self.function, self.rng = function, rng
        self.x = np.c_[rng.normal(size=(n, d - 1)), np.ones(n)]
        self.w, self.v = rng.normal(size=(h, d)), rng.normal(size=(c, h))
        self.noise = 0.3 * rng.normal(size=(n, h))
        self.y = function(self.x @ self.w.T + self.noise) @ self.v.T + 0.5 * rng.normal(size=(n, c))
        self.precision, self.precision_above = rng.uniform(0.5, 2, size=(1, d)), rng.uniform(0.5, 2, size=(1, h))

    def covariance(self, v):
        return 0.2 * np.eye(len(v)) + 0.1 * v @ v.T

    def log_density(self, u):
        """With every unit j moved by u_j, in the measure of the orbit."""
        w, v = self.w * np.exp(u)[:, None], self.v * np.exp(-u)
        residual = self.y - self.function(self.x @ w.T + self.noise) @ v.T
        likelihood = multivariate_normal(cov=self.covariance(v)).logpdf(residual).sum()
        prior = norm(0, self.precision**-0.5).logpdf(w).sum() + norm(0, self.precision_above**-0.5).logpdf(v).sum()
        return likelihood + prior + (w.shape[1] - v.shape[0]) * u.sum()

    def arguments(self, log_u, points, dtype="float64"):
        m, (left, right) = self.x @ self.w.T, self.function.slopes[[0, -1]]
        arrays = (
            m, m + self.noise, self.y, self.v, np.linalg.solve(self.covariance(self.v), self.v),
            (self.precision * self.w**2).sum(1), (self.precision_above * self.v**2).sum(0),
            0.1, self.x.shape[1] - len(self.v), log_u, points, [(right + left) / 2, (right - left) / 2],
        )  # fmt: skip
        return [np.asarray(array, dtype) for array in arrays]


@cache
def compiled(mode, dtype="float64"):
    ranks = [2, 2, 2, 2, 2, 1, 1, 0, 0, 1, 2, 1]
    inputs = [pt.tensor(dtype=dtype, shape=(None,) * rank) for rank in ranks]
    return pytensor.function(inputs, NoncentredScale()(*inputs), mode=with_our_kernels(compilation_mode(mode)))


QUICK = {*product([1, 2, 4], HOMOGENEOUS, ["AS_WRITTEN"]), (4, "abs", "NUMBA")}


@pytest.mark.parametrize(("c", "function", "mode"), slow_but(QUICK, product([1, 2, 4], HOMOGENEOUS, MODES)))
def test_the_slice_is_that_of_the_density(c, function, mode):
    """A height just below the ratio of densities takes the point, one just above it does not, whatever moved before."""
    for seed, n in enumerate((12, 12, 12, 12, 1100)):
        layer = Layer(ACTIVATIONS[function], c, n=n, seed=seed)
        u = layer.rng.uniform(-0.5, 0.5, size=3)
        points = np.c_[np.full(3, 0.5), u + 0.5]
        moves = layer.rng.permutation([True, True, False])  # of the units before
        for j in range(3):
            before = np.where(moves & (np.arange(3) < j), u, 0)
            after = np.where(np.arange(3) == j, u, before)
            ratio = layer.log_density(after) - layer.log_density(before)
            for difference, expected in ((-1e-9, u[j]), (1e-9, 0)):
                log_u = np.where(moves & (np.arange(3) < j), -np.inf, np.inf)
                log_u[j] = ratio + difference
                found = compiled(mode)(*layer.arguments(log_u, points))
                np.testing.assert_allclose(found[j], expected, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_the_interval_shrinks_towards_the_present_scale(mode):
    layer = Layer(ACTIVATIONS["relu"], h=1)
    points = np.array([[0.25, 0.9, 0.1, 0.5, 0.5]])
    # -0.25 .. 0.75: first 0.65, then of -0.25 .. 0.65 -0.16, then of -0.16 .. 0.65 0.245, at last the middle
    third = -0.16 + 0.5 * 0.81
    tried = [0.65, -0.16, third, -0.16 + 0.5 * (third + 0.16)]
    ratios = [layer.log_density(np.array([u])) - layer.log_density(np.zeros(1)) for u in tried]
    for height in [*(ratio + shift for ratio in ratios for shift in (-1e-9, 1e-9)), np.inf]:
        expected = next((u for u, ratio in zip(tried, ratios, strict=True) if height < ratio), 0.0)
        found = compiled(mode)(*layer.arguments([height], points))
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", slow("NUMBA"), "JAX"])
def test_single_precision(mode):
    layer = Layer(ACTIVATIONS["relu"], n=40)
    log_u, points = np.log(layer.rng.uniform(size=3)), layer.rng.uniform(size=(3, 34))
    found = compiled(mode, "float32")(*layer.arguments(log_u, points, "float32"))
    expected = compiled(MODES[0])(*layer.arguments(log_u, points))
    assert np.asarray(found).dtype == "float32"
    assert (expected != 0).all()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_thousands_of_chains_in_jax():
    """Left alone, XLA gets the scales of most of so many chains wrong."""
    import jax

    rng, (chains, n, h, c) = np.random.default_rng(0), (4096, 8, 2, 1)
    z, v = rng.normal(size=(chains, n, h)), rng.normal(size=(chains, c, h))
    m, y, g = (
        z + 0.1 * rng.normal(size=z.shape),
        rng.normal(size=(chains, n, c)),
        v / (0.1 + 0.1 * (v**2).sum(-1, keepdims=True)),
    )
    incoming, outgoing = rng.chisquare(3, size=(2, chains, h))
    log_u, points = np.log(rng.uniform(size=(chains, h))), rng.uniform(size=(chains, h, 33))
    inputs = [m, z, y, v, g, incoming, outgoing, np.array(0.1), np.array(2.0), log_u, points, np.array([0.5, 0.5])]
    shared = (7, 8, 11)
    register_jax()
    node = NoncentredScale().make_node(*(x if i in shared else x[0] for i, x in enumerate(inputs)))
    from pytensor.link.jax.dispatch import jax_funcify

    with jax.enable_x64(True):
        axes = [None if i in shared else 0 for i in range(len(inputs))]
        move = jax.vmap(jax_funcify(node.op, node=node), in_axes=axes)
        found = jax.jit(move, compiler_options=xla_options("cpu"))(*inputs)
    for chain in range(0, chains, 64):
        expected = [[None]]
        node.op.perform(node, [x if i in shared else x[chain] for i, x in enumerate(inputs)], expected)
        np.testing.assert_allclose(found[chain], expected[0][0], rtol=1e-6, atol=1e-9)

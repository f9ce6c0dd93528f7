"""Activations without linear pieces."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats

import pymc_gibbsnn as pmg
from pymc_gibbsnn.moves.preactivations import draw_preactivations
from pymc_gibbsnn.networks.named_activations import SMOOTH
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.networks.smooth import Smooth
from pymc_gibbsnn.random.smooth_normal import CoupledSmoothNormalRV
from tests.helpers import MOSTLY_PYTHON, compile_draw, draw_rv, slow_but
from tests.samplers.test_gibbs import FAST, check_geweke, network

FUNCTIONS = {name: Smooth(apply) for name, apply in SMOOTH.items()}


def elu(z):
    return pt.switch(z > 0, z, pt.exp(pt.minimum(z, 0)) - 1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_table_is_close_to_its_activation(name):
    z = np.linspace(-15, 15, 1001)
    assert np.abs(FUNCTIONS[name].table(z) - FUNCTIONS[name](z)).max() < 0.01
    slopes = (FUNCTIONS[name](z + 1e-6) - FUNCTIONS[name](z - 1e-6)) / 2e-6
    np.testing.assert_allclose(FUNCTIONS[name].derivative(z), slopes, atol=1e-8)


def conditional_cdf(function, m, v, t, kappa):
    """Distribution function of one element, by quadrature."""

    def density(z):
        s = function(np.array([z]))[0]
        return np.exp(-((z - m) ** 2) / (2 * v) + t * s - kappa * s**2 / 2 - shift)

    grid = np.linspace(m - 12 * v**0.5, m + 12 * v**0.5, 4001)
    s = function(grid)
    shift = (-((grid - m) ** 2) / (2 * v) + t * s - kappa * s**2 / 2).max()
    cumulative = integrate.cumulative_simpson([density(z) for z in grid], x=grid, initial=0)
    return lambda z: np.interp(z, grid, cumulative / cumulative[-1])


# Oracle 4: (activation, prior mean, prior variance, y, weight, noise above)
# A wave has no table worth the name: all depends on the correction.
WAVE = Smooth(lambda z: pt.sin(2 * z))
CASES = [
    ("tanh", 0.3, 1.0, 0.8, 1.5, 0.3),
    ("gelu", -1.0, 0.5, 0.4, -2.0, 0.01),
    ("softplus", 4.0, 2.0, -1.0, 1.0, 1.0),
    ("wave", 0.3, 1.0, 0.8, 1.5, 0.3),
]


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
@pytest.mark.parametrize("case", CASES)
def test_the_coupled_draw_against_quadrature(case, mode):
    """Rows are chains of their own, of one unit."""
    name, m, v, y, w, noise = case
    function, n = FUNCTIONS.get(name, WAVE), 20_000
    table = (function.table.edges, function.table.slopes, function.table.intercepts)
    op = CoupledSmoothNormalRV(function)
    z = np.full((n, 1), m)
    for seed in range(6 if name in FUNCTIONS else 40):
        parameters = z, np.full((n, 1), m), v, np.full((n, 1), y), [[w]], [[w / noise]]
        z = draw_rv(op, (*parameters, *table), mode, seed)
    assert (np.diff(np.sort(z[:, 0])) > 0).mean() > 0.9  # nearly all have moved
    assert stats.kstest(z[:, 0], conditional_cdf(function, m, v, y * w / noise, w**2 / noise)).pvalue > 1e-3


def test_the_plain_draw_against_quadrature():
    m, v, a, noise, n = 0.2, 0.8, 0.5, 0.3, 20_000
    column = pt.constant(np.full((n, 1), m))

    def build(rng):
        z = column
        for _ in range(20):
            rng, z = draw_preactivations(rng, z, column, pt.full((n, 1), a), pt.constant(v), pt.constant(noise), WAVE)
        return rng, z

    z = compile_draw(build)()
    assert stats.kstest(z[:, 0], conditional_cdf(WAVE, m, v, a / noise, 1 / noise)).pvalue > 1e-3


@pytest.mark.parametrize("activation", slow_but({"gelu"}, [*SMOOTH, elu]))
def test_lp_is_the_log_density_of_the_model(activation):
    model = network(hidden=[3, 2], activation=activation)
    assert all(isinstance(a.function, Smooth) for a in read_network(model).activations)
    point, [stats_] = pmg.GibbsNN(model=model, rng=1, **FAST).step(model.initial_point())
    np.testing.assert_allclose(stats_["lp"], model.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-9)


@pytest.mark.parametrize(
    ("activation", "kwargs", "mode"),
    [
        pytest.param("tanh", {}, "NUMBA", marks=pytest.mark.slow),
        pytest.param("gelu", {"collapse": False, "interweave": False}, "NUMBA", marks=pytest.mark.slow),
        pytest.param("sigmoid", {}, "NUMBA", marks=pytest.mark.slow),
        pytest.param("softplus", {}, "JAX", marks=pytest.mark.slow),
        pytest.param(elu, {}, "NUMBA", marks=pytest.mark.slow),
    ],
)
def test_geweke(activation, kwargs, mode):
    model = network(hidden=2, noise=1.0, activation=activation)
    check_geweke(model, 12_000, compile_kwargs={"mode": mode}, **kwargs)


@pytest.mark.slow
def test_the_jax_driver_takes_smooth_activations():
    with network(hidden=2, activation="gelu"):
        idata = pmg.sample(10, step=pmg.GibbsNN(), tune=5, chains=2, random_seed=1, progressbar=False)
    assert np.isfinite(idata["sample_stats"]["lp"].values).all()


@pytest.mark.parametrize(
    ("activation", "message"),
    [
        (lambda z: pt.special.softmax(z, axis=-1), r"no elementwise function of 'Z2' .*: it holds softmax\(Z2\)"),
        (pt.log1p, "a value at -12 that is not finite"),
        (lambda z: z * np.array([1.0, 2.0, 3.0]) ** z, r"an array of shape \(1, 3\)"),
    ],
)
def test_refused_by_name(activation, message):
    with pytest.raises(NetworkError, match=message):
        read_network(network(hidden=3, activation=activation))


def test_pieces_are_refused():
    with pytest.raises(ValueError, match="needs activations of linear pieces"):
        pmg.GibbsNN(model=network(activation="tanh"), interweave="pieces")


@pytest.mark.slow
def test_a_network_in_pymc():
    x = np.linspace(-2, 2, 40)[:, None]
    with pmg.mlp(x, np.sin(2 * x[:, 0]), 6, activation="tanh", noise=0.05, prior=None):
        idata = pm.sample(
            600, tune=1500, chains=1, step=pmg.GibbsNN(anneal=1.0), var_names=["W1", "b1", "W2", "b2"],
            progressbar=False, random_seed=1, compute_convergence_checks=False,
        )  # fmt: skip
        output = pmg.function_space(idata)["output"].values.mean((0, 1))
    assert np.sqrt(np.mean((output - np.sin(2 * x[:, 0])) ** 2)) < 0.1

"""Blocked Metropolis: its two sweeps and their three forms against each other, draws against quadrature and NUTS."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import chi2

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.drivers import metropolis_steps
from pymc_gibbsnn.networks.deterministic import read_classical
from pymc_gibbsnn.samplers.fnbg_network import UnitSweep
from tests.helpers import PYTHON, QUIET, check_mean, in_python, slow

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 5))
TARGETS = {"categorical": np.arange(30) % 4, "bernoulli": np.arange(30) % 2, "normal": RNG.normal(size=(30, 2))}


def gelu(z):
    return 0.5 * z * (1 + pt.erf(z / np.sqrt(2)))


def draws(model, count=3, mode="AS_WRITTEN", **kwargs):
    """Points and statistics of a few sweeps, from one seed."""
    step = pmg.FNBG(model=model, compile_kwargs={"mode": mode}, **kwargs)
    step.set_rng(3)
    step.tune = False
    point, found = model.initial_point(), []
    for _ in range(count):
        point, [stats] = step.step(point)
        found.append(point | stats)
    return found


def agree(one, other):
    for x, y in zip(one, other, strict=True):
        assert x.keys() == y.keys()
        for name in x:
            np.testing.assert_allclose(x[name], y[name], rtol=1e-8, atol=1e-10, err_msg=name)


CASES = [
    ("categorical", "sigmoid", None, None, "node"),
    slow("categorical", "tanh", 12, 30, 2),
    slow("bernoulli", gelu, 12, None, 3),
    slow("bernoulli", "relu", None, None, "node"),
    slow("normal", "identity", None, None, 2),
    ("normal", "softplus", 12, 30, "node"),
]


@pytest.mark.parametrize(("likelihood", "activation", "batch", "total", "blocks"), CASES)
@in_python()
def test_the_sweep_of_networks_is_the_general_one(likelihood, activation, batch, total, blocks, monkeypatch):
    """Draw by draw with one seed."""
    model = pmg.classical_mlp(
        X, TARGETS[likelihood], [4, 3], activation=activation, likelihood=likelihood, batch_size=batch, total_size=total
    )
    kwargs = {"blocks": blocks, "scale": 0.3}
    fast = draws(model, **kwargs)
    monkeypatch.setattr(metropolis_steps, "unit_pieces", lambda *_: None)
    general = draws(model, **kwargs)
    agree(fast, general)
    assert 0.05 < np.mean([x["acceptance_rate"] for x in fast]) < 0.95


@cache
def operation(likelihood, activation):
    network = read_classical(
        pmg.classical_mlp(X, TARGETS[likelihood], [4, 3], activation=activation, likelihood=likelihood)
    )
    pieces = [[(0, 2), (2, 6)], [(0, 5)], [(0, 3), (3, 4)]]
    shapes = [layer.shape for layer in network.layers]
    return UnitSweep(shapes, [True] * 3, pieces, network.activations, type(network.likelihood))


def arguments(likelihood, dtype="float64"):
    op, rng = operation(likelihood, "sigmoid"), np.random.default_rng(1)
    size = sum(d_out * (d_in + 1) for d_out, d_in in op.shapes)
    count = sum(d_out * len(pieces) for (d_out, _), pieces in zip(op.shapes, op.pieces, strict=True))
    y = TARGETS[likelihood]
    y = y if likelihood == "categorical" else y.reshape(len(y), -1).astype(dtype)
    theta, steps, precision = rng.normal(size=size), 0.5 * rng.normal(size=size), rng.uniform(0.5, 2, size=size)
    found = [X, y, theta, steps, precision, np.log(rng.uniform(size=count)), np.asarray(0.7)]
    return [x if x.dtype == int else x.astype(dtype) for x in found]


@cache
def run(likelihood, activation, mode, dtype="float64"):
    values = arguments(likelihood, dtype)
    inputs = [pt.tensor(dtype=x.dtype, shape=(None,) * x.ndim) for x in values]
    mode = with_our_kernels(compilation_mode(mode))
    found = pytensor.function(inputs, operation(likelihood, activation)(*inputs), mode=mode)(*values)
    return [np.asarray(x) for x in found]


@pytest.mark.parametrize("activation", ["sigmoid", pytest.param("tanh", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("likelihood", "mode"),
    [slow(likelihood, mode) for likelihood in ("categorical", "bernoulli", "normal") for mode in ("NUMBA", "JAX")],
)
def test_backends_number_by_number(likelihood, activation, mode):
    theta, log_ratios, log_likelihood = run(likelihood, activation, "AS_WRITTEN")
    found = run(likelihood, activation, mode)
    for one, other in zip(found, (theta, log_ratios, log_likelihood), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)
    accepted = arguments(likelihood)[5] < log_ratios
    assert accepted.any()
    assert not accepted.all()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["NUMBA", "JAX"])
def test_single_precision(mode):
    exact = run("categorical", "sigmoid", "AS_WRITTEN")
    single = run("categorical", "sigmoid", mode, "float32")
    assert all(x.dtype == "float32" for x in single)
    np.testing.assert_allclose(single[0], exact[0], atol=1e-5)
    np.testing.assert_allclose(single[1], exact[1], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("activation", [gelu, "relu"])
def test_other_activations_in_numba(activation):
    one, other = run("normal", activation, "NUMBA"), run("normal", activation, "AS_WRITTEN")
    for x, y in zip(one, other, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11)


def test_exponential():
    from pymc_gibbsnn.backends.vector_math import exp, vectorisable

    @vectorisable(no_cpython_wrapper=False)
    def of_all(x):
        y = np.empty_like(x)
        for i in range(len(x)):
            y[i] = exp(x[i])
        return y

    x = np.r_[np.linspace(-700, 700, 10001), np.linspace(-1, 1, 10001), 0.0]
    np.testing.assert_allclose(of_all(x), np.exp(x), rtol=1e-14)
    assert of_all(np.array([-1e4, 0.0, -np.inf]))[1] == 1
    assert (of_all(np.array([-1e4, -np.inf])) < 1e-300).all()
    assert (of_all(np.array([1e4, np.inf])) > 1e300).all()


def logp_ratio(model, old, new):
    logp = model.compile_logp(mode="AS_WRITTEN")
    return logp(new) - logp(old)


@pytest.mark.parametrize("general", [False, slow(True)])
@in_python()
def test_log_ratios_and_what_is_refused(general, monkeypatch):
    """Each proposal against direct densities, from the state with all earlier rejected blocks put back."""
    if general:
        monkeypatch.setattr(metropolis_steps, "unit_pieces", lambda *_: None)
    model = pmg.classical_mlp(X, TARGETS["categorical"], [3])
    seen = {}
    original = metropolis_steps.fnbg

    def spy(variables, sweep, blocks, layers, **kwargs):
        seen["sweep"], seen["blocks"], seen["variables"] = sweep, blocks, variables
        return original(variables, sweep, blocks, layers, **kwargs)

    monkeypatch.setattr(metropolis_steps, "fnbg", spy)
    pmg.FNBG(model=model, blocks=4)
    blocks, variables = seen["blocks"], seen["variables"]
    size = sum(map(len, blocks))
    state = {v: v for v in variables}
    steps, log_u = pt.vector(), pt.vector()
    new, log_ratios, lp = seen["sweep"](state, steps, log_u, None)
    outputs = [*(new[v] for v in variables), log_ratios, lp]
    function = pytensor.function([*variables, steps, log_u], outputs, mode="AS_WRITTEN")

    rng = np.random.default_rng(5)
    shapes = [np.shape(x) for x in model.initial_point().values()]
    start = [rng.normal(size=shape) for shape in shapes]
    steps, log_u = 0.7 * rng.normal(size=size), np.log(rng.uniform(size=len(blocks)))
    *values, log_ratios, lp = function(*start, steps, log_u)

    def point(theta):
        ends = np.cumsum([np.size(x) for x in start])
        parts = np.split(theta, ends[:-1])
        return {v.name: part.reshape(shape) for v, part, shape in zip(variables, parts, shapes, strict=True)}

    theta, rejected = np.concatenate([x.ravel() for x in start]), 0
    for q, block in enumerate(blocks):
        proposal = theta.copy()
        proposal[block] += steps[block]
        expected = logp_ratio(model, point(theta), point(proposal))
        np.testing.assert_allclose(log_ratios[q], expected, atol=1e-10)
        if log_u[q] < expected:
            theta = proposal
        else:
            rejected += 1
    assert 2 <= rejected <= len(blocks) - 2
    np.testing.assert_allclose(np.concatenate([np.ravel(x) for x in values]), theta, atol=1e-12)
    np.testing.assert_allclose(lp, model.compile_logp(mode="AS_WRITTEN")(point(theta)), rtol=1e-10)


@pytest.mark.slow
def test_flat_acceptance_without_a_likelihood():
    """13 blocks of 3 with prior N(0, 1) and scale 1.2: .375 each."""
    with pm.Model():
        pm.Normal("theta", shape=(13, 3))
        idata = pm.sample(
            4000, tune=0, chains=1, random_seed=1, step=pmg.FNBG(scale=1.2, compile_kwargs={"mode": "NUMBA"}), **QUIET
        )
    stats, theta = idata["sample_stats"], idata["posterior"]["theta"].values
    for k in range(13):
        check_mean(stats[f"acceptance_theta_{k}"].values, 0.375, f"acceptance of block {k}", 0.001)
    norms = (theta**2).sum(-1)
    for k in (0, 12):
        check_mean(norms[..., k], 3, f"norm of block {k}", least_ess=200)
        below = norms[..., k] < chi2(3).ppf(0.2)
        check_mean(below.astype(float), 0.2, f"lower fifth of block {k}", least_ess=200)


def logistic_data():
    x = np.array([[0.5, -1.0], [1.5, 0.3], [-0.7, 0.8], [2.0, -0.4], [-1.2, -0.9], [0.1, 1.4]])
    return x, np.array([1, 1, 0, 1, 1, 0])


@pytest.mark.slow
@pytest.mark.parametrize("stratify", [True, False])
def test_against_quadrature(stratify):
    """Three parameters, an asymmetric posterior; a stratified batch of all rows is the data."""
    x, y = logistic_data()
    batch = {"batch_size": 6} if stratify else {}
    model = pmg.classical_mlp(x, y, [], likelihood="bernoulli", prior_variance=4.0, **batch)

    grid = np.linspace(-11, 11, 81)
    w0, w1, b = np.meshgrid(grid, grid, grid, indexing="ij")
    f = w0[..., None] * x[:, 0] + w1[..., None] * x[:, 1] + b[..., None]
    p = np.exp((y * f - np.logaddexp(0, f)).sum(-1) - (w0**2 + w1**2 + b**2) / 8)
    truth = {name: (p * value).sum() / p.sum() for name, value in {"w0": w0, "w1": w1, "b": b, "w0w1": w0 * w1}.items()}
    assert truth["w0"] > 0.5  # far from symmetric
    with model:
        idata = pm.sample(
            12000, tune=500, chains=1, random_seed=2, **QUIET,
            step=pmg.FNBG(blocks=2, stratify=stratify, compile_kwargs=PYTHON),
        )  # fmt: skip
    w, b = idata["posterior"]["W1"].values, idata["posterior"]["b1"].values
    for name, series in {"w0": w[..., 0], "w1": w[..., 1], "b": b, "w0w1": w[..., 0] * w[..., 1]}.items():
        check_mean(series, truth[name], name)

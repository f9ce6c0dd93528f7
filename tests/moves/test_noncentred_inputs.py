"""The move of inputs with all noises held fixed: rows drawn from its target, found on a grid, are still from it."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_gibbsnn as pmg
from pymc_gibbsnn.moves.noncentred_inputs import noncentred_inputs
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.reader import read_networks
from tests.helpers import MODES, compile_draw, slow_but

pytestmark = pytest.mark.filterwarnings("ignore:Data in .* contains missing values")

ROWS, NOISE, KNOWN, ERROR = 20_000, 0.5, 0.4, 0.7
WEIGHTS = np.array([0.75, 0.25])
MEANS, DEVIATIONS = np.array([[-1.0, 0.0], [1.5, 0.8]]), np.array([[0.6, 1.0], [0.9, 0.7]])
W1, B1, W2 = np.array([[1.2, -0.4], [0.3, 1.0], [-0.9, 0.5]]), np.array([0.1, -0.2, 0.3]), np.array([0.8, -1.1, 0.6])
NOISE_Z2, NOISE_A2, NOISE_Z3 = np.array([0.3, -0.4, 0.2]), np.array([-0.1, 0.5, 0.3]), 0.25
Y = 1.5
V, NOISE_G = np.array([0.9, -0.5]), 0.2  # of the network that sets the scales of rows
CASES = {
    "missing": {},
    "a mixture": {"mixture": True, "noise": 0.2},
    "scales of rows": {"scale": 1.7},
    "measured": {"kind": "measured"},
    "scales set by a network": {"scale": "network"},
    "measured, scales set by a network": {"kind": "measured", "scale": "network"},
    "student": {"likelihood": "student"},
    "a mixture below labels": {"likelihood": "sign", "mixture": True},
}
QUICK = {("a mixture", "JAX"), ("measured", "AS_WRITTEN"), ("scales set by a network", "NUMBA")}


def build(kind="missing", mixture=False, scale=1.0, likelihood="normal", noise=NOISE):
    """A network of rows that are all alike: the first input is missing or measured, the second one known."""
    x = np.tile([np.nan if kind == "missing" else 1.1, KNOWN], (ROWS, 1))
    mean, deviation = MEANS[0], DEVIATIONS[0]
    with pm.Model() as model:
        if mixture:
            c = pm.Categorical("c", WEIGHTS, shape=ROWS)
            mean, deviation = pt.as_tensor(MEANS)[c], pt.as_tensor(DEVIATIONS)[c]
        if kind == "missing":
            x = pm.Normal("X", mean, deviation, observed=x)
        else:
            true = pm.Normal("X", mean, deviation, shape=x.shape)
            pm.Normal("x_measured", true, ERROR, observed=x)
            x = true
        weights, b = pm.Normal("W1", 0, 1, shape=W1.shape), pm.Normal("b1", 0, 1, shape=len(B1))
        sigma = of_rows = noise
        if scale == "network":
            of_rows = noise * pmg.row_scale(pm.Normal("G", x @ pm.Normal("V", 0, 1, shape=2), 0.5), 0.7, floor=0.1)
            sigma = of_rows[:, None]
        elif scale != 1:
            of_rows = noise * np.full(ROWS, scale)
            sigma = of_rows[:, None]
        A2 = pm.Normal("A2", pt.maximum(pm.Normal("Z2", x @ weights.T + b, sigma), 0), sigma)
        f = A2 @ pm.Normal("W2", 0, 1, shape=len(W2))
        if likelihood == "normal":
            pm.Normal("y", f, of_rows, observed=np.full(ROWS, Y))
        else:
            Z3 = pm.Normal("Z3", f, noise)
            if likelihood == "student":
                pm.StudentT("y", 4, Z3, sigma=0.8, observed=np.full(ROWS, Y))
            else:
                pmg.SignLabel("y", Z3, observed=np.ones(ROWS, int))
    return model


def scale_of_rows(x, scale=1.0, **_):
    """The scale c (...) of the noise at inputs x (..., 2); a known one is a part of the noises."""
    return np.sqrt(0.1 + np.exp(0.7 * (x @ V + NOISE_G))) if scale == "network" else np.ones(x.shape[:-1])


def latents(x, **case):
    """Z2, A2 and the mean of the last latent at inputs x (..., 2), with the noises held fixed."""
    c = scale_of_rows(x, **case)[..., None]
    z = x @ W1.T + B1 + c * NOISE_Z2
    a = np.maximum(z, 0) + c * NOISE_A2
    return z, a, a @ W2


def log_likelihood(x, scale=1.0, likelihood="normal", noise=NOISE, **_):
    *_, mean = latents(x, scale=scale)
    scale = scale_of_rows(x, scale) if scale == "network" else scale
    if likelihood == "normal":
        return stats.norm.logpdf(Y, mean, noise * scale)
    if likelihood == "student":
        return stats.t.logpdf(Y, 4, mean + NOISE_Z3, 0.8)
    return stats.norm.logcdf(mean / noise)


def target(case):
    """Draws of the component and of x from the target of the move; functions of all there are, and their shares."""
    is_measured, components = case.get("kind") == "measured", [0, 1] if case.get("mixture") else [0]
    first = np.linspace(-6, 7, 801 if is_measured else 13_001)
    second = np.linspace(-5, 5, 601) if is_measured else np.array([KNOWN])
    x = np.stack(np.meshgrid(first, second), axis=-1).reshape(-1, 2)
    logs = []
    for k in components:
        log = np.log(WEIGHTS[k]) + stats.norm.logpdf(x, MEANS[k], DEVIATIONS[k]).sum(axis=-1)
        if is_measured:
            log += stats.norm.logpdf(np.array([1.1, KNOWN]), x, ERROR).sum(axis=-1)
        logs.append(log + log_likelihood(x, **case))
    shares = np.exp(np.ravel(logs))
    shares /= shares.sum()
    x, c = np.tile(x, (len(components), 1)), np.repeat(components, len(x))
    chosen = np.random.default_rng(1).choice(len(shares), size=ROWS, p=shares)
    return c[chosen], x[chosen], functions_of(x, c), shares


def proposals(case, x):
    """Draws from the prior given what is known of a row without the network."""
    rng, c = np.random.default_rng(2), np.zeros(ROWS, int)
    if case.get("kind") == "measured":
        precision = 1 / DEVIATIONS[0] ** 2 + 1 / ERROR**2
        mean = (MEANS[0] / DEVIATIONS[0] ** 2 + np.array([1.1, KNOWN]) / ERROR**2) / precision
        new, one = mean + rng.normal(size=(ROWS, 2)) / np.sqrt(precision), rng.integers(2, size=(ROWS, 1))
        return np.where((rng.random((ROWS, 1)) < 0.5) | (one == np.arange(2)), new, x)
    if case.get("mixture"):
        shares = WEIGHTS * stats.norm.pdf(KNOWN, MEANS[:, 1], DEVIATIONS[:, 1])
        c = rng.choice(2, size=ROWS, p=shares / shares.sum())
    return np.stack([MEANS[c, 0] + DEVIATIONS[c, 0] * rng.normal(size=ROWS), np.full(ROWS, KNOWN)], axis=-1)


def functions_of(x, c):
    return np.stack([x[:, 0], x[:, 0] ** 2, np.sin(3 * x[:, 0]), x[:, 1], c])


@pytest.mark.parametrize(("name", "mode"), slow_but(QUICK, product(CASES, MODES)))
def test_rows_from_the_target_keep_their_distribution(name, mode):
    case = CASES[name]
    model = build(**case)
    networks = read_networks(model)
    network, *_ = networks
    c, x, functions, shares = target(case)
    z, a, mean = latents(x, **case)
    values = {"W1": W1, "b1": B1, "W2": W2, "Z2": z, "A2": a, "Z3": mean + NOISE_Z3, "c": c}
    values |= {"X_unobserved": x[:, 0], "X": x, "V": V, "G": x @ V + NOISE_G}
    values = {v: pt.constant(np.asarray(values[v.name], v.dtype)) for one in networks for v in one.variables}
    state = NetworkState.begin(lambda values: network.at(values).of_equal_rows(), values, pt.constant(0.0))
    move, inputs = noncentred_inputs(network), network.random_inputs

    def build_move(rng):
        rng, moved, _, stats_ = move.step(rng, state, {})
        drawn = [moved.values[v] for v in inputs.of_rows]
        moved_values = {v.name: value for v, value in moved.new_values.items()}
        last = moved.outputs[-1] if network.row_scale is None else moved.outputs[-1] * network.row_scale
        return rng, *drawn, moved_values["Z2"], moved_values["A2"], last, stats_["acceptance_X"]

    *drawn, new_z, new_a, last, acceptance = compile_draw(build_move, mode)()
    new = x.copy()
    if case.get("kind") == "measured":
        new = drawn[0]
    else:
        new[:, 0] = drawn[0]
    ratio = np.exp(np.minimum(log_likelihood(proposals(case, x), **case) - log_likelihood(x, **case), 0))
    assert abs(acceptance - ratio.mean()) < 4.5 * np.sqrt(0.5 / ROWS)
    assert 0.1 < acceptance < 0.99
    has_moved = new != x if case.get("kind") == "measured" else new[:, :1] != x[:, :1]
    np.testing.assert_allclose(has_moved.any(axis=1).mean(), acceptance, atol=1e-12)
    for found, exact in zip(functions_of(new, drawn[1] if case.get("mixture") else c), functions, strict=True):
        center = exact @ shares
        error = np.sqrt(max(exact**2 @ shares - center**2, 0) / ROWS)
        assert abs(found.mean() - center) < 4.5 * error + 1e-9, (found.mean(), center, error)
    expected_z, expected_a, expected_mean = latents(new, **case)
    np.testing.assert_allclose(new_z, expected_z, atol=1e-9)
    np.testing.assert_allclose(new_a, expected_a, atol=1e-9)
    expected = Y if case.get("likelihood", "normal") == "normal" else expected_mean + NOISE_Z3
    if case.get("scale") == "network":
        expected = new @ V + NOISE_G
    np.testing.assert_allclose(last[:, 0], expected, atol=1e-9)

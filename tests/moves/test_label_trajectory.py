"""The joint move of all weights below class labels: its density by brute force, and the move against quadrature."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from scipy.special import logsumexp
from scipy.stats import norm

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.moves.label_trajectory import has_label_trajectory, label_density, label_trajectory, moved_with, path
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.given import Given
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.networks.substitution import substitute
from tests.helpers import MODES, check_mean, compile_draw, random_point, slow, value
from tests.moves.test_label_scale import network

DRAWS = {"NUMBA": 20_000, "JAX": 8_000}


def state_at(model, values):
    return NetworkState.begin(read_network(model).at, values, pt.constant(0.0))


def of_known_lengths(outputs):
    """Lengths of axes stand in the graph, as for the drivers that compile for JAX."""
    given = [v for v in ancestors(outputs) if isinstance(v, Given) and v.dtype.startswith("int")]
    return substitute(outputs, {v: pt.constant(v.get_value(), dtype=v.dtype) for v in given})


def shared(x, name=None):
    return pytensor.shared(x, name, shape=x.shape)


def noises(state):
    """All noises, in one vector."""
    found = []
    for l, layer in enumerate(state.network.layers):
        found.append(state.outputs[l] - layer.mean(state.input(l), state.weights[l]))
        if l < len(state.posts):
            found.append(state.posts[l] - state.network.activations[l].function(state.outputs[l]))
    return np.concatenate([value(x).ravel() for x in found])


@pytest.mark.parametrize(
    ("classes", "kwargs"),
    [(2, {}), (3, {"prior": "variances", "offset": np.array([0.5, -1.0, 0.2])}), (4, {"prior": "not its own"})],
)
def test_the_target_is_the_joint_density_with_the_latent_of_the_label_integrated_out(classes, kwargs):
    """All other noises stay as they are."""
    model = network(classes, rows=1, **kwargs)
    point = random_point(model, 1)
    point |= {name: np.exp(x) for name, x in point.items() if name == "scale"}  # not a logarithm
    state = state_at(model, {v: pt.constant(point[v.name]) for v in model.value_vars})
    logp, draws = model.compile_logp(mode="AS_WRITTEN"), np.random.default_rng(2)

    def both(weights):
        weights = [pt.constant(w) for w in weights]
        moved = moved_with(state, weights)
        new = {v.name: value(x) for v, x in moved.new_values.items()}
        z, found = new["Z4"].copy(), []
        ends = (z[0, 1:].max(), z[0, 1:].max() + 16) if classes > 2 else (-40, 0)  # where the label is 0
        nodes, heights = np.polynomial.legendre.leggauss(120)
        for x in ends[0] + (nodes + 1) / 2 * (ends[1] - ends[0]):
            z[(0, 0) if classes > 2 else 0] = x
            found.append(logp(new | {"Z4": z}))
        return value(label_density(state, moved)), logsumexp(found, b=heights)

    old = [value(w) for w in state.weights]
    (found, expected), (found_new, expected_new) = both(old), both([w + draws.normal(size=w.shape) for w in old])
    np.testing.assert_allclose(found_new - found, expected_new - expected, rtol=1e-9, atol=1e-9)
    moved = moved_with(state, [w + 1 for w in state.weights])
    np.testing.assert_allclose(noises(moved), noises(state), atol=1e-12)


def smooth_network(classes):
    """Two hidden layers, in which some weights are single rows or columns."""
    X, labels = np.random.default_rng(0).normal(size=(5, 2)), np.arange(5) % classes
    return pmg.mlp(X, labels, [1, 3], likelihood="probit", activation="tanh", noise=0.4)


@pytest.mark.parametrize(
    ("make", "classes", "mode"),
    [
        (network, 2, "AS_WRITTEN"), slow(network, 3, "AS_WRITTEN"), (smooth_network, 3, "AS_WRITTEN"),
        *(slow(make, classes, mode) for make, classes in ((network, 3), (smooth_network, 2)) for mode in MODES[1:]),
    ],
)  # fmt: skip
def test_the_path_is_that_of_the_gradient_of_the_target(make, classes, mode):
    """Against steps with the gradient by PyTensor."""
    model, h = make(classes), 0.05
    point, draws = random_point(model, 1), np.random.default_rng(2)
    state = state_at(model, {v: pt.constant(point[v.name]) for v in model.value_vars})
    precisions = [value(layer.operator.precision) for layer in state.network.layers]
    old = [value(w) for w in state.weights]
    momenta = [draws.normal(size=w.shape) for w in old]
    names = [pt.matrix(f"W{l}") for l in range(len(old))]
    slope = pytensor.function(names, pt.grad(label_density(state, moved_with(state, names)), names), mode="AS_WRITTEN")
    w, p = [w.copy() for w in old], [p.copy() for p in momenta]
    for _ in range(4):
        w = [w + h / 2 * p / s**0.5 for w, p, s in zip(w, p, precisions, strict=True)]
        p = [p + h * g / s**0.5 for g, p, s in zip(slope(*w), p, precisions, strict=True)]
        w = [w + h / 2 * p / s**0.5 for w, p, s in zip(w, p, precisions, strict=True)]

    values = {v: shared(point[v.name], v.name) for v in model.value_vars}
    ends = path(state_at(model, values), [shared(p) for p in momenta], pytensor.shared(h), 4)
    ends = of_known_lengths([*ends[0], *ends[1]])
    follow = pytensor.function([], ends, mode=with_our_kernels(compilation_mode(mode)))
    for found, expected in zip(follow(), w + p, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
    assert max(np.abs(new - before).max() for new, before in zip(w, old, strict=True)) > 0.1


@pytest.mark.parametrize("classes", [2, 3])
def test_the_move_keeps_all_noises(classes):
    model = network(classes)
    point = random_point(model, 1)
    state = state_at(model, {v: pt.constant(point[v.name]) for v in model.value_vars})
    move = label_trajectory(read_network(model))
    memory = move.start | {"log_step_Z4": pt.constant(np.log(0.01))}

    def build(rng):
        rng, moved, _, stats = move.step(rng, state, memory)
        return rng, *moved.weights, *moved.outputs, *moved.posts, stats["acceptance_Z4"]

    *found, acceptance = compile_draw(build)()
    weights, outputs, posts = (tuple(map(pt.constant, part)) for part in (found[:2], found[2:4], found[4:]))
    moved = replace(state, weights=weights, outputs=outputs, posts=posts)
    np.testing.assert_allclose(noises(moved), noises(state), atol=1e-12)
    assert acceptance > 0.9
    assert all((value(w) != value(old)).all() for w, old in zip(weights, state.weights, strict=True))


def test_which_networks_have_the_move():
    X = np.random.default_rng(0).normal(size=(12, 2))
    labels = np.arange(12) % 3
    assert has_label_trajectory(read_network(pmg.mlp(X, labels, [3, 2], likelihood="probit")))
    assert not has_label_trajectory(read_network(pmg.mlp(X, labels, 3, likelihood="probit", activation="sign")))
    assert not has_label_trajectory(read_network(pmg.mlp(X, labels / 2, 3)))


@pytest.mark.parametrize("mode", ["NUMBA", slow("JAX")])
def test_the_move_against_quadrature(mode):
    """Of one weight and a bias, whose likelihood is a product of Φ, for a given step size."""
    x, labels = np.array([-1.0, 0.5, 2.0, 1.0]), np.array([0, 1, 1, 0])
    with pm.Model() as model:
        w, b = pm.Normal("w", 0, 1.5, shape=1), pm.Normal("b", 0, 0.8)
        pmg.SignLabel("y", pm.Normal("Z", pt.constant(x[:, None]) @ w + b, 0.7), observed=labels)
    point = random_point(model, 1)
    values = {v: shared(point[v.name], v.name) for v in model.value_vars}
    move = label_trajectory(read_network(model))
    memory = {name: pytensor.shared(value(v), name) for name, v in move.start.items()}
    memory["log_step_Z"].set_value(np.log(0.3))
    moving = {v.name: values[v] for v in model.value_vars}

    def build(rng):
        rng, state, _, stats = move.step(rng, state_at(model, values), memory)
        new = {v.name: x for v, x in state.new_values.items()}
        return of_known_lengths([rng, new["w"], new["b"], stats["acceptance_Z"]])

    draw, found, share = compile_draw(build, mode), [], []
    for _ in range(DRAWS[mode]):
        w, b, acceptance = draw()
        moving["w"].set_value(w, borrow=True)
        moving["b"].set_value(b, borrow=True)
        found.append((w.item(), b.item()))
        share.append(acceptance)
    assert 0.3 < np.mean(share) < 0.999
    w, b = np.meshgrid(np.linspace(-8, 8, 401), np.linspace(-5, 5, 301), indexing="ij")
    density = norm(0, 1.5).logpdf(w) + norm(0, 0.8).logpdf(b)
    density += sum(norm.logcdf((2 * y - 1) * (w * x_ + b) / 0.7) for x_, y in zip(x, labels, strict=True))
    density = np.exp(density - density.max())
    density /= density.sum()
    chain_w, chain_b = np.array(found).T
    for name, of_chain, of_grid in (
        ("w", chain_w, w), ("b", chain_b, b), ("w²", chain_w**2, w**2), ("wb", chain_w * chain_b, w * b),
    ):  # fmt: skip
        check_mean(of_chain, (density * of_grid).sum(), name, least_ess=300)

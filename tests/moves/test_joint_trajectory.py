"""The joint move of all weights: its density by brute force, and the move against quadrature."""

from dataclasses import replace
from itertools import product

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.loop_length import LoopLength
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.moves import fixed_noise
from pymc_gibbsnn.moves.joint_trajectory import (
    has_joint_trajectory,
    joint_density,
    joint_trajectory,
    path,
    with_precisions,
)
from pymc_gibbsnn.moves.label_scale import scales_of
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import MODES, check_mean, compile_draw, of_known_lengths, random_point, slow, slow_but, value
from tests.moves.test_label_scale import network

FAST = {"compile_kwargs": {"mode": "AS_WRITTEN"}}
DRAWS = {"NUMBA": 20_000, "JAX": 8_000}


def state_at(model, values):
    return NetworkState.begin(read_network(model).at, values, pt.constant(0.0))


def moved_with(state, weights):
    return fixed_noise.with_noises(replace(state, weights=tuple(weights)), fixed_noise.noises(state))


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


def moved_numbers(model):
    """How many learned precisions move, and how the volume of values depends on each u: its factor in the logarithm."""
    count, powers = 0, []
    for scale in scales_of(read_network(model), read_network(model).layers):
        size = int(np.prod(scale.shape))
        power = np.zeros(size) if scale.is_log else np.full(size, -2.0 if scale.is_precision else 2.0)
        for use in scale.uses:
            np.add.at(power, use.which.ravel(), 1)
        powers.append(power)
        count += size
    return count, np.concatenate([*powers, np.zeros(0)])


@pytest.mark.parametrize(
    ("classes", "kwargs", "learned"),
    [
        (2, {}, 0), (2, {"prior": "precision"}, 1), (3, {"prior": "shared"}, 1),
        (3, {"prior": "variances", "offset": np.array([0.5, -1.0, 0.2])}, 3), (4, {"prior": "not its own"}, 1),
    ],
)  # fmt: skip
def test_the_target_is_the_joint_density_with_the_latent_of_the_label_integrated_out(classes, kwargs, learned):
    """All other noises stay as they are, and so do weights in units of their prior deviations where only u moves."""
    model = network(classes, rows=1, **kwargs)
    point = random_point(model, 1)
    point |= {name: np.exp(x) for name, x in point.items() if name == "scale"}  # not a logarithm
    state = state_at(model, {v: pt.constant(point[v.name]) for v in model.value_vars})
    logp, draws = model.compile_logp(mode="AS_WRITTEN"), np.random.default_rng(2)
    count, powers = moved_numbers(model)
    assert count == learned

    def both(weights, u):
        weights, u_moved = [pt.constant(w) for w in weights], pt.constant(u)
        moved = moved_with(with_precisions(state, u_moved), weights)
        new = {v.name: value(x) for v, x in moved.new_values.items()}
        z, found = new["Z4"].copy(), []
        ends = (z[0, 1:].max(), z[0, 1:].max() + 16) if classes > 2 else (-40, 0)  # where the label is 0
        nodes, heights = np.polynomial.legendre.leggauss(120)
        for x in ends[0] + (nodes + 1) / 2 * (ends[1] - ends[0]):
            z[(0, 0) if classes > 2 else 0] = x
            found.append(logp(new | {"Z4": z}))
        return value(joint_density(state, moved, u_moved)), logsumexp(found, b=heights) + powers @ u

    old = [value(w) for w in state.weights]
    found, expected = both(old, np.zeros(count))
    found_new, expected_new = both([w + draws.normal(size=w.shape) for w in old], draws.normal(0, 0.5, count))
    np.testing.assert_allclose(found_new - found, expected_new - expected, rtol=1e-9, atol=1e-9)
    moved = moved_with(state, [w + 1 for w in state.weights])
    np.testing.assert_allclose(noises(moved), noises(state), atol=1e-12)


def smooth_network(classes):
    """Two hidden layers, in which some weights are single rows or columns."""
    X, labels = np.random.default_rng(0).normal(size=(5, 2)), np.arange(5) % classes
    return pmg.mlp(X, labels, [1, 3], likelihood="probit", activation="tanh", noise=0.4)


X5 = np.random.default_rng(0).normal(size=(5, 2))


def graded_network():
    """A network of one hidden layer, whose data are grades."""
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0, 1, shape=(3, 2))
        A2 = pm.Normal("A2", pt.tanh(pm.Normal("Z2", X5 @ W1.T, 0.5)), 0.5)
        mean = A2 @ pm.Normal("W2", 0, pm.Gamma("scale", 3, 2) ** -0.5, shape=3) + 0.3
        pm.OrderedLogistic("y", pm.Normal("Z3", mean, 0.8), np.array([-0.5, 1.0]), observed=np.arange(5) % 3)
    return model


def one_output_network():
    """A network whose last layer is the mean of the data, with an offset and learned scales."""
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0, pm.Gamma("scale", 3, 2) ** -0.5, shape=(3, 2))
        A2 = pm.Normal("A2", pt.tanh(pm.Normal("Z2", X5 @ W1.T, 0.5)), 0.5)
        mean = A2 @ pm.Normal("W2", 0, 1, shape=3) + pm.Normal("b2", 0, 1) + 2 * np.arange(5)
        pm.Normal("y", mean, pm.InverseGamma("variance", 3, 2) ** 0.5, observed=np.linspace(-1, 2, 5))
    return model


OTHERS = {  # data whose distribution depends on the last latent, without labels
    "counts": lambda: pmg.mlp(X5, np.array([0, 3, 1, 2, 9]), [2], likelihood="negative_binomial"),
    "shares": lambda: pmg.mlp(X5, np.linspace(0.1, 0.8, 5), [1, 2], likelihood="beta", activation="tanh", prior=None),
    "classes": lambda: pmg.mlp(X5, np.arange(5) % 3, [2], likelihood="categorical"),
    "grades": graded_network,
    "logits": lambda: pmg.mlp(X5, np.arange(5) % 2, [2], likelihood="bernoulli"),
    "outputs": lambda: pmg.mlp(X5, np.linspace(-1, 2, 10).reshape(5, 2), [2], likelihood="normal"),
    "one output": one_output_network,
    "real data": lambda: pmg.mlp(X5, np.linspace(-1, 2, 5), [2], likelihood="student"),
    "successes": lambda: pmg.mlp(X5, np.array([0, 3, 1, 2, 9]), [2], likelihood="binomial", trials=9),
}


@pytest.mark.parametrize("name", slow_but({"counts", "classes", "outputs"}, OTHERS))
def test_the_target_is_the_joint_density(name):
    model, draws = OTHERS[name](), np.random.default_rng(2)
    point, logp = random_point(model, 1), model.compile_logp(mode="AS_WRITTEN")
    state = state_at(model, {v: pt.constant(point[v.name]) for v in model.value_vars})
    count, powers = moved_numbers(model)
    old = [value(w) for w in state.weights]

    def both(weights, u):
        moved = moved_with(with_precisions(state, pt.constant(u)), [pt.constant(w) for w in weights])
        new = {v.name: value(x) for v, x in moved.new_values.items()}
        return value(joint_density(state, moved, pt.constant(u))), logp(new) + powers @ u

    found, expected = both(old, np.zeros(count))
    found_new, expected_new = both([w + draws.normal(size=w.shape) for w in old], draws.normal(0, 0.5, count))
    np.testing.assert_allclose(found_new - found, expected_new - expected, rtol=1e-9, atol=1e-9)


def by_name(name):
    return OTHERS[name]()


@pytest.mark.parametrize(
    ("make", "classes", "mode"),
    [
        (network, 2, "AS_WRITTEN"), (network, 3, "AS_WRITTEN"), (smooth_network, 3, "AS_WRITTEN"),
        *(slow(make, classes, mode) for make, classes in ((network, 3), (smooth_network, 2)) for mode in MODES[1:]),
        *slow_but({(by_name, "counts", "AS_WRITTEN")}, product([by_name], OTHERS, MODES)),
    ],
)  # fmt: skip
def test_the_path_is_that_of_the_gradient_of_the_target(make, classes, mode):
    """Against steps with the gradient by PyTensor."""
    model, h = make(classes), 0.05
    point, draws = random_point(model, 1), np.random.default_rng(2)
    state = state_at(model, {v: pt.constant(point[v.name]) for v in model.value_vars})
    old, (count, _) = [value(w) for w in state.weights], moved_numbers(model)
    deviations = [value(layer.operator.precision) ** -0.5 for layer in state.network.layers]
    q = np.concatenate([*((w / s).ravel() for w, s in zip(old, deviations, strict=True)), np.zeros(count)])
    p = momentum = draws.normal(size=len(q))
    ends = np.cumsum([0, *(w.size for w in old)])

    def at(q):
        u = q[ends[-1] :]
        layers = with_precisions(state, u).network.layers
        x = [q[a:b].reshape(w.shape) for a, b, w in zip(ends, ends[1:], old, strict=False)]
        return [x_ / layer.operator.precision**0.5 for x_, layer in zip(x, layers, strict=True)], u

    variable = pt.vector("q", shape=q.shape)
    weights, u = at(variable)
    density = joint_density(state, moved_with(state, weights), u)
    slope = pytensor.function([variable], pt.grad(density, variable), mode="AS_WRITTEN")
    for _ in range(4):
        q = q + h / 2 * p
        p = p + h * slope(q)
        q = q + h / 2 * p

    values = {v: shared(point[v.name], v.name) for v in model.value_vars}
    found, found_u, found_p = path(state_at(model, values), shared(momentum), pytensor.shared(h), 4)
    follow = pytensor.function(
        [], of_known_lengths([*found, found_u, found_p]), mode=with_our_kernels(compilation_mode(mode))
    )
    expected, new = at(pt.constant(q))[0], follow()
    for x, y in zip(new, [*map(value, expected), q[ends[-1] :], p], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-10)
    assert max(np.abs(w - before).max() for w, before in zip(new, old, strict=False)) > 0.1


@pytest.mark.parametrize("classes", [2, 3])
def test_the_move_keeps_all_noises(classes):
    model = network(classes)
    point = random_point(model, 1)
    state = state_at(model, {v: pt.constant(point[v.name]) for v in model.value_vars})
    move = joint_trajectory(read_network(model))
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


@pytest.mark.parametrize(("step", "sign"), [(1e-6, 1), (20.0, -1)])
def test_momentum_goes_on_after_an_accepted_proposal_and_turns_round_after_a_rejected_one(step, sign):
    model = network(3)
    point = random_point(model, 1)
    state = state_at(model, {v: pt.constant(point[v.name]) for v in model.value_vars})
    move = joint_trajectory(read_network(model))
    momentum = 1000 * np.random.default_rng(0).normal(size=value(move.start["momentum_Z4"]).shape)
    memory = {"log_step_Z4": np.log(step), "tuned_Z4": 1.0, "momentum_Z4": momentum}
    memory = {name: pt.constant(x) for name, x in memory.items()}

    def build(rng):
        rng, _, carry, stats = move.step(rng, state, memory)
        return rng, carry["momentum_Z4"], stats["acceptance_Z4"]

    new, acceptance = compile_draw(build)()
    assert acceptance < 1e-6 if sign < 0 else acceptance > 0.9
    noise = (sign * new - 0.9 * momentum) / (1 - 0.9**2) ** 0.5
    assert 0.5 < noise.std() < 1.5


def real_data(units=20, inputs=2, noise="learned"):
    X = np.random.default_rng(0).normal(size=(12, inputs))
    return pmg.mlp(X, X[:, 0], units, likelihood="student", noise=noise)


@pytest.mark.parametrize(("step", "tuning", "steps"), [(2e-3, 0, 30), (5e-4, 0, 1), (5e-4, 1e-3, 30)])
def test_around_real_data_small_steps_are_made_while_the_chain_tunes(step, tuning, steps):
    """Momentum so large that nothing else counts carries the weights by the lengths of all steps together."""
    model = real_data()
    point = random_point(model, 1)
    values = {v: pt.constant(point[v.name]) for v in model.value_vars}
    state, move = replace(state_at(model, values), tuning=pt.constant(tuning)), joint_trajectory(read_network(model))
    momentum = 1e6 * np.random.default_rng(0).normal(size=value(move.start["momentum_Z3"]).shape)
    momentum[-moved_numbers(model)[0] :] = 0  # of the precisions
    memory = {"log_step_Z3": np.log(step), "tuned_Z3": 1.0, "momentum_Z3": momentum}
    ends = []

    def followed(state, momentum, h, steps):
        found = path(state, momentum, h, steps)
        ends.append((found[0][0], momentum, h))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_gibbsnn.moves.joint_trajectory.path", followed)
        draw = compile_draw(
            lambda rng: (move.step(rng, state, {name: pt.constant(x) for name, x in memory.items()})[0], *ends[0])
        )
    new, momentum, h = draw()
    operator = state.network.layers[0].operator
    way = (new - value(state.weights[0])) * value(operator.precision) ** 0.5
    np.testing.assert_allclose(way.ravel(), steps * h * momentum[: way.size], rtol=0.2)


@pytest.mark.parametrize("mode", MODES)
def test_loops_are_as_long_as_they_say_but_in_jax(mode):
    n = pytensor.shared(np.int64(2))
    ends = pytensor.scan(lambda x: x + 1, outputs_info=[pt.zeros(())], n_steps=LoopLength(7)(n), return_updates=False)
    count = pytensor.function([], ends[-1], mode=compilation_mode(mode))
    assert count() == (7 if mode == "JAX" else 2)
    n.set_value(np.int64(5))
    assert count() == (7 if mode == "JAX" else 5)


def two_networks():
    """Two networks that add to the mean of the data."""
    with pm.Model() as model:
        terms = []
        for part in "ab":
            Z = pm.Normal(f"Z2{part}", X5 @ pm.Normal(f"W1{part}", 0, 1, shape=(3, 2)).T, 0.5)
            terms.append(pm.Normal(f"A2{part}", pt.maximum(Z, 0), 0.5) @ pm.Normal(f"W2{part}", 0, 1, shape=3))
        pm.Normal("y", terms[0] + terms[1], pm.InverseGamma("variance", 3, 2) ** 0.5, observed=np.linspace(-1, 2, 5))
    return model


HOLES = np.where(np.arange(10).reshape(5, 2) == 3, np.nan, X5)
WITH_OUTPUTS = {
    "one output": one_output_network,
    "missing inputs": lambda: pmg.mlp(HOLES, np.linspace(-1, 2, 5), [3], likelihood="normal"),
    "two networks": two_networks,
}


@pytest.mark.parametrize("name", slow_but({"one output", "two networks"}, WITH_OUTPUTS))
def test_moves_after_it_see_the_noise_that_real_data_have_then(name, monkeypatch):
    """The log density that a sweep reports, in which the noise of the data counts, is that at its end."""
    monkeypatch.setattr("pymc_gibbsnn.moves.joint_trajectory.FEWEST", 1)
    monkeypatch.setattr("pymc_gibbsnn.moves.joint_trajectory.STEPS", 1)  # steps are not tuned yet: few are accepted
    model = WITH_OUTPUTS[name]()
    step, point, logp = pmg.GibbsNN(model=model, **FAST), model.initial_point(), model.compile_logp(mode="AS_WRITTEN")
    found = []
    for _ in range(10):
        point, [stats] = step.step(point)
        found += [x for key, x in stats.items() if key.startswith("acceptance_y")]
        np.testing.assert_allclose(stats["lp"], logp(point))
    assert max(found) > 0.5


def test_which_networks_have_the_move():
    X = np.random.default_rng(0).normal(size=(12, 2))
    labels = np.arange(12) % 3
    assert has_joint_trajectory(read_network(pmg.mlp(X, labels, [3, 2], likelihood="probit")))
    assert not has_joint_trajectory(read_network(pmg.mlp(X, labels, 3, likelihood="probit", activation="sign")))
    assert has_joint_trajectory(read_network(real_data()))
    assert has_joint_trajectory(read_network(pmg.mlp(X, labels / 2, 20, likelihood="normal")))
    for other in (real_data(units=19), real_data(inputs=24), real_data(noise=0.1)):
        assert not has_joint_trajectory(read_network(other))
    for kwargs in ({"noise": 0.1}, {"noise_hidden": 2}):
        assert not has_joint_trajectory(read_network(pmg.mlp(X, labels / 2, 20, likelihood="normal", **kwargs)))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["NUMBA", "JAX"])
def test_the_move_against_quadrature(mode):
    """Of a weight of learned precision and a bias, whose likelihood is a product of Φ, with the momentum carried on."""
    x, labels = np.array([-1.0, 0.5, 2.0, 1.0]), np.array([0, 1, 1, 0])
    with pm.Model() as model:
        w = pm.Normal("w", 0, pm.Gamma("tau", 3, 2) ** -0.5, shape=1)
        b = pm.Normal("b", 0, 0.8)
        pmg.SignLabel("y", pm.Normal("Z", pt.constant(x[:, None]) @ w + b, 0.7), observed=labels)
    point = random_point(model, 1)
    values = {v: shared(point[v.name], v.name) for v in model.value_vars}
    move = joint_trajectory(read_network(model))
    memory = {name: shared(value(v), name) for name, v in move.start.items()}
    memory["log_step_Z"].set_value(np.log(0.2))
    moving = {v.name: v for v in values.values() if v.name != "Z"}
    moving |= {name: memory[name] for name in ("momentum_Z", "tuned_Z")}

    def build(rng):
        rng, state, carry, stats = move.step(rng, state_at(model, values), memory)
        new = {v.name: x for v, x in state.new_values.items()} | carry
        return of_known_lengths([rng, *(new[name] for name in moving), stats["acceptance_Z"]])

    draw, found, share = compile_draw(build, mode), [], []
    for _ in range(DRAWS[mode]):
        *new, acceptance = draw()
        for variable, x_new in zip(moving.values(), new, strict=True):
            variable.set_value(x_new, borrow=True)
        found.append([np.asarray(x_new).item() for x_new in new[:3]])
        share.append(acceptance)
    assert 0.3 < np.mean(share) < 0.9999
    log_tau, w, b = np.meshgrid(
        np.linspace(-5, 3, 81), np.linspace(-12, 12, 401), np.linspace(-4, 4, 101), indexing="ij"
    )
    density = 3 * log_tau - 2 * np.exp(log_tau) + norm(0, np.exp(-log_tau / 2)).logpdf(w) + norm(0, 0.8).logpdf(b)
    density += sum(norm.logcdf((2 * y - 1) * (w * x_ + b) / 0.7) for x_, y in zip(x, labels, strict=True))
    density = np.exp(density - density.max())
    density /= density.sum()
    chain, grid = dict(zip(moving, np.array(found).T, strict=False)), {"tau_log__": log_tau, "w": w, "b": b}
    for name, f in {
        "w": lambda v: v["w"], "b": lambda v: v["b"], "log tau": lambda v: v["tau_log__"],
        "w²": lambda v: np.tanh(v["w"]) ** 2, "w b": lambda v: np.tanh(v["w"]) * v["b"],
        "(log tau)²": lambda v: v["tau_log__"] ** 2, "w log tau": lambda v: np.tanh(v["w"]) * v["tau_log__"],
    }.items():  # fmt: skip
        check_mean(f(chain), (density * f(grid)).sum(), name, least_ess=300)

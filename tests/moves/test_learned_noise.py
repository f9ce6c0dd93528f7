"""The moves of learned variances of noise: against densities by brute force, and in sweeps."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import invgamma

import pymc_gibbsnn as pmg
from pymc_gibbsnn.moves import joint_trajectory
from pymc_gibbsnn.moves.collapsed_variances import collapsed_variances, draw_variances
from pymc_gibbsnn.moves.layer_scale import layer_scale, layer_scale_conditional
from pymc_gibbsnn.moves.noncentred_variance import noncentred_variance
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import LEAN, MOSTLY_PYTHON, PYTHON, check_mean, compile_draw, random_point, slow, value
from tests.samplers.test_gibbs import NUMBA, check_geweke

N, D, H = 6, 2, 3
X = np.random.default_rng(0).normal(size=(N, D))
PRIORS = {"of_z": (3, 2), "of_a": (4, 1), "of_y": (3, 1)}
FACTORS = {"of_z": 1.0, "of_a": 1.5, "of_y": 0.5}
DRAWS = {"AS_WRITTEN": 3_000, "NUMBA": 20_000, "JAX": 8_000}  # to a small error where draws are fast


def network(outputs=1, known=(), transform=True, function=lambda z: pt.maximum(z, 0), has_bias=True):
    """A network of one hidden layer whose noises have variances of their own; those in ``known`` are numbers."""
    y = np.random.default_rng(outputs).normal(size=(N, outputs))
    options = {} if transform else {"default_transform": None}
    with pm.Model() as model:
        variances = {k: 0.3 if k in known else pm.InverseGamma(k, *PRIORS[k], **options) for k in PRIORS}
        sds = [FACTORS[name] * pt.sqrt(v) for name, v in variances.items()]
        W1, W2 = pm.Normal("W1", 0, 1, shape=(H, D)), pm.Normal("W2", 0, 0.7, shape=(outputs, H))
        b1, b2 = has_bias and pm.Normal("b1", 0, 1, shape=H), pm.Normal("b2", 0, 0.5, shape=outputs)
        Z2 = pm.Normal("Z2", X @ W1.T + b1 if has_bias else X @ W1.T, sds[0])
        A2 = pm.Normal("A2", function(Z2), sds[1])
        pm.Normal("y", A2 @ W2.T + b2, sds[2], observed=pm.Data("y_data", y))
    return model


class Chain:
    """One move of the first layer, made again and again."""

    def __init__(self, move, model, mode, seed=1):
        found = read_network(model)
        self.point = random_point(model, seed)
        self.names = [name for name in self.point if name.startswith("of_")]
        if any(name in PRIORS for name in self.names):  # not a logarithm
            self.point |= {name: np.exp(self.point[name]) for name in self.names}
        values = {v: pytensor.shared(self.point[v.name], v.name) for v in model.value_vars}
        self.moving = [values[v] for v in model.value_vars if v.name in [*self.names, "Z2"]]

        def build(rng):
            site = NetworkState.begin(found.at, values, pt.constant(0.0)).site(0)
            rng, new = move(rng, site)
            assert new.post is None  # it was integrated out
            moved = {values[v]: x for v, x in new.drawn.items()} | {values[found.layers[0].output]: new.z}
            return rng, *(moved.get(v, v) for v in self.moving)

        self.draw = compile_draw(build, mode)

    def run(self, draws):
        """The logarithms of the variances of noise, (draw,) each by name, and the last Z."""
        variances = [i for i, v in enumerate(self.moving) if v.name != "Z2"]
        chains = np.empty((draws, len(variances)))
        for chain in chains:
            new = self.draw()
            for v, x in zip(self.moving, new, strict=True):
                v.set_value(x, borrow=True)
            chain[:] = [new[i] for i in variances]
        named = {self.moving[i].name: x for i, x in zip(variances, chains.T, strict=True)}
        logarithms = {name.removesuffix("_log__"): x if name.endswith("__") else np.log(x) for name, x in named.items()}
        return logarithms, next(v.get_value() for v in self.moving if v.name == "Z2")


def log_prior(name, x):
    """Of the logarithm of a variance."""
    alpha, rate = PRIORS[name]
    return invgamma(alpha, scale=rate).logpdf(np.exp(x)) + x


def log_likelihood(model, point, z, of_a, of_y):
    """Of Y given Z, with A integrated out, for pairs of variances."""
    residuals = model["y_data"].get_value() - np.maximum(z, 0) @ point["W2"].T - point["b2"]
    of_a, of_y = (np.reshape(v, (-1, 1, 1)) * FACTORS[name] ** 2 for name, v in (("of_a", of_a), ("of_y", of_y)))
    covariance = of_y * np.eye(residuals.shape[-1]) + of_a * (point["W2"] @ point["W2"].T)
    columns = np.swapaxes(residuals, -1, -2)
    squares = (np.linalg.solve(covariance, columns) * columns).sum((1, 2))
    return -(squares + columns.shape[-1] * np.linalg.slogdet(2 * np.pi * covariance).logabsdet) / 2


GRID = np.linspace(-5, 4, 91)


@pytest.mark.parametrize(
    ("outputs", "known", "mode"),
    [
        slow(1, (), "JAX"),
        slow(1, (), "NUMBA"),
        slow(4, (), "AS_WRITTEN"),
        slow(4, (), "NUMBA"),
        slow(2, ("of_y",), "NUMBA"),
        slow(2, ("of_a",), "NUMBA"),
    ],
)
def test_collapsed_variances_against_quadrature(outputs, known, mode):
    model = network(outputs, known, transform=outputs != 2)
    chain = Chain(collapsed_variances, model, mode)
    point, names = chain.point, [name for name in ("of_a", "of_y") if name not in known]
    found, z = chain.run(DRAWS[mode])
    assert (z == point["Z2"]).all()
    assert np.ptp(found["of_z"]) == 0
    grids = [GRID if name in names else np.log([0.3]) for name in ("of_a", "of_y")]
    grid = np.array(np.meshgrid(*grids)).reshape(2, -1)
    density = log_likelihood(model, point, z, *np.exp(grid))
    density += sum(log_prior(name, x) for name, x in zip(("of_a", "of_y"), grid, strict=True) if name in names)
    density = np.exp(density - density.max())
    density /= density.sum()
    truth = {name: x for name, x in zip(("of_a", "of_y"), grid, strict=True) if name in names}
    for name, x in truth.items():
        for power in (1, 2):
            check_mean(found[name] ** power, density @ x**power, f"{name} to the power {power}")
    if len(truth) == 2:
        check_mean(found["of_a"] * found["of_y"], density @ (grid[0] * grid[1]), "product")


@pytest.mark.slow
@pytest.mark.parametrize(("outputs", "mode"), [(1, "JAX"), (1, "NUMBA"), (4, "AS_WRITTEN"), (4, "NUMBA")])
def test_noncentred_variance_against_quadrature(outputs, mode):
    model = network(outputs, transform=outputs == 1)
    chain = Chain(noncentred_variance, model, mode)
    point, start = chain.point, next(name for name in chain.names if name.startswith("of_z"))
    first = point[start] if start.endswith("__") else np.log(point[start])
    found, z = chain.run(DRAWS[mode] * 8 // 5)  # it forgets more slowly
    assert np.ptp(found["of_a"]) == np.ptp(found["of_y"]) == 0
    mean = X @ point["W1"].T + point["b1"]
    noise = (point["Z2"] - mean) * np.exp(-first / 2)
    np.testing.assert_allclose(z, mean + noise * np.exp(found["of_z"][-1] / 2), rtol=1e-6)
    others = [np.exp(found[name][0]) for name in ("of_a", "of_y")]
    grid = np.linspace(-6, 5, 1001)
    zs = mean + noise * np.exp(grid[:, None, None] / 2)
    density = log_likelihood(model, point, zs, *others) + log_prior("of_z", grid)
    density = np.exp(density - np.max(density))
    density /= density.sum()
    for power in (1, 2, 3):
        check_mean(found["of_z"] ** power, density @ grid**power, f"power {power}", least_ess=200)


@pytest.mark.parametrize(
    ("function", "outputs", "has_bias"),
    [(lambda z: pt.maximum(z, 0), 2, True), (pt.abs, 1, False), (lambda z: pt.maximum(z, 0.01 * z), 5, True)],
    ids=["relu", "abs", "leaky"],
)
def test_the_distribution_of_the_scale_is_the_joint_density_along_the_orbit(function, outputs, has_bias):
    model = network(outputs, function=function, has_bias=has_bias)
    found, point = read_network(model), random_point(model, 2)
    values = {v: pt.constant(point[v.name]) for v in model.value_vars}
    site = NetworkState.begin(found.at, values, pt.constant(0.0)).site(0)
    p, rising, falling = map(value, layer_scale_conditional(site))
    logp = model.compile_logp(mode="AS_WRITTEN")
    for c in (0.3, 1.9):
        moved = {name: c * point[name] for name in ("W1", "b1", "Z2", "A2") if name in point} | {"W2": point["W2"] / c}
        moved |= {name: point[name] + 2 * np.log(c) for name in ("of_z_log__", "of_a_log__")}
        powers = H * (D + has_bias) + 2 * N * H - H * outputs  # of the Jacobian
        expected = p * np.log(c) - rising * (c**2 - 1) / 2 - falling * (c**-2 - 1) / 2
        np.testing.assert_allclose(logp(point | moved) - logp(point) + powers * np.log(c), expected, rtol=1e-9)


def test_the_scale_of_a_layer_leaves_the_function_unchanged():
    """The move draws one c, by which all moves that it scales; noises in units of their deviations stay as well."""
    model = network(2)
    found, point = read_network(model), random_point(model, 2)
    values = {v: pt.constant(point[v.name]) for v in model.value_vars}
    state = NetworkState.begin(found.at, values, pt.constant(0.0))

    def build(rng):
        rng, site = layer_scale(rng, state.site(0))
        after = state.put(0, site)
        values = [after.new_values[v] for v in model.value_vars]
        return rng, *values, *site.noise, site.mean, *after.network.noises.values()

    *new, noise_z, noise_a, mean, of_z, of_a, of_y = compile_draw(build)()
    new = dict(zip((v.name for v in model.value_vars), new, strict=True))
    c = new["W1"][0, 0] / point["W1"][0, 0]
    assert abs(np.log(c)) > 0.01
    for name, power in {"W1": 1, "b1": 1, "Z2": 1, "A2": 1, "W2": -1, "b2": 0}.items():
        np.testing.assert_allclose(new[name], point[name] * c**power)
    for name, power in {"of_z": 2, "of_a": 2, "of_y": 0}.items():
        np.testing.assert_allclose(new[f"{name}_log__"], point[f"{name}_log__"] + power * np.log(c), atol=1e-12)
    for name, noise in {"of_z": of_z, "of_a": of_a, "of_y": of_y}.items():
        np.testing.assert_allclose(noise, FACTORS[name] ** 2 * np.exp(new[f"{name}_log__"]))
    np.testing.assert_allclose(mean, X @ new["W1"].T + new["b1"])
    np.testing.assert_allclose(noise_z, ((new["Z2"] - mean) ** 2).sum(0))
    np.testing.assert_allclose(noise_a, ((new["A2"] - np.maximum(new["Z2"], 0)) ** 2).sum(0))


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
def test_eigenvalues_at_zero_and_scales_far_apart(mode):
    """Variances of 1e-12 beside eigenvalues of 0 and of 1e6 are drawn, not NaN."""
    numbers = [pt.constant(x) for x in (1e-12, 1e-12, 1.0, 1e-3)]
    numbers_of_data = pt.constant(50.0), pt.constant(np.array([1e-9, 2.0])), pt.constant(np.array([0.0, 1e6]))

    def build(rng):
        rng, noises = draw_variances(rng, numbers[:2], [tuple(numbers[2:])] * 2, *numbers_of_data)
        return rng, *noises

    draw = compile_draw(build, mode)
    found = np.array([draw() for _ in range(50)])
    assert (np.isfinite(found) & (found > 0)).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "draws", "kwargs"),
    [
        (lambda: network(1), 30_000, {}),
        (lambda: network(4), 60_000, {}),
        (lambda: network(2, known=("of_y",)), 60_000, {}),
        (lambda: network(1), 60_000, {"collapse": False}),
        (lambda: network(1, function=pt.tanh), 60_000, {}),
    ],
    ids=["scalar", "four outputs", "known noise of data", "algorithm 1", "tanh"],
)
def test_geweke_with_variances_apart(build, draws, kwargs):
    check_geweke(build(), draws, **NUMBA, **kwargs)


@pytest.mark.slow
def test_geweke_with_the_joint_move_of_all_weights(monkeypatch):
    """The move is for wider layers than this one. The precision of weights, which it moves, too, is learned."""
    monkeypatch.setattr(joint_trajectory, "FEWEST", 1)
    with pm.Model() as model:
        precision, variance = pm.Gamma("precision", 4, 3), pm.InverseGamma("of_y", *PRIORS["of_y"])
        Z2 = pm.Normal("Z2", X @ pm.Normal("W1", 0, precision**-0.5, shape=(H, D)).T, 0.5)
        A2 = pm.Normal("A2", pt.maximum(Z2, 0), 0.6)
        mean = A2 @ pm.Normal("W2", 0, 0.7, shape=H) + pm.Normal("b2", 0, 0.5)
        pm.Normal("y", mean, pt.sqrt(variance), observed=pm.Data("y_data", X[:, 0]))
    assert joint_trajectory.has_joint_trajectory(read_network(model))
    check_geweke(model, 20_000, tune=500, **NUMBA)


LABELS = np.arange(N) % 3


@pytest.mark.parametrize(
    "options",
    [
        slow({"noise": "learned", "prior": "relevance", "likelihood": "normal"}, id="relevance"),
        pytest.param({}, id="default"),
        slow({"noise": "learned", "prior": "learned", "likelihood": "probit", "y": LABELS}, id="probit"),
        slow({"noise": "learned", "prior": "relevance", "noise_hidden": 2}, id="noise of rows"),
    ],
)
def test_the_log_density_is_that_of_the_model(options):
    """PyMC takes logarithms of plain whole numbers in priors, and of their gamma functions, in single precision."""
    model = pmg.mlp(**{"X": X, "y": X[:, 0], "hidden": H} | options)
    step = pmg.GibbsNN(model=model, compile_kwargs=PYTHON, rng=1, **LEAN)
    point, [stats] = step.step(model.initial_point())
    np.testing.assert_allclose(stats["lp"], model.compile_logp(mode="AS_WRITTEN")(point), rtol=0, atol=1e-10)

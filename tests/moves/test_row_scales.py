"""Heteroscedastic noise: what the reader finds, the sweep, and what users meet."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import stats

import pymc_gibbsnn as pmg
from pymc_gibbsnn import _compat
from pymc_gibbsnn.moves.integrated_latent import other_last_latent_integrated
from pymc_gibbsnn.moves.noise_level import has_noise_level, noise_level
from pymc_gibbsnn.moves.row_scales import row_scales
from pymc_gibbsnn.moves.site import NetworkState, in_turn
from pymc_gibbsnn.moves.weights import draw_weights_of
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.networks.reader import read_network, read_networks
from pymc_gibbsnn.networks.scales_of_rows import numbers_of_scale
from tests.helpers import MODES, MOSTLY_PYTHON, check_moments, compile_draw, random_point, slow
from tests.samplers.test_gibbs import FAST, NUMBA, PARALLEL, PLAIN, check_geweke, gibbs

N, D = 6, 2
X = np.random.default_rng(0).normal(size=(N, D))
HALF = np.array(0.5)
SHARED = pytensor.shared(0.5)


def relu(z):
    return pt.maximum(z, 0)


def bounded(g):
    return pmg.row_scale(g, slope=-1, intercept=1 + np.log(4), floor=0.1, span=4)


AROUND = {
    "student": lambda z, s, **data: pm.StudentT("y", np.float64(4), z, sigma=s, **data),
    "laplace": lambda z, s, **data: pm.Laplace("y", z, b=s, **data),
    "normal": lambda z, s, **data: pm.Normal("y", z, s, **data),
}


def scaled_network(
    outputs=None,
    hidden=2,
    scale_of=lambda g: pt.exp(HALF * g),
    function=relu,
    x=X,
    bias=False,
    around=None,
    alike=False,
):
    """A network of one hidden layer and another one, of one hidden layer, that gives its noise.

    Data are its output or have a distribution around it, whose variance may be that of the output.
    """
    y = np.random.default_rng(1).normal(size=(len(x),) if outputs is None else (len(x), outputs))
    units = () if outputs is None else (outputs,)
    with pm.Model() as model:
        data = pm.Data("y_data", y)
        V1, c1 = pm.Normal("V1", 0, 1, shape=(2, D)), pm.Normal("c1", 0, 1, shape=2)
        H = pm.Normal("H", x @ V1.T + c1, 1.0)
        B = pm.Normal("B", pt.maximum(H, 0), 1.0)
        V2 = pm.Normal("V2", 0, 0.5, shape=2)
        level = pm.Normal("c2", 0, 0.7) if bias else 0
        G = pm.Normal("G", B @ V2 + level, pt.sqrt(pm.InverseGamma("of_g", 5, 4)))
        scale = scale_of(G)
        of_z, of_y = (pt.sqrt(pm.InverseGamma(k, 5, 4)) for k in ("of_z", "of_y"))
        W1, b1 = pm.Normal("W1", 0, 1, shape=(hidden, D)), pm.Normal("b1", 0, 1, shape=hidden)
        Z2 = pm.Normal("Z2", x @ W1.T + b1, of_z * scale[:, None])
        A2 = pm.Normal("A2", function(Z2), scale[:, None])
        W2, b2 = pm.Normal("W2", 0, 0.5, shape=(*units, hidden)), pm.Normal("b2", 0, 0.5, shape=units)
        scale = scale[:, None] if units else scale
        if around is None:
            pm.Normal("y", A2 @ W2.T + b2, of_y * scale, observed=data)
        else:
            Z3 = pm.Normal("Z3", A2 @ W2.T + b2, (of_y if alike else HALF) * scale)
            AROUND[around](Z3, of_y * scale, observed=data)
    return model


def test_both_networks_are_read():
    model = scaled_network()
    of_noise, network = read_networks(model)
    assert [layer.name for layer in of_noise.layers] == ["H", "G"]
    assert [layer.name for layer in network.layers] == ["Z2", "y"]
    assert [v.name for v in network.variances] == ["of_z", "of_y"]
    assert [v.name for v in of_noise.variances] == ["of_g"]
    assert network.row_scale.type.broadcastable == (False, True)
    assert read_network(model).layers[-1].name == "y"
    numbers = [getattr(of_noise.observation, name).get_value() for name in ("slope", "intercept", "floor", "span")]
    np.testing.assert_allclose(numbers, [1, 0, 0, np.inf], atol=1e-12)
    assert {v.name for v in gibbs(model).vars} == {v.name for v in model.value_vars}


@pytest.mark.parametrize(
    ("outputs", "scale_of"),
    [
        *(slow(outputs, pt.exp) for outputs in (None, 3)),
        *(slow(outputs, lambda g: pmg.row_scale(g, -1, 1, 0.5)) for outputs in (None, 3)),
        slow(None, bounded),
        (3, bounded),
    ],
)
@pytest.mark.parametrize("kwargs", [{}, slow(PLAIN), slow({"interweave": "langevin"}), slow(PARALLEL)])
def test_lp_is_the_log_density_of_the_model(outputs, scale_of, kwargs):
    check_lp(scaled_network(outputs, scale_of=scale_of), **kwargs)


def check_lp(model, **kwargs):
    logp, start = model.compile_logp(mode="AS_WRITTEN"), random_point(model, 0)
    point, [found] = gibbs(model, **kwargs).step(start)
    np.testing.assert_allclose(found["lp"], logp(point), rtol=1e-9, atol=1e-6)
    latents = {"Z2", "A2", "Z3", "H", "B"} & set(start)
    assert all((point[name] != start[name]).all() for name in ("W1", "V1", *latents))


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize(
    ("outputs", "around"), [(None, "student"), slow(3, "student"), slow(None, "laplace"), (3, "normal")]
)
@pytest.mark.parametrize("kwargs", [{}, slow(PLAIN), slow(PARALLEL)])
def test_lp_where_data_are_around_the_output(outputs, around, alike, kwargs):
    model = scaled_network(outputs, around=around, alike=alike)
    of_noise, network = read_networks(model)
    assert [layer.name for layer in network.layers] == ["Z2", "Z3"]
    assert network.observation.factors is None
    assert has_noise_level(of_noise)
    check_lp(model, **kwargs)


def with_learned_degrees():
    """Student's t, with degrees of freedom that are learned, in a linear network."""
    with pm.Model() as model:
        scale = pt.exp(HALF * pm.Normal("G", X @ pm.Normal("V1", 0, 1, shape=D), 1.0))
        z = pm.Normal("Z2", X @ pm.Normal("W1", 0, 1, shape=D), scale)
        data = pm.Data("y_data", X[:, 0])
        pm.StudentT("y", pm.Gamma("nu", 8, 2), z, sigma=0.7 * scale, observed=data)
    return model


def test_parameters_of_the_data_are_drawn_with_scales_of_rows():
    model = with_learned_degrees()
    assert {v.name for v in gibbs(model).vars} == {"V1", "G", "W1", "Z2", "nu_log__"}
    check_lp(model)


FORMS = {
    "half": (lambda g: pt.exp(g / 2), (1, 0, 0, np.inf)),
    "deterministic": (lambda g: pm.Deterministic("scale", pt.exp(pm.Deterministic("of_g", 2 * g))), (4, 0, 0, np.inf)),
    "root": (lambda g: pt.sqrt(pt.exp(g)), (1, 0, 0, np.inf)),
    "power": (lambda g: pt.exp(g) ** 0.5, (1, 0, 0, np.inf)),
    "tau": (lambda g: pt.sqrt(1 / pt.exp(-g)), (1, 0, 0, np.inf)),
    "falling": (lambda g: 1 / pt.exp(3 * g - 1), (-6, 2, 0, np.inf)),
    "shifted": (lambda g: pt.exp(np.array(0.5) * (g - 30)), (1, -30, 0, np.inf)),
    "cast": (lambda g: pt.exp(HALF * g).astype("float32").astype("float64"), (1, 0, 0, np.inf)),
    "large": (lambda g: np.array(1e50) * pt.exp(HALF * g), (1, np.log(1e100), 0, np.inf)),
    "row_scale": (pmg.row_scale, (1, 0, 0, np.inf)),
    "all numbers": (bounded, (-1, 1 + np.log(4), 0.1, 4)),
    "jitter": (lambda g: pmg.row_scale(g, floor=1e-16), (1, 0, 1e-16, np.inf)),
    "slow and bounded": (lambda g: pmg.row_scale(g, slope=0.02, span=3), (0.02, 0, 0, 3)),
    "of a line": (lambda g: pmg.row_scale(1 - 2 * g, 3, 1, 0.5, 2), (-6, 4, 0.5, 2)),
    "a number times it": (lambda g: 2 * pmg.row_scale(g, floor=0.5, span=2), (1, np.log(4), 2, 8)),
    "named": (lambda g: pm.Deterministic("scale", pmg.row_scale(g, floor=0.5)), (1, 0, 0.5, np.inf)),
    "the root of one": (lambda g: pt.sqrt(pmg.row_scale(g)), (0.5, 0, 0, np.inf)),
}


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("name", FORMS)
def test_the_numbers_of_a_scale(name, precision):
    write_scale, expected = FORMS[name]
    for shape in (N, (N, 1)):
        with pytensor.config.change_flags(floatX=precision), pm.Model():
            G = pm.Normal("G", 0, 1, shape=shape)
            assert G.dtype == precision
            np.testing.assert_allclose(numbers_of_scale(write_scale(G), G), expected, rtol=1e-14)


def test_scales_that_are_known_make_a_weighted_regression():
    errors = np.array([0.1, 0.5, 1.0, 2.0, 0.3, 0.7])
    with pm.Model() as model:
        error = pm.Data("error", errors)
        y = pm.Data("y_data", X[:, 0])
        b = pm.Normal("b", 0, 1.0)
        pm.Normal("y", X @ pm.Normal("W", 0, 1.0, shape=D) + b, HALF * error, observed=y)
    step, design = gibbs(model), np.column_stack([X, np.ones(N)]) / (0.5 * errors[:, None])
    [network] = read_networks(model)
    assert network.observation is None
    for wrong, message in (
        (errors[:3], "a number for each of 6 rows; found 3 numbers"),
        (-errors, "positive and finite"),
    ):
        pm.set_data({"error": wrong}, model)
        with pytest.raises(NetworkError, match=message):
            pmg.GibbsNN(model=model)
    pm.set_data({"error": errors}, model)
    point = model.initial_point()
    draws = [np.append(point["W"], point["b"]) for _ in range(1500) if (point := step.step(point)[0])]
    covariance = np.linalg.inv(design.T @ design + np.eye(D + 1))
    check_moments(np.array(draws), covariance @ design.T @ (X[:, 0] / (0.5 * errors)), covariance)


# What is refused


def write(of_z=pt.exp, of_a=pt.exp, of_y=pt.exp, function=relu, latent=lambda mean: mean, more=lambda g: 0):
    """A network with these functions of a latent G as scales of its noises."""
    with pm.Model() as model:
        V = pm.Normal("V", 0, 1, shape=D)
        G = pm.Normal("G", latent(X @ V), HALF)
        Z2 = pm.Normal("Z2", X @ pm.Normal("W1", 0, 1, shape=(2, D)).T, of_z(G)[:, None])
        A2 = pm.Normal("A2", function(Z2), HALF * of_a(G)[:, None])
        pm.Normal("y", A2 @ pm.Normal("W2", 0, 1, shape=2) + more(G), of_y(G), observed=X[:, 0])
    return model


def alike(scale, **kwargs):
    return lambda: write(scale, scale, scale, **kwargs)


def with_errors(errors):
    with pm.Model() as model:
        pm.Normal("y", X @ pm.Normal("W", 0, 1, shape=D), errors, observed=X[:, 0])
    return model


UNREAD = r"must be pmg.row_scale\(G\), or a power of exp\(a G \+ b\) with known numbers a and b, .* found .* "
UNREAD += r"root of f \+ exp\(a G \+ b\) as pmg.row_scale\(G, a, b, f\)"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: write(of_y=lambda g: pt.exp(2 * g)), r"'y', 'A2', 'Z2' must be numbers times the same scale"),
        (lambda: write(of_y=lambda g: HALF), r"sigma of 'A2', 'Z2' differs between rows, and that of 'y' does not"),
        (lambda: write(function=pt.tanh), r"σ\(c z\) = c σ\(z\) for every c > 0, .* found others at \['A2'\]"),
        (alike(lambda g: pt.exp(g**2)), UNREAD),
        (alike(lambda g: pt.exp(g**3)), UNREAD),
        (alike(lambda g: pt.exp(pt.clip(g, -50, 50))), UNREAD),
        (alike(lambda g: pt.exp(g * SHARED)), UNREAD),
        (alike(lambda g: pt.exp(g / 2) + 1), UNREAD),
        (alike(pt.sigmoid), UNREAD),
        (alike(lambda g: pt.sqrt(pt.exp(g) + HALF)), UNREAD),
        (alike(lambda g: pt.sqrt(HALF + pt.sigmoid(g))), UNREAD),
        (alike(lambda g: pmg.row_scale(g, floor=0.1) ** 2), UNREAD),
        (alike(lambda g: pmg.row_scale(g) + HALF), UNREAD),
        (alike(lambda g: pmg.row_scale(g) * pmg.row_scale(g)), UNREAD),
        (alike(lambda g: pmg.row_scale(pmg.row_scale(g))), UNREAD),
        (alike(lambda g: pmg.row_scale(g**2)), UNREAD),
        (alike(lambda g: pmg.row_scale(g * SHARED)), UNREAD),
        (alike(lambda g: pmg.row_scale(g[::-1])), UNREAD),
        (alike(lambda g: pt.exp(g)[::-1]), UNREAD),
        (alike(lambda g: pt.exp(0 * g)), UNREAD),
        (alike(lambda g: 1 + 0 * g), UNREAD),
        (alike(lambda g: pt.exp(abs(g) / 2)), UNREAD),
        (alike(lambda g: 1 + pt.tanh(g) ** 2), UNREAD),
        (alike(lambda g: 1 / g), UNREAD),
        (alike(lambda g: pt.exp(g / 2) * (1 + pt.exp(-(((g - 6.25) / 0.2) ** 2)))), UNREAD),
        (alike(lambda g: pt.exp(g) * np.linspace(1, 2, N)), UNREAD),
        (alike(lambda g: pt.exp(g) / pt.exp(g).mean()), r"a number times a scale .* both depend on 'G'"),
        (
            lambda: write(more=lambda g: g),
            r"'G', .* must enter nothing else; it enters the mean of 'y', too",
        ),
        (lambda: with_errors(-np.ones(N)), r"sigma of 'y' must be positive and finite; found -1"),
        (lambda: with_errors(np.zeros(N)), r"sigma of 'y' must be positive and finite; found 0"),
    ],
)
def test_refused(model, message):
    with pytest.raises(NetworkError, match=message):
        pmg.GibbsNN(model=model())


def test_scales_of_the_wrong_length_are_refused():
    with pm.Model() as model:
        G = pm.Normal("G", X[:3] @ pm.Normal("V", 0, 1, shape=D), 1)
        groups = np.repeat([0, 1, 2], 2)
        pm.Normal("y", X @ pm.Normal("W", 0, 1, shape=D), pt.exp(G[groups]), observed=X[:, 0])
    with pytest.raises(NetworkError, match=r"'G', .* must have a number for each of 6 rows; its shape is \(3,\)"):
        pmg.GibbsNN(model=model)


def test_two_products_with_one_latent_are_refused():
    with pm.Model() as model:
        G = pm.Normal("G", X @ pm.Normal("V", 0, 1, shape=D), 1)
        mean = X @ pm.Normal("W", 0, 1, shape=D) + X @ pm.Normal("U", 0, 1, shape=D)
        pm.Normal("y", mean, pt.exp(G), observed=X[:, 0])
    with pytest.raises(NetworkError, match="'y' holds two products"):
        pmg.GibbsNN(model=model)


def test_the_network_of_the_noise_does_not_move_alone():
    model = scaled_network()
    with pytest.raises(NetworkError, match=r"'G' moves with the latents .* vars=, too"):
        pmg.GibbsNN(vars=[model[name] for name in ("V1", "c1", "V2", "H", "B", "G", "of_g")], model=model)
    main = [model[name] for name in ("W1", "b1", "W2", "b2", "Z2", "A2", "of_z", "of_y")]
    assert len(pmg.GibbsNN(vars=main, model=model, **FAST, **PLAIN).vars) == len(main)


@pytest.mark.slow
def test_wide_data():
    """With more columns than rows the data layer draws in the space of rows."""
    x = np.random.default_rng(0).normal(size=(N, 20))
    with pm.Model() as model:
        error = pm.Data("error", np.linspace(0.5, 2, N))
        Z2 = pm.Normal("Z2", x @ pm.Normal("W1", 0, 0.3, shape=(2, 20)).T, HALF * error[:, None])
        A2 = pm.Normal("A2", relu(Z2), error[:, None])
        pm.Normal("y", A2 @ pm.Normal("W2", 0, 1, shape=2), error, observed=pm.Data("y_data", X[:, 0]))
    check_geweke(model, 6000, interweave=False, scale_move=False, **NUMBA)


# Oracles: the move by quadrature, the sweep by the prior


DENSITIES = {
    "student": lambda y, z, s: stats.t.logpdf(y, 4, z, s),
    "laplace": stats.laplace.logpdf,
    "normal": stats.norm.logpdf,
}
ON_LATENTS = np.linspace(-8, 8, 1601)  # in units of deviations of the last latent


def over_latents(around, y, mean, sigma, s):
    """The density of data and of the last latent at points of the latter, up to a constant, along the last axis."""
    y, mean, sigma, s = (np.asarray(x)[..., None] for x in (y, mean, sigma, s))
    return np.exp(DENSITIES[around](y, mean + sigma * ON_LATENTS, s) + stats.norm.logpdf(ON_LATENTS))


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
@pytest.mark.parametrize(
    ("outputs", "floor", "span", "around"),
    [
        (None, 0.0, np.inf, None),
        (2, 0.7, np.inf, None),
        (None, 0.1, 4.0, None),
        (None, 0.1, 4.0, "student"),
        slow(2, 0.7, np.inf, "student"),
        slow(None, 0.0, np.inf, "laplace"),
        slow(2, 0.0, np.inf, "normal"),
    ],
)
def test_the_move_against_quadrature(outputs, floor, span, around, mode):
    """Every row is a chain of its own, with the noise of its latents in units of its scale held fixed.

    But for that of a last latent around which data are: it is integrated out.
    """
    copies = 1500

    def squared(g):
        return floor + 1 / (np.exp(-0.8 * g - 0.6) + 1 / span)

    x, y = np.repeat(X[:2], copies, axis=0), np.repeat([[0.3, -1.0], [2.0, 6.0]], copies, axis=0)
    model = scaled_network(outputs, scale_of=lambda g: pmg.row_scale(g, 0.8, 0.6, floor, span), x=x, around=around)
    model["y_data"].set_value(y if outputs else y[:, 0])
    of_noise, _ = read_networks(model)
    start = random_point(model, 3)
    for name in {"H", "B", "Z2", "A2", "Z3", "G"} & set(start):  # the same in all rows of a kind
        start[name] = np.repeat(start[name][[0, copies]], copies, axis=0)
    start["Z2"] = x @ start["W1"].T + start["b1"] + np.array([0.5, -0.3])
    start["A2"] = np.maximum(start["Z2"], 0) + np.array([0.2, -0.4])
    values = {v: pytensor.shared(start[v.name], v.name) for v in model.value_vars}
    move = row_scales(of_noise) if around is None else other_last_latent_integrated(row_scales(of_noise))
    moving = [v for v in model.value_vars if v.name in ("G", "Z2", "A2", "Z3")]

    def build(rng):
        state = NetworkState.begin(of_noise.at, values, pt.constant(0.0))
        rng, state, _, found = move.step(rng, state, {})
        new = state.new_values
        return rng, *(new[v] for v in moving), *found.values()

    draw = compile_draw(build, mode)
    for _ in range(40):
        *new, acceptance = draw()
        for v, found in zip(moving, new, strict=True):
            values[v].set_value(np.asarray(found, v.dtype))
    assert acceptance > 0.7
    found = {v.name: values[v].get_value() for v in moving}
    w1, b1, w2, b2 = (start[name] for name in ("W1", "b1", "W2", "b2"))
    w2, b2 = np.atleast_2d(w2), np.atleast_1d(b2)
    of_g, of_y = (np.exp(start[f"{name}_log__"]) for name in ("of_g", "of_y"))
    grid = np.linspace(-12, 12, 4001)
    for row in (0, copies):
        c = np.sqrt(squared(start["G"][row]))
        scale = np.sqrt(squared(grid))[:, None]
        mean = x[row] @ w1.T + b1
        z = mean + scale * (start["Z2"][row] - mean) / c
        a = np.maximum(z, 0) + scale * (start["A2"][row] - np.maximum(start["Z2"][row], 0)) / c
        data = y[row, : outputs or 1]
        mean_of_data, s = a @ w2.T + b2, scale * np.sqrt(of_y)
        if around is None:
            density = stats.norm.logpdf(data, mean_of_data, s).sum(1)
        else:
            density = np.log(over_latents(around, data, mean_of_data, 0.5 * scale, s).sum(-1)).sum(1)
        density += stats.norm.logpdf(grid, start["B"][row] @ start["V2"], np.sqrt(of_g))
        density = np.exp(density - density.max())
        cdf = np.cumsum(density) / density.sum()
        these = slice(row, row + copies)
        drawn = found["G"][these]
        assert stats.kstest(drawn, lambda g, cdf=cdf: np.interp(g, grid, cdf)).pvalue > 1e-3
        if around is not None:  # Z3 given all else
            scale, z = np.sqrt(squared(drawn))[:, None], found["Z3"][these].reshape(copies, -1)
            mean_of_data = found["A2"][these] @ w2.T + b2
            t = (z - mean_of_data) / (0.5 * scale)
            weights = over_latents(around, data, mean_of_data, 0.5 * scale, scale * np.sqrt(of_y))
            below = (weights * (t[..., None] > ON_LATENTS)).sum(-1) / weights.sum(-1)
            for k in range(below.shape[1]):
                assert stats.kstest(below[:, k], "uniform").pvalue > 1e-3
        c_new = np.sqrt(squared(drawn[0]))
        np.testing.assert_allclose(found["Z2"][row], mean + c_new * (start["Z2"][row] - mean) / c, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("outputs", "scale_of", "data"),
    [
        (None, lambda g: pt.exp(HALF * g), {}),
        (3, lambda g: HALF * pmg.row_scale(g, -0.8, 1, 0.5), {}),
        (None, bounded, {}),
        (None, bounded, {"around": "student"}),
        (3, bounded, {"around": "student", "alike": True}),
        (None, lambda g: pt.exp(HALF * g), {"around": "laplace", "alike": True}),
    ],
)
def test_the_move_of_the_level_by_the_density_of_the_model(outputs, scale_of, data, mode):
    """Along the line on which it moves, which one step shows; the density is that of PyMC.

    That of data around a last latent, which is integrated out, is a sum over its values.
    """
    model = scaled_network(outputs, scale_of=scale_of, bias=outputs is not None, **data)
    of_noise, _ = read_networks(model)
    move = other_last_latent_integrated(noise_level) if data else in_turn(noise_level)
    assert has_noise_level(of_noise)
    start = random_point(model, 5)
    values = {v: pytensor.shared(start[v.name], v.name) for v in model.value_vars}
    parts = {"V2", "G", "c2"} & set(start)
    moving = {*parts, "Z2", "A2", "of_y_log__", *({"Z3"} & set(start))}

    def build(rng):
        state = NetworkState.begin(of_noise.at, values, pt.constant(0.0))
        rng, state, *_ = move.step(rng, state, {})
        return rng, *(state.new_values[v] for v in values)

    draw, ts, last = compile_draw(build, mode), [], {}
    for _ in range(12_000 if mode == "NUMBA" else 1500):
        for v, x in zip(values, draw(), strict=True):
            values[v].set_value(np.asarray(x, v.dtype))
            last[v.name] = x
        ts.append(float(last["of_y_log__"] - start["of_y_log__"]))
        if len(ts) == 200:
            point, t = dict(last), ts[-1]
    assert t != 0
    assert {name for name in start if not np.array_equal(point[name], start[name])} == moving

    G = pt.vector()
    scale = pytensor.function([G], scale_of(G), mode="AS_WRITTEN")
    means = X @ start["W1"].T + start["b1"]
    noises = start["Z2"] - means, start["A2"] - np.maximum(start["Z2"], 0)
    line = {name: (point[name] - start[name]) / t for name in parts}

    def at(t):
        new = start | {name: start[name] + t * line[name] for name in line}
        new["of_y_log__"] = start["of_y_log__"] + t
        ratio = (scale(new["G"]) / scale(start["G"]))[:, None]
        new["Z2"] = means + ratio * noises[0]
        new["A2"] = np.maximum(new["Z2"], 0) + ratio * noises[1]
        return new, 4 * np.log(ratio).sum()  # two numbers of Z2 and two of A2 in each row

    expected, _ = at(t)
    for name in moving - {"Z3"}:
        np.testing.assert_allclose(point[name], expected[name], rtol=1e-8, atol=1e-10)
    rvs = [rv for rv in model.basic_RVs if not data or rv.name not in ("Z3", "y")]
    logp, grid = model.compile_logp(vars=rvs, mode="AS_WRITTEN"), np.linspace(-8, 8, 801)

    def of_data(new):
        if not data:
            return 0.0
        mean = new["A2"] @ np.atleast_2d(new["W2"]).T + new["b2"]
        c, variance = scale(new["G"])[:, None], np.exp(new["of_y_log__"])
        sigma = (np.sqrt(variance) if "alike" in data else 0.5) * c
        y = model["y_data"].get_value().reshape(mean.shape)
        return np.log(over_latents(data["around"], y, mean, sigma, np.sqrt(variance) * c).sum(-1)).sum()

    density = np.array([logp(new) + of_data(new) + jacobian for new, jacobian in map(at, grid)])
    cdf = np.cumsum(np.exp(density - density.max()))
    assert cdf[0] < 1e-4 * cdf[-1]
    drawn = np.array(ts[500::25])
    assert stats.kstest(drawn, lambda x: np.interp(x, grid, cdf / cdf[-1])).pvalue > 1e-3


def test_models_without_a_move_of_the_level():
    fixed, linear = (
        pmg.mlp(INPUTS, TARGETS, 2, noise=noise, noise_hidden=[], prior=None) for noise in (0.5, "learned")
    )
    wide = pmg.mlp(
        np.random.default_rng(0).normal(size=(9, 10)), TARGETS[:9], 2, noise="learned", noise_hidden=[], prior=None
    )
    found = [has_noise_level(read_networks(model)[0]) for model in (fixed, linear, wide)]
    assert found == [False, True, False]
    assert not has_noise_level(read_networks(linear)[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "kwargs"),
    [
        (None, {}),
        (None, {"interweave": "langevin"}),
        (None, PLAIN),
        (None, PARALLEL),
        (2, {}),
    ],
)
def test_geweke(outputs, kwargs):
    check_geweke(scaled_network(outputs), 8000, **NUMBA, **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "kwargs"),
    [
        ({"around": "student"}, {}),
        ({"around": "student", "alike": True, "outputs": 2}, {}),
        ({"around": "student", "alike": True, "scale_of": bounded}, PLAIN),
        ({"around": "laplace", "alike": True}, {}),
        ({"around": "normal"}, {"interweave": "langevin"}),
        ({"around": "student"}, PARALLEL),
    ],
)
def test_geweke_where_data_are_around_the_output(model, kwargs):
    check_geweke(scaled_network(**model), 8000, **NUMBA, **kwargs)


@pytest.mark.slow
def test_geweke_with_learned_degrees_of_freedom():
    check_geweke(with_learned_degrees(), 8000, **NUMBA)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        {"function": abs},
        {"scale_of": lambda g: pmg.row_scale(g, -1, 1, 0.5)},
        {"scale_of": bounded},
    ],
)
def test_geweke_of_other_models(model):
    check_geweke(scaled_network(**model), 8000, **NUMBA)


def test_annealing_is_that_of_both_networks():
    """While noise is far larger than its own variance, scales do not take it for that of rows."""
    model = pmg.mlp(INPUTS, TARGETS, [], noise=0.01, noise_hidden=[], prior=None)
    step = pmg.GibbsNN(model=model, anneal=100.0, rng=1, **FAST)
    point = model.initial_point()
    for _ in range(20):
        point, _ = step.step(point)
    assert np.abs(point["Z2_noise"]).mean() < 3


# What users meet

ROWS = 60
INPUTS = np.random.default_rng(2).normal(size=(ROWS, D))
TARGETS = np.sin(INPUTS[:, 0]) + np.exp(INPUTS[:, 1]) * 0.1 * np.random.default_rng(3).normal(size=ROWS)
RECORDED = ["W1", "b1", "W2", "b2", "variance_Z2", "variance_A2", "variance_y"]
RECORDED += ["W1_noise", "b1_noise", "W2_noise", "variance_Z2_noise", "variance_A2_noise", "variance_Z3_noise"]


def squared_scale(g):
    return 0.1 + 10 / (1 + np.exp(np.log(10) - g))


def learned_noise(**kwargs):
    return pmg.mlp(INPUTS, TARGETS, 4, noise="learned", prior="relevance", noise_hidden=3, **kwargs)


def test_the_model_in_one_call():
    model = learned_noise()
    shapes = model.eval_rv_shapes()
    assert shapes["W1_noise"] == (3, D)
    assert shapes["Z2_noise"] == shapes["A2_noise"] == (ROWS, 3)
    assert shapes["W2_noise"] == (3,)
    assert shapes["Z3_noise"] == (ROWS,)
    assert "b2_noise" not in shapes
    assert model.named_vars_to_dims["W1_noise"] == ("hidden_2_noise", "feature")
    of_noise = read_networks(model)[0]
    found = [getattr(of_noise.observation, name).get_value() for name in ("slope", "intercept", "floor", "span")]
    np.testing.assert_array_equal(found, [1, 0, 0.1, 10])
    learned = {v.name for v in of_noise.variances}
    assert learned == {f"variance_{z}_noise" for z in ("Z2", "A2", "Z3")} | {"precision_W1_noise", "precision_W2_noise"}
    linear = pmg.mlp(INPUTS, np.column_stack([TARGETS, TARGETS]), [4, 3], noise=0.5, noise_hidden=[], prior=None)
    assert [len(network.layers) for network in read_networks(linear)] == [1, 3]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"likelihood": "mixture"}, "goes with likelihood='student', 'normal' or 'laplace', .* found 'mixture'"),
        ({"lower": -9.0}, "without lower= and upper=; found bounds"),
        ({"activation": "tanh"}, "needs an activation for which .*: 'relu', 'leaky_relu', 'abs', 'identity'"),
    ],
)
def test_what_the_model_refuses(kwargs, message):
    with pytest.raises(ValueError, match=message):
        learned_noise(**kwargs)
    with pytest.raises(ValueError, match="noise_hidden must hold positive integers"):
        pmg.mlp(INPUTS, TARGETS, 4, noise_hidden=0, noise=0.1, prior=None)


@pytest.fixture(scope="module", params=["normal", "student"])
def posterior(request):
    """A short posterior by Numba, as ``pm.sample`` takes it."""
    with learned_noise(likelihood=request.param) as model:
        idata = pm.sample(
            300, tune=300, chains=2, cores=1, step=pmg.GibbsNN(compile_kwargs={"mode": "NUMBA"}),
            var_names=RECORDED, random_seed=1, progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    return model, idata


@pytest.mark.slow
def test_predictions_know_where_noise_is_large(posterior):
    model, idata = posterior
    low, high = np.array([[0.0, -1.5]]), np.array([[0.0, 1.5]])
    sds = [pmg.predict(idata, model, x, random_seed=1)["sd"].item() for x in (low, high)]
    assert sds[1] > 2 * sds[0]
    x = np.concatenate([low, high])
    function = pmg.function_space(idata, model, X_new=x)
    assert function["output"].shape == (2, 300, 2)
    at = {name: idata.posterior[name].values for name in RECORDED}
    hidden = np.maximum(np.einsum("nd,cshd->csnh", x, at["W1_noise"]) + at["b1_noise"][:, :, None], 0)
    g = np.einsum("csnh,csh->csn", hidden, at["W2_noise"])
    np.testing.assert_allclose(function["log_noise"], np.log(at["variance_y"][..., None] * squared_scale(g)) / 2)
    mean_only = {"posterior": _compat.dataset_of(idata, "posterior")[["W1", "b1", "W2", "b2"]]}
    assert "log_noise" not in pmg.function_space(mean_only, model, X_new=x)
    rows = list(pmg.summary(idata, model).index)
    assert rows[:2] == ["output", "log_noise"]
    assert "variance_y" in rows
    assert not {"W1", "W1_noise", "b1_noise", "W2_noise"} & set(rows)  # hidden units can change places


@pytest.mark.parametrize("outputs", [slow(None), slow(1), 2])
def test_the_noise_of_rows_is_told(outputs):
    """Where the inputs are no pm.Data, too."""
    model = scaled_network(outputs)
    rvs = [rv for rv in model.free_RVs if rv.name not in ("H", "B", "G", "Z2", "A2")]
    values = pm.draw(rvs, draws=6, random_seed=1, mode="AS_WRITTEN")
    at = {rv.name: x.reshape(2, 3, *x.shape[1:]) for rv, x in zip(rvs, values, strict=True)}
    found = pmg.function_space({"posterior": _compat.dataset(model, at, 0)}, model, X[:4])
    assert found["log_noise"].dims == found["output"].dims
    hidden = relu(np.einsum("nd,cshd->csnh", X[:4], at["V1"]) + at["c1"][:, :, None]).eval()
    g = np.einsum("csnh,csh->csn", hidden, at["V2"])
    expected = xr.DataArray(np.log(at["of_y"][..., None] * np.exp(g)) / 2, dims=("chain", "draw", "point"))
    np.testing.assert_allclose(found["log_noise"], expected.broadcast_like(found["output"]))
    without = {"posterior": _compat.dataset(model, {k: x for k, x in at.items() if k != "of_y"}, 0)}
    assert "log_noise" not in pmg.function_space(without, model, X[:4])


@pytest.mark.parametrize("likelihood", ["normal", "student"])
def test_the_noise_of_rows_is_told_where_that_of_y_is_known(likelihood):
    model = pmg.mlp(INPUTS, TARGETS, [], noise=0.5, noise_hidden=[], prior=None, likelihood=likelihood)
    rng = np.random.default_rng(0)
    at = {name: rng.normal(size=(1, 3, *model[name].eval().shape)) for name in ("W1", "b1", "W1_noise")}
    found = pmg.function_space({"posterior": _compat.dataset(model, at, 0)}, model)["log_noise"]
    g = np.einsum("nd,csd->csn", INPUTS, at["W1_noise"])
    np.testing.assert_allclose(found, np.log(0.5**2 * squared_scale(g)) / 2)


def test_weights_are_drawn_where_rows_have_scales_and_noise_of_their_own():
    """Inputs, and ones, are divided by both."""
    x, c, noise = X, np.linspace(0.5, 2, N)[:, None], np.linspace(1, 3, N)[::-1, None]
    layer = read_network(pmg.mlp(x, x[:, 0], [], noise=1.0, prior=1.0)).layers[0]
    layer = replace(layer, noise=pt.constant(noise), operator=layer.operator.of_scaled_rows(pt.constant(1 / c)))
    z = np.random.default_rng(1).normal(size=(N, 1))

    def build(rng):
        return draw_weights_of(rng, layer, pt.constant(x / c), pt.constant(z / c), pt.constant(N))

    draw = compile_draw(build)
    draws = np.array([draw()[0] for _ in range(2000)])
    design = np.column_stack([x, np.ones(N)]) / (c * np.sqrt(noise))
    covariance = np.linalg.inv(design.T @ design + np.eye(D + 1))
    check_moments(draws, covariance @ design.T @ (z / (c * np.sqrt(noise)))[:, 0], covariance)


def test_new_inputs_of_one_network_are_not_those_of_the_other():
    with pm.Model() as model:
        inputs, others = pm.Data("X", X), pm.Data("U", -X)
        g = pm.Normal("G", others @ pm.Normal("V", 0, 1, shape=D), 1.0)
        scale = pt.exp(HALF * g)
        z = pm.Normal("Z2", inputs @ pm.Normal("W1", 0, 1, shape=(2, D)).T, scale[:, None])
        a = pm.Normal("A2", relu(z), scale[:, None])
        pm.Normal("y", a @ pm.Normal("W2", 0, 1, shape=2), scale, observed=np.zeros(N))
    values = pm.draw([model[name] for name in ("V", "W1", "W2")], draws=2, random_seed=1, mode="AS_WRITTEN")
    at = {name: x[None] for name, x in zip(("V", "W1", "W2"), values, strict=True)}
    posterior = {"posterior": _compat.dataset(model, at, 0)}
    found = pmg.function_space(posterior, model)["log_noise"]
    np.testing.assert_allclose(found, -np.einsum("nd,csd->csn", X, at["V"]) / 2, atol=1e-12)
    assert "log_noise" not in pmg.function_space(posterior, model, X[:4])


@pytest.mark.slow
def test_the_density_is_that_of_the_model_with_latents_drawn_anew(posterior):
    """By brute force, for one draw of the posterior, at a row of little noise and one of much."""
    model, idata = posterior
    one = idata.posterior.isel(chain=0, draw=-1)
    rows = np.argsort(INPUTS[:, 1])[[5, -5]]
    rng, x, y = np.random.default_rng(0), INPUTS[rows], TARGETS[rows]
    n = 200_000

    def noisy(mean, name, scale=1.0):
        return mean + np.sqrt(float(one[f"variance_{name}"])) * scale * rng.normal(size=np.shape(mean))

    def ascend(suffix, scale=1.0):
        mean = x @ one[f"W1{suffix}"].values.T + one[f"b1{suffix}"].values
        z = noisy(np.repeat(mean[None], n, axis=0), f"Z2{suffix}", scale)
        return noisy(np.maximum(z, 0), f"A2{suffix}", scale) @ one[f"W2{suffix}"].values

    scale = np.sqrt(squared_scale(noisy(ascend("_noise"), "Z3_noise")))
    mean, sd = ascend("", scale[..., None]) + float(one["b2"]), np.sqrt(float(one["variance_y"])) * scale
    if "Z3" in model.named_vars:  # around which y has Student's t distribution
        truth = stats.t.pdf(y, 4, mean + sd * rng.normal(size=sd.shape), sd).mean(axis=0)
    else:
        truth = stats.norm.pdf(y, mean, sd).mean(axis=0)
    thinned = idata.isel(chain=[0], draw=[-1])
    found = pmg.log_predictive(thinned, model, x, y, latent_draws=20_000, random_seed=1)
    np.testing.assert_allclose(np.exp(found["log_density"].values.ravel()), truth, rtol=0.02)


@pytest.mark.parametrize(("outputs", "around"), [(None, "student"), slow(2, "student"), slow(None, "normal")])
def test_the_density_where_noise_of_hidden_units_is_large(outputs, around):
    """By brute force, at rows of very different scales."""
    model = scaled_network(outputs, around=around)
    rvs = [rv for rv in model.free_RVs if rv.name not in ("H", "B", "G", "Z2", "A2", "Z3")]
    values = pm.draw(rvs, random_seed=4, mode="AS_WRITTEN")
    one = {rv.name: np.asarray(x) for rv, x in zip(rvs, values, strict=True)}
    rng, shape = np.random.default_rng(0), (100_000, N)

    def noisy(mean, sigma=1.0):
        return mean + sigma * rng.normal(size=(*shape, *np.shape(mean)[2:]))

    b = noisy(np.maximum(noisy((X @ one["V1"].T + one["c1"])[None]), 0))
    scale = np.exp(noisy(b @ one["V2"], np.sqrt(one["of_g"])) / 2)[..., None]
    z = noisy((X @ one["W1"].T + one["b1"])[None], np.sqrt(one["of_z"]) * scale)
    mean = noisy(np.maximum(z, 0), scale) @ np.atleast_2d(one["W2"]).T + one["b2"]
    y = model["y_data"].get_value().reshape(N, -1)
    truth = np.exp(DENSITIES[around](y, noisy(mean, 0.5 * scale), np.sqrt(one["of_y"]) * scale).sum(-1)).mean(axis=0)
    posterior = {"posterior": _compat.dataset(model, {name: x[None, None] for name, x in one.items()}, 0)}
    found = pmg.log_predictive(posterior, model, latent_draws=20_000, random_seed=1)["log_density"].values.ravel()
    np.testing.assert_allclose(np.exp(found), truth, rtol=0.03)


@pytest.mark.slow
def test_jax_samples_the_same_distribution(posterior):
    pytest.importorskip("jax")
    model, idata = posterior
    options = {"var_names": RECORDED, "random_seed": 2, "progressbar": False}
    with model:
        other = pmg.sample(300, tune=300, chains=2, step=pmg.GibbsNN(), **options)
    assert np.isfinite(other.sample_stats["lp"].values).all()
    found = [pmg.predict(x, model, INPUTS, random_seed=1) for x in (idata, other)]
    means, sds = ([x[key].values for x in found] for key in ("mean", "sd"))
    assert np.corrcoef(means)[0, 1] > 0.95
    assert np.corrcoef(np.log(sds))[0, 1] > 0.8
    assert abs(np.log(sds[0] / sds[1]).mean()) < 0.3


def test_variables_in_the_scales_of_rows_are_no_parameters_of_the_likelihood():
    """In a linear network nothing but the data depends on them; a move of the scales would change all else."""
    groups = np.arange(len(TARGETS)) % 3
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=3)
        weights = pm.Normal("W1", 0, 1, shape=INPUTS.shape[1])
        pm.Normal("y", INPUTS @ weights, pt.exp(theta)[groups], observed=TARGETS)
    step, point = pmg.GibbsNN(model=model, compile_kwargs={"mode": "AS_WRITTEN"}), model.initial_point()
    assert [v.name for v in step.vars] == ["W1"]
    point, [found] = step.step(point)
    density = model.compile_logp([model["W1"], model["y"]], mode="AS_WRITTEN")
    np.testing.assert_allclose(found["lp"], density(point))
    few = pmg.mlp(INPUTS[:6], TARGETS[:6], [], noise_hidden=[], noise="learned", prior=None)
    step, point = pmg.GibbsNN(model=few, compile_kwargs={"mode": "AS_WRITTEN"}), few.initial_point()
    for _ in range(3):
        point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], few.compile_logp(mode="AS_WRITTEN")(point))

"""The move of the scale of the last weights below class labels: its density by brute force, and the move against it."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp

import pymc_gibbsnn as pmg
from pymc_gibbsnn.moves.label_scale import label_scale, label_scale_density
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import check_mean, compile_draw, random_point, slow, value

X = np.random.default_rng(0).normal(size=(4, 2))
DRAWS = {"NUMBA": 20_000, "JAX": 8_000}


def network(classes, rows=4, prior="known", has_bias=True, offset=0.0):
    """A network of one hidden layer of 3 units; ``prior`` says which scales of the last weights are learned."""
    units = () if classes == 2 else (classes,)
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0, 1, shape=(3, 2))
        A2 = pm.Normal("A2", pt.maximum(pm.Normal("Z2", X[:rows] @ W1.T, 0.5), 0), 0.5)
        sigma = of_bias = 0.7
        if prior == "precision":
            sigma = 0.5 * pm.Gamma("scale", 3, 2) ** -0.5
        elif prior == "variances":
            sigma = pm.InverseGamma("scale", 3, 2, shape=3, default_transform=None) ** 0.5
        elif prior == "shared":
            sigma = of_bias = pm.Gamma("scale", 3, 2) ** -0.5
        elif prior == "not its own":
            sigma = pm.Gamma("scale", 3, 2) ** -0.5
            A2 = pm.Normal("A3", pt.maximum(pm.Normal("Z3", A2 @ pm.Normal("V", 0, sigma, shape=(3, 3)), 1), 0), 1)
        mean = A2 @ pm.Normal("W2", 0, sigma, shape=(*units, 3)).T + offset
        if has_bias:
            mean = mean + pm.Normal("b2", 0, of_bias, shape=units)
        label = pmg.SignLabel if classes == 2 else pmg.ArgmaxLabel
        label("y", pm.Normal("Z4", mean, 0.8), observed=pm.Data("y_data", np.arange(rows) % classes))
    return model


def point_of(model, seed):
    point = random_point(model, seed)
    return point | {name: np.exp(x) for name, x in point.items() if name == "scale"}  # not a logarithm


def state_at(model, values):
    return NetworkState.begin(read_network(model).at, values, pt.constant(0.0))


CASES = [
    (2, {}),
    (2, {"prior": "precision", "offset": 0.4}),
    (3, {"prior": "variances", "offset": np.array([0.5, -1.0, 0.2])}),
    (3, {"prior": "shared"}),
    (4, {"prior": "not its own"}),
    (3, {"prior": "precision", "has_bias": False}),
]


@pytest.mark.parametrize(("classes", "kwargs"), [case if k in (1, 2) else slow(*case) for k, case in enumerate(CASES)])
def test_the_distribution_is_the_joint_density_with_the_latent_of_the_label_integrated_out(classes, kwargs):
    model = network(classes, rows=1, **kwargs)
    point = point_of(model, 1)
    state = state_at(model, {v: pt.constant(point[v.name]) for v in model.value_vars})
    logp, log_density = model.compile_logp(mode="AS_WRITTEN"), label_scale_density(state)[0]
    offset = kwargs.get("offset", 0.0)
    below = point["A3"] if "A3" in point else point["A2"]
    mean = below @ point["W2"].T + point.get("b2", 0.0)
    noise = point["Z4"] - mean - offset
    learns, is_log = kwargs.get("prior", "known") not in ("known", "not its own"), "scale_log__" in point
    scales = "scale_log__" if is_log else "scale"

    def log_integral(u):
        """The joint density at e^u W̃ with the noises of other classes as they are, times the volume of the map."""
        moved = point | {name: point[name] * np.exp(u) for name in ("W2", "b2") if name in point}
        power = point["W2"].size + (point["b2"].size if "b2" in point else 0)
        if learns:
            is_precision = kwargs["prior"] != "variances"
            moved[scales] = point[scales] - 2 * u if is_log else point[scales] * np.exp(2 * u * (1 - 2 * is_precision))
            power += 0 if is_log else 2 * point[scales].size
        z, found = np.exp(u) * mean + offset + noise, []
        ends = (z[0, 1:].max(), z[0, 1:].max() + 16) if classes > 2 else (-40, 0)  # where the label is 0
        nodes, weights = np.polynomial.legendre.leggauss(120)
        for x in ends[0] + (nodes + 1) / 2 * (ends[1] - ends[0]):
            z[(0, 0) if classes > 2 else 0] = x
            found.append(logp(moved | {"Z4": z}))
        return logsumexp(found, b=weights) + power * u

    for u in (-0.8, 0.5):
        expected = log_integral(u) - log_integral(0.0)
        found = value(log_density(pt.constant(np.array(u))) - log_density(pt.constant(np.array(0.0))))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("classes", "kwargs", "mode"),
    [
        (2, {"prior": "precision"}, "NUMBA"),
        slow(2, {"prior": "precision"}, "JAX"),
        *(slow(3, {"prior": "precision"}, mode) for mode in DRAWS),
        slow(3, *CASES[2][1:], "NUMBA"),
    ],
)
def test_the_move_against_quadrature(classes, kwargs, mode):
    model = network(classes, **kwargs)
    point = point_of(model, 2)
    values = {v: pytensor.shared(point[v.name], v.name) for v in model.value_vars}
    names = ["W2", "b2", "Z4", "scale_log__" if "scale_log__" in point else "scale"]
    moving = [values[v] for name in names for v in model.value_vars if v.name == name]
    grid = np.linspace(-8, 4, 401)
    log_density = label_scale_density(state_at(model, values))[0]
    u = pt.scalar("u")
    density = pytensor.function([u], log_density(u), mode="AS_WRITTEN")
    density = np.array([density(x) for x in grid])
    density = np.exp(density - density.max())
    density /= density.sum()

    def build(rng):
        rng, state = label_scale(rng, state_at(model, values))
        new = {values[v]: x for v, x in state.new_values.items()}
        return rng, *(new[v] for v in moving)

    draw, found = compile_draw(build, mode), []
    for _ in range(DRAWS[mode]):
        new = draw()
        for v, x in zip(moving, new, strict=True):
            v.set_value(x, borrow=True)
        found.append(np.log(new[1].ravel()[0] / point["b2"].ravel()[0]))
    for power in (1, 2):
        check_mean(np.array(found) ** power, density @ grid**power, f"power {power}", least_ess=300)
    w, b, z, scale = (x / point[name] if name != "Z4" else x for x, name in zip(new, names, strict=True))
    np.testing.assert_allclose(np.append(w, b), np.exp(found[-1]))
    if "scale_log__" in names:
        np.testing.assert_allclose(new[3], point["scale_log__"] - 2 * found[-1])
    else:
        np.testing.assert_allclose(scale, np.exp(2 * found[-1]))
    mean = point["A2"] @ point["W2"].T + point["b2"]
    np.testing.assert_allclose(z - point["Z4"], np.expm1(found[-1]) * mean, atol=1e-12)

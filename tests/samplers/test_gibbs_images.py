"""The sweep over networks with convolutions and pools leaves the joint distribution of their models unchanged."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.moves.postactivations import draw_postactivations
from pymc_gibbsnn.moves.preactivations import preactivations_collapsed_in_windows
from pymc_gibbsnn.moves.site import NetworkState, Site
from pymc_gibbsnn.moves.stretched_scale import stretched_conditional, stretches
from pymc_gibbsnn.networks.activations import ACTIVATIONS
from pymc_gibbsnn.networks.layers.average_pool import AveragePool
from pymc_gibbsnn.networks.layers.conv2d import Conv2D
from pymc_gibbsnn.networks.layers.windows import Windows
from pymc_gibbsnn.networks.network import Activation, Layer, NetworkError
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import check_moments, compile_draw, in_turn, pm_sample, pmg_sample, random_point, value
from tests.image_models import IMAGES, NETWORKS, conv_layer, outputs, relu, write
from tests.samplers.test_gibbs import NUMBA, PLAIN, check_against_nuts, check_geweke, gibbs


def test_what_is_read():
    network = read_network(write("conv pool conv"))
    assert [type(layer.operator).__name__ for layer in network.layers] == ["Conv2D", "AveragePool", "Conv2D", "Dense"]
    assert [activation and activation.name for activation in network.activations] == ["A2", None, "A4"]
    assert [v.name for v in network.latents] == ["Z2", "A2", "Z3", "Z4", "A4"]
    assert [layer.operator.has_bias for layer in network.layers] == [True, False, True, True]
    np.testing.assert_array_equal(network.data(), IMAGES.reshape(len(IMAGES), -1))
    np.testing.assert_allclose(network.layers[0].operator.precision.eval(), [[1 / 0.3**2] * 4 + [4]])


@pytest.mark.parametrize(("name", "kwargs"), [("conv pool conv", {}), ("conv dense", {})])
def test_lp_is_the_log_density_of_the_model(name, kwargs):
    model = write(name)
    point, [stats] = gibbs(model, **kwargs).step(random_point(model, 0))
    np.testing.assert_allclose(stats["lp"], model.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(stats["norm_W1"], (point["W1"] ** 2).sum() + (point["b1"] ** 2).sum())


@pytest.mark.parametrize(("name", "interweave"), in_turn(NETWORKS, ["pieces", "langevin"]))
def test_every_number_is_drawn_in_every_sweep(name, interweave):
    """With options that are not the default, too. Scales are left out: they change numbers without drawing them."""
    model = write(name)
    point = random_point(model, 0)
    new, _ = gibbs(model, interweave=interweave, scale_move=False).step(point)
    for variable, values in point.items():
        assert (new[variable] != values).all(), variable


def test_filters_move_below_a_smooth_activation_where_pieces_are_asked_for():
    model = pmg.cnn(IMAGES, np.zeros(len(IMAGES)), 2, size=2, pool=None, activation="tanh", noise=0.1, prior=None)
    assert "acceptance_W1" in gibbs(model, interweave="pieces").transition.stats


@pytest.mark.slow
@pytest.mark.parametrize("kwargs", [{}, PLAIN, {"interweave": "langevin"}], ids=["default", "plain", "langevin"])
@pytest.mark.parametrize("name", NETWORKS)
def test_geweke(name, kwargs):
    """Oracle 1: forward draws of (variables, data) against the sweep alternating with data given the variables."""
    check_geweke(write(name), 1500, **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conv pool act", "conv pool conv"])
def test_geweke_in_a_compiled_backend(name):
    check_geweke(write(name), 10_000, compile_kwargs={"mode": "NUMBA"})


@pytest.mark.slow
def test_nuts_on_the_same_model():
    rng = np.random.default_rng(5)
    images = rng.normal(size=(4, 4, 4))
    model = pmg.cnn(images, images[:, 1:3, 1:3].sum((1, 2)) / 2, 1, size=3, padding=1, pool=2, noise=0.4, prior=None)
    check_against_nuts(model, rng.normal(size=(5, 4, 4)), **NUMBA)


# The scales of channels


STRETCHES = {"conv act pool": [(0, 2)], "conv pool act": [(0, 2)], "conv pool conv": [(0, 2)], "dense conv": []}


@pytest.mark.parametrize("name", STRETCHES)
def test_stretches(name):
    assert [*stretches(read_network(write(name))).values()] == STRETCHES[name]


@pytest.mark.parametrize("name", ["conv act pool", "conv pool act"])
def test_scales_of_a_stretch(name):
    """Oracle 6: the distribution of log c is the joint log density along the orbit, with the volume of the map."""
    model = write(name)
    network, point = read_network(model), random_point(model, 4)
    values = {v: pt.constant(point[v.name]) for v in network.variables}
    state = NetworkState.begin(network.at, values, pt.constant(0.0))
    p, incoming, outgoing = (value(x) for x in stretched_conditional(state, 0, 2)[:3])
    logp = model.compile_logp(mode="AS_WRITTEN")
    activation = network.activations[0] or network.activations[1]
    for u in (-0.7, 0.4):
        scaled, c = dict(point), np.array([np.exp(u), 1.0])[:, None, None]
        for name in ("W1", "b1", "Z2", "Z3", activation.name):
            scaled[name] = point[name] * (c.ravel() if name == "b1" else c[..., None] if name == "W1" else c)
        scaled["W2"] = (point["W2"].reshape(2, 2, -1) / c[:, :, 0]).reshape(2, -1)
        found = p * u - (incoming[0] * np.expm1(2 * u) + outgoing[0] * np.expm1(-2 * u)) / 2
        numbers = sum(point[name][..., :1, :, :].size for name in ("Z2", "Z3", activation.name)) + 4 + 1
        volume = (numbers - point["W2"].size / 2) * u
        np.testing.assert_allclose(found, logp(scaled) - logp(point) + volume, rtol=1e-8)


COPIES = 20_000
BELOW = {
    "convolution": Windows(1, 3, 3, (2, 2), (1, 1)),
    "convolution with padding": Windows(2, 2, 3, (2, 2), (2, 1), (1, 0)),
    "pool": Windows(1, 3, 5, (2, 2), (2, 2)),
}


@pytest.mark.parametrize("name", BELOW)
def test_postactivations_below(name):
    """Draws against the dense Gaussian, built by brute force from the matrix of the layer above."""
    rng = np.random.default_rng(2)
    if name == "pool":
        operator, w = AveragePool(windows=BELOW[name]), np.zeros((1, 1))
    else:
        windows = BELOW[name]
        precision = pt.constant(np.ones((1, windows.numbers + 1)))
        operator = Conv2D(weights=pt.tensor4("W"), bias=pt.vector("b"), units=2, windows=windows, precision=precision)
        w = rng.normal(size=operator.augmented_shape)
    d_out, d_in = operator.shape
    offset = operator.forward(np.zeros((1, d_in)), w)
    v = (operator.forward(np.eye(d_in), w) - offset).T
    s, y, below, above = rng.normal(size=d_in), rng.normal(size=d_out), 0.4, 0.1
    covariance = np.linalg.inv(v.T @ v / above + np.eye(d_in) / below)
    mean = covariance @ (s / below + v.T @ (y - offset[0]) / above)

    def build(rng):
        s_, y_ = pt.constant(np.tile(s, (COPIES, 1))), pt.constant(np.tile(y, (COPIES, 1)))
        noises = pt.constant(below), pt.constant(above)
        maps = lambda a: operator.forward(a, pt.constant(w)), lambda r: operator.correction(r, pt.constant(w), *noises)
        return draw_postactivations(rng, s_, noises[0], y_, *maps, noises[1])

    check_moments(compile_draw(build)(), mean, covariance)


def test_preactivations_below_a_pool():
    """With σ the identity, Z given the means of its windows is Gaussian; each image of many is a chain of its own."""
    pool = AveragePool(windows=Windows(1, 2, 2, (1, 2), (1, 2)))
    rng = np.random.default_rng(3)
    m, y, dz, da, dy = rng.normal(size=4), rng.normal(size=2), 0.5, 0.3, 0.05
    v = pool.forward(np.eye(4)).T
    k = dz * v.T @ np.linalg.inv(dz * v @ v.T + (dy + da / 2) * np.eye(2))
    rows = [pt.constant(np.tile(x, (COPIES, 1))) for x in (m, y)]

    def build(rng):
        site = Site(
            layer=Layer("Z", None, None, pt.constant(dz)), a=None, w=None, mean=rows[0], z=rows[0], post=None,
            activation=Activation("A", None, ACTIVATIONS["identity"], pt.constant(da)),
            above=Layer("P", pool, None, pt.constant(dy)), w_above=None, z_above=rows[1], samples=COPIES, tuning=0,
        )  # fmt: skip
        for _ in range(12):
            rng, site = preactivations_collapsed_in_windows(rng, site)
        return rng, site.z

    check_moments(compile_draw(build)(), m + k @ (y - v @ m), dz * np.eye(4) - dz * k @ v)


def hidden():
    return pm.Normal("A2", relu(conv_layer(1, pt.as_tensor(IMAGES), 1)), 1)


def overlapping():
    outputs(2, pm.Normal("P", pmg.average_pool2d(hidden(), 2, stride=1), 1), 1)


def turned():
    outputs(2, hidden().dimshuffle(0, 2, 3, 1), 1)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (overlapping, r"windows of the average pool in the mean of 'P' overlap: .* \(2, 2\) and their stride \(1, 1\)"),
        (turned, "'A2' enters 'y' through .* which carries no noise"),
    ],
)
def test_refused_by_name(build, message):
    with pm.Model() as model:
        build()
    with pytest.raises(NetworkError, match=message):
        read_network(model)


def test_the_layer_parallel_order_is_for_dense_layers():
    with pytest.raises(ValueError, match="is for dense layers; the network has convolutions or pools"):
        gibbs(write("conv dense"), schedule="layer-parallel", collapse=False, interweave=False)


@pytest.mark.slow
@pytest.mark.parametrize("run", [pm_sample, pmg_sample])
def test_both_drivers(run):
    model = write("conv pool conv")
    how = {"compile_kwargs": {"mode": "NUMBA"}} if run is pm_sample else {}
    posterior = run(model, 100, var_names=["Z2", "A4"], **how)["posterior"]
    assert posterior["A4"].shape[2:] == (2, 1, 1, 1)
    assert np.isfinite(posterior["Z2"]).all()

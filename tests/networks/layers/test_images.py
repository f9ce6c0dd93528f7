"""Convolutions and pools: against SciPy, in every backend, and as operators against one large matrix written down."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.signal import correlate

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.networks.layers.average_pool import AveragePool
from pymc_gibbsnn.networks.layers.banded import BandedSolve
from pymc_gibbsnn.networks.layers.conv2d import Conv2D
from pymc_gibbsnn.networks.layers.convolution import Convolution, WindowGram
from pymc_gibbsnn.networks.layers.pooling import Pooling
from pymc_gibbsnn.networks.layers.windows import Windows
from tests.helpers import MODES, slow_but, value

RNG = np.random.default_rng(0)
WINDOWS = {
    "plain": Windows(2, 5, 4, (2, 3), (1, 1)),
    "stride": Windows(1, 7, 6, (3, 2), (2, 3)),
    "padding": Windows(2, 4, 5, (3, 3), (1, 2), (1, 2)),
    "gaps": Windows(1, 5, 5, (2, 2), (3, 3)),
}
POOLS = {
    "tiles": Windows(2, 4, 6, (2, 3), (2, 3)),
    "edge": Windows(1, 5, 5, (2, 2), (2, 2)),
    "gaps": Windows(1, 6, 6, (2, 2), (3, 3)),
}


def by_scipy(images, filters, windows):
    """The convolution as a sum of SciPy's correlations, of padded images."""
    margins = [(margin, margin) for margin in windows.padding]
    padded = np.pad(images, [(0, 0), (0, 0), *margins])
    full = [[sum(correlate(x, f, "valid") for x, f in zip(image, w, strict=True)) for w in filters] for image in padded]
    return np.array(full)[:, :, :: windows.stride[0], :: windows.stride[1]]


def arrays(windows, n=3, units=2):
    images, filters = RNG.normal(size=(n, *windows.image)), RNG.normal(size=(units, windows.channels, *windows.size))
    return images, filters, RNG.normal(size=(n, units, *windows.grid))


def conv(windows, units=2, has_bias=True, precision=1.0):
    d = windows.numbers + has_bias
    bias = pt.vector("b") if has_bias else None
    precision = pt.constant(np.broadcast_to(precision, (np.shape(precision)[0] if np.ndim(precision) else 1, d)))
    return Conv2D(weights=pt.tensor4("W"), bias=bias, units=units, windows=windows, precision=precision)


def matrix_of(forward, pixels):
    """The matrix (outputs, pixels) of a linear map, column by column, and what it adds."""
    zero = forward(np.zeros((1, pixels)))
    return (forward(np.eye(pixels)) - zero).T, zero


@pytest.mark.parametrize("name", WINDOWS)
def test_convolution_is_that_of_scipy(name):
    windows = WINDOWS[name]
    images, filters, _ = arrays(windows)
    found = pmg.conv2d(images, filters, stride=windows.stride, padding=windows.padding)
    assert found.type.shape == (3, 2, *windows.grid)
    np.testing.assert_allclose(value(found), by_scipy(images, filters, windows), atol=1e-12)


@pytest.mark.parametrize("mode", slow_but(["AS_WRITTEN", "JAX"], MODES))
def test_all_backends_compute_the_same(mode):
    """More images than one thread takes, and outputs, moments, images, Gram matrices, solutions and pools of them."""
    windows = WINDOWS["padding"]
    images, filters, outputs = arrays(windows, n=300)
    a, w, z = pt.tensor4("a"), pt.tensor4("w"), pt.tensor4("z")
    tiles = Windows(2, 4, 5, (2, 2), (2, 2))
    found = [
        Convolution(windows)(w, a),
        Convolution(windows, "filters")(z, a),
        Convolution(windows, "images")(z, w),
        WindowGram(windows)(a),
        BandedSolve(windows)(a, w, pt.constant(0.3)),
        Pooling(tiles)(a),
        Pooling(tiles, adjoint=True)(Pooling(tiles)(a)),
    ]
    function = pytensor.function([a, w, z], found, mode=with_our_kernels(compilation_mode(mode)))
    forward, moments, back, gram, solution, means, shared = map(np.asarray, function(images, filters, outputs))
    flat, many = images.reshape(300, -1), outputs.reshape(300, -1)
    v, _ = matrix_of(lambda x: by_scipy(x.reshape(-1, *windows.image), filters, windows).reshape(len(x), -1), 40)
    np.testing.assert_allclose(forward.reshape(300, -1), flat @ v.T, atol=1e-10)
    np.testing.assert_allclose(back.reshape(300, -1), many @ v, atol=1e-10)
    seen = windows.of(images).transpose(0, 2, 3, 1, 4, 5).reshape(-1, windows.numbers)
    np.testing.assert_allclose(moments.reshape(2, -1), outputs.transpose(1, 0, 2, 3).reshape(2, -1) @ seen, rtol=1e-10)
    np.testing.assert_allclose(gram, seen.T @ seen, rtol=1e-10)
    np.testing.assert_allclose(solution.reshape(300, -1), np.linalg.solve(v.T @ v + 0.3 * np.eye(40), flat.T).T)
    np.testing.assert_allclose(means[7, 1], images[7, 1, :, :4].reshape(2, 2, 2, 2).mean((1, 3)))
    np.testing.assert_allclose(shared[7, 1, :, :4], np.kron(means[7, 1], np.ones((2, 2))) / 4)
    assert not shared[..., 4].any()


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("size", [(2, 2), (1, 2)])
@pytest.mark.parametrize("name", ["plain", "padding", "edges"])
def test_a_convolution_with_a_pool_on_it_is_one_convolution(name, size, has_bias):
    """Whose outputs are the means of those of the first, also where the pool leaves some out."""
    windows = WINDOWS[name] if name in WINDOWS else Windows(1, 8, 9, (2, 3), (2, 1))
    below = conv(windows, has_bias=has_bias)
    pool = AveragePool(windows=Windows(2, *windows.grid, size, (size[0], size[1] + (name == "edges"))))
    a, w = RNG.normal(size=(3, windows.pixels)), RNG.normal(size=below.augmented_shape)
    both, images = below.pooled(pt.constant(a), pool.windows)
    assert both.windows.grid == pool.windows.grid
    np.testing.assert_allclose(value(both.forward(images, pt.constant(w))), pool.forward(below.forward(a, w)))


@pytest.mark.parametrize("name", WINDOWS)
def test_gradients(name):
    windows = WINDOWS[name]
    images, filters, outputs = arrays(windows)
    a, w = pt.tensor4("a"), pt.tensor4("w")
    tiles = Windows(*windows.image, (2, 2), (2, 2))
    total = (Convolution(windows)(w, a) * outputs).sum() + (Pooling(tiles)(a) ** 2).sum()
    gradients = pytensor.function([a, w], pt.grad(total, [a, w]), mode="AS_WRITTEN")(images, filters)
    f = pytensor.function([a, w], total, mode="AS_WRITTEN")
    for i, (x, gradient) in enumerate(zip((images, filters), gradients, strict=True)):
        step = RNG.normal(size=x.shape)
        up, down = ([y + h * step if i == j else y for j, y in enumerate((images, filters))] for h in (1e-5, -1e-5))
        np.testing.assert_allclose((gradient * step).sum(), (f(*up) - f(*down)) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("name", WINDOWS)
def test_convolution_as_a_regression(name, has_bias):
    windows = WINDOWS[name]
    images, _, outputs = arrays(windows, n=5)
    operator, a, z = conv(windows, has_bias=has_bias), images.reshape(5, -1), outputs.reshape(5, -1)
    w = RNG.normal(size=operator.augmented_shape)
    seen = windows.of(images).transpose(0, 2, 3, 1, 4, 5).reshape(-1, windows.numbers)
    design = np.c_[seen, np.ones(len(seen))] if has_bias else seen
    units = outputs.transpose(0, 2, 3, 1).reshape(-1, 2)
    x = pt.constant(a)
    np.testing.assert_allclose(value(operator.design(x, 5)), design)
    np.testing.assert_allclose(value(operator.gram(x, 5)), design.T @ design, atol=1e-10)
    np.testing.assert_allclose(value(operator.moments(x, pt.constant(z))), design.T @ units, atol=1e-10)
    expected = (design @ w.T).reshape(5, windows.places, 2).transpose(0, 2, 1).reshape(5, -1)
    np.testing.assert_allclose(value(operator.forward(x, pt.constant(w))), expected, atol=1e-10)
    np.testing.assert_allclose(operator.forward(a, w), expected, atol=1e-10)
    np.testing.assert_allclose(operator.forward(a, np.stack([w, -w]))[1], -expected, atol=1e-10)


@pytest.mark.parametrize("name", [*WINDOWS, *(f"pool {name}" for name in POOLS)])
def test_what_a_residual_says_of_the_input(name):
    """The mean of A given Y, by the covariance of both written down."""
    if name.startswith("pool"):
        operator, w = AveragePool(windows=POOLS[name[5:]]), np.zeros((1, 1))
    else:
        operator = conv(WINDOWS[name])
        w = RNG.normal(size=operator.augmented_shape)
    outputs, pixels = operator.shape
    v, _ = matrix_of(lambda x: operator.forward(x, w), pixels)
    r, below, above = RNG.normal(size=(4, outputs)), 0.3, 0.05
    expected = below * r @ np.linalg.solve(above * np.eye(outputs) + below * v @ v.T, v)
    found = operator.correction(pt.constant(r), pt.constant(w), pt.constant(below), pt.constant(above))
    np.testing.assert_allclose(value(found), expected, atol=1e-10)


def test_windows_that_tile_images():
    operator = AveragePool(windows=POOLS["tiles"])
    assert [AveragePool(windows=windows).tiles for windows in POOLS.values()] == [True, False, False]
    a = RNG.normal(size=(3, 48))
    seen = value(operator.by_window(pt.constant(a)))
    np.testing.assert_array_equal(seen, operator.windows.of(a.reshape(3, 2, 4, 6)).reshape(-1, 6))
    np.testing.assert_array_equal(value(operator.from_windows(pt.constant(seen))), a)
    np.testing.assert_allclose(seen.mean(1).reshape(3, -1), operator.forward(a))


@pytest.mark.parametrize("bias_ndim", [None, 1, 3, 4])
def test_filters_there_and_back(bias_ndim):
    windows = WINDOWS["plain"]
    bias = None if bias_ndim is None else pt.tensor("b", dtype="float64", shape=(None,) * bias_ndim)
    precision = pt.constant(np.ones((1, windows.numbers + (bias is not None))))
    operator = Conv2D(weights=pt.tensor4("W"), bias=bias, units=2, windows=windows, precision=precision, factor=2.0)
    draws = {"W": RNG.normal(size=(4, 5, *operator.filters_shape))}
    if bias is not None:
        draws["b"] = RNG.normal(size=(4, 5, *{1: (2,), 3: (2, 1, 1), 4: (1, 2, 1, 1)}[bias_ndim]))
    matrices = operator.named_matrix(draws)
    np.testing.assert_array_equal(operator.linear(matrices)[3, 4, 1], 2 * draws["W"][3, 4, 1].ravel())
    single = {v: pt.constant(draws[v.name][0, 0]) for v in operator.variables}
    matrix = operator.matrix(single)
    np.testing.assert_array_equal(value(matrix), matrices[0, 0])
    for v, found in operator.values(matrix).items():
        np.testing.assert_array_equal(value(found), draws[v.name][0, 0])


@pytest.mark.parametrize("name", WINDOWS)
def test_scales_of_channels(name):
    """Each scale changes the quadratic form of the prior by its own part alone, and the output as it says."""
    windows = WINDOWS[name]
    precision = RNG.gamma(3.0, size=(2, windows.numbers + 1))
    operator = conv(windows, precision=precision)
    w, a = RNG.normal(size=operator.augmented_shape), RNG.normal(size=(3, windows.pixels))
    c, s = np.array([2.0, 0.5]), np.array([0.5, 3.0])[: windows.channels]
    wt, columns = pt.constant(w), np.repeat(s, windows.height * windows.width)
    scaled, relieved = value(operator.scaled(wt, pt.constant(c))), value(operator.relieved(wt, pt.constant(columns)))
    spread = value(operator.spread(pt.constant(c)))
    np.testing.assert_allclose(operator.forward(a, scaled), operator.forward(a, w) * spread)
    np.testing.assert_allclose(operator.forward(a * columns, relieved), operator.forward(a, w))

    def quadratic(w):
        return (precision * w**2).sum()

    np.testing.assert_allclose(quadratic(scaled) - quadratic(w), (value(operator.incoming(wt)) * (c**2 - 1)).sum())
    out = value(operator.outgoing(wt))
    np.testing.assert_allclose(quadratic(relieved) - quadratic(w), (out * (columns**-2 - 1)).sum())
    assert round(operator.fan_out * windows.height * windows.width) == 2 * np.prod(windows.size)
    z = RNG.normal(size=(3, operator.shape[0]))
    np.testing.assert_allclose(value(operator.by_unit(pt.constant(z))), z.reshape(3, 2, -1).sum((0, 2)))


IMAGES, FILTERS = np.zeros((3, 2, 5, 4)), np.zeros((1, 2, 2, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pmg.conv2d(IMAGES.reshape(3, -1), FILTERS), r"images must have .* found 2 axes .*: reshape them"),
        (lambda: pmg.conv2d(IMAGES[:, 0], FILTERS), "images must have .* add an axis of one channel"),
        (lambda: pmg.conv2d(IMAGES, FILTERS[0]), r"filters must have shape \(units, channels, .* found 3 axes"),
        (lambda: pmg.conv2d(IMAGES, FILTERS[:, :1]), "filters must have the 2 channels of the images; found 1"),
        (lambda: pmg.conv2d(IMAGES, np.zeros((1, 2, 6, 2))), r"filters must fit .* \(5, 4\) .* found \(6, 2\)"),
        (lambda: pmg.conv2d(IMAGES, FILTERS, stride=6), r"stride must not lead out .* found \(6, 6\)"),
        (lambda: pmg.conv2d(IMAGES, FILTERS, stride=0), "stride must be a positive integer; found 0"),
        (lambda: pmg.conv2d(IMAGES, FILTERS, padding=2), r"padding must be less than the size \(2, 2\)"),
        (lambda: pmg.conv2d(IMAGES, FILTERS, padding=-1), "padding must be an integer of at least 0; found -1"),
        (lambda: pmg.conv2d(IMAGES, FILTERS, stride="2"), "stride must be a positive integer; found '2'"),
        (lambda: pmg.conv2d(IMAGES, FILTERS, stride=(1, 2, 3)), "stride must be one integer or two"),
        (lambda: pmg.conv2d(pt.tensor4("a"), FILTERS), "images must have a known shape; found the variable 'a'"),
        (lambda: pmg.average_pool2d(IMAGES, 5), r"windows must fit into the images, .* \(5, 4\) .* found \(5, 5\)"),
        (lambda: pmg.average_pool2d(IMAGES[0, 0], 2), "images must have shape .* reshape"),
        (lambda: pmg.average_pool2d(IMAGES, None), "size must be a positive integer; found None"),
    ],
)
def test_images_that_do_not_fit(call, message):
    with pytest.raises((TypeError, ValueError), match=message) as refusal:
        call()
    assert str(refusal.value).endswith(".")


def test_images_of_another_size_are_refused_when_they_come():
    with pm.Model() as model:
        x = pm.Data("X", IMAGES)
        pm.Deterministic("Z", pmg.conv2d(x, pm.Normal("W", shape=(1, 2, 2, 2))))
    model.set_data("X", np.zeros((3, 2, 6, 6)))
    with pytest.raises(ValueError, match=r"takes images of shape \('n', 2, 5, 4\)"):
        pm.draw(model["Z"], mode="AS_WRITTEN")

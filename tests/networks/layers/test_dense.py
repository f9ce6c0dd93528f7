"""What a dense operator answers, in NumPy and in PyTensor, against the products written down."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.networks.layers.layout import shape_of
from tests.helpers import dense, value

RNG = np.random.default_rng(0)
LAYOUTS = {"rows": ((2, 3), (2, 3)), "columns": ((2, 3), (3, 2)), "vector": ((1, 3), (3,))}


@pytest.mark.parametrize("has_bias", [False, True])
def test_the_regression_is_that_of_the_augmented_input(has_bias):
    a, z, w = RNG.normal(size=(7, 3)), RNG.normal(size=(7, 2)), RNG.normal(size=(2, 3 + has_bias))
    operator, x = dense((2, 3), has_bias), pt.constant(a)
    augmented = np.c_[a, np.ones(7)] if has_bias else a
    np.testing.assert_array_equal(value(operator.design(x, 7)), augmented)
    np.testing.assert_allclose(value(operator.moments(x, pt.constant(z))), augmented.T @ z)
    np.testing.assert_allclose(value(operator.gram(x, 7)), augmented.T @ augmented)
    np.testing.assert_allclose(value(operator.forward(x, pt.constant(w))), augmented @ w.T)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bias_ndim", [None, 0, 1, 2])
def test_weights_of_any_layout(layout, bias_ndim):
    """One formula for one set of weights in PyTensor, and there and back, and for many in NumPy."""
    shape, written = LAYOUTS[layout]
    if bias_ndim == 0 and shape[0] > 1:
        pytest.skip("a number is the bias of one unit")
    operator = dense(shape, bias_ndim is not None, layout=layout, bias_ndim=bias_ndim or 0)
    assert shape_of(layout, written) == shape
    bias_shape = {0: (), 1: (shape[0],), 2: (1, shape[0])}.get(bias_ndim)
    draws = {"W": RNG.normal(size=(4, 5, *written))}
    if bias_ndim is not None:
        draws["b"] = RNG.normal(size=(4, 5, *bias_shape))
    a, matrices = RNG.normal(size=(7, 3)), operator.named_matrix(draws)
    outputs = operator.forward(a, matrices)
    assert outputs.shape == (4, 5, 7, shape[0])
    for index in np.ndindex(4, 5):
        w = {"rows": lambda w: w, "columns": np.transpose, "vector": lambda w: w[None]}[layout](draws["W"][index])
        b = draws["b"][index].reshape(-1) if bias_ndim is not None else 0
        np.testing.assert_allclose(outputs[index], a @ w.T + b)
    single = {v: pt.constant(draws[v.name][0, 0]) for v in operator.variables}
    matrix = operator.matrix(single)
    np.testing.assert_array_equal(value(matrix), matrices[0, 0])
    for v, found in operator.values(matrix).items():
        np.testing.assert_array_equal(value(found), draws[v.name][0, 0])


@pytest.mark.parametrize("shape", [(1, 4), (2, 4), (4, 2), (3, 3)])
def test_gain(shape):
    w = RNG.normal(size=shape)
    found = value(dense(shape).gain(pt.constant(w), pt.constant(0.2), pt.constant(0.05)))
    np.testing.assert_allclose(found, np.linalg.solve(0.05 * np.eye(shape[0]) + 0.2 * w @ w.T, w), rtol=1e-10)


def test_gain_in_numba():
    w, below, above, mode = pt.matrix("w"), pt.scalar(), pt.scalar(), with_our_kernels(compilation_mode("NUMBA"))
    gain = pytensor.function([w, below, above], dense((2, 2)).gain(w, below, above), mode=mode)
    for shape in [(1, 4), (3, 4), (4, 3)]:
        x = RNG.normal(size=shape)
        expected = np.linalg.solve(0.05 * np.eye(shape[0]) + 0.2 * x @ x.T, x)
        np.testing.assert_allclose(gain(x, 0.2, 0.05), expected, rtol=1e-10)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 2], ids=["shared prior", "prior by unit"])
def test_scales_of_units_and_of_inputs(has_bias, rows):
    """Each scale changes the quadratic form of the prior by its own part alone, and the output as it says."""
    precision = RNG.gamma(3.0, size=(rows, 3 + has_bias))
    operator, w, a = dense((2, 3), has_bias, precision), RNG.normal(size=(2, 3 + has_bias)), RNG.normal(size=(7, 3))
    c, s, wt = np.array([2.0, 0.5]), np.array([0.5, 3.0, 1.5]), pt.constant(w)
    scaled, relieved = value(operator.scaled(wt, pt.constant(c))), value(operator.relieved(wt, pt.constant(s)))
    np.testing.assert_allclose(operator.forward(a, scaled), operator.forward(a, w) * c)
    np.testing.assert_allclose(operator.forward(a * s, relieved), operator.forward(a, w))

    def quadratic(w):
        return (precision * w**2).sum()

    np.testing.assert_allclose(quadratic(scaled) - quadratic(w), (value(operator.incoming(wt)) * (c**2 - 1)).sum())
    np.testing.assert_allclose(quadratic(relieved) - quadratic(w), (value(operator.outgoing(wt)) * (s**-2 - 1)).sum())
    assert (operator.fan_in, operator.fan_out) == (3 + has_bias, 2)

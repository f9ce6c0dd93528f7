"""Numba's kernels of :mod:`pymc_gibbsnn.backends.numba_kernels` against NumPy and the C library."""

import math

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.type import random_generator_type

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.random.isotropic_normal import isotropic_normal

RNG = np.random.default_rng(0)


def compile_and_find(inputs, output, name):
    """The function in Numba; the Op of this name must be in it."""
    function = pytensor.function(inputs, output, mode=with_our_kernels(compilation_mode("NUMBA")))
    assert any(type(node.op).__name__ == name for node in function.maker.fgraph.apply_nodes)
    return function


@pytest.mark.parametrize("columns", [5, 300])
def test_products_of_few_and_of_many_columns(columns):
    x, y, values = [], [], []
    for shape, found in (((7, 4), x), ((4, columns), y)):
        value = RNG.normal(size=shape)
        straight, turned = pt.matrix(shape=shape), pt.matrix(shape=shape[::-1])
        found += [straight, turned.T]
        values += [value, value.T]
    inputs = [x[0], x[1].owner.inputs[0], y[0], y[1].owner.inputs[0]]
    function = compile_and_find(inputs, [left @ right for left in x for right in y], "Product")
    for found in function(*values):
        assert found.flags.c_contiguous == (columns == 300)
        np.testing.assert_allclose(found, values[0] @ values[2], rtol=1e-12, atol=1e-12)


def test_products_with_an_axis_dropped():
    """As of the weights of several units, drawn as so many layers of one unit each."""
    x, stack = pt.matrix("x"), pt.tensor("stack", shape=(3, None, 1))
    function = compile_and_find([x, stack], [x @ stack[:, :, 0].T, stack[:, :, 0] @ x.T], "Product")
    a, b = RNG.normal(size=(5, 2)), RNG.normal(size=(3, 2, 1))
    straight, turned = function(a, b)
    np.testing.assert_allclose(straight, a @ b[:, :, 0].T, rtol=1e-12)
    np.testing.assert_allclose(turned, straight.T, rtol=1e-12)


def test_a_matrix_times_its_transpose_is_one_half_mirrored():
    x = pt.matrix("x")
    function = compile_and_find([x], x @ x.T, "Gram")
    for shape in ((3, 5), (64, 7), (150, 9)):
        matrix = RNG.normal(size=shape)
        for ordered in (matrix, np.asfortranarray(matrix)):
            np.testing.assert_allclose(function(ordered), matrix @ matrix.T, rtol=1e-12, atol=1e-12)


def test_sums_of_matrices_in_any_order():
    x, y = pt.matrix("x"), pt.matrix("y")
    z = x @ y  # sums of what is computed elementwise are left to PyTensor, which fuses them
    function = compile_and_find([x, y], [z.sum(0), z.sum(axis=-1), z.sum(), 2 + z.sum() / (1 + z.sum())], "MatrixSum")
    for left, right in ((RNG.normal(size=(7, 3)), RNG.normal(size=(3, 400))), (np.ones((7, 0)), np.ones((0, 2)))):
        for a, b in ((left, right), (np.asfortranarray(left), np.asfortranarray(right))):
            products = a @ b
            by_column, by_row, total, number = function(a, b)
            np.testing.assert_allclose(by_column, products.sum(0), rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(by_row, products.sum(1), rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(total, products.sum(), rtol=1e-10)
            np.testing.assert_allclose(number, 2 + products.sum() / (1 + products.sum()), rtol=1e-10)


@pytest.mark.parametrize(("function", "exact"), [(pt.erf, math.erf), (pt.erfc, math.erfc)])
def test_error_functions_to_their_last_digits(function, exact):
    x = pt.matrix("x")
    compiled = compile_and_find([x], function(x), "ErrorFunction")
    points = np.r_[np.linspace(-7, 26, 30_001), RNG.normal(size=20_000), 10.0 ** np.arange(-300, 0), -(10.0**-200), 0.5]
    points = np.c_[points, -points]
    for ordered in (points, np.asfortranarray(points)):
        expected = np.vectorize(exact)(ordered)
        found = compiled(ordered)
        inside = np.abs(ordered) <= 26
        np.testing.assert_allclose(found[inside], expected[inside], rtol=1e-15)
        np.testing.assert_allclose(found, expected, rtol=1e-15, atol=1e-300)
    edges = np.array([[np.nan, np.inf, -np.inf, 1e300, -1e300]])
    np.testing.assert_allclose(compiled(edges), function(edges).eval(mode="AS_WRITTEN"), atol=1e-300)


def test_gradients_of_gelu_go_through_the_error_function():
    x = pt.matrix("x")
    gelu = x * (1 + pt.erf(x / 2**0.5)) / 2
    function = compile_and_find([x], pt.grad(gelu.sum(), x), "ErrorFunction")
    z = RNG.normal(size=(40, 3)) * 3
    cdf = 0.5 * np.vectorize(math.erfc)(-z / 2**0.5)
    density = np.exp(-(z**2) / 2) / (2 * np.pi) ** 0.5
    np.testing.assert_allclose(function(z), cdf + z * density, rtol=1e-12, atol=1e-15)


def test_a_sampler_leaves_a_generator_that_is_not_its_own():
    rng, m = random_generator_type("rng"), pt.matrix("m")
    function = compile_and_find([rng, m], draw(isotropic_normal, rng, m, pt.constant(2.0))[1], "Sampler")
    generator, mean = np.random.default_rng(0), np.zeros((3, 2))
    np.testing.assert_array_equal(function(generator, mean), function(generator, mean))

"""Factors, eigenvectors, triangular systems and other views of arrays in our Numba code, against NumPy."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels


def compile_for(mode, inputs, outputs):
    return pytensor.function(inputs, outputs, mode=with_our_kernels(compilation_mode(mode)))


@pytest.fixture(scope="module")
def compiled():
    """Factors and solutions for Numba and for NumPy, of matrices row by row and column by column in memory."""
    s, b = pt.matrix("s"), pt.matrix("b")
    outputs = []
    for lower in (True, False):
        outputs += [pt.linalg.cholesky(s, lower=lower), pt.linalg.cholesky(2 * s, lower=lower)]
        outputs += [pt.linalg.solve_triangular(a, b, lower=lower, b_ndim=2) for a in (s, s.T)]
    outputs.append(pt.linalg.solve_triangular(s, b, lower=True, unit_diagonal=True, b_ndim=2))
    return compile_for("NUMBA", [s, b], outputs), compile_for("AS_WRITTEN", [s, b], outputs)


@pytest.mark.parametrize("columns", [1, 3])
def test_factors_and_solutions_are_those_of_numpy(compiled, columns):
    numba, numpy = compiled
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(4, 4)), rng.normal(size=(4, columns))
    for found, expected in zip(numba(a @ a.T + np.eye(4), b), numpy(a @ a.T + np.eye(4), b), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_what_has_no_factor_or_solution_is_nan(compiled):
    numba, _ = compiled
    found = numba(np.diag([1.0, 0.0, -1.0]), np.ones((3, 1)))
    assert np.isnan(found[0]).all()
    assert np.isnan(found[2]).all()
    np.testing.assert_array_equal(found[-1], np.ones((3, 1)))  # its diagonal is not read


@pytest.mark.parametrize("size", [0, 1, 6])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_eigenvectors_are_those_of_numpy(dtype, size):
    s = pt.matrix("s", dtype=dtype)
    compiled = compile_for("NUMBA", [s], pt.linalg.eigh(s))
    a = np.random.default_rng(size).normal(size=(size, size)).astype(dtype)
    for matrix in (a + a.T, np.tril(a)):  # one triangle is read
        for found, expected in zip(compiled(matrix), np.linalg.eigh(matrix), strict=True):
            assert found.dtype == dtype
            np.testing.assert_allclose(found, expected, atol=1e-13 if dtype == "float64" else 1e-5)


def test_an_axis_that_is_dropped_must_have_length_one():
    x = pt.tensor("x", shape=(None, None, 1))
    compiled = compile_for("NUMBA", [x], [pt.specify_broadcastable(x, 0).squeeze(0).T, x.squeeze(2).T[None]])
    numbers = np.arange(3.0).reshape(1, 3, 1)
    first, second = compiled(numbers)
    np.testing.assert_array_equal(first, numbers[0].T)
    np.testing.assert_array_equal(second, numbers[:, :, 0].T[None])
    with pytest.raises((ValueError, AssertionError)):
        compiled(np.ones((2, 3, 1)))


def test_a_number_has_new_axes():
    x, y = pt.scalar("x"), pt.vector("y")
    compiled = compile_for("NUMBA", [x, y], [x[None, None], y[1][None] * y, y.sum()[None], pt.gt(x, 0)[None]])
    for found, expected in zip(compiled(2.5, [1.0, 2.0]), ([[2.5]], [2.0, 4.0], [3.0], [True]), strict=True):
        np.testing.assert_array_equal(found, expected)

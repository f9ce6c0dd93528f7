"""Pólya-Gamma draws in each backend against their distribution function, moments, Laplace transform and a package."""

from functools import cache

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.type import random_generator_type
from scipy import stats

from pymc_gibbsnn.backends import threads
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.backends.jax_backend import random_state
from pymc_gibbsnn.backends.modes import compilation_mode, uses_jax
from pymc_gibbsnn.random import _polya_gamma_saddlepoint as saddlepoint
from pymc_gibbsnn.random.polya_gamma import _attempt, _formulas, polya_gamma
from tests.helpers import MODES, draw_rv, slow

N = 20_000
LEAST_P = 1e-4  # of a test with a fixed seed
SHAPES = (1, 2, 3, 20, 1.3, 5.75, 31.5, 32, 500.5)
TILTS = (0.0, 0.3, -2.0, 10.0, 100.0)
CASES = [(float(b), z) for b in SHAPES for z in TILTS] + [(1.0, 1e-9), (1.0, 1e4), (40.0, 1e4), (1.5, 1e8)]


def log_cosh(root):
    return root + np.log1p(np.exp(-2 * root)) - np.log(2)


def moments(b, z):
    """Mean and variance."""
    z = abs(z)
    if z < 1e-3:
        return b / 4, b / 24
    # b (sinh z − z)/(4 z³ cosh²(z/2)), with both parts of the fraction divided by exp z
    excess = -np.expm1(-2 * z) / 2 - z * np.exp(-z)
    return b * np.tanh(z / 2) / (2 * z), b * excess / (z**3 * (1 + np.exp(-z)) ** 2)


@cache
def distribution_function(b, z):
    """A grid and the distribution function on it, integrated from the characteristic function.

    That of a density on a circle: of the density beyond 40 standard deviations, below exp(−40), nothing is seen.
    """
    mean, variance = moments(b, z)
    period = 50 * variance**0.5
    grid = np.linspace(max(0, mean - 10 * variance**0.5), mean + 39 * variance**0.5, 2001)
    total = (grid - grid[0]) / period
    for j in range(1, 400_000):
        y = 2 * np.pi * j / period
        phi = np.exp(b * (log_cosh(abs(z) / 2 + 0j) - log_cosh(np.sqrt(z * z / 4 - 0.5j * y))))
        total += np.imag(phi * (np.exp(-1j * y * grid[0]) - np.exp(-1j * y * grid))) / (np.pi * j)
        if abs(phi) < 1e-9:
            break
    return grid, total


def series(x, z):
    """The density of PG(1, z), by Devroye's two series, which are the same function."""
    n = np.arange(60)[:, None]
    sign, odd = (-1.0) ** n, 2 * n + 1
    left = (sign * odd / np.sqrt(2 * np.pi * x**3) * np.exp(-(odd**2) / (8 * x))).sum(0)
    right = (sign * odd * np.pi * 2 * np.exp(-(odd**2) * np.pi**2 * x / 2)).sum(0)
    return np.cosh(z / 2) * np.exp(-(z**2) * x / 2) * np.where(x < 0.16, left, right)


def test_the_distribution_function_used_here_is_that_of_the_series():
    for z in (0.0, 2.0):
        grid, found = distribution_function(1.0, z)
        x = np.linspace(1e-6, grid[-1], 200_001)
        expected = np.concatenate([[0], np.cumsum((series(x[1:], z) + series(x[:-1], z)) / 2 * np.diff(x))])
        np.testing.assert_allclose(found, np.interp(grid, x, expected), atol=1e-6)


@cache
def draws(mode):
    n = N // 5 if mode == "JAX" else N
    b, z = (np.repeat(x[None], n, 0) for x in np.array(CASES).T)
    return draw_rv(polya_gamma, [b, z], mode).T


@pytest.mark.parametrize("mode", [slow("AS_WRITTEN"), "NUMBA", slow("JAX")])
def test_distribution(mode):
    for x, case in zip(draws(mode), CASES, strict=True):
        assert (x > 0).all()
        grid, cdf = distribution_function(*case)
        found = stats.kstest(x, lambda q, g=grid, c=cdf: np.interp(q, g, c), method="asymp")
        assert found.pvalue > LEAST_P, case


@pytest.mark.parametrize("mode", MODES)
def test_moments_and_laplace_transform(mode):
    for x, (b, z) in zip(draws(mode), CASES, strict=True):
        mean, variance = moments(b, z)
        t = np.array([0.3, 1.0, 3.0])[:, None] / mean
        transform = np.exp(b * (log_cosh(abs(z) / 2) - log_cosh(np.sqrt(z * z / 4 + t / 2))))
        for found, expected in (
            (x, mean),
            ((x - mean) ** 2, variance),
            *zip(np.exp(-t * x), transform[:, 0], strict=True),
        ):
            assert abs(found.mean() - expected) < 5 * found.std() / len(x) ** 0.5, (b, z, expected)


@pytest.mark.parametrize("mode", MODES)
def test_against_the_package_polyagamma(mode):
    """Only its exact method, where it is exact: it is not for large tilts."""
    package = pytest.importorskip("polyagamma")
    for x, (b, z) in zip(draws(mode), CASES, strict=True):
        if b < 32 and b == int(b) and abs(z) < 1000:
            theirs = package.random_polyagamma(b, z, size=N, method="devroye", random_state=1)
            assert stats.ks_2samp(x, theirs).pvalue > LEAST_P, (b, z)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA", slow("JAX")])
def test_special_shapes(mode):
    """Zero, whole numbers of another type, what is not served, and no numbers at all."""
    nan, inf = np.nan, np.inf
    b = np.array([[0, 0.5, -1, nan, inf, 1, 1, 1]])
    z = np.array([[1.0, 1, 1, 1, 1, nan, inf, 1]])
    x = draw_rv(polya_gamma, [b, z], mode)[0]
    assert x[0] == 0
    assert np.isnan(x[1:7]).all()
    assert x[7] > 0
    assert draw_rv(polya_gamma, [np.zeros((0, 2)), np.zeros((0, 2))], mode).shape == (0, 2)
    if mode == "JAX":  # which compiles for each shape anew
        return
    whole = draw_rv(polya_gamma, [np.full((5000, 2), 3), np.ones((5000, 2))], mode)
    assert stats.kstest(whole.ravel(), lambda q: np.interp(q, *distribution_function(3.0, 1.0))).pvalue > LEAST_P


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["NUMBA", "JAX"])
def test_single_precision(mode):
    with pytensor.config.change_flags(floatX="float32"):
        mode = compilation_mode(mode)
        rng, b, z = random_generator_type("rng"), pt.matrix("b"), pt.matrix("z")
        function = pytensor.function([rng, b, z], draw(polya_gamma, rng, b, z)[1], mode=mode)
    cases = [case for case in CASES if abs(case[1]) < 1000]
    b, z = (np.repeat(x[None], N, 0).astype("float32") for x in np.array(cases).T)
    function.trust_input = True
    x = np.asarray(function(random_state(np.random.default_rng(3), uses_jax(mode)), b, z))
    assert x.dtype == "float32"
    for found, case in zip(x.T.astype("float64"), cases, strict=True):
        cdf = distribution_function(case[0], float(np.float32(case[1])))
        assert stats.kstest(found, lambda q, c=cdf: np.interp(q, *c), method="asymp").pvalue > LEAST_P, case


def test_draws_are_repeatable_and_do_not_depend_on_threads(monkeypatch):
    z = np.random.default_rng(0).normal(size=(40_000, 3))
    b = np.where(z > 0, 1.0, np.where(z > -1, 2.5, 60.0))
    first = draw_rv(polya_gamma, [b, z], "NUMBA", seed=1)
    monkeypatch.setattr(threads._threads, "value", 3)
    again = draw_rv(polya_gamma, [b, z], "NUMBA", seed=1)
    np.testing.assert_array_equal(first, again)
    assert (first != draw_rv(polya_gamma, [b, z], "NUMBA", seed=2)).all()


def acceptance(attempt, x, h):
    """ρ(x), read off whether attempts are accepted: by bisection, for h standard normals that propose x where c = 0."""
    n, low, high = h / np.sqrt(x), np.zeros_like(x), np.ones_like(x)
    for _ in range(54):
        middle = (low + high) / 2
        accepted = attempt(n, 1 - middle)[1]
        low, high = np.where(accepted, middle, low), np.where(accepted, high, middle)
    return low


def test_what_is_accepted():
    """ρ of shape 1 against Jacobi's product, at both ends; the general one the same; that of shape 2 by convolution."""
    x = np.r_[np.linspace(0.05, 12, 400), 4.0499, 4.0501]
    q = np.exp(-4 / x[:, None])
    product = np.prod(-np.expm1(np.arange(1, 400) * np.log(q)), 1) ** 3
    _, one = _formulas(np, np.where, np.exp)
    u = np.zeros_like(x)
    np.testing.assert_allclose(acceptance(lambda n, w: one(n, u, w, 0.0), x, 1.0), product, atol=1e-14)
    general = acceptance(lambda n, w: _attempt(n, u, w, 1.0, 0.0, 1.0), x, 1.0)
    np.testing.assert_allclose(general, product, atol=1e-13)
    # X of shape 2 is a sum of two of shape 1
    for at in (0.7, 2.0, 5.0, 9.0):
        t = at * (np.arange(4000) + 0.5) / 4000
        f = [series(s / 4, 0.0) / 4 for s in (t, at - t)]
        density = (f[0] * f[1]).sum() * at / 4000
        expected = density / (4 * 2 / np.sqrt(2 * np.pi * at**3) * np.exp(-2 / at))
        found = acceptance(lambda n, w: _attempt(n, 0.0, w, 2.0, 0.0, 0.5), np.array([at]), 2.0)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_logarithm_of_the_large_density_is_concave():
    """By second differences, over all tilts, at the least shape."""
    large = saddlepoint.formulas(np, np.where)
    assert (np.array(large.bounds(np.array([32.0, 1e6]))).T[0] > 0.9).all()
    for c in (0.0, 0.3, 1.0, 3.0, 30.0, 3000.0):
        for b in (32.0, 1000.0):
            at = large.prepare(b, c)
            r = np.linspace(-1.5, 1.5, 3001)
            values, slopes, _, _ = large.density(r, b, c, at[2])
            assert np.diff(values, 2).max() < 0
            np.testing.assert_allclose(slopes[1:-1], np.gradient(values, r)[1:-1], rtol=1e-2, atol=1e-2 * b**0.5)


@pytest.mark.parametrize("b", [32.0, 33.5, 100.0])
def test_correction_lies_within_its_bounds(b):
    """R, over the whole range of v, and for v near its left end that of a gamma variable, by Stirling's series."""
    large = saddlepoint.formulas(np, np.where)
    v = np.r_[-(np.pi**2) / 4 + np.logspace(-4, 0, 60), np.linspace(-0.2, 0.2, 41), np.logspace(-1, 7, 100)]
    at = large.tilted(np.full_like(v, b), v)
    r = large.factor() * (0.5 + sum(large.node(j, at) for j in range(1, saddlepoint.NODES)))
    low, high = large.bounds(b)
    assert (low < r).all()
    assert (r < high).all()
    assert (np.abs(np.diff(r[np.argsort(v)])) < 1e-3).all()
    np.testing.assert_allclose(r[0], np.exp(-1 / (12 * b) + 1 / (360 * b**3)), rtol=1e-6)
    np.testing.assert_allclose(r[-1], 1, rtol=1e-6)

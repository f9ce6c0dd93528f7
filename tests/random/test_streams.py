"""The random numbers inlined into Numba kernels, and what is built of them."""

import numpy as np
import pytest
from numba import njit
from scipy import stats
from scipy.special import erfcx, ndtr

from pymc_gibbsnn.random import _half_line, _streams
from pymc_gibbsnn.random.argmax_normal import argmax_normal
from pymc_gibbsnn.random.isotropic_normal import isotropic_normal
from tests.helpers import MODES, draw_rv

LEAST_P = 1e-4


@njit
def fill(rng, uniform, uniforms, normal, normals, exponential):
    """Each array from a stream of its own."""
    streams = _streams.streams(rng, 5)
    for i in range(len(uniform)):
        uniform[i] = _streams.uniform(streams[0])
        normal[i] = _streams.normal(streams[1])
        exponential[i] = _streams.exponential(streams[2])
    _streams.uniforms(streams[3], uniforms)
    _streams.normals(streams[4], normals)


@njit
def first_bits(stream):
    return _streams._bits(stream)


@njit
def fill_excess(rng, a, out):
    [stream] = _streams.streams(rng, 1)
    for i in range(len(out)):
        out[i] = _half_line.excess(stream, _streams.normal(stream), a)


@njit
def masses(a, out):
    for i in range(len(a)):
        out[i] = _half_line.relative_mass(a[i])


@pytest.fixture(scope="module")
def numbers():
    found = [np.empty(2_000_000) for _ in range(5)]
    fill(np.random.default_rng(0), *found)
    return dict(zip(("uniform", "uniforms", "normal", "normals", "exponential"), found, strict=True))


DISTRIBUTIONS = {"uniform": stats.uniform, "uniforms": stats.uniform, "normal": stats.norm, "normals": stats.norm}


@pytest.mark.parametrize("name", [*DISTRIBUTIONS, "exponential"])
def test_distribution(numbers, name):
    x, distribution = numbers[name], DISTRIBUTIONS.get(name, stats.expon)
    assert stats.kstest(x, distribution.cdf).pvalue > LEAST_P
    for power in (1, 2, 3, 4):
        assert abs(np.mean(x**power) - distribution.moment(power)) < 5 * np.std(x**power) / np.sqrt(len(x))
    # Bits that choose a layer and bits that choose a place, and numbers next to each other, have nothing in common.
    u = distribution.cdf(x)
    for lag in (1, 2, 256):
        table, _, _ = np.histogram2d(u[:-lag], u[lag:], bins=32, range=[[0, 1], [0, 1]])
        assert stats.chisquare(table.ravel()).pvalue > LEAST_P


@pytest.mark.parametrize("name", ["normal", "normals"])
def test_tail_of_normals(numbers, name):
    x, start = numbers[name], _streams.NORMAL_TAIL
    far = np.abs(x[np.abs(x) > start])
    assert stats.binomtest(len(far), len(x), 2 * stats.norm.sf(start)).pvalue > LEAST_P
    assert stats.kstest(stats.norm.sf(far) / stats.norm.sf(start), "uniform").pvalue > LEAST_P
    near = np.abs(x[np.abs(x) < 0.3])  # the highest layers
    assert stats.kstest((ndtr(near) - 0.5) / (ndtr(0.3) - 0.5), "uniform").pvalue > LEAST_P


def test_tail_of_exponentials(numbers):
    x, start = numbers["exponential"], _streams.EXPONENTIAL_TAIL
    far = x[x > start]
    assert stats.binomtest(len(far), len(x), np.exp(-start)).pvalue > LEAST_P
    assert stats.kstest(far - start, "expon").pvalue > LEAST_P


def test_layers_have_one_area():
    for widths, heights in (
        (_streams.NORMAL_WIDTHS, _streams.NORMAL_HEIGHTS),
        (_streams.EXPONENTIAL_WIDTHS, _streams.EXPONENTIAL_HEIGHTS),
    ):
        areas = widths[1:-1] * np.diff(heights)[1:]
        np.testing.assert_allclose(areas, widths[0] * heights[1], rtol=1e-11)


def test_first_numbers_of_the_stream_from_zero():
    """Those of the reference implementation of SplitMix64."""
    stream = np.zeros(1, np.uint64)
    found = [first_bits(stream) for _ in range(2)]
    assert found == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


def test_streams_are_repeatable_and_independent():
    def draws(seed):
        found = np.empty((5, 50_000))
        fill(np.random.default_rng(seed), *found)
        return found

    first, again, other = draws(1), draws(1), draws(2)
    np.testing.assert_array_equal(first, again)
    x = np.concatenate([first, other])
    correlation = np.corrcoef(x) - np.eye(len(x))
    assert np.abs(correlation).max() < 5 / np.sqrt(x.shape[1])


def test_mass_beyond_a_point():
    a = np.r_[np.linspace(-40, 40, 4001), np.logspace(1, 8, 200), -np.logspace(1, 8, 200), 0.0]
    found = np.empty_like(a)
    masses(a, found)
    expected = np.where(a > 0, np.sqrt(np.pi / 2) * erfcx(np.abs(a) / np.sqrt(2)), np.sqrt(2 * np.pi) * ndtr(-a))
    np.testing.assert_allclose(found, expected, rtol=4e-15)


@pytest.mark.parametrize("a", [-30, -1, 0, 0.2, 0.699, 0.7, 1, 3, 40, 1e6])
def test_excess(a):
    x = np.empty(200_000)
    fill_excess(np.random.default_rng(3), a, x)
    assert x.min() > 0
    # P(X > a + x | X > a), by Mills' ratio where a is large
    beyond = stats.norm.logsf(a + x) - stats.norm.logsf(a)
    if a > 10:
        ratio = erfcx((a + x) / np.sqrt(2)) / erfcx(a / np.sqrt(2))
        beyond = np.log(ratio) - x * (a + x / 2)
    assert stats.kstest(np.exp(beyond), "uniform").pvalue > LEAST_P


@pytest.mark.parametrize("mode", MODES)
def test_argmax_normal(mode):
    """Given where a pass starts, both of its blocks are truncated normals, however far out."""
    n, v = 20_000, 0.25
    y = np.arange(n) % 3
    for m, start in (([0.1, -0.3, 0.4], [0.2, 0.5, 0.3]), ([-6.0, 9.0, 0.0], [2.0, 2.5, 1.0])):
        m = np.tile(m, (n, 1))
        z = draw_rv(argmax_normal, [np.tile(start, (n, 1)), m, v, y], mode)
        rows, sd = np.arange(n), v**0.5
        assert (z.argmax(1) == y).all()
        others = np.where(np.arange(3) == y[:, None], -np.inf, start).max(1)
        highest, mean = z[rows, y], m[rows, y]
        ratio = stats.norm.logsf((highest - mean) / sd) - stats.norm.logsf((others - mean) / sd)
        below = stats.norm.logcdf((z - m) / sd) - stats.norm.logcdf((highest[:, None] - m) / sd)
        for label in range(3):
            assert stats.kstest(np.exp(ratio[y == label]), "uniform").pvalue > LEAST_P
            for k in {0, 1, 2} - {label}:
                assert stats.kstest(np.exp(below[y == label, k]), "uniform").pvalue > LEAST_P


@pytest.mark.parametrize("mode", MODES)
def test_isotropic_normal(mode):
    m = np.linspace(-1, 1, 300 * 70).reshape(70, 300)
    for v in (0.04, 9.0):
        x = (draw_rv(isotropic_normal, [m, v], mode) - m) / v**0.5
        assert stats.kstest(x.ravel(), "norm").pvalue > LEAST_P
        assert np.abs(np.corrcoef(x) - np.eye(70)).max() < 6 / np.sqrt(300)

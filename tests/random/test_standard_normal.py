"""Standard normals that JAX draws in pairs: their distribution, and that they are what they were elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pytensor.tensor.random import normal
from scipy import stats

from pymc_gibbsnn.random._jax_normals import LEAST, standard_normals
from pymc_gibbsnn.random.standard_normal import standard_normal
from tests.helpers import draw_rv

N = 400_001


@pytest.fixture(scope="module")
def draws():
    """Two keys; an odd number."""
    return np.array([standard_normals(jax.random.key(i), (N,), jnp.float32) for i in (1, 2)], "float64")


def test_the_distribution(draws):
    """Each half, sines and cosines, by its distribution and its moments; and no more than chance makes alike."""
    half = N // 2
    for x in (draws[0, :half], draws[0, -half:], draws[1]):
        assert stats.kstest(x, "norm").pvalue > 1e-4
        for power, moment, fourth in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
            assert abs((x**power).mean() - moment) < 4 * (fourth / len(x)) ** 0.5
    assert 4.2 < abs(draws).max() < 6.8  # of 800,000
    sines, cosines = draws[:, : N // 2 + 1], draws[:, N // 2 + 1 :]
    pairs = [(sines[0, :-1], cosines[0]), (draws[0], draws[1]), (draws[0, 1:], draws[0, :-1])]
    for x, y in pairs:
        for f in (np.array, np.square, np.abs):
            assert abs(np.corrcoef(f(x), f(y))[0, 1]) < 4 / len(x) ** 0.5
    angle, radius = np.arctan2(sines[0, :-1], cosines[0]), sines[0, :-1] ** 2 + cosines[0] ** 2
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-4
    assert stats.kstest(radius, stats.chi2(2).cdf).pvalue > 1e-4


def test_chains_draw_what_each_of_them_draws_alone():
    keys, shape = jax.random.split(jax.random.key(1), 3), (LEAST // 10, 11)
    together = jax.vmap(lambda key: standard_normals(key, shape, jnp.float32))(keys)
    alone = [standard_normals(key, shape, jnp.float32) for key in keys]
    np.testing.assert_allclose(together, alone, rtol=1e-6)
    assert len(np.unique(together)) == together.size


def test_few_numbers_and_those_of_double_precision_are_those_of_jax():
    key = jax.random.key(1)
    for size, dtype in ((LEAST - 1, "float32"), (LEAST, "float64")):
        with jax.enable_x64(True):
            np.testing.assert_array_equal(standard_normals(key, (size,), dtype), jax.random.normal(key, (size,), dtype))


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA"])
def test_other_backends_draw_as_they_do(mode):
    np.testing.assert_array_equal(*(draw_rv(op, [0.0, np.ones(2000)], mode) for op in (standard_normal, normal)))

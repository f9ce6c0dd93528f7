"""Each conditional against a dense Gaussian built by brute force, or against differences of the joint density."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_gibbsnn.moves.postactivations import draw_postactivations
from pymc_gibbsnn.moves.weights import Spectrum, draw_weights, draw_weights_from_spectrum, spectrum
from tests.helpers import check_moments, compile_draw, dense, slow, value

COPIES = 40_000  # columns (or rows) that are independent draws of one distribution


def regression(n, d, has_bias, seed=0):
    rng = np.random.default_rng(seed)
    a, z = rng.normal(size=(n, d)), rng.normal(size=n)
    precision = rng.gamma(3.0, size=d + has_bias)
    augmented = np.c_[a, np.ones(n)] if has_bias else a
    noise = 0.3
    covariance = np.linalg.inv(augmented.T @ augmented / noise + np.diag(precision))
    return a, z, precision, noise, covariance @ augmented.T @ z / noise, covariance


@pytest.mark.parametrize("mode", ["AS_WRITTEN", slow("NUMBA")])
@pytest.mark.parametrize(("n", "d"), [(12, 3), (3, 5)], ids=["square", "thin"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_weights_from_spectrum(n, d, has_bias, mode):
    a, z, precision, noise, mean, covariance = regression(n, d, has_bias)
    thin = d + has_bias > n
    precision = pt.constant(precision[None])

    def build(rng):
        operator, x = dense((COPIES, d), has_bias), pt.constant(a)
        basis = Spectrum(*(pt.constant(value(part)) for part in spectrum(operator, x, len(a), precision, thin)))
        size = COPIES, d + has_bias
        moments = operator.moments(x, pt.constant(np.tile(z[:, None], COPIES)))
        return draw_weights_from_spectrum(rng, basis, moments, pt.constant(noise), precision, size, thin)

    check_moments(compile_draw(build, mode)(), mean, covariance)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA"])
@pytest.mark.parametrize("shared", [True, False], ids=["shared prior", "prior by unit"])
def test_weights_from_cholesky(shared, mode):
    a, z, precision, noise, mean, covariance = regression(12, 3, True)
    copies = COPIES if shared else 4000

    def build(rng):
        augmented = pt.constant(np.c_[a, np.ones(len(a))])
        targets = pt.constant(np.tile(z[:, None], copies))
        prior = pt.constant(precision[None] if shared else np.tile(precision, (copies, 1)))
        gram, moments = augmented.T @ augmented, augmented.T @ targets
        return draw_weights(rng, gram, moments, pt.constant(noise), prior, (copies, len(precision)))

    check_moments(compile_draw(build, mode)(), mean, covariance)


def test_units_keep_their_own_priors():
    """Two units with opposite priors: each is shrunk by its own."""
    prior = pt.constant([[1e8, 1e-8], [1e-8, 1e8]])
    gram, moments = pt.constant(np.eye(2)), pt.constant(np.full((2, 2), 100.0))
    draw = compile_draw(lambda rng: draw_weights(rng, gram, moments, pt.constant(1e-2), prior, (2, 2)))
    np.testing.assert_allclose(draw(), [[0, 100], [100, 0]], atol=1)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA"])
@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (4, 2)])
def test_postactivations(shape, mode):
    rng = np.random.default_rng(1)
    w, s, y = rng.normal(size=shape), rng.normal(size=shape[1]), rng.normal(size=shape[0])
    below, above = 0.4, 0.1
    covariance = np.linalg.inv(w.T @ w / above + np.eye(shape[1]) / below)
    mean = covariance @ (s / below + w.T @ y / above)

    def build(rng):
        w_, s_, y_ = pt.constant(w), pt.constant(np.tile(s, (COPIES, 1))), pt.constant(np.tile(y, (COPIES, 1)))
        below_, above_ = pt.constant(below), pt.constant(above)
        g = below_ * dense(shape).gain(w_, below_, above_)
        return draw_postactivations(rng, s_, below_, y_, lambda a: a @ w_.T, lambda r: r @ g, above_)

    check_moments(compile_draw(build, mode)(), mean, covariance)


def test_postactivations_of_a_dead_unit_are_their_prior():
    w = np.zeros((1, 2))
    zero = pt.constant(np.zeros((COPIES, 2)))
    below, above = pt.constant(0.4), pt.constant(0.1)
    g = below * dense((1, 2)).gain(pt.constant(w), below, above)
    draw = compile_draw(
        lambda rng: draw_postactivations(rng, zero, below, zero[:, :1], lambda a: a @ w.T, lambda r: r @ g, above)
    )
    check_moments(draw(), np.zeros(2), 0.4 * np.eye(2))

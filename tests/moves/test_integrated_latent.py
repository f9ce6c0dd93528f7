"""Moves with the last latent integrated out: what each row's own variance changes, against closed forms."""

import numpy as np
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_gibbsnn.moves.integrated_latent import draw_shared
from pymc_gibbsnn.moves.postactivations import draw_postactivations
from pymc_gibbsnn.moves.weights import draw_weights_of
from pymc_gibbsnn.networks.network import Layer
from tests.helpers import check_moments, compile_draw, dense

N = 20_000
MODES = ["AS_WRITTEN", "NUMBA", "JAX"]


@pytest.mark.parametrize("mode", MODES)
def test_the_part_of_the_noise_that_data_share(mode):
    """For data drawn around M, U has the smallest variance, and the rest of the noise does not depend on it."""
    rng = np.random.default_rng(0)
    variance, mean = rng.choice([0.5, 0.7, 40.0], size=(N, 1)), rng.normal(size=(N, 1))
    data = mean + np.sqrt(variance) * rng.normal(size=mean.shape)
    drawn = compile_draw(lambda rng: draw_shared(rng, *map(pt.constant, (mean, data, variance)))[:2], mode)()
    for v in np.unique(variance):
        rows = variance[:, 0] == v
        noise, rest = (drawn - mean)[rows, 0], (data - drawn)[rows, 0]
        assert stats.kstest(noise / 0.5**0.5, "norm").pvalue > 1e-3
        assert stats.pearsonr(noise, rest).pvalue > 1e-3 if v > 0.5 else abs(rest).max() < 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_postactivations_where_rows_have_their_own_noise(mode):
    rng = np.random.default_rng(1)
    w, s, y, below = rng.normal(size=(1, 3)), rng.normal(size=3), rng.normal(), 0.4
    above = np.repeat([0.1, 1.0, 50.0], N)[:, None]
    s_, y_ = np.tile(s, (3 * N, 1)), np.full((3 * N, 1), y)

    def build(rng):
        w_, below_, above_ = pt.constant(w), pt.constant(below), pt.constant(above)
        operator = dense((1, 3))
        maps = lambda a: operator.forward(a, w_), lambda r: operator.correction(r, w_, below_, above_)
        return draw_postactivations(rng, pt.constant(s_), below_, pt.constant(y_), *maps, above_)

    drawn = compile_draw(build, mode)()
    for v in np.unique(above):
        covariance = np.linalg.inv(w.T @ w / v + np.eye(3) / below)
        check_moments(drawn[above[:, 0] == v], covariance @ (s / below + w[0] * y / v), covariance)


@pytest.mark.parametrize("mode", MODES)
def test_weights_where_rows_have_their_own_noise(mode):
    rng = np.random.default_rng(2)
    a, z, noise = rng.normal(size=(9, 2)), rng.normal(size=(9, 1)), rng.uniform(0.1, 5, size=(9, 1))
    design = np.c_[a, np.ones(9)]
    covariance = np.linalg.inv(np.eye(3) + design.T @ (design / noise))

    def build(rng):
        operator = dense((N, 2), has_bias=True)
        layer = Layer("z", operator, pt.constant(z), pt.constant(noise))
        targets = pt.constant(np.tile(z, N))  # as many units, which are independent
        return draw_weights_of(rng, layer, pt.constant(a), targets, pt.constant(9))

    check_moments(compile_draw(build, mode)(), covariance @ design.T @ (z / noise)[:, 0], covariance)

"""The estimator of α-stable parameters against SciPy's distribution, and the closest Gaussian against quadrature."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import levy_stable

import pymc_gibbsnn as pmg
from pymc_gibbsnn.samplers.alpha_stable import closest_gaussian


@pytest.mark.parametrize("alpha", [0.6, 1.0, 1.5, 2.0])
def test_parameters_of_simulated_noise(alpha):
    w = 3 * levy_stable.rvs(alpha, 0, size=(40_000, 2), random_state=1)  # E exp(itw) = exp(-|3t|^α)
    for found in (pmg.stable_parameters(w), pmg.stable_parameters(w + 7, centre=True, block=5)):
        np.testing.assert_allclose(found[0], alpha, rtol=0.03)
        np.testing.assert_allclose(found[1], 3, rtol=0.03)


def test_noise_that_is_no_noise():
    for centre in (False, True):  # as of a chain that never moves; the other column does
        w = np.stack([np.full(40, 3.0), np.random.default_rng(1).normal(size=40)], axis=1)
        alpha, c = pmg.stable_parameters(w, centre=centre)
        assert (alpha[0], c[0]) == (2, 0)
        np.testing.assert_allclose((alpha[1], c[1]), pmg.stable_parameters(w[:, 1], centre=centre))
    assert pmg.stable_parameters(np.zeros(20)) == (2, 0)
    for w, centre in ((np.zeros(9), False), (np.zeros(19), True), (0.0, False)):
        with pytest.raises(ValueError, match="w must hold a block of"):
            pmg.stable_parameters(w, centre=centre)
    with pytest.raises(ValueError, match="w holds 1 values that are NaN"):
        pmg.stable_parameters([np.nan] * 1 + [0.0] * 19)


@pytest.mark.parametrize(("alpha", "ratio"), [(0.3, None), (0.5, 0.7500), (1.0, 0.7195), (2.0, 0.7071)])
def test_the_closest_gaussian(alpha, ratio):
    """Of least distance ∫ (p − q)² of the characteristic functions, on a grid of standard deviations."""
    found = float(closest_gaussian(alpha, 1.0)) ** 0.5
    if ratio:
        np.testing.assert_allclose(1 / found, ratio, rtol=2e-3)

    def distance(sigma):
        def integrand(t):
            return np.exp(-((sigma * t) ** 2)) - 2 * np.exp(-((sigma * t) ** 2) / 2 - abs(t) ** alpha)

        return quad(integrand, 0, 1)[0] + quad(integrand, 1, np.inf)[0]

    assert distance(found) < min(distance(0.97 * found), distance(1.03 * found))

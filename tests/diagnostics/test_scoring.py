import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

import pymc_gibbsnn as pmg
from pymc_gibbsnn.diagnostics.scoring import (
    brier,
    coverage,
    crps,
    expected_calibration_error,
    log_predictive_density,
    pit,
    reliability,
    rmse,
    sharpness,
)
from pymc_gibbsnn.plots import plot_calibration, plot_coverage

RNG = np.random.default_rng(0)


def test_against_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    p, labels = RNG.dirichlet(np.ones(3), size=50), RNG.integers(3, size=50)
    one_hot = np.eye(3)[labels]
    assert np.isclose(brier(p, labels), ((p - one_hot) ** 2).sum(1).mean())
    binary = labels > 0
    assert np.isclose(brier(p[:, 0], binary), 2 * metrics.brier_score_loss(binary, p[:, 0]))
    samples, y = RNG.normal(size=(2, 30, 40)), RNG.normal(size=40)
    assert np.isclose(rmse(samples, y), metrics.root_mean_squared_error(y, samples.mean((0, 1))))
    log_p = np.log(RNG.dirichlet(np.ones(3), size=(2, 30, 50)))
    picked = np.take_along_axis(log_p, labels[None, None, :, None], axis=-1)[..., 0]
    loss = metrics.log_loss(labels, np.exp(log_p).mean((0, 1)), labels=[0, 1, 2])
    assert np.isclose(log_predictive_density(picked), -loss)


def test_density_of_a_mixture():
    mu, y = RNG.normal(size=(2, 500)), np.array([0.3, 8.0])
    density = norm.pdf(y, mu[..., None]).mean((0, 1))
    assert np.isclose(log_predictive_density(norm.logpdf(y, mu[..., None])), np.log(density).mean())
    assert np.isfinite(log_predictive_density(np.full((1, 2, 3), -2000.0)))


def test_normal_predictions():
    """The scores of Normal distributions have closed forms."""
    mu, sigma, y = np.array([0.0, 1.0, -3.0]), np.array([1.0, 0.5, 2.0]), np.array([0.3, 2.0, -3.0])
    samples = np.random.default_rng(1).normal(mu, sigma, size=(4, 50_000, 3))
    z = (y - mu) / sigma
    truth = sigma * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - np.pi**-0.5)  # Gneiting and Raftery, eq. 21
    np.testing.assert_allclose(crps(samples, y), truth.mean(), rtol=5e-3)
    np.testing.assert_allclose(pit(samples, y), norm.cdf(z), atol=5e-3)
    np.testing.assert_allclose(sharpness(samples, 0.8), 2 * norm.ppf(0.9) * sigma.mean(), rtol=5e-3)
    assert coverage(samples, y) == 2 / 3  # the second lies outside of 90 percent, the others inside


def test_few_draws_are_scored_without_bias():
    samples = np.random.default_rng(2).normal(size=(1, 3, 200_000))
    assert np.isclose(crps(samples, np.zeros(200_000)), (2**0.5 - 1) * np.pi**-0.5, rtol=0.01)


def test_coverage_of_calibrated_predictions_is_the_level():
    rng = np.random.default_rng(3)
    samples, y = rng.normal(size=(2, 200, 2000)), rng.normal(size=2000)
    for level in (0.5, 0.9):
        assert abs(coverage(samples, y, level) - level) < 0.04
    ax = plot_coverage(samples, y)
    line = ax.lines[-1]
    level = line.get_xdata()[4]
    assert abs(line.get_ydata()[4] - coverage(samples, y, level)) < 0.01  # quantiles of draws are interpolated


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: crps(np.zeros((1, 1, 3)), np.zeros(3)), "two draws or more"),
        (lambda: pit(np.zeros((2, 3)), np.zeros(3)), "samples must be \\(chain, draw"),
        (lambda: coverage(np.zeros((2, 3, 4)), np.zeros(4), 1.0), "level must be a probability between 0 and 1"),
        (lambda: sharpness(np.zeros((2, 3))), "samples must be"),
    ],
)
def test_wrong_samples_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_calibration_error():
    p = np.array([0.95, 0.95, 0.65, 0.1])  # of class 1: predicted 1, 1, 1, 0
    labels = np.array([1, 0, 1, 0])
    share, confidence, accuracy = reliability(p, labels, bins=10)
    np.testing.assert_allclose(share[[6, 8, 9]], [0.25, 0.25, 0.5])
    np.testing.assert_allclose(confidence[[6, 8, 9]], [0.65, 0.9, 0.95])
    np.testing.assert_allclose(accuracy[[6, 8, 9]], [1, 1, 0.5])
    assert np.isclose(expected_calibration_error(p, labels), 0.25 * 0.35 + 0.25 * 0.1 + 0.5 * 0.45)
    confident = RNG.uniform(size=200_000)
    calibrated = RNG.uniform(size=200_000) < confident
    assert expected_calibration_error(confident, calibrated.astype(int)) < 0.01
    assert expected_calibration_error(confident**2, calibrated.astype(int)) > 0.03


def test_the_figure_shows_the_error():
    p, labels = np.array([0.95, 0.95, 0.65, 0.1]), np.array([1, 0, 1, 0])
    ax = plot_calibration(p, labels)
    assert ax.get_title() == f"expected calibration error {expected_calibration_error(p, labels):.3f}"
    np.testing.assert_allclose(ax.lines[1].get_ydata(), [1, 1, 0.5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rmse(np.zeros((2, 3)), np.zeros(3)), "samples must be"),
        (lambda: rmse(np.full((2, 3, 1), "a"), np.zeros(1)), "samples must hold numbers; found 'a'"),
        (lambda: rmse(np.zeros((2, 3, 1)), ["a"]), "y must hold numbers; found 'a'"),
        (lambda: rmse(np.zeros((2, 0, 1)), [0]), r"samples must hold draws .* found shape \(2, 0, 1\)"),
        (lambda: log_predictive_density(np.full((2, 3, 1), "a")), "log_likelihood must hold numbers; found 'a'"),
        (lambda: log_predictive_density(np.zeros((2, 0, 1))), r"none empty; found shape \(2, 0, 1\)"),
        (lambda: brier(np.full((3, 2), "a"), np.zeros(3, int)), "probabilities must hold numbers; found 'a'"),
        (lambda: brier(np.zeros((0, 2)), np.zeros(0, int)), "none empty"),
        (lambda: log_predictive_density(np.zeros(3)), "must be \\(chain, draw, point"),
        (lambda: brier(np.ones((3, 2)) / 2, np.zeros(2, int)), "labels \\(point,\\)"),
        (lambda: brier(np.ones((3, 2)), np.zeros(3, int)), "sum to 1"),
        (lambda: brier(np.ones((3, 2)) / 2, np.full(3, 2)), "integers from 0 to 1"),
        (lambda: expected_calibration_error(np.ones((3, 2)) / 2, np.zeros(3)), "integers from 0 to 1"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_labels_may_be_the_names_that_probabilities_have():
    p = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    for names in ([1, 0], [3, 5], ["a", "b"]):
        named = xr.DataArray(p, dims=("point", "class"), coords={"class": names})
        labels = np.array(names)[[0, 1, 1]]
        for score in (pmg.scoring.brier, pmg.scoring.expected_calibration_error):
            assert score(named, labels) == score(p, [0, 1, 1])
            assert score(named[:, 1], [0, 1, 1]) == score(p[:, 1], [0, 1, 1])


@pytest.mark.parametrize("score", ["rmse", "crps", "pit", "coverage"])
def test_nothing_is_scored_that_is_not_a_number(score):
    samples = np.random.default_rng(0).normal(size=(2, 10, 3))
    with pytest.raises(ValueError, match="y must not hold NaN; found 1 of 3 numbers"):
        getattr(pmg.scoring, score)(samples, [np.nan, 0, 1])
    samples[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="samples must not hold NaN; found 1 of 60 numbers"):
        getattr(pmg.scoring, score)(samples, [0, 0, 1])

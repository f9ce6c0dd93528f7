"""The rules by which the series of a test function say that a chain has thermalised."""

import arviz as az
import numpy as np
import pytest

from pymc_gibbsnn.diagnostics.convergence import (
    blockwise_rhat,
    merge,
    stretch_of,
    when_close,
    when_settled,
    when_stationary,
)
from tests.helpers import autoregression, slow


@pytest.mark.parametrize(("rho", "draws"), [(0.0, 200), slow(0.9, 4000), slow(0.97, 1000), (0.99, 1000), (0.999, 1000)])
def test_false_alarms_on_pairs_in_equilibrium(rho, draws):
    rng = np.random.default_rng(0)
    pairs = [np.exp([autoregression(rng, rho, draws), autoregression(rng, rho, draws)]) for _ in range(200)]
    found = [merge(*pair) for pair in pairs]
    verdicts = [m.verdict for m in found]
    assert verdicts.count("not thermalised") <= 10
    if rho < 0.95:  # an ESS that is large enough to tell
        assert verdicts.count("thermalised") >= 180
        assert np.mean([m.draw == 0 for m in found if m.verdict == "thermalised"]) >= 0.9


@pytest.mark.parametrize("rho", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("slope", [0.0, -1.0])
def test_stuck_chains_are_never_thermalised(rho, slope):
    rng, draws = np.random.default_rng(1), 1000
    drift = slope * np.linspace(0, 1, draws)
    pairs = [(autoregression(rng, rho, draws), 3 + drift + 0.3 * autoregression(rng, rho, draws)) for _ in range(50)]
    verdicts = [merge(a, b).verdict for a, b in pairs]
    assert verdicts.count("thermalised") == 0
    assert verdicts.count("not thermalised") >= {0.5: 48, 0.9: 35, 0.99: 0}[rho]


def test_the_merge_is_where_the_curves_meet():
    rng, time = np.random.default_rng(2), np.arange(4000)
    informed = np.exp(autoregression(rng, 0.5, 4000)) * (1 - np.exp(-(time + 1) / 50))
    late = np.exp(autoregression(rng, 0.5, 4000)) * (1 + 1000 * np.exp(-time / 100))
    found = merge(informed, late)
    assert found.verdict == "thermalised"
    assert 550 <= found.draw <= 1000  # 1000 exp(-t/100) passes 1 at 691
    assert 550 <= when_stationary(late, 50) <= 1000
    assert merge(informed, 10 * late).verdict == "not thermalised"
    later = np.exp(autoregression(rng, 0.5, 4000)) * np.where(time < 2600, 50, 1)  # within the second half
    assert merge(informed, later)[:2] == ("thermalised", 2600)
    assert np.isnan(when_stationary(np.linspace(0, 1, 4000) + 0.01 * informed, 50))


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9])
def test_an_offset_changes_nothing(offset):
    rng = np.random.default_rng(0)
    x, z = 0.1 * np.stack([autoregression(rng, 0.8, 1000) for _ in range(2)])
    found, expected = merge(x + offset, z + offset), merge(x, z)
    assert found.verdict == expected.verdict
    np.testing.assert_allclose(found.ess, expected.ess, rtol=0.01)


def test_a_chain_that_leaves_at_the_end_is_not_settled():
    rng = np.random.default_rng(3)
    informed, other = rng.normal(size=(2, 1000))
    other[-50:] += 5
    assert merge(informed, other).verdict != "thermalised"


def test_blockwise_rhat_is_the_papers():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(3, 120, 2))
    m, n = 3, 50
    for block, found in enumerate(blockwise_rhat(x, n)):
        part = x[:, block * n : (block + 1) * n]
        within = part.var(axis=1, ddof=1).mean(0)
        between = n * part.mean(1).var(axis=0, ddof=1)
        pooled = (n - 1) / n * within + between / n
        np.testing.assert_allclose(found, (m + 1) / m * pooled / within - (n - 1) / (m * n))
        rank = [float(az.rhat(part[..., i])) for i in range(2)]
        np.testing.assert_allclose(blockwise_rhat(x, n, rank=True)[block], rank)
    assert len(blockwise_rhat(x, n)) == 2
    with pytest.raises(ValueError, match="two chains"):
        blockwise_rhat(x[:1], n)


def test_times():
    assert when_close(np.array([[9.0], [1.1], [1.5], [1.0], [1.1]]), 50) == 150
    assert np.isnan(when_close(np.array([[1.0], [np.nan]]), 50))
    rng = np.random.default_rng(5)
    series = rng.normal(size=1000)
    series[:7] = 30
    assert when_stationary(series, 10) == 10
    assert when_settled(series[10:], stretch_of(series), 10) == 0


@pytest.mark.parametrize(
    ("series", "message"),
    [
        (np.ones(99), "two blocks"),
        (np.ones(200), "constant"),
        (np.r_[np.arange(100.0), np.ones(100)], "constant"),
        (np.r_[np.nan, np.arange(199.0)], "not finite"),
        (np.arange(150.0), "differ in length"),
    ],
)
def test_bad_series_are_refused(series, message):
    with pytest.raises(ValueError, match=message):
        merge(np.random.default_rng(0).normal(size=200), series)

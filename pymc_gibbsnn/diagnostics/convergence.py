r"""When does the series of a test function say that a chain has thermalised? Rules that stand for the eye.

Let g be the test function (its logarithm if it is positive) along a chain that starts in equilibrium, the informed one
(I), and along another (U). m, s and e are the mean, the standard deviation and the effective sample size of the second
half of I, and of the second half or the last quarter of U, and

    D = (m_U − m_I)/s_I,    h = t_{ν, 0.995} sqrt(s_I²/e_I + s_U²/e_U)/s_I,    ν by Welch and Satterthwaite from e − 1.

- thermalised: abs(D) + h < 1, the 99% interval of the difference lies within one posterior standard deviation, for the
  second half or the last quarter of U, and its last block lies in the band below.
- not thermalised: abs(D) > t_{e_I − 1, 0.995} sqrt(3/e_I) for the last quarter, more than chains in equilibrium differ
  that mix as the informed one does, and e_I ≥ 20, without which it tells too little.
- undecided: otherwise. Run longer.

A chain that has thermalised did so at the first block of draws from which on all means of blocks lie within

    m_I ± t_{e_I − 1, 1 − 0.025/K} s_I sqrt(min(1, 1/e_b) + 1/e_I),

K the number of blocks and e_b = e_I (draws in a block)/(draws in a half): in equilibrium all of them do, with
probability 0.95. The same band around a chain's own second half dates its stationarity, if that half is worth 20
independent draws, and the same with mean 0 the score.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import stdtrit

__all__ = ["LEAST_ESS", "MARGIN", "Merge", "blockwise_rhat", "merge", "when_close", "when_settled", "when_stationary"]

LEAST_ESS = 20  # of the informed chain, to say that another one differs
CONFIDENCE, BAND = 0.99, 0.95
MARGIN = 1.0  # posterior standard deviations
CLOSE = 1.2  # R-hat that passes for close to 1


class Merge(NamedTuple):
    """How the test function of a chain compares with that of the informed chain.

    Parameters
    ----------
    verdict : {"thermalised", "not thermalised", "undecided"}
    draw : float
        Draws before the chain had thermalised; NaN unless it has.
    difference, half_width : float
        D and h: the difference of the means and its 99% interval, in posterior standard deviations.
    ess : float
        Effective sample size of the informed chain's second half.
    part : {"second half", "last quarter"}
        Of the other chain: over which D and h were taken.
    bound : float
        By how much the last quarter of a chain in equilibrium may differ, in posterior standard deviations.
    """

    verdict: str
    draw: float
    difference: float
    half_width: float
    ess: float
    part: str
    bound: float


class Stretch(NamedTuple):
    """Mean, standard deviation and effective sample size of a stretch of a series, and its length."""

    mean: float
    sd: float
    ess: float
    length: int


def merge(informed: ArrayLike, uninformed: ArrayLike, block: int = 50) -> Merge:
    """Compare the series of a test function along an informed and another chain, by the rule above.

    Wrong verdicts, measured by ``benchmarks/thermalisation.py`` (n = 200, 5-3-1, Δ = 1e-4): "not thermalised" for 2 of
    200 chains in equilibrium; "thermalised" for 2 of 50 that are far from it on average over the second half of the
    run, both of which left their plateau within that half.

    Parameters
    ----------
    informed, uninformed : array_like, shape (draw,)
        Of the same length, at least two blocks.
    block : int
        Draws in a block, at least 10.

    Returns
    -------
    Merge

    Raises
    ------
    ValueError
        If the series are too short, differ in length, are constant or not finite.
    """
    series = {"informed": np.asarray(informed, float), "uninformed": np.asarray(uninformed, float)}
    for name, x in series.items():
        check_series(name, x, block)
    if len(series["informed"]) != len(series["uninformed"]):
        raise ValueError(f"The series differ in length: {len(series['informed'])} and {len(series['uninformed'])}.")
    a, b = scaled(*series.values())
    law, settled = stretch_of(a), when_settled(b, stretch_of(a), block)
    bound = float(stdtrit(max(law.ess - 1, 1), (1 + CONFIDENCE) / 2) * np.sqrt(3 / law.ess))
    for part, share in (("second half", 1 / 2), ("last quarter", 1 / 4)):
        difference, half_width = _compare(law, stretch_of(b, share))
        if abs(difference) + half_width < MARGIN and np.isfinite(settled):
            return Merge("thermalised", settled, difference, half_width, law.ess, part, bound)
    differs = abs(difference) > bound and law.ess >= LEAST_ESS
    verdict = "not thermalised" if differs else "undecided"
    return Merge(verdict, np.nan, difference, half_width, law.ess, part, bound)


def _compare(law: Stretch, other: Stretch) -> tuple[float, float]:
    """D and h."""
    errors = [x.sd**2 / x.ess for x in (law, other)]
    freedom = sum(errors) ** 2 / sum(v**2 / max(x.ess - 1, 1) for v, x in zip(errors, (law, other), strict=True))
    half_width = stdtrit(freedom, (1 + CONFIDENCE) / 2) * np.sqrt(sum(errors))
    return float((other.mean - law.mean) / law.sd), float(half_width / law.sd)


def blockwise_rhat(outputs: ArrayLike, block: int = 50, *, rank: bool = False) -> np.ndarray:
    r"""R-hat of some chains in consecutive blocks of draws.

    .. math:: \hat R = \frac{M+1}{M} \frac{\hat\sigma_+^2}{W} - \frac{N-1}{MN}, \quad
              \hat\sigma_+^2 = \frac{N-1}{N} W + \frac{B}{N}

    with W the mean variance within a chain, B/N the variance of the M chains' means, N the draws in a block: the
    variance ratio of arXiv 2306.02729, appendix A, without a square root.

    Parameters
    ----------
    outputs : array_like, shape (chain, draw, ...)
        At least two chains; draws beyond the last whole block are left out.
    block : int
    rank : bool
        ArviZ's rank-normalised, split R-hat instead.

    Returns
    -------
    array, shape (block, ...)
    """
    outputs = np.asarray(outputs, float)
    m, draws = outputs.shape[:2]
    if m < 2 or draws < 2 * block:
        raise ValueError(f"R-hat needs two chains of two blocks of {block} draws; found {m} of {draws} draws.")
    k = draws // block
    x = outputs[:, : k * block].reshape(m, k, block, *outputs.shape[2:])
    if rank:
        import arviz as az

        data = xr.Dataset({"x": (("chain", "draw", "cell"), np.moveaxis(x, 2, 1).reshape(m, block, -1))})
        return az.rhat(data)["x"].values.reshape(k, *outputs.shape[2:])
    within = x.var(axis=2, ddof=1).mean(axis=0)
    between = x.mean(axis=2).var(axis=0, ddof=1)
    pooled = (block - 1) / block * within + between
    with np.errstate(divide="ignore", invalid="ignore"):
        return (m + 1) / m * pooled / within - (block - 1) / (m * block)


def check_series(name: str, series: np.ndarray, block: int) -> None:
    """Refuse a series that is too short, not finite or constant."""
    if series.ndim != 1 or len(series) < 2 * block or block < 10:
        raise ValueError(f"A series must have two blocks of at least 10 draws; '{name}' has shape {series.shape}.")
    if not np.isfinite(series).all():
        raise ValueError(f"The test function of '{name}' is not finite.")
    half = series[len(series) // 2 :]
    if np.ptp(half) <= 1e-12 * np.abs(half).max():
        raise ValueError(
            f"The test function of '{name}' is constant over the second half of the chain: it tells nothing. "
            f"Take another one, or a sampler that moves."
        )


def scaled(*series: np.ndarray) -> list[np.ndarray]:
    """Logarithms, where all are positive."""
    return [np.log(x) for x in series] if all((x > 0).all() for x in series) else list(series)


def stretch_of(series: np.ndarray, share: float = 1 / 2) -> Stretch:
    """Of the last part of a series."""
    import arviz as az

    end = series[-max(10, int(share * len(series))) :]
    ess = float(az.ess(end[None], method="mean"))
    return Stretch(
        float(end.mean()), float(end.std(ddof=1)), float(np.clip(np.nan_to_num(ess, nan=1.0), 1, len(end))), len(end)
    )


def when_settled(series: np.ndarray, law: Stretch, block: int) -> float:
    """Draws after which all means of blocks lie where those of a stationary series of this law do."""
    k = len(series) // block
    means = series[: k * block].reshape(k, block).mean(axis=1)
    t = stdtrit(max(law.ess - 1, 1), 1 - (1 - BAND) / (2 * k))
    in_block = max(1.0, law.ess * block / law.length)
    outside = np.abs(means - law.mean) > t * law.sd * np.sqrt(1 / in_block + 1 / law.ess)
    return _after_last(outside, block)


def when_stationary(series: np.ndarray, block: int) -> float:
    """Draws after which a series is as in its own second half; NaN if that tells too little."""
    [series] = scaled(series)
    law = stretch_of(series)
    return when_settled(series, law, block) if law.ess >= LEAST_ESS else np.nan


def when_close(rhat: np.ndarray, block: int) -> float:
    """Draws after which the mean of R-hat over points stays close to 1."""
    return _after_last(~(rhat.reshape(len(rhat), -1).mean(axis=1) < CLOSE), block)


def _after_last(blocks: np.ndarray, block: int) -> float:
    """Draws up to the end of the last of some blocks; NaN if the series ends with it."""
    if blocks[-1]:
        return np.nan
    return float(block * (np.flatnonzero(blocks)[-1] + 1)) if blocks.any() else 0.0

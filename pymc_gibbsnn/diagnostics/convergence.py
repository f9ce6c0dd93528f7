r"""Rules that decide, from the series of a test function, whether and when a chain has thermalised.

They stand for what one sees in a plot. Let g be a test function (its logarithm if it is positive), followed along a
chain I that starts in equilibrium, the informed one, and along a chain U from elsewhere. Let m, s and e be the mean,
the standard deviation and the effective sample size of the second half of I, and of the second half or the last quarter
of U, and let

    D = (m_U − m_I)/s_I,    h = t_{ν, 0.995} sqrt(s_I²/e_I + s_U²/e_U)/s_I,

where t_{ν, q} is the q-quantile of Student's t distribution with ν degrees of freedom, here those of Welch and
Satterthwaite from e − 1. The verdict on U is

- thermalised, if abs(D) + h < 1 for the second half or the last quarter of U, so that the 99% interval of the
  difference lies within one posterior standard deviation, and the last block of U lies in the band below;
- not thermalised, if abs(D) > t_{e_I − 1, 0.995} sqrt(3/e_I) for the last quarter, which is more than chains in
  equilibrium differ that mix as the informed one does, and e_I ≥ 20, as a smaller effective sample size tells too
  little;
- undecided otherwise, which asks for a longer run.

A chain that has thermalised did so at the first block of draws from which on all means of blocks lie within the band

    m_I ± t_{e_I − 1, 1 − 0.025/K} s_I sqrt(min(1, 1/e_b) + 1/e_I),

where K is the number of blocks and e_b = e_I (draws in a block)/(draws in a half). In equilibrium all of them do with
probability 0.95. The same band around the mean of a chain's own second half says since when the chain is stationary, if
that half has an effective sample size of 20; the same band around 0 says since when the score oscillates around 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import stdtrit

__all__ = ["LEAST_ESS", "MARGIN", "Merge", "blockwise_rhat", "merge", "when_close", "when_settled", "when_stationary"]

LEAST_ESS = 20  # the smallest ESS of the informed chain with which another one can be said to differ
CONFIDENCE, BAND = 0.99, 0.95  # of the interval of a difference, and of the band for means of blocks
MARGIN = 1.0  # the largest difference that counts as none, in posterior standard deviations
CLOSE = 1.2  # the largest R-hat that counts as close to 1


class Merge(NamedTuple):
    """How the test function of a chain compares with that of the informed chain.

    Parameters
    ----------
    verdict : {"thermalised", "not thermalised", "undecided"}
        The verdict, by the rules of :mod:`pymc_gibbsnn.diagnostics.convergence`.
    draw : float
        How many draws the chain made before it had thermalised; NaN unless it has.
    difference, half_width : float
        D and h: the difference of the means, and half the width of its 99% interval, in posterior standard deviations.
    ess : float
        The effective sample size of the informed chain's second half.
    part : {"second half", "last quarter"}
        The part of the other chain over which D and h were taken.
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
    """Mean, standard deviation and effective sample size of a stretch of a series, and its length in draws."""

    mean: float
    sd: float
    ess: float
    length: int


def merge(informed: ArrayLike, uninformed: ArrayLike, block: int = 50) -> Merge:
    """Compare the series of a test function along the informed and another chain, by the rules of this module.

    How often the verdict is wrong was measured by ``benchmarks/thermalisation.py`` (n = 200, widths 5-3-1, Δ = 1e-4):
    "not thermalised" was said of 2 of 200 chains in equilibrium, and "thermalised" of 2 of 50 chains that were far from
    it on average over the second half of the run, both of which came closer within that half.

    Parameters
    ----------
    informed, uninformed : array_like, shape (draw,)
        The two series, of the same length, which is at least two blocks.
    block : int
        How many draws a block has, at least 10.

    Returns
    -------
    Merge

    Raises
    ------
    ValueError
        If the series are too short, differ in length, are constant or not finite.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> merge(rng.normal(size=1000), rng.normal(size=1000)).verdict
    'thermalised'
    """
    series = {"informed": np.asarray(informed, float), "uninformed": np.asarray(uninformed, float)}
    for name, x in series.items():
        check_series(name, x, block)
    if len(series["informed"]) != len(series["uninformed"]):
        raise ValueError(
            f"The series must not differ in length; found {len(series['informed'])} and {len(series['uninformed'])}."
        )
    a, b = scaled(*series.values())
    reference, settled = stretch_of(a), when_settled(b, stretch_of(a), block)
    bound = float(stdtrit(max(reference.ess - 1, 1), (1 + CONFIDENCE) / 2) * np.sqrt(3 / reference.ess))
    for part, share in (("second half", 1 / 2), ("last quarter", 1 / 4)):
        difference, half_width = _compare(reference, stretch_of(b, share))
        if abs(difference) + half_width < MARGIN and np.isfinite(settled):
            return Merge("thermalised", settled, difference, half_width, reference.ess, part, bound)
    differs = abs(difference) > bound and reference.ess >= LEAST_ESS
    verdict = "not thermalised" if differs else "undecided"
    return Merge(verdict, np.nan, difference, half_width, reference.ess, part, bound)


def _compare(reference: Stretch, other: Stretch) -> tuple[float, float]:
    """Compute D and h from stretches of the informed chain and of the other one."""
    errors = [x.sd**2 / x.ess for x in (reference, other)]
    freedom = sum(errors) ** 2 / sum(v**2 / max(x.ess - 1, 1) for v, x in zip(errors, (reference, other), strict=True))
    half_width = stdtrit(freedom, (1 + CONFIDENCE) / 2) * np.sqrt(sum(errors))
    return float((other.mean - reference.mean) / reference.sd), float(half_width / reference.sd)


def blockwise_rhat(outputs: ArrayLike, block: int = 50, *, rank: bool = False) -> np.ndarray:
    r"""Compute R-hat of several chains in consecutive blocks of draws.

    .. math:: \hat R = \frac{M+1}{M} \frac{\hat\sigma_+^2}{W} - \frac{N-1}{MN}, \quad
              \hat\sigma_+^2 = \frac{N-1}{N} W + \frac{B}{N}

    where W is the mean variance within a chain, B/N the variance of the means of the M chains, and N the number of
    draws in a block. This is the variance ratio of Piccioli, Troiani and Zdeborová (arXiv 2306.02729, appendix A),
    without a square root.

    Parameters
    ----------
    outputs : array_like, shape (chain, draw, ...)
        Series of at least two chains; draws beyond the last whole block are left out.
    block : int
        How many draws a block has.
    rank : bool
        Whether to compute ArviZ's rank-normalised, split R-hat instead.

    Returns
    -------
    array, shape (block, ...)

    Raises
    ------
    ValueError
        If there are fewer than two chains or two blocks.
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
    """Raise ValueError for a series that is too short, not finite or constant."""
    if series.ndim != 1 or len(series) < 2 * block or block < 10:
        raise ValueError(f"A series must have two blocks of at least 10 draws; '{name}' has shape {series.shape}.")
    if not np.isfinite(series).all():
        raise ValueError(f"The test function of '{name}' is not finite.")
    half = series[len(series) // 2 :]
    if np.ptp(half) <= 1e-12 * np.abs(half).max():
        raise ValueError(
            f"The test function of '{name}' is constant over the second half of the chain, which tells nothing about "
            f"equilibrium: use another test function, or a sampler that moves."
        )


def scaled(*series: np.ndarray) -> list[np.ndarray]:
    """Return the logarithms of some series if all their numbers are positive, and else the series as they are."""
    return [np.log(x) for x in series] if all((x > 0).all() for x in series) else list(series)


def stretch_of(series: np.ndarray, share: float = 1 / 2) -> Stretch:
    """Compute mean, standard deviation and effective sample size of the last share of a series, its half by default."""
    import arviz as az

    end = series[-max(10, int(share * len(series))) :]
    ess = float(az.ess((end - end.mean())[None], method="mean"))  # a large offset costs ArviZ digits
    return Stretch(
        float(end.mean()), float(end.std(ddof=1)), float(np.clip(np.nan_to_num(ess, nan=1.0), 1, len(end))), len(end)
    )


def when_settled(series: np.ndarray, reference: Stretch, block: int) -> float:
    """Count the draws after which all means of blocks lie in the band of a stationary series like the reference.

    NaN stands for never: the last block lies outside the band.
    """
    k = len(series) // block
    means = series[: k * block].reshape(k, block).mean(axis=1)
    t = stdtrit(max(reference.ess - 1, 1), 1 - (1 - BAND) / (2 * k))
    in_block = max(1.0, reference.ess * block / reference.length)
    outside = np.abs(means - reference.mean) > t * reference.sd * np.sqrt(1 / in_block + 1 / reference.ess)
    return _after_last(outside, block)


def when_stationary(series: np.ndarray, block: int) -> float:
    """Count the draws after which a series is as in its own second half; NaN if that half tells too little."""
    [series] = scaled(series)
    reference = stretch_of(series)
    return when_settled(series, reference, block) if reference.ess >= LEAST_ESS else np.nan


def when_close(rhat: np.ndarray, block: int) -> float:
    """Count the draws after which R-hat (block, ...), averaged over all but blocks, stays close to 1; NaN for never."""
    return _after_last(~(rhat.reshape(len(rhat), -1).mean(axis=1) < CLOSE), block)


def _after_last(blocks: np.ndarray, block: int) -> float:
    """Count the draws up to the end of the last block that is marked True; NaN if the last block of all is marked."""
    if blocks[-1]:
        return np.nan
    return float(block * (np.flatnonzero(blocks)[-1] + 1)) if blocks.any() else 0.0

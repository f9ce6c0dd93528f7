"""Figures, on Matplotlib and ArviZ; each returns its axes."""

from __future__ import annotations

from typing import Any

import arviz as az
import numpy as np
from numpy.typing import ArrayLike

__all__ = ["plot_log_density", "plot_predictive_band"]


def plot_predictive_band(samples: ArrayLike, y: ArrayLike, *, probability: float = 0.9, ax: Any = None) -> Any:
    """Predictions with a central band for every point, points sorted by their prediction, and the truth on top.

    Parameters
    ----------
    samples : array_like, shape (chain, draw, point)
        Posterior predictive samples of one output.
    y : array_like, shape (point,)
        What was seen.
    probability : float
        Mass of the band.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If the shapes do not fit or the probability is not in (0, 1).
    """
    import matplotlib.pyplot as plt

    samples, y = np.asarray(samples), np.asarray(y)
    if samples.ndim != 3 or y.shape != samples.shape[2:]:
        raise ValueError(f"samples must be (chain, draw, point) and y (point,); found {samples.shape} and {y.shape}.")
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie between 0 and 1; found {probability}.")
    ax = plt.subplots(figsize=(8, 4.5))[1] if ax is None else ax
    mean = samples.mean((0, 1))
    low, high = np.quantile(samples, [(1 - probability) / 2, (1 + probability) / 2], axis=(0, 1))
    order = np.argsort(mean)
    rank = np.arange(len(y))
    outside = ((y < low) | (y > high))[order]
    ax.fill_between(rank, low[order], high[order], color="C0", alpha=0.25, lw=0, label=f"{probability:.0%} band")
    ax.plot(rank, mean[order], color="C0", label="prediction")
    ax.plot(rank[~outside], y[order][~outside], ".", color="0.2", label="data")
    ax.plot(rank[outside], y[order][outside], ".", color="C3", label="data outside")
    ax.set(xlabel="test points by their prediction", ylabel="y")
    ax.legend(frameon=False)
    return ax


def plot_log_density(idata: Any) -> np.ndarray:
    """Trace and ranks of the log density ``lp``: the first look at whether chains agree.

    Parameters
    ----------
    idata : InferenceData or DataTree
        With ``lp`` in its ``sample_stats``.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (2,)

    Raises
    ------
    ValueError
        If ``lp`` is not there.
    """
    import matplotlib.pyplot as plt

    if "lp" not in idata["sample_stats"]:
        raise ValueError("sample_stats holds no 'lp': sample with a step method of this package.")
    lp = idata["sample_stats"]["lp"].values
    _, axes = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
    bins = 20
    ranks = lp.ravel().argsort().argsort().reshape(lp.shape)
    heights = [np.histogram(chain, bins, (0, lp.size))[0] for chain in ranks]
    for chain, (series, height) in enumerate(zip(lp, heights, strict=True)):
        axes[0].plot(series, lw=0.5, alpha=0.8, label=f"chain {chain}")
        axes[1].stairs(height, np.linspace(0, lp.size, bins + 1), color=f"C{chain % 10}")
    axes[1].axhline(lp.shape[1] / bins, color="0.4", ls="--", lw=1)
    rhat = float(az.rhat(lp)) if len(lp) > 1 else np.nan
    axes[0].set(xlabel="draw", ylabel="log density", title=f"trace, R-hat {rhat:.3f}")
    axes[1].set(xlabel="rank among all draws", ylabel="draws", title="ranks by chain")
    return axes

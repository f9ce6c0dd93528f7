"""Figures of predictions, of chains and of whether they have thermalised."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_gibbsnn.diagnostics.scoring import expected_calibration_error, reliability
from pymc_gibbsnn.plots.drawing import pyplot

__all__ = ["plot_calibration", "plot_log_density", "plot_predictive_band", "plot_rhat", "plot_thermalisation"]


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
    plt = pyplot()
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
    plt = pyplot()
    import arviz as az

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


def plot_thermalisation(found: xr.Dataset, *, ax: Any = None) -> Any:
    """The test function of each chain, R-hat and the score over time, and when each method sees equilibrium.

    As Fig. 1 of Piccioli, Troiani and Zdeborová (arXiv 2306.02729): marks on the axis of time are the estimates of the
    teacher-student criterion, R-hat, stationarity and the score; a method that sees no equilibrium has none.

    Parameters
    ----------
    found : xarray.Dataset
        Of :func:`thermalisation`.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
        The score, where there is one, has an axis of its own on the right.
    """
    plt = pyplot()
    ax = plt.subplots(figsize=(8, 4.5))[1] if ax is None else ax
    for name in found["chain"].values:
        style = {"color": "0.4", "zorder": 1} if name == "informed" else {}
        ax.plot(found["draw"], found["series"].sel(chain=name), lw=0.8, label=f"test function ({name})", **style)
    rhat, who = _chosen_rhat(found, None)
    ax.plot(found["block"], rhat.mean("cell"), color="C4", marker=".", label=f"R-hat ({who})")
    starts = found["start"].values
    times = {
        "teacher-student": (found["merge_time"].values, "o", "k"),
        "stationarity": (found["stationarity_time"].sel(chain=starts).values, "s", "C2"),
        "R-hat": (found.get("rhat_time_uninformed", found["rhat_time"]).values, "D", "C4"),
    }
    if "score" in found:
        right = ax.twinx()
        right.plot(found["draw"], found["score"].sel(chain=starts[0]), color="C3", lw=0.5, alpha=0.3)
        right.set_ylabel(f"score ({starts[0]})", color="C3")
        right.tick_params(axis="y", colors="C3")
        ax.set_zorder(right.get_zorder() + 1)
        ax.patch.set_visible(False)
        times["score"] = (found["score_time"].sel(chain=starts).values, "v", "C3")
    first = float(found["draw"][0])
    for method, (values, marker, color) in times.items():
        values = np.atleast_1d(values)
        values = np.maximum(values[np.isfinite(values)], first)
        ax.plot(
            values,
            np.zeros_like(values),
            marker,
            color=color,
            mfc="none",
            ms=9,
            mew=1.5,
            clip_on=False,
            in_layout=False,
            zorder=10,
            transform=ax.get_xaxis_transform(),
            label=f"time: {method}" + " (none)" * (not values.size),
        )
    ax.set(xscale="log", xlabel="sweep", ylabel="test function, R-hat", xlim=(first, None))
    if float(found["series"].min()) > 0:
        ax.set_yscale("log")
    ax.legend(fontsize="x-small", loc="best", framealpha=0.8)
    return ax


def plot_rhat(found: xr.Dataset, *, start: str | None = None, ax: Any = None) -> Any:
    """Percentiles over outputs of R-hat in blocks of draws, as Fig. 4 of arXiv 2306.02729.

    Parameters
    ----------
    found : xarray.Dataset
        Of :func:`thermalisation`.
    start : str, optional
        R-hat of the chain of that start with the informed one; by default of the uninformed chains among themselves,
        or of the only one with the informed one.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If there is no such start.
    """
    plt = pyplot()
    rhat, who = _chosen_rhat(found, start)
    ax = plt.subplots(figsize=(8, 4.5))[1] if ax is None else ax
    for percentile, color in zip((25, 50, 75, 95), plt.colormaps["viridis"]([0.8, 0.6, 0.35, 0.1]), strict=True):
        ax.plot(
            found["block"], rhat.quantile(percentile / 100, "cell"), color=color, marker=".", label=f"{percentile}th"
        )
    ax.axhline(1, color="C3", ls="--", lw=1)
    ax.set(xlabel="sweep", ylabel=f"R-hat ({who})", yscale="log")
    ax.legend(title="percentile", frameon=False)
    return ax


def _chosen_rhat(found: xr.Dataset, start: str | None) -> tuple[xr.DataArray, str]:
    """(R-hat (block, cell), whose it is)."""
    starts = [str(name) for name in found["start"].values]
    if start is not None and start not in starts:
        raise ValueError(f"start must be one of {starts}; found {start!r}.")
    if start is None and len(starts) > 1:
        rhat, who = found["rhat_uninformed"], ", ".join(starts)
    else:
        start = start or starts[0]
        rhat, who = found["rhat"].sel(start=start), f"{start}, informed"
    return rhat.stack(cell=[dim for dim in rhat.dims if dim != "block"]), who


def plot_calibration(probabilities: ArrayLike, labels: ArrayLike, *, bins: int = 10, ax: Any = None) -> Any:
    """How often the predicted class is right, by the probability it was given; perfect on the diagonal.

    Parameters
    ----------
    probabilities : array_like, shape (point, class) or (point,)
        Predictive probabilities of the classes, or of class 1 of two.
    labels : array_like of int, shape (point,)
    bins : int
        Of equal width, over the probability of the predicted class.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
        Bars hold the share of points in each bin.

    Raises
    ------
    ValueError
        If the shapes do not fit or the rows are no probabilities.
    """
    plt = pyplot()
    share, confidence, accuracy = reliability(probabilities, labels, bins)
    error = expected_calibration_error(probabilities, labels, bins)
    ax = plt.subplots(figsize=(5, 5))[1] if ax is None else ax
    edges = np.linspace(0, 1, bins + 1)
    ax.stairs(share, edges, color="0.85", fill=True, label="share of points")
    ax.plot([0, 1], [0, 1], color="0.4", ls="--", lw=1)
    ax.plot(confidence[share > 0], accuracy[share > 0], "o-", color="C0", label="accuracy")
    ax.set(xlabel="probability of the predicted class", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    ax.set_title(f"expected calibration error {error:.3f}")
    ax.legend(frameon=False, loc="upper left")
    return ax

"""Figures of predictions and of the log density of chains."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import group_of
from pymc_gibbsnn.diagnostics.predicted import samples_and_data
from pymc_gibbsnn.diagnostics.scoring import expected_calibration_error, pit, reliability
from pymc_gibbsnn.plots.drawing import colour, label_at_right, pyplot

__all__ = ["plot_calibration", "plot_coverage", "plot_log_density", "plot_predictive_band"]

MOST_LABELS = 12  # of chains, for which there is room beside a figure


def plot_predictive_band(samples: ArrayLike, y: ArrayLike, *, probability: float = 0.9, ax: Any = None) -> Any:
    """Plot the mean prediction and a central predictive interval for every point, and the data on top.

    Points are sorted by their mean prediction. Those outside their interval are marked by crosses: with a calibrated
    prediction a share of 1 − ``probability`` of them.

    Parameters
    ----------
    samples : array_like, shape (chain, draw, point)
        Posterior predictive samples of one output, in the units of y: ``predict(..., samples=True)["samples"]``.
    y : array_like, shape (point,)
        What was observed.
    probability : float
        Probability of the predictive interval, its coverage if predictions are calibrated, between 0 and 1.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        If Matplotlib is not installed.
    ValueError
        If the shapes do not fit, samples or y hold NaN, or the probability is not in (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> samples = np.random.normal(size=(2, 100, 30))
    >>> ax = pmg.plot_predictive_band(samples, np.random.normal(size=30), probability=0.8)
    """
    plt = pyplot()
    draws, y = samples_and_data(samples, y)
    if y.ndim != 1:
        raise ValueError(f"samples must be (chain, draw, point) and y (point,); found y of shape {y.shape}.")
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie between 0 and 1; found {probability}.")
    ax = plt.subplots(figsize=(8, 4.5), layout="constrained")[1] if ax is None else ax
    mean = draws.mean(0)
    low, high = np.quantile(draws, [(1 - probability) / 2, (1 + probability) / 2], axis=0)
    order = np.argsort(mean)
    rank = np.arange(len(y))
    outside = ((y < low) | (y > high))[order]
    ax.fill_between(rank, low[order], high[order], color=colour(0), alpha=0.25, lw=0, label=f"{probability:.0%} band")
    ax.plot(rank, mean[order], color=colour(0), label="mean prediction")
    ax.plot(rank[~outside], y[order][~outside], ".", color="0.2", ms=5, label="data")
    ax.plot(rank[outside], y[order][outside], "x", color=colour(1), ms=6, label="data outside the band")
    ax.set(xlabel="rank of the point by its mean prediction", ylabel="y")
    ax.legend(frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
    return ax


def plot_log_density(idata: Any) -> np.ndarray:
    """Plot the log density ``lp`` of the chains: its trace, and the ranks of its draws among all draws.

    This is the first look at whether chains agree: if they do, the histograms of ranks are level [1]_. Of a single
    chain the first half is compared with the second. Draws at which a chain had left the finite numbers have no rank;
    its label says so.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned, with ``lp`` in its ``sample_stats``.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (2,)
        The axes of the trace and of the ranks.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.
    ValueError
        If ``sample_stats`` holds no ``lp``, or fewer than 4 draws of a chain, 8 of a single one.

    References
    ----------
    .. [1] A. Vehtari, A. Gelman, D. Simpson, B. Carpenter, P.-C. Bürkner. Rank-normalization, folding, and
       localization: an improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16 (2021).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> import xarray as xr
    >>> stats = xr.Dataset({"lp": (("chain", "draw"), np.random.normal(size=(2, 100)))})
    >>> pmg.plot_log_density({"sample_stats": stats}).shape
    (2,)
    """
    plt = pyplot()
    import arviz as az

    stats = group_of("idata", idata, "sample_stats")
    if "lp" not in stats:
        raise ValueError("sample_stats holds no 'lp': sample with a step method of this package.")
    lp = stats["lp"].transpose("chain", "draw").values
    least = 4 if len(lp) > 1 else 8
    if lp.shape[1] < least:
        raise ValueError(f"The figure needs at least {least} draws; found {lp.shape[1]}.")
    names, first = [f"chain {i}" for i in range(len(lp))], np.zeros(len(lp))
    if len(lp) == 1:
        half = lp.shape[1] // 2
        lp, names, first = lp[0, : 2 * half].reshape(2, half), ["first half", "second half"], [0, half]
    is_finite = np.isfinite(lp)
    names = [name if all_.all() else f"{name}, not finite" for name, all_ in zip(names, is_finite, strict=True)]
    _, axes = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
    count = max(1, is_finite.sum())
    bins = max(1, min(20, lp.shape[1] // 10))
    ranks = np.full(lp.shape, -1)
    ranks[is_finite] = lp[is_finite].argsort().argsort()
    heights = [np.histogram(chain, bins, (0, count))[0] for chain in ranks]
    for chain, (series, start) in enumerate(zip(lp, first, strict=True)):
        axes[0].plot(start + np.arange(len(series)), series, lw=0.5, alpha=0.8, color=colour(chain))
        axes[1].stairs(heights[chain], np.linspace(0, count, bins + 1), color=colour(chain), lw=1.5, baseline=None)
    axes[1].axhline(count / len(lp) / bins, color="0.4", ls="--", lw=1)
    compared = lp[is_finite.all(axis=1)]
    rhat = f", R-hat {float(az.rhat(compared)):.3f}" if len(compared) > 1 else ""
    if rhat and len(compared) < len(lp):
        rhat += " of the finite chains"
    axes[0].set(xlabel="draw", ylabel="log density", title=f"trace{rhat}")
    axes[1].set(
        xlabel="rank of the draw among all", ylabel="draws", title="ranks, level where chains agree", ylim=(0, None)
    )
    if len(lp) <= MOST_LABELS:
        label_at_right(axes[1], [(heights[i][-1], name, colour(i)) for i, name in enumerate(names)])
    return axes


def plot_calibration(probabilities: ArrayLike, labels: ArrayLike, *, bins: int = 10, ax: Any = None) -> Any:
    """Plot how often the predicted class is right, by the probability that it was given.

    A calibrated classifier lies on the diagonal. Grey bars show the share of points in each bin [1]_.

    Parameters
    ----------
    probabilities : array_like, shape (point, class) or (point,)
        Predictive probabilities of the classes, such as ``predict(...)["probability"]``, or of class 1 of two.
    labels : array_like of int, shape (point,)
        True classes.
    bins : int
        How many bins of equal width divide the probabilities of the predicted class.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        If Matplotlib is not installed.
    TypeError
        If ``bins`` is no number.
    ValueError
        If the shapes do not fit, labels are no integers of these classes, the rows are no probabilities, or ``bins`` is
        no positive integer.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger. On calibration of modern neural networks. ICML (2017).

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> ax = pmg.plot_calibration([[0.7, 0.3], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1], bins=5)
    """
    plt = pyplot()
    share, confidence, accuracy = reliability(probabilities, labels, bins)
    error = expected_calibration_error(probabilities, labels, bins)
    ax = plt.subplots(figsize=(5, 5), layout="constrained")[1] if ax is None else ax
    edges = np.linspace(0, 1, bins + 1)
    ax.stairs(share, edges, color="0.85", fill=True, label="share of all points")
    ax.plot([0, 1], [0, 1], color="0.4", ls="--", lw=1, label="calibrated")
    ax.plot(confidence[share > 0], accuracy[share > 0], "o-", color=colour(0), label="share that is right")
    ax.set(xlabel="probability of the predicted class", ylabel="share of points", xlim=(0, 1), ylim=(0, 1))
    ax.set_title(f"expected calibration error {error:.3f}")
    ax.legend(frameon=False, loc="upper left")
    return ax


def plot_coverage(samples: ArrayLike, y: ArrayLike, *, ax: Any = None) -> Any:
    """Plot the coverage of central predictive intervals, the share of observations inside, by the level.

    Calibrated predictions of real numbers lie on the diagonal, within the grey band of chance in 95 of 100 cases.
    Above it predictions are too wide, below it too narrow [1]_.

    Parameters
    ----------
    samples : array_like, shape (chain, draw, point)
        Draws of new data, noise included, as ``predict(..., samples=True)["samples"]`` holds them.
    y : array_like, shape (point,)
        What was observed.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        If Matplotlib is not installed.
    ValueError
        If the shapes do not fit.

    References
    ----------
    .. [1] T. Gneiting, F. Balabdaoui, A. E. Raftery. Probabilistic forecasts, calibration and sharpness. Journal of the
       Royal Statistical Society B 69 (2007).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> rng = np.random.default_rng(0)
    >>> ax = pmg.plot_coverage(rng.normal(size=(2, 100, 50)), rng.normal(size=50))
    """
    from scipy.stats import binom  # slow to import

    plt = pyplot()
    # An observation lies in the central interval of level p if its PIT is nearer to 1/2 than p/2.
    needed = 2 * np.abs(pit(samples, y) - 0.5)
    levels = np.linspace(0, 1, 51)
    share = (needed.ravel() <= levels[:, None]).mean(1)
    chance = binom.ppf([[0.025], [0.975]], needed.size, levels) / needed.size
    ax = plt.subplots(figsize=(5, 5), layout="constrained")[1] if ax is None else ax
    ax.fill_between(levels, *chance, color="0.85", lw=0, label="chance, 95 % of cases")
    ax.plot([0, 1], [0, 1], color="0.4", ls="--", lw=1, label="calibrated")
    ax.plot(levels, share, color=colour(0), label="observed")
    ax.set(xlabel="level of the interval", ylabel="share of observations inside", xlim=(0, 1), ylim=(0, 1))
    ax.legend(frameon=False, loc="upper left")
    return ax

"""Figures of predictions and of the log density of chains."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_gibbsnn.diagnostics.scoring import expected_calibration_error, pit, reliability
from pymc_gibbsnn.plots.drawing import colour, label_at_right, pyplot

__all__ = ["plot_calibration", "plot_coverage", "plot_log_density", "plot_predictive_band"]


def plot_predictive_band(samples: ArrayLike, y: ArrayLike, *, probability: float = 0.9, ax: Any = None) -> Any:
    """Plot the mean prediction and a central predictive band for every point, and the data on top.

    Points are sorted by their mean prediction. Those outside the band are marked by crosses: with a calibrated
    prediction a share of 1 − ``probability`` of them.

    Parameters
    ----------
    samples : array_like, shape (chain, draw, point)
        Posterior predictive samples of one output, in the units of y: ``predict(..., samples=True)["samples"]``.
    y : array_like, shape (point,)
        What was observed.
    probability : float
        Probability that the band holds, between 0 and 1.
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
        If the shapes do not fit or the probability is not in (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> samples = np.random.normal(size=(2, 100, 30))
    >>> ax = pmg.plot_predictive_band(samples, np.random.normal(size=30), probability=0.8)
    """
    plt = pyplot()
    samples, y = np.asarray(samples), np.asarray(y)
    if samples.ndim != 3 or y.shape != samples.shape[2:]:
        raise ValueError(f"samples must be (chain, draw, point) and y (point,); found {samples.shape} and {y.shape}.")
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie between 0 and 1; found {probability}.")
    ax = plt.subplots(figsize=(8, 4.5), layout="constrained")[1] if ax is None else ax
    mean = samples.mean((0, 1))
    low, high = np.quantile(samples, [(1 - probability) / 2, (1 + probability) / 2], axis=(0, 1))
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
    chain the first half is compared with the second.

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
        If ``sample_stats`` holds no ``lp``.

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

    if "lp" not in idata["sample_stats"]:
        raise ValueError("sample_stats holds no 'lp': sample with a step method of this package.")
    lp = idata["sample_stats"]["lp"].transpose("chain", "draw").values
    names = [f"chain {i}" for i in range(len(lp))]
    first = np.zeros(len(lp))
    if len(lp) == 1:
        half = lp.shape[1] // 2
        lp, names, first = lp[0, : 2 * half].reshape(2, half), ["first half", "second half"], [0, half]
    _, axes = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
    bins = max(1, min(20, lp.shape[1] // 10))
    ranks = lp.ravel().argsort().argsort().reshape(lp.shape)
    heights = [np.histogram(chain, bins, (0, lp.size))[0] for chain in ranks]
    for chain, (series, start) in enumerate(zip(lp, first, strict=True)):
        axes[0].plot(start + np.arange(len(series)), series, lw=0.5, alpha=0.8, color=colour(chain))
        axes[1].stairs(heights[chain], np.linspace(0, lp.size, bins + 1), color=colour(chain), lw=1.5, baseline=None)
    axes[1].axhline(lp.shape[1] / bins, color="0.4", ls="--", lw=1)
    axes[0].set(xlabel="draw", ylabel="log density", title=f"trace, R-hat {float(az.rhat(lp)):.3f}")
    axes[1].set(
        xlabel="rank of the draw among all", ylabel="draws", title="ranks, level where chains agree", ylim=(0, None)
    )
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
    """Plot the share of observations within the central interval of their prediction, by the level of the interval.

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

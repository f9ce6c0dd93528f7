"""Figures of whether chains have thermalised, that is, forgotten where they started."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from pymc_gibbsnn.diagnostics.convergence import CLOSE
from pymc_gibbsnn.plots.drawing import colour, label_at_right, pyplot

__all__ = ["plot_rhat", "plot_thermalisation"]

MARKERS = "osD^vP"


def plot_thermalisation(found: xr.Dataset, *, ax: Any = None) -> Any:
    """Plot the test function of each chain, R-hat and the score, and since when each method sees equilibrium.

    These are the quantities of [1]_, Fig. 1, one panel each above a common axis of sweeps. The last panel has a row for
    each method (the teacher-student criterion, R-hat, stationarity and the score) with a mark for each chain, in the
    colour of the chain; the word "none" says for which chains a method sees no equilibrium.

    Parameters
    ----------
    found : xarray.Dataset
        What :func:`thermalisation` returned.
    ax : matplotlib.axes.Axes, optional
        Axes whose place in their figure the panels take; by default a new figure is made.

    Returns
    -------
    matplotlib.axes.Axes
        The uppermost panel, with the test function; the others follow it in the list ``axes`` of its figure.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.

    References
    ----------
    .. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729.

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> study = pmg.teacher_student((3, 4, 1), n=20, noise=0.1)
    >>> found = pmg.thermalisation(study, starts=["zero", "prior"], draws=2000)  # doctest: +SKIP
    >>> ax = pmg.plot_thermalisation(found)  # doctest: +SKIP
    """
    names = [str(name) for name in found["start"].values]
    colours = {name: colour(i) for i, name in enumerate(names)}
    heights = [2, 1.2] + [1.2] * ("score" in found) + [0.4 + 0.3 * (3 + ("score" in found))]
    top, middle, *scores, bottom = panels = _divided(ax, heights)
    first = float(found["draw"][0])

    ends = []
    for name in ["informed", *names]:
        series = found["series"].sel(chain=name)
        its_colour = colours.get(name, "0.4")
        top.plot(found["draw"], series, lw=0.8, color=its_colour)
        ends.append((float(series[-max(1, len(series) // 10) :].mean()), name, its_colour))
    if float(found["series"].min()) > 0:
        top.set_yscale("log")
    top.set(ylabel="test function", xscale="log", xlim=(first, float(found["draw"][-1])))
    label_at_right(top, ends)

    rhat, who = _chosen_rhat(found, None)
    mean = rhat.mean("cell")
    middle.plot(found["block"], mean, color="k", marker=".")
    middle.axhline(CLOSE, color="0.4", ls="--", lw=1)
    middle.set_ylabel("R-hat\n(mean)")
    _scale_rhat(middle, mean)
    label_at_right(middle, [(float(mean[-1]), who, "k"), (CLOSE, f"{CLOSE:g}", "0.4")])

    for ax in scores:
        for name in names:
            ax.plot(found["draw"], found["score"].sel(chain=name), lw=0.5, alpha=0.7, color=colours[name])
        ax.axhline(0, color="0.4", ls="--", lw=1)
        ax.set_ylabel("score")

    black = dict.fromkeys(["all"], "k") if "rhat_time_uninformed" in found else colours
    times = {
        "teacher-student": (found["merge_time"].values, colours),
        "R-hat": (np.atleast_1d(found.get("rhat_time_uninformed", found["rhat_time"])), black),
        "stationarity": (found["stationarity_time"].sel(chain=names).values, colours),
    }
    if scores:
        times["score"] = (found["score_time"].sel(chain=names).values, colours)
    for row, (values, chains) in enumerate(times.values()):
        _mark(bottom, row, np.maximum(values, first), chains)
    bottom.set(xlabel="sweep", ylabel="equilibrium\nsince", ylim=(len(times) - 0.5, -0.5))
    bottom.set_yticks(range(len(times)), times)
    bottom.grid(axis="y", color="0.9")
    bottom.set_axisbelow(True)
    for panel in panels[:-1]:
        panel.tick_params(labelbottom=False)
    bottom.xaxis.set_major_formatter("{x:,.0f}")
    return top


def plot_rhat(found: xr.Dataset, *, start: str | None = None, ax: Any = None) -> Any:
    """Plot R-hat of the outputs of a network in blocks of draws, as percentiles over outputs (after [1]_, Fig. 4).

    Parameters
    ----------
    found : xarray.Dataset
        What :func:`thermalisation` returned.
    start : str, optional
        Show R-hat of the chain from this start together with the informed chain. The default is R-hat of all uninformed
        chains or, if there is only one, of that one together with the informed chain.
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
        If there is no such start.

    References
    ----------
    .. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729.

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> study = pmg.teacher_student((3, 4, 1), n=20, noise=0.1)
    >>> found = pmg.thermalisation(study, starts=["zero", "prior"], draws=2000)  # doctest: +SKIP
    >>> ax = pmg.plot_rhat(found, start="zero")  # doctest: +SKIP
    """
    plt = pyplot()
    rhat, who = _chosen_rhat(found, start)
    ax = plt.subplots(figsize=(8, 4.5), layout="constrained")[1] if ax is None else ax
    ends = []
    for percentile, shade in zip((25, 50, 75, 95), plt.colormaps["viridis"]([0.75, 0.55, 0.3, 0.05]), strict=True):
        values = rhat.quantile(percentile / 100, "cell")
        ax.plot(found["block"], values, color=shade, marker=".")
        ends.append((float(values[-1]), f"{percentile}th percentile", shade))
    ax.axhline(1, color="0.4", ls="--", lw=1)
    ax.set(xlabel="sweep", ylabel=f"R-hat ({who})")
    _scale_rhat(ax, rhat.quantile(0.95, "cell"))
    label_at_right(ax, ends)
    return ax


def _divided(ax: Any, heights: list[float]) -> list[Any]:
    """Make panels of these relative heights, one below the other, in the place of given axes or in a new figure."""
    plt = pyplot()
    if ax is None:
        ax = plt.figure(figsize=(8, 1 + 1.3 * sum(heights)), layout="constrained").add_subplot()
    figure, place = ax.get_figure(), ax.get_subplotspec()
    if place is None:
        box = ax.get_position()
        place = figure.add_gridspec(1, 1, left=box.x0, right=box.x1, bottom=box.y0, top=box.y1)[0]
    grid = place.subgridspec(len(heights), 1, height_ratios=heights, hspace=0.1)
    ax.set_subplotspec(grid[0])
    return [ax, *(figure.add_subplot(grid[i], sharex=ax) for i in range(1, len(heights)))]


def _mark(ax: Any, row: int, times: np.ndarray, colours: dict[str, str]) -> None:
    """Mark in one row the time of each chain, and write beside the row which chains have none.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        The axes to draw on.
    row : int
        The height of the row.
    times : array of shape (chain,)
        In sweeps; NaN for a chain that has none.
    colours : dict of str to str
        The colours of the chains by their names, in the order of ``times``.
    """
    offsets = np.linspace(-0.25, 0.25, len(times)) if len(times) > 1 else [0]
    for i, (time, its_colour, offset) in enumerate(zip(times, colours.values(), offsets, strict=True)):
        if np.isfinite(time):
            marker = MARKERS[i % len(MARKERS)]
            ax.plot(time, row + offset, marker, color=its_colour, ms=6, clip_on=False, zorder=10)
    none = [name for name, time in zip(colours, times, strict=True) if np.isnan(time)]
    if none:
        text = "none" if len(none) == len(times) else f"none: {', '.join(none)}"
        ax.text(1.01, row, text, size=9, va="center", color="0.3", transform=ax.get_yaxis_transform())


def _scale_rhat(ax: Any, rhat: xr.DataArray) -> None:
    """Make the axis of R-hat logarithmic, with plain numbers as its ticks."""
    from matplotlib.ticker import LogLocator, NullLocator

    largest = float(rhat.max())
    ticks = {3: (1, 1.1, 1.2, 1.5, 2, 2.5), 10: (1, 1.5, 2, 3, 5, 7), 100: (1, 2, 5), np.inf: (1,)}
    between = next(these for bound, these in ticks.items() if largest <= bound)
    ax.set_yscale("log")
    ax.set_ylim(0.95 * min(1, float(rhat.min())), 1.05 * max(largest, 1.3))
    ax.yaxis.set_major_locator(LogLocator(subs=between))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter("{x:g}")


def _chosen_rhat(found: xr.Dataset, start: str | None) -> tuple[xr.DataArray, str]:
    """Choose the R-hat to show; return it with dimensions (block, cell), and say in words of which chains it is."""
    starts = [str(name) for name in found["start"].values]
    if start is not None and start not in starts:
        raise ValueError(f"start must be one of {starts}; found {start!r}.")
    if start is None and len(starts) > 1:
        rhat, who = found["rhat_uninformed"], "uninformed"
    else:
        start = start or starts[0]
        rhat, who = found["rhat"].sel(start=start), f"{start} and informed"
    return rhat.stack(cell=[dim for dim in rhat.dims if dim != "block"]), who

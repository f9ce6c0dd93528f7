"""Figures of class probabilities, and of the acceptance of samplers that move one block of weights at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import group_of
from pymc_gibbsnn.diagnostics.predicted import class_names, class_numbers
from pymc_gibbsnn.plots.drawing import colour, pyplot

__all__ = ["plot_acceptance", "plot_class_probabilities"]

ACROSS = 6  # how many points stand side by side
LONGEST = 14  # how many letters of a name are shown


def plot_class_probabilities(
    probabilities: ArrayLike,
    images: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    names: Sequence | None = None,
    most: int = 3,
) -> np.ndarray:
    """Plot the likeliest classes of a few points as bars, under the images of the points (after [1]_, Fig. 8).

    Six points stand side by side, further ones below. The title of a point is its number and, if known, its true class.

    Parameters
    ----------
    probabilities : array_like, shape (point, class)
        Predictive probabilities of the classes, of a few points: ``predict(...)["probability"]``, or
        ``class_probabilities(...).mean("chain")``.
    images : array_like, shape (point, height, width), optional
        Grey values of an image of each point.
    labels : array_like, shape (point,), optional
        True classes, whose bars are coloured: their numbers, from 0 up, or the names that they have in what ``predict``
        gives, or strings among ``names``.
    names : sequence, optional
        Names of the classes; by default those that they have in what ``predict`` gives, or else their numbers. Of long
        names the beginning is shown.
    most : int
        How many classes to show of each point.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (1 or 2, point)
        The axes of the images, if there are any, and below them those of the bars.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.
    ValueError
        If the shapes do not fit, the probabilities of a point do not add up to 1, a label is of no class, or there are
        not as many ``names`` as classes.

    References
    ----------
    .. [1] T. Papamarkou. The premise of approximate MCMC in Bayesian deep learning. arXiv 2208.11389.

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> pmg.plot_class_probabilities([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], labels=[0, 2]).shape
    (1, 2)
    """
    p = np.asarray(probabilities, float)
    if p.ndim != 2 or (p < -1e-3).any() or not np.allclose(p.sum(axis=1), 1, atol=1e-3):
        raise ValueError(
            f"probabilities must have shape (point, class), not be negative, and add up to 1; found shape {p.shape}."
        )
    points, classes = p.shape
    given = {"images": (images, 3), "labels": (labels, 1)}
    for name, (value, ndim) in given.items():
        if value is not None and (np.ndim(value) != ndim or len(value) != points):
            raise ValueError(f"{name} must be one for each of the {points} points; found shape {np.shape(value)}.")
    own = class_names(probabilities)
    names = own if names is None else list(names)
    if names is not None and len(names) != classes:
        raise ValueError(f"names must be {classes}, one for each class; found {len(names)}.")
    has_strings = np.asarray(labels).dtype.kind in "OU"
    known = names if has_strings and set(np.ravel(labels)) <= set(names or ()) else own
    truth = None if labels is None else class_numbers(labels, classes, known)
    shown = [_short(str(name)) for name in (range(classes) if names is None else names)]
    axes = _grid(points, 1 if images is None else 2, max(map(len, shown)))
    for i, column in enumerate(axes.T):
        if images is not None:
            column[0].imshow(images[i], cmap="gray_r")
            column[0].set_axis_off()
        column[0].set_title(f"point {i}" + ("" if truth is None else f"\ntrue: {shown[truth[i]]}"), size=9)
        likeliest = np.argsort(p[i])[::-1][:most][::-1]
        colours = [colour(0) if truth is not None and k == truth[i] else "0.75" for k in likeliest]
        ax = column[-1]
        bars = ax.barh(range(len(likeliest)), p[i, likeliest], color=colours)
        ax.bar_label(bars, fmt="%.2f", padding=2, size=8)
        ax.set_yticks(range(len(likeliest)), [shown[k] for k in likeliest])
        ax.set(xlim=(0, 1.4), xticks=[])
        ax.tick_params(labelsize=8, length=0)
        ax.spines[["top", "right", "bottom"]].set_visible(False)
    return axes


def _short(name: str) -> str:
    """Return the beginning of a long name."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _grid(points: int, rows: int, letters: int) -> np.ndarray:
    """Make a figure with so many rows of axes for each point, six points side by side; return its axes (row, point).

    ``letters`` is the length of the longest label beside the axes.
    """
    across, down = min(points, ACROSS), -(-points // ACROSS)
    figure = pyplot().figure(
        figsize=((1.4 + 0.07 * letters) * max(3, across), (1.4 * rows + 0.2) * down), layout="constrained"
    )
    grid = figure.add_gridspec(down, across)
    places = [grid[divmod(i, ACROSS)].subgridspec(rows, 1) for i in range(points)]
    return np.array([[figure.add_subplot(place[row]) for place in places] for row in range(rows)])


def plot_acceptance(idata: Any, *, axes: Any = None) -> np.ndarray:
    """Plot the share of proposals that were accepted, by layer, and by node where it was recorded.

    A bar shows the mean over chains, a dot the mean of one chain. A node is a unit with its incoming weights and bias.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned, with ``acceptance_W1`` and so on in its ``sample_stats``. FNBG
        records these for its blocks, GibbsNN for its interweaving moves.
    axes : array of matplotlib.axes.Axes, shape (2,), optional
        The axes to draw on; the second is hidden if acceptance by node was not recorded.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (1 or 2,)
        The axes of the acceptance by layer and, if it was recorded, by node.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.
    ValueError
        If ``sample_stats`` holds no acceptance of a layer.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> import xarray as xr
    >>> stats = xr.Dataset({"acceptance_W1": (("chain", "draw"), np.full((2, 5), 0.4))})
    >>> pmg.plot_acceptance({"sample_stats": stats}).shape
    (1,)
    """
    plt = pyplot()
    stats = group_of("idata", idata, "sample_stats")
    recorded = [name for name in stats.data_vars if name.startswith("acceptance_") and name != "acceptance_rate"]
    nodes = [name for name in recorded if re.fullmatch(r".*_\d+", name) and name.rpartition("_")[0] in recorded]
    layers = sorted((name for name in recorded if name not in nodes), key=_natural)  # PyMC does not keep their order
    if not layers:
        raise ValueError("sample_stats holds no 'acceptance_W1' or the like: sample with pmg.FNBG.")
    nodes.sort(key=_natural)
    if axes is None and nodes:
        _, axes = plt.subplots(1, 2, figsize=(10, 3.5), sharey=True, layout="constrained", width_ratios=(1, 2))
    elif axes is None:
        axes = plt.subplots(1, 1, figsize=(4, 3.5), squeeze=False, layout="constrained")[1][0]
    elif not nodes:
        axes[1].set_visible(False)
    axes = np.asarray(axes)[: 2 if nodes else 1]
    for ax, names, title in zip(axes, (layers, nodes), ("by layer", "by node"), strict=False):
        owners = np.array([layers.index(name if name in layers else name.rpartition("_")[0]) for name in names])
        for x, (name, owner) in enumerate(zip(names, owners, strict=True)):
            means = stats[name].mean("draw").values
            ax.bar(x, means.mean(), color=colour(owner), alpha=0.5)
            ax.plot(np.full(len(means), x), means, ".", color="0.2", ms=4)
        short = [name.removeprefix("acceptance_") for name in names]
        if names is nodes and len(nodes) > 30:  # there is no room for the names of so many nodes
            shown = np.unique(owners)
            middles = [np.flatnonzero(owners == owner).mean() for owner in shown]
            ax.set_xticks(middles, [f"nodes of {layers[owner].removeprefix('acceptance_')}" for owner in shown])
        else:
            many = len(names) > 8
            ax.set_xticks(range(len(names)), short, rotation=90 * many, fontsize="small" if many else None)
        ax.set(title=title, ylim=(0, 1))
        ax.margins(x=0.02 if len(names) > 8 else 0.1)
    axes[0].set_ylabel("mean acceptance; dots: chains")
    return axes


def _natural(name: str) -> list:
    """Split a name into letters and numbers, a key by which W2 is sorted before W10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]

"""Figures of classifiers and of samplers that move blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_gibbsnn.plots.drawing import pyplot

__all__ = ["plot_acceptance", "plot_class_probabilities"]


def plot_class_probabilities(
    probabilities: ArrayLike,
    images: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    names: Sequence[str] | None = None,
    most: int = 3,
) -> np.ndarray:
    """The likeliest classes of some points, as bars, under their images (Papamarkou, arXiv 2208.11389, Fig. 8).

    Parameters
    ----------
    probabilities : array_like, shape (point, class)
        Of a few points; see :func:`class_probabilities`.
    images : array_like, shape (point, height, width), optional
    labels : array_like, shape (point,), optional
        True classes, whose bars are coloured.
    names : sequence of str, optional
        Of the classes; their numbers by default.
    most : int
        Classes to show of each point.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (1 or 2, point)

    Raises
    ------
    ValueError
        If the shapes do not fit or the probabilities of a point do not add up to 1.
    """
    plt = pyplot()
    p = np.asarray(probabilities)
    if p.ndim != 2 or not np.allclose(p.sum(axis=1), 1, atol=1e-3):
        raise ValueError(f"probabilities must have shape (point, class) and add up to 1; found shape {p.shape}.")
    points, classes = p.shape
    names = [str(k) for k in range(classes)] if names is None else list(names)
    given = {"images": (images, 3), "labels": (labels, 1)}
    for name, (value, ndim) in given.items():
        if value is not None and (np.ndim(value) != ndim or len(value) != points):
            raise ValueError(f"{name} must be one for each of the {points} points; found shape {np.shape(value)}.")
    if len(names) != classes:
        raise ValueError(f"names must be {classes}, one for each class; found {len(names)}.")
    rows = 2 if images is not None else 1
    _, axes = plt.subplots(rows, points, figsize=(2 * points, 2 * rows), squeeze=False, layout="constrained")
    for i in range(points):
        if images is not None:
            axes[0, i].imshow(images[i], cmap="gray_r")
            axes[0, i].set_axis_off()
        likeliest = np.argsort(p[i])[::-1][:most][::-1]
        colours = ["C0" if labels is not None and k == labels[i] else "0.7" for k in likeliest]
        ax = axes[-1, i]
        bars = ax.barh([names[k] for k in likeliest], p[i, likeliest], color=colours)
        ax.bar_label(bars, fmt="%.2f", padding=2)
        ax.set(xlim=(0, 1.3), xticks=[])
        ax.spines[["top", "right", "bottom"]].set_visible(False)
    return axes


def plot_acceptance(idata: Any, *, axes: Any = None) -> np.ndarray:
    """Mean acceptance by layer, and by node where it was recorded, a dot for each chain.

    Parameters
    ----------
    idata : InferenceData or DataTree
        With ``acceptance_W1``, ... in its ``sample_stats``, as FNBG records them.
    axes : array of matplotlib.axes.Axes, shape (2,), optional

    Returns
    -------
    array of matplotlib.axes.Axes, shape (2,)
        By layer, by node.

    Raises
    ------
    ValueError
        If no acceptance of a layer is there.
    """
    plt = pyplot()
    stats = idata["sample_stats"]
    found = [name for name in stats.data_vars if name.startswith("acceptance_") and name != "acceptance_rate"]
    nodes = [name for name in found if re.fullmatch(r".*_\d+", name) and name.rpartition("_")[0] in found]
    layers = sorted((name for name in found if name not in nodes), key=_natural)  # PyMC keeps no order
    if not layers:
        raise ValueError("sample_stats holds no 'acceptance_W1' or the like: sample with pmg.FNBG.")
    nodes.sort(key=_natural)
    if axes is None:
        _, axes = plt.subplots(1, 2, figsize=(10, 3.5), sharey=True, layout="constrained", width_ratios=(1, 2))
    for ax, names, title in zip(axes, (layers, nodes), ("by layer", "by node"), strict=True):
        for x, name in enumerate(names):
            means = stats[name].mean("draw").values
            colour = f"C{layers.index(name if name in layers else name.rpartition('_')[0]) % 10}"
            ax.bar(x, means.mean(), color=colour, alpha=0.5)
            ax.plot(np.full(len(means), x), means, ".", color="0.2", ms=4)
        short = [name.removeprefix("acceptance_") for name in names]
        many = len(names) > 8
        ax.set_xticks(range(len(names)), short, rotation=90 * many, fontsize="small" if many else None)
        ax.set(title=title, ylim=(0, 1))
    axes[0].set_ylabel("acceptance")
    return axes


def _natural(name: str) -> list:
    """What sorts names by the numbers in them: W2 before W10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]

"""What several figures share: the import of Matplotlib, colours, and labels that stand beside what they name."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from pymc_gibbsnn._arguments import posterior_of

__all__ = ["COLOURS", "colour", "label_at_right", "panels", "pyplot", "thin_to"]

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
"""The colours of Okabe and Ito, which colour-blind readers can tell apart."""


def colour(i: int) -> str:
    """Return the i-th colour; after the last the first follows again."""
    return COLOURS[i % len(COLOURS)]


def pyplot() -> ModuleType:
    """Import Matplotlib's ``pyplot`` when a figure is made: the import takes long, and Matplotlib is an optional extra.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("Figures need Matplotlib, which is missing: pip install 'pymc-gibbsnn[plots]'.") from None
    return plt


def label_at_right(ax: Any, labels: Sequence[tuple[float, str, Any]], size: float = 9) -> None:
    """Write labels to the right of the axes, each at the height of its y or as near as the other labels leave room.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        The axes.
    labels : sequence of (float, str, colour)
        Height in the units of the y axis, text and colour of each label.
    size : float
        Font size in points.
    """
    labels = sorted(labels, key=lambda label: label[0])
    x = ax.get_xlim()[1]
    to_axes = ax.transData + ax.transAxes.inverted()
    heights = np.array([to_axes.transform((x, y))[1] for y, _, _ in labels])
    heights = np.clip(np.nan_to_num(heights, nan=0.5), 0, 1)
    line = 1.2 * size / 72 * ax.get_figure().dpi / ax.get_window_extent().height
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + line)
    heights[-1] = min(heights[-1], 1)
    for i in reversed(range(len(heights) - 1)):
        heights[i] = min(heights[i], heights[i + 1] - line)
    for height, (_, text, its_colour) in zip(heights, labels, strict=True):
        ax.text(1.01, height, text, color=its_colour, size=size, va="center", transform=ax.transAxes)


def panels(count: int, ax: Any, each: str, size: tuple[float, float] = (4.2, 3.4)) -> np.ndarray:
    """Return an array of so many axes: those that a user gave, or those of a new figure, at most three side by side.

    Parameters
    ----------
    count : int
        How many.
    ax : matplotlib.axes.Axes, or sequence of them, or None
        What the user gave.
    each : str
        What each is for, in words.
    size : tuple of float
        Width and height of one in inches, in a new figure.

    Raises
    ------
    ValueError
        If the user gave another number of axes.
    """
    if ax is not None:
        axes = np.ravel(np.asarray(ax, object))
        if len(axes) != count:
            raise ValueError(f"ax must hold {count} axes, one for each {each}; found {len(axes)}.")
        return axes
    across = 2 if count == 4 else min(count, 3)
    down = -(-count // across)
    figure = pyplot().figure(figsize=(size[0] * across, size[1] * down), layout="constrained")
    return np.array([figure.add_subplot(down, across, i + 1) for i in range(count)], object)


def thin_to(idata: Any, draws: int) -> int:
    """Return every how many-th draw of each chain to take so that about so many are left."""
    posterior = posterior_of("idata", idata)
    return max(1, posterior.sizes["chain"] * posterior.sizes["draw"] // draws)

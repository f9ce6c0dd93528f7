"""Figures of how what a model expects of y depends on one input, or on two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import describe, model_of, number, one_of, whole
from pymc_gibbsnn._frames import Feature, features_of
from pymc_gibbsnn.diagnostics.partial_dependence import grid_values, partial_dependence
from pymc_gibbsnn.plots.drawing import COLOURS, colour, panels, pyplot, thin_to
from pymc_gibbsnn.prediction.expected import output_names
from pymc_gibbsnn.prediction.inputs import evenly_spaced, find_observed
from pymc_gibbsnn.prediction.outcomes import has_classes
from pymc_gibbsnn.prediction.provenance import posterior_for
from pymc_gibbsnn.prediction.table import Table, column_number, input_table

__all__ = ["plot_partial_dependence"]

DRAWS = 200  # of the posterior, about, unless thin= says otherwise
MOST_ROWS = 500  # over which the function is averaged
MOST_ROWS_OF_CLASSES = 200  # where each probability of three classes or more is an integral of its own
FEW = 5  # values of an input, each of which is marked
MOST_CURVES = 50  # of single rows, of which more would hide each other


def plot_partial_dependence(
    idata: Any,
    model: pm.Model | None,
    features: int | str | tuple | Sequence,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
    *,
    kind: str = "average",
    output: int | str | None = None,
    grid: int = 30,
    probability: float = 0.9,
    name: str | None = None,
    thin: int | None = None,
    random_seed: int | np.random.Generator | None = None,
    ax: Any = None,
) -> np.ndarray:
    r"""Plot how the mean of y, or the probability of a class, depends on inputs, averaged over the rows of the data.

    For one input, the line is the posterior mean of the partial dependence [1]_ and the band its credible interval:

    .. math:: \bar f_s(v) = \frac1n \sum_{i=1}^n E[y \mid x_S = v, \; x_C = x_{iC}, \; \theta_s],

    for draw s, with the input x_S set to v in all rows i, and all other inputs x_C as they are. The band contains
    neither the noise of y nor that of hidden units, over which E averages. A category of a data frame is one input,
    whose indicator columns change together; points with credible intervals show its categories, in the order that they
    have in the model. For a pair of inputs, contours show the posterior mean, or cells where one of them is a category.
    Thin lines are the curves of single rows [2]_; if they are not parallel, the effect of the input depends on others.
    Black marks at the edge are the deciles of the input in the data. Where inputs depend on each other, rows with
    x_S = v may be unlike any of the data, and an average over them may mislead.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned.
    model : pm.Model or None
        The model, whose inputs are one matrix; None for that of the context.
    features : str, int, tuple of two of them, or list of these
        Names of columns, or their numbers from 0 up; a pair, such as ``("age", "bmi")``, for two inputs together; or a
        list of these, with a panel for each. A category is named by its column in the data frame, such as "city"; the
        name or the number of one of its indicator columns, such as "city=Oslo", stands for the whole of it.
    X_new : array_like, shape (m, d), or mapping of str to array_like, optional
        Rows over which to average, as :func:`predict` takes them; by default those that the model holds. Of more than
        500, or 200 where there are three classes or more, as many are taken, evenly spaced.
    kind : {"average", "individual", "both"}
        Whether to draw the average over rows, the curves of single rows (at most 50, evenly spaced), or both. Pairs
        have averages alone.
    output : str or int, optional
        Which class or, of several outputs, which one to show, by its name or its number from 0 up. By default the
        averages of all are drawn, up to six, but of two classes only the probability of the second. Pairs and curves of
        single rows need one.
    grid : int
        At how many values of an input, evenly spaced from its 5 % to its 95 % quantile, to compute the function; half
        as many of each of a pair. An input with fewer values has just these, and a category all of its own.
    probability : float
        Probability of the credible interval, between 0 and 1.
    name : str, optional
        The name of the observed variable, where the model has several.
    thin : int, optional
        Every thin-th draw of each chain is used; by default so that about 200 draws are.
    random_seed : int or numpy.random.Generator, optional
        The seed of latents, which are drawn where they cannot be integrated out: below class labels, counts and the
        like, in images, and below a second hidden layer.
    ax : matplotlib.axes.Axes or sequence of them, optional
        The axes to draw on, one for each of ``features``; by default those of a new figure.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (feature,)
        Panels of single inputs have a common y axis.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.
    TypeError
        If an argument is of another type than asked for.
    ValueError
        If a feature is no column, a pair names one column twice, ``kind`` is none of the above, there is no such
        output, one is needed, there are not as many axes as features, or the posterior or the rows are refused as by
        :func:`predict`.
    NetworkError
        If the inputs are no matrix, y has more than two axes, or the mean of y is not known.

    References
    ----------
    .. [1] J. H. Friedman. Greedy function approximation: a gradient boosting machine. Annals of Statistics 29 (2001),
       section 8.2.
    .. [2] A. Goldstein, A. Kapelner, J. Bleich, E. Pitkin. Peeking inside the black box: visualizing statistical
       learning with plots of individual conditional expectation. Journal of Computational and Graphical Statistics 24
       (2015).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> with pmg.mlp(np.random.normal(size=(20, 3)), np.arange(20.0), hidden=5) as model:
    ...     idata = pm.sample(1000, step=pmg.GibbsNN())  # doctest: +SKIP
    >>> axes = pmg.plot_partial_dependence(idata, model, [0, (1, 2)])  # doctest: +SKIP
    """
    pyplot()
    one_of("kind", kind, ("average", "individual", "both"))
    grid = whole("grid", grid, 2)
    number("probability", probability, "a probability between 0 and 1", lambda p: 0 < p < 1)
    model = model_of(model)
    table = _some_rows(input_table(model, X_new, name), MOST_ROWS)
    chosen = _chosen(table, features)
    posterior = posterior_for(model, idata, thin=thin_to(idata, DRAWS) if thin is None else thin)
    is_label = has_classes(find_observed(model, name))
    names = output_names(model, posterior, table, name)
    if is_label and len(names) > 2:
        table = _some_rows(table, MOST_ROWS_OF_CLASSES)
    shown = _shown(names, is_label, output, needs_one=kind != "average" or max(map(len, chosen)) == 2)
    label = "probability" if is_label else "mean"
    if len(shown) == 1:
        label += f" of {names[shown[0]]}"
    axes = panels(len(chosen), ax, "of the features")
    single = [panel for panel, inputs in zip(axes, chosen, strict=True) if len(inputs) == 1]
    for panel, inputs in zip(axes, chosen, strict=True):
        points = grid if len(inputs) == 1 else max(2, grid // 2)
        grids = [grid_values(table.X, one, points) for one in inputs]
        found = partial_dependence(model, posterior, table, inputs, grids, name=name, random_seed=random_seed)
        averages, curves = (x.reshape(*x.shape[:2], -1)[..., shown] for x in found)
        panel.set_xlabel(inputs[0].name)
        places = [_places(one, values) for one, values in zip(inputs, grids, strict=True)]
        if len(inputs) == 2:
            panel.set_ylabel(inputs[1].name)
            _draw_pair(panel, table, inputs, places, averages[..., 0].mean(axis=0), label)
            continue
        panel.set_ylabel(label)
        if kind != "average":
            _draw_curves(panel, places[0], curves[..., 0])
        if kind != "individual":
            draw = _draw_averages if inputs[0].categories is None else _draw_categories
            draw(panel, places[0], averages, [names[k] for k in shown], probability)
        if inputs[0].categories is None:
            panel.vlines(_deciles(table, inputs[0]), 0, 0.04, "k", lw=1, transform=panel.get_xaxis_transform())
        else:
            panel.set_xticks(places[0], inputs[0].categories)
    limits = np.array([panel.get_ylim() for panel in single])
    for panel in single:
        panel.set_ylim(limits[:, 0].min(), limits[:, 1].max())
    return axes


# What is shown


def _some_rows(table: Table, most: int) -> Table:
    """Return a table of at most so many rows, evenly spaced."""
    rows = evenly_spaced(len(table.X), most)
    others = {key: x[rows] for key, x in table.others.items()}
    return Table(table.X[rows], table.columns, table.data, others)


def _chosen(table: Table, features: int | str | tuple | Sequence) -> list[tuple[Feature, ...]]:
    """Return the features of each panel."""
    known = features_of(table.columns, table.X)
    categories = {one.name: one for one in known if one.categories is not None and one.name not in table.columns}
    by_column = {j: one for one in known for j in one.columns}

    def find(x: int | str) -> Feature:
        """Return the feature of this name, or that to which the column of this name or number belongs."""
        if isinstance(x, str) and x in categories:
            return categories[x]
        return by_column[column_number(table.columns, x)]

    listed = features if isinstance(features, list) else [features]
    if isinstance(features, np.ndarray):
        listed = features.tolist()
    chosen = []
    for one in listed:
        inputs = tuple(map(find, one if isinstance(one, tuple) else (one,)))
        if len(inputs) > 2 or len({feature.name for feature in inputs}) != len(inputs):
            raise ValueError(f"A tuple in features must hold two columns; found {describe(one)}.")
        chosen.append(inputs)
    if not chosen:
        raise ValueError("features must name one column at least; found none.")
    return chosen


def _shown(names: list[str], is_label: bool, output: int | str | None, needs_one: bool) -> list[int]:
    """Return the numbers of the outputs to show.

    Parameters
    ----------
    names : list of str
        Names of the outputs, or of the classes.
    is_label : bool
        Whether they are classes.
    output : int, str or None
        What the user asked for.
    needs_one : bool
        Whether no more than one can be shown.
    """
    if output is None:
        all_ = [1] if is_label and len(names) == 2 else list(range(len(names)))
        if len(all_) > (1 if needs_one else len(COLOURS)):
            why = "for curves of single rows and for pairs" if needs_one else f"of more than {len(COLOURS)}"
            raise ValueError(f"output must say which one to show {why}; found None, and they are {describe(names)}.")
        return all_
    if isinstance(output, str) and output in names:
        return [names.index(output)]
    if isinstance(output, Integral) and not isinstance(output, bool) and 0 <= output < len(names):
        return [int(output)]
    raise ValueError(f"output must be one of {describe(names)}, or its number from 0 up; found {describe(output)}.")


def _places(feature: Feature, values: np.ndarray) -> np.ndarray:
    """Return where on an axis the values (point, column) of a feature lie; categories are numbered."""
    return values[:, 0] if feature.categories is None else np.arange(len(values))


def _deciles(table: Table, feature: Feature) -> np.ndarray:
    """Return the deciles of a feature that lie within its grid."""
    return np.unique(np.nanquantile(table.X[:, feature.columns[0]], np.linspace(0.1, 0.9, 9)))


# Drawing


def _draw_averages(ax: Any, x: np.ndarray, averages: np.ndarray, names: list[str], probability: float) -> None:
    """Draw averages (draw, point, output) as lines, with credible bands.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        The axes.
    x : array, (point,)
        Values of the input.
    averages : array
        The averages.
    names : list of str
        Names of the outputs, for a legend if there are several.
    probability : float
        That of the bands.
    """
    low, high = np.quantile(averages, [(1 - probability) / 2, (1 + probability) / 2], axis=0)
    marker = "o" if len(x) <= FEW else None  # as of a column of 0 and 1
    for k, name in enumerate(names):
        ax.fill_between(x, low[:, k], high[:, k], color=colour(k), alpha=0.25, lw=0)
        ax.plot(x, averages[..., k].mean(axis=0), color=colour(k), marker=marker, label=name)
    _name_lines(ax, names)


def _draw_categories(ax: Any, x: np.ndarray, averages: np.ndarray, names: list[str], probability: float) -> None:
    """Draw averages (draw, category, output) as points with credible intervals, those of several outputs side by side.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        The axes.
    x : array, (category,)
        Their places.
    averages : array
        The averages.
    names : list of str
        Names of the outputs, for a legend if there are several.
    probability : float
        That of the intervals.
    """
    low, high = np.quantile(averages, [(1 - probability) / 2, (1 + probability) / 2], axis=0)
    for k, name in enumerate(names):
        beside = x + 0.12 * (k - (len(names) - 1) / 2)
        ax.vlines(beside, low[:, k], high[:, k], color=colour(k), lw=2, alpha=0.6)
        ax.plot(beside, averages[..., k].mean(axis=0), "o", color=colour(k), label=name)
    ax.set_xlim(-0.5, len(x) - 0.5)
    _name_lines(ax, names)


def _name_lines(ax: Any, names: list[str]) -> None:
    """Add a legend above the axes if there are several outputs."""
    if len(names) > 1:
        ax.legend(frameon=False, ncols=min(3, len(names)), loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)


def _draw_curves(ax: Any, x: np.ndarray, curves: np.ndarray) -> None:
    """Draw curves (row, point) of single rows, evenly spaced ones of many."""
    ax.plot(x, curves[evenly_spaced(len(curves), MOST_CURVES)].T, color="0.6", lw=0.5, alpha=0.8, zorder=1)


def _draw_pair(
    ax: Any, table: Table, inputs: tuple[Feature, ...], places: list[np.ndarray], f: np.ndarray, label: str
) -> None:
    """Draw contours of a function at all points of two grids, or cells of categories, with the deciles of numbers.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        The axes.
    table : Table
        The rows.
    inputs : tuple of Feature
        The two features.
    places : list of array
        Where their values lie on the axes.
    f : array, (first times second,)
        The function.
    label : str
        What it is.
    """
    f = f.reshape(len(places[0]), len(places[1])).T
    if all(one.categories is None for one in inputs):
        surface = ax.contourf(*places, f, levels=10, cmap="cividis")
    else:
        surface = ax.pcolormesh(*places, f, shading="nearest", cmap="cividis")
    ax.get_figure().colorbar(surface, ax=ax, label=label)
    outside = {"colors": "k", "lw": 1, "clip_on": False}  # where no contour hides them
    marks = ((ax.vlines, ax.set_xticks, ax.get_xaxis_transform()), (ax.hlines, ax.set_yticks, ax.get_yaxis_transform()))
    for one, at, (draw, name_ticks, transform) in zip(inputs, places, marks, strict=True):
        if one.categories is None:
            draw(_deciles(table, one), 1, 1.03, transform=transform, **outside)
        else:
            name_ticks(at, one.categories)

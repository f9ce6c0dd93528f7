"""A figure of data beside what the posterior predicts, drawn by ArviZ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import model_of, whole
from pymc_gibbsnn._compat import draw_predictive_check
from pymc_gibbsnn._data import check_labels
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.plots.drawing import colour, panels, pyplot, thin_to
from pymc_gibbsnn.prediction.inputs import find_observed
from pymc_gibbsnn.prediction.outcomes import has_classes
from pymc_gibbsnn.prediction.predict import predict
from pymc_gibbsnn.prediction.summaries import means_and_draws_alone
from pymc_gibbsnn.prediction.table import targets_of

__all__ = ["plot_ppc"]


def plot_ppc(
    idata: Any,
    model: pm.Model | None = None,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
    y_new: ArrayLike | None = None,
    *,
    draws: int = 50,
    name: str | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> np.ndarray:
    r"""Plot the distribution of y over all rows, beside those of data that the posterior predicts for the same rows.

    This is a posterior predictive check [1]_: thin lines are data sets drawn by :func:`predict` with latents drawn
    anew, one for each of some draws of the posterior, and the black line is what was observed. Where it leaves the
    bundle of thin lines, the model misses something, such as a second mode or a bound. The densities of real numbers
    are drawn by ArviZ (``az.plot_ppc`` before its version 1, ``az.plot_ppc_dist`` from then on). For counts and class
    labels, black dots are the shares of rows with each value, and blue bars hold 90 % of the shares in data sets that
    are predicted. ``pm.sample_posterior_predictive`` does not serve here where the posterior
    lacks the latents, since it takes them from the prior.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned.
    model : pm.Model, optional
        The model; by default that of the context.
    X_new : array_like, shape (m, d), or mapping of str to array_like, optional
        Rows of the inputs, as :func:`predict` takes them; by default those that the model holds.
    y_new : array_like, shape (m,) or (m, k), optional
        What was observed there, as :func:`log_predictive` takes it.
    draws : int
        How many data sets to draw, about, from evenly spaced draws of the posterior.
    name : str, optional
        The name of the observed variable, where the model has several.
    random_seed : int or numpy.random.Generator, optional
        The seed of the draws of y.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (output,)
        The axes, in a new figure.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.
    TypeError
        If an argument is of another type than asked for.
    ValueError
        If rows are given without targets or targets without rows, targets of the model are missing, ``draws`` is no
        positive integer, or the posterior or the rows are refused as by :func:`predict`.
    NetworkError
        As :func:`predict`, and if y has more than two axes.

    References
    ----------
    .. [1] A. Gelman, X.-L. Meng, H. Stern. Posterior predictive assessment of model fitness via realized discrepancies.
       Statistica Sinica 6 (1996).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> with pmg.mlp(np.random.normal(size=(20, 3)), np.arange(20.0), hidden=5) as model:
    ...     idata = pm.sample(1000, step=pmg.GibbsNN())  # doctest: +SKIP
    >>> axes = pmg.plot_ppc(idata, model)  # doctest: +SKIP
    """
    plt = pyplot()
    draws = whole("draws", draws)
    if (X_new is None) != (y_new is None):
        given, missing = ("X_new", "y_new") if y_new is None else ("y_new", "X_new")
        raise ValueError(f"{given} needs {missing}: give both rows and what was observed there; found no {missing}.")
    check_labels("y_new", y_new, "X_new", X_new)
    model = model_of(model)
    observed = find_observed(model, name)
    if observed.ndim > 2:
        raise NetworkError(f"'{observed.name}' has {observed.ndim} axes; the figure needs (row,) or (row, output).")
    thin = thin_to(idata, draws)
    with means_and_draws_alone():
        found = predict(idata, model, X_new, samples=True, name=name, thin=thin, random_seed=random_seed)
    samples, classes = found["samples"], found["class"].values if has_classes(observed) else None
    y = targets_of(model, len(found["point"]), y_new, classes=None if classes is None else len(classes), name=name)
    if classes is None and samples.dtype.kind == "f":
        axes = draw_predictive_check(samples, samples.isel(chain=0, draw=0, drop=True).copy(data=y))
        plt.gcf().set_layout_engine("constrained")
        return axes
    columns = samples.values.reshape(-1, len(y), y[0].size)
    axes = panels(columns.shape[2], None, "output", (5, 3.4))
    outputs = [observed.name] if y.ndim == 1 else found[samples.dims[3]].values.tolist()
    for k, (ax, output) in enumerate(zip(axes, outputs, strict=True)):
        _draw_shares(ax, columns[..., k].astype(int), y.reshape(len(y), -1)[:, k].astype(int))
        ax.set(xlabel=output, ylabel="share of rows", ylim=(0, None))
        if classes is not None:
            ax.set_xticks(range(len(classes)), [str(one) for one in classes])
            ax.set_xlim(-0.5, len(classes) - 0.5)
    return axes


def _draw_shares(ax: Any, samples: np.ndarray, y: np.ndarray) -> None:
    """Draw the share of each value in data (row,) and in draws (draw, row) of them."""
    least, most = min(samples.min(), y.min()), max(samples.max(), y.max())
    observed, *drawn = (np.bincount(one - least, minlength=most - least + 1) / len(y) for one in (y, *samples))
    values, bounds = np.arange(least, most + 1), np.quantile(drawn, [0.05, 0.95], axis=0)
    ax.vlines(values, *bounds, color=colour(0), lw=4, alpha=0.5, label="90 % of predictions")
    ax.plot(values, observed, "o", color="k", ms=4, label="observed")
    ax.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)

"""A figure of residuals against predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from scipy.special import ndtri

from pymc_gibbsnn._arguments import model_of, one_of
from pymc_gibbsnn._data import check_labels
from pymc_gibbsnn.diagnostics.residuals import local_mean, quantile_residuals, quantile_residuals_of_labels
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.plots.drawing import colour, panels, pyplot, thin_to
from pymc_gibbsnn.prediction.inputs import find_observed
from pymc_gibbsnn.prediction.outcomes import has_classes
from pymc_gibbsnn.prediction.predict import predict
from pymc_gibbsnn.prediction.summaries import means_and_draws_alone
from pymc_gibbsnn.prediction.table import targets_of

__all__ = ["plot_residuals"]

DRAWS = 1000  # of the posterior, about: a quantile in the tails needs many
BOUND = ndtri(0.95)  # 90 % of normal numbers lie within ± this
SMOOTH = 50  # points of a smooth line


def plot_residuals(
    idata: Any,
    model: pm.Model | None = None,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
    y_new: ArrayLike | None = None,
    *,
    kind: str = "quantile",
    name: str | None = None,
    thin: int | None = None,
    random_seed: int | np.random.Generator | None = None,
    ax: Any = None,
) -> np.ndarray:
    r"""Plot residuals of the posterior predictive distribution against its mean, with their local mean and spread.

    If the model is right, residuals are standard normal whatever the prediction: the thick line, their local mean, is
    near 0, and the thin lines, the local mean ± 1.64 local standard deviations, are near ± 1.64. Thin lines that open
    like a fan show noise that is not constant. Crosses far out, or more than 10 % of them, show tails that are heavier
    than those of the model. A local mean that bends shows a shape that the network has not learned.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned.
    model : pm.Model, optional
        The model; by default that of the context.
    X_new : array_like, shape (m, d), or mapping of str to array_like, optional
        Rows of the inputs, as :func:`predict` takes them; by default those that the model holds. Residuals of the rows
        that were fitted are a little too small.
    y_new : array_like, shape (m,) or (m, k), optional
        What was observed there, as :func:`log_predictive` takes it.
    kind : {"quantile", "standardised"}
        Which residuals to draw: Φ⁻¹(F(y)), with F the predictive distribution function, which is drawn between F(y − 1)
        and F(y) for counts and class labels (randomised quantile residuals, [1]_); or (y − mean)/sd, which are not
        normal where the noise is not, as for the default Student's t errors, and not known for class labels.
    name : str, optional
        The name of the observed variable, where the model has several.
    thin : int, optional
        Every thin-th draw of each chain is used; by default so that about 1000 draws are. No quantile residual of real
        numbers is larger than S draws can tell, Φ⁻¹(1 − 1/S) or so: 3.1 for 1000.
    random_seed : int or numpy.random.Generator, optional
        The seed of the draws of y, and of what is randomised.
    ax : matplotlib.axes.Axes or sequence of them, optional
        The axes to draw on, one for each output; by default those of a new figure.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (output,)
        Predictions are on the x axis: the mean of y; of two classes the probability of the second; of more classes that
        of the likeliest. With more than two classes a residual is low where an improbable class was observed.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.
    TypeError
        If an argument is of another type than asked for.
    ValueError
        If ``kind`` is none of the above or standardised residuals of class labels are asked for, rows are given without
        targets or targets without rows, targets of the model are missing, there are fewer than 5 rows or not as many
        axes as outputs, or the posterior or the rows are refused as by :func:`predict`.
    NetworkError
        As :func:`predict`, and if y has more than two axes.

    References
    ----------
    .. [1] P. K. Dunn, G. K. Smyth. Randomized quantile residuals. Journal of Computational and Graphical Statistics 5
       (1996).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> with pmg.mlp(np.random.normal(size=(20, 3)), np.arange(20.0), hidden=5) as model:
    ...     idata = pm.sample(1000, step=pmg.GibbsNN())  # doctest: +SKIP
    >>> axes = pmg.plot_residuals(idata, model)  # doctest: +SKIP
    """
    pyplot()
    one_of("kind", kind, ("quantile", "standardised"))
    if (X_new is None) != (y_new is None):
        given, missing = ("X_new", "y_new") if y_new is None else ("y_new", "X_new")
        raise ValueError(f"{given} needs {missing}: give both rows and what was observed there; found no {missing}.")
    check_labels("y_new", y_new, "X_new", X_new)
    model, rng = model_of(model), np.random.default_rng(random_seed)
    observed = find_observed(model, name)
    is_label = has_classes(observed)
    if is_label and kind == "standardised":
        raise ValueError(
            f"kind must be 'quantile' for '{observed.name}', which is a class label; found 'standardised'."
        )
    if observed.ndim > 2 - is_label:
        raise NetworkError(f"'{observed.name}' has {observed.ndim} axes; the figure needs (row,) or (row, output).")
    thin = thin_to(idata, DRAWS) if thin is None else thin
    with means_and_draws_alone():
        found = predict(idata, model, X_new, samples=not is_label, name=name, thin=thin, random_seed=rng)
    if is_label:
        p = found["probability"].values
        y = targets_of(model, len(p), y_new, classes=p.shape[1], name=name)
        residuals = quantile_residuals_of_labels(p, y, rng)
        predictions = p[:, 1] if p.shape[1] == 2 else p.max(axis=1)
        labels = [
            f"probability of {found['class'].values[1]}" if p.shape[1] == 2 else "probability of the likeliest class"
        ]
    else:
        predictions = found["mean"].values
        y = targets_of(model, len(predictions), y_new, name=name)
        samples = found["samples"].values
        if kind == "quantile":
            residuals = quantile_residuals(samples.reshape(-1, *samples.shape[2:]), y, rng)
        else:
            residuals = (y - predictions) / found["sd"].values
        outputs = [observed.name] if y.ndim == 1 else found[found["mean"].dims[1]].values.tolist()
        labels = [f"predicted mean of {one}" for one in outputs]
    if len(y) < 5:
        raise ValueError(f"The figure needs 5 rows at least; found {len(y)}.")
    axes = panels(len(labels), ax, "output", (5.4, 4))
    columns = (x.reshape(len(y), -1).T for x in (predictions, residuals))
    for panel, x, r, label in zip(axes, *columns, labels, strict=True):
        _draw(panel, x, r)
        panel.set(xlabel=label, ylabel=f"{kind} residual")
        panel.locator_params(axis="x", nbins=6)
    return axes


def _draw(ax: Any, x: np.ndarray, r: np.ndarray) -> None:
    """Draw residuals at predictions, and their local mean and spread."""
    outside = np.abs(r) > BOUND
    share = round(100 * outside.mean())
    ax.plot(x[~outside], r[~outside], ".", color="0.6", ms=4)
    ax.plot(x[outside], r[outside], "x", color=colour(1), ms=5, label=f"outside ± 1.64: {share} % (normal: 10 %)")
    for height in (-BOUND, 0, BOUND):
        ax.axhline(height, color="0.4", ls="--", lw=1)
    at = np.linspace(x.min(), x.max(), SMOOTH)
    mean = local_mean(x, r, at)
    variance = local_mean(x, (r - local_mean(x, r, x)) ** 2, at, degree=0)
    spread = BOUND * np.sqrt(variance)
    ax.plot(at, mean, color=colour(0), lw=2, label="local mean")
    ax.plot(at, mean - spread, color=colour(0), lw=1, label="± 1.64 local sd")
    ax.plot(at, mean + spread, color=colour(0), lw=1)
    ax.legend(
        frameon=False,
        ncols=3,
        fontsize=8,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0.2,
        columnspacing=1,
        handlelength=1.5,
    )

"""A figure of data beside what the posterior predicts, drawn by ArviZ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import model_of, whole
from pymc_gibbsnn._compat import draw_predictive_check
from pymc_gibbsnn._data import check_labels
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.plots.drawing import pyplot, thin_to
from pymc_gibbsnn.prediction.inputs import find_observed
from pymc_gibbsnn.prediction.outcomes import has_classes
from pymc_gibbsnn.prediction.predict import predict
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
    bundle of thin lines, the model misses something, such as a second mode or a bound. ArviZ draws the figure, by
    ``az.plot_ppc`` before its version 1 and by ``plot_ppc_dist`` from then on: densities of real numbers, and
    histograms of counts and of class labels. ``pm.sample_posterior_predictive`` does not serve here where the posterior
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
    pyplot()
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
    found = predict(idata, model, X_new, samples=True, name=name, thin=thin, random_seed=random_seed)
    samples, classes = found["samples"], found.get("class")
    count = None if classes is None else len(classes)
    y = targets_of(model, len(found["point"]), y_new, classes=count, name=name)
    truth = xr.DataArray(
        y.astype(samples.dtype), dims=samples.dims[2:], coords=samples.isel(chain=0, draw=0).coords, name=observed.name
    )
    axes = draw_predictive_check(samples.rename(observed.name), truth)
    if has_classes(observed):
        for ax in axes:
            ax.set_xticks(range(len(classes)), [str(one) for one in classes.values])
    return axes

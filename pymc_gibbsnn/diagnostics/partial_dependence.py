r"""Partial dependence of what a model expects of y on one input or two, for every draw of a posterior.

With x_S the inputs in question, x_C the others and f_s(x) = E[y | x, θ_s], the partial dependence of draw s averages
f_s over the n rows of a table, in each of which x_S is replaced by the same value v [1]_:

.. math:: \bar f_s(v) = \frac1n \sum_{i=1}^n f_s(x_S = v, \; x_C = x_{iC}).

A category is one input: v is one of its categories, and x_S are all its indicator columns. The quantiles of
:math:`\bar f_s(v)` over draws make a credible band. The curve of a single row, its individual conditional expectation
(ICE), is the mean of f_s over draws [2]_.

References
----------
.. [1] J. H. Friedman. Greedy function approximation: a gradient boosting machine. Annals of Statistics 29 (2001),
   section 8.2.
.. [2] A. Goldstein, A. Kapelner, J. Bleich, E. Pitkin. Peeking inside the black box: visualizing statistical learning
   with plots of individual conditional expectation. Journal of Computational and Graphical Statistics 24 (2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pymc as pm
import xarray as xr

from pymc_gibbsnn._frames import Feature
from pymc_gibbsnn.prediction.expected import expected_values
from pymc_gibbsnn.prediction.table import Table

__all__ = ["grid_values", "partial_dependence"]

AT_ONCE = 2**24  # how many expected values are kept at a time
RANGE = (0.05, 0.95)  # the quantiles of a column between which its grid lies, as in scikit-learn
ENOUGH_LATENTS = 500  # draws of latents, in all rows, for each draw of the posterior: their noise averages out


def grid_values(X: np.ndarray, feature: Feature, points: int) -> np.ndarray:
    """Return the values at which to set a feature, (point, column).

    They are so many numbers, evenly spaced over the middle 90 % of the column, or all its values if these are fewer; of
    a category they are the rows of indicators of all categories.
    """
    if feature.categories is not None:
        return np.eye(len(feature.categories))
    [x] = X[:, feature.columns].T
    values = np.unique(x[~np.isnan(x)])
    return (values if len(values) <= points else np.linspace(*np.nanquantile(x, RANGE), points))[:, None]


def partial_dependence(
    model: pm.Model,
    posterior: xr.Dataset,
    table: Table,
    features: Sequence[Feature],
    grids: Sequence[np.ndarray],
    *,
    name: str | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the partial dependence on some features at all points of the product of their grids.

    Parameters
    ----------
    model : pm.Model
        The model.
    posterior : xarray.Dataset
        Draws of it.
    table : Table
        The rows over which to average.
    features : sequence of Feature
        The features.
    grids : sequence of array, (point, column)
        The values of each of them.
    name : str, optional
        The name of the observed variable, if there are several.
    random_seed : int or numpy.random.Generator, optional
        The seed of the latents that are drawn.

    Returns
    -------
    averages : array, (draw, point, ...)
        Means over rows, for each draw.
    curves : array, (row, point, ...)
        Means over draws, for each row.
    """
    points = np.array([np.concatenate(values) for values in product(*grids)])
    columns = [j for feature in features for j in feature.columns]
    n, rng = len(table.X), np.random.default_rng(random_seed)
    draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    latent_draws = -(-ENOUGH_LATENTS // n) if len(grids) == 1 else 1  # of a pair only the mean is of interest
    size = max(1, AT_ONCE // (n * draws))
    averages, curves = [], []
    for i in range(0, len(points), size):
        some = points[i : i + size]
        X = np.tile(table.X, (len(some), 1))
        X[:, columns] = np.repeat(some, n, axis=0)
        rows = table.with_matrix(X, np.tile(np.arange(n), len(some)))
        f = expected_values(model, posterior, rows, name=name, latent_draws=latent_draws, random_seed=rng)
        f = f.reshape(draws, len(some), n, *f.shape[2:])
        averages.append(f.mean(axis=2))
        curves.append(np.moveaxis(f.mean(axis=0), 1, 0))
    return np.concatenate(averages, axis=1), np.concatenate(curves, axis=1)

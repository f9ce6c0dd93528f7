"""A figure of which inputs matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import model_of, number, one_of, whole
from pymc_gibbsnn._data import check_labels
from pymc_gibbsnn._frames import features_of
from pymc_gibbsnn.diagnostics.relevance import permutation_importance, weight_deviations
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.plots.drawing import colour, pyplot, thin_to
from pymc_gibbsnn.prediction.expected import output_names
from pymc_gibbsnn.prediction.inputs import find_observed
from pymc_gibbsnn.prediction.outcomes import has_classes
from pymc_gibbsnn.prediction.provenance import posterior_for
from pymc_gibbsnn.prediction.table import input_table, targets_of

__all__ = ["plot_relevance"]

DRAWS = 200  # of the posterior, about, with which columns are permuted


def plot_relevance(
    idata: Any,
    model: pm.Model | None = None,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
    y_new: ArrayLike | None = None,
    *,
    method: str | None = None,
    repeats: int = 5,
    probability: float = 0.9,
    name: str | None = None,
    thin: int | None = None,
    random_seed: int | np.random.Generator | None = None,
    ax: Any = None,
) -> Any:
    r"""Plot which inputs of a network matter, the most relevant one first, with credible intervals.

    A dot is the posterior median, a line the central credible interval, of one of two quantities:

    - ``method="precision"``: the prior standard deviation :math:`1/\sqrt{\lambda_j}` of the weights of input j, where
      the precisions :math:`\lambda_j` of the first layer are learned, as with ``prior="relevance"`` [1]_. Compare
      inputs of equal spread, such as standardised ones. This is what the network is allowed to do with an input; it
      costs nothing.
    - ``method="permutation"``: by how much the squared error :math:`\frac1n \sum_i (y_i - E[y \mid x_i, \theta])^2` of
      a draw increases when the values of input j are permuted among the rows [2]_, where a category with all its
      indicator columns is one input. This is what predictions owe to an
      input, in squared units of y. Squares are summed over several outputs; for class labels it is the increase of the
      Brier score, the squared distance between probabilities and label. Of two inputs that tell the same, each seems to
      matter little.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned.
    model : pm.Model, optional
        The model, whose inputs are one matrix; by default that of the context.
    X_new : array_like, shape (m, d), or mapping of str to array_like, optional
        Rows among which to permute, as :func:`predict` takes them; by default those that the model holds. Rows that
        were not fitted tell better what an input is worth.
    y_new : array_like, shape (m,) or (m, k), optional
        What was observed there, as :func:`log_predictive` takes it.
    method : {"precision", "permutation"}, optional
        By default "precision" if the first layer has a learned precision for each input and no rows are given.
    repeats : int
        How many permutations of each input to average.
    probability : float
        Probability of the credible intervals, between 0 and 1.
    name : str, optional
        The name of the observed variable, where the model has several.
    thin : int, optional
        Every thin-th draw of each chain is used; by default all for precisions, and for permutations so that about 200
        draws are.
    random_seed : int or numpy.random.Generator, optional
        The seed of the permutations.
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
        If an argument is of another type than asked for.
    ValueError
        If ``method`` is none of the above, rows are given without targets, targets without rows, or rows for
        precisions, targets of the model are missing, or the posterior or the rows are refused as by
        :func:`log_predictive`.
    NetworkError
        If the inputs are no matrix, or there are no precisions where these are asked for.

    References
    ----------
    .. [1] R. M. Neal. Bayesian Learning for Neural Networks. Springer, 1996.
    .. [2] L. Breiman. Random forests. Machine Learning 45 (2001), section 10.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> with pmg.mlp(np.random.normal(size=(20, 3)), np.arange(20.0), hidden=5) as model:
    ...     idata = pm.sample(1000, step=pmg.GibbsNN())  # doctest: +SKIP
    >>> ax = pmg.plot_relevance(idata, model)  # doctest: +SKIP
    """
    plt = pyplot()
    one_of("method", method, (None, "precision", "permutation"))
    repeats = whole("repeats", repeats)
    number("probability", probability, "a probability between 0 and 1", lambda p: 0 < p < 1)
    if (X_new is None) != (y_new is None):
        given, missing = ("X_new", "y_new") if y_new is None else ("y_new", "X_new")
        raise ValueError(f"{given} needs {missing}: give both rows and what was observed there; found no {missing}.")
    if X_new is not None and method == "precision":
        raise ValueError("X_new must be None for method='precision', which uses no rows; found rows.")
    check_labels("y_new", y_new, "X_new", X_new)
    model = model_of(model)
    table, found = input_table(model, X_new, name), None
    if method != "permutation" and X_new is None:
        try:
            found = weight_deviations(model, posterior_for(model, idata, thin=1 if thin is None else thin), name)
        except NetworkError:
            if method == "precision":
                raise
    if found is None:
        posterior = posterior_for(model, idata, thin=thin_to(idata, DRAWS) if thin is None else thin)
        outputs, is_label = output_names(model, posterior, table, name), has_classes(find_observed(model, name))
        y = targets_of(model, len(table.X), y_new, classes=len(outputs) if is_label else None, name=name)
        y = np.eye(len(outputs))[y] if is_label else y
        how = {"repeats": repeats, "name": name, "random_seed": random_seed}
        features = features_of(table.columns, table.X)
        names = [feature.name for feature in features]
        found = permutation_importance(model, posterior, table, y, features, **how)
        label = "increase of the Brier score" if is_label else "increase of the mean squared error"
    else:
        label = "prior standard deviation of weights, 1/√λ"
        names = table.columns if found.shape[1] == len(table.columns) else [f"input {j}" for j in range(found.shape[1])]
    order = np.argsort(np.median(found, axis=0))
    low, median, high = np.quantile(found[:, order], [(1 - probability) / 2, 0.5, (1 + probability) / 2], axis=0)
    places = np.arange(len(order))
    ax = plt.subplots(figsize=(6, 1 + 0.28 * len(order)), layout="constrained")[1] if ax is None else ax
    ax.hlines(places, low, high, color=colour(0), lw=2, alpha=0.6)
    ax.plot(median, places, "o", color=colour(0))
    ax.axvline(0, color="0.4", ls="--", lw=1)
    ax.set_yticks(places, [names[j] for j in order])
    ax.set(xlabel=label, ylim=(-0.7, len(order) - 0.3))
    ax.grid(axis="y", color="0.9")
    ax.set_axisbelow(True)
    return ax

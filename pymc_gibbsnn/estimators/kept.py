"""What is kept of a fit beside its draws: settings, and two rows that stand in for the data.

The model is written anew from these by :func:`pymc_gibbsnn.mlp`. Its priors depend on the data through the means and
standard deviations of columns and targets alone, so that two rows, one standard deviation below and above the means,
give the same model. Where inputs are missing, a third row of missing entries says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import is_classifier

from pymc_gibbsnn.prediction.provenance import SCALES

if TYPE_CHECKING:
    from pymc_gibbsnn.estimators.base import NetworkEstimator

__all__ = ["kept_of", "restore", "stand_in_rows"]


def stand_in_rows(X: np.ndarray) -> list[list[float | None]]:
    """Return two rows of inputs with the means and standard deviations of all and, if some are missing, a third."""
    mean, sd = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    missing: list = [[None] * X.shape[1]] if np.isnan(X).any() else []  # as JSON has it
    return [(mean - sd).tolist(), (mean + sd).tolist(), *missing]


def kept_of(estimator: NetworkEstimator) -> dict[str, Any]:
    """Return all of a fit but its parameters and its draws, in a form that JSON can hold."""
    names, model = getattr(estimator, "feature_names_in_", None), estimator.model_
    y, is_labelled = model["y_data"].get_value(), is_classifier(estimator)
    return {
        "seed": estimator.seed_,
        "inputs": estimator.n_features_in_,
        "names": None if names is None else names.tolist(),
        "features": estimator.features_,
        "rows": estimator._rows,
        "targets": (np.unique(y) if is_labelled else _stand_in_targets(y, estimator.likelihood)).tolist(),
        "data": {x: model[x].get_value().tolist() for x in SCALES if x in model.named_vars},
    } | ({"classes": estimator.classes_.tolist(), "kind": estimator.classes_.dtype.str} if is_labelled else {})


def restore(estimator: NetworkEstimator, kept: dict[str, Any]) -> None:
    """Give an estimator all that :func:`kept_of` returned, and write its model."""
    estimator.seed_, estimator.n_features_in_, estimator.features_ = (kept[x] for x in ("seed", "inputs", "features"))
    if kept["names"] is not None:
        estimator.feature_names_in_ = np.array(kept["names"], dtype=object)
    if "classes" in kept:
        estimator.classes_ = np.array(kept["classes"], dtype=kept["kind"])
    estimator._rows = kept["rows"]
    X, y = np.array(kept["rows"], dtype="float64"), np.asarray(kept["targets"])  # None becomes NaN
    rows = [0, 1] * ((len(y) + 1) // 2) + [2, 2] * (len(X) - 2)  # each target as often as any other
    X, y = X[rows], y[np.arange(len(rows)) % len(y)]
    estimator.model_ = estimator._model(
        X if estimator.features_ is None else pd.DataFrame(X, columns=kept["features"]), y
    )
    for name, x in kept["data"].items():
        estimator.model_[name].set_value(np.asarray(x, estimator.model_[name].dtype))


def _stand_in_targets(y: np.ndarray, likelihood: str | None) -> np.ndarray:
    """Return targets in two rows, from which priors in units of the data follow as from all."""
    if likelihood in ("poisson", "negative_binomial"):
        return np.stack([np.floor(y.mean(axis=0)), np.ceil(y.mean(axis=0))])
    is_log = likelihood == "lognormal"
    z = np.log(y) if is_log else y
    center = z.mean(axis=0)
    around = np.sqrt(((z - center) ** 2).mean()) if likelihood not in ("gamma", "beta") else 0.0
    both = np.stack([center - around, center + around])
    return np.exp(both) if is_log else both

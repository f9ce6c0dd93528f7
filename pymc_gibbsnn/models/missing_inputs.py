"""Inputs with missing entries as variables of a model, in one call."""

from __future__ import annotations

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.exceptions import ImputationWarning
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import describe

__all__ = ["check_columns_with_holes", "inputs_with_holes"]

# Parameters of the InverseGamma prior of the variance of a column, which is 1 where columns are standardised
SHAPE, SCALE = 2.0, 1.0


def inputs_with_holes(X: np.ndarray, center: np.ndarray, scale: np.ndarray) -> Variable:
    """Write inputs (n, d) with missing entries, x_j ~ N(μ_j, τ_j²), and priors that suit columns in these units.

    These are (μ_j − center_j)/scale_j ~ N(0, 1), of the variable "mean_X", and τ_j²/scale_j² ~ InverseGamma(2, 1), of
    "variance_X". PyMC makes the free variable "X_unobserved" of the missing entries.
    """
    mean = pm.Normal("mean_X", center, scale, dims="feature")
    variance = pm.InverseGamma("variance_X", SHAPE, SCALE * scale**2, dims="feature")
    with warnings.catch_warnings():  # that missing values become variables is what was asked for
        warnings.simplefilter("ignore", ImputationWarning)
        return pm.Normal("X", mean, pt.sqrt(variance), observed=X, dims=("row", "feature"))


def check_columns_with_holes(X: np.ndarray, names: np.ndarray) -> None:
    """Raise ValueError for columns of inputs, of these names, that hold no value at all."""
    empty = np.isnan(X).all(axis=0)
    if empty.any():
        raise ValueError(f"X holds no value in the columns {describe(names[empty].tolist())}: leave these columns out.")

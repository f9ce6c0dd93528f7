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

COMPONENTS, FACTORS = 30, 4
# Parameters of the InverseGamma prior of the variances of a component, beside 1 for a column that is standardised
SHAPE, SCALE = 2.0, 0.02


def inputs_with_holes(X: np.ndarray, center: np.ndarray, scale: np.ndarray) -> Variable:
    """Write inputs (n, d) with missing entries whose rows are drawn from a mixture, with priors in the units of X.

    With 30 components k, and with q factors of rows, which are 4, or d − 1 where these are fewer,
    x_ij ~ N(μ_kj + Σ_a V_ja f_ia, τ_kj²) for rows with "component_X" c_i = k, and the variables

    - "weights_X", π ~ Dirichlet(1, ..., 1), the probabilities of the components;
    - "mean_X", (μ_kj − center_j)/scale_j ~ N(0, 1);
    - "variance_X", τ_kj²/scale_j² ~ InverseGamma(2, 0.02);
    - "factors_X", f_ia ~ N(0, 1), and "loadings_X", V_ja/scale_j ~ N(0, 1/q).

    PyMC makes the free variable "X_unobserved" of the missing entries.
    """
    factors = min(FACTORS, X.shape[1] - 1)
    pm.modelcontext(None).add_coord("component", np.arange(COMPONENTS))
    weights = pm.Dirichlet("weights_X", np.ones(COMPONENTS), dims="component")
    component = pm.Categorical("component_X", weights, dims="row")
    mean = pm.Normal("mean_X", center, scale, dims=("component", "feature"))
    variance = pm.InverseGamma("variance_X", SHAPE, SCALE * scale**2, dims=("component", "feature"))
    means = mean[component]
    if factors:
        pm.modelcontext(None).add_coord("factor", np.arange(factors))
        f = pm.Normal("factors_X", 0, 1, dims=("row", "factor"))
        means += f @ pm.Normal("loadings_X", 0, scale[:, None] / factors**0.5, dims=("feature", "factor")).T
    with warnings.catch_warnings():  # that missing values become variables is what was asked for
        warnings.simplefilter("ignore", ImputationWarning)
        return pm.Normal("X", means, pt.sqrt(variance)[component], observed=X, dims=("row", "feature"))


def check_columns_with_holes(X: np.ndarray, names: np.ndarray) -> None:
    """Raise ValueError for columns of inputs, of these names, that hold no value at all."""
    empty = np.isnan(X).all(axis=0)
    if empty.any():
        raise ValueError(f"X holds no value in the columns {describe(names[empty].tolist())}: leave these columns out.")

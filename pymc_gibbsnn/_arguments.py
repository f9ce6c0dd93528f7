"""What the models of this package ask of their arguments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike

from pymc_gibbsnn.activations import ACTIVATIONS, PiecewiseLinear

__all__ = ["SMOOTH", "check_finite", "finite", "named_activation"]

SMOOTH: dict[str, Callable] = {
    "tanh": pt.tanh,
    "sigmoid": pt.sigmoid,
    "gelu": lambda z: z * (1 + pt.erf(z / 2**0.5)) / 2,
    "softplus": pt.softplus,
    "silu": lambda z: z * pt.sigmoid(z),
    "erf": pt.erf,
}
NAMED = ACTIVATIONS | SMOOTH


def finite(name: str, values: ArrayLike) -> np.ndarray:
    """Data as an array of floats, refused by name if a value is missing."""
    values = np.asarray(values)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers; found dtype {values.dtype}.")
    values = values.astype(float)
    check_finite(name, values)
    return values


def check_finite(name: str, values: np.ndarray, error: type[ValueError] = ValueError) -> None:
    """Refuse data with missing values, by name."""
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise error(f"{name} holds {bad} values that are NaN or infinite: drop or impute these rows first.")


def named_activation(activation: str | PiecewiseLinear | Callable) -> Callable:
    """The function that a name, a table or a function of PyTensor variables stands for."""
    if isinstance(activation, str):
        if activation not in NAMED:
            raise ValueError(f"activation must be one of {sorted(NAMED)}, a table or a function; found {activation!r}.")
        return NAMED[activation]
    if not callable(activation):
        raise ValueError(f"activation must be a name, a PiecewiseLinear table or a function; found {activation!r}.")
    return activation

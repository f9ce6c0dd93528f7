"""What the functions of this package ask of their arguments."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["check_finite", "finite"]


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

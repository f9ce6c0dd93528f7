"""How predictions, and what they are compared with, are checked before they are scored or drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pymc_gibbsnn._data import numbers_in
from pymc_gibbsnn.networks.likelihoods.class_labels import numbered

__all__ = ["checked_classes", "class_names", "class_numbers", "samples_and_data"]


def samples_and_data(samples: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return samples of all chains (draw, ...) and data (...) as arrays, or raise ValueError."""
    samples, y = numbers_in("samples", samples), numbers_in("y", y)
    for name, x in (("samples", samples), ("y", y)):
        if np.isnan(x).any():
            raise ValueError(f"{name} must not hold NaN; found {np.isnan(x).sum()} of {x.size} numbers.")
    if samples.ndim < 3 or samples.shape[2:] != y.shape:
        raise ValueError(f"samples must be (chain, draw, *y.shape); found {samples.shape} and y of shape {y.shape}.")
    if not samples.size:
        raise ValueError(f"samples must hold draws of one point at least; found shape {samples.shape}.")
    return samples.reshape(-1, *y.shape), y


def checked_classes(probabilities: ArrayLike, labels: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities (point, class) and labels (point,) as arrays, or raise ValueError."""
    p, names = numbers_in("probabilities", probabilities), class_names(probabilities)
    p = np.stack([1 - p, p], axis=1) if p.ndim == 1 else p
    if p.ndim != 2 or np.shape(labels) != p.shape[:1] or not p.size:
        raise ValueError(
            f"probabilities must be (point, class), labels (point,), none empty; found {p.shape} and "
            f"{np.shape(labels)}."
        )
    labels = class_numbers(labels, p.shape[1], names)
    if (p < 0).any() or not np.allclose(p.sum(axis=1), 1, atol=1e-6):
        raise ValueError("Probabilities must not be negative, and those of each row must sum to 1.")
    return p, labels


def class_names(probabilities: ArrayLike) -> list | None:
    """Return the names that classes have in probabilities (point, class) as ``predict`` gives them, if any."""
    has_names = np.ndim(probabilities) == 2 and "class" in getattr(probabilities, "coords", {})
    return probabilities["class"].values.tolist() if has_names else None  # type: ignore[union-attr]


def class_numbers(labels: ArrayLike, count: int, names: list | None = None) -> np.ndarray:
    """Return labels, numbers or names of so many classes, as numbers from 0 up, or raise ValueError."""
    labels = np.asarray(labels) if names is None else numbered("labels", labels, names)
    if labels.dtype.kind not in "biu" or labels.min() < 0 or labels.max() >= count:
        raise ValueError(f"labels must be integers from 0 to {count - 1}; found {np.unique(labels)[:5]}.")
    return labels.astype(int)

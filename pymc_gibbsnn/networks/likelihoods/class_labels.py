"""How the class labels that a user gives become integers from 0 up and names of classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import describe
from pymc_gibbsnn._data import array_of, refuse_lazy, storable_names

__all__ = ["numbered", "read_labels"]

KINDS = "biufU"  # of names of classes that stay as they are; others become texts

HOW_TO_NUMBER = (
    "np.unique(y, return_inverse=True)[1] numbers them so; pd.Categorical(y, categories=[...]) may name classes that "
    "have no examples."
)
OTHER_NAMES = "pd.Categorical(y) takes dates, tuples and the like for names."


def read_labels(y: ArrayLike, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Turn labels as a user has them into integers from 0 up, and return them with the names of the classes.

    Integers must count from 0, without a gap, and are names of classes themselves. Strings are numbered in alphabetical
    order. A categorical of pandas keeps its categories and their order, including those without examples; categories
    that are neither numbers nor texts, such as intervals, dates and tuples, get the texts of these for names.

    Parameters
    ----------
    y : array_like, shape (n,)
        Integers, booleans, strings or a pandas categorical.
    most : int, optional
        The largest number of classes that is allowed; by default any.

    Returns
    -------
    labels : array of int, shape (n,)
    classes : array, shape (k,)
        The names of the k classes.

    Raises
    ------
    TypeError
        If the labels are a lazy frame or a sparse matrix.
    ValueError
        If labels are missing, of another type, do not count from 0 without a gap, or are of one class or of too many.
    """
    refuse_lazy("y", y)
    if np.ma.is_masked(y):
        raise ValueError(f"y holds {np.ma.count_masked(y)} masked labels: drop these rows first.")
    categorical = getattr(y, "cat", y)  # a series of pandas holds its categories there
    if hasattr(categorical, "categories"):
        labels, classes = np.asarray(categorical.codes, "int64"), storable_names(categorical.categories, KINDS)
        if len({*classes.tolist()}) < len(classes):
            raise ValueError(f"y must hold classes of different names; found {describe(classes)}: rename some.")
        if (labels < 0).any():
            raise ValueError(f"y holds {(labels < 0).sum()} missing labels: drop these rows first.")
    else:
        labels, classes = _counted(array_of("y", y))
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError(f"y must hold labels of shape (n,), one for each row of X; found shape {labels.shape}.")
    if len(classes) < 2:
        raise ValueError(f"y must hold labels of at least two classes; found only {describe(np.ravel(y)[0])}.")
    if most is not None and len(classes) > most:
        raise ValueError(f"y must hold labels of {most} classes, 0 and 1 or two names; found {describe(classes)}.")
    return labels, classes


def numbered(name: str, labels: ArrayLike, classes: ArrayLike) -> np.ndarray:
    """Turn names of known classes into the numbers of these classes; what else is given is returned as an array.

    Labels are names if they are no numbers, or if the classes have other numbers than 0, 1, ... for names.

    Parameters
    ----------
    name : str
        The name of the argument, for the error.
    labels : array_like
        Labels as a user has them.
    classes : array_like, shape (k,)
        The names of the classes.

    Returns
    -------
    array
        In the shape of the labels.

    Raises
    ------
    ValueError
        If a name is not that of a class.
    """
    labels, known = np.asarray(labels), np.asarray(classes).tolist()
    if labels.dtype.kind not in KINDS:
        labels = storable_names(labels.ravel(), KINDS).reshape(labels.shape)
    has_strings = any(isinstance(one, str) for one in known)
    if labels.dtype.kind in "biuf" and (has_strings or known == list(range(len(known)))):
        return labels
    numbers = {one: i for i, one in enumerate(known)}
    strange = [one for one in labels.ravel().tolist() if one not in numbers]
    if strange:
        raise ValueError(f"{name} must hold labels of the classes {describe(known)}; found {describe(strange[0])}.")
    return np.array([numbers[one] for one in labels.ravel().tolist()], "int64").reshape(labels.shape)


def _counted(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number the labels of an array of integers or strings, and return them with the classes."""
    if y.dtype.kind == "O" and all(isinstance(one, int | np.integer | np.bool_) for one in y.ravel()):
        y = np.array(y.tolist())
    if y.dtype.kind in "OU":
        strange = [one for one in y.ravel().tolist() if not isinstance(one, str)]
        if strange:
            raise ValueError(
                f"y must hold integer labels or names of classes; found {describe(strange[0])} among them. "
                f"{OTHER_NAMES}"
            )
        classes, labels = np.unique(y.astype(str), return_inverse=True)
        return labels.reshape(y.shape).astype("int64"), classes
    if y.dtype.kind in "mM":
        raise ValueError(f"y must hold integer labels or names of classes; found dtype {y.dtype}. {OTHER_NAMES}")
    if y.dtype.kind not in "biu":
        raise ValueError(
            f"y must hold integer labels; found dtype {y.dtype}: write y.astype(int) if these are numbers of classes, "
            f"or likelihood='normal' if they are real targets."
        )
    classes = np.unique(y.astype(int) if y.dtype.kind == "b" else y)
    gaps = np.flatnonzero(classes != np.arange(len(classes)))
    if len(gaps) and (len(classes) > 1 or classes[0] < 0):
        raise ValueError(
            f"y must hold labels that count from 0; found labels from {classes[0]} to {classes[-1]}, which would make "
            f"a class {gaps[0]} without examples. {HOW_TO_NUMBER}"
        )
    return y.astype("int64"), classes

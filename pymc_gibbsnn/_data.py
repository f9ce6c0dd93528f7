"""How data are checked before anything is computed from them, in the manner of :mod:`pymc_gibbsnn._arguments`."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta
from decimal import Decimal
from numbers import Real

import numpy as np
import pandas as pd
import pymc as pm
from numpy.typing import ArrayLike, DTypeLike
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import describe

__all__ = [
    "array_of",
    "check_coordinates",
    "check_finite",
    "check_labels",
    "column_names",
    "finite",
    "named_columns",
    "numbers_in",
    "of_dtype",
    "refuse_lazy",
    "storable_names",
    "warn_of_rows",
    "warn_of_size",
    "warn_of_units",
]

LARGE = 30  # a mean absolute value far from that of standardised numbers; images in bytes, of up to 255, have more
FAR = 3  # how much further than any row of the data new rows must be to be warned of
LEAST = 20  # and single rows at least so many standard deviations, as the largest of few data says little


def finite(name: str, values: ArrayLike, *, may_be_missing: bool = False) -> np.ndarray:
    """Require data without missing values, and return them as an array of floats.

    Values that may be missing are NaN in this array.

    Raises
    ------
    TypeError
        If there are no data, or they are a PyTensor variable, a lazy frame or a sparse matrix.
    ValueError
        If a value is masked, no number or not finite.
    """
    if may_be_missing and np.ma.isMaskedArray(values):
        values = np.ma.filled(values.astype(float), np.nan)
    if np.ma.is_masked(values):
        count = np.ma.count_masked(values)
        raise ValueError(f"{name} holds {count} masked values: drop or impute these rows first.")
    if isinstance(values, Variable) or values is None:
        raise TypeError(f"{name} must be an array of numbers; found {describe(values)}.")
    refuse_lazy(name, values)
    # Columns of polars one by one: for a whole frame it would make numbers of dates
    columns = values.get_columns() if callable(getattr(values, "get_columns", None)) else []
    if columns:
        numbers = np.stack([numbers_in(name, x, [x.name]) for x in columns], axis=1)
    else:
        numbers = numbers_in(name, values, named_columns(values))
    checked = np.where(np.isnan(numbers), 0, numbers) if may_be_missing else numbers
    columns, bad = named_columns(values), ~np.isfinite(checked)
    if columns and numbers.ndim == 2 and bad.any():
        name = f"{name}, in the columns {describe([columns[i] for i in np.flatnonzero(bad.any(axis=0))])},"
    check_finite(name, checked)
    return numbers


def refuse_lazy(name: str, values: ArrayLike) -> None:
    """Raise TypeError for a LazyFrame of polars or a sparse matrix, each of which NumPy takes for a single object."""
    for method in ("collect", "toarray"):
        if callable(getattr(values, method, None)):
            raise TypeError(
                f"{name} must be an array of numbers; found a {type(values).__name__}: give {name}.{method}()."
            )


def array_of(name: str, values: ArrayLike) -> np.ndarray:
    """Return an array; raise ValueError if the values are lists of different lengths."""
    try:
        return np.asarray(values)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(f"{name} must be an array; found lists of different lengths in it.") from None


def numbers_in(name: str, values: ArrayLike, columns: list[str] | list[int] | None = None) -> np.ndarray:
    """Return an array of numbers in double precision; raise ValueError if it holds anything else.

    ``columns`` are names, of all columns or of the one that is given, if they have names.
    """
    is_polars = callable(getattr(values, "to_dummies", None))
    values = array_of(name, values)
    others = [] if values.dtype.kind in "biuf" else list(enumerate(values.ravel()))
    if values.dtype.kind == "O":  # such as a data frame with columns of numbers and of truth values
        others = [(i, one) for i, one in others if not isinstance(one, Real | Decimal | np.bool_)]
    if not others:
        return values.astype(float)
    i, other = others[0]
    frame = name if columns else f"pd.DataFrame({name})"
    if not columns and values.dtype.kind == "O" and values.ndim == 2:
        columns = range(values.shape[1])
    if not columns:
        raise ValueError(f"{name} must hold numbers; found {describe(other)} in an array of dtype {values.dtype}.")
    column = columns[i % len(columns)]
    problem, advice = f"{describe(other)} in the column {column!r}", ""
    if isinstance(other, datetime | np.datetime64):
        advice = " Make numbers of dates: the year, the month, or the days since the first one."
    if isinstance(other, str):
        dummies = f"{name}.to_dummies([{column!r}])" if is_polars else f"pd.get_dummies({frame}, columns=[{column!r}])"
        advice = f" Make columns of 0 and 1 of this text: {dummies}."
    raise ValueError(f"{name} must hold numbers; found {problem}.{advice}")


def of_dtype(name: str, values: np.ndarray, dtype: DTypeLike, data: str | None) -> np.ndarray:
    """Return finite numbers in the dtype of the data that they replace.

    Parameters
    ----------
    name : str
        The name of the argument, for the error.
    values : array
        The numbers.
    dtype : dtype_like
        The dtype of the data.
    data : str or None
        The name of the data, for the error.

    Returns
    -------
    array

    Raises
    ------
    ValueError
        If it is one of whole numbers, and cannot hold them.
    """
    with np.errstate(invalid="ignore"):  # numbers far out of its range
        numbers = values.astype(dtype)
    if numbers.dtype.kind in "iu" and (numbers != values).any():
        raise ValueError(f"{name} must hold whole numbers that {numbers.dtype} can hold, the dtype of '{data}'.")
    return numbers


def check_finite(
    name: str,
    values: np.ndarray,
    error: type[ValueError] = ValueError,
    advice: str = "drop or impute these rows first",
) -> None:
    """Raise an error that names the data if one of their values is NaN or infinite.

    Parameters
    ----------
    name : str
        The name of the data.
    values : array
        The data.
    error : type
        The kind of error.
    advice : str
        What to do, for the error.
    """
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise error(f"{name} holds {bad} values that are NaN or infinite: {advice}.")


def check_labels(name: str, y: ArrayLike, inputs: str, X: ArrayLike) -> None:
    """Refuse a series or frame of pandas whose rows have other labels than those of another one, or in another order.

    Rows belong together by their order. Where one of the two only counts its rows, 0, 1, ..., as a frame that a scaler
    has made anew does, it says nothing of labels, unless it has another number of rows or the other one counts them,
    too, but from another number, as after a shift.

    Parameters
    ----------
    name, inputs : str
        The names of both arguments, for the error.
    y, X : array_like
        Both arguments.

    Raises
    ------
    ValueError
    """
    both = [getattr(values, "index", None) for values in (y, X)]
    if not all(hasattr(labels, "equals") for labels in both) or both[0].equals(both[1]):
        return
    alone = [[label for label in one if label not in other] for one, other in (both, both[::-1])]
    advice = f"give {name}.to_numpy()"
    if any(alone):
        firsts = [_counts_from(labels) for labels in both]
        if firsts == [0, 0] or (0 in firsts and len(both[0]) == len(both[1]) and not _overlap(firsts, len(both[0]))):
            return
        where = [f"{_some(own)} in {of} alone" for own, of in zip(alone, (name, inputs), strict=True) if own]
        raise ValueError(
            f"The rows of {name} have other labels than those of {inputs}: {'; '.join(where)}. If rows belong together "
            f"by their labels, give both with the same ones, {name}.loc[{inputs}.index] if it has them all; if by "
            f"their order, {advice}."
        )
    if both[0].is_unique and both[1].is_unique:
        raise ValueError(
            f"The rows of {name} have the labels of those of {inputs} in another order. If the labels are right, give "
            f"{name}.loc[{inputs}.index]; if the order is, as where {inputs} was made anew by a scaler, {advice}."
        )


def _counts_from(labels) -> int | None:
    """Return the first of labels of rows that are successive integers; None if they are not."""
    numbers = np.asarray(labels)
    counts = (
        numbers.ndim == 1
        and numbers.dtype.kind in "iu"
        and np.array_equal(numbers, numbers[:1] + np.arange(len(numbers)))
    )
    return int(numbers[0]) if counts and len(numbers) else None


def _overlap(firsts: list[int | None], rows: int) -> bool:
    """Whether two ranges of so many rows, whose first numbers are known, overlap."""
    return None not in firsts and abs(firsts[0] - firsts[1]) < rows


def _some(labels: list) -> str:
    """Write the first labels of a list, and how many more there are."""
    more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
    return f"{', '.join(str(label) for label in labels[:3])}{more}"


def warn_of_size(name: str, values: np.ndarray, given: ArrayLike) -> None:
    """Warn of inputs or targets that are far larger than the standardised ones for which the default priors are made.

    Parameters
    ----------
    name : {"X", "y"}
        The name of the argument.
    values : array, (n,), (n, columns) or, for images, (n, ...)
        The numbers.
    given : array_like
        What the user gave, which may name its columns.
    """
    sizes = np.abs(values).mean(axis=0)  # which a single outlier does not make large
    if not sizes.max() > LARGE:
        return
    k, what = sizes.argmax(), name
    if values.ndim == 2:
        what = f"Column {column_names(given, len(sizes))[k].item()!r} of {name}"
    advice = f"standardise it, ({name} - {name}.mean(axis=0)) / {name}.std(axis=0), and "
    advice += "scale predictions back" if name == "y" else "new rows with the same means and standard deviations"
    if values.ndim > 2:
        advice = "scale the images, bytes by X / 255"
    elif values.ndim == 2 and not np.ptp(values[:, k]):
        advice = "it is the same in all rows, so leave it out"
    warnings.warn(
        f"{what} holds numbers of about {sizes.max():.3g}, where the default priors are made for about 1: {advice}.",
        UserWarning,
        stacklevel=3,
    )


def warn_of_units(name: str, new: np.ndarray, old: np.ndarray, given: ArrayLike, stacklevel: int) -> bool:
    """Warn of new rows that are far from all rows of the data whose place they take, as numbers in other units are.

    Distances are in standard deviations of the data. Rows are far if their mean distance from the mean of the data is
    more than three times the largest in the data.

    Parameters
    ----------
    name : str
        The name of the argument.
    new, old : array, (m, ...) and (n, ...)
        The new rows, and the data.
    given : array_like
        What the user gave, which may name its columns.
    stacklevel : int
        How many calls above this one is that of the user, plus one.

    Returns
    -------
    bool
        Whether there was a warning.
    """
    if old.dtype.kind != "f":  # groups and counts have no units
        return False
    return _are_told_far(name, *_distances(new, old), given, stacklevel + 1)


def _are_told_far(name: str, distances: np.ndarray, most: np.ndarray, given: ArrayLike, stacklevel: int) -> bool:
    """Warn of distances whose mean is far, and return whether it is.

    Parameters
    ----------
    name, given, stacklevel
        As of :func:`warn_of_units`.
    distances, most : array
        What :func:`_distances` returned.
    """
    axes = None if distances.ndim > 2 else 0  # the pixels of images have one unit
    with np.errstate(invalid="ignore"):
        far = np.atleast_1d(distances.mean(axis=axes))
    if not (far > FAR * most).any():
        return False
    k, is_matrix = (far / most).argmax(), distances.ndim == 2
    what = f"Column {column_names(given, distances.shape[1])[k].item()!r} of {name}" if is_matrix else name
    warnings.warn(
        f"{what} is on average {far[k]:.3g} standard deviations from the mean of the data that the model holds, of "
        f"which none is further than {most[k]:.3g}: give new rows in the units of the data, standardised as they were.",
        UserWarning,
        stacklevel=stacklevel,
    )
    return True


def warn_of_rows(name: str, new: np.ndarray, old: np.ndarray, given: ArrayLike, stacklevel: int) -> None:
    """Warn of new rows of inputs in other units, as :func:`warn_of_units`, or else of single rows that are far away.

    A row is far if one of its columns is more than three times as far from the mean of the data as any of these, and
    more than 20 standard deviations.

    Parameters
    ----------
    name, new, old, given, stacklevel
        As of :func:`warn_of_units`.
    """
    if old.dtype.kind != "f":
        return
    distances, most = _distances(new, old)
    if _are_told_far(name, distances, most, given, stacklevel + 1) or old.ndim > 2:
        return
    excess = distances.reshape(len(new), -1) / np.maximum(FAR * most, LEAST)
    is_far = (excess > 1).any(axis=1)
    if not is_far.any():
        return
    row, k = np.unravel_index(excess.argmax(), excess.shape)
    column = f"column {column_names(given, old.shape[1])[k].item()!r}" if old.ndim == 2 else "it"
    value, known = (x.reshape(len(x), -1)[:, k] for x in (new, old))
    count = int(is_far.sum())
    warnings.warn(
        f"{count} of the {len(new)} rows of {name} lie far outside the data that "
        f"the model holds: in row {row}, {column} is {value[row]:.4g}, and the data lie between {known.min():.4g} and "
        f"{known.max():.4g}. Nothing is known there but the prior: look for errors in these rows, or leave them out.",
        UserWarning,
        stacklevel=stacklevel,
    )


def _distances(new: np.ndarray, old: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute distances of new rows from the mean of the data, and the largest of the data; infinite if all are equal.

    Both are in standard deviations of the data, which are those of each column.

    Parameters
    ----------
    new, old : array, (m, ...) and (n, ...)

    Returns
    -------
    distances : array, (m, ...)
    most : array, (columns,) or (1,)
    """
    axes = None if old.ndim > 2 else 0
    mean, scale = old.mean(axis=axes), old.std(axis=axes)
    unit = np.where(scale > 0, scale, 1)
    most = np.atleast_1d(np.abs(old - mean).max(axis=axes) / unit)
    return np.abs(new - mean) / unit, np.where(np.atleast_1d(scale) > 0, most, np.inf)


def column_names(values: ArrayLike, count: int) -> np.ndarray:
    """Return the names of the columns of a data frame, or their numbers where the values are no frame of named columns.

    Parameters
    ----------
    values : array_like, or a data frame of pandas or polars
    count : int
        How many columns there are.
    """
    names = named_columns(values)
    return np.arange(count) if names is None or len(names) != count else np.array(names)


def named_columns(values: ArrayLike) -> list[str] | list[int] | None:
    """Return the names of the columns of a data frame; None if the values are no frame, or it numbers its columns.

    Integers, such as years, are names as they are; names that are no strings, such as dates, are written as strings.

    Parameters
    ----------
    values : array_like, or a data frame of pandas or polars
    """
    names = getattr(values, "columns", None)
    listed = [] if names is None or callable(names) else list(names)
    if listed == list(range(len(listed))):
        return None
    integers = all(isinstance(name, int | np.integer) and not isinstance(name, bool) for name in listed)
    return [int(name) if integers else str(name) for name in listed]


def storable_names(names: ArrayLike, kinds: str = "biufUSmM") -> np.ndarray:
    """Return the names along a dimension as every kind of file can hold them.

    Names that are neither numbers, texts nor times, such as intervals, tuples and times with a time zone, are written
    as texts.

    Parameters
    ----------
    names : array_like or Index of pandas, (n,)
    kinds : str
        The kinds of NumPy's types that are left as they are.

    Returns
    -------
    array, (n,)
    """
    array = np.asarray(names)
    if array.dtype.kind in kinds:
        return array
    # An array of objects or of times holds other objects than the Index of which it was made, with other texts
    return np.array([str(name) for name in pd.Index(array, tupleize_cols=False)])


def check_coordinates(model: pm.Model) -> None:
    """Refuse a model with a dimension whose names no file of draws can hold.

    Raises
    ------
    ValueError
    """
    for dim, names in model.coords.items():
        strange = [] if names is None else [name for name in names if not _is_storable(name)]
        if strange:
            raise ValueError(
                f"The names along the dimension '{dim}' hold {describe(strange[0])}, of which no file of draws can be "
                f"made: give the model texts, such as coords={{'{dim}': [str(name) for name in names]}}."
            )


def _is_storable(name) -> bool:
    """Whether a name is a number, a text or a time without a time zone, or lacks."""
    if isinstance(name, datetime):
        return name.tzinfo is None
    return name is None or isinstance(name, str | bytes | Real | np.generic | timedelta)

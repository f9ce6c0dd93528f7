"""Data frames with categories as numbers, in columns that tell how a further frame is to be read.

A column "city" of texts or categories becomes indicator columns "city=Lima", "city=Oslo", ..., each of which is 1 where
the city is that one and 0 elsewhere, in the order of the categories, or of the alphabet. Where cities are missing,
there is a column "city=missing", too. The names of the columns say all that is needed to read a frame of new rows, and
which columns are one feature of the frame.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pymc_gibbsnn._arguments import describe

__all__ = ["MISSING", "Feature", "describe_difference", "features_of", "missing_and_extra", "with_indicators"]

MISSING = "missing"


class Feature(NamedTuple):
    """A column of a data frame, and the columns of the matrix that it has become.

    Attributes
    ----------
    name : str
        Its name.
    columns : list of int
        The numbers of the columns of the matrix: one, or the indicator columns of a category.
    categories : list of str or None
        The categories, in the order of these columns; None for a number.
    """

    name: str
    columns: list[int]
    categories: list[str] | None


def features_of(columns: Sequence[str], X: np.ndarray) -> list[Feature]:
    """Tell which columns of a matrix are the indicator columns of one category; each other one is a feature itself.

    Columns "city=Lima" and "city=Oslo" are those of a category if each row has a 1 in one of them and 0 in the others.
    """
    groups: dict[str, list[int]] = {}
    for j, column in enumerate(columns):
        before, equals, _ = column.partition("=")
        groups.setdefault(before if equals else column, []).append(j)
    found = []
    for name, group in groups.items():
        x = X[:, group]
        has_names = all("=" in columns[j] for j in group)
        if has_names and np.isin(x, (0, 1)).all() and (x.sum(axis=1) == 1).all():
            found.append(Feature(name, group, [columns[j].partition("=")[2] for j in group]))
        else:
            found += [Feature(columns[j], [j], None) for j in group]
    return sorted(found, key=lambda feature: feature.columns)


def with_indicators(name: str, frame: Any, features: Sequence[str] | None = None) -> Any:
    """Return a data frame with indicator columns in the place of categories; all else is returned as it is.

    Parameters
    ----------
    name : str
        The name of the argument, for errors.
    frame : data frame of pandas or polars, or anything else
        Columns of numbers are left as they are.
    features : sequence of str, optional
        The columns that an earlier frame was turned into, which the new ones are then to be, in the same order.

    Returns
    -------
    pandas.DataFrame, or what was given
        With the index of the frame, if it has one.

    Raises
    ------
    ValueError
        If the name of a column begins like that of an indicator column; or if a frame of new rows lacks a column or has
        one beside, or holds a category that the earlier frame did not hold.
    """
    columns = _columns(frame)
    categorical = {column for column, values in columns.items() if _has_categories(values)}
    known = {column for column in columns if features is not None and column not in features}
    known = {column for column in known if any(feature.startswith(f"{column}=") for feature in features or ())}
    if not categorical and not known:
        return frame
    parts: dict[str, Any] = {}
    for column, values in columns.items():
        if column not in categorical | known or (features is not None and column not in known):
            parts[column] = values  # a text where there is to be a number is refused with all that is no number
        elif features is None:
            if similar := [other for other in columns if other.startswith(f"{column}=")]:
                raise ValueError(
                    f"{name} has the columns {column!r}, of categories, and {similar[0]!r}, which is named like one of "
                    f"these: rename one."
                )
            parts |= _indicators(column, values, _categories(values))
        else:
            names = [feature.partition(f"{column}=")[2] for feature in features if feature.startswith(f"{column}=")]
            _refuse_unknown(name, column, values, names)
            parts |= _indicators(column, values, names)
    if features is not None:
        # The frame is to have all features, and only these, in any order
        missing, extra = missing_and_extra(features, parts)
        if missing or extra:
            wrong = describe_difference([*dict.fromkeys(map(_raw, missing))], extra)
            raise ValueError(f"The columns of {name} must be those of the data; {wrong}.")
        parts = {feature: parts[feature] for feature in features}
    return pd.DataFrame(parts, index=getattr(frame, "index", None))


def missing_and_extra(known: Collection, found: Collection) -> tuple[list, list]:
    """List the known names of columns that were not found, and those found that are not known."""
    return [x for x in known if x not in found], [x for x in found if x not in known]


def describe_difference(missing: list, extra: list) -> str:
    """Say which names of columns are missing, and which there are beside those that should be; "" if none are."""
    wrong = [f"it lacks {describe(missing)}"] * bool(missing) + [f"it has {describe(extra)} beside"] * bool(extra)
    return " and ".join(wrong)


def _columns(frame: Any) -> dict[str, pd.Series]:
    """Return the columns of a data frame by their names as texts; none if it is no frame or a name is not unique."""
    if callable(getattr(frame, "get_columns", None)):  # polars
        return {column.name: pd.Series(column.to_list(), dtype=_dtype(column)) for column in frame.get_columns()}
    if not isinstance(frame, pd.DataFrame) or len({*map(str, frame.columns)}) < frame.shape[1]:
        return {}
    return {str(column): frame[column] for column in frame.columns}


def _dtype(column: Any) -> Any:
    """Return the type of a column of polars in pandas, if it has an order of categories or only numbers."""
    categories = getattr(column.dtype, "categories", None)
    if categories is not None:
        return pd.CategoricalDtype(list(categories))
    return float if column.dtype.is_numeric() else object


def _has_categories(values: pd.Series) -> bool:
    """Whether a column holds texts or categories."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return True
    if pd.api.types.is_numeric_dtype(values.dtype) or values.dtype.kind in "mM":
        return False
    known = values[values.notna()]
    return len(known) > 0 and all(isinstance(one, str) for one in known)


def _categories(values: pd.Series) -> list[str]:
    """List the categories of a column as texts, in their order, and last the missing one where values are missing."""
    ordered = isinstance(values.dtype, pd.CategoricalDtype)
    names = map(str, values.cat.categories) if ordered else sorted({*values[values.notna()]})
    return list(dict.fromkeys([*names, *[MISSING] * int(values.isna().any())]))


def _texts(values: pd.Series) -> np.ndarray:
    """Return the categories of all rows as texts."""
    return np.array([MISSING if missing else str(one) for one, missing in zip(values, values.isna(), strict=True)])


def _indicators(column: str, values: pd.Series, categories: Sequence[str]) -> dict[str, np.ndarray]:
    """Return a column of 0 and 1 for each category."""
    texts = _texts(values)
    return {f"{column}={category}": (texts == category).astype(float) for category in categories}


def _refuse_unknown(name: str, column: str, values: pd.Series, categories: Sequence[str]) -> None:
    """Raise ValueError if rows have a category that is none of those that are known.

    Parameters
    ----------
    name : str
        The name of the argument.
    column : str
        The name of the column.
    values : Series
        The column.
    categories : sequence of str
        The known ones.
    """
    unknown = [text for text in dict.fromkeys(_texts(values)) if text not in categories]
    if not unknown:
        return
    found = "missing values" if unknown[0] == MISSING else describe(str(unknown[0]))
    raise ValueError(
        f"The column {column!r} of {name} holds {found}, of which the data of the model have none; their categories "
        f"are {describe(list(categories))}: drop these rows, or fit a model to data with this category."
    )


def _raw(feature: str) -> str:
    """Return the name of the column from which a feature was made, if it is an indicator."""
    return feature.partition("=")[0]

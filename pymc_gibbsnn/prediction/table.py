"""The rows of inputs that a model holds, as a table whose columns can be changed one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors

from pymc_gibbsnn._arguments import describe
from pymc_gibbsnn._data import finite
from pymc_gibbsnn.networks.likelihoods.class_labels import numbered
from pymc_gibbsnn.networks.network import NetworkError, evaluate
from pymc_gibbsnn.networks.reader import only_network, read_networks
from pymc_gibbsnn.prediction.inputs import Inputs, check_columns, evaluate_leaf, find_observed, observed_value
from pymc_gibbsnn.prediction.inputs_as_data import with_inputs_as_data
from pymc_gibbsnn.prediction.outcomes import class_names

__all__ = ["Table", "column_number", "input_table", "targets_of"]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of the inputs of a model.

    Attributes
    ----------
    X : array, (n, d)
        The matrix of inputs.
    columns : list of str
        The names of its columns.
    data : str or None
        The name of the ``pm.Data`` that holds it; None for a constant.
    others : dict of str to array, (n, ...)
        Further ``pm.Data`` with a row for each row of the matrix, such as groups or an exposure.
    """

    X: np.ndarray
    columns: list[str]
    data: str | None
    others: dict[str, np.ndarray]

    def with_matrix(self, X: np.ndarray, rows: np.ndarray) -> np.ndarray | dict[str, np.ndarray]:
        """Return a changed matrix as new rows for ``predict``; all else is taken from these rows of the table."""
        if not self.others:
            return X
        return {str(self.data): X} | {name: x[rows] for name, x in self.others.items()}

    def at(self, rows: np.ndarray) -> np.ndarray | dict[str, np.ndarray]:
        """Return some rows as new rows for ``predict``."""
        return self.with_matrix(self.X[rows], rows)


def input_table(
    model: pm.Model, X_new: ArrayLike | Mapping[str, ArrayLike] | None = None, name: str | None = None
) -> Table:
    """Return new rows of the inputs of a model as a table; by default all rows that the model holds.

    Raises
    ------
    NetworkError
        If the inputs are no matrix, or several, and no network tells which of them holds its inputs.
    ValueError
        If new rows do not fit the model.
    """
    model = with_inputs_as_data(model)
    observed = find_observed(model, name)
    inputs = Inputs(model, observed)
    leaves, arrays = inputs.find(X_new, {})
    of_batch = {batch: data for data, batch in inputs.batches.items()}
    values = {of_batch.get(leaf, leaf): x for leaf, x in zip(leaves, arrays, strict=True)}
    matrix = _matrix(model, observed, values)
    data = None if isinstance(matrix, Constant) else matrix.name
    if X_new is None:
        others = {v.name: x for v, x in values.items() if v is not matrix and v in inputs.data.values()}
    else:
        others = {key: x for key, x in _given(X_new).items() if key != data}
    dims = model.named_vars_to_dims.get(data) or ()
    names = model.coords.get(dims[1]) if len(dims) == 2 else None
    width = values[matrix].shape[1]
    names = range(width) if names is None else names
    columns = [one if isinstance(one, str) else f"input {one}" for one in np.asarray(names).tolist()]
    return Table(np.asarray(values[matrix]), columns, data, others)


def _given(X_new: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    """Return the new rows of each ``pm.Data`` that a user named."""
    return {key: np.asarray(x) for key, x in X_new.items()} if isinstance(X_new, Mapping) else {}


def _matrix(model: pm.Model, observed: Variable, leaves: Mapping[Variable, np.ndarray]) -> Variable:
    """Find the one matrix among the inputs or, if there are several, that of the network."""
    matrices = [v for v, x in leaves.items() if x.ndim == 2]
    distinct = [
        v for i, v in enumerate(matrices) if not any(np.array_equal(leaves[v], leaves[w]) for w in matrices[:i])
    ]
    if len(distinct) > 1:
        with suppress(NetworkError):
            network = only_network(read_networks(model, check_data=False))
            above = set(ancestors([network.inputs]))
            distinct = [v for v in distinct if v in above]
    if len(distinct) != 1:
        shapes = {v.name or "a constant": x.shape for v, x in leaves.items()}
        raise NetworkError(
            f"The inputs of '{observed.name}' must be one matrix, whose columns are the features; found {shapes}."
        )
    return distinct[0]


def column_number(columns: Sequence[str], feature: str | int) -> int:
    """Return the number of a column that is given by its name, or by its number from 0 up, or raise ValueError."""
    if isinstance(feature, str) and feature in columns:
        return list(columns).index(feature)
    if isinstance(feature, Integral) and not isinstance(feature, bool) and 0 <= feature < len(columns):
        return int(feature)
    raise ValueError(
        f"features must be names of columns or their numbers from 0 to {len(columns) - 1}; found {describe(feature)}, "
        f"and the columns are {describe(list(columns))}."
    )


def targets_of(
    model: pm.Model,
    rows: int,
    y_new: ArrayLike | None = None,
    *,
    classes: int | None = None,
    name: str | None = None,
) -> np.ndarray:
    """Return what was observed at rows of the inputs; by default what the model observes.

    Parameters
    ----------
    model : pm.Model
        The model.
    rows : int
        How many rows the inputs have.
    y_new : array_like, optional
        What a user gave.
    classes : int, optional
        How many classes there are, if these are labels, whose names become numbers from 0 up.
    name : str, optional
        The name of the observed variable, if there are several.

    Raises
    ------
    ValueError
        If targets are missing, labels are of no class, or there are not as many rows.
    """
    observed = find_observed(model, name)
    if y_new is not None:
        check_columns(model, observed.name, "y_new", y_new)
        y = numbered("y_new", y_new, class_names(model, classes)) if classes else finite("y_new", y_new)
        if classes and not np.isin(y, np.arange(classes)).all():
            raise ValueError(f"y_new must hold labels from 0 to {classes - 1}; found {np.unique(y)[:5]}.")
    elif observed not in model.rvs_to_values:
        raise ValueError(f"'{observed.name}' has missing values: give X_new and y_new, rows without any.")
    else:
        inputs = Inputs(model, observed)
        y = evaluate_leaf(inputs.targets[0]) if inputs.batches else evaluate(observed_value(model, observed))
    if len(y) != rows or y.ndim != observed.ndim:
        what = f"'{observed.name}'" if y_new is None else "y_new"
        raise ValueError(f"{what} must have {rows} rows, as the inputs, and {observed.ndim} axes; found {y.shape}.")
    return y

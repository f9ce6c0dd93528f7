"""The inputs of a PyMC model: the arrays at the start of its graph that new rows can replace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from pymc.data import MinibatchOp
from pymc.distributions.censored import CensoredRV
from pymc.distributions.continuous import TruncatedNormalRV
from pymc.distributions.distribution import PartialObservedRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Cast, IsNan
from pytensor.tensor.elemwise import DimShuffle

from pymc_gibbsnn._arguments import describe
from pymc_gibbsnn._compat import SUBTENSORS, observed_variables
from pymc_gibbsnn._data import array_of, finite, named_columns, numbers_in, of_dtype, refuse_lazy, warn_of_rows
from pymc_gibbsnn._frames import describe_difference, missing_and_extra, with_indicators
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.forms import is_elemwise, shapes_of
from pymc_gibbsnn.networks.input_reader import variable_inputs
from pymc_gibbsnn.networks.likelihoods import find_centred
from pymc_gibbsnn.networks.network import NetworkError, evaluate
from pymc_gibbsnn.prediction.conditionals import distribution_node

__all__ = ["Inputs", "check_columns", "evaluate_leaf", "evenly_spaced", "find_observed", "is_leaf", "observed_value"]

BOUNDED = (CensoredRV, TruncatedRV, TruncatedNormalRV)  # whose last two inputs are bounds


def find_observed(model: pm.Model, name: str | None = None) -> Variable:
    """Find the one variable that a model observes, or among several that of a name. Inputs do not count.

    Where targets are missing, PyMC observes only the others. The variable is then that of all rows, no part of the
    model.

    Raises
    ------
    NetworkError
        If there is none, there are several and no name is given, or none has the name.
    """
    of_inputs = [rv for found in variable_inputs(model) for rv in (found.known, found.measured)]
    outputs = [rv for rv in observed_variables(model) if rv not in of_inputs]
    observed = {rv.name.removesuffix(_part(model, rv)): rv for rv in outputs}
    if name is None and len(observed) == 1:
        [name] = observed
    if name not in observed:
        raise NetworkError(
            f"The model observes {list(observed)}"
            + (": say which in name=." if name is None else f", and '{name}' is not among them.")
        )
    rv = observed[name]
    return rv if rv.name == name else _of_all_rows(rv, name)


def _part(model: pm.Model, rv: Variable) -> str:
    """Return the end of the name of a variable that is only a part of what is observed, because targets are missing."""
    name = rv.name.removesuffix("_observed")
    return "_observed" if f"{name}_unobserved" in model.named_vars else ""


def _of_all_rows(rv: Variable, name: str) -> Variable:
    """Return the variable from which PyMC took the rows whose targets are known."""
    node = rv.owner
    if isinstance(node.op, PartialObservedRV):
        return node.inputs[0]
    parameters = [p.owner.inputs[0] if _is_masked(p) else p for p in node.op.dist_params(node)]
    [_, all_rows] = draw(node.op, node.op.rng_param(node), *parameters)
    all_rows.name = name
    return all_rows


def _is_masked(p: Variable) -> bool:
    """Whether a parameter is taken at the rows whose targets are known, those that a mask names."""
    picks = p.owner is not None and isinstance(p.owner.op, SUBTENSORS)
    return picks and isinstance(p.owner.inputs[-1], Constant) and p.owner.inputs[-1].dtype == "bool"


def observed_value(model: pm.Model, observed: Variable) -> Variable:
    """Return what is observed of a variable that :func:`find_observed` found; without targets that are missing."""
    known = model.rvs_to_values
    return known[observed] if observed in known else known[model[f"{observed.name}_observed"]]


class Inputs:
    """Finds the leaves of a model's graph, the arrays at its start, that new rows are to replace.

    Parameters
    ----------
    model : pm.Model
        The model.
    observed : Variable
        The observed variable.

    Attributes
    ----------
    data : dict of str to Variable
        The ``pm.Data`` on which the observed variable depends, apart from the observations themselves, by name.
    constants : list of Variable
        Arrays in the graph that are no ``pm.Data``.
    targets : list of Variable
        The ``pm.Data`` that are observed.
    target_rows : set of int
        How many rows the observations have.
    batches : dict of Variable to Variable
        The minibatches of data, by the data.
    """

    def __init__(self, model: pm.Model, observed: Variable):
        self.model, self.observed = model, observed
        above = list(ancestors([observed]))
        self.batches = {
            data: batch
            for v in above
            if v.owner is not None and isinstance(v.owner.op, MinibatchOp)
            for batch, data in zip(v.owner.outputs[:-1], v.owner.inputs[:-1], strict=True)
        }
        data = {batch: data for data, batch in self.batches.items()}
        targets = ancestors([observed_value(model, observed)], blockers=data)
        targets = set(ancestors([data.get(v, v) for v in targets], blockers=data))
        self.target_rows = {len(x) for v in targets if is_leaf(v) and np.ndim(x := evaluate(v))}
        if observed not in model.rvs_to_values:
            self.target_rows = {shapes_of([model[observed.name]])[observed.name][0]}
        known = set(model.data_vars)
        node = distribution_node(observed)
        kind = find_centred(node)
        self._central = set(above if kind is None else ancestors([kind.centre(node)]))
        indices = [x for v in above if v.owner and isinstance(v.owner.op, SUBTENSORS) for x in v.owner.inputs[1:]]
        self._indices = {_as_it_came(x) for x in indices}
        bounds = [x for v in above if v.owner and isinstance(v.owner.op, BOUNDED) for x in v.owner.inputs[-2:]]
        self._bounds = {_as_it_came(x) for x in bounds}  # which may be infinite, and far from the old ones
        self._may_be_missing = {_as_it_came(v.owner.inputs[0]) for v in above if is_elemwise(v, IsNan)}
        self.targets = [v for v in targets if v in known]
        self.data = {v.name: v for v in above if v in known and v not in targets}
        self.constants = [v for v in above if isinstance(v, Constant) and np.ndim(v.data) >= 1 and v not in targets]

    def find(self, X_new, present: Mapping[str, ArrayLike]) -> tuple[list[Variable], list[np.ndarray]]:
        """Return the leaves that are replaced, and the array that replaces each.

        ``X_new`` is what the user gave; without it, ``present`` may hold values by the names of ``pm.Data``, and all
        others are taken from the model.
        """
        if isinstance(X_new, Mapping):
            if not X_new:
                raise ValueError(
                    f"X_new must hold new rows of the pm.Data {sorted(self.data)}, by their names; found {{}}."
                )
            leaves = {name: [self._named(name)] for name in X_new}
            new = {name: (leaves[name], x) for name, x in X_new.items()}
        elif X_new is None:
            values = {
                v: np.asarray(present.get(v.name, evaluate_leaf(v))) for v in [*self.data.values(), *self.constants]
            }
            n = self._count(values)
            values = {v: x for v, x in values.items() if x.shape[:1] == (n,)}  # those with as many rows as the inputs
            if n == 1:  # an axis of length 1 is mostly one that broadcasts, but for inputs
                inputs = list(self.data.values()) or self._inputs()
                values = {v: x for v, x in values.items() if v in inputs}
            new = {v.name or str(i): ([v], x) for i, (v, x) in enumerate(values.items())}
        else:
            new = {"X_new": (self._inputs(), X_new)}
        replaced, arrays = [], []
        for name, (group, x) in new.items():
            given = with_indicators(name, x, self._features(group[0]))
            x = self.checked(name, group[0], given)
            if X_new is not None and group[0] not in self._bounds:
                old = evaluate_leaf(group[0])
                new_numbers, old_numbers = (_without_missing(numbers, old) for numbers in (x, old))
                warn_of_rows(name, new_numbers, old_numbers, given, stacklevel=5)
            for leaf in group:
                replaced.append(self.batches.get(leaf, leaf))
                arrays.append(x)
        lengths = {name: len(x) for name, (_, x) in zip(new, new.values(), strict=True)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"All inputs must have the same number of rows; found {lengths}.")
        return replaced, arrays

    def _features(self, leaf: Variable) -> list[str] | None:
        """Return the names of the columns of the data, if they are texts."""
        coords = [self.model.coords.get(dim) for dim in self.model.named_vars_to_dims.get(leaf.name) or ()]
        names = coords[1] if len(coords) == 2 else None
        return [str(x) for x in names] if names is not None and all(isinstance(x, str) for x in names) else None

    def _named(self, name: str) -> Variable:
        """Return the ``pm.Data`` of a name that the user gave."""
        if name not in self.data:
            raise ValueError(
                f"X_new names '{name}', but '{self.observed.name}' depends on the pm.Data {sorted(self.data)}."
            )
        return self.data[name]

    def _inputs(self) -> list[Variable]:
        """Find the one array of inputs: a ``pm.Data``, or constants that are equal to one another."""
        candidates = self._candidates()
        if len(candidates) != 1:
            self._refuse(candidates)
        [v] = candidates
        return [c for c in self.constants if np.array_equal(c.data, v.data)] if isinstance(v, Constant) else [v]

    def _candidates(self) -> list[Variable]:
        """List the arrays that may be inputs: ``pm.Data`` or, where there are none, different constants.

        What only the noise depends on, such as errors of measurement, is taken only where there is nothing else.
        """
        leaves = [*self.data.values(), *self.constants]
        for some in ([v for v in leaves if v in self._central], leaves):
            data = [v for v in some if v in self.data.values() and v.ndim]
            fixed = [v for v in some if isinstance(v, Constant) and v.ndim >= 2 and len(v.data) in self.target_rows]
            fixed = [v for i, v in enumerate(fixed) if not any(np.array_equal(v.data, w.data) for w in fixed[:i])]
            candidates = [v for v in data if v.ndim >= 2] or data or fixed
            if candidates:
                return candidates
        return []

    def _refuse(self, candidates: list[Variable]) -> NoReturn:
        """Say that it is not known which of some arrays, if any, are the inputs."""
        names = [v.name or f"a constant of shape {np.shape(v.data)}" for v in candidates]
        raise NetworkError(
            f"The inputs of '{self.observed.name}' must be one array, best a pm.Data; found {names}: give new rows "
            f"of pm.Data by their names, X_new={{'X': ...}}."
        )

    def _count(self, values: Mapping[Variable, np.ndarray]) -> int:
        """Return how many rows the inputs have, given the values of all leaves."""
        matrices = [v for v in self.data.values() if v.ndim >= 2 and v in self._central]
        inputs = matrices[:1] or self._candidates()
        counts = {len(values[v]) for v in inputs} or self.target_rows
        counts = {n for n in counts if any(x.shape[:1] == (n,) for x in values.values())}
        if len(counts) != 1:
            self._refuse(inputs)
        return counts.pop()

    def checked(self, name: str, leaf: Variable, x: ArrayLike) -> np.ndarray:
        """Return new rows of a leaf as an array of its dtype; raise ValueError if they do not fit it."""
        old = evaluate_leaf(leaf)
        check_columns(self.model, leaf.name, name, x)
        if leaf in self._may_be_missing and np.ma.isMaskedArray(x):
            x = np.ma.filled(x.astype(float), np.nan)
        given, x = x, x if np.ma.isMaskedArray(x) else array_of(name, x)
        if x.shape[1:] != old.shape[1:] or x.ndim != old.ndim or not len(x):
            whole = str(("m", *old.shape[1:])).replace("'", "")
            of = f"'{leaf.name}'" if leaf.name else "the inputs"
            raise ValueError(f"{name} must have shape {whole}, rows like those of {of}; found {x.shape}.")
        if leaf in self._bounds:
            given = numbers_in(name, given)
            finite(name, np.where(np.isinf(given), 0, given))
        elif leaf in self._may_be_missing:
            given = finite(name, given, may_be_missing=True)
        else:
            given = finite(name, given)
        x = of_dtype(name, given, old.dtype, leaf.name)
        if leaf in self._indices and np.any(x < 0) and not np.any(old < 0):
            raise ValueError(
                f"{name} holds {x.min()}, but '{leaf.name}' is an index, of groups, say, where it would count from the "
                f"last one. pandas writes -1 for a category that it does not know."
            )
        return x


def _without_missing(x: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Return new rows with means of columns of the old ones in place of missing numbers."""
    missing = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    if not missing.any():
        return x
    known = ~np.isnan(old)
    means = np.where(known, old, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.where(missing, means, x)


def check_columns(model: pm.Model, variable: str | None, name: str, x: ArrayLike) -> None:
    """Refuse a data frame whose columns are named otherwise than those of the data, or stand in another order.

    Parameters
    ----------
    model : pm.Model
        The model, which may hold names of columns as the coordinate of the second dimension of a variable.
    variable : str or None
        The name of the variable with these dimensions.
    name : str
        The name of the argument, for the error.
    x : array_like
        What the user gave in the place of its data.

    Raises
    ------
    TypeError, ValueError
    """
    refuse_lazy(name, x)
    coords = [model.coords.get(dim) for dim in model.named_vars_to_dims.get(variable) or ()]
    if len(coords) != 2 or coords[1] is None:
        return
    old, new = list(coords[1]), named_columns(x)
    if not all(isinstance(one, str | int | np.integer) for one in old):  # dates, say, which a frame may write otherwise
        return
    old = [str(one) if isinstance(one, str) else int(one) for one in old]
    has_names = old != list(range(len(old)))
    if new is not None and new != old and (has_names or set(new) == set(old)):
        wrong = describe_difference(*missing_and_extra(old, new)) or f"found {describe(new)}"
        raise ValueError(f"The columns of {name} must be those of the data, {describe(old)}, in this order; {wrong}.")


def evenly_spaced(rows: int, most: int | None) -> np.ndarray:
    """Return the numbers of at most so many of the rows, evenly spaced; of all rows if there is no limit."""
    return np.linspace(0, rows - 1, rows if most is None else min(most, rows)).astype(int)


def evaluate_leaf(leaf: Variable) -> np.ndarray:
    """Return the value of a leaf of the graph; for a minibatch, that of all rows of its data."""
    if leaf.owner is not None and isinstance(leaf.owner.op, MinibatchOp):
        leaf = leaf.owner.inputs[leaf.owner.outputs.index(leaf)]
    return evaluate(leaf)


def _as_it_came(v: Variable) -> Variable:
    """Return the variable of which this one is a copy of another type, or with other axes of length 1."""
    while v.owner is not None and (isinstance(v.owner.op, DimShuffle) or is_elemwise(v, Cast)):
        [v] = v.owner.inputs
    return v


def is_leaf(v: Variable) -> bool:
    """Whether a variable is an array at the start of a graph: a constant or a shared variable."""
    return isinstance(v, Constant | SharedVariable) and hasattr(v.type, "ndim")

"""The minibatches of a PyMC model, with their row numbers as a variable of the graph.

``pm.Minibatch`` draws row numbers, with a generator of its own, wherever it is evaluated. A sampler instead draws them
itself once in a sweep, with the generator of its chain, so that all that is evaluated in the sweep sees the same batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.data import MinibatchOp
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random import integers

from pymc_gibbsnn._compat import observed_variables
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.forms import evaluate
from pymc_gibbsnn.networks.given import given, sizes
from pymc_gibbsnn.networks.substitution import substitute

__all__ = [
    "Batches",
    "check_minibatches",
    "check_total_size",
    "read_minibatches",
    "refuse_minibatches",
    "variables_on_minibatches",
]


@dataclass(frozen=True, eq=False)
class Batches:
    """The minibatches of a model, of which a sweep sees one.

    Attributes
    ----------
    index : Variable, (size,)
        The row numbers of a batch; expressions of data hold it as a free variable.
    data : list of Variable
        The arrays, with all their rows, of which batches are taken.
    size : int
        The number of rows of a batch.
    labels : Variable, optional
        Class labels of all rows. Batches are then stratified: each class has the same share of a batch as of the data,
        but for a row or two.
    """

    index: Variable
    data: list[Variable]
    size: int
    labels: Variable | None = None

    @property
    def rows(self) -> Variable:
        """The number of rows of the data."""
        return self.data[0].shape[0]

    def check(self) -> None:
        """Refuse batches that are larger than the data, and data of different lengths.

        Raises
        ------
        ValueError
            The message says how many rows there are.
        """
        rows = {_name(data): int(evaluate(data.shape[0])) for data in self.data}
        if len(set(rows.values())) > 1:
            raise ValueError(f"The data of which a minibatch is taken must have as many rows each; found {rows}.")
        if self.size > min(rows.values()):
            raise ValueError(
                f"A minibatch of {self.size} rows is larger than the data, which have {min(rows.values())}."
            )

    def start(self) -> dict[str, Variable]:
        """Return what a chain keeps for stratified batches, the row numbers sorted by class."""
        return {} if self.labels is None else {"rows_by_class": pt.argsort(self.labels, stable=True)}

    def draw(self, rng: Variable, carry: dict[str, Variable]) -> tuple[Variable, Variable]:
        """Draw the row numbers of a batch; return the next generator and them.

        They are drawn with replacement, as ``pm.Minibatch`` does, unless batches are stratified. A stratified batch
        takes one row at random from each of ``size`` equal stretches of the rows sorted by class. Every row is as
        likely as every other; a batch as large as the data holds each row once.
        """
        [size] = sizes((self.size,))
        if self.labels is None:
            return draw(integers, rng, pt.constant(0, dtype="int64"), pt.cast(self.rows, "int64"), size=(size,))
        # Stretch i begins at i rows/size; t/size, with t uniform below rows, is a place in it. All is computed in whole
        # numbers: single precision would miss some rows of large data and take others twice.
        rows, i = pt.cast(self.rows, "int64"), given(np.arange(self.size))
        rng, t = draw(integers, rng, pt.constant(0, dtype="int64"), rows, size=(size,))
        return rng, carry["rows_by_class"][i * (rows // size) + (i * (rows % size) + t) // size]


def read_minibatches(expressions: Sequence[Variable]) -> tuple[list[Variable], Batches | None]:
    """Make the row numbers of the minibatches in expressions a free variable.

    Returns
    -------
    expressions : list of Variable
    batches : Batches or None
        None if the expressions hold no minibatch.

    Raises
    ------
    ValueError
        If the expressions hold batches of different rows, as ``pm.Minibatch(X)`` and ``pm.Minibatch(y)`` give.
    """
    nodes = _minibatches(expressions)
    if not nodes:
        return list(expressions), None
    if len({(node.inputs[-1], node.outputs[0].type.shape[0]) for node in nodes}) > 1:  # two generators or sizes
        in_words = " and ".join(
            f"{node.outputs[0].type.shape[0]} rows of {', '.join(map(_name, node.inputs[:-1]))}" for node in nodes
        )
        raise ValueError(
            f"The model holds minibatches of different rows, {in_words}, so that inputs and targets do not belong "
            f"together: make them in one call, X_batch, y_batch = pm.Minibatch(X, y, batch_size=...)."
        )
    size = nodes[0].outputs[0].type.shape[0]
    index = pt.tensor("rows", dtype="int64", shape=(size,))
    all_rows = {batch: data for node in nodes for batch, data in zip(node.outputs[:-1], node.inputs[:-1], strict=True)}
    batches = {batch: data[index] for batch, data in all_rows.items()}
    expressions = substitute(list(expressions), batches)
    return expressions, Batches(index, list(dict.fromkeys(all_rows.values())), size)


def check_minibatches(model: pm.Model, total_size_needed: bool = True) -> None:
    """Refuse a model whose minibatches do not give the density that its user means.

    Parameters
    ----------
    model : pm.Model
        The model.
    total_size_needed : bool
        Whether to refuse the likelihood of a minibatch without ``total_size``, which would count as that of all data.

    Raises
    ------
    ValueError
        If the prior of a free variable depends on a minibatch, if the distribution of an observed variable depends on
        one and its data are none, or if ``total_size`` is missing or not positive; the message names the variable.
    """
    for rv in model.free_RVs:
        if _minibatches(rv.owner.inputs):
            raise ValueError(
                f"The prior of '{rv.name}' depends on a minibatch, so that each batch has another '{rv.name}': give it "
                f"all rows of the data."
            )
    for rv in observed_variables(model):
        inside, observed = _minibatches([rv]), _minibatches([model.rvs_to_values[rv]])
        if inside and not observed:
            raise ValueError(
                f"The distribution of '{rv.name}' depends on a minibatch and what it observes is none, so that inputs "
                f"and targets do not belong together: make them in one call, "
                f"X_batch, y_batch = pm.Minibatch(X, y, batch_size=...)."
            )
        if not observed:
            continue
        totals = rv.owner.inputs[1:] if isinstance(rv.owner.op, MinibatchRandomVariable) else []
        total = evaluate(totals[0]) if totals and isinstance(totals[0].type, pt.TensorType) else None
        if total is None and total_size_needed:
            rows = int(evaluate(observed[0].inputs[0].shape[0]))
            raise ValueError(
                f"'{rv.name}' observes a minibatch of {observed[0].outputs[0].type.shape[0]} of {rows} rows without "
                f"total_size, so that the batch would count as all the data there are: give '{rv.name}' "
                f"total_size={rows}."
            )
        if total is not None and total <= 0:
            raise ValueError(f"total_size of '{rv.name}' must be positive, the number of all rows; found {int(total)}.")


def check_total_size(model: pm.Model) -> None:
    """Refuse a ``total_size`` that is not the number of rows of which the batches are taken.

    Raises
    ------
    ValueError
        Names the variable.
    """
    for rv in observed_variables(model):
        observed = _minibatches([model.rvs_to_values[rv]])
        if not observed or not isinstance(rv.owner.op, MinibatchRandomVariable):
            continue
        total, rows = int(evaluate(rv.owner.inputs[1])), int(evaluate(observed[0].inputs[0].shape[0]))
        if total != rows:
            raise ValueError(
                f"total_size of '{rv.name}' must be the number of rows, {rows}; found {total}. To make data count for "
                f"more or less than they are, set the temperature of the step."
            )


def variables_on_minibatches(model: pm.Model) -> list[str]:
    """List the names of the variables and potentials of a model whose distribution or data hold a minibatch."""
    values = [(rv, model.rvs_to_values[rv]) for rv in model.basic_RVs]
    return [terms[0].name for terms in [*values, *((x,) for x in model.potentials)] if _minibatches(terms)]


def refuse_minibatches(expressions: Iterable[Variable]) -> None:
    """Refuse expressions that hold minibatches which no sampler draws, and which would stay the same for ever.

    Raises
    ------
    NotImplementedError
        The message names the data.
    """
    nodes = _minibatches(expressions)
    if nodes:
        raise NotImplementedError(
            f"This sampler does not draw minibatches, of which the model holds one of "
            f"{', '.join(map(_name, nodes[0].inputs[:-1]))}: give it all rows of the data, or take a sampler that does."
        )


def _minibatches(expressions: Iterable[Variable]) -> list[Apply]:
    """Find the calls of ``pm.Minibatch`` on which expressions depend."""
    nodes = (v.owner for v in ancestors(expressions) if v.owner is not None)
    return list(dict.fromkeys(node for node in nodes if isinstance(node.op, MinibatchOp)))


def _name(data: Variable) -> str:
    """Return what a user calls these data: their name, or else their shape."""
    return f"'{data.name}'" if data.name else f"data of shape {tuple(evaluate(data.shape).tolist())}"

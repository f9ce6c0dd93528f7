"""The minibatches of a PyMC model, with their row numbers as a variable.

``pm.Minibatch`` draws row numbers from a generator of its own wherever it is evaluated. A sampler instead draws them
itself, from the generator of its chain, once a sweep: the same batch then serves all that the sweep evaluates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pymc.data import MinibatchOp
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random import integers, uniform

from pymc_gibbsnn._compat import draw
from pymc_gibbsnn.networks.forms import evaluate

__all__ = ["Batches", "read_minibatches"]


@dataclass(frozen=True, eq=False)
class Batches:
    """Rows that a sweep sees.

    Attributes
    ----------
    index : Variable
        Row numbers of a batch, (size,); expressions of data hold it as a free variable.
    rows : Variable
        The number of rows of the data.
    size : int
        The number of rows of a batch.
    labels : Variable, optional
        Class labels of all rows: batches are then stratified, each class having the same share of a batch as of the
        data, but for a row or two.
    """

    index: Variable
    rows: Variable
    size: int
    labels: Variable | None = None

    def check(self) -> None:
        """Refuse batches that are larger than the data.

        Raises
        ------
        ValueError
            Says how many rows there are.
        """
        rows = int(evaluate(self.rows))
        if self.size > rows:
            raise ValueError(f"A minibatch of {self.size} rows is larger than the data, which have {rows}.")

    def start(self) -> dict[str, Variable]:
        """What stratified batches keep: the rows sorted by class."""
        return {} if self.labels is None else {"rows_by_class": pt.argsort(self.labels, stable=True)}

    def draw(self, rng: Variable, carry: dict[str, Variable]) -> tuple[Variable, Variable]:
        """(next rng, row numbers of a batch): drawn with replacement, as ``pm.Minibatch`` does, unless stratified.

        A stratified batch takes one row at random from each of ``size`` equal stretches of the rows sorted by class.
        Every row comes as often as every other; a batch of all rows is all of them, once.
        """
        if self.labels is None:
            return draw(integers, rng, pt.constant(0, dtype="int64"), pt.cast(self.rows, "int64"), size=(self.size,))
        rng, u = draw(uniform, rng, pt.constant(0.0), pt.constant(1.0), size=(self.size,))
        place = pt.cast(pt.floor((np.arange(self.size) + u) * (self.rows / self.size)), "int64")
        return rng, carry["rows_by_class"][pt.minimum(place, self.rows - 1)]


def read_minibatches(expressions: Sequence[Variable]) -> tuple[list[Variable], Batches | None]:
    """Expressions with the row numbers of their minibatches as a free variable, and the batches; None without any.

    Raises
    ------
    ValueError
        If the expressions hold batches of different rows, as ``pm.Minibatch(X)`` and ``pm.Minibatch(y)`` give.
    """
    nodes = {v.owner for v in ancestors(expressions) if v.owner is not None and isinstance(v.owner.op, MinibatchOp)}
    if not nodes:
        return list(expressions), None
    if len({(node.inputs[-1], node.outputs[0].type.shape[0]) for node in nodes}) > 1:  # generators, sizes
        raise ValueError(
            "The model holds minibatches of different rows, so that inputs and targets do not belong together: "
            "make them in one call, X_batch, y_batch = pm.Minibatch(X, y, batch_size=...)."
        )
    [first, *_] = nodes
    size = first.outputs[0].type.shape[0]
    index = pt.tensor("rows", dtype="int64", shape=(size,))
    batches = {
        batch: data[index] for node in nodes for batch, data in zip(node.outputs[:-1], node.inputs[:-1], strict=True)
    }
    expressions = clone_replace(list(expressions), batches, rebuild_strict=False)
    return expressions, Batches(index, first.inputs[0].shape[0], size)

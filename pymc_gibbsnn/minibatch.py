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
from pytensor.tensor.random import integers

from pymc_gibbsnn._compat import draw
from pymc_gibbsnn.network import evaluate

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
        data, up to rounding.
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
        """What stratified batches keep: rows sorted by class; where the class of each place begins, and its length."""
        if self.labels is None:
            return {}
        return {
            "strata_rows": pt.constant(order),
            "strata_first": pt.constant(first),
            "strata_count": pt.constant(count),
        }

    def draw(self, rng: Variable, carry: dict[str, Variable]) -> tuple[Variable, Variable]:
        """(next rng, row numbers of a batch), drawn with replacement."""
        zero = pt.constant(0, dtype="int64")
        if self.labels is None:
            return draw(integers, rng, zero, pt.cast(self.rows, "int64"), size=(self.size,))
        rng, place = draw(integers, rng, zero, carry["strata_count"], size=(self.size,))
        return rng, carry["strata_rows"][carry["strata_first"] + place]


def strata(labels: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows sorted by class, where the class of each of ``size`` places begins, its length).

    Places go to classes in proportion to their lengths, what rounding leaves over to those with the largest remainders.
    """
    _, counts = np.unique(labels, return_counts=True)
    shares = size * counts / counts.sum()
    places = np.floor(shares).astype("int64")
    places[np.argsort(places - shares, kind="stable")[: size - places.sum()]] += 1
    firsts = np.r_[0, np.cumsum(counts)[:-1]]
    order = np.argsort(labels, kind="stable").astype("int64")
    return order, np.repeat(firsts, places), np.repeat(counts, places)


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

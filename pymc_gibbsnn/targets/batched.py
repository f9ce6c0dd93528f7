"""The posterior of continuous variables, of which a model observes minibatches that stand for all rows of the data."""

from __future__ import annotations

from collections.abc import Sequence

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.minibatch import check_total_size
from pymc_gibbsnn.targets.plain import PlainTarget

__all__ = ["BatchedTarget"]


class BatchedTarget(PlainTarget):
    """A plain target whose minibatches must stand for all rows of the data, by ``total_size``."""

    def __init__(self, model: pm.Model, vars: Sequence[Variable] | None = None):
        self.model = model
        super().__init__(model, vars)

    def check(self) -> None:
        """Refuse batches that do not fit the data as they are now."""
        super().check()
        check_total_size(self.model)

"""The likelihood of labels of two classes: y ~ Bernoulli(sigmoid f)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar as ps
from numpy.typing import ArrayLike
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.basic import BernoulliRV

from pymc_gibbsnn.networks.forms import NetworkError, is_elemwise
from pymc_gibbsnn.networks.likelihoods.class_labels import read_labels
from pymc_gibbsnn.networks.likelihoods.elementwise import ElementwiseLikelihood
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters
from pymc_gibbsnn.networks.notation import show

__all__ = ["BernoulliLikelihood"]


class BernoulliLikelihood(ElementwiseLikelihood):
    """log p(y | f) = y f − log(1 + exp f), one label for each output."""

    rv_type = BernoulliRV
    form = "Bernoulli(logit_p=f)"
    has_classes = True

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read f, the argument of the sigmoid."""
        [p] = node.op.dist_params(node)
        if is_elemwise(p, ps.Sigmoid):
            return p.owner.inputs[0], {}
        raise NetworkError(f"The probability of '{observed.name}' is no sigmoid: {show(p)}.")

    def largest(self, width: int) -> ArrayLike:
        """The largest label is 1."""
        return 1

    @staticmethod
    def term(z, y, exp):
        """Compute y z − max(z, 0), the log probability but for −log(1 + exp(−|z|))."""
        return y * z - 0.5 * (z + abs(z))

    @staticmethod
    def excess(z, exp):
        """Compute exp(−|z|)."""
        return exp(-abs(z))

    @classmethod
    def probabilities(cls, y: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the probabilities of the classes 0 and 1."""
        p = np.broadcast_to(p, y.shape)
        return np.stack([1 - p, p], axis=-1)

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Read labels of two classes."""
        return read_labels(y, most=2)

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe labels in the model of the context, with f as the logit of class 1."""
        return pm.Bernoulli(name, logit_p=f, **observed)

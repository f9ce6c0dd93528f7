"""The likelihood of labels of several classes: y ~ Categorical(softmax f)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.basic import CategoricalRV
from pytensor.tensor.special import Softmax

from pymc_gibbsnn.backends.vector_math import copy, exp, vectorisable
from pymc_gibbsnn.networks.forms import NetworkError
from pymc_gibbsnn.networks.layers import Operator
from pymc_gibbsnn.networks.likelihoods.class_labels import read_labels
from pymc_gibbsnn.networks.likelihoods.classical_likelihood import ClassicalLikelihood
from pymc_gibbsnn.networks.likelihoods.elementwise import sum_of_logs
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters
from pymc_gibbsnn.networks.notation import show

__all__ = ["CategoricalLikelihood"]


class CategoricalLikelihood(ClassicalLikelihood):
    r"""log p(y | f) = f_y − log Σ_k exp f_k, one label for each row."""

    rv_type = CategoricalRV
    form = "Categorical(logit_p=f)"
    has_classes = True

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read f, the argument of the softmax over classes."""
        [p] = node.op.dist_params(node)
        softmax = p.owner is not None and isinstance(p.owner.op, Softmax)
        if softmax and np.ravel(p.owner.op.axis).tolist() in ([-1], [p.ndim - 1]) and p.ndim == 2:
            return p.owner.inputs[0], {}
        raise NetworkError(f"The probabilities of '{observed.name}' are no softmax of (n, classes): {show(p)}.")

    def row_shapes(self, layer: Operator) -> list[tuple[int, ...]]:
        """A row of y is one label."""
        return [()]

    def largest(self, width: int) -> ArrayLike:
        """The largest label is the number of the last class."""
        return width - 1

    @staticmethod
    def log_density(z: Any, y: Any, xp: Any) -> Any:
        """Compute Σ [z_y − log Σ_k exp z_k]; see :meth:`ClassicalLikelihood.log_density`."""
        largest = z.max(axis=0)
        log_sum = largest + xp.log(xp.exp(z - largest).sum(axis=0))
        return (z[y, xp.arange(len(y))] - log_sum).sum()

    @staticmethod
    @vectorisable
    def kernel(z, y, scratch):
        """Compute :meth:`log_density` in loops over samples, for Numba."""
        largest, total = scratch[0], scratch[1]
        copy(z[0], largest)
        for k in range(1, z.shape[0]):
            for i in range(z.shape[1]):
                largest[i] = z[k, i] if z[k, i] > largest[i] else largest[i]
        total[:] = 0
        for k in range(z.shape[0]):
            for i in range(z.shape[1]):
                total[i] += exp(z[k, i] - largest[i])
        log_density = -sum_of_logs(total)
        for i in range(z.shape[1]):
            log_density += z[y[i], i] - largest[i]
        return log_density

    @property
    def data(self) -> Variable:
        """The labels (n,) as they are."""
        return self.value

    @staticmethod
    def classes(p: np.ndarray) -> int:
        """There are as many classes as probabilities."""
        return p.shape[-1]

    @classmethod
    def probabilities(cls, y: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the probabilities of the likelihood, for each label."""
        return np.broadcast_to(p, (*y.shape, p.shape[-1]))

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Read labels of two classes or more."""
        return read_labels(y)

    @staticmethod
    def width(y: np.ndarray, classes: np.ndarray | None) -> int | None:
        """There are as many outputs as classes."""
        return len(classes)

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe labels in the model of the context, with f as logits."""
        return pm.Categorical(name, logit_p=f, **observed)

"""The likelihood of successes among a number of trials: y ~ Binomial(N, sigmoid f)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.basic import BinomialRV

from pymc_gibbsnn.backends.vector_math import exp, vectorisable
from pymc_gibbsnn.networks.forms import NetworkError, evaluate, is_elemwise
from pymc_gibbsnn.networks.likelihoods.classical_likelihood import ClassicalLikelihood
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters
from pymc_gibbsnn.networks.notation import show

__all__ = ["BinomialLikelihood"]


@dataclass(frozen=True, eq=False)
class BinomialLikelihood(ClassicalLikelihood):
    """log p(y | f) = y f − N log(1 + exp f) + log N!/y!(N − y)!, one number of successes for each output.

    Attributes
    ----------
    trials : Variable
        The number N of trials: one for all, or one for each number of successes.
    """

    rv_type = BinomialRV
    form = "Binomial(n, logit_p=f)"

    trials: Variable

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read f, the argument of the sigmoid, and the number of trials."""
        n, p = node.op.dist_params(node)
        if is_elemwise(p, ps.Sigmoid):
            return p.owner.inputs[0], {"trials": parameters.value(n)}
        raise NetworkError(f"The probability of '{observed.name}', which is Binomial, is no sigmoid: {show(p)}.")

    @classmethod
    def centre(cls, node: Apply) -> Variable:
        """Compute the mean N p."""
        n, p = node.op.dist_params(node)
        return n * p

    def largest(self, width: int) -> ArrayLike:
        """The largest number of successes is that of trials, in the shape of the data."""
        return np.broadcast_to(evaluate(self.trials), evaluate(self.value).shape)

    @classmethod
    def _understood(cls, largest: ArrayLike) -> str:
        """Say in words what the data must be."""
        return "integers from 0 to the number of trials"

    @staticmethod
    def log_density(z: Any, y: Any, xp: Any) -> Any:
        """Compute Σ [y z − N log(1 + exp z)]; see :meth:`ClassicalLikelihood.log_density`."""
        successes, trials = y[: len(z)], y[len(z) :]
        return (successes * z - trials * xp.logaddexp(0, z)).sum()

    @staticmethod
    @vectorisable
    def kernel(z, y, scratch):
        """Compute :meth:`log_density` in loops over samples, for Numba."""
        log_density, width = 0.0, z.shape[0]
        for k in range(width):
            for i in range(z.shape[1]):
                scratch[0, i] = exp(-abs(z[k, i]))
            for i in range(z.shape[1]):
                log_density += y[i, k] * z[k, i] - y[i, width + k] * (max(z[k, i], 0) + math.log1p(scratch[0, i]))
        return log_density

    @property
    def data(self) -> Variable:
        """Numbers of successes and then of trials, side by side: (n, 2 units)."""
        trials = pt.cast(pt.broadcast_to(self.trials, self.value.shape), pytensor.config.floatX)
        successes = super().data
        return pt.concatenate([successes, trials.reshape(successes.shape)], axis=1)

    @property
    def constant(self) -> Variable:
        """Σ log [N!/(y! (N − y)!)] over all data."""
        y, n = (pt.cast(counts, pytensor.config.floatX) for counts in (self.value, self.trials))
        return (pt.gammaln(n + 1) - pt.gammaln(y + 1) - pt.gammaln(n - y + 1)).sum()

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe successes in the model of the context, with f as the logit of a success.

        Parameters
        ----------
        name, f, parameters, **observed
            As in :meth:`Likelihood.observe`; ``parameters`` holds the number of ``trials``.
        """
        return pm.Binomial(name, parameters["trials"], logit_p=f, **observed)

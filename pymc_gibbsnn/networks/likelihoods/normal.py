"""The likelihood of real numbers with Gaussian noise: y ~ Normal(f, sqrt(Δ))."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.basic import NormalRV

from pymc_gibbsnn._data import finite
from pymc_gibbsnn.networks.likelihoods.elementwise import ElementwiseLikelihood
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters

__all__ = ["NormalLikelihood"]


@dataclass(frozen=True, eq=False)
class NormalLikelihood(ElementwiseLikelihood):
    """The likelihood y ~ Normal(f, sqrt(Δ)), with one variance Δ for all outputs.

    Attributes
    ----------
    variance : Variable, ()
        Δ, in the squared units of y.
    """

    rv_type = NormalRV
    form = "Normal(f, sigma)"
    is_discrete = False

    variance: Variable

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read the mean, which is f, and the variance, the square of the standard deviation."""
        mean, sigma = node.op.dist_params(node)
        return mean, {"variance": parameters.noise(sigma, observed)}

    @staticmethod
    def term(z, y, exp):
        """Compute −(y − z)²/2."""
        return -0.5 * (y - z) ** 2

    @property
    def dispersion(self) -> Variable:
        """The variance Δ, by which the squares are divided."""
        return self.variance

    @property
    def constant(self) -> Variable:
        """−½ log(2πΔ) for every number of the data."""
        return -0.5 * pt.cast(self.data.size, self.variance.dtype) * pt.log(2 * math.pi * self.variance)

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Check that the data are finite numbers."""
        return finite("y", y), None

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe real numbers in the model of the context, with mean f.

        Parameters
        ----------
        name, f, parameters, **observed
            As in :meth:`Likelihood.observe`; ``parameters`` holds the standard deviation ``noise``.
        """
        return pm.Normal(name, f, parameters["noise"], **observed)

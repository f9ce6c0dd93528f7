"""Real numbers with Gaussian noise: y ~ Normal(f, sqrt(Δ))."""

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

from pymc_gibbsnn._arguments import finite
from pymc_gibbsnn.networks.likelihoods.elementwise import ElementwiseLikelihood
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters

__all__ = ["NormalLikelihood"]


@dataclass(frozen=True, eq=False)
class NormalLikelihood(ElementwiseLikelihood):
    """y ~ Normal(f, sqrt(Δ)), one Δ for all outputs.

    Attributes
    ----------
    variance : Variable
        Δ, a scalar.
    """

    rv_type = NormalRV
    form = "Normal(f, sigma)"
    is_discrete = False

    variance: Variable

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """The mean; the variance is the square of the standard deviation."""
        mean, sigma = node.op.dist_params(node)
        return mean, {"variance": parameters.noise(sigma, observed)}

    @staticmethod
    def term(z, y, exp):
        """−(y − z)²/2"""
        return -0.5 * (y - z) ** 2

    @property
    def dispersion(self) -> Variable:
        """Δ"""
        return self.variance

    @property
    def constant(self) -> Variable:
        """−½ log(2πΔ) for every number."""
        return -0.5 * pt.cast(self.data.size, self.variance.dtype) * pt.log(2 * math.pi * self.variance)

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Finite numbers, (n,) or (n, k)."""
        return finite("y", y), None

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """With the standard deviation ``noise``."""
        return pm.Normal(name, f, parameters["noise"], **observed)

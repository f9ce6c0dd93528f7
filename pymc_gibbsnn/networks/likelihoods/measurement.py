r"""Measurements of a noisy network with errors of their own: y ~ N(Z, σ), with Z its last pre-activation.

The model and its conditionals are those of :mod:`pymc_gibbsnn.networks.likelihoods.around_latent` with all τ = 1:

    Z | y ~ N((M/ΔZ + y/σ²)/P, 1/P),   P = 1/ΔZ + 1/σ².

The errors σ may differ from row to row. ΔZ is then the scatter around the network that these errors do not explain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.basic import NormalRV

from pymc_gibbsnn.networks.forms import is_normal
from pymc_gibbsnn.networks.likelihoods.around_latent import AroundLatent
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters

__all__ = ["MeasurementLikelihood"]


@dataclass(frozen=True, eq=False)
class MeasurementLikelihood(AroundLatent):
    """The likelihood y ~ N(Z, σ), with one σ or one for each datum."""

    rv_type = NormalRV
    form = "pm.Normal('{name}', Z, sigma)"
    scales_with_rows = True

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read the latent Z, which is the mean, and the scale."""
        z, sigma = node.op.dist_params(node)
        return z, cls.read_scale(sigma, z, observed, parameters)

    @classmethod
    def matches(cls, node: Apply) -> bool:
        """Whether the mean of a Normal variable is another Normal variable, as it is."""
        return super().matches(node) and is_normal(cls.centre(node))

    @staticmethod
    def log_probability(
        mean: np.ndarray,
        sigma: np.ndarray,
        y: np.ndarray,
        rng: np.random.Generator,
        parameters: list[np.ndarray],
    ) -> np.ndarray:
        """Compute the log density of y with Z ~ Normal(mean, sigma) integrated out: their variances add up.

        Parameters
        ----------
        mean, sigma, y, rng, parameters
            As in :attr:`LatentLikelihood.log_probability`.
        """
        _, own = parameters
        variance = sigma**2 + own**2
        return -0.5 * ((y - mean) ** 2 / variance + np.log(2 * math.pi * variance))

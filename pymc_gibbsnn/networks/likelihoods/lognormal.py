r"""Positive numbers whose logarithms a noisy network gives: y ~ LogNormal(Z, σ), with Z its last pre-activation.

The model is that of measurements (:mod:`pymc_gibbsnn.networks.likelihoods.measurement`) of log y in place of y:

    log y ~ N(Z, σ²),   p(y | Z) = N(log y; Z, σ²)/y.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import LogNormalRV

from pymc_gibbsnn._data import finite
from pymc_gibbsnn.networks.forms import NetworkError, evaluate, in_rows
from pymc_gibbsnn.networks.layers import Operator
from pymc_gibbsnn.networks.likelihoods.measurement import MeasurementLikelihood

__all__ = ["LogNormalLikelihood", "positive_data"]


@dataclass(frozen=True, eq=False)
class LogNormalLikelihood(MeasurementLikelihood):
    """The likelihood y ~ LogNormal(Z, σ), with one σ or one for each datum."""

    rv_type = LogNormalRV
    form = "pm.LogNormal('{name}', Z, sigma)"
    scales_with_rows = False

    def check(self, x: np.ndarray, layer: Operator) -> None:
        """Refuse data that are not positive as well.

        Parameters
        ----------
        x, layer
            As in :meth:`Likelihood.check`.
        """
        super().check(x, layer)
        if (wrong := (y := evaluate(self.value))[y <= 0]).size:
            raise NetworkError(f"the data of '{self.name}' must be positive; found {np.unique(wrong)[:5]}.")

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Check that the data are positive."""
        return positive_data(y), None

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe positive numbers in the model of the context, with f as the logarithm of their median.

        Parameters
        ----------
        name, f, parameters, **observed
            As in :meth:`Likelihood.observe`, with the standard deviation ``noise`` of the logarithms.
        """
        return pm.LogNormal(name, f, parameters["noise"], **observed)

    def log_densities(self, z: Variable) -> Variable:
        """Compute log N(log y; Z, σ²) − log y."""
        return super().log_densities(z) - self._targets(z)

    @staticmethod
    def log_probability(
        mean: np.ndarray,
        sigma: np.ndarray,
        y: np.ndarray,
        rng: np.random.Generator,
        parameters: list[np.ndarray],
    ) -> np.ndarray:
        """Compute the log density of y with Z ~ Normal(mean, sigma) integrated out.

        Parameters
        ----------
        mean, sigma, y, rng, parameters
            As in :attr:`LatentLikelihood.log_probability`.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            log_y = np.log(y)
            density = MeasurementLikelihood.log_probability(mean, sigma, log_y, rng, parameters) - log_y
        return np.where(y > 0, density, -np.inf)

    @staticmethod
    def on_scale_of_latent(y: np.ndarray) -> np.ndarray:
        """Return log y."""
        return np.log(y)

    @staticmethod
    def label(z: np.ndarray) -> np.ndarray:
        """Return the data without noise, exp Z."""
        return np.exp(z)

    def _targets(self, z: Variable) -> Variable:
        """Return log y in the shape of Z."""
        return pt.log(pt.cast(in_rows(self.value), z.dtype))


def positive_data(y: ArrayLike) -> np.ndarray:
    """Check that data are finite, positive numbers."""
    y = finite("y", y)
    if (wrong := y[y <= 0]).size:
        raise ValueError(f"y must hold positive numbers for this likelihood; found {np.unique(wrong)[:5]}.")
    return y

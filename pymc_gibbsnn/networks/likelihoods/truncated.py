r"""Truncated measurements of a noisy network: pm.Truncated of N(Z, σ), with Z its last pre-activation.

Data beyond a bound were never recorded, so that, with l and u the bounds,

    log p(y | Z) = log N(y; Z, σ²) − log [Φ((u − Z)/σ) − Φ((l − Z)/σ)],   l < y < u.

The normaliser is no Gaussian function of Z, which moves by elliptical slice sampling
(:mod:`pymc_gibbsnn.networks.likelihoods.elliptical_slice`). A learned σ has no conditional in closed form, and moves by
slice sampling (:mod:`pymc_gibbsnn.moves.likelihood_parameters`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pymc.distributions.continuous import TruncatedNormalRV
from pytensor.graph.basic import Apply, Variable

from pymc_gibbsnn._data import finite
from pymc_gibbsnn.networks.forms import in_rows, is_normal
from pymc_gibbsnn.networks.layers import Operator
from pymc_gibbsnn.networks.likelihoods.around_latent import AroundLatent, check_factors
from pymc_gibbsnn.networks.likelihoods.bounds import check_bounds, read_bounds
from pymc_gibbsnn.networks.likelihoods.hidden_target import log_mass
from pymc_gibbsnn.networks.likelihoods.latent_likelihood import LatentLikelihood
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters

__all__ = ["TruncatedLikelihood"]


@dataclass(frozen=True, eq=False)
class TruncatedLikelihood(LatentLikelihood):
    """The likelihood y ~ Truncated(N(Z, σ), l, u), with one σ, l and u, or one for each datum.

    Attributes
    ----------
    squared : Variable
        σ², in axes that broadcast to those of Z, or one number.
    lower, upper : Variable
        The bounds l and u likewise.
    """

    rv_type = TruncatedNormalRV
    form = "pm.Truncated('{name}', pm.Normal.dist(Z, sigma), lower, upper)"
    is_discrete = False

    squared: Variable
    lower: Variable
    upper: Variable

    @classmethod
    def matches(cls, node: Apply) -> bool:
        """Whether the mean of a truncated Normal variable is a Normal variable, as it is."""
        return super().matches(node) and is_normal(cls.centre(node))

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read the latent Z, which is the mean before truncation, the scale and the bounds."""
        z, sigma, *bounds = node.op.dist_params(node)
        scale = AroundLatent.read_scale(sigma, z, observed, parameters)
        squared = scale["noise"] * scale["factors"] ** 2 if "factors" in scale else scale["noise"]
        return z, {"squared": squared} | read_bounds(tuple(bounds), z, observed, parameters)

    def check(self, x: np.ndarray, layer: Operator) -> None:
        """Refuse bounds, and standard deviations, that do not fit the data, and data beyond the bounds as well.

        Parameters
        ----------
        x, layer
            As in :meth:`Likelihood.check`.
        """
        super().check(x, layer)
        if self.squared.ndim:
            check_factors(self, self.squared, (len(x), layer.shape[0]))
        check_bounds(self, self.lower, self.upper, layer)

    def log_densities(self, z: Variable) -> Variable:
        """Compute log p(y | Z) of each datum."""
        y = pt.cast(in_rows(self.value), z.dtype)
        squared, lower, upper = (pt.cast(x, z.dtype) for x in (self.squared, self.lower, self.upper))
        sd = pt.sqrt(squared)
        return (
            -0.5 * ((y - z) ** 2 / squared + pt.log(2 * math.pi * squared))
            - log_mass((lower - z) / sd, (upper - z) / sd)
        )  # fmt: skip

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Check that the data are finite numbers."""
        return finite("y", y), None

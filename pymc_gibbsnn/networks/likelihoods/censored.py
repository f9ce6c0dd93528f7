r"""Censored measurements of a noisy network: pm.Censored of y* ~ N(Z, σ), with Z its last pre-activation.

Of a target y* beyond a bound, only this is known [1]_:

    y* = Z + N(0, σ²),   y = min(max(y*, l), u).

Data at a bound are censored: y = u says y* > u, as where a patient was alive when the study ended, and y = l says
y* < l, as where a concentration was below the limit of detection. All others are y*. The bounds may differ from datum
to datum, and be infinite. The conditionals are those of :mod:`pymc_gibbsnn.networks.likelihoods.hidden_target`.

References
----------
.. [1] J. Tobin. Estimation of relationships for limited dependent variables. Econometrica 26 (1958).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.censored import CensoredRV
from pytensor.graph.basic import Apply, Variable
from scipy.special import log_ndtr

from pymc_gibbsnn.networks.forms import is_normal
from pymc_gibbsnn.networks.layers import Operator
from pymc_gibbsnn.networks.likelihoods.around_latent import AroundLatent
from pymc_gibbsnn.networks.likelihoods.bounds import check_bounds, read_bounds
from pymc_gibbsnn.networks.likelihoods.hidden_target import HiddenTarget
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters
from pymc_gibbsnn.random.log_normal_cdf import log_normal_cdf

__all__ = ["CensoredLikelihood"]


@dataclass(frozen=True, eq=False)
class CensoredLikelihood(HiddenTarget):
    """The likelihood y ~ Censored(N(Z, σ), l, u), with one σ, l and u, or one for each datum.

    Attributes
    ----------
    lower, upper : Variable
        The bounds l and u, in axes that broadcast to those of Z.
    """

    rv_type = CensoredRV
    form = "pm.Censored('{name}', pm.Normal.dist(Z, sigma), lower, upper)"
    arguments = ("lower", "upper")

    lower: Variable = field(kw_only=True)
    upper: Variable = field(kw_only=True)

    @classmethod
    def matches(cls, node: Apply) -> bool:
        """Whether a Normal variable is censored whose mean is another Normal variable, as it is."""
        return super().matches(node) and is_normal(node.inputs[0]) and is_normal(cls.centre(node))

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read the latent Z, which is the mean, the scale and the bounds."""
        uncensored, *bounds = node.inputs
        z, sigma = uncensored.owner.op.dist_params(uncensored.owner)
        scale = cls.read_scale(sigma, z, observed, parameters)
        return z, scale | read_bounds(tuple(bounds), z, observed, parameters)

    @classmethod
    def centre(cls, node: Apply) -> Variable:
        """Return the mean of what is censored."""
        uncensored = node.inputs[0].owner
        return uncensored.op.dist_params(uncensored)[0]

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe censored numbers in the model of the context, with f as the mean of what is censored.

        Parameters
        ----------
        name, f, parameters, **observed
            As in :meth:`Likelihood.observe`, with the ``noise`` and the bounds ``lower`` and ``upper``, of which one
            may be None.
        """
        bounds = {which: parameters[which] for which in ("lower", "upper")}
        return pm.Censored(name, pm.Normal.dist(f, parameters["noise"]), **bounds, **observed)

    def check(self, x: np.ndarray, layer: Operator) -> None:
        """Refuse bounds that do not fit the data and data beyond them as well.

        Parameters
        ----------
        x, layer
            As in :meth:`Likelihood.check`.
        """
        super().check(x, layer)
        check_bounds(self, self.lower, self.upper, layer)

    def interval(self, z: Variable) -> tuple[Variable, Variable]:
        """Return where y* lies of which only the side is known; of all others, from −∞ to ∞."""
        below, above, lower, upper = self._sides(z)
        infinity = pt.constant(np.asarray(np.inf, z.dtype))
        return pt.switch(above, upper, -infinity), pt.switch(below, lower, infinity)

    def draw_targets(self, rng: Variable, m: Variable, noise: Variable) -> tuple[Variable, Variable]:
        """Draw the targets of censored data; all others are y."""
        rng, drawn = super().draw_targets(rng, m, noise)
        below, above, *_ = self._sides(m)
        return rng, pt.switch(below | above, drawn, self._targets(m))

    def log_densities(self, z: Variable) -> Variable:
        """Compute log p(y | Z): log Φ((l − Z)/σ) at the lower bound, log Φ((Z − u)/σ) at the upper one."""
        below, above, lower, upper = self._sides(z)
        distance = pt.switch(below, lower - z, z - upper) / pt.sqrt(self._squared(z))
        # A bound may be infinite where the datum is not at it
        tail = log_normal_cdf(pt.switch(below | above, distance, 0))
        return pt.switch(below | above, tail, AroundLatent.log_densities(self, z))

    def _sides(self, z: Variable) -> tuple[Variable, Variable, Variable, Variable]:
        """Return which data are at the lower and the upper bound, and these bounds, in the precision of Z."""
        y, lower, upper = self._targets(z), pt.cast(self.lower, z.dtype), pt.cast(self.upper, z.dtype)
        return y <= lower, y >= upper, lower, upper

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
        _, own, lower, upper = parameters
        variance = sigma**2 + own**2
        sd = np.sqrt(variance)
        density = -0.5 * ((y - mean) ** 2 / variance + np.log(2 * math.pi * variance))
        density = np.where(y >= upper, log_ndtr((mean - upper) / sd), density)
        density = np.where(y <= lower, log_ndtr((lower - mean) / sd), density)
        return np.where((y < lower) | (y > upper), -np.inf, density)

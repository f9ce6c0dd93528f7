r"""Ordered grades of a noisy network with logistic noise: pm.OrderedLogistic of Z, its last pre-activation.

With the cutpoints c_1 < ... < c_K, infinite ones on both sides, and the logistic function S,

    P(y = k | Z) = S(c_{k+1} − Z) − S(c_k − Z),

the proportional odds model of [1]_. Z moves by Metropolis steps
(:class:`~pymc_gibbsnn.networks.likelihoods.latent_likelihood.LatentLikelihood`).

References
----------
.. [1] P. McCullagh. Regression models for ordinal data. Journal of the Royal Statistical Society B 42 (1980).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.likelihoods.ordered_grades import OrderedGrades, differences, ends_of
from pymc_gibbsnn.networks.likelihoods.quadrature import log_integral

__all__ = ["OrderedLogisticLikelihood"]


@dataclass(frozen=True, eq=False)
class OrderedLogisticLikelihood(OrderedGrades):
    """The likelihood y ~ OrderedLogistic(Z, c)."""

    form = "pm.OrderedLogistic('{name}', Z, cutpoints)"

    @classmethod
    def find(cls, p: Variable) -> Iterator[tuple[Variable, ...]]:
        """Yield what Z and the cutpoints may be."""
        return differences(p)

    @staticmethod
    def write(eta: Variable, cutpoints: Variable, *others: Variable) -> Variable:
        """Write probabilities of grades as PyMC does."""
        return pm.OrderedLogistic.compute_p(eta, cutpoints)

    def log_densities(self, z: Variable) -> Variable:
        """Compute log P(y | Z) of each datum."""
        lower, upper = self.interval(z)
        return log_difference(z - lower, z - upper, pt)

    @staticmethod
    def log_probability(
        mean: np.ndarray,
        sigma: np.ndarray,
        y: np.ndarray,
        rng: np.random.Generator,
        parameters: list[np.ndarray],
    ) -> np.ndarray:
        """Compute log P(y) with Z ~ Normal(mean, sigma) integrated out, by quadrature over Z.

        Parameters
        ----------
        mean, sigma, y, rng, parameters
            As in :attr:`LatentLikelihood.log_probability`, with those of :meth:`OrderedGrades.parameters`.
        """
        _, cutpoints = parameters

        def log_density(z: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
            return log_difference(z - lower, z - upper, np)

        return log_integral(log_density, mean, sigma, *ends_of(y, cutpoints))


def log_difference(a, b, xp):
    r"""Compute log [S(a) − S(b)] with a > b, which may be infinite, without a loss of digits.

    The difference is S(a) S(−b) (1 − exp(b − a)).

    Parameters
    ----------
    a, b : array or Variable
    xp : module
        ``numpy`` or ``pytensor.tensor``.
    """
    return _log_logistic(a, xp) + _log_logistic(-b, xp) + xp.log1p(-xp.exp(b - a))


def _log_logistic(x, xp):
    """Compute log S(x), which is −log(1 + exp(−x))."""
    return xp.minimum(x, 0) - xp.log1p(xp.exp(-abs(x)))

r"""Ordered grades of a noisy network with logistic noise: pm.OrderedLogistic of Z, its last pre-activation.

With the cutpoints c_1 < ... < c_K, infinite ones on both sides, and the logistic function S,

    P(y = k | Z) = S(c_{k+1} − Z) − S(c_k − Z),

the proportional odds model of [1]_. Z moves by elliptical slice sampling
(:mod:`pymc_gibbsnn.networks.likelihoods.elliptical_slice`).

References
----------
.. [1] P. McCullagh. Regression models for ordinal data. Journal of the Royal Statistical Society B 42 (1980).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.likelihoods.ordered_grades import OrderedGrades, differences

__all__ = ["OrderedLogisticLikelihood"]


@dataclass(frozen=True, eq=False)
class OrderedLogisticLikelihood(OrderedGrades):
    """The likelihood y ~ OrderedLogistic(Z, c)."""

    form = "pm.OrderedLogistic('{name}', Z, cutpoints)"
    has_slopes = True

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
        return log_difference(z - lower, z - upper)


def log_difference(a: Variable, b: Variable) -> Variable:
    """Compute log [S(a) − S(b)] with a > b, which may be infinite, without a loss of digits.

    The difference is S(a) S(−b) (1 − exp(b − a)).
    """
    return _log_logistic(a) + _log_logistic(-b) + pt.log1p(-pt.exp(b - a))


def _log_logistic(x: Variable) -> Variable:
    """Compute log S(x), which is −log(1 + exp(−x))."""
    return pt.minimum(x, 0) - pt.log1p(pt.exp(-abs(x)))

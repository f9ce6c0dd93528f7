r"""Ordered grades of a noisy network with normal noise: pm.OrderedProbit of Z, its last pre-activation.

With the cutpoints c_1 < ... < c_K, and infinite ones on both sides,

    y = k  where  c_k < y* < c_{k+1},   y* = Z + N(0, σ²),

which is the model of [1]_. The conditionals are those of :mod:`pymc_gibbsnn.networks.likelihoods.hidden_target`.

References
----------
.. [1] J. H. Albert, S. Chib. Bayesian analysis of binary and polychotomous response data. Journal of the American
   Statistical Association 88 (1993).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors

from pymc_gibbsnn.networks.forms import is_elemwise, undimshuffle
from pymc_gibbsnn.networks.likelihoods.hidden_target import HiddenTarget, log_mass_in_numpy
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters
from pymc_gibbsnn.networks.likelihoods.ordered_grades import OrderedGrades, add_cutpoints, differences, ends_of

__all__ = ["OrderedProbitLikelihood"]


@dataclass(frozen=True, eq=False)
class OrderedProbitLikelihood(OrderedGrades, HiddenTarget):
    """The likelihood y ~ OrderedProbit(Z, c, σ), with one σ or one for each datum."""

    form = "pm.OrderedProbit('{name}', Z, cutpoints)"
    is_discrete = True
    has_noise = False  # of which a model in one call would learn the variance
    errors = None

    @classmethod
    def find(cls, p: Variable) -> Iterator[tuple[Variable, ...]]:
        """Yield what Z, the cutpoints and σ may be: σ divides differences."""
        quotients = (x.owner.inputs for x in ancestors([p]) if is_elemwise(x, ps.TrueDiv))
        divisors = dict.fromkeys(undimshuffle(by) for x, by in quotients if is_elemwise(x, ps.Sub))
        return ((*pair, sigma) for pair in differences(p) for sigma in divisors)

    @staticmethod
    def write(eta: Variable, cutpoints: Variable, *others: Variable) -> Variable:
        """Write probabilities of grades as PyMC does."""
        return pm.OrderedProbit.compute_p(eta, cutpoints, *others)

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read the latent Z, the cutpoints and the scale."""
        z, read = super().read(node, observed, parameters)
        _, _, (sigma, _) = cls.parameters(node)
        return z, read | cls.read_scale(sigma, z, observed, parameters)

    @staticmethod
    def log_probability(
        mean: np.ndarray,
        sigma: np.ndarray,
        y: np.ndarray,
        rng: np.random.Generator,
        parameters: list[np.ndarray],
    ) -> np.ndarray:
        """Compute log P(y) with Z ~ Normal(mean, sigma) integrated out: the variances of Z and of y* add up.

        Parameters
        ----------
        mean, sigma, y, rng, parameters
            As in :attr:`LatentLikelihood.log_probability`, with those of :meth:`OrderedGrades.parameters`.
        """
        _, cutpoints, own = parameters
        sd = np.sqrt(sigma**2 + own**2)
        lower, upper = ends_of(y, cutpoints)
        return log_mass_in_numpy((lower - mean) / sd, (upper - mean) / sd)

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe grades in the model of the context, with the scale 1 and cutpoints that are learned.

        Parameters
        ----------
        name, f, parameters, **observed
            As in :meth:`Likelihood.observe`.
        """
        cutpoints = add_cutpoints(name, np.sqrt(2))
        return pm.OrderedProbit(name, f, cutpoints, compute_p=False, **observed)

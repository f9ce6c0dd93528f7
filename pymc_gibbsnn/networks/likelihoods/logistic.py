r"""Labels of two classes, and proportions, in a noisy network: y ~ Binomial(N, sigmoid Z).

Here Z is the last pre-activation, and N are the numbers of trials, which are 1 for labels, y ~ Bernoulli(sigmoid Z).

Given Pólya-Gamma variables ω the likelihood is Gaussian in Z [1]_: with the terms of
:mod:`pymc_gibbsnn.networks.likelihoods.conditionally_gaussian`,

    ω | Z ~ PG(N, Z),   h = y − N/2,   p = ω.

References
----------
.. [1] N. G. Polson, J. G. Scott, J. Windle. Bayesian inference for logistic models using Pólya-Gamma latent variables.
   Journal of the American Statistical Association 108 (2013).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.basic import BernoulliRV, BinomialRV

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.forms import in_rows, is_elemwise, is_normal
from pymc_gibbsnn.networks.likelihoods.binomial import BinomialLikelihood
from pymc_gibbsnn.networks.likelihoods.class_labels import read_labels
from pymc_gibbsnn.networks.likelihoods.conditionally_gaussian import ConditionallyGaussian, GaussianTerm
from pymc_gibbsnn.networks.likelihoods.latent_likelihood import SCALE_OF_LABELS
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters, integers
from pymc_gibbsnn.random.polya_gamma import polya_gamma

__all__ = ["LogitBernoulliLikelihood", "LogitBinomialLikelihood"]


class LogitBernoulliLikelihood(ConditionallyGaussian):
    """The likelihood y ~ Bernoulli(sigmoid Z), with one label for each number in Z."""

    rv_type = BernoulliRV
    form = "pm.Bernoulli('{name}', logit_p=Z)"
    has_classes = True
    sets_unit = True
    prior_scale = SCALE_OF_LABELS
    has_slopes = True

    @classmethod
    def matches(cls, node: Apply) -> bool:
        """Whether the probability is the sigmoid of a Normal variable, as it is."""
        return super().matches(node) and _is_of_latent(node)

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read the latent Z, the logit of class 1."""
        return cls.latent(node), {}

    @classmethod
    def latent(cls, node: Apply) -> Variable:
        """Return the argument of the sigmoid."""
        return node.op.dist_params(node)[-1].owner.inputs[0]

    @classmethod
    def parameters(cls, node: Apply) -> list[tuple[Variable, int]]:
        """Return Z and, if there is one, the number of trials."""
        *trials, _ = node.op.dist_params(node)
        return [(cls.latent(node), 0), *((n, 0) for n in trials)]

    @classmethod
    def takes(cls, classes: np.ndarray | None) -> bool:
        """There are two classes."""
        return classes is not None and len(classes) == 2

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Read labels of two classes."""
        return read_labels(y, most=2)

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe labels in the model of the context, with f as the logit of class 1."""
        return pm.Bernoulli(name, logit_p=f, **observed)

    def largest(self, width: int) -> ArrayLike:
        """The largest label is 1."""
        return 1

    def log_densities(self, z: Variable) -> Variable:
        """Compute y Z − N log(1 + exp Z) + log N!/y!(N − y)!."""
        y, n = self._counts(z)
        return y * z - n * pt.softplus(z) + pt.gammaln(n + 1) - pt.gammaln(y + 1) - pt.gammaln(n - y + 1)

    def draw_term(self, rng: Variable, z: Variable, m: Variable, noise: Variable) -> tuple[Variable, GaussianTerm]:
        """Draw ω ~ PG(N, Z); with it, h = y − N/2 and p = ω.

        Parameters
        ----------
        rng, z, m, noise
            As in :meth:`LatentLikelihood.draw_latent`.
        """
        y, n = self._counts(z)
        rng, omega = draw(polya_gamma, rng, n, z)
        return rng, GaussianTerm(y - n / 2, pt.cast(omega, z.dtype))

    def _counts(self, z: Variable) -> tuple[Variable, Variable]:
        """Return y and N in the shape of Z."""
        return pt.cast(in_rows(self.value), z.dtype), pt.ones_like(z)


@dataclass(frozen=True, eq=False)
class LogitBinomialLikelihood(LogitBernoulliLikelihood):
    """The likelihood y ~ Binomial(N, sigmoid Z).

    Attributes
    ----------
    trials : Variable
        The number N of trials: one for all, or one for each number of successes.
    """

    rv_type = BinomialRV
    form = "pm.Binomial('{name}', N, logit_p=Z)"
    has_classes = False
    sets_unit = False
    prior_scale = 1.0
    arguments = ("trials",)
    centre, _understood = BinomialLikelihood.centre, BinomialLikelihood._understood
    largest, observe = BinomialLikelihood.largest, staticmethod(BinomialLikelihood.observe)

    trials: Variable

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read the latent Z, the logit of a success, and the number of trials."""
        n, _ = node.op.dist_params(node)
        return cls.latent(node), {"trials": parameters.value(n)}

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Read numbers of successes."""
        return integers(y), None

    @classmethod
    def takes(cls, classes: np.ndarray | None) -> bool:
        """There are no classes."""
        return True

    def _counts(self, z: Variable) -> tuple[Variable, Variable]:
        """Return y and N in the shape of Z."""
        trials = pt.broadcast_to(self.trials, self.value.shape)
        return tuple(pt.cast(in_rows(counts), z.dtype) for counts in (self.value, trials))


def _is_of_latent(node: Apply) -> bool:
    """Whether the last parameter of a random variable is the sigmoid of a Normal variable, as it is."""
    p = node.op.dist_params(node)[-1]
    return is_elemwise(p, ps.Sigmoid) and is_normal(p.owner.inputs[0])

r"""Families of generalized linear models on a noisy network, as :func:`pymc_gibbsnn.mlp` writes them.

With Z the last pre-activation, and e an exposure, such as the time over which something was counted,

    counts         y ~ Poisson(e exp Z),   y ~ NegativeBinomial(mean e exp Z, dispersion α),
    waiting times  y ~ Gamma(mean exp Z, shape α),
    shares         y ~ Beta(mean sigmoid Z, sample size ν),
    classes        y ~ Categorical(softmax Z), with one Z for each class,
    mixture        y ~ Σ_k w_k N(Z + δ_k, s_k²).

Once written, they are read as any other distribution is (:mod:`pymc_gibbsnn.networks.likelihoods.factorised`), and α,
ν, w, δ and s are drawn with the network (:mod:`pymc_gibbsnn.moves.likelihood_parameters`). The variances of y given Z
are μ + μ²/α, μ²/α and μ (1 − μ)/(1 + ν): in each, one over the root of α or ν is how far y departs from the simpler
model. This root has a standard half-normal distribution a priori, so that 1/α and 1/ν have the distribution
Gamma(1/2, 1/2) and the simpler model is not ruled out [1]_.

References
----------
.. [1] D. Simpson, H. Rue, A. Riebler, T. G. Martins, S. H. Sørbye. Penalising model component complexity: a principled,
   practical approach to constructing priors. Statistical Science 32 (2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.basic import BetaRV, CategoricalRV, GammaRV, NegBinomialRV, NormalRV, PoissonRV

from pymc_gibbsnn._data import finite
from pymc_gibbsnn.networks.likelihoods.class_labels import read_labels
from pymc_gibbsnn.networks.likelihoods.factorised import FactorisedLikelihood
from pymc_gibbsnn.networks.likelihoods.latent_likelihood import SCALE_OF_LABELS, units_of_numbers
from pymc_gibbsnn.networks.likelihoods.lognormal import positive_data

__all__ = ["FAMILIES"]

PARTS = 3  # of a mixture


class Family(FactorisedLikelihood):
    """A family that is written by name, and read by its density."""

    @classmethod
    def matches(cls, node: Apply) -> bool:
        """Nothing is read as such; its density says all."""
        return False


class PoissonFamily(Family):
    """Counts with the mean e exp Z."""

    rv_type = PoissonRV
    is_discrete = True
    arguments = ("exposure",)

    @classmethod
    def units(cls, y: np.ndarray, parameters: Mapping[str, Any]) -> tuple[np.ndarray | float, float]:
        """Return the logarithm of the mean count by exposure, with half a count more, and 1."""
        return np.log((y.sum(axis=0) + 0.5) / np.broadcast_to(parameters["exposure"], y.shape).sum(axis=0)), 1.0

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe counts in the model of the context.

        Parameters
        ----------
        name, f, parameters, **observed
            As in :meth:`Likelihood.observe`, with the ``exposure``.
        """
        return pm.Poisson(name, parameters["exposure"] * pt.exp(f), **observed)


class NegativeBinomialFamily(PoissonFamily):
    """Counts with the mean e exp Z that spread more than those of Poisson's distribution."""

    rv_type = NegBinomialRV

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe counts in the model of the context, with a learned dispersion.

        Parameters
        ----------
        name, f, parameters, **observed
            As in :meth:`PoissonFamily.observe`.
        """
        return pm.NegativeBinomial(
            name, mu=parameters["exposure"] * pt.exp(f), alpha=_alpha(f"alpha_{name}"), **observed
        )


class GammaFamily(Family):
    """Positive numbers with the mean exp Z whose standard deviation is in proportion to it."""

    rv_type = GammaRV

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Check that the data are positive."""
        return positive_data(y), None

    @classmethod
    def units(cls, y: np.ndarray, parameters: Mapping[str, Any]) -> tuple[np.ndarray | float, float]:
        """Return the logarithm of the mean, and 1."""
        return np.log(y.mean(axis=0)), 1.0

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe positive numbers in the model of the context, with a learned shape."""
        alpha = _alpha(f"alpha_{name}")
        return pm.Gamma(name, alpha=alpha, beta=alpha * pt.exp(-f), **observed)


class BetaFamily(Family):
    """Numbers between 0 and 1, such as shares, with the mean sigmoid Z."""

    rv_type = BetaRV

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Check that the data are between 0 and 1."""
        y = positive_data(y)
        if (wrong := y[y >= 1]).size:
            raise ValueError(f"y must hold numbers below 1 for this likelihood; found {np.unique(wrong)[:5]}.")
        return y, None

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe shares in the model of the context, with a learned ν."""
        return pm.Beta(name, mu=pt.sigmoid(f), nu=_alpha(f"nu_{name}"), **observed)


class CategoricalFamily(Family):
    """Class labels of which the rows of Z are the logits."""

    rv_type = CategoricalRV
    is_discrete = True
    has_classes = True
    sets_unit = True
    prior_scale = SCALE_OF_LABELS

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Read labels of two classes or more."""
        return read_labels(y)

    @staticmethod
    def width(y: np.ndarray, classes: np.ndarray | None) -> int:
        """There are as many outputs as classes."""
        return len(classes)

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe labels in the model of the context."""
        return pm.Categorical(name, logit_p=f, **observed)


class MixtureFamily(Family):
    """Numbers around Z whose distribution may have several modes."""

    rv_type = NormalRV

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Check that the data are finite numbers."""
        return finite("y", y), None

    @classmethod
    def units(cls, y: np.ndarray, parameters: Mapping[str, Any]) -> tuple[np.ndarray | float, float]:
        """Return the mean of the data and their standard deviation."""
        return units_of_numbers(y)

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe numbers in the model of the context, with learned weights, centers and scales of three parts.

        Parameters
        ----------
        name, f, parameters, **observed
            As in :meth:`Likelihood.observe`, with the ``scale`` of the data, by default 1.
        """
        scale = parameters.get("scale", 1.0)
        w = pm.Dirichlet(f"weights_{name}", np.ones(PARTS))
        centers = pm.Normal(f"centers_{name}", 0, np.float64(scale), shape=PARTS)
        variances = pm.InverseGamma(f"variances_{name}", np.float64(2), np.float64(0.1 * scale**2), shape=PARTS)
        return pm.NormalMixture(name, w, mu=f[..., None] + centers, sigma=pt.sqrt(variances), **observed)


FAMILIES: dict[str, type[Family]] = {
    "poisson": PoissonFamily,
    "negative_binomial": NegativeBinomialFamily,
    "gamma": GammaFamily,
    "beta": BetaFamily,
    "categorical": CategoricalFamily,
    "mixture": MixtureFamily,
}


def _alpha(name: str) -> Variable:
    """Write a parameter one over whose root is half-normal a priori."""
    return pm.InverseGamma(name, np.float64(0.5), np.float64(0.5))

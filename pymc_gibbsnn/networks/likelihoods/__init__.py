"""Likelihoods, the distributions of data given the output of a network; there is one in each file.

Each knows the random variable from which it is read, how it checks data, its log density, and what it predicts. A new
kind is a file in this folder and an entry in one of the two tables below.
"""

from __future__ import annotations

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pymc_gibbsnn.networks.likelihoods.argmax_label import ArgmaxLabel, ArgmaxLikelihood
from pymc_gibbsnn.networks.likelihoods.bernoulli import BernoulliLikelihood
from pymc_gibbsnn.networks.likelihoods.binomial import BinomialLikelihood
from pymc_gibbsnn.networks.likelihoods.categorical import CategoricalLikelihood
from pymc_gibbsnn.networks.likelihoods.censored import CensoredLikelihood
from pymc_gibbsnn.networks.likelihoods.classical_likelihood import ClassicalLikelihood
from pymc_gibbsnn.networks.likelihoods.families import FAMILIES
from pymc_gibbsnn.networks.likelihoods.laplace import LaplaceLikelihood
from pymc_gibbsnn.networks.likelihoods.latent_likelihood import LatentLikelihood
from pymc_gibbsnn.networks.likelihoods.likelihood import Likelihood
from pymc_gibbsnn.networks.likelihoods.logistic import LogitBernoulliLikelihood, LogitBinomialLikelihood
from pymc_gibbsnn.networks.likelihoods.lognormal import LogNormalLikelihood
from pymc_gibbsnn.networks.likelihoods.measurement import MeasurementLikelihood
from pymc_gibbsnn.networks.likelihoods.normal import NormalLikelihood
from pymc_gibbsnn.networks.likelihoods.ordered_logistic import OrderedLogisticLikelihood
from pymc_gibbsnn.networks.likelihoods.ordered_probit import OrderedProbitLikelihood
from pymc_gibbsnn.networks.likelihoods.poisson import PoissonLikelihood
from pymc_gibbsnn.networks.likelihoods.sign_label import SignLabel, SignLikelihood
from pymc_gibbsnn.networks.likelihoods.student_t import StudentTLikelihood
from pymc_gibbsnn.networks.likelihoods.truncated import TruncatedLikelihood

__all__ = [
    "CLASSICAL",
    "NOISY",
    "ArgmaxLabel",
    "ClassicalLikelihood",
    "LatentLikelihood",
    "Likelihood",
    "NormalLikelihood",
    "SignLabel",
    "find_centred",
    "find_likelihood",
    "find_noisy",
]

CLASSICAL: dict[str, type[ClassicalLikelihood]] = {
    "categorical": CategoricalLikelihood,
    "bernoulli": BernoulliLikelihood,
    "normal": NormalLikelihood,
    "poisson": PoissonLikelihood,
    "binomial": BinomialLikelihood,
}
"""The likelihoods of networks without noise inside, by the names :func:`pymc_gibbsnn.classical_mlp` has for them."""

NOISY: dict[str, tuple[type[LatentLikelihood], ...]] = {
    "student": (StudentTLikelihood,),
    "normal": (MeasurementLikelihood, CensoredLikelihood, TruncatedLikelihood),
    "laplace": (LaplaceLikelihood,),
    "bernoulli": (LogitBernoulliLikelihood,),
    "binomial": (LogitBinomialLikelihood,),
    "probit": (SignLikelihood, ArgmaxLikelihood),
    "ordered": (OrderedProbitLikelihood, OrderedLogisticLikelihood),
    "lognormal": (LogNormalLikelihood,),
    **{name: (kind,) for name, kind in FAMILIES.items()},
}
"""The likelihoods of data that a noisy network gives through its last pre-activation, which is then a latent.

Their names are those that :func:`pymc_gibbsnn.mlp` and :func:`pymc_gibbsnn.cnn` have for them, which take the first of
several kinds that serves the data; for "normal" these functions observe the last pre-activation itself.
"""


def find_likelihood(op: Op) -> type[Likelihood] | None:
    """Find the kind of likelihood that is read from random variables of this type; None if there is none."""
    return next((kind for kind in (*CLASSICAL.values(), *_noisy()) if isinstance(op, kind.rv_type)), None)


def find_centred(node: Apply) -> type[Likelihood] | None:
    """Find the kind of likelihood that knows the centre of the distribution from which a node draws, if any."""
    return find_noisy(node) or next((kind for kind in CLASSICAL.values() if isinstance(node.op, kind.rv_type)), None)


def find_noisy(node: Apply) -> type[LatentLikelihood] | None:
    """Find the kind of likelihood of data that a node draws given the last latent of a noisy network, if any."""
    return next((kind for kind in _noisy() if kind.matches(node)), None)


def _noisy() -> list[type[LatentLikelihood]]:
    """List the kinds of :data:`NOISY`."""
    return [kind for kinds in NOISY.values() for kind in kinds]

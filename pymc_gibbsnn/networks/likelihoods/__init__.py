"""Likelihoods, the distributions of data given the output of a network; there is one in each file.

Each knows the random variable from which it is read, how it checks data, its log density, and what it predicts. A new
kind is a file in this folder and an entry in one of the two lists below.
"""

from __future__ import annotations

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pymc_gibbsnn.networks.likelihoods.argmax_label import ArgmaxLabel, ArgmaxLikelihood
from pymc_gibbsnn.networks.likelihoods.around_latent import AroundLatent
from pymc_gibbsnn.networks.likelihoods.bernoulli import BernoulliLikelihood
from pymc_gibbsnn.networks.likelihoods.binomial import BinomialLikelihood
from pymc_gibbsnn.networks.likelihoods.categorical import CategoricalLikelihood
from pymc_gibbsnn.networks.likelihoods.likelihood import LabelLikelihood, LatentLikelihood, Likelihood
from pymc_gibbsnn.networks.likelihoods.measurement import MeasurementLikelihood
from pymc_gibbsnn.networks.likelihoods.normal import NormalLikelihood
from pymc_gibbsnn.networks.likelihoods.poisson import PoissonLikelihood
from pymc_gibbsnn.networks.likelihoods.sign_label import SignLabel, SignLikelihood
from pymc_gibbsnn.networks.likelihoods.student_t import StudentTLikelihood

__all__ = [
    "CLASSICAL",
    "ArgmaxLabel",
    "AroundLatent",
    "LabelLikelihood",
    "LatentLikelihood",
    "Likelihood",
    "NormalLikelihood",
    "SignLabel",
    "find_likelihood",
    "find_noisy",
]

CLASSICAL: dict[str, type[Likelihood]] = {
    "categorical": CategoricalLikelihood,
    "bernoulli": BernoulliLikelihood,
    "normal": NormalLikelihood,
    "poisson": PoissonLikelihood,
    "binomial": BinomialLikelihood,
}
"""The likelihoods of classical networks, by the names that :func:`pymc_gibbsnn.classical_mlp` has for them."""

NOISY: tuple[type[LatentLikelihood], ...] = (
    ArgmaxLikelihood,
    SignLikelihood,
    StudentTLikelihood,
    MeasurementLikelihood,
)
"""The likelihoods of data that a noisy network gives through its last pre-activation, which is then a latent."""


def find_likelihood(op: Op) -> type[Likelihood] | None:
    """Find the kind of likelihood that is read from random variables of this type; None if there is none."""
    return next((kind for kind in (*CLASSICAL.values(), *NOISY) if isinstance(op, kind.rv_type)), None)


def find_noisy(node: Apply) -> type[LatentLikelihood] | None:
    """Find the kind of likelihood of data that a node draws given the last latent of a noisy network, if any."""
    return next((kind for kind in NOISY if kind.matches(node)), None)

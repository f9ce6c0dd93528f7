"""Likelihoods, one a file: from the random variable each is read from to what it predicts.

A new kind is a file here and an entry in one of these lists.
"""

from __future__ import annotations

from pytensor.graph.op import Op

from pymc_gibbsnn.networks.likelihoods.argmax_label import ArgmaxLabel, ArgmaxLikelihood
from pymc_gibbsnn.networks.likelihoods.bernoulli import BernoulliLikelihood
from pymc_gibbsnn.networks.likelihoods.binomial import BinomialLikelihood
from pymc_gibbsnn.networks.likelihoods.categorical import CategoricalLikelihood
from pymc_gibbsnn.networks.likelihoods.likelihood import LabelLikelihood, Likelihood
from pymc_gibbsnn.networks.likelihoods.normal import NormalLikelihood
from pymc_gibbsnn.networks.likelihoods.poisson import PoissonLikelihood
from pymc_gibbsnn.networks.likelihoods.sign_label import SignLabel, SignLikelihood

__all__ = [
    "CLASSICAL",
    "LABELS",
    "ArgmaxLabel",
    "LabelLikelihood",
    "Likelihood",
    "NormalLikelihood",
    "SignLabel",
    "find_likelihood",
]

CLASSICAL: dict[str, type[Likelihood]] = {
    "categorical": CategoricalLikelihood,
    "bernoulli": BernoulliLikelihood,
    "normal": NormalLikelihood,
    "poisson": PoissonLikelihood,
    "binomial": BinomialLikelihood,
}
"""Those of classical networks, by the names that :func:`pymc_gibbsnn.classical_mlp` has for them."""

LABELS: tuple[type[LabelLikelihood], ...] = (ArgmaxLikelihood, SignLikelihood)
"""Those of labels of a noisy network, whose last pre-activation is otherwise observed itself, a Normal."""


def find_likelihood(op: Op) -> type[Likelihood] | None:
    """The kind of likelihood that is read from random variables of this operation; None if it is not known."""
    return next((kind for kind in (*CLASSICAL.values(), *LABELS) if isinstance(op, kind.rv_type)), None)

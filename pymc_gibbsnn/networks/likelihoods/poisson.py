"""The likelihood of counts: y ~ Poisson(exp f)."""

from __future__ import annotations

from typing import Any

import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.basic import PoissonRV

from pymc_gibbsnn.networks.forms import NetworkError, is_elemwise
from pymc_gibbsnn.networks.likelihoods.elementwise import ElementwiseLikelihood
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters
from pymc_gibbsnn.networks.notation import show

__all__ = ["PoissonLikelihood"]


class PoissonLikelihood(ElementwiseLikelihood):
    """log p(y | f) = y f − exp f − log y!, one count for each output."""

    rv_type = PoissonRV
    form = "Poisson(exp(f))"

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read f, the logarithm of the mean."""
        [mu] = node.op.dist_params(node)
        if is_elemwise(mu, ps.Exp):
            return mu.owner.inputs[0], {}
        raise NetworkError(f"The mean of '{observed.name}', which is Poisson, is no exponential: {show(mu)}.")

    @staticmethod
    def term(z, y, exp):
        """Compute y z − exp z."""
        return y * z - exp(z)

    @property
    def constant(self) -> Variable:
        """−Σ log y! over all data."""
        return -pt.gammaln(self.data + 1).sum()

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe counts in the model of the context, with f as the logarithm of their mean."""
        return pm.Poisson(name, pt.exp(f), **observed)

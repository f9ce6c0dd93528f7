r"""A noisy network as a term of the mean of data, such as a treatment effect: y ~ N(o + t Z, σ).

Here Z is the last pre-activation of the network, t are known numbers, such as whether a row was treated, and o are all
other terms of the mean, another network among them. With y − o in the place of y, the model and its conditionals are
those of :mod:`pymc_gibbsnn.networks.likelihoods.around_latent` with all τ = 1:

    Z | y, o ~ N((M/ΔZ + t (y − o)/σ²)/P, 1/P),   P = 1/ΔZ + t²/σ².

A row with t = 0 tells nothing of its Z. In the place of the data, y may be a latent that gives them, such as labels.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import explicit_graph_inputs

from pymc_gibbsnn._data import check_finite
from pymc_gibbsnn.networks.forms import NetworkError, evaluate, in_rows
from pymc_gibbsnn.networks.layers import Operator
from pymc_gibbsnn.networks.likelihoods.around_latent import AroundLatent, fits

__all__ = ["EffectLikelihood"]


@dataclass(frozen=True, eq=False)
class EffectLikelihood(AroundLatent):
    """The likelihood y ~ N(o + t Z, σ), with one σ or one for each datum.

    Attributes
    ----------
    slope : Variable
        The numbers t, which broadcast to (n, units).
    rest : Variable, (n, units)
        What the other terms leave of the data, y − o.
    """

    slope: Variable = field(kw_only=True)
    rest: Variable = field(kw_only=True)

    is_term = True
    errors = None  # the fit would have to know the other terms
    read = None  # type: ignore[assignment]  # the reader makes it of several terms

    def check(self, x: np.ndarray, layer: Operator) -> None:
        """Refuse data and factors as :meth:`AroundLatent.check` does, and slopes that are not finite or do not fit.

        Parameters
        ----------
        x, layer
            As there.
        """
        if not list(explicit_graph_inputs([self.value])):  # a latent is checked with its own network
            super().check(x, layer)
        if list(explicit_graph_inputs([self.slope])):  # they change with other variables
            return
        what, shape = f"what multiplies a latent in the mean of '{self.name}'", (len(x), layer.shape[0])
        check_finite(what, evaluate(self.slope), NetworkError)
        if not fits(self.slope, shape):
            raise NetworkError(
                f"{what} must be one number, or an array that broadcasts to {shape}; found the shape "
                f"{evaluate(self.slope).shape}."
            )

    def _targets(self, z: Variable) -> Variable:
        """Return y − o."""
        return pt.cast(in_rows(self.rest), z.dtype)

    def _slope(self, z: Variable) -> Variable:
        """Return t in the precision of Z."""
        return pt.cast(self.slope, z.dtype)

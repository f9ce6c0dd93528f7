r"""What the scales of rows of one noisy network say of the output of another, on which they depend.

Model, with c the scale of each row of a network with latents Z and A and data y (:mod:`pymc_gibbsnn.networks.network`),

    c² = exp(a G + b) + f,   G = M + N(0, ΔG),   Z, A, y | c: noises of the variances c² ΔZ, c² ΔA, c² Δ.

G is the last pre-activation of a second network. There is no other observation of it: it is known by how large the
noises in its row are. :mod:`pymc_gibbsnn.moves.row_scales` draws it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.layers.dense import Dense
from pymc_gibbsnn.networks.likelihoods.likelihood import LatentLikelihood

if TYPE_CHECKING:
    from pymc_gibbsnn.networks.network import Network

__all__ = ["RowNoise"]


@dataclass(frozen=True, eq=False)
class RowNoise(LatentLikelihood):
    """The likelihood of G given all that has noise in another network, whose scales it sets.

    Attributes
    ----------
    network : Network
        The network whose noise it is.
    slope, intercept, floor : Variable, ()
        The numbers a, b and f in c² = exp(a G + b) + f.
    """

    network: Network
    slope: Variable
    intercept: Variable
    floor: Variable

    def squared_scale(self, g: Variable) -> Variable:
        """Compute c² from G."""
        return pt.exp(self.slope * g + self.intercept) + self.floor

    def check(self, x: np.ndarray, layer: Dense) -> None:
        """Do nothing: the other network checks its data."""

r"""Heteroscedastic noise: the output of one noisy network sets the noise of each row of another.

The latents and the data of the other network tell of it.

Model, with c the scale of each row of a network with latents Z and A and data y (:mod:`pymc_gibbsnn.networks.network`),

    c² = f + 1/(exp(−a G − b) + 1/s),   G = M + N(0, v),   Z, A, y | c: noises of the variances c² ΔZ, c² ΔA, c² Δ.

So c² rises with a G from f to f + s, and is f + exp(a G + b) where s is infinite.
G is the last pre-activation of a second network. There is no other observation of it: it is known by how large the
noises in its row are. :mod:`pymc_gibbsnn.moves.row_scales` and :mod:`pymc_gibbsnn.moves.noise_level` draw it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.layers import Operator
from pymc_gibbsnn.networks.likelihoods.latent_likelihood import LatentLikelihood

if TYPE_CHECKING:
    from pymc_gibbsnn.networks.network import Network

__all__ = ["RowNoise"]


@dataclass(frozen=True, eq=False)
class RowNoise(LatentLikelihood):
    """The likelihood of G: the density of all noise in another network, whose scales G sets.

    Attributes
    ----------
    network : Network
        The network whose noise it is.
    slope, intercept, floor, span : Variable, ()
        The numbers a, b, f and s; s may be infinite.
    """

    network: Network
    slope: Variable
    intercept: Variable
    floor: Variable
    span: Variable

    def squared_scale(self, g: Variable) -> Variable:
        """Compute c² from G."""
        return self.floor + 1 / (pt.exp(-self.slope * g - self.intercept) + 1 / self.span)

    read = None  # type: ignore[assignment]  # the reader makes it of two networks

    def log_densities(self, z: Variable) -> None:
        """Return nothing: the density is that of the noise of the other network, which counts it."""

    def check(self, x: np.ndarray, layer: Operator) -> None:
        """Do nothing: the other network checks its data."""

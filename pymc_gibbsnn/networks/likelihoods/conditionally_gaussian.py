r"""Likelihoods that are Gaussian in the last pre-activation Z of a noisy network, given auxiliary variables.

Model, elementwise, with M the mean that the layers below give Z, and auxiliary variables ω whose distribution given Z
and y is known,

    Z = M + N(0, ΔZ),   p(y | Z, ω) ∝ exp(h Z − p Z²/2).

So the data act like an observation h/p of Z that has the variance 1/p, and

    Z | ω, y ~ N((M/ΔZ + h)/(1/ΔZ + p), 1/(1/ΔZ + p)).

The auxiliary variables are no variables of the model. They are drawn anew, and forgotten, in each sweep.
:mod:`pymc_gibbsnn.moves.integrated_latent` moves weights and latents given them, with Z integrated out.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import normal

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.likelihoods.latent_likelihood import LatentLikelihood

__all__ = ["ConditionallyGaussian", "GaussianTerm"]


class GaussianTerm(NamedTuple):
    """What data tell of Z given the auxiliary variables: exp(h Z − p Z²/2), elementwise."""

    linear: Variable  # h (n, units)
    precision: Variable  # p (n, units), not negative
    # Where y has noise beside that of Z: the data y, or what was drawn in their place, and how much each square counts
    targets: Variable | None = None
    weights: Variable | None = None


class ConditionallyGaussian(LatentLikelihood):
    """Data y given Z (n, units), Gaussian in Z given auxiliary variables; :meth:`draw_term` is required, too.

    Parameters
    ----------
    name, value
        As in :class:`~pymc_gibbsnn.networks.likelihoods.likelihood.Likelihood`.
    """

    @abstractmethod
    def draw_term(self, rng: Variable, z: Variable, m: Variable, noise: Variable) -> tuple[Variable, GaussianTerm]:
        """Draw the auxiliary variables given Z and the data, or given M and the data with Z integrated out.

        Parameters
        ----------
        rng, z, m, noise
            As in :meth:`LatentLikelihood.draw_latent`.

        Returns
        -------
        rng : Variable
        term : GaussianTerm
            What the data then tell of Z.
        """

    def squares(self, z: Variable, term: GaussianTerm) -> Variable | None:
        """Compute the sum of the squared noises of y beside that of Z, as :meth:`LatentLikelihood.draw_latent` does."""
        return None

    def draw_latent(
        self, rng: Variable, z: Variable, m: Variable, noise: Variable
    ) -> tuple[Variable, Variable, Variable | None]:
        """Draw the auxiliary variables, then Z given them.

        Parameters
        ----------
        rng, z, m, noise
            As in :meth:`LatentLikelihood.draw_latent`.
        """
        rng, term = self.draw_term(rng, z, m, noise)
        return self.draw_given_term(rng, m, noise, term)

    def draw_given_term(
        self, rng: Variable, m: Variable, noise: Variable, term: GaussianTerm
    ) -> tuple[Variable, Variable, Variable | None]:
        """Draw Z given its mean M, the variance ΔZ of its noise, and the auxiliary variables.

        Parameters
        ----------
        rng, m, noise
            As in :meth:`LatentLikelihood.draw_latent`.
        term : GaussianTerm
            What :meth:`draw_term` returned.

        Returns
        -------
        rng, z, squares
            As there.
        """
        precision = 1 / noise + term.precision
        rng, xi = draw(normal, rng, 0.0, 1.0, size=m.shape)
        z = (m / noise + term.linear) / precision + pt.cast(xi, m.dtype) / pt.sqrt(precision)
        return rng, z, self.squares(z, term)

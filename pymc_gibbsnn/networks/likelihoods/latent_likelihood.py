r"""Likelihoods of data given the last pre-activations Z of a noisy network, which are latents.

Model

    Z = M + N(0, ΔZ),   M = Ã W̃ᵀ + offset (n, units),   y ~ p(y | Z).

What a sampler needs is a transition that leaves p(Z | M, y) ∝ N(Z; M, ΔZ) p(y | Z) invariant. A likelihood with a
closed form for it draws Z in :meth:`LatentLikelihood.draw_latent`. For any other, the log density is enough: Z moves by
elliptical slice sampling (:mod:`pymc_gibbsnn.networks.likelihoods.elliptical_slice`), in all rows at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable

from pymc_gibbsnn.networks.likelihoods.elliptical_slice import elliptical_slice
from pymc_gibbsnn.networks.likelihoods.likelihood import Likelihood

__all__ = ["SCALE_OF_LABELS", "Errors", "LatentLikelihood", "units_of_numbers"]

SCALE_OF_LABELS = 3.0  # with deviations of about 1 the model would hardly expect a label of which it is sure


@dataclass(frozen=True, eq=False)
class Errors:
    """How real data depart from Z, as a fit by least squares sees it: by noise with the standard deviation c s.

    Attributes
    ----------
    factors : Variable, (n, units), optional
        The factors c; None if all are 1. The variance s² is the ``noise`` of the likelihood.
    degrees : Variable, (), optional
        Degrees of freedom, if the departures have Student's t distribution.
    """

    factors: Variable | None = None
    degrees: Variable | None = None


class LatentLikelihood(Likelihood):
    """Data y given the last pre-activations Z (n, units) of a noisy network; :meth:`log_densities` is required.

    Parameters
    ----------
    name, value
        As in :class:`~pymc_gibbsnn.networks.likelihoods.likelihood.Likelihood`.
    """

    least_ndim: ClassVar[int] = 1
    """The smallest number of axes that Z may have in the model."""
    has_noise: ClassVar[bool] = False
    """Whether y has Gaussian noise beside that of Z, perhaps given other latents; its variance is :attr:`noise`."""
    ignores_scale: ClassVar[bool] = False
    """Whether c Z, for c > 0, gives the same data; then they do not tell the noise of Z from the size of weights."""
    ignores_shifts: bool = False
    """Whether Z + c, for a number c in each row, gives the same data."""
    sets_unit: ClassVar[bool] = False
    """Whether y has noise of its own that sets the unit of Z; data then hardly tell how much noise Z has itself."""
    prior_scale: ClassVar[float] = 1.0
    """By what :func:`~pymc_gibbsnn.mlp` and :func:`~pymc_gibbsnn.cnn` multiply the deviations of the priors of the last
    weights and biases, where their precision is learned."""
    scales_with_rows: ClassVar[bool] = False
    """Whether all noise of a row, that of y too, may have a scale of its own: there is :meth:`of_scaled_rows`."""
    is_term: ClassVar[bool] = False
    """Whether Z is one term of the mean of y, beside others."""
    is_logistic: ClassVar[bool] = False
    """Whether there are :attr:`logistic_log_probability` and :attr:`logistic_probabilities`, smooth and quick."""
    logistic_log_probability: ClassVar[Callable]
    """``logistic_log_probability(mean, variance, y)``: about Σ log p(y | M), for fits of networks with convolutions."""
    logistic_probabilities: ClassVar[Callable]
    """``logistic_probabilities(mean, variance)``: about the probabilities of classes given M, by NumPy."""
    log_probability: ClassVar[Callable | None] = None
    """``log_probability(mean, sigma, y, rng, parameters)``: log p(y) (draw, row, ...) with Z ~ Normal(mean, sigma)
    integrated out, or None. The mean (draw, row, ...) is one for each draw of the posterior, sigma broadcasts to it, y
    (row, ...) are the data, ``rng`` is a generator of NumPy for what has no closed form, and ``parameters`` are those
    that :meth:`parameters` lists, with axes that broadcast to the mean; that which is Z is not to be used.
    """
    is_integrable: ClassVar[bool] = True
    """Whether ``log_probability``, if there is one, is exact, not an estimate by a draw."""
    label: ClassVar[Callable | None] = None
    """``label(z)``: the data without noise, such as labels, of latents Z (..., units); None if all have noise."""
    has_slopes: bool = False
    """Whether all weights also move with the noises of Z held fixed, by :meth:`slopes_of_means`."""
    noise: Variable | None = None

    @property
    def output(self) -> Variable:
        """The data, as the variable that has the noise."""
        return self.value

    @classmethod
    def takes(cls, classes: np.ndarray | None) -> bool:
        """Whether this kind, of several of one name, serves data with these classes."""
        return True

    @classmethod
    def latent(cls, node: Apply) -> Variable:
        """Return Z, on which a random variable of this kind depends."""
        return cls.centre(node)

    @classmethod
    def parameters(cls, node: Apply) -> list[tuple[Variable, int]] | None:
        """Return the parameters that :attr:`log_probability` takes, each with the number of its own axes.

        None if they are those of the random variable that the node of the graph draws.
        """
        return None

    @abstractmethod
    def log_densities(self, z: Variable) -> Variable | None:
        """Compute log p(y | Z) for the rows of Z (n, units).

        Returns
        -------
        Variable, (n, units) or (n, 1), or None
            One number for each output, or for each row if outputs depend on each other; None if y is a function of Z.
        """

    def log_densities_of_parameters(self, z: Variable, m: Variable, noise: Variable) -> Variable:
        """Compute log p(y | Z), as a move of parameters of the likelihood needs it.

        A likelihood that knows log p(y | M), with Z = M + N(0, ΔZ) integrated out, returns that; :meth:`draw_latent`
        must then not read Z, which is out of date.

        Parameters
        ----------
        z, m : Variable, (n, units)
            Z and its mean, given the layers below.
        noise : Variable, ()
            The variance ΔZ of its noise.
        """
        return self.log_densities(z)

    def log_densities_of_means(self, mean: Variable, noise: Variable, variance: Variable) -> Variable:
        """Compute log p(y | Z) at Z = mean + noise, as a move of the means with their noises held fixed needs it.

        A likelihood may integrate noises out; those are not used.

        Parameters
        ----------
        mean, noise : Variable, (n, units)
            The mean of Z and its noise.
        variance : Variable, ()
            The variance of the noise.

        Returns
        -------
        Variable, (n, units) or (n, 1)
            As for :meth:`log_densities`.
        """
        return self.log_densities(mean + noise)

    def slopes_of_means(self, mean: Variable, noise: Variable, variance: Variable) -> Variable:
        """Compute the derivative (n, units) of the sum of :meth:`log_densities_of_means` with respect to the means."""
        return pt.grad(self.log_densities_of_means(mean, noise, variance).sum(), mean)

    def draw_latent(
        self, rng: Variable, z: Variable, m: Variable, noise: Variable
    ) -> tuple[Variable, Variable, Variable | None]:
        """Draw Z given the data, or move it by a transition that leaves its distribution given the data invariant.

        By default Z moves by elliptical slice sampling, for each number of :meth:`log_densities` by itself.

        Parameters
        ----------
        rng : Variable
            The random generator.
        z : Variable, (n, units)
            The current Z.
        m : Variable, (n, units)
            The mean of Z, given the layers below.
        noise : Variable, ()
            The variance ΔZ of its noise.

        Returns
        -------
        rng, z : Variable
        squares : Variable, () or None
            The sum of the squared noises of y beside that of Z, of which each has the variance :attr:`noise`; None if y
            has no such noise.
        """
        rng, z = elliptical_slice(rng, z, m, noise, self.log_densities)
        return rng, z, None

    def agreeing(self, z: np.ndarray) -> np.ndarray:
        """Return latents Z with their entries reordered, or their signs changed, so that data such as labels can be."""
        return z

    @staticmethod
    def on_scale_of_latent(y: np.ndarray) -> np.ndarray:
        """Return real data as they are compared with Z."""
        return y

    @classmethod
    def units(cls, y: np.ndarray, parameters: Mapping[str, Any]) -> tuple[np.ndarray | float, float]:
        """Return the center of Z, for each output, and the size of its departures from there, as far as data tell them.

        These are for priors in the units of the data; by default they are 0 and 1.

        Parameters
        ----------
        y : array, (n,) or (n, k)
            The data.
        parameters : mapping of str
            What the likelihood has beside them, such as an exposure.
        """
        return 0.0, 1.0

    def of_scaled_rows(self, ones: Variable) -> LatentLikelihood:
        """Return the likelihood of data divided by a scale of each row, given Z divided by it.

        Required where :attr:`scales_with_rows`. The argument (n, 1) is one over the scales.
        """
        raise NotImplementedError

    @property
    def has_working_response(self) -> bool:
        """Whether chains may start at a fit to :mod:`pymc_gibbsnn.starts.working_response`."""
        return False

    @property
    def errors(self) -> Errors | None:
        """How y departs from Z, if chains may start at a least-squares fit of the network to y; by default None."""
        return None


def units_of_numbers(z: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the mean of each column of numbers, and the root of the mean square of all departures from it, if any."""
    center = z.mean(axis=0)
    return center, float(np.sqrt(((z - center) ** 2).mean())) or 1.0

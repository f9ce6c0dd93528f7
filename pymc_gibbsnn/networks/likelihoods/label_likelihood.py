"""Likelihoods of class labels that are a function of the last noisy pre-activations of a network."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Apply, Variable

from pymc_gibbsnn.networks.likelihoods.class_labels import read_labels
from pymc_gibbsnn.networks.likelihoods.latent_likelihood import SCALE_OF_LABELS, LatentLikelihood
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters
from pymc_gibbsnn.random.log_normal_cdf import log_normal_cdf

__all__ = ["LabelLikelihood"]


class LabelLikelihood(LatentLikelihood):
    """Class labels that are a function of the last noisy pre-activations Z (n, units) of a network."""

    has_classes = True
    is_deterministic = True
    ignores_scale = True
    prior_scale = SCALE_OF_LABELS
    is_logistic = True
    has_slopes = True

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read the latent Z of which the data are labels."""
        return node.op.dist_params(node)[0], {}

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Read labels of two classes or more."""
        return read_labels(y)

    def log_densities(self, z: Variable) -> None:
        """Return nothing: labels are a function of Z."""

    @staticmethod
    @abstractmethod
    def integrated_probabilities(mean: np.ndarray, sigma: np.ndarray) -> np.ndarray:
        """Compute the probabilities of classes with their latent Z ~ Normal(mean, sigma) integrated out.

        Parameters
        ----------
        mean : array (..., units)
            The mean of Z.
        sigma : array
            Its standard deviation, which broadcasts to the shape of the mean.

        Returns
        -------
        array (..., classes)
        """

    @classmethod
    @abstractmethod
    def logistic_probabilities(cls, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Compute the probabilities of classes by the rule of :meth:`logistic_log_probability`, with NumPy.

        Parameters
        ----------
        mean : array (..., units)
            The latents without noise.
        variance : array
            The variance of the noise of each latent, which broadcasts to the shape of the mean.

        Returns
        -------
        array (..., units)
            One for each class or, for labels of two classes by the sign of a latent, that of class 1.
        """

    @classmethod
    @abstractmethod
    def logistic_log_probability(cls, mean: Variable, variance: Variable, y: np.ndarray) -> Variable:
        """Compute Σ log p(y | mean) as if noise made differences of the latents, or the only latent, logistic.

        This is smooth, quick, and close to the probability under normal noise of the same variance. It is written with
        operations that NumPy has for arrays, since it is not compiled.

        Parameters
        ----------
        mean : Variable, (n, units)
            The latents without noise.
        variance : Variable, ()
            The variance of the noise of each latent.
        y : array
            The labels.

        Returns
        -------
        Variable, ()
        """

    @abstractmethod
    def marks(self, z: Variable) -> Variable:
        """Mark what the labels say about the latents, for :meth:`seen` and :meth:`margin`, in an array (n, units)."""

    @staticmethod
    @abstractmethod
    def seen(noise: Variable, marks: Variable) -> Variable:
        """Return the noise of Z (n, units) with 0 for the latents that are integrated out."""

    @staticmethod
    @abstractmethod
    def margin(z: Variable, marks: Variable) -> tuple[Variable, Variable]:
        """Compute by how much labels are right, in latents of which those that are integrated out have no noise.

        The probability of a label, with the noise of these latents integrated out, is Φ(margin/s).

        Parameters
        ----------
        z : Variable, (n, units)
            The latents.
        marks : Variable, (n, units)
            What :meth:`marks` returns.

        Returns
        -------
        margin : Variable, (n, 1 or units)
        slopes : Variable, (n, units)
            The derivative of the margin of a row, or of the number itself, with respect to z.
        """

    def log_densities_of_means(self, mean: Variable, noise: Variable, variance: Variable) -> Variable:
        """Compute log p(y | mean, noises) with the noise of the latent of each label integrated out.

        Parameters
        ----------
        mean, noise : Variable, (n, units)
            The mean of Z and its noise; that of the latents that are integrated out is not used.
        variance : Variable, ()
            The variance of the noise.

        Returns
        -------
        Variable, (n, 1 or units)
        """
        marks = self.marks(noise)
        margin, _ = self.margin(mean + self.seen(noise, marks), marks)
        return log_normal_cdf(margin / pt.sqrt(variance))

    def slopes_of_means(self, mean: Variable, noise: Variable, variance: Variable) -> Variable:
        """Compute the derivative (n, units) of the sum of :meth:`log_densities_of_means` with respect to the means."""
        marks, sigma = self.marks(noise), pt.sqrt(variance)
        margin, slopes = self.margin(mean + self.seen(noise, marks), marks)
        r = margin / sigma
        return slopes * pt.exp(-(r**2) / 2 - log_normal_cdf(r)) / (math.sqrt(2 * math.pi) * sigma)

    @classmethod
    def probabilities(cls, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        """Return 1 for the label of Z and 0 for the other classes."""
        return (y[..., None] == np.arange(cls.classes(z))).astype(float)

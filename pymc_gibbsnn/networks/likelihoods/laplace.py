r"""Data with Laplace errors in a noisy network: y ~ Laplace(Z, σ), with Z its last pre-activation.

The median of y given Z is Z, and the log density falls with the distance of y from Z, not with its square: this is
median regression, in which outliers pull little. The Laplace distribution is a scale mixture of normal distributions
[1]_,

    y | Z, τ ~ N(Z, σ²/τ),   1/τ ~ Exponential(rate 1/2),

so that the precisions of :mod:`pymc_gibbsnn.networks.likelihoods.around_latent` have an inverse Gaussian conditional
distribution,

    τ | Z, y ~ InverseGaussian(mean σ/abs(y − Z), shape 1).

References
----------
.. [1] T. Park, G. Casella. The Bayesian lasso. Journal of the American Statistical Association 103 (2008).
.. [2] J. R. Michael, W. R. Schucany, R. W. Haas. Generating random variates using transformations with multiple roots.
   The American Statistician 30 (1976).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.basic import LaplaceRV, normal, uniform
from scipy.special import log_ndtr

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.forms import is_normal
from pymc_gibbsnn.networks.likelihoods.around_latent import AroundLatent
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters

__all__ = ["LaplaceLikelihood"]


@dataclass(frozen=True, eq=False)
class LaplaceLikelihood(AroundLatent):
    """The likelihood y ~ Laplace(Z, σ), with one σ or one for each datum."""

    rv_type = LaplaceRV
    form = "pm.Laplace('{name}', Z, b=scale)"
    scales_with_rows = True

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read the latent Z, which is the median, and the scale."""
        z, scale = node.op.dist_params(node)
        return z, cls.read_scale(scale, z, observed, parameters)

    @classmethod
    def matches(cls, node: Apply) -> bool:
        """Whether the median of a Laplace variable is a Normal variable, as it is."""
        return super().matches(node) and is_normal(cls.centre(node))

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe real numbers in the model of the context, with f as their median.

        Parameters
        ----------
        name, f, parameters, **observed
            As in :meth:`Likelihood.observe`, with the scale ``noise``.
        """
        return pm.Laplace(name, f, b=parameters["noise"], **observed)

    def draw_precisions(self, rng: Variable, squares: Variable) -> tuple[Variable, Variable]:
        """Draw τ | Z, y.

        With s = |y − Z|/σ and a squared standard normal ξ², the numbers τ = 2/(2 s + ξ² + sqrt(4 s ξ² + ξ⁴)) and
        1/(s² τ) belong to the same ξ²; the first one is taken with probability 1/(1 + s τ) [2]_. In this form no digits
        are lost where s is small.
        """
        dtype, s = squares.dtype, pt.sqrt(squares)
        rng, xi = draw(normal, rng, 0.0, 1.0, size=squares.shape)
        rng, u = draw(uniform, rng, 0.0, 1.0, size=squares.shape)
        xi = pt.cast(xi**2, dtype)
        tau = 2 / (2 * s + xi + pt.sqrt(xi * (4 * s + xi)))
        return rng, pt.switch(pt.cast(u, dtype) * (1 + s * tau) < 1, tau, 1 / (squares * tau))

    def log_density_of_squares(self, squares: Variable, squared: Variable) -> Variable:
        """Compute the logarithm of the Laplace density."""
        return -pt.sqrt(squares) - 0.5 * pt.log(4 * squared)

    @staticmethod
    def log_probability(
        mean: np.ndarray,
        sigma: np.ndarray,
        y: np.ndarray,
        rng: np.random.Generator,
        parameters: list[np.ndarray],
    ) -> np.ndarray:
        """Compute the log density of y with Z ~ Normal(mean, sigma) integrated out, of which each tail is one term.

        Parameters
        ----------
        mean, sigma, y, rng, parameters
            As in :attr:`LatentLikelihood.log_probability`.
        """
        _, scale = parameters
        distance, ratio = (y - mean) / scale, sigma / scale
        tails = (sign * distance + log_ndtr(-sign * distance / ratio - ratio) for sign in (-1, 1))
        return ratio**2 / 2 + np.logaddexp(*tails) - np.log(2 * scale)

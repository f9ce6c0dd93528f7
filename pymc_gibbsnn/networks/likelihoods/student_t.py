r"""Data with heavy tails in a noisy network: y ~ StudentT(ν, Z, σ), with Z its last pre-activation.

Model, elementwise,

    Z = M + N(0, ΔZ),   M = Ã W̃ᵀ + offset,   y = Z + σ t,   t ~ StudentT(ν).

Student's law is a normal law whose precision is random [1]_: with τ ~ Gamma(ν/2, rate ν/2),

    y | Z, τ ~ N(Z, σ²/τ).

Conditionals. The precisions τ are no variables of the model. They are drawn when Z is, and forgotten afterwards:

    τ | Z, y ~ Gamma((ν + 1)/2, rate (ν + (y − Z)²/σ²)/2),
    Z | τ, y ~ N((M/ΔZ + τ y/σ²)/P, 1/P),   P = 1/ΔZ + τ/σ².

A learned variance σ² is drawn after Z with the same τ, from the noises √τ (y − Z) ~ N(0, σ²).

References
----------
.. [1] K. L. Lange, R. J. A. Little, J. M. G. Taylor. Robust statistical modeling using the t distribution. Journal of
   the American Statistical Association 84 (1989).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import StudentTRV, normal
from scipy.special import gammaln

from pymc_gibbsnn.networks.forms import NetworkError, evaluate
from pymc_gibbsnn.networks.given import is_given
from pymc_gibbsnn.networks.likelihoods.likelihood import LatentLikelihood, Parameters
from pymc_gibbsnn.random.draw import draw
from pymc_gibbsnn.random.vectorised_gamma import vectorised_gamma

__all__ = ["StudentTLikelihood"]

NODES = 128  # of the quadrature over log τ
AT_ONCE = 2**14  # densities: what is computed on the way then stays in a processor's cache


@dataclass(frozen=True, eq=False)
class StudentTLikelihood(LatentLikelihood):
    """The likelihood y ~ StudentT(ν, Z, σ), with one ν and one σ for all data.

    Attributes
    ----------
    degrees : Variable, ()
        The degrees of freedom ν.
    noise : Variable, ()
        The squared scale σ², in the squared units of y.
    """

    rv_type = StudentTRV
    form = "pm.StudentT('{name}', nu, Z, sigma=scale)"
    is_discrete = False

    degrees: Variable
    noise: Variable

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read the latent Z, which is the location, the degrees of freedom and the squared scale."""
        degrees, z, sigma = node.op.dist_params(node)
        if not all(degrees.type.broadcastable) or z in ancestors([degrees, sigma]):
            raise NetworkError(
                f"nu of '{observed.name}', which is StudentT, must be one number, and neither nu nor sigma may depend "
                f"on its location."
            )
        degrees = parameters.value(degrees)
        if is_given(degrees) and not 0 < (found := evaluate(degrees).item()) < np.inf:
            raise NetworkError(f"nu of '{observed.name}' must be positive and finite; found {found}.")
        degrees = pt.cast(degrees.reshape(()), z.dtype)
        return z, {"degrees": degrees, "noise": parameters.noise(sigma, observed)}

    @classmethod
    def centre(cls, node: Apply) -> Variable:
        """Return the location."""
        return node.op.dist_params(node)[1]

    def draw_latent(
        self, rng: Variable, z: Variable, m: Variable, noise: Variable
    ) -> tuple[Variable, Variable, Variable]:
        """Draw the precisions τ given Z, then Z given τ; return the sum of the squares τ (y − Z)² beside it.

        Parameters
        ----------
        rng, z, m, noise
            As in :meth:`LatentLikelihood.draw_latent`.
        """
        y = pt.cast(self.value.reshape(z.shape), z.dtype)
        # τ | Z, y ~ Gamma((ν + 1)/2, rate (ν + (y − Z)²/σ²)/2)
        shape, rate = (self.degrees + 1) / 2, (self.degrees + (y - z) ** 2 / self.noise) / 2
        rng, tau = draw(vectorised_gamma, rng, pt.cast(shape, z.dtype), pt.cast(1 / rate, z.dtype))
        tau = pt.cast(tau, z.dtype)
        # Z | τ, y ~ N((M/ΔZ + τ y/σ²)/P, 1/P) with P = 1/ΔZ + τ/σ²
        precision = 1 / noise + tau / self.noise
        rng, xi = draw(normal, rng, 0.0, 1.0, size=z.shape)
        z = (m / noise + tau * y / self.noise) / precision + pt.cast(xi, z.dtype) / pt.sqrt(precision)
        return rng, z, (tau * (y - z) ** 2).sum()

    def log_density_given(self, z: Variable) -> Variable:
        """Compute Σ log p(y | Z) for the rows of Z (n, units)."""
        nu, y = self.degrees, pt.cast(self.value.reshape(z.shape), z.dtype)
        each = pt.gammaln((nu + 1) / 2) - pt.gammaln(nu / 2) - 0.5 * pt.log(math.pi * nu * self.noise)
        return (each - (nu + 1) / 2 * pt.log1p((y - z) ** 2 / (nu * self.noise))).sum()

    @staticmethod
    def label(z: np.ndarray) -> np.ndarray:
        """Return the data without noise, which are Z."""
        return z

    @staticmethod
    def log_probability(
        mean: np.ndarray,
        sigma: np.ndarray,
        y: np.ndarray,
        rng: np.random.Generator,
        parameters: list[np.ndarray],
    ) -> np.ndarray:
        r"""Compute the log density of y with Z ~ Normal(mean, sigma) integrated out, by quadrature over the precision.

        The density is :math:`\int p(\tau) \, N(y; m, s^2 + \sigma^2/\tau) \, d\tau`. In log τ the integrand is smooth
        and falls off exponentially at both ends, so that sums over equidistant nodes converge exponentially.

        Parameters
        ----------
        mean, sigma, y, rng, parameters
            As in :meth:`LatentLikelihood.log_probability`.
        """
        nu, _, scale = parameters
        arrays = np.broadcast_arrays(nu, scale, sigma, (y - mean) ** 2)
        flat = [x.reshape(-1) for x in arrays]
        found = np.empty(flat[0].shape)
        for i in range(0, len(found), AT_ONCE):
            found[i : i + AT_ONCE] = _log_integral(*(x[i : i + AT_ONCE] for x in flat))
        return found.reshape(arrays[0].shape)


def _log_integral(nu: np.ndarray, scale: np.ndarray, sigma: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Compute the logarithm of the integral of :meth:`StudentTLikelihood.log_probability`.

    Parameters
    ----------
    nu, scale : array, (n,)
        The degrees of freedom and the scale of y given Z.
    sigma : array, (n,)
        The standard deviation of Z.
    squares : array, (n,)
        The squared distances of y from the mean of Z.

    Returns
    -------
    array, (n,)
    """
    # The integrand has its mode between that of p(τ | y, Z = m), which is below 1, and 1; where it has one,
    # e / (σ_Z² + e)² with e = σ²/τ is at most 1 / (4 σ_Z²), which bounds it from below, too. Where its logarithm is 40
    # below that at the mode, nothing is left in double precision.
    width = np.sqrt(160 / nu)
    lowest = np.minimum(0, np.log((nu + 1) / (nu + squares / scale**2))) - 80 / (nu + 1) - width
    least = np.maximum(1 - squares / (4 * nu * sigma**2), 1e-300)
    lowest = np.maximum(lowest, np.log(least) - 80 / (nu * least) - np.sqrt(160 / (nu * least)))
    step = (np.log1p(80 / nu + 2 * width) - lowest) / (NODES - 1)
    top, total = -np.inf, 0.0
    for node in range(NODES):
        log_tau = lowest + step * node
        tau = np.exp(log_tau)
        variance = sigma**2 + scale**2 / tau
        term = (nu * (log_tau - tau) - np.log(2 * np.pi * variance) - squares / variance) / 2
        last, top = top, np.maximum(top, term)
        total = total * np.exp(last - top) + np.exp(term - top)
    return top + np.log(total * step) + nu / 2 * np.log(nu / 2) - gammaln(nu / 2)

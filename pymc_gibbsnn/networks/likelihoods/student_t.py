r"""Data with heavy tails in a noisy network: y ~ StudentT(ν, Z, σ), with Z its last pre-activation.

Student's t distribution is a scale mixture of normal distributions [1]_,

    y | Z, τ ~ N(Z, σ²/τ),   τ ~ Gamma(ν/2, rate ν/2),

so that the precisions of :mod:`pymc_gibbsnn.networks.likelihoods.around_latent` have the conditional

    τ | Z, y ~ Gamma((ν + 1)/2, rate (ν + (y − Z)²/σ²)/2).

References
----------
.. [1] K. L. Lange, R. J. A. Little, J. M. G. Taylor. Robust statistical modeling using the t distribution. Journal of
   the American Statistical Association 84 (1989).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import StudentTRV
from scipy.interpolate import CubicSpline
from scipy.special import gammaln

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.forms import NetworkError, evaluate
from pymc_gibbsnn.networks.given import is_given
from pymc_gibbsnn.networks.likelihoods.around_latent import AroundLatent
from pymc_gibbsnn.networks.likelihoods.latent_likelihood import Errors
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters
from pymc_gibbsnn.random.vectorised_gamma import vectorised_gamma

__all__ = ["StudentTLikelihood"]

# Degrees of freedom where a model is written in one call; PyMC takes the logarithm of a plain 4 in single precision
DEGREES = np.float64(4)
NODES, LONGEST = 128, 0.45  # at least so many nodes of the quadrature over log τ, and steps at most so long
KNOTS, MISS = 1025, 1e-5  # of a table of log densities, and how far half of its knots may be from the others
SAME = 1e-9  # relative difference of ratios that differ by rounding alone
AT_ONCE = 2**14  # densities: what is computed on the way then stays in a processor's cache


@dataclass(frozen=True, eq=False)
class StudentTLikelihood(AroundLatent):
    """The likelihood y ~ StudentT(ν, Z, σ), with one ν for all data, and one σ or one for each datum.

    Attributes
    ----------
    degrees : Variable, ()
        The degrees of freedom ν.
    """

    rv_type = StudentTRV
    form = "pm.StudentT('{name}', nu, Z, sigma=scale)"
    scales_with_rows = True
    has_slopes = True

    degrees: Variable = field(kw_only=True)

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read the latent Z, which is the location, the degrees of freedom and the scale."""
        degrees, z, sigma = node.op.dist_params(node)
        if not all(degrees.type.broadcastable) or z in ancestors([degrees]):
            raise NetworkError(
                f"nu of '{observed.name}', which is StudentT, must be one number that does not depend on its location."
            )
        degrees = parameters.value(degrees)
        if is_given(degrees) and not 0 < (number := evaluate(degrees).item()) < np.inf:
            raise NetworkError(f"nu of '{observed.name}' must be positive and finite; found {number}.")
        degrees = pt.cast(degrees.reshape(()), z.dtype)
        return z, {"degrees": degrees} | cls.read_scale(sigma, z, observed, parameters)

    @classmethod
    def centre(cls, node: Apply) -> Variable:
        """Return the location."""
        return node.op.dist_params(node)[1]

    @property
    def errors(self) -> Errors:
        """Errors with Student's t distribution."""
        return Errors(self.factors, self.degrees)

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe real numbers in the model of the context, with f as their location.

        Parameters
        ----------
        name, f, parameters, **observed
            As in :meth:`Likelihood.observe`, with the scale ``noise``.
        """
        return pm.StudentT(name, DEGREES, f, sigma=parameters["noise"], **observed)

    def draw_precisions(self, rng: Variable, squares: Variable) -> tuple[Variable, Variable]:
        """Draw τ | Z, y ~ Gamma((ν + 1)/2, rate (ν + (y − Z)²/σ²)/2)."""
        dtype = squares.dtype
        shape, rate = (self.degrees + 1) / 2, (self.degrees + squares) / 2
        rng, tau = draw(vectorised_gamma, rng, pt.cast(shape, dtype), pt.cast(1 / rate, dtype))
        return rng, pt.cast(tau, dtype)

    def log_density_of_squares(self, squares: Variable, squared: Variable) -> Variable:
        """Compute the logarithm of Student's density."""
        nu = self.degrees
        each = pt.gammaln((nu + 1) / 2) - pt.gammaln(nu / 2) - 0.5 * pt.log(math.pi * nu * squared)
        return each - (nu + 1) / 2 * pt.log1p(squares / nu)

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
        and falls off exponentially at both ends, so that sums over equidistant nodes converge exponentially. Densities
        of many data that have the same ν and s/σ are read from a table.

        Parameters
        ----------
        mean, sigma, y, rng, parameters
            As in :attr:`LatentLikelihood.log_probability`.
        """
        nu, _, scale = (np.asarray(x, "float64") for x in parameters)
        squares, ratio = ((y - mean) / scale) ** 2, _of_draws(sigma / scale)
        return _log_densities(nu, ratio, squares) - np.log(scale)


def _log_densities(nu: np.ndarray, ratio: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Compute the logarithm of the integral for each datum, by tables where there are many data for each.

    Parameters
    ----------
    nu, ratio, squares
        As in :func:`_log_integral`, in shapes that broadcast to that of ``squares`` (draw, ...).

    Returns
    -------
    array, of the shape of ``squares``
    """
    shape = np.broadcast_shapes((1,) * squares.ndim, nu.shape, ratio.shape)
    if np.prod(shape[1:]) != 1:
        return _one_by_one(nu, ratio, squares)
    # The same pair for all rows of a draw, and often for several draws
    pairs = np.stack([np.broadcast_to(x, shape).reshape(-1) for x in (nu, ratio)])
    distinct, which = np.unique(pairs, axis=1, return_inverse=True)
    if squares.size < 2 * KNOTS * distinct.shape[1]:
        return _one_by_one(nu, ratio, squares)
    which, log_densities = np.broadcast_to(which.reshape(-1), len(squares)), np.empty(squares.shape)
    for k, (degrees, one) in enumerate(distinct.T):
        log_densities[which == k] = _tabulated(degrees, one, squares[which == k])
    return log_densities


def _of_draws(ratio: np.ndarray) -> np.ndarray:
    """Return numbers (draw, ...) that are the same for all data of a draw, up to rounding, as one for each draw."""
    flat = ratio.reshape(len(ratio), math.prod(ratio.shape[1:]))
    if flat.shape[1] < 2 or not np.allclose(flat, flat[:, :1], rtol=SAME, atol=0):
        return ratio
    return flat[:, 0].reshape(len(ratio), *[1] * (ratio.ndim - 1))


def _tabulated(nu: float, ratio: float, squares: np.ndarray) -> np.ndarray:
    """Compute the logarithm of the integral for many data of one distribution, by a cubic spline.

    The spline is used if one through every second knot is within MISS of the other knots; its own errors are about 16
    times smaller than those of that one.

    Parameters
    ----------
    nu, ratio, squares
        As in :func:`_log_integral`; the first two are numbers, and the last has any shape.

    Returns
    -------
    array, of the shape of ``squares``
    """
    total = 1 + ratio**2
    u = np.log1p(squares / total)
    if 0 < u.max() < np.inf:
        knots = np.linspace(0, u.max(), KNOTS)
        table = _one_by_one(nu, ratio, total * np.expm1(knots))
        is_finite = np.isfinite(table).all()
        if is_finite and np.abs(CubicSpline(knots[::2], table[::2])(knots[1::2]) - table[1::2]).max() < MISS:
            return CubicSpline(knots, table)(u)
    return _one_by_one(nu, ratio, squares)


def _one_by_one(nu: ArrayLike, ratio: ArrayLike, squares: np.ndarray) -> np.ndarray:
    """Compute the logarithm of the integral for each datum, a block of them at once.

    Parameters
    ----------
    nu, ratio, squares
        As in :func:`_log_integral`, in shapes that broadcast to that of ``squares``.

    Returns
    -------
    array, of the shape of ``squares``
    """
    flat = [x.reshape(-1) for x in np.broadcast_arrays(nu, ratio, squares)]
    log_integrals = np.empty(flat[0].shape)
    for i in range(0, len(log_integrals), AT_ONCE):
        log_integrals[i : i + AT_ONCE] = _log_integral(*(x[i : i + AT_ONCE] for x in flat))
    return log_integrals.reshape(squares.shape)


def _log_integral(nu: np.ndarray, ratio: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Compute the logarithm of the integral of :meth:`StudentTLikelihood.log_probability`, in units of σ.

    Parameters
    ----------
    nu : array, (n,)
        The degrees of freedom of y given Z.
    ratio : array, (n,)
        The standard deviation s of Z, divided by σ.
    squares : array, (n,)
        The squared distances of y from the mean of Z, divided by σ².

    Returns
    -------
    array, (n,)
    """
    # The integrand has its mode between that of p(τ | y, Z = m), which is below 1, and 1; where it has one,
    # e / (s² + e)² with e = 1/τ is at most 1 / (4 s²), which bounds it from below, too. Where its logarithm is 40
    # below that at the mode, nothing is left in double precision.
    width = np.sqrt(160 / nu)
    lowest = np.minimum(0, np.log((nu + 1) / (nu + squares))) - 80 / (nu + 1) - width
    least = np.maximum(1 - squares / (4 * nu * ratio**2), 1e-300)
    lowest = np.maximum(lowest, np.log(least) - 80 / (nu * least) - np.sqrt(160 / (nu * least)))
    reach = np.log1p(80 / nu + 2 * width) - lowest
    nodes = max(NODES, math.ceil(reach.max(initial=0) / LONGEST) + 1)
    step = reach / (nodes - 1)
    top, total = -np.inf, 0.0
    for node in range(nodes):
        log_tau = lowest + step * node
        tau = np.exp(log_tau)
        variance = ratio**2 + 1 / tau
        term = (nu * (log_tau - tau) - np.log(2 * np.pi * variance) - squares / variance) / 2
        last, top = top, np.maximum(top, term)
        total = total * np.exp(last - top) + np.exp(term - top)
    return top + np.log(total * step) + nu / 2 * np.log(nu / 2) - gammaln(nu / 2)

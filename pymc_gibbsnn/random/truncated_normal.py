r"""The truncated normal, exact however far out in the tail.

    X ~ N(mean, sd²) given lower < X < upper

Three backends draw from this distribution:

- NumPy and JAX invert the distribution function in log space, from the tail that is nearer: with u uniform and α, β the
  standardised bounds, reflected to the left tail, log p = log[Φ(α) + u (Φ(β) − Φ(α))] and x = Φ⁻¹(p);
- Numba draws proposals from an envelope and accepts or rejects them. Of four envelopes, all of which touch the density
  at its mode in the interval, it takes the one with the least mass: a normal, half normal, exponential or uniform one
  [1]_. At least one proposal in three is accepted.

References
----------
.. [1] C. P. Robert. Simulation of truncated normal variables. Statistics and Computing 5 (1995).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.tensor.random.op import RandomVariable
from scipy.special import log_ndtr, ndtri_exp

from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.random._streams import exponential, normal, normals, streams, uniform

__all__ = ["TruncatedNormalRV", "truncated_normal"]

SQRT_2PI = math.sqrt(2 * math.pi)


class Interval(NamedTuple):
    """An interval of the standard normal; its fields are arrays.

    An interval in the right tail is reflected to the left one, where Φ is small, so that a difference of two values of
    Φ loses no digits.
    """

    reflected: Any  # whether the interval was reflected
    low: Any
    high: Any
    log_low: Any  # log Φ(low)
    log_high: Any  # log Φ(high)

    @classmethod
    def between(cls, alpha, beta, xp, log_ndtr):
        """Make the interval (α, β).

        Parameters
        ----------
        alpha, beta : array or None
            The ends, α < β; None stands for −∞ or ∞ and saves computing Φ there.
        xp : module
            ``numpy`` or ``jax.numpy``.
        log_ndtr : callable
            The logarithm of Φ, for arrays of ``xp``.

        Returns
        -------
        Interval
        """
        if alpha is None and beta is None:
            return cls(False, -xp.inf, xp.inf, -xp.inf, 0.0)
        if alpha is None or beta is None:
            high = beta if alpha is None else -alpha
            return cls(beta is None, -xp.inf, high, -xp.inf, log_ndtr(high))
        reflected = alpha > -beta
        low, high = xp.where(reflected, -beta, alpha), xp.where(reflected, -alpha, beta)
        return cls(reflected, low, high, log_ndtr(low), log_ndtr(high))

    def log_mass(self, xp):
        """The logarithm of the mass Φ(β) − Φ(α) of the interval."""
        return self.log_high + xp.log1p(-xp.exp(self.log_low - self.log_high))

    def invert(self, u, xp, ndtri_exp):
        """The quantile, at probability u in (0, 1], of the standard normal restricted to the interval."""
        ratio = xp.exp(self.log_low - self.log_high)
        # Rounding may give 1, and Φ⁻¹(1) is infinite: stay below it.
        probability = xp.minimum(u + (1 - u) * ratio, 1 - xp.finfo(u.dtype).epsneg)
        x = xp.clip(ndtri_exp(self.log_high + xp.log(probability)), self.low, self.high)
        return xp.where(self.reflected, -x, x)


class TruncatedNormalRV(RandomVariable):
    r"""X ~ N(mean, sd²) given lower < X < upper, independently for n numbers [1]_.

    Parameters
    ----------
    mean : (n,)
        Means before truncation.
    sd : ()
        Standard deviation before truncation, positive.
    lower, upper : (n,)
        Bounds, lower < upper; they may be infinite.

    References
    ----------
    .. [1] C. P. Robert. Simulation of truncated normal variables. Statistics and Computing 5 (1995).
    """

    name = "truncated_normal"
    signature = "(n),(),(n),(n)->(n)"
    dtype = "floatX"
    _print_name = ("TruncatedNormal", "\\operatorname{TruncatedNormal}")

    @classmethod
    def rng_fn(cls, rng, mean, sd, lower, upper, size=None):
        """Draw with NumPy and SciPy.

        Parameters
        ----------
        rng : numpy.random.Generator
        mean, sd, lower, upper : array
            As in the class.
        size : None
            PyTensor passes it; the shape of the draw is that to which the parameters broadcast.
        """
        u = 1.0 - rng.random(np.broadcast_shapes(mean.shape, lower.shape, upper.shape))  # in (0, 1]
        x = Interval.between((lower - mean) / sd, (upper - mean) / sd, np, log_ndtr).invert(u, np, ndtri_exp)
        return np.clip(mean + sd * x, lower, upper)


truncated_normal = TruncatedNormalRV()


# Numba draws by rejection. An envelope is three numbers: its kind; the density's mode in the interval; and its factor,
# the mass of the envelope divided by the height of the density at that mode. The piecewise normal builds its mixture of
# envelopes from these.

NORMAL, UNIFORM, EXPONENTIAL, HALF_NORMAL = range(4)


@numba_njit
def envelope(mean, sd, lower, upper):
    """Find the envelope of exp(−(z − mean)²/2sd²) on (lower, upper) with the least mass.

    Parameters
    ----------
    mean, sd : float
        Mean and standard deviation of the normal.
    lower, upper : float
        Ends of the interval.

    Returns
    -------
    kind : int
        ``NORMAL``, ``UNIFORM``, ``EXPONENTIAL`` or ``HALF_NORMAL``.
    mode : float
        Where in the interval the density is highest.
    factor : float
        Mass of the envelope divided by the height of the density at the mode: the width of a uniform, the mean of an
        exponential.
    """
    width = upper - lower
    if lower <= mean <= upper:
        full = SQRT_2PI * sd
        if width < full:
            return UNIFORM, mean, width
        return NORMAL, mean, full
    mode = lower if mean < lower else upper
    half = 0.5 * SQRT_2PI * sd
    decay = sd * sd / abs(mode - mean)
    if width < half and width < decay:
        return UNIFORM, mode, width
    if decay < half:
        return EXPONENTIAL, mode, decay
    return HALF_NORMAL, mode, half


@numba_njit
def propose(stream, kind, mode, factor, mean, sd, lower, upper):
    """Draw one proposal from an envelope and decide whether it is accepted.

    Parameters
    ----------
    stream : array
        The random stream.
    kind, mode, factor
        The envelope, from :func:`envelope`.
    mean, sd, lower, upper : float
        The truncated normal.

    Returns
    -------
    z : float
        The proposal.
    accepted : bool
    """
    if kind == NORMAL:
        z = mean + sd * normal(stream)
        return z, lower < z < upper
    if kind == UNIFORM:
        z = lower + factor * uniform(stream)
        excess = ((z - mean) ** 2 - (mode - mean) ** 2) / (2 * sd * sd)
    else:
        if kind == EXPONENTIAL:
            step = factor * exponential(stream)
            excess = step * step / (2 * sd * sd)
        else:
            step = sd * abs(normal(stream))
            excess = step * abs(mode - mean) / (sd * sd)
        z = mode + step if mean < mode else mode - step
        if not lower <= z <= upper:
            return z, False
    return z, exponential(stream) >= excess


@numba_njit
def draw_truncated_normal(stream, mean, sd, lower, upper):
    """Draw one truncated normal: propose from the tightest envelope until a proposal is accepted.

    NaN among the parameters, of which no proposal would be accepted, gives NaN; so do a mean that is infinite, and a
    variance that overflows or is 0.

    Parameters
    ----------
    stream : array
        The random stream.
    mean, sd : float
        Mean and standard deviation before truncation.
    lower, upper : float
        Bounds.

    Returns
    -------
    float
    """
    if not (mean - mean == 0 and 0 < sd * sd < math.inf and lower <= upper):
        return math.nan
    kind, mode, factor = envelope(mean, sd, lower, upper)
    accepted = False
    z = mode
    while not accepted:
        z, accepted = propose(stream, kind, mode, factor, mean, sd, lower, upper)
    return z


def _numba(op, node):
    """Make the sampler for Numba, which takes a ``Generator`` and the parameters of :class:`TruncatedNormalRV`."""

    @numba_njit
    def sample(rng, mean, sd, lower, upper):
        stream, sd = streams(rng, 1)[0], sd.item()
        x = np.empty(len(mean))
        normals(stream, x)
        for i in range(len(x)):
            # Most often the mean lies well inside the bounds and so does the attempt. If not, it is dropped for a draw
            # by rejection: in either case the distribution is the truncated normal.
            x[i] = mean[i] + sd * x[i]
            if not lower[i] < x[i] < upper[i]:
                x[i] = draw_truncated_normal(stream, mean[i], sd, lower[i], upper[i])
        return x

    return sample


def _jax(op, node):
    """Make the sampler for JAX, which takes a key, size, dtype and the parameters of :class:`TruncatedNormalRV`."""
    import jax.numpy as jnp

    from pymc_gibbsnn.random._jax import log_ndtr, ndtri_exp, open_uniform

    def sample(key, size, dtype, mean, sd, lower, upper):
        u = open_uniform(key, jnp.broadcast_shapes(mean.shape, lower.shape, upper.shape), dtype)
        x = Interval.between((lower - mean) / sd, (upper - mean) / sd, jnp, log_ndtr).invert(u, jnp, ndtri_exp)
        return jnp.clip(mean + sd * x, lower, upper).astype(dtype)

    return sample


declare(TruncatedNormalRV, numba=_numba, jax=_jax)

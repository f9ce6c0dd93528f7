r"""The generalised inverse Gaussian, drawn through its logarithm.

    p(x) ∝ x^{p−1} exp(−(a x + b/x)/2),   x > 0

The scale of a unit of a network has this distribution given all the rest. u = log x has a log-concave density. With u*
its mode, ω = sqrt(ab) and α = sqrt(ω² + p²) − p, the logarithm of the density of u at u* + r, less that at u*, is

    ψ(r) = −α (cosh r − 1) − p (eʳ − r − 1)

for p ≥ 0; for p < 0, 1/x has this distribution with −p in place of p and with a and b exchanged. Devroye's envelope
[1]_, flat in the middle with exponential tails, accepts a share of the proposals that is bounded below over all
parameters, the gamma distribution (b = 0) and the inverse gamma distribution (a = 0) included. The three backends share
the formulas below.

References
----------
.. [1] L. Devroye. Random variate generation for the generalized inverse Gaussian distribution.
   Statistics and Computing 24 (2014).
"""

from __future__ import annotations

import math

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn.backends.declare import declare

__all__ = ["GeneralisedInverseGaussianRV", "generalised_inverse_gaussian"]


class GeneralisedInverseGaussianRV(RandomVariable):
    r"""The generalised inverse Gaussian [1]_, with density ∝ x^{p−1} exp(−(a x + b/x)/2) on x > 0, elementwise.

    Parameters
    ----------
    p, a, b : tensor_like
        The parameters, which broadcast against each other. Neither a nor b is negative. b may be 0 where p > 0, which
        gives a gamma distribution, and a may be 0 where p < 0, which gives an inverse gamma distribution.

    References
    ----------
    .. [1] L. Devroye. Random variate generation for the generalized inverse Gaussian distribution.
       Statistics and Computing 24 (2014).
    """

    name = "generalised_inverse_gaussian"
    signature = "(),(),()->()"
    dtype = "floatX"

    @classmethod
    def rng_fn(cls, rng, p, a, b, size=None):
        """Draw with NumPy.

        Parameters
        ----------
        rng : numpy.random.Generator
        p, a, b : array
            As in the class.
        size : tuple of int, optional
            The shape of the draw; by default the shape to which the parameters broadcast.
        """
        if size is None:
            size = np.broadcast_shapes(*map(np.shape, (p, a, b)))
        p, a, b = (np.broadcast_to(x, size).ravel() for x in (p, a, b))
        parameters = _envelope(*_shape_parameters(p, a, b))
        x = np.empty(len(p))
        pending = np.arange(len(p))
        while len(pending):
            u = 1.0 - rng.random((3, len(pending)))
            proposal, accepted = _propose(*u, *(parameter[pending] for parameter in parameters))
            x[pending[accepted]] = proposal[accepted]
            pending = pending[~accepted]
        return _uncentre(x, p, a, b).reshape(size)


generalised_inverse_gaussian = GeneralisedInverseGaussianRV()


def _formulas(xp, where, compiled=lambda function: function):
    """Make the four formulas of Devroye's method for one backend.

    They act on arrays of the namespace ``xp`` (``numpy`` or ``jax.numpy``) with its ``where``, or on numbers where
    ``compiled`` is Numba's decorator.

    Returns
    -------
    shape_parameters : callable
        (p, a, b) to (α, |p|).
    envelope : callable
        (α, |p|) to all that ``propose`` takes after its three uniform numbers.
    propose : callable
        Uniform numbers u, v, w in (0, 1] and the envelope to (proposal r, whether it is accepted).
    uncentre : callable
        (r, p, a, b) to x.
    """
    tiny = 1e-30  # keeps denominators from being 0

    @compiled
    def shape_parameters(p, a, b):
        size = abs(p)
        return a * b / (xp.sqrt(a * b + size * size) + size + tiny), size

    @compiled
    def uncentre(r, p, a, b):
        """The x whose logarithm lies at r from the mode, for p, a and b as in the class."""
        root = xp.sqrt(a * b + p * p) + abs(p)
        return where(p < 0, b / root * xp.exp(-r), root / (a + tiny) * xp.exp(r))

    @compiled
    def drop(r, alpha, p):
        """−ψ(r): by how much the log density at r lies below that at the mode."""
        return 2 * alpha * xp.sinh(r / 2) ** 2 + p * (xp.expm1(r) - r)

    @compiled
    def envelope(alpha, p):
        """The points −s and t where the envelope's tails touch the density, and the slope and the drop of ψ at each."""
        right, left = drop(1.0, alpha, p), drop(-1.0, alpha, p)
        wide = xp.log(4 / (alpha + 2 * p + tiny))
        t = where(right > 2, xp.sqrt(2 / (alpha + p + tiny)), where(right < 0.5, wide, 1.0))
        inverse = 1 / (alpha + tiny)
        wide = xp.minimum(1 / (p + tiny), xp.log1p(inverse + xp.sqrt(inverse) * xp.sqrt(inverse + 2)))
        s = where(left > 2, xp.sqrt(4 / (alpha * math.cosh(1.0) + p + tiny)), where(left < 0.5, wide, 1.0))
        rate_t = alpha * xp.sinh(t) + p * xp.expm1(t)
        rate_s = alpha * xp.sinh(s) - p * xp.expm1(-s)
        return alpha, p, s, t, rate_s, rate_t, drop(-s, alpha, p), drop(t, alpha, p)

    @compiled
    def propose(u, v, w, alpha, p, s, t, rate_s, rate_t, drop_s, drop_t):
        """Propose r from the envelope; return (r, whether it is accepted)."""
        start, end = drop_s / rate_s - s, t - drop_t / rate_t
        flat = end - start
        total = flat + 1 / rate_s + 1 / rate_t
        in_flat, in_right = u * total < flat, u * total < flat + 1 / rate_t
        r = where(in_flat, start + flat * v, where(in_right, end - xp.log(v) / rate_t, start + xp.log(v) / rate_s))
        log_envelope = where(in_flat, 0.0, xp.log(v))
        # Written as "not above", so that parameters that are NaN give NaN instead of an endless search.
        return r, xp.logical_not(xp.log(w) + log_envelope > -drop(r, alpha, p))

    return shape_parameters, envelope, propose, uncentre


_shape_parameters, _envelope, _propose, _uncentre = _formulas(np, np.where)


def _numba(op, node):
    """Make the sampler for Numba: of one number, from a ``Generator`` and the parameters p, a and b."""

    @numba_njit
    def where(condition, x, y):
        return x if condition else y

    shape_parameters, envelope, propose, uncentre = _formulas(np, where, numba_njit)

    @numba_njit
    def sample(rng, p, a, b):
        parameters = envelope(*shape_parameters(float(p), float(a), float(b)))
        accepted, x = False, 0.0
        while not accepted:
            x, accepted = propose(1.0 - rng.random(), 1.0 - rng.random(), 1.0 - rng.random(), *parameters)
        return uncentre(x, float(p), float(a), float(b))

    return sample


def _jax(op, node):
    """Make the sampler for JAX: of an array, from a key, size, dtype and the parameters p, a and b."""
    import jax
    import jax.numpy as jnp

    from pymc_gibbsnn.random._jax import open_uniform

    shape_parameters, envelope, propose, uncentre = _formulas(jnp, jnp.where)

    def sample(key, size, dtype, p, a, b):
        if size is None:
            size = jnp.broadcast_shapes(*map(jnp.shape, (p, a, b)))
        p, a, b = (jnp.broadcast_to(x, size).astype(dtype) for x in (p, a, b))
        parameters = envelope(*shape_parameters(p, a, b))

        def attempt(state):
            key, x, pending = state
            key, subkey = jax.random.split(key)
            proposal, accepted = propose(*open_uniform(subkey, (3, *size), dtype), *parameters)
            return key, jnp.where(pending & accepted, proposal, x), pending & ~accepted

        start = key, jnp.zeros(size, dtype), jnp.ones(size, bool)
        _, x, _ = jax.lax.while_loop(lambda state: state[2].any(), attempt, start)
        return uncentre(x, p, a, b)

    return sample


declare(GeneralisedInverseGaussianRV, numba=_numba, jax=_jax)

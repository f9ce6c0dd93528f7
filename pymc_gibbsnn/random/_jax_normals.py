r"""Standard normals for JAX, two from each hash [1]_.

JAX hashes a counter to two words of 32 random bits for each number, throws one of them away where numbers have single
precision, and inverts the distribution function. Here one word becomes a radius and the other one an angle:

    u₁ ~ U(0, 1],  u₂ ~ U(−2, 2),  r = sqrt(−2 log u₁),  x = r sin(π u₂/2),  y = r cos(π u₂/2),

and (x, y) are two independent standard normals. The hash is the one that JAX has, Threefry [2]_, of the same key. It
has 13 rounds, with which it passes all statistical tests of BigCrush; JAX's 20 are for a wider margin.

XLA, JAX's compiler, would make the whole of this a part of whatever reads x and y, and hash again for each reader; the
branches of a conditional it leaves alone. So the draw stands in both branches of one, and which is taken does not
matter: the other one hashes other counters. Both words travel together as one complex number, for the same reason.

References
----------
.. [1] G. E. P. Box, M. E. Muller. A note on the generation of random normal deviates. Ann. Math. Statist. 29 (1958).
.. [2] J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw. Parallel random numbers: as easy as 1, 2, 3. SC11 (2011).
"""

from __future__ import annotations

import math

import jax
import jax.custom_batching
import jax.numpy as jnp
import numpy as np

from pymc_gibbsnn.random._threefry import threefry

__all__ = ["standard_normals"]

LEAST = 1000  # so many numbers at least are worth the conditional
ROUNDS = 13


def standard_normals(key, shape, dtype):
    """Draw standard normals of a shape, a key and a data type as ``jax.random.normal`` takes them.

    In double precision, on other devices than a CPU and for few numbers, these are JAX's own.
    """
    size = math.prod(shape)
    if jax.dtypes.canonicalize_dtype(dtype) != jnp.float32 or size < LEAST or jax.default_backend() != "cpu":
        return jax.random.normal(key, shape, dtype)
    data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return _of_polar(_polar(data, -(-size // 2)))[:size].reshape(shape)


def _polar(key, count):
    """Draw (r, u₂), as one complex number, ``count`` times for a key (2,)."""

    @jax.custom_batching.custom_vmap
    def draw(keys):
        counters = jnp.arange(count, dtype=jnp.uint32).reshape((1,) * (keys.ndim - 1) + (count,))
        first, second = keys.reshape(-1)[:2]
        return jax.lax.cond(first == second, _draw, _draw, keys, counters + (first == second))

    @draw.def_vmap
    def _(axis_size, in_batched, keys):
        return draw(keys), True

    return draw(key)


def _draw(keys, counters):
    """Draw (r, u₂) for keys (..., 2) and each of the counters (..., count)."""
    radius, angle = threefry((keys[..., :1], keys[..., 1:]), (counters, jnp.zeros_like(counters)), ROUNDS)
    u = (radius.astype(jnp.float32) + 0.5) * np.float32(2**-32)
    quarters = angle.astype(jnp.int32).astype(jnp.float32) * np.float32(2**-30)
    return jax.lax.complex(jnp.sqrt(-2 * jnp.log(u)), quarters)


def _of_polar(z):
    """All r sin(π u₂/2), and then all r cos(π u₂/2)."""
    quarters = z.imag[None] + np.array([[0], [1]], np.float32)  # cos t = sin(t + π/2)
    turn = jnp.round(quarters)
    a = (quarters - turn) * np.float32(math.pi / 2)  # within ±π/4
    square = a * a
    sine = a * (1 + square * (-1 / 6 + square * (1 / 120 + square * (-1 / 5040 + square / 362880))))
    cosine = 1 + square * (-1 / 2 + square * (1 / 24 + square * (-1 / 720 + square / 40320)))
    odd, upper = turn.astype(jnp.int32) & 1, (turn.astype(jnp.int32) & 2) == 0
    wave = jnp.where(odd == 1, cosine, sine)
    return (z.real[None] * jnp.where(upper, wave, -wave)).reshape(-1)

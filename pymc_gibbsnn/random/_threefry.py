"""The hash Threefry [1]_ for JAX, and keys of JAX's random generator whose few numbers cost little.

On a CPU, JAX writes the 20 rounds of the hash as a loop, whose turns are many calls of small functions. Where only some
hundred numbers are drawn, as for the rows of a batch, these calls are nearly all that the draw costs. With the keys
here, the rounds are written out for so few numbers, and more are left to JAX. All numbers are the same as with JAX's
own keys.

References
----------
.. [1] J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw. Parallel random numbers: as easy as 1, 2, 3. SC11 (2011).
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl, threefry_prng_impl

__all__ = ["KEYS", "of_jax", "threefry"]

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = np.uint32(0x1BD11BDA)
MOST = 2048  # so many words of 32 bits at most are hashed without a loop


def threefry(keys, counters, rounds):
    """Hash pairs of counters by a pair of keys, all of which are words of 32 bits, to pairs of words."""
    (k0, k1), (x0, x1) = keys, counters
    keys = k0, k1, k0 ^ k1 ^ PARITY
    x0, x1 = x0 + k0, x1 + k1
    for i in range(rounds):
        rotation = ROTATIONS[i % len(ROTATIONS)]
        x0 = x0 + x1
        x1 = x0 ^ ((x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation)))
        if i % 4 == 3:
            n = i // 4 + 1
            x0, x1 = x0 + keys[n % 3], x1 + keys[(n + 1) % 3] + np.uint32(n)
    return x0, x1


def _is_left_to_jax(words):
    """Whether JAX is to hash so many words: they are many, or numbered in a way that lets devices share them."""
    return words > MOST or jax.config.jax_threefry_partitionable


def _words(key, count):
    """Hash the counters 0, 1, ..., of which the first half is paired with the second, to ``count`` words."""
    counters = np.append(np.arange(count, dtype=np.uint32), np.zeros(count % 2, np.uint32))
    return jnp.concatenate(threefry(key, counters.reshape(2, -1), rounds=20))[:count]


def _split(key, shape):
    """Make new keys, as many as an array of a shape has elements."""
    if _is_left_to_jax(2 * math.prod(shape)):
        return threefry_prng_impl.split(key, shape)
    return _words(key, 2 * math.prod(shape)).reshape(*shape, 2)


def _random_bits(key, width, shape):
    """Draw whole numbers of 8, 16, 32 or 64 random bits."""
    count = math.prod(shape) * width // 32
    if width < 32 or _is_left_to_jax(count):
        return threefry_prng_impl.random_bits(key, width, shape)
    words = _words(key, count)
    if width == 64:
        upper, lower = words.reshape(2, -1).astype(jnp.uint64)
        words = upper << 32 | lower
    return words.reshape(shape)


KEYS = define_prng_impl(
    key_shape=(2,),
    seed=threefry_prng_impl.seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=threefry_prng_impl.fold_in,
    name="threefry2x32 without loops",
    tag="fry",
)
"""The kind of keys, for ``jax.random.wrap_key_data``. With it ``jax.random.gamma`` is slow, and ``poisson`` refuses."""


def of_jax(key):
    """Return a key of JAX's own kind that draws the same numbers, for functions that look at the kind."""
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl="threefry2x32")

"""Special functions that JAX lacks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtri


def open_uniform(key, shape, dtype):
    """Uniform on (0, 1), both ends left out: its logarithm is finite."""
    return jax.random.uniform(key, shape, dtype, minval=jnp.finfo(dtype).tiny)


def ndtri_exp(y):
    """Φ⁻¹(eʸ) for y < 0, without underflow: Newton steps on the concave log Φ from its asymptote in the left tail."""
    right = y > -0.5
    middle = jnp.where(right, -ndtri(-jnp.expm1(jnp.where(right, y, -1.0))), ndtri(jnp.exp(jnp.maximum(y, -10.0))))
    tail = jnp.minimum(y, -4.0)
    # Φ(x) ~ φ(x)/|x|
    x = -jnp.sqrt(-2 * tail - jnp.log(2 * jnp.pi) - jnp.log(-2 * tail - jnp.log(-2 * tail)))
    for _ in range(4):
        log_p = log_ndtr(x)
        log_density = -0.5 * (x * x + jnp.log(2 * jnp.pi))
        x = x - (log_p - tail) * jnp.exp(log_p - log_density)
    return jnp.where(y < -4.0, x, middle)

r"""Normals of one variance: X ~ N(M, v), elementwise, for the many latents that have nothing else in common."""

from __future__ import annotations

import math

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn._compat import jax_sampler, source_key
from pymc_gibbsnn._numba import numba_sampler
from pymc_gibbsnn.random._streams import normals, streams

__all__ = ["IsotropicNormalRV", "isotropic_normal"]

BLOCK = 64  # samples


class IsotropicNormalRV(RandomVariable):
    r"""X ~ N(M, v), elementwise.

    Parameters
    ----------
    m : (n, k)
    v : (), positive
    """

    name = "isotropic_normal"
    signature = "(n,k),()->(n,k)"
    dtype = "floatX"

    def _supp_shape_from_params(self, dist_params, param_shapes=None):
        # The general rule takes Shape(M), of an M that may be rewritten meanwhile.
        shape = dist_params[0].shape if param_shapes is None else param_shapes[0]
        return shape[-2], shape[-1]

    @classmethod
    def rng_fn(cls, rng, m, v, size=None):
        """Draw with NumPy."""
        return (m + np.sqrt(v)[..., None, None] * rng.standard_normal(m.shape)).astype(m.dtype)


isotropic_normal = IsotropicNormalRV()


@numba_sampler(IsotropicNormalRV)
def _numba(op, node):
    @numba_njit
    def sample(rng, m, v):
        (n, k), sd, stream = m.shape, math.sqrt(v.item()), streams(rng, 1)[0]
        new, x = np.empty_like(m), np.empty((BLOCK, k))
        for start in range(0, n, BLOCK):
            normals(stream, x.ravel())
            for i in range(start, min(start + BLOCK, n)):
                for j in range(k):
                    new[i, j] = m[i, j] + sd * x[i - start, j]
        return new

    return sample, source_key(__file__)


@jax_sampler(IsotropicNormalRV)
def _jax(op, node):
    import jax
    import jax.numpy as jnp

    def sample(key, size, dtype, m, v):
        m, v = (jnp.asarray(x, dtype) for x in (m, v))
        return m + jnp.sqrt(v)[..., None, None] * jax.random.normal(key, m.shape, dtype)

    return sample

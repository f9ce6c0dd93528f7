r"""Independent normals with one variance: X ~ N(M, v), elementwise.

This is the conditional distribution of latents that are independent given all the rest. PyTensor's own normal allows a
variance for each element; with one for all, a draw costs much less in Numba.
"""

from __future__ import annotations

import math

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.threads import BLOCK, share
from pymc_gibbsnn.random._streams import normals, streams_of_blocks

__all__ = ["IsotropicNormalRV", "isotropic_normal"]

CACHED = 64  # samples whose normals are drawn at a time, few enough to stay in the nearest cache


class IsotropicNormalRV(RandomVariable):
    r"""Independent normals X ~ N(M, v) with one variance.

    Parameters
    ----------
    m : (n, k)
        Means of k units for n samples.
    v : ()
        Variance of all elements, positive.
    """

    name = "isotropic_normal"
    signature = "(n,k),()->(n,k)"
    dtype = "floatX"

    def _supp_shape_from_params(self, dist_params, param_shapes=None):
        # PyTensor's general rule asks for the shape of M's graph, which may be rewritten meanwhile.
        shape = dist_params[0].shape if param_shapes is None else param_shapes[0]
        return shape[-2], shape[-1]

    @classmethod
    def rng_fn(cls, rng, m, v, size=None):
        """Draw with NumPy.

        Parameters
        ----------
        rng : numpy.random.Generator
        m, v : array
            As in the class; both may have one more axis in front, for several draws at once.
        size : None
            PyTensor passes it; the shape of the draw is that of ``m``.
        """
        return (m + np.sqrt(v)[..., None, None] * rng.standard_normal(m.shape)).astype(m.dtype)


isotropic_normal = IsotropicNormalRV()


def _numba(op, node):
    """Make the sampler for Numba, which takes a ``Generator`` and the parameters of :class:`IsotropicNormalRV`."""

    @numba_njit
    def sample_block(b, streams, m, sd, new):
        # Draws block b of samples, with its stream, into the same rows of ``new``.
        k, stream, end = m.shape[1], streams[b], min((b + 1) * BLOCK, len(m))
        x = np.empty((CACHED, k))
        for start in range(b * BLOCK, end, CACHED):
            normals(stream, x.ravel())
            for i in range(start, min(start + CACHED, end)):
                for j in range(k):
                    new[i, j] = m[i, j] + sd * x[i - start, j]

    @numba_njit
    def sample(rng, m, v):
        new, streams = np.empty_like(m), streams_of_blocks(rng, len(m))
        share(sample_block, len(streams), (streams, m, math.sqrt(v.item()), new))
        return new

    return sample


def _jax(op, node):
    """Make the sampler for JAX, which takes a key, size, dtype and the parameters of :class:`IsotropicNormalRV`."""
    import jax
    import jax.numpy as jnp

    def sample(key, size, dtype, m, v):
        m, v = (jnp.asarray(x, dtype) for x in (m, v))
        return m + jnp.sqrt(v)[..., None, None] * jax.random.normal(key, m.shape, dtype)

    return sample


declare(IsotropicNormalRV, numba=_numba, jax=_jax)

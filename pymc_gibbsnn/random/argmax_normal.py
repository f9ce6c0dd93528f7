r"""Normals of which one is known to be the greatest: the distribution of the last pre-activations given a class label.

For one sample with the label y, and classes α = 0, ..., k − 1,

    p(z) ∝ Π_α exp(−(z_α − m_α)²/2v) · Π_{α≠y} 1[z_y > z_α]

(Piccioli, Troiani, Zdeborová, arXiv 2306.02729, appendix E). :class:`ArgmaxNormalRV` makes one Gibbs pass over two
blocks from the current z: z_y given the others is N(m_y, v) restricted to values above their maximum; the others given
z_y are independent, N(m_α, v) restricted to values below z_y.
"""

from __future__ import annotations

import math

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.tensor.random.op import RandomVariable
from scipy.special import log_ndtr, ndtri_exp

from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.threads import BLOCK, share
from pymc_gibbsnn.random._half_line import excess
from pymc_gibbsnn.random._streams import normals, streams_of_blocks
from pymc_gibbsnn.random.truncated_normal import Interval

__all__ = ["ArgmaxNormalRV", "argmax_normal"]


class ArgmaxNormalRV(RandomVariable):
    r"""One Gibbs pass over pre-activations Z with prior N(M, v), given the label y = argmax Z of each row.

    The distribution of n samples and k classes is that of the module; this variable is not a draw of it, but one
    transition that leaves it invariant. A draw has shape (n, k).

    Parameters
    ----------
    z : (n, k)
        Current values, which agree with the labels.
    m : (n, k)
        Prior means.
    v : ()
        Prior variance, positive.
    y : (n,)
        Labels, whole numbers from 0 to k − 1.
    """

    name = "argmax_normal"
    signature = "(n,k),(n,k),(),(n)->(n,k)"
    dtype = "floatX"

    @classmethod
    def rng_fn(cls, rng, z, m, v, y, size=None):
        """Draw with NumPy and SciPy.

        Parameters
        ----------
        rng : numpy.random.Generator
        z, m, v, y : array
            As in the class.
        size : None
            PyTensor passes it; the shape of the draw is that of ``m``.
        """
        return _two_blocks(1.0 - rng.random((2, *m.shape)), z, m, v, y, np, log_ndtr, ndtri_exp).astype(m.dtype)


argmax_normal = ArgmaxNormalRV()


def _two_blocks(u, z, m, v, y, xp, log_ndtr, ndtri_exp):
    """Make the pass from uniform numbers, by inverting distribution functions; for NumPy and JAX.

    Parameters
    ----------
    u : array of shape (2, n, k)
        Uniform numbers in (0, 1]: the first entry of each row of u[0] serves the labelled class, u[1] the others.
    z, m, v, y : array
        As in :class:`ArgmaxNormalRV`.
    xp : module
        ``numpy`` or ``jax.numpy``.
    log_ndtr, ndtri_exp : callable
        The logarithm of Φ, and the inverse of that function, for arrays of ``xp``.

    Returns
    -------
    array of shape (n, k)
    """
    is_label, sd = xp.arange(z.shape[1]) == y[:, None], v**0.5
    others = xp.where(is_label, -xp.inf, z).max(1, keepdims=True)
    mean = xp.where(is_label, m, 0).sum(1, keepdims=True)
    above = Interval.between((others - mean) / sd, None, xp, log_ndtr).invert(u[0, :, :1], xp, ndtri_exp)
    highest = xp.maximum(mean + sd * above, others)
    below = Interval.between(None, (highest - m) / sd, xp, log_ndtr).invert(u[1], xp, ndtri_exp)
    return xp.where(is_label, highest, xp.minimum(m + sd * below, highest))


def _numba(op, node):
    """Make the sampler for Numba, which takes a ``Generator`` and the parameters of :class:`ArgmaxNormalRV`."""

    @numba_njit
    def sample_block(b, streams, z, m, sd, y, new):
        # Draws block b of samples, with its stream, into the same rows of ``new``.
        (n, k), stream, begin = m.shape, streams[b], b * BLOCK
        x = np.empty(BLOCK * k)
        normals(stream, x)
        for i in range(begin, min(begin + BLOCK, n)):
            others, place, label = -np.inf, (i - begin) * k, y[i]
            for j in range(k):
                others = max(others, z[i, j]) if j != label else others
            highest = others + sd * excess(stream, x[place + label], (others - m[i, label]) / sd)
            for j in range(k):
                if j != label:
                    new[i, j] = highest - sd * excess(stream, x[place + j], (m[i, j] - highest) / sd)
            new[i, label] = highest

    @numba_njit
    def sample(rng, z, m, v, y):
        new, streams = np.empty_like(m), streams_of_blocks(rng, len(m))
        share(sample_block, len(streams), (streams, z, m, math.sqrt(v.item()), y, new))
        return new

    return sample


def _jax(op, node):
    """Make the sampler for JAX, which takes a key, size, dtype and the parameters of :class:`ArgmaxNormalRV`."""
    import jax.numpy as jnp

    from pymc_gibbsnn.random._jax import log_ndtr, ndtri_exp, open_uniform

    def sample(key, size, dtype, z, m, v, y):
        z, m, v = (jnp.asarray(x, dtype) for x in (z, m, v))
        u = open_uniform(key, (2, *m.shape), dtype)
        return _two_blocks(u, z, m, v, y, jnp, log_ndtr, ndtri_exp)

    return sample


declare(ArgmaxNormalRV, numba=_numba, jax=_jax)

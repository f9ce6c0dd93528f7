"""Gamma variables, which JAX is to draw all at once; other backends draw them as PyTensor does.

JAX draws them one after the other if it is given keys that are not of its own kind, as those of :mod:`._threefry`.
"""

from __future__ import annotations

from pytensor.tensor.random.basic import GammaRV

from pymc_gibbsnn.backends.jax_backend import declare_jax

__all__ = ["VectorisedGammaRV", "vectorised_gamma"]


class VectorisedGammaRV(GammaRV):
    """Gamma variables of a shape and a scale."""


vectorised_gamma = VectorisedGammaRV()


def _jax(op, node, **kwargs):
    """Make the sampler for JAX, which takes a key, size, dtype, the shape and the scale."""
    import jax

    from pymc_gibbsnn.random._threefry import of_jax

    def sample(key, size, dtype, shape, scale):
        size = jax.numpy.broadcast_shapes(shape.shape, scale.shape) if size is None else tuple(int(n) for n in size)
        return jax.random.gamma(of_jax(key), shape, size, dtype) * scale

    return sample


declare_jax(VectorisedGammaRV, _jax)

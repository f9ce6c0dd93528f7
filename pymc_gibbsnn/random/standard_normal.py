"""Standard normals, which JAX is to draw in pairs; other backends draw them as PyTensor does."""

from __future__ import annotations

from pytensor.tensor.random.basic import NormalRV

from pymc_gibbsnn.backends.jax_backend import declare_jax

__all__ = ["StandardNormalRV", "standard_normal"]


class StandardNormalRV(NormalRV):
    """Normals of a mean and a standard deviation, of which so many are drawn that the time counts."""


standard_normal = StandardNormalRV()


def _jax(op, node, **kwargs):
    """Make the sampler for JAX, which takes a key, size, dtype, the mean and the standard deviation."""
    from pymc_gibbsnn.random._jax_normals import standard_normals

    def sample(key, size, dtype, mean, sd):
        return mean + sd * standard_normals(key, tuple(int(n) for n in size), dtype)

    return sample


declare_jax(StandardNormalRV, _jax)

"""What XLA has to be told."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_gibbsnn.backends.jax_backend import xla_options
from pymc_gibbsnn.backends.modes import compilation_mode

ROWS = 4096  # the fewest sums that XLA, on its own, gets wrong
Z = np.random.default_rng(0).normal(size=(ROWS, 8))


def risky(u, z, xp):
    """What XLA, left alone, computes wrongly on a CPU for so many rows."""
    return (xp.exp(u)[:, None] * z).sum(1) + xp.expm1(u) + xp.expm1(-u)


@pytest.mark.skipif(not xla_options("cpu"), reason="this jaxlib has no YNNPACK")
def test_xla_still_has_to_be_told():
    """When this fails, the options can go."""
    u, z = np.linspace(-1, 1, ROWS, dtype="float32"), Z.astype("float32")
    alone = jax.jit(lambda u, z: risky(u, z, jax.numpy))(u, z)
    assert not np.allclose(alone, risky(u, z, np), atol=1e-3)


def test_a_step_in_jax_sums_many_rows_right():
    u, z = pt.vector("u"), pt.matrix("z")
    mode = compilation_mode("JAX")
    found = pytensor.function([u, z], risky(u, z, pt), mode=mode)
    x = np.linspace(-1, 1, ROWS)
    np.testing.assert_allclose(found(x, Z), risky(x, Z, np), rtol=1e-6, atol=1e-6)

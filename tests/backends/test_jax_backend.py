"""What XLA has to be told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.jax_backend import keep_programs, xla_options
from pymc_gibbsnn.backends.modes import compilation_mode

ROWS = 4096  # the fewest sums that XLA, on its own, gets wrong
Z = np.random.default_rng(0).normal(size=(ROWS, 8))


def risky(u, z, xp):
    """What XLA, left alone, computes wrongly on a CPU for so many rows."""
    return (xp.exp(u)[:, None] * z).sum(1) + xp.expm1(u) + xp.expm1(-u)


@pytest.mark.cpu
@pytest.mark.skipif(not xla_options("cpu"), reason="this jaxlib has no YNNPACK")
def test_xla_still_has_to_be_told():
    """When this fails, the options can go."""
    u, z = np.linspace(-1, 1, ROWS, dtype="float32"), Z.astype("float32")
    alone = jax.jit(lambda u, z: risky(u, z, jnp))(u, z)
    assert not np.allclose(alone, risky(u, z, np), atol=1e-3)


def test_a_step_in_jax_sums_many_rows_right():
    u, z = pt.vector("u"), pt.matrix("z")
    mode = compilation_mode("JAX")
    found = pytensor.function([u, z], risky(u, z, pt), mode=mode)
    x = np.linspace(-1, 1, ROWS)
    np.testing.assert_allclose(found(x, Z), risky(x, Z, np), rtol=1e-6, atol=1e-6)


def test_class_labels_of_many_rows():
    """PyTensor 2 counts them with integers of 8 bits."""
    labels = np.arange(200) % 3
    model = pmg.classical_mlp(np.random.default_rng(0).normal(size=(200, 2)), labels, 2)
    step = pmg.MALA(model=model, step_size=0.01, rng=1, compile_kwargs={"mode": "JAX"})
    point, [stats] = step.step(model.initial_point())
    np.testing.assert_allclose(stats["lp"], model.compile_logp(mode="AS_WRITTEN")(point))


UNARY = {
    "exp": jnp.exp,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "relu": jax.nn.relu,
    "softplus": jax.nn.softplus,
    "log1p": lambda x: jnp.log1p(jnp.abs(x)),
    "erf": jax.scipy.special.erf,
    "sqrt": lambda x: jnp.sqrt(jnp.abs(x)),
    "abs": jnp.abs,
    "power": lambda x: jnp.abs(x) ** 1.5,
    "log of the normal distribution": jax.scipy.stats.norm.logcdf,
    "gammaln": lambda x: jax.scipy.special.gammaln(jnp.abs(x) + 1),
}


BESIDE_SUMS = [
    lambda f, u, z: z.sum(1) + f(u) + f(-u),
    lambda f, u, z: z.max(1) + f(u) - f(2 * u),
    lambda f, u, z: f(z).sum(1) + (z * z).sum(1) * f(u) - f(-u),
    lambda f, u, z: (f(z @ z.T[:, :8]) - f(u)[:, None]).sum(1) + f(-u),
    lambda f, u, z: z.sum(1) + (z @ f(z[:8])).sum(1) + f(u) + f(-u),
]


@pytest.mark.cpu
@pytest.mark.parametrize("f", UNARY.values(), ids=list(UNARY))
def test_only_programs_with_expm1_have_to_be_told(f):
    """Functions that stand twice beside a sum over many rows."""
    u, z = np.linspace(-1, 1, ROWS, dtype="float32"), Z.astype("float32")
    for program in BESIDE_SUMS:
        lowered = jax.jit(lambda u, z, program=program: program(f, u, z)).lower(u, z)
        assert xla_options("cpu", lowered.as_text()) == {}
        with jax.disable_jit():  # one operation after another
            expected = program(f, u, z)
        np.testing.assert_allclose(lowered.compile()(u, z), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not xla_options("cpu"), reason="this jaxlib has no YNNPACK")
def test_programs_with_expm1_are_found_by_their_text():
    text = jax.jit(lambda u, z: risky(u, z, jnp)).lower(np.ones(2), np.ones((2, 2))).as_text()
    assert xla_options("cpu", text) == xla_options("cpu")


@pytest.mark.parametrize(("directory", "is_kept"), [(None, True), ("/mine", True), (None, False)])
def test_programs_are_kept_on_disk_unless_the_user_has_said_otherwise(directory, is_kept):
    settings = {"jax_compilation_cache_dir": directory, "jax_enable_compilation_cache": is_kept}
    before = {name: getattr(jax.config, name) for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        keep_programs()
        found = jax.config.jax_compilation_cache_dir
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
    ours = str(pytensor.config.base_compiledir / "jax")
    assert found.startswith(ours) if directory is None and is_kept else found == directory

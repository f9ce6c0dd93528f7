"""How functions are compiled for JAX: the operations of ours that PyTensor's linker must know, and settings of XLA.

XLA is JAX's compiler. Importing JAX takes seconds and makes forks unsafe, so it is imported where it is first needed.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from hashlib import sha256
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numba.core.registry import cpu_target
from pytensor.graph.basic import Constant
from pytensor.graph.op import Op
from pytensor.link.jax.linker import JAXLinker
from pytensor.tensor.basic import ARange
from pytensor.tensor.random.op import RandomVariable

__all__ = [
    "ROWS_ARE_SPREAD",
    "ExactJAXLinker",
    "by_platform",
    "declare_jax",
    "jax_settings",
    "keep_programs",
    "random_state",
    "refuse_jax_in_fork",
    "register_jax",
    "xla_options",
]

ROWS_ARE_SPREAD: ContextVar[bool] = ContextVar("ROWS_ARE_SPREAD", default=False)
"""Whether the program being traced has its rows on several devices, which are to exchange sums of them alone."""

_IMPLEMENTATIONS: list[tuple[type[Op], Callable]] = []


def declare_jax(op_class: type[Op], implementation: Callable) -> None:
    """Declare the function that makes an Op's JAX function, or a RandomVariable's JAX sampler.

    PyTensor's dispatchers hear of it from :func:`register_jax`, when something is to run in JAX.
    """
    _IMPLEMENTATIONS.append((op_class, implementation))


def register_jax() -> None:
    """Tell PyTensor's JAX linker of the implementations declared so far."""
    from pytensor.link.jax.dispatch.basic import jax_funcify
    from pytensor.link.jax.dispatch.random import jax_sample_fn

    while _IMPLEMENTATIONS:
        op_class, implementation = _IMPLEMENTATIONS.pop()
        dispatcher = jax_sample_fn if issubclass(op_class, RandomVariable) else jax_funcify
        dispatcher.register(op_class, implementation)


def _arange(op: ARange, node, **kwargs) -> Callable:
    """Make the function of a range for JAX, with whole numbers among its constants in 64 bits.

    PyTensor writes small ones in 8 bits, and its version 2 hands them to JAX as they are, which then fails to count
    more than 127 rows of class labels.
    """
    from pytensor.link.jax.dispatch.tensor_basic import jax_funcify_ARange

    ends = [
        pt.constant(x.data, dtype="int64") if isinstance(x, Constant) and x.type.dtype.startswith("int") else x
        for x in node.inputs
    ]
    return jax_funcify_ARange(op, node=op.make_node(*ends), **kwargs)


declare_jax(ARange, _arange)


def xla_options(platform: str, program: str = "exponential_minus_one") -> dict[str, str]:
    """Return the options with which XLA computes a program correctly on a platform.

    On a CPU, XLA as of jaxlib 0.10.2 hands sums along an axis, and what is computed beside them, to the library
    YNNPACK. From 4,096 sums on, of as many chains or rows, programs come out wrong in which expm1 stands twice beside
    a sum, such as (exp(u)[:, None] * z).sum(1) + expm1(u) + expm1(-u). These options keep such programs from the
    library. Others are left to it, which makes some of them twice as fast.

    Parameters
    ----------
    platform : str
        "cpu" or another.
    program : str
        The lowered program's text; by default it is taken to hold expm1.
    """
    concerned = platform == "cpu" and "exponential_minus_one" in program
    return _without_ynnpack() if concerned else {}


@cache
def _without_ynnpack() -> dict[str, str]:
    """Return the option that keeps programs from YNNPACK. A jaxlib that does not know it has no such library."""
    import jax

    options = {"xla_cpu_experimental_ynn_fusion_type": ""}
    probe = jax.device_put(np.float32(0), jax.devices("cpu")[0])
    try:
        jax.jit(lambda x: x).lower(probe).compile(compiler_options=options)
    except jax.errors.JaxRuntimeError:
        return {}
    return options


class ExactJAXLinker(JAXLinker):
    """PyTensor's linker for JAX, which here compiles with :func:`xla_options`."""

    def jit_compile(self, fn):
        """Compile a function, for fixed values of those inputs that are lengths of axes."""
        import jax

        static = self.scalar_shape_inputs
        run = jax.jit(fn, static_argnums=static, compiler_options=xla_options(jax.default_backend()))
        if not static:
            return run
        return lambda *inputs: run(*(int(x) if i in static else x for i, x in enumerate(inputs)))


def refuse_jax_in_fork() -> None:
    """Raise RuntimeError in a forked process: it would wait for ever for JAX's threads, which do not survive a fork."""
    if type(multiprocessing.current_process()).__name__ == "ForkProcess":
        raise RuntimeError("A step compiled for JAX hangs in a forked process: pass cores=1 or mp_ctx='forkserver'.")


def random_state(rng: np.random.Generator, jax: bool) -> Any:
    """Return a random generator in the form in which a compiled function, for JAX or not, takes it."""
    if not jax:
        return rng
    from pytensor.link.jax.dispatch import jax_typify

    # NumPy may have kept half of a 64-bit number for the next draw, which JAX cannot hold in single precision.
    state = rng.bit_generator.state | {"has_uint32": 0, "uinteger": 0}
    rng = np.random.Generator(type(rng.bit_generator)())
    rng.bit_generator.state = state
    return jax_typify(rng)


def keep_programs() -> None:
    """Let JAX keep what it compiles on disk, beside what PyTensor keeps, unless the user has said otherwise.

    What the user has said is a directory, or that nothing is to be kept, by JAX's configuration or its environment
    variables. Code for a CPU serves CPUs of its kind alone, by which JAX does not distinguish what it keeps: each kind
    has a directory.
    """
    import jax

    if jax.config.jax_compilation_cache_dir is None and jax.config.jax_enable_compilation_cache:
        machine = sha256(repr(cpu_target.target_context.codegen().magic_tuple()).encode()).hexdigest()[:16]
        jax.config.update("jax_compilation_cache_dir", str(pytensor.config.base_compiledir / "jax" / machine))


def by_platform(function: Callable, *arguments: Any, cpu: int | None, gpu: int | None) -> Any:
    """Call ``function(count, *arguments)`` in a JAX program, with a count that depends on where the program runs.

    A loop that ends when the numbers say so costs a GPU far more for each turn than for what it computes in it, and
    goes on until the last of many chains has ended: there it should do more in each turn than on a CPU.

    Parameters
    ----------
    function : callable
        The function to call.
    *arguments : array
        Its arguments after the count.
    cpu, gpu : int or None
        The count on a CPU, and on any other device.

    Returns
    -------
    tree of array
        What the function returns.
    """
    import jax

    return jax.lax.platform_dependent(*arguments, cpu=partial(function, cpu), default=partial(function, gpu))


@contextmanager
def jax_settings(rows_are_spread: bool = False) -> Iterator[None]:
    """Let JAX, while the context lasts, compute products in full precision, which GPUs round by default.

    Random numbers are made in pairs, which halves their cost in single precision, unless rows are spread over devices.
    """
    import jax

    before = ROWS_ARE_SPREAD.set(rows_are_spread)
    try:
        with jax.default_matmul_precision("highest"), jax.threefry_partitionable(rows_are_spread):
            yield
    finally:
        ROWS_ARE_SPREAD.reset(before)

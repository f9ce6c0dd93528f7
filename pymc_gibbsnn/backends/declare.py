"""One declaration of how Numba and JAX compute a random variable or another operation of this package.

The implementation in NumPy is a method of its class: ``rng_fn`` of a RandomVariable, ``perform`` of another operation.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path

from numba.core.dispatcher import Dispatcher
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import register_funcify_and_cache_key
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn.backends.jax_backend import declare_jax

__all__ = ["SAMPLED", "code_key", "declare", "key_of_sources", "of_any_layout", "properties", "source_key"]

ROOT = Path(__file__).parents[2]
PACKAGE = __name__.partition(".")[0]

SAMPLED: list[type[RandomVariable]] = []
"""The classes of random variables that have been declared so far."""


def declare(op_class: type[Op], *, numba: Callable, jax: Callable | None = None) -> None:
    """Declare how Numba and JAX are to compute a random variable or another operation.

    PyTensor keeps compiled Numba code on disk under a key. The key says what the code depends on: the class, the
    properties of the operation, and the sources of the module in which ``numba`` is defined and of all modules of this
    package that it imports, one through the other. Where compiled code depends on more, such as known shapes, ``numba``
    says so.

    Parameters
    ----------
    op_class : type
        A subclass of PyTensor's ``Op`` or ``RandomVariable``.
    numba : callable
        ``numba(op, node)`` makes the function that Numba is to compile. For a random variable this function makes one
        draw, from a ``Generator`` and the parameters. In place of it ``numba`` may return ``(function, more)``, where
        ``more`` is whatever else the function depends on, as an object whose ``repr`` says all of it; it then stands
        for the properties of the operation, too. If ``more`` is None, the compiled code is not kept on disk.
    jax : callable, optional
        ``jax(op, node)`` makes the function for JAX, of (key, size, dtype, *parameters) for a random variable. None if
        JAX never meets this operation.
    """

    def function_and_key(op: Op, node, **kwargs) -> tuple[Callable, str | None]:
        implementation = numba(op, node)
        function, more = implementation if isinstance(implementation, tuple) else (implementation, properties(op))
        return function, None if more is None else code_key(op_class, more, numba.__module__)

    def function_and_number(op: RandomVariable, node) -> tuple[Callable, int | None]:
        function, key = function_and_key(op, node)
        return function, None if key is None else int(key, 16)  # PyTensor wants a number for random variables

    if issubclass(op_class, RandomVariable):
        numba_core_rv_funcify.register(op_class, function_and_number)
        SAMPLED.append(op_class)
    else:
        register_funcify_and_cache_key(op_class)(function_and_key)
    if jax is not None:
        declare_jax(op_class, lambda op, node, **kwargs: jax(op, node))


def of_any_layout(kernel: Dispatcher, *inputs: int) -> Dispatcher:
    """Say that a kernel may be compiled once for all layouts in memory of the inputs at these positions; return it."""
    kernel.any_layout = inputs
    return kernel


def properties(op: Op) -> tuple:
    """Return the values of an operation's ``__props__``; nothing for a random variable, whose inputs say all."""
    return () if isinstance(op, RandomVariable) else tuple(getattr(op, name) for name in op.__props__)


def code_key(op_class: type[Op], more: object, module: str) -> str:
    """Return the key of an operation's compiled code: of its class, what else the code depends on, and the sources."""
    return sha256(repr((op_class.__module__, op_class.__qualname__, more, source_key(module))).encode()).hexdigest()


@cache
def source_key(module: str) -> str:
    """Return a key that changes with the source of a module, and with those of the modules of ours that it imports."""
    return key_of_sources(module, ROOT)


def key_of_sources(module: str, root: Path) -> str:
    """Compute the key of :func:`source_key` for a copy of the package that lies in the folder ``root``."""
    sources: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _path(name, root)
        if name not in sources and path is not None:
            sources[name] = path.read_bytes()
            waiting += _imported(sources[name])
    return sha256(repr(sorted(sources.items())).encode()).hexdigest()


def _path(module: str, root: Path) -> Path | None:
    """Return the path of a module's source below ``root``; None if there is no such module."""
    place = root.joinpath(*module.split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.exists()), None)


def _imported(source: bytes) -> list[str]:
    """List what a source imports from this package, at the top or inside a function: modules and names in them."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if name.startswith(f"{PACKAGE}.")]

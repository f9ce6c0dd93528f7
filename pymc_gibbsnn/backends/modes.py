"""How PyTensor makes graphs, and the mode in which it compiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytensor
from pytensor.compile.mode import Mode, get_mode
from pytensor.link.jax.linker import JAXLinker

from pymc_gibbsnn.backends.jax_backend import ExactJAXLinker, register_jax

__all__ = ["compilation_mode", "uses_jax", "without_traces"]


def compilation_mode(mode: str | Mode | None) -> Mode:
    """Return the mode to compile with: Numba, if neither the user nor PyTensor's configuration names another one."""
    if mode is None and pytensor.config.mode == "Mode" and pytensor.config.linker == "auto":
        mode = "NUMBA"
    mode = get_mode(mode)
    if uses_jax(mode):
        register_jax()
        if type(mode.linker) is JAXLinker:
            mode = _exact(mode)
    return mode


@cache
def _exact(mode: Mode) -> Mode:
    """Return the one mode like this one that compiles for JAX without losing digits."""
    return Mode(ExactJAXLinker(), mode.provided_optimizer, mode.optdb)


def uses_jax(mode: Mode) -> bool:
    """Whether a mode compiles for JAX."""
    return isinstance(mode.linker, JAXLinker)


@contextmanager
def without_traces() -> Iterator[None]:
    """Let PyTensor not note which lines of a program made each node of a graph: a sixth of the time to make it."""
    with pytensor.config.change_flags(traceback__limit=0):
        yield

"""Runs of several processes, on one machine or on many, that JAX has joined by ``jax.distributed.initialize``.

Every process runs the same program on devices of its own. All of them must call the functions below, and JAX, in the
same order, with arrays of the same shapes. Where there is one process, these functions return what they are given.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from jax.experimental import multihost_utils

__all__ = ["all_say", "fetch", "first_says", "is_first", "one_of_many"]


def one_of_many() -> bool:
    """Whether there are other processes."""
    return jax.process_count() > 1


def is_first() -> bool:
    """Whether this is the process that writes files and shows the progress."""
    return jax.process_index() == 0


def all_say(**numbers: int) -> dict[str, np.ndarray]:
    """Return what each process says of some numbers, (process,), by their names."""
    mine = np.asarray([*numbers.values()], "int32")
    said = np.asarray(multihost_utils.process_allgather(mine)) if one_of_many() else mine[None]
    return dict(zip(numbers, said.T, strict=True))


def first_says(make: Callable[[], bytes]) -> bytes:
    """Return what a function returns in the first process. It is not called in the others.

    Raises
    ------
    RuntimeError
        In the others, if it raises an error in the first process, where that error is raised as it is.
    """
    if not one_of_many():
        return make()
    error, answer = None, b""
    if is_first():
        try:
            answer = b"+" + make()
        except Exception as reason:
            error, answer = reason, b"-" + str(reason).encode()
    length = int(all_say(length=len(answer))["length"][0])
    buffer = np.zeros(length, "uint8")
    if is_first():
        buffer[:] = np.frombuffer(answer, "uint8")
    answer = np.asarray(multihost_utils.broadcast_one_to_all(buffer)).astype("uint8").tobytes()
    if error:
        raise error
    if answer[:1] == b"-":
        raise RuntimeError(f"The first process has stopped: {answer[1:].decode()}")
    return answer[1:]


def fetch(x: jax.Array, count: int | None = None) -> np.ndarray:
    """Copy an array to the host of every process, or the first ``count`` of its rows."""
    if x.is_fully_addressable:
        return np.array(np.asarray(x)[:count] if count is not None else x)
    if count is not None:  # a few lengths, each of which is compiled
        x = x[: min(len(x), 1 << (count - 1).bit_length())]
    whole = np.array(multihost_utils.process_allgather(x, tiled=True))
    return whole if count is None else whole[:count]

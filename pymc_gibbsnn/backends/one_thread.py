"""What must not happen in two threads at once: PyTensor's flags are changed, and compiled functions are called.

While PyTensor and PyMC compile, they change flags of the whole process, such as the mode and the C compiler, and then
put back what they found. Of two threads that compile at once, one finds what the other has changed, and puts that back:
all later fits then compile in another mode, are tens of times slower, and draw other numbers from the same seed. Here
such a change is seen by the thread that makes it, and by no other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from inspect import currentframe
from typing import Any

from pytensor.configparser import ConfigParam, PyTensorConfigParser

__all__ = ["ONE_THREAD", "keep_flags_in_threads", "lock_across_forks"]


def lock_across_forks() -> threading.RLock:
    """Make a lock that no other thread holds in a process that is forked, where nobody would ever release it."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


# A thread must hold this while it calls a compiled function that other threads may call, whose inputs have one place
# each, and while it compiles a sweep, so that no chain is forked meanwhile.
ONE_THREAD = lock_across_forks()

LIBRARIES = "pymc", "pymc_gibbsnn", "pytensor"


class _Flags(threading.local):
    """The flags that this thread has changed, with their values."""

    changed: dict[ConfigParam, Any] = {}  # noqa: RUF012  never changed in place


_flags = _Flags()


def keep_flags_in_threads() -> None:
    """Let flags of PyTensor that it, PyMC or this package changes for a while be changed in one thread alone.

    A user's own ``config.change_flags(...)`` holds in all threads, as before.
    """
    PyTensorConfigParser.change_flags = _in_this_thread_or(PyTensorConfigParser.change_flags)
    ConfigParam.__get__ = _of_this_thread_or(ConfigParam.__get__)


def _in_this_thread_or(change: Callable[..., AbstractContextManager]) -> Callable[..., AbstractContextManager]:
    """Make the method that changes flags, from the one that changes them in all threads."""

    def change_flags(self, **flags):
        values = {vars(type(self))[name]: value for name, value in flags.items()}
        caller = currentframe().f_back.f_globals.get("__name__", "").partition(".")[0]
        if caller in LIBRARIES or values.keys() & _flags.changed.keys():
            return _in_this_thread(values)
        return change(self, **flags)

    change_flags.__doc__ = change.__doc__
    return change_flags


@contextmanager
def _in_this_thread(values: dict[ConfigParam, Any]) -> Iterator[None]:
    """Change flags, given with their new values, in this thread while the context lasts."""
    before, applied = _flags.changed, {flag: flag.apply(value) for flag, value in values.items()}
    for flag, value in applied.items():
        flag.validate(value)
    _flags.changed = before | applied
    try:
        yield
    finally:
        _flags.changed = before


def _of_this_thread_or(read: Callable) -> Callable:
    """Make the method by which the value of a flag is read, from the one that reads it for all threads."""

    def get(self, config, kind, delete_key=False):
        changed = _flags.changed
        return changed[self] if self in changed else read(self, config, kind, delete_key)

    return get


keep_flags_in_threads()

"""What Numba keeps on disk: the user is told of what is not there, and damaged files are deleted and made anew.

A full disk, or a loss of power, leaves files empty or cut short. Numba would raise an error wherever it reads one, in
every process, for good. What is changed here serves all that Numba keeps: kernels and graphs of this package, and the
functions of PyTensor's that they call.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps

from numba.core import event
from numba.core.caching import IndexDataCacheFile

__all__ = ["GRAPH", "forgive_damage", "telling_of_compilation"]

METHODS = "_load_index", "_load_data", "_data_path"
GRAPH = "numba_funcified_fgraph"  # the name that PyTensor gives the function of a graph


def forgive_damage() -> None:
    """Let Numba go on where a file of its cache cannot be read, as if the file had never been there."""
    if not all(hasattr(IndexDataCacheFile, name) for name in METHODS):  # Numba has changed: damage remains an error
        return
    IndexDataCacheFile._load_index = _or_else(IndexDataCacheFile._load_index, dict, lambda files: files._index_path)
    IndexDataCacheFile._load_data = _or_else(IndexDataCacheFile._load_data, lambda: None, IndexDataCacheFile._data_path)


def _or_else(read: Callable, nothing: Callable, path_of: Callable[..., str]) -> Callable:
    """Make a method that reads a file and, if its bytes mean nothing, deletes it, warns and returns ``nothing()``."""

    @wraps(read)
    def read_or_delete(files: IndexDataCacheFile, *name: str):
        try:
            return read(files, *name)
        except OSError:
            raise
        except Exception as error:  # of garbage, pickle raises errors of any kind, where it tells of a size MemoryError
            path = path_of(files, *name)
            with suppress(FileNotFoundError):  # another process may have met it, too
                os.unlink(path)
            warnings.warn(
                f"The file {path} of Numba's cache is damaged ({type(error).__name__}: {error}). It is deleted, and "
                f"what it held is compiled anew.",
                UserWarning,
                stacklevel=2,
            )
            return nothing()

    return read_or_delete


class _Teller(event.Listener):
    """Tells the user, once, that the function of a graph is not found on disk and is compiled."""

    def __init__(self, message: str):
        self.message, self.has_told = message, False

    def on_start(self, event):
        if not self.has_told and event.data["dispatcher"].py_func.__name__ == GRAPH:
            self.has_told = True
            logging.getLogger("pymc.gibbsnn").info(self.message)

    def on_end(self, event):
        pass


@contextmanager
def telling_of_compilation(message: str) -> Iterator[None]:
    """Tell the user, by PyMC's logger, of a graph that is compiled in the context since it is not on disk."""
    with event.install_listener("numba:compile", _Teller(message)):
        yield


forgive_damage()

"""Damaged files of Numba's cache: they are deleted, and what they held is compiled anew.

A full disk, or a loss of power, leaves files empty or cut short. Numba would raise an error wherever it reads one, in
every process, for good. What is changed here serves all that Numba keeps: kernels and graphs of this package, and the
functions of PyTensor's that they call.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import wraps

from numba.core.caching import IndexDataCacheFile

__all__ = ["forgive_damage"]


def forgive_damage() -> None:
    """Let Numba go on where a file of its cache cannot be read, as if the file had never been there."""
    IndexDataCacheFile._load_index = _or_else(IndexDataCacheFile._load_index, dict, lambda files: files._index_path)
    IndexDataCacheFile._load_data = _or_else(IndexDataCacheFile._load_data, lambda: None, IndexDataCacheFile._data_path)


def _or_else(read: Callable, nothing: Callable, path_of: Callable[..., str]) -> Callable:
    """Make a method that reads a file and, if its bytes mean nothing, deletes it, warns and returns ``nothing()``."""

    @wraps(read)
    def read_or_delete(files: IndexDataCacheFile, *name: str):
        try:
            return read(files, *name)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # of garbage, pickle raises errors of any kind
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

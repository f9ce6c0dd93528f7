"""A key for PyTensor's cache of compiled Numba code, which does not see what that code calls."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

__all__ = ["source_key"]

SHARED = [Path(__file__).parent, Path(__file__).parents[1] / "random"]  # what all kernels may call


@cache
def source_key(file: str | None = None) -> int:
    """A number that changes whenever the sources do that a kernel may call.

    These are the modules of the folders ``backends`` and ``random`` and, if a file is given, those beside it.
    """
    folders = {*SHARED, *([Path(file).parent] if file else [])}
    sources = sorted(path for folder in folders for path in folder.glob("*.py"))
    return int.from_bytes(sha256(b"".join(path.read_bytes() for path in sources)).digest()[:6], "big")

"""Files that survive a crash: each is replaced as a whole, and one process at a time writes them."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

__all__ = ["Lock", "replace_file", "sync_folder"]


def replace_file(path: Path, write: Callable[[BinaryIO], object], part: Path | None = None, names: bool = True) -> None:
    """Write a file such that, whenever the process or the machine dies, it is there as it was before or as it is now.

    The bytes go to another file, and from the memory of the system to the disk, before it takes the place of this one.

    Parameters
    ----------
    path : Path
        The file. Its folder is made if it is missing.
    write : callable
        A function that writes the bytes to an open file.
    part : Path, optional
        The other file; by default a hidden one beside it, whose name ends with ``.part``.
    names : bool
        Whether the name of a new file is brought to the disk, too. If not, call :func:`sync_folder` later.

    Raises
    ------
    OSError
        If the file cannot be written. It is then as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part or path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if names:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names of files in a folder to the disk, where the system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Lock:
    """A lock on a folder, which one process at a time can hold, and which ends with that process however it dies.

    Parameters
    ----------
    folder : Path
        The folder, in which a file named ``lock`` says who holds it.

    Raises
    ------
    RuntimeError
        If another process holds it, or this one does already.
    OSError
        If the folder cannot be written.
    """

    def __init__(self, folder: Path):
        self.file = (folder / "lock").open("a+", encoding="utf-8")
        try:
            _lock(self.file.fileno())
        except OSError:
            self.file.seek(0)
            holder = self.file.read().strip() or "another process"
            self.file.close()
            raise RuntimeError(
                f"The store {folder} is being written by {holder}: wait until it ends, or end it. pymc_gibbsnn.open "
                f"reads the draws meanwhile."
            ) from None
        self.file.truncate(0)
        self.file.write(f"process {os.getpid()} on {socket.gethostname()}")
        self.file.flush()

    def release(self) -> None:
        """Let other processes have the lock."""
        self.file.close()


def _lock(descriptor: int) -> None:
    """Lock an open file for this process, or raise OSError if another process has locked it."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, 2**30, os.SEEK_SET)  # beyond what is written, which stays readable
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

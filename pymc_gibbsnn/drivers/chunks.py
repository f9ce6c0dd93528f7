"""Files that hold the draws of a store, *chunks*: how they are filled, and written in a thread while sampling goes on.

A chunk is a file with the plain bytes of an array (chain, draw, ...) of as many draws as Zarr expects of it, which are
not compressed. So its size says whether it is whole. The last one is filled up with zeros. Four bytes more are the
CRC-32C of those before, as Zarr's codec ``crc32c`` writes it; they end the files of all other arrays, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pymc_gibbsnn.drivers.files import replace_file, sync_folder

__all__ = ["Chunks", "Writer", "axis_of_draws", "chunk_files", "chunk_shape", "damage_of"]

CHUNK_BYTES, CHUNK_DRAWS = 2**22, 1000  # how large a chunk may be
CHECKSUM_BYTES = 4
WAITING_BYTES = 2**25  # how much may wait in memory to be written


def chunk_shape(shape: tuple[int, ...], axis: int, itemsize: int) -> tuple[int, ...]:
    """Choose the shape of a chunk.

    Parameters
    ----------
    shape : tuple of int
        The shape of an array of draws.
    axis : int
        Its axis of draws.
    itemsize : int
        The bytes of a number.
    """
    bytes_a_draw = itemsize * int(np.prod([n for i, n in enumerate(shape) if i != axis]))
    draws = min(CHUNK_DRAWS, max(1, CHUNK_BYTES // max(1, bytes_a_draw)))
    return tuple(draws if i == axis else max(1, n) for i, n in enumerate(shape))


def axis_of_draws(array) -> int | None:
    """Return the axis of an array of Zarr that runs over draws, if one does."""
    axes = array.metadata.dimension_names or ()
    return axes.index("draw") if "draw" in axes else None


def chunk_file(array, i: int) -> str:
    """Return the path of the chunk i of an array of Zarr, relative to the store."""
    axis = axis_of_draws(array)
    return "/".join([array.path, "c", *(str(i) if a == axis else "0" for a in range(array.ndim))])


def chunk_files(array, draws: int) -> Iterator[tuple[int | None, str, int | None]]:
    """Yield the first draw, the path and the bytes of each chunk that holds one of the first ``draws`` draws.

    Of an array without an axis of draws these are all chunks; the first draw and the bytes are then None.
    """
    axis = axis_of_draws(array)
    if axis is None:
        for place in product(*(range(-(-n // size)) for n, size in zip(array.shape, array.chunks, strict=True))):
            yield None, "/".join([array.path, "c", *map(str, place)]), None
        return
    if 0 in (n for i, n in enumerate(array.shape) if i != axis):
        return
    a_chunk, size = array.chunks[axis], CHECKSUM_BYTES + array.dtype.itemsize * int(np.prod(array.chunks))
    for i in range(-(-draws // a_chunk)):
        yield i * a_chunk, chunk_file(array, i), size


def checksum(content: np.ndarray) -> bytes:
    """Return the CRC-32C of the bytes of an array."""
    import google_crc32c  # comes with Zarr, which is optional

    return google_crc32c.value(content).to_bytes(CHECKSUM_BYTES, "little")


def damage_of(file: Path, content: np.ndarray | None) -> str:
    """Say in words what is wrong with the bytes of a chunk, which are None if there is no such file."""
    if content is None:
        return f"The file {file} is missing."
    if checksum(content[:-CHECKSUM_BYTES]) != content[-CHECKSUM_BYTES:].tobytes():
        return f"The file {file} is damaged: its bytes do not have the checksum with which they were written."
    return ""


class Writer:
    """Writes chunks in a thread of its own, one after another.

    Parameters
    ----------
    path : Path
        The store.
    """

    def __init__(self, path: Path):
        self.path, self.thread = path, ThreadPoolExecutor(1, "pymc_gibbsnn store")
        self.waiting: deque[tuple[Future, int]] = deque()
        self.folders: set[Path] = set()  # in which names are not on the disk yet, which takes longer than the bytes

    def close(self) -> None:
        """Wait until the chunk that is being written is on the disk, and write no other."""
        self.thread.shutdown(cancel_futures=True)

    def put(self, file: str, chunk: np.ndarray) -> Future:
        """Let a chunk be written, which must not be changed until then; wait only where too much waits already.

        Raises
        ------
        OSError
            If this chunk or one before cannot be written.
        """
        path = self.path / file
        self.folders |= {path.parent} if path.parent.exists() else {*path.parents} - {*self.path.parents}
        part = self.path / f".{file.replace('/', ' ')}.part"  # at the root, where Zarr does not stumble over it

        def write(opened: BinaryIO) -> None:
            opened.write(chunk.data)
            opened.write(checksum(chunk))

        job = self.thread.submit(replace_file, path, write, part, False)
        self.waiting.append((job, chunk.nbytes))
        self._wait(WAITING_BYTES)
        return job

    def finish(self) -> None:
        """Wait until all is on the disk; raise OSError if that is not possible."""
        self._wait(0)
        for folder in self.folders:
            sync_folder(folder)
        self.folders = set()

    def _wait(self, most: int) -> None:
        """Wait until no more than some bytes wait; raise the error of what could not be written."""
        while self.waiting and (self.waiting[0][0].done() or sum(size for _, size in self.waiting) > most):
            self.waiting.popleft()[0].result()


class Chunks:
    """The draws of an array that are not in a full chunk yet.

    Parameters
    ----------
    array : zarr.Array
        The array, (draw,) or (chain, draw, ...).
    draws : int
        How many draws it holds.
    writer : Writer
        It writes the chunks.
    """

    def __init__(self, array, draws: int, writer: Writer):
        self.array, self.axis, self.writer = array, axis_of_draws(array), writer
        self.length = array.chunks[self.axis]
        self.number, self.filled = divmod(draws, self.length)
        self.written: deque[tuple[Future, np.ndarray]] = deque()
        self.chunk = self._another()
        if self.filled:
            self._at(0, self.filled)[...] = array[self._slices(draws - self.filled, draws)]

    def append(self, x: np.ndarray) -> None:
        """Add draws, (draw, chain, ...), and hand over the chunks that are full."""
        x = np.swapaxes(x, 0, self.axis)
        added, total = 0, x.shape[self.axis]
        while added < total:
            now = min(total - added, self.length - self.filled)
            self._at(self.filled, self.filled + now)[...] = x[self._slices(added, added + now)]
            self.filled, added = self.filled + now, added + now
            if self.filled == self.length:
                self.flush()
                self.number, self.filled, self.chunk = self.number + 1, 0, self._another()

    def flush(self) -> None:
        """Hand over the chunk as far as it is filled; draws may be added to it when it is written."""
        if self.filled and self.chunk.size:
            self._at(self.filled, self.length)[...] = 0
            job = self.writer.put(chunk_file(self.array, self.number), self.chunk)
            if self.filled == self.length:
                self.written.append((job, self.chunk))

    def _another(self) -> np.ndarray:
        """Return memory for a chunk, that of one which has been written if there is such a one."""
        if self.written and self.written[0][0].done():
            return self.written.popleft()[1]
        rest = self.array.shape  # an axis of no length has none here, either, unlike in the chunks of Zarr
        return np.zeros([self.length if i == self.axis else n for i, n in enumerate(rest)], self.array.dtype)

    def _slices(self, first: int, end: int) -> tuple[slice, ...]:
        return (*(slice(None),) * self.axis, slice(first, end))

    def _at(self, first: int, end: int) -> np.ndarray:
        return self.chunk[self._slices(first, end)]

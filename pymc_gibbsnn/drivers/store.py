"""A run on disk: its draws in a Zarr store, and beside them the checkpoint from which it can go on.

The store is a folder. Each array of draws stands in files of some draws each (:mod:`pymc_gibbsnn.drivers.chunks`),
which are written as soon as they are full. The attribute ``draws`` of the store says how many draws are written whole,
and changes with each checkpoint; there may be more where a process died. What is written replaces whole files.
"""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from pymc_gibbsnn.drivers import chunks
from pymc_gibbsnn.drivers.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from pymc_gibbsnn.drivers.files import Lock, replace_file, sync_folder
from pymc_gibbsnn.drivers.fingerprint import differences
from pymc_gibbsnn.drivers.reading import DRAWN, FORMAT, OURS, attributes_of, import_zarr, open, read
from pymc_gibbsnn.drivers.results import Draws

__all__ = ["Store", "is_vacant"]


class Store(AbstractContextManager):
    """Writes the draws of a run to a Zarr store, and from time to time a checkpoint.

    Parameters
    ----------
    path : Path
        Where the store is, or is to be.
    resume : bool
        Whether to go on with the run that it holds.
    checkpoint_every : float
        How many seconds lie between checkpoints.

    Attributes
    ----------
    draws, tuned, seconds, is_due, checkpoint
        As of :class:`~pymc_gibbsnn.drivers.results.Memory`.

    Raises
    ------
    ImportError
        If Zarr is not installed.
    FileExistsError, FileNotFoundError
        If there is something at the path of a new store, or nothing at that of one with which to go on.
    OSError
        If nothing can be written there.
    ValueError
        If there is something else than a store, or its checkpoint is damaged.
    RuntimeError
        If another process writes it.
    """

    def __init__(self, path: Path, resume: bool, checkpoint_every: float):
        import_zarr()
        self.path, self.every = path, checkpoint_every
        self.checkpoint, self.lock = None, None
        self.draws, self.written, self.tuned, self.seconds = 0, 0, 0, 0.0
        self.writer: chunks.Writer | None = None
        if resume:
            attributes_of(path)
            with self._explained():
                self.lock = Lock(path)
            try:
                self.checkpoint = checkpoint = read_checkpoint(path)
                self.draws, self.tuned, self.seconds = checkpoint.draws, checkpoint.tuned, checkpoint.seconds
                self.written = self.draws
                self._try_to_write(path)
            except BaseException:
                self.lock.release()
                raise
        elif is_vacant(path):
            try:
                self._try_to_write(self._part)
            finally:
                _remove(self._part)
        else:
            raise FileExistsError(
                f"The store {path} exists: give another path, or resume={str(path)!r} to go on with the run in it."
            )
        self.saved = time.monotonic()

    def __exit__(self, *exception):
        if self.writer:
            self.writer.close()
        if self.lock:
            self.lock.release()

    @property
    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() - self.saved >= self.every

    def identify(self, run: dict[str, Any], machine: dict[str, Any]) -> None:
        """Say what the run is; where the store holds another one, refuse to go on with it.

        Parameters
        ----------
        run, machine : dict
            As in :class:`~pymc_gibbsnn.drivers.checkpoints.Checkpoint`.

        Raises
        ------
        ValueError
            If the store holds another run, or files of it are damaged.
        """
        self.run, self.machine = run, machine
        if self.checkpoint is None:
            return
        if changed := differences(self.checkpoint.run, run):
            raise ValueError(
                f"The run in {self.path} cannot go on, because these have changed since it began: "
                f"{'; '.join(changed)}. Give what it was begun with, or begin another store."
            )
        if changed := differences(self.checkpoint.machine, machine):
            warnings.warn(
                f"The run in {self.path} goes on where {'; '.join(changed)}: its draws have the same distribution from "
                f"here on, but they are not those that it would have made where it was.",
                UserWarning,
                stacklevel=6,  # of the call of pmg.sample
            )
        groups, damage = read(self.path, draws_alone=True, checks_all=True)
        if damage:
            raise ValueError(
                f"{' '.join(damage)} The run cannot go on; pymc_gibbsnn.open({str(self.path)!r}) reads the "
                f"{groups['posterior'].sizes['draw']} draws that are there."
            )

    def begin(
        self, state: Mapping[str, np.ndarray], groups: dict[str, xr.Dataset], others: dict[str, xr.Dataset]
    ) -> None:
        """Make the store, or make one that exists ready for further draws.

        Parameters
        ----------
        state : dict of str to array
            Where the chains of a new run start.
        groups : dict of str to xarray.Dataset
            The datasets of no draw at all, with the shapes and types that draws have.
        others : dict of str to xarray.Dataset
            Data of the model.
        """
        import zarr

        from pymc_gibbsnn.drivers.zarr_files import Durable

        with self._explained(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*Zarr V3 specification")  # of texts, such as names of columns
            if self.checkpoint is None:
                self._create(groups, others, state)
            self.root = zarr.open_group(Durable(self.path), mode="r+", zarr_format=3)
            arrays = [(group, name, array) for group in DRAWN for name, array in self.root[group].arrays()]
            self.arrays = {(group, name): x for group, name, x in arrays if chunks.axis_of_draws(x) is not None}
            self._truncate()
            self.writer = chunks.Writer(self.path)
            self.chunks = {name: chunks.Chunks(x, self.draws, self.writer) for name, x in self.arrays.items()}

    def append(self, draws: Draws) -> None:
        """Add the draws of one call of the program; they can be read after the next checkpoint."""
        first, self.draws = self.draws, self.draws + draws.length
        with self._explained():
            for group, values in zip(DRAWN, draws, strict=True):
                for name, x in {**values, "draw": np.arange(first, self.draws)}.items():
                    self.chunks[group, name].append(x)

    def save(self, state: Mapping[str, np.ndarray] | None, seconds: float) -> None:
        """Write all draws and a checkpoint; without a state, draws only.

        Parameters
        ----------
        state : dict of str to array, optional
            Where the chains are; None where they cannot go on.
        seconds : float
            How long the run has lasted.
        """
        self._write()
        if state is not None:
            with self._explained():
                self._checkpoint(self.path, state, seconds)
        self.saved = time.monotonic()

    def parts(self) -> Iterator[tuple[xr.Dataset, xr.Dataset]]:
        """Yield the posterior and the statistics that the store holds, as many draws at a time as are in a chunk."""
        groups = read(self.path, draws_alone=True)[0].values()
        for first in range(0, self.written, chunks.CHUNK_DRAWS):
            yield tuple(group.isel(draw=slice(first, first + chunks.CHUNK_DRAWS)) for group in groups)

    def finish(self, others: dict[str, xr.Dataset], attrs: dict):
        """Return all draws as InferenceData or DataTree, together with the data; they are read when needed."""
        with self._explained():
            self.root["posterior"].attrs.update(attrs)
        return open(self.path)

    def _create(self, groups: dict[str, xr.Dataset], others: dict[str, xr.Dataset], state: Mapping) -> None:
        """Make the store beside its place, and then put it there, so that there is a whole one or none."""
        import zarr
        from zarr.codecs import Crc32cCodec, ZstdCodec

        from pymc_gibbsnn.drivers.zarr_files import Durable

        part = self._part
        store = Durable(part)
        names = {group: [*map(str, data.variables)] for group, data in (groups | others).items()}
        try:
            part.mkdir(parents=True)
            zarr.open_group(store, mode="w", zarr_format=3, attributes={OURS: FORMAT, "draws": 0, "groups": names})
            for group, data in (groups | others).items():
                encoding = {
                    name: {
                        "chunks": chunks.chunk_shape(x.shape, x.dims.index("draw"), x.dtype.itemsize),
                        "compressors": [Crc32cCodec()],
                    }
                    if "draw" in x.dims and group in groups
                    else {"compressors": [ZstdCodec(), Crc32cCodec()]}
                    for name, x in data.variables.items()
                }
                data.to_zarr(
                    store, group=group, mode="w", consolidated=False, zarr_format=3, encoding=encoding,
                    write_empty_chunks=True,  # so that a missing file is a loss
                )  # fmt: skip
            self._checkpoint(part, state, 0.0)
            try:
                if self.path.exists():
                    self.path.rmdir()  # Windows would put no folder in place of an empty one
                part.rename(self.path)
            except OSError as error:
                if not is_vacant(self.path):
                    raise FileExistsError(f"Another process has just made the store {self.path}.") from error
                raise
            sync_folder(self.path.parent)
        finally:
            store.writes = False  # Zarr's threads go on with other files when one cannot be written
            _remove(part)
        self.lock = Lock(self.path)

    @property
    def _part(self) -> Path:
        """The folder beside that of the store in which it is made."""
        return self.path.with_name(f".{self.path.name}.{os.getpid()}.part")

    def _try_to_write(self, folder: Path) -> None:
        """Write a file and remove it, so that an error comes before anything is compiled."""
        with self._explained():
            replace_file(folder / ".test.part", lambda file: file.write(b"test"))
            (folder / ".test.part").unlink()

    def _checkpoint(self, folder: Path, state: Mapping[str, np.ndarray], seconds: float) -> None:
        write_checkpoint(folder, Checkpoint(self.run, self.machine, self.tuned, self.draws, seconds, state))

    def _truncate(self) -> None:
        """Forget the draws after the checkpoint, which are about to be made again, and files that are half written."""
        for part in self.path.glob(".*.part"):
            part.unlink()
        self.root.attrs["draws"] = self.draws
        self._resize()

    def _resize(self) -> None:
        """Give all arrays the length of the draws."""
        for array in self.arrays.values():
            axis = chunks.axis_of_draws(array)
            if array.shape[axis] != self.draws:
                array.resize(tuple(self.draws if i == axis else n for i, n in enumerate(array.shape)))

    def _write(self) -> None:
        """Write all draws, and then how many there are."""
        if self.draws == self.written:
            return
        with self._explained():
            for chunk in self.chunks.values():
                chunk.flush()
            self.writer.finish()
            self._resize()
            self.root.attrs["draws"] = self.draws
        self.written = self.draws

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say of an error of the system what it means for the run."""
        try:
            yield
        except FileExistsError:
            raise
        except OSError as error:
            kept = (
                f"The {self.written} draws before are in it, for pymc_gibbsnn.open; the run goes on from its last "
                f"checkpoint with resume={str(self.path)!r}."
                if not is_vacant(self.path)
                else "Nothing has been drawn."
            )
            raise type(error)(
                error.errno, f"The store cannot be written: {error.strerror or error}. {kept}", str(self.path)
            ) from error


def is_vacant(path: Path) -> bool:
    """Whether there is nothing at a path, or an empty folder."""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def _remove(folder: Path) -> None:
    """Remove a folder in which a thread may still be at work on a file."""
    for _ in range(100):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(0.02)

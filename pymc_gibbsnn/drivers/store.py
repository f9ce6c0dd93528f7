"""A run on disk: its draws in a Zarr store, and beside them the checkpoint from which it can go on.

The store is a folder. Each array of draws stands in files of some draws each (:mod:`pymc_gibbsnn.drivers.chunks`),
which are written as soon as they are full. The attribute ``draws`` of the store says how many draws are written whole,
and changes with each checkpoint; there may be more where a process died. What is written replaces whole files.
"""

from __future__ import annotations

import asyncio
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

from pymc_gibbsnn import _compat
from pymc_gibbsnn.drivers import chunks
from pymc_gibbsnn.drivers.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from pymc_gibbsnn.drivers.files import Lock, replace_file, sync_folder
from pymc_gibbsnn.drivers.fingerprint import differences
from pymc_gibbsnn.drivers.results import Draws

__all__ = ["Store", "open"]

DRAWN = ("posterior", "sample_stats")  # the groups that hold draws
OURS = "pymc_gibbsnn"  # the attribute by which a store is known as one of ours


def open(path: str | os.PathLike):
    """Read the draws of a store that :func:`sample` writes or has written.

    A store can be read while it is being written, from another process: what is returned holds the draws that were
    written when it was opened.

    Parameters
    ----------
    path : path
        The store, which was given to ``pmg.sample`` as ``store=`` or ``resume=``.

    Returns
    -------
    InferenceData (ArviZ 0.23) or DataTree (ArviZ 1)
        The groups that ``pmg.sample`` returns. Arrays are read when they are needed. While the chains tune there are no
        draws. Where a file of the store is damaged, a warning names it, and the draws before it are returned.

    Raises
    ------
    ImportError
        If Zarr is not installed.
    FileNotFoundError
        If there is nothing at the path.
    ValueError
        If there is something else than such a store.

    Examples
    --------
    >>> import arviz as az, numpy as np, pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> with pmg.mlp(X, X[:, 0] ** 2, hidden=5) as model:
    ...     _ = pmg.sample(1000, step=pmg.GibbsNN(), chains=4, store="draws.zarr")  # doctest: +SKIP
    >>> idata = pmg.open("draws.zarr")  # doctest: +SKIP
    >>> az.ess(pmg.function_space(idata, model))  # doctest: +SKIP
    """
    path = Path(path)
    root = _open_root(path)
    draws, damage = _whole_draws(path, root.attrs["draws"])
    if damage:
        warnings.warn(f"{damage} Only the draws before it are read.", UserWarning, stacklevel=2)
    return _compat.inference_data({group: _read_group(path, group, draws) for group in root.attrs["groups"]})


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
    ValueError
        If there is something else than a store, or its checkpoint is damaged.
    RuntimeError
        If another process writes it.
    """

    def __init__(self, path: Path, resume: bool, checkpoint_every: float):
        _import_zarr()
        self.path, self.every = path, checkpoint_every
        self.checkpoint, self.lock = None, None
        self.draws, self.tuned, self.seconds = 0, 0, 0.0
        self.writer: chunks.Writer | None = None
        if resume:
            _open_root(path)
            self.lock = Lock(path)
            self.checkpoint = found = read_checkpoint(path)
            self.draws, self.tuned, self.seconds = found.draws, found.tuned, found.seconds
        elif path.exists():
            raise FileExistsError(
                f"The store {path} exists: give another path, or resume={str(path)!r} to go on with the run in it."
            )
        self.written, self.saved = self.draws, time.monotonic()

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
                f"The run in {self.path} goes on where {'; '.join(changed)}: its draws follow the same law from here "
                f"on, but they are not those that it would have made where it was.",
                UserWarning,
                stacklevel=3,
            )
        whole, damage = _whole_draws(self.path, self.draws)
        if damage:
            raise ValueError(
                f"{damage} So the run cannot go on; the {whole} draws before it are there: "
                f"pymc_gibbsnn.open({str(self.path)!r})."
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

        with self._explained(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*Zarr V3 specification")  # of texts, such as names of columns
            if self.checkpoint is None:
                self._create(groups, others, state)
            self.root = zarr.open_group(_durable(self.path), mode="r+", zarr_format=3)
            found = [(group, name, array) for group in DRAWN for name, array in self.root[group].arrays()]
            self.arrays = {(group, name): x for group, name, x in found if chunks.axis_of_draws(x) is not None}
            self._truncate()
            self.writer = chunks.Writer(self.path)
            self.chunks = {name: chunks.Chunks(x, self.draws, self.writer) for name, x in self.arrays.items()}

    def append(self, draws: Draws) -> None:
        """Add the draws of one call of the program; they can be read after the next checkpoint."""
        first, self.draws = self.draws, self.draws + len(next(iter(draws[0].values())))
        with self._explained():
            for group, found in zip(DRAWN, draws, strict=True):
                for name, x in {**found, "draw": np.arange(first, self.draws)}.items():
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
        groups = [_read_group(self.path, group, self.written) for group in DRAWN]
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

        part = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        store = _durable(part)
        try:
            part.mkdir(parents=True)
            zarr.open_group(
                store, mode="w", zarr_format=3, attributes={OURS: 1, "draws": 0, "groups": [*groups, *others]}
            )
            for group, empty in groups.items():
                encoding = {
                    name: {
                        "chunks": chunks.chunk_shape(x.shape, x.dims.index("draw"), x.dtype.itemsize),
                        "compressors": None,
                    }
                    for name, x in empty.variables.items()
                    if "draw" in x.dims
                }
                empty.to_zarr(store, group=group, mode="w", consolidated=False, zarr_format=3, encoding=encoding)
            for group, data in others.items():
                data.to_zarr(store, group=group, mode="w", consolidated=False, zarr_format=3)
            self._checkpoint(part, state, 0.0)
            try:
                part.rename(self.path)
            except OSError as error:
                if self.path.exists():
                    raise FileExistsError(f"Another process has just made the store {self.path}.") from error
                raise
            sync_folder(self.path.parent)
        finally:
            store.writes = False  # Zarr's threads go on with other files when one cannot be written
            _remove(part)
        self.lock = Lock(self.path)

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
                if self.path.exists()
                else "Nothing has been drawn."
            )
            raise type(error)(
                error.errno, f"The store cannot be written: {error.strerror or error}. {kept}", str(self.path)
            ) from error


def _import_zarr():
    """Import Zarr, or say how to install it."""
    try:
        import zarr
    except ImportError:
        raise ImportError(
            "Draws on disk need Zarr, which is not installed: pip install 'pymc-gibbsnn[store]'."
        ) from None
    return zarr


def _open_root(path: Path):
    """Open the group at the root of a store, or say what is there instead."""
    zarr = _import_zarr()
    if not path.exists():
        raise FileNotFoundError(f"There is no store at {path}: begin one with store=.")
    try:
        root = zarr.open_group(_files(path), mode="r", zarr_format=3)
        known = OURS in root.attrs
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is no store that pymc_gibbsnn.sample has written: {error}.") from error
    if not known:
        raise ValueError(f"{path} is no store that pymc_gibbsnn.sample has written, or one of an older version.")
    return root


def _files(path: Path):
    """Return Zarr's store in a folder, to be read: it and xarray take a path for an address, where `#` ends the name."""
    from zarr.storage import LocalStore

    return LocalStore(path, read_only=True)


def _durable(path: Path):
    """Return Zarr's store in a folder, which here replaces files such that a loss of power leaves each whole."""
    from zarr.storage import LocalStore

    class DurableStore(LocalStore):
        writes = True

        async def set(self, key, value):
            await asyncio.to_thread(self.set_sync, key, value)

        def set_sync(self, key, value):
            if not self.writes:
                return
            part = self.root / f".{key.replace('/', ' ')}.part"  # at the root, where Zarr does not stumble over it
            replace_file(self.root / key, lambda file: file.write(value.to_bytes()), part)

    return DurableStore(path)


def _remove(folder: Path) -> None:
    """Remove a folder in which a thread may still be at work on a file."""
    for _ in range(100):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(0.02)


def _whole_draws(path: Path, draws: int) -> tuple[int, str]:
    """Count the draws of a store before the first damage, and say in words what is damaged; empty if nothing is.

    Parameters
    ----------
    path : Path
        The store.
    draws : int
        How many draws it should hold.

    Returns
    -------
    draws : int
    damage : str
    """
    root, damage = _open_root(path), ""
    for group in DRAWN:
        for _, array in root[group].arrays():
            for first, name, size in chunks.chunk_files(array, draws):
                file = path / name
                found = file.stat().st_size if file.exists() else 0
                if found != size:
                    draws, damage = first, f"The file {file} is damaged: it has {found} bytes in place of {size}."
                    break
    return draws, damage


def _read_group(path: Path, group: str, draws: int) -> xr.Dataset:
    """Open a group of a store, of which arrays may be longer than the draws that are written whole."""
    import zarr

    store = _files(path)
    names = list(zarr.open_group(store, path=group, mode="r", zarr_format=3).array_keys())
    parts = []
    for name in names:
        others = [n for n in names if n != name]
        part = xr.open_zarr(store, group=group, consolidated=False, zarr_format=3, drop_variables=others)
        parts.append(part.isel(draw=slice(draws)) if "draw" in part.dims else part)
    return xr.merge(parts, combine_attrs="override", compat="override", join="override")

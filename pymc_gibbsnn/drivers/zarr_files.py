"""The folders in which Zarr reads and writes a store. This module imports Zarr, which is optional."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore

from pymc_gibbsnn.drivers.chunks import damage_of
from pymc_gibbsnn.drivers.files import replace_file

__all__ = ["METADATA", "Durable", "OneArray"]

METADATA = "zarr.json"


class Durable(LocalStore):
    """A folder to write to, whose files are replaced such that a loss of power leaves each whole."""

    writes = True

    async def set(self, key, value):  # noqa: D102
        await asyncio.to_thread(self.set_sync, key, value)

    def set_sync(self, key, value):  # noqa: D102
        if not self.writes:
            return
        part = self.root / f".{key.replace('/', ' ')}.part"  # at the root, where Zarr does not stumble over it
        replace_file(self.root / key, lambda file: file.write(value.to_bytes()), part)


class OneArray(LocalStore):
    """The folder of a group, to be read as if it held one array alone: whatever else is there may be damaged.

    A chunk of the array that is damaged or missing raises ValueError when it is read. Zarr would look at the checksum
    as well, but without a word on the file, and takes a missing one for zeros.

    Parameters
    ----------
    root : Path
        The folder of the group.
    name : str
        The name of the array.
    """

    def __init__(self, root: Path, name: str):
        super().__init__(root, read_only=True)
        self.name = name

    async def get(self, key, prototype=None, byte_range=None):  # noqa: D102
        return self._whole(key, await super().get(key, prototype, byte_range), prototype)

    def get_sync(self, key, *, prototype=None, byte_range=None):  # noqa: D102
        return self._whole(key, super().get_sync(key, prototype=prototype, byte_range=byte_range), prototype)

    async def list_dir(self, prefix):  # noqa: D102
        async for name in super().list_dir(prefix):
            if name in (METADATA, self.name):
                yield name

    def _whole(self, key: str, buffer, prototype):
        """Return the content of a file if it is whole, and in place of the metadata of the group those of a plain one.

        Parameters
        ----------
        key : str
            The path of the file in the folder.
        buffer : Buffer or None
            Its content.
        prototype : BufferPrototype or None
            The kind of memory that Zarr asks for.
        """
        if key == METADATA:
            group = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}})
            return (prototype or default_buffer_prototype()).buffer.from_bytes(group.encode())
        if not key.endswith(METADATA):
            content = None if buffer is None else buffer.as_numpy_array()
            if damage := damage_of(self.root / key, content):
                raise ValueError(f"{damage}{self._rest(key)}")
        return buffer

    def _rest(self, key: str) -> str:
        """Say which draws are before those of a file, if it holds any."""
        about = json.loads((self.root / self.name / METADATA).read_text())
        axes, lengths = about.get("dimension_names") or (), about["chunk_grid"]["configuration"]["chunk_shape"]
        if "draw" not in axes:
            return ""
        axis = axes.index("draw")
        first = int(key.removeprefix(f"{self.name}/c/").split("/")[axis]) * lengths[axis]
        return f" The draws before it are whole: isel(draw=slice({first}))."

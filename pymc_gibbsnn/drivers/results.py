"""Where draws go as they are made: memory, or a Zarr store on disk."""

from __future__ import annotations

import os
from pathlib import Path

import xarray as xr

from pymc_gibbsnn import _compat

__all__ = ["Memory", "Store"]

DRAWS_A_CHUNK = 100  # of the store


class Memory:
    """Keeps draws in memory. ``draws``: how many there are of each chain."""

    def __init__(self):
        self.draws, self.parts = 0, {}

    def check(self, groups: dict[str, xr.Dataset]) -> None:
        """Nothing is refused."""

    def append(self, groups: dict[str, xr.Dataset]) -> None:
        """Add the draws of one call, by group."""
        for group, part in groups.items():
            self.parts.setdefault(group, []).append(part)
        self.draws += groups["posterior"].sizes["draw"]

    def finish(self, others: dict[str, xr.Dataset], attrs: dict):
        """All draws as InferenceData or DataTree, beside other groups."""
        groups = {group: xr.concat(self.parts.pop(group), "draw") for group in list(self.parts)}
        groups["posterior"].attrs.update(attrs)
        return _compat.inference_data(groups | others)


class Store:
    """Writes draws to a Zarr store. ``draws``: how many it holds of each chain."""

    def __init__(self, path: str | os.PathLike, append: bool):
        try:
            import zarr  # noqa: F401, once here, before anything is drawn
        except ImportError:
            raise ImportError("store= needs Zarr, which is not installed: pip install zarr.") from None
        self.path, self.draws = Path(path), 0
        if self.path.exists():
            if not append:
                raise FileExistsError(f"The store {self.path} exists: give another path, or append=True.")
            self.draws = self._open("posterior").sizes["draw"]

    def _open(self, group: str) -> xr.Dataset:
        return xr.open_zarr(self.path, group=group, consolidated=False)

    def check(self, groups: dict[str, xr.Dataset]) -> None:
        """Refuse draws that do not go with those of the store."""
        for group, part in groups.items() if self.draws else ():
            found, given = (
                {name: (str(x.dtype), {d: n for d, n in x.sizes.items() if d != "draw"}) for name, x in data.items()}
                for data in (self._open(group), part)
            )
            if found != given:
                raise ValueError(f"The store {self.path} holds the {group} {found}, not {given}.")

    def append(self, groups: dict[str, xr.Dataset]) -> None:
        """Add the draws of one call, by group."""
        for group, part in groups.items():
            if self.draws:
                how = {"append_dim": "draw"}
            else:
                chunks = {
                    name: tuple(DRAWS_A_CHUNK if dim == "draw" else n for dim, n in x.sizes.items())
                    for name, x in part.variables.items()
                    if "draw" in x.dims
                }
                how = {"encoding": {name: {"chunks": sizes} for name, sizes in chunks.items()}}
            part.to_zarr(self.path, group=group, mode="a", consolidated=False, **how)
        self.draws += groups["posterior"].sizes["draw"]

    def finish(self, others: dict[str, xr.Dataset], attrs: dict):
        """All draws, read lazily, as InferenceData or DataTree, beside other groups."""
        import zarr

        for group, part in others.items():
            part.to_zarr(self.path, group=group, mode="w", consolidated=False)
        zarr.open_group(self.path / "posterior").attrs.update(attrs)
        return _compat.inference_data({group: self._open(group) for group in ["posterior", "sample_stats", *others]})

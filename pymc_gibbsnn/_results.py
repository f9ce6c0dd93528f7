"""Where draws go as they are made: memory, or a Zarr store on disk."""

from __future__ import annotations

import os
from pathlib import Path

import xarray as xr

from pymc_gibbsnn import _compat

__all__ = ["Memory", "Store"]


class Memory:
    """Keeps draws in memory. ``draws``: how many there are of each chain."""

    def __init__(self):
        self.draws, self.parts = 0, {}

    def append(self, groups: dict[str, xr.Dataset]) -> None:
        """Add the draws of one call, by group."""
        for group, part in groups.items():
            self.parts.setdefault(group, []).append(part)
        self.draws += groups["posterior"].sizes["draw"]

    def finish(self, others: dict[str, xr.Dataset], attrs: dict):
        """All draws as InferenceData or DataTree, beside other groups."""
        groups = {group: xr.concat(parts, "draw") for group, parts in self.parts.items()}
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

    def append(self, groups: dict[str, xr.Dataset]) -> None:
        """Add the draws of one call, by group."""
        for group, part in groups.items():
            if self.draws:
                self._check(group, part)
            part.to_zarr(
                self.path,
                group=group,
                mode="a",
                append_dim="draw" if self.draws else None,
                consolidated=False,
            )
        self.draws += groups["posterior"].sizes["draw"]

    def _check(self, group: str, part: xr.Dataset) -> None:
        found, given = ({k: v.isel(draw=0).sizes for k, v in x.items()} for x in (self._open(group), part))
        if found != given:
            raise ValueError(f"The store {self.path} holds the {group} {found}, not {given}.")

    def finish(self, others: dict[str, xr.Dataset], attrs: dict):
        """All draws, read lazily, as InferenceData or DataTree, beside other groups."""
        import zarr

        for group, part in others.items():
            part.to_zarr(self.path, group=group, mode="w", consolidated=False)
        zarr.open_group(self.path / "posterior").attrs.update(attrs)
        return _compat.inference_data({group: self._open(group) for group in ["posterior", "sample_stats", *others]})

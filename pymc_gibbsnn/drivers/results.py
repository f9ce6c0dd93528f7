"""Where draws are kept as they are made: in memory, or in a Zarr store on disk."""

from __future__ import annotations

import os
from pathlib import Path

import xarray as xr

from pymc_gibbsnn import _compat

__all__ = ["Memory", "Store"]

DRAWS_A_CHUNK = 100  # how many draws a chunk of the store holds


class Memory:
    """Keeps draws in memory; its attribute ``draws`` counts those of each chain."""

    def __init__(self):
        self.draws, self.parts = 0, {}

    def check(self, groups: dict[str, xr.Dataset]) -> None:
        """Do nothing: memory takes any draws."""

    def append(self, groups: dict[str, xr.Dataset]) -> None:
        """Add the draws of one call, by group."""
        for group, part in groups.items():
            self.parts.setdefault(group, []).append(part)
        self.draws += groups["posterior"].sizes["draw"]

    def finish(self, others: dict[str, xr.Dataset], attrs: dict):
        """Return all draws as InferenceData or DataTree, together with other groups."""
        groups = {group: xr.concat(self.parts.pop(group), "draw") for group in list(self.parts)}
        groups["posterior"].attrs.update(attrs)
        return _compat.inference_data(groups | others)


class Store:
    """Writes draws to a Zarr store; its attribute ``draws`` counts those of each chain that the store holds.

    Parameters
    ----------
    path : path
        Where the store is, or is to be.
    append : bool
        Whether to add to a store that exists, which is an error otherwise.
    """

    def __init__(self, path: str | os.PathLike, append: bool):
        try:
            import zarr  # noqa: F401, so that it is found missing before anything is drawn
        except ImportError:
            raise ImportError("store= needs Zarr, which is not installed: pip install zarr.") from None
        self.path, self.draws = Path(path), 0
        if self.path.exists():
            if not append:
                raise FileExistsError(f"The store {self.path} exists: give another path, or append=True.")
            self.draws = self._open("posterior").sizes["draw"]

    def _open(self, group: str) -> xr.Dataset:
        """Open a group of the store, whose arrays are read when they are needed."""
        return xr.open_zarr(self.path, group=group, consolidated=False)

    def check(self, groups: dict[str, xr.Dataset]) -> None:
        """Raise ValueError for draws of other variables, types or shapes than those of the store."""
        for group, part in groups.items() if self.draws else ():
            found, given = (
                {name: (str(x.dtype), {d: n for d, n in x.sizes.items() if d != "draw"}) for name, x in data.items()}
                for data in (self._open(group), part)
            )
            if found != given:
                raise ValueError(
                    f"Draws must be like those of {self.path}, which holds the {group} {found}; found {given}."
                )

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
        """Return all draws as InferenceData or DataTree, together with other groups; they are read when needed."""
        import zarr

        for group, part in others.items():
            part.to_zarr(self.path, group=group, mode="w", consolidated=False)
        zarr.open_group(self.path / "posterior").attrs.update(attrs)
        return _compat.inference_data({group: self._open(group) for group in ["posterior", "sample_stats", *others]})

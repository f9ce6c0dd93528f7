"""A fit in one file: draws of a posterior as NetCDF, with all else as JSON beside them."""

from __future__ import annotations

import json
import os
from typing import Any

import xarray as xr

__all__ = ["read_file", "write_file"]

SETTINGS = "pymc_gibbsnn"  # the name of the attribute


def write_file(path: str | os.PathLike, settings: dict[str, Any], posterior: xr.Dataset) -> None:
    """Write settings and draws; raise ValueError for settings that no JSON can hold.

    Parameters
    ----------
    path : str or path
        The file; one that is there is replaced.
    settings : dict
        Numbers, texts, lists and the like.
    posterior : xarray.Dataset
        The draws.
    """
    try:
        text = json.dumps(settings)
    except TypeError:
        strange = [name for name, x in settings["parameters"].items() if not _is_plain(x)]
        raise ValueError(
            f"A file holds numbers and texts, no functions: the settings {strange} cannot be saved. Activations can be "
            f"given by their names."
        ) from None
    posterior = posterior.drop_attrs().assign_attrs({SETTINGS: text})
    posterior.to_netcdf(path, engine="scipy", format="NETCDF3_64BIT")


def read_file(path: str | os.PathLike) -> tuple[dict[str, Any], xr.Dataset]:
    """Read settings and draws, all of them into memory.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file holds something else.
    """
    try:
        with xr.open_dataset(path, engine="scipy") as file:
            posterior = file.load()
    except FileNotFoundError:
        raise
    except (OSError, TypeError, ValueError, KeyError):
        raise ValueError(f"{path} is no file that save() wrote.") from None
    if SETTINGS not in posterior.attrs:
        raise ValueError(f"{path} is no file that save() wrote: it holds no settings.")
    return json.loads(posterior.attrs.pop(SETTINGS)), posterior


def _is_plain(x: Any) -> bool:
    """Whether JSON can hold a setting."""
    try:
        json.dumps(x)
    except TypeError:
        return False
    return True

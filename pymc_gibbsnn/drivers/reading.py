"""How a store is read, or as much of it as is whole, with words on what is not."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from pymc_gibbsnn import _compat
from pymc_gibbsnn._arguments import path_of
from pymc_gibbsnn.drivers.chunks import chunk_files, damage_of

__all__ = ["DRAWN", "FORMAT", "OURS", "attributes_of", "import_zarr", "open", "read"]

DRAWN = ("posterior", "sample_stats")  # the groups that hold draws
OURS, FORMAT = "pymc_gibbsnn", 2  # the attribute by which a store is known as one of ours, and as readable


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
        draws. Where files of the store are missing or damaged, warnings name them, and the rest is returned: the draws
        before those of a file that is missing or not as long as it should be, and the variables whose metadata can be
        read.

    Raises
    ------
    ImportError
        If Zarr is not installed.
    FileNotFoundError
        If there is nothing at the path.
    TypeError
        If the path is neither a string nor a path.
    ValueError
        If there is something else than such a store. Later, when draws are read from a file whose bytes do not have the
        checksum with which they were written, an error that names the file, and the draws before it.

    Examples
    --------
    >>> import arviz as az, numpy as np, pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> with pmg.mlp(X, X[:, 0] ** 2, hidden=5) as model:
    ...     _ = pmg.sample(1000, step=pmg.GibbsNN(), chains=4, store="draws.zarr")  # doctest: +SKIP
    >>> idata = pmg.open("draws.zarr")  # doctest: +SKIP
    >>> az.ess(pmg.function_space(idata, model))  # doctest: +SKIP
    """
    groups, damage = read(path_of("path", path))
    for words in damage:
        warnings.warn(words, UserWarning, stacklevel=2)
    return _compat.inference_data(groups)


def import_zarr():
    """Import Zarr, or say how to install it."""
    try:
        import zarr
    except ImportError:
        raise ImportError(
            "Draws on disk need Zarr, which is not installed: pip install 'pymc-gibbsnn[store]'."
        ) from None
    return zarr


def attributes_of(path: Path) -> dict[str, Any]:
    """Return the attributes of a store, or say what is there instead.

    Returns
    -------
    dict
        "draws" is the number of draws that are written whole, and "groups" holds the names of arrays by group.
    """
    if not path.exists():
        raise FileNotFoundError(f"There is no store at {path}: begin one with store=.")
    try:
        about = json.loads((path / "zarr.json").read_bytes())["attributes"]
        version = about.get(OURS)
        about = {"draws": int(about["draws"]), "groups": {**about["groups"]}} if version == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is no store that pymc_gibbsnn.sample has written, or its file zarr.json is damaged: "
            f"{_in_words(error)}."
        ) from error
    if about is None:
        raise ValueError(f"{path} is no store that pymc_gibbsnn.sample has written, or one of another version.")
    return about


def read(path: Path, draws_alone: bool = False, checks_all: bool = False) -> tuple[dict[str, xr.Dataset], list[str]]:
    """Open the groups of a store.

    Parameters
    ----------
    path : Path
        The store.
    draws_alone : bool
        Whether to leave out the data of the model.
    checks_all : bool
        Whether to look at the checksums of all draws, and so to read them all. Those of other arrays are looked at
        anyway.

    Returns
    -------
    groups : dict of str to xarray.Dataset
        What is whole.
    damage : list of str
        What is not, in sentences.
    """
    zarr = import_zarr()
    from pymc_gibbsnn.drivers.zarr_files import METADATA, OneArray

    about = attributes_of(path)
    draws, groups, damage = about["draws"], {}, []
    for group in DRAWN if draws_alone else about["groups"]:
        data, folder = xr.Dataset(), path / group
        for name in about["groups"][group]:
            files, file = OneArray(folder, name), folder / name / METADATA
            try:
                array = zarr.open_array(files, path=name, mode="r", zarr_format=3)
                words, first = _damaged_chunk(array, folder, about["draws"], checks_all)
                if name == "draw":  # which counts, whatever its files hold
                    damage += [f"{words} Draws are counted without it."] if words else []
                elif words and first is None:
                    damage.append(f"{words} So {name} of {group} is left out.")
                else:
                    if words:
                        draws = min(draws, first)
                        damage.append(f"{words} Only the draws before it are read.")
                    part = xr.open_zarr(files, consolidated=False, zarr_format=3)
                    part = part.isel(draw=slice(about["draws"]), missing_dims="ignore")
                    if (length := part.sizes.get("draw", about["draws"])) < about["draws"]:
                        raise ValueError(f"it tells of {length} draws in place of {about['draws']}")
                    data = xr.merge([data, part], compat="override", join="exact")
            except Exception as error:  # of any kind, since damaged metadata may say anything
                damage.append(f"{_fault(file, error)} So {name} of {group} is left out.")
        groups[group] = data
        try:
            data.attrs = json.loads((folder / METADATA).read_bytes())["attributes"]
        except (OSError, ValueError, KeyError) as error:
            damage.append(f"{_fault(folder / METADATA, error)} So the attributes of {group} are lost.")
    for group in DRAWN:
        numbers = {"draw": np.arange(draws)}
        groups[group] = groups[group].isel(draw=slice(draws), missing_dims="ignore").assign_coords(numbers)
    return groups, damage


def _fault(file: Path, error: Exception) -> str:
    """Say in a sentence what is wrong with a file that could not be read."""
    return f"The file {file} is damaged ({_in_words(error)})." if file.exists() else f"The file {file} is missing."


def _in_words(error: Exception) -> str:
    """Write an error without what it holds beside its message: where text cannot be decoded, all bytes of the file."""
    return f"{type(error).__name__}: {error}"


def _damaged_chunk(array, folder: Path, draws: int, checks_all: bool) -> tuple[str, int | None]:
    """Return words on the first damaged file of an array, if there is one, and the first draw in it, if it holds draws.

    Parameters
    ----------
    array : zarr.Array
        The array.
    folder : Path
        The folder of its group.
    draws : int
        How many draws it should hold.
    checks_all : bool
        As in :func:`read`.
    """
    for first, name, size in chunk_files(array, draws):
        file = folder / name
        content = None
        if file.exists():
            if size is not None and (length := file.stat().st_size) != size:
                return f"The file {file} is damaged: it has {length} bytes in place of {size}.", first
            if not checks_all and first is not None and array.basename != "draw":
                continue
            content = np.fromfile(file, "uint8")
        if damage := damage_of(file, content):
            return damage, first
    return "", None

"""Checkpoints: what a run needs to go on, in one file that holds arrays and JSON and cannot run code."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pymc_gibbsnn.drivers.files import replace_file

__all__ = ["Checkpoint", "pack", "read_checkpoint", "unpack", "write_checkpoint"]

FILE, FORMAT = "checkpoint.npz", 1  # the number changes when older versions cannot read the file


@dataclass(frozen=True)
class Checkpoint:
    """A moment of a run.

    Attributes
    ----------
    run : dict
        What the run is: its fingerprint.
    machine : dict
        On what it ran: versions of libraries and devices, which decide the last digits of the draws.
    tuned, draws : int
        How many tuning steps each chain has made, and how many draws are recorded.
    seconds : float
        How long it has run.
    state : dict of str to array
        Where each chain is, (chain, ...): the state of its random generator, its values, and what its samplers
        remember; and what automatic thinning remembers of all.
    """

    run: dict[str, Any]
    machine: dict[str, Any]
    tuned: int
    draws: int
    seconds: float
    state: Mapping[str, np.ndarray]


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint to a folder, in place of the one before as a whole.

    Raises
    ------
    OSError
        If it cannot be written; the one before is then still there.
    """
    replace_file(folder / FILE, lambda file: pack(checkpoint, file))


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read the checkpoint of a folder.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If it is damaged, or of another version of this package.
    """
    path = folder / FILE
    if not path.exists():
        raise FileNotFoundError(f"{folder} holds no checkpoint, so that nothing can go on there: begin with store=.")
    try:
        with path.open("rb") as file:
            return unpack(file)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"The checkpoint {path} is damaged, or of another version of pymc_gibbsnn ({error}), so that the run "
            f"cannot go on. Its draws are there: pymc_gibbsnn.open('{folder}')."
        ) from error


def pack(checkpoint: Checkpoint, file: BinaryIO) -> None:
    """Write a checkpoint to an open file."""
    about = {name: x for name, x in vars(checkpoint).items() if name != "state"} | {"format": FORMAT}
    arrays = {f"state {name}": x for name, x in checkpoint.state.items()}
    np.savez(file, about=json.dumps(about), **arrays)


def unpack(file: BinaryIO) -> Checkpoint:
    """Read a checkpoint from an open file; what is wrong with it raises errors of several kinds."""
    with np.load(file, allow_pickle=False) as arrays:
        about = json.loads(str(arrays["about"]))
        state = {name.removeprefix("state "): arrays[name] for name in arrays.files if name != "about"}
    if (version := about.pop("format")) != FORMAT:
        raise ValueError(f"its format is {version} in place of {FORMAT}")
    return Checkpoint(**about, state=state)

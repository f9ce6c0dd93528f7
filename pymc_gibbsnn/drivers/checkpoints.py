"""Checkpoints: what a run needs to go on, in one file that holds arrays and JSON and cannot run code."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pymc_gibbsnn.drivers.files import replace_file

__all__ = ["Checkpoint", "read_checkpoint", "write_checkpoint"]

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
    state : dict of str to array, (chain, ...)
        Where each chain is: the state of its random generator, its values, and what its samplers remember.
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
    about = {name: x for name, x in vars(checkpoint).items() if name != "state"} | {"format": FORMAT}
    arrays = {f"state {name}": x for name, x in checkpoint.state.items()}
    replace_file(folder / FILE, lambda file: np.savez(file, about=json.dumps(about), **arrays))


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
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            state = {name.removeprefix("state "): file[name] for name in file.files if name != "about"}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"The checkpoint {path} is damaged ({error}), so that the run cannot go on. Its draws are there: "
            f"pymc_gibbsnn.open('{folder}')."
        ) from error
    if about.pop("format", None) != FORMAT:
        raise ValueError(f"The checkpoint {path} was written by another version of pymc_gibbsnn: go on with that one.")
    return Checkpoint(**about, state=state)

"""Draws that are kept in memory as they are made; :mod:`pymc_gibbsnn.drivers.store` keeps them on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
import pymc as pm
import xarray as xr

from pymc_gibbsnn import _compat
from pymc_gibbsnn.drivers.checkpoints import Checkpoint

__all__ = ["Draws", "Elsewhere", "Memory", "datasets"]


class Draws(NamedTuple):
    """Some draws of all chains.

    Attributes
    ----------
    values, stats : dict of str to array, (draw, chain, ...)
        The recorded variables and the statistics, by name.
    """

    values: dict[str, np.ndarray]
    stats: dict[str, np.ndarray]

    @property
    def length(self) -> int:
        """How many draws each chain has."""
        return len(next(iter(self.stats.values())))

    def first(self, count: int) -> Draws:
        """Return the first draws."""
        return Draws(*({name: x[:count] for name, x in part.items()} for part in self))


def join(parts: Sequence[Draws]) -> Draws:
    """Put the draws of several calls one after the other."""
    columns = zip(*parts, strict=True)
    return Draws(*({name: np.concatenate([part[name] for part in column]) for name in column[0]} for column in columns))


def datasets(model: pm.Model, draws: Draws, first: int) -> dict[str, xr.Dataset]:
    """Turn draws into datasets, the groups "posterior" and "sample_stats"; the first draw has the number ``first``."""
    return {
        group: _compat.dataset(model, {name: np.swapaxes(x, 0, 1) for name, x in part.items()}, first)
        for group, part in {"posterior": draws.values, "sample_stats": draws.stats}.items()
    }


class Memory(AbstractContextManager):
    """Keeps draws in memory, with the methods of a store; a run that ends leaves nothing with which it could go on.

    Parameters
    ----------
    model : pm.Model
        The model.

    Attributes
    ----------
    draws, tuned : int
        How many draws and tuning steps each chain has made.
    seconds : float
        How long the run had lasted before this call of ``pmg.sample``.
    is_due : bool
        Whether it is time for a checkpoint.
    checkpoint : Checkpoint, optional
        Where the run goes on; None if it begins.
    """

    checkpoint, is_due = None, False

    def __init__(self, model: pm.Model):
        self.model, self.draws, self.tuned, self.seconds, self.parts = model, 0, 0, 0.0, []

    def __exit__(self, *exception):
        """Let an exception pass, and leave everything as it is: unlike a store, memory has no lock to release."""

    def append(self, draws: Draws) -> None:
        """Add the draws of one call of the program."""
        self.parts.append(draws)
        self.draws += draws.length

    def save(self, state: Mapping[str, np.ndarray] | None, seconds: float) -> None:
        """Write a checkpoint, where draws are on disk. In memory there is none: what is kept ends with the process."""

    def finish(self, others: dict[str, xr.Dataset], attrs: dict):
        """Return all draws as InferenceData or DataTree, together with other groups."""
        groups = datasets(self.model, join(self.parts), first=0)
        groups["posterior"].attrs.update(attrs)
        return _compat.inference_data(groups | others)


class Elsewhere(Memory):
    """Stands for a store that another process writes, and counts draws.

    Parameters
    ----------
    model : pm.Model
        The model.
    checkpoint : Checkpoint, optional
        The checkpoint from which the run goes on.
    """

    def __init__(self, model: pm.Model, checkpoint: Checkpoint | None):
        super().__init__(model)
        self.checkpoint = checkpoint
        if checkpoint:
            self.draws, self.tuned, self.seconds = checkpoint.draws, checkpoint.tuned, checkpoint.seconds

    def append(self, draws: Draws) -> None:
        """Count the draws of one call of the program."""
        self.draws += draws.length

    def finish(self, others: dict[str, xr.Dataset], attrs: dict) -> None:
        """Return None: the process that writes the store returns the draws, and this one holds none."""

"""Draws that are kept in memory as they are made; :mod:`pymc_gibbsnn.drivers.store` keeps them on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import numpy as np
import xarray as xr

from pymc_gibbsnn import _compat
from pymc_gibbsnn.drivers.checkpoints import Checkpoint

__all__ = ["Draws", "Elsewhere", "Memory", "join"]

# The recorded variables and the statistics of some draws, as arrays (draw, chain, ...) by name
Draws = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]


def join(parts: list[Draws]) -> Draws:
    """Put the draws of several calls one after the other."""
    return tuple({name: np.concatenate([part[i][name] for part in parts]) for name in parts[0][i]} for i in range(2))


class Memory(AbstractContextManager):
    """Keeps draws in memory, with the methods of a store; a run that ends leaves nothing with which it could go on.

    Parameters
    ----------
    make : callable
        ``make(draws, first)`` turns draws into datasets by group; ``first`` is the number of the first draw.

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

    def __init__(self, make: Callable[[Draws, int], dict[str, xr.Dataset]]):
        self.make, self.draws, self.tuned, self.seconds, self.parts = make, 0, 0, 0.0, []

    def __exit__(self, *exception):
        """Let an exception pass, and leave everything as it is: unlike a store, memory has no lock to release."""

    def append(self, draws: Draws) -> None:
        """Add the draws of one call of the program."""
        self.parts.append(draws)
        self.draws += len(next(iter(draws[0].values())))

    def save(self, state: Mapping[str, np.ndarray] | None, seconds: float) -> None:
        """Write a checkpoint, where draws are on disk. In memory there is none: what is kept ends with the process.

        Parameters
        ----------
        state : mapping of str to array, optional
            What the chains need to go on.
        seconds : float
            How long the run has lasted.
        """

    def finish(self, others: dict[str, xr.Dataset], attrs: dict):
        """Return all draws as InferenceData or DataTree, together with other groups."""
        groups = self.make(join(self.parts), 0)
        groups["posterior"].attrs.update(attrs)
        return _compat.inference_data(groups | others)


class Elsewhere(Memory):
    """Stands for a store that another process writes, and counts draws.

    Parameters
    ----------
    checkpoint : Checkpoint, optional
        The checkpoint from which the run goes on.
    """

    def __init__(self, checkpoint: Checkpoint | None):
        super().__init__(None)
        self.checkpoint = checkpoint
        if checkpoint:
            self.draws, self.tuned, self.seconds = checkpoint.draws, checkpoint.tuned, checkpoint.seconds

    def append(self, draws: Draws) -> None:
        """Count the draws of one call of the program."""
        self.draws += len(next(iter(draws[0].values())))

    def finish(self, others: dict[str, xr.Dataset], attrs: dict) -> None:
        """Return None: the process that writes the store returns the draws, and this one holds none.

        Parameters
        ----------
        others : dict of str to xarray.Dataset
            Further groups of the result, which the other process has as well.
        attrs : dict
            Attributes of the posterior, likewise.
        """

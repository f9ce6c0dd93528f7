"""The progress bar of a long run."""

from __future__ import annotations

import time
import warnings
from importlib.util import find_spec

import numpy as np
import rich
import rich.progress

from pymc_gibbsnn.drivers.thinning import SWEEPS

__all__ = ["Progress"]


class Progress:
    """A progress bar with the rate of draws, and the mean log density and acceptance over chains.

    Parameters
    ----------
    tune, draws : int
        How many tuning steps and draws each chain makes.
    visible : bool
        Whether to show the bar.
    made : int
        How many of the tuning steps and draws have been made before.

    Warns
    -----
    UserWarning
        In a notebook without ipywidgets, where rich would warn whenever the bar moves; there is no bar then.
    """

    def __init__(self, tune: int, draws: int, visible: bool, made: int = 0):
        self.tune, self.made = tune, made
        columns = (
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TextColumn("{task.fields[live]}"),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TimeRemainingColumn(),
        )
        if visible and rich.get_console().is_jupyter and find_spec("ipywidgets") is None:
            message = "The progress bar needs ipywidgets in a notebook: pip install ipywidgets, or progressbar=False."
            warnings.warn(message, UserWarning, stacklevel=4)
            visible = False
        self.bar = rich.progress.Progress(*columns, disable=not visible)
        self.task = self.bar.add_task("", total=tune + draws, completed=made, live="")
        self.first, self.made_first = None, 0

    def __enter__(self):
        self.bar.start()
        return self

    def __exit__(self, *exception):
        self.bar.stop()

    def say(self, what: str) -> None:
        """Say what is done before the first draw."""
        self.bar.update(self.task, description=what)

    def advance(self, count: int, stats: dict[str, np.ndarray]) -> None:
        """Move the bar on by ``count`` draws, and show the statistics of the last of them."""
        self.made += count
        now = time.perf_counter()
        shown = [name for name in stats if name in ("lp", SWEEPS) or name.startswith("acceptance")]
        live = [f"{name} {stats[name][-1].mean():.4g}" for name in shown]
        if self.first is None:  # the first call also compiles, so that its time says nothing about the rate
            self.first, self.made_first = now, self.made
        else:
            live.append(f"{(self.made - self.made_first) / (now - self.first):.0f} draws/s")
        phase = "Tuning" if self.made < self.tune else "Sampling"
        self.bar.update(self.task, completed=self.made, description=phase, live=", ".join(live))

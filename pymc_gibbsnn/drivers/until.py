"""When a run ends before it has made all its draws: enough effective draws, or a time limit."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import pymc as pm
import xarray as xr

from pymc_gibbsnn._arguments import describe, positive
from pymc_gibbsnn.drivers.mixing import POINTS, ess_of, judged, networks_to_judge, that_matter
from pymc_gibbsnn.drivers.results import Draws, datasets
from pymc_gibbsnn.prediction.function import function_evaluator

__all__ = ["Until"]

FIRST, GROWTH = 100, 1.25  # at how many draws the effective ones are first counted, and by what factor until the next


class Until:
    """Decides whether a run may end.

    Parameters
    ----------
    until : mapping, optional
        The argument of :func:`pymc_gibbsnn.sample`.
    model : pm.Model
        The model.
    started : float
        When the call of ``pmg.sample`` began, in seconds of ``time.perf_counter``.

    Raises
    ------
    TypeError
        If ``until`` is no dictionary.
    ValueError
        If it holds something else than positive numbers named "ess" and "seconds".
    """

    def __init__(self, until: Mapping[str, float] | None, model: pm.Model, started: float):
        if until is not None and not isinstance(until, Mapping):
            raise TypeError(
                f"until must be a dictionary, such as {{'ess': 400}} or {{'seconds': 3600}}; found {describe(until)}."
            )
        asked = dict(until or {})
        if unknown := [name for name in asked if name not in ("ess", "seconds")]:
            raise ValueError(f"until may hold 'ess' and 'seconds'; found {describe(unknown[0])}.")
        self.ess, seconds = (name in asked and positive(f"until['{name}']", asked[name]) for name in ("ess", "seconds"))
        self.deadline = started + seconds if seconds else np.inf
        self.model, self.series, self.draws, self.next = model, [], 0, FIRST
        if self.ess:
            networks = networks_to_judge(model)
            self.evaluate, self.judge = function_evaluator(model, points=POINTS), judged(model, networks)

    def check(self, nothing: Draws) -> None:
        """Try, before any sampling, whether the effective sample size can be computed from what will be recorded.

        Of the draws that it is given, ``nothing``, the shapes alone count.

        Raises
        ------
        ValueError
            If a variable that the function of the network needs is not recorded.
        NetworkError
            If the model has no function that can be evaluated.
        """
        if self.ess:
            one = ({name: np.zeros((1, *x.shape[1:]), x.dtype) for name, x in part.items()} for part in nothing)
            self.evaluate(datasets(self.model, Draws(*one), first=0)["posterior"])

    def add(self, draws: Draws) -> None:
        """Evaluate the function of the network at draws that follow those that were added before."""
        if self.ess:
            self.take(datasets(self.model, draws, first=self.draws)["posterior"])

    def take(self, posterior: xr.Dataset) -> None:
        """Evaluate the function at draws that are a dataset already, as those of a run that goes on from its store.

        Nothing is done if no effective sample size was asked for, since a limit of time needs no draws.
        """
        if not (self.ess and posterior.sizes["draw"]):
            return
        self.series.append(self.judge(posterior, self.evaluate(posterior)))
        self.draws += posterior.sizes["draw"]

    @property
    def is_reached(self) -> bool:
        """Whether the run may end now."""
        if time.perf_counter() >= self.deadline:
            return True
        if not self.ess or self.draws < self.next:
            return False
        self.series = [{name: np.concatenate([part[name] for part in self.series], axis=1) for name in self.series[0]}]
        self.next = int(GROWTH * self.draws) + 1
        output, *_ = self.series[0].values()
        if not np.ptp(output, axis=1).any(axis=1).all():  # a chain did not move: its draws are one
            return False
        sizes = [ess_of(that_matter(name, x)) for name, x in self.series[0].items()]
        return all((ess >= self.ess).all() for ess in sizes)  # False where it is NaN

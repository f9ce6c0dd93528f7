"""Automatic thinning: how many sweeps a draw has, chosen while chains tune.

The draws that a user asks for are to have an effective sample size of 400 over all chains, and 100 in each, where
ArviZ begins to trust R-hat [1]_. After an eighth, a quarter, a half and all of T tuning steps, thinning looks at the
last half of the steps made so far, all of which have the same number k of sweeps. If the effective sample size of the
slowest of the watched numbers is e, of m steps of all chains together, sweeps that are τ = k m / e apart are as good
as independent, and a draw of

    k = 2 τ · max(400, 100 · chains) / (chains · draws)

sweeps gives all draws together twice the effective sample size asked for. The factor is there since e is an estimate
from few steps. k is at least 1 and at most 10, and smaller for large networks and data, where ten times the time would
often not reach the aim either: k forward passes of all rows may make at most a million multiplications by weights,
unless k is 1. Nothing here looks at a clock, so that the same seed gives the same draws. ``pm.sample`` chooses for each
chain by itself, ``pmg.sample`` for all together.

References
----------
.. [1] A. Vehtari, A. Gelman, D. Simpson, B. Carpenter, P.-C. Bürkner. Rank-normalization, folding, and localization:
   an improved R-hat. Bayesian Analysis 16 (2021), arXiv 1903.08008.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from pymc_gibbsnn.drivers.mixing import ess_of
from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["AUTO", "SWEEPS", "Thinning", "most_sweeps"]

AUTO, SWEEPS = "auto", "sweeps_per_draw"  # the value of the argument, and the name of the argument and the statistic
PER_RUN, PER_CHAIN = 400, 100  # the effective sample sizes that are aimed at
MARGIN = 2
MOST_SWEEPS, MOST_MULTIPLICATIONS = 10, 1_000_000  # of a draw
SHORTEST = 20  # so many steps at least are looked at
CHAINS = 16  # so many chains at most


@dataclass
class Thinning:
    """Chooses how many sweeps the draws of some chains have.

    Parameters
    ----------
    tune, draws : int
        How many tuning steps a chain makes, 0 if nothing is to be chosen, and how many draws after them, thinned ones
        included.
    chains : int
        How many chains the run has.
    most : int
        How many sweeps a draw may have.
    sweeps : int
        How many sweeps a tuning step has at first.
    steps : int
        How many tuning steps were made.
    series : array, (step, chain, number)
        What was watched since the last choice.
    """

    tune: int
    draws: int
    chains: int
    most: int
    sweeps: int = 1
    steps: int = 0
    series: np.ndarray = field(default_factory=lambda: np.zeros((0, 1, 1)))

    @property
    def next_choice(self) -> int:
        """After how many tuning steps the number of sweeps is chosen next."""
        return next((end for end in (self.tune >> k for k in (3, 2, 1)) if end > self.steps), self.tune)

    def add(self, watched: np.ndarray) -> None:
        """Take in what was watched, (step, chain, number), at tuning steps up to the next choice, and choose."""
        watched = watched[:, :CHAINS]
        self.series = np.concatenate([self.series, watched]) if len(self.series) else watched
        end = self.next_choice
        self.steps += len(watched)
        if self.steps == end:
            self._choose(self.series[-max(1, self.steps // 2) :])
            self.series = self.series[:0]

    def _choose(self, series: np.ndarray) -> None:
        """Choose the number of sweeps by steps that all have the present one."""
        moving = series[..., np.ptp(series, axis=0).all(axis=0)]
        if len(series) < SHORTEST or not (moving.size and np.isfinite(moving).all()):
            return
        with np.errstate(all="ignore"):
            ess = ess_of(moving.swapaxes(0, 1))
        apart = self.sweeps * series.shape[0] * series.shape[1] / np.nanmin(ess)
        asked = MARGIN * max(PER_RUN, PER_CHAIN * self.chains) / (self.chains * max(1, self.draws))
        self.sweeps = min(max(1, math.ceil(asked * apart)), self.most)

    def state(self) -> dict[str, np.ndarray]:
        """Return what another one needs to go on from here, even if it is asked for more draws."""
        return {"thinning": np.array([self.sweeps, self.steps, self.draws]), "watched": self.series}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from where :meth:`state` returned this."""
        (self.sweeps, self.steps, self.draws), self.series = state["thinning"].tolist(), state["watched"]


def most_sweeps(transitions: Iterable[Transition]) -> int:
    """Return how many sweeps by these transitions a draw may have."""
    each = sum(transition.multiplications for transition in transitions)
    return max(1, min(MOST_SWEEPS, MOST_MULTIPLICATIONS // max(1, each)))

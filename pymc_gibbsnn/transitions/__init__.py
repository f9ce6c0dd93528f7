"""Samplers as PyTensor graphs.

A transition maps (rng, state, carry, tuning) to (rng', state', carry', stats) and knows no driver, no backend and no
chain: ``state`` holds the model's value variables, ``carry`` what the sampler remembers from one transition to the
next, ``tuning`` is the share of the tuning still to come, 0 after it, ``stats`` is what it reports. It is built once,
symbolically, and compiled by whoever runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pytensor.graph.basic import Variable

__all__ = ["Transition"]


@dataclass(frozen=True, eq=False)
class Transition:
    """A sampler before it is compiled.

    Attributes
    ----------
    variables : list of Variable
        Value variables that the transition moves.
    step : callable
        ``step(rng, state, carry, tuning) -> (rng, state, carry, stats)``; state maps value variables to expressions,
        carry and stats map names to expressions, tuning is a scalar from 1 down to 0. Entries of the carry that a step
        does not return stay as they are.
    carry : dict of str to Variable
        The carry at the start of a chain, as expressions of data and constants.
    stats : list of str
        Names of the statistics, each a scalar; the first is what a progress bar shows.
    check : callable
        Called before each chain; raises where the data no longer fit.
    tune_steps : int
        How many tuning steps are enough; 0 where nothing is tuned.
    """

    variables: list[Variable]
    step: Callable
    carry: dict[str, Variable] = field(default_factory=dict)
    stats: list[str] = field(default_factory=list)
    check: Callable[[], None] = lambda: None
    tune_steps: int = 0

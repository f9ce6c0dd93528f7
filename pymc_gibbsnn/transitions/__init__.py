"""Samplers as PyTensor graphs.

A transition maps (rng, state, carry, tuning) to (rng', state', carry', stats) and knows no driver, no backend and no
chain: ``state`` holds the model's value variables, ``carry`` what the sampler remembers from one transition to the
next, ``tuning`` is the share of the tuning still to come, 0 after it, ``stats`` is what it reports. It is built once,
symbolically, and compiled by whoever runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.tensor.random.type import random_generator_type

__all__ = ["Graph", "Transition"]


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
    rows : Variable, optional
        Data whose first axis runs over samples: arrays with an axis of that length can be spread over devices.
    """

    variables: list[Variable]
    step: Callable
    carry: dict[str, Variable] = field(default_factory=dict)
    stats: list[str] = field(default_factory=list)
    check: Callable[[], None] = lambda: None
    tune_steps: int = 0
    rows: Variable | None = None

    @cached_property
    def _start(self) -> Callable[[], list[np.ndarray]]:
        return pytensor.function([], list(self.carry.values()), mode="FAST_COMPILE")

    def start(self) -> dict[str, np.ndarray]:
        """The carry at the start of a chain, from the data as they are now."""
        return dict(zip(self.carry, self._start(), strict=True))

    def graph(self) -> Graph:
        """The transition with inputs of its own, for a driver to compile."""
        rng, tuning = random_generator_type("rng"), pt.scalar("tuning")
        carry = {name: value.type(name) for name, value in self.carry.items()}
        new_rng, state, new_carry, stats = self.step(rng, {v: v for v in self.variables}, carry, tuning)
        outputs = [new_rng, *(state[v] for v in self.variables), *new_carry.values(), *stats.values()]
        known = [rng, *self.variables, *carry.values(), tuning]
        others = [v for v in explicit_graph_inputs(outputs) if v not in known]
        return Graph(rng, others, carry, tuning, outputs, list(new_carry), list(stats))


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs and outputs of one transition, as a driver compiles them.

    Attributes
    ----------
    rng, tuning : Variable
    others : list of Variable
        Value variables that the transition reads and other steps move.
    carry : dict of str to Variable
    outputs : list of Variable
        The next rng, the new values of the transition's variables, the changed carry, the statistics.
    changing : list of str
        Names of the changed carry.
    stats : list of str
    """

    rng: Variable
    others: list[Variable]
    carry: dict[str, Variable]
    tuning: Variable
    outputs: list[Variable]
    changing: list[str]
    stats: list[str]

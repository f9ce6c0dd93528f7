"""Samplers as PyTensor graphs.

A transition maps (rng, state, carry, tuning) to (rng', state', carry', stats) and knows no driver, no backend and no
chain: ``state`` holds the model's value variables, ``carry`` what the sampler remembers from one transition to the
next, ``tuning`` is the share of the tuning still to come, 0 after it, ``stats`` is what it reports. It is built once,
symbolically, and compiled by whoever runs it.

A sampler may move coordinates of its own instead of the model's variables. A driver calls it for a *turn* at a time:
``begin`` computes the carry from the variables, wherever other samplers have brought them; then come some steps, which
need not look at the variables, each followed by ``tune`` while the chain tunes; ``record`` gives the variables their
values, before anything else reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.random.type import random_generator_type

from pymc_gibbsnn.networks.minibatch import refuse_minibatches

__all__ = ["Graph", "Stage", "Transition"]


@dataclass(frozen=True, eq=False)
class Transition:
    """A sampler before it is compiled.

    Attributes
    ----------
    variables : list of Variable
        Value variables that the transition moves.
    step : callable
        ``step(rng, state, carry, tuning) -> (rng, state, carry, stats)``; state maps value variables to expressions,
        carry and stats map names to expressions, tuning is a scalar from 1 down to 0. Entries of the state and the
        carry that a step does not return stay as they are.
    carry : dict of str to Variable
        The carry at the start of a chain, as expressions of data and constants.
    stats : list of str
        Names of the statistics, each a scalar; the first is what a progress bar shows.
    check : callable
        Called before each chain; raises where the data no longer fit.
    tune_steps : int
        How many tuning steps are enough; 0 where nothing is tuned.
    rows : Variable, optional
        Data whose first axis runs over samples: arrays with an axis of that length can be spread over devices,
        blocks of samples over threads.
    begin : callable, optional
        ``begin(state, carry) -> carry``, before the steps of a turn.
    tune : callable, optional
        ``tune(rng, state, carry, tuning) -> (rng, state, carry)``, after each step as long as ``tuning`` is not 0; the
        rng is None if nothing is drawn. What is learned here costs nothing afterwards.
    record : callable, optional
        ``record(rng, state, carry) -> (rng, state)``, after them.
    latents : list of Variable
        Those of the variables with a row for each row of the data, which predictions at other rows draw anew.
    advice : str
        What to do where a chain leaves the finite numbers, as a sentence without its full stop.
    """

    variables: list[Variable]
    step: Callable
    carry: dict[str, Variable] = field(default_factory=dict)
    stats: list[str] = field(default_factory=list)
    check: Callable[[], None] = lambda: None
    tune_steps: int = 0
    rows: Variable | None = None
    begin: Callable | None = None
    record: Callable | None = None
    latents: list[Variable] = field(default_factory=list)
    tune: Callable | None = None
    advice: str = ""

    def __getstate__(self) -> dict[str, object]:
        """All but what is compiled."""
        return {name: value for name, value in self.__dict__.items() if name != "_start"}

    @cached_property
    def data(self) -> list[SharedVariable]:
        """What the carry is computed from."""
        return [v for v in ancestors(list(self.carry.values())) if isinstance(v, SharedVariable)]

    @cached_property
    def _start(self) -> Callable[[], list[np.ndarray]]:
        return pytensor.function([], list(self.carry.values()), mode="FAST_COMPILE")

    def start(self) -> dict[str, np.ndarray]:
        """The carry at the start of a chain, from the data as they are now."""
        return dict(zip(self.carry, self._start(), strict=True))

    def graph(self) -> Graph:
        """The transition with inputs of its own, for a driver to compile.

        Raises
        ------
        NotImplementedError
            If it holds a ``pm.Minibatch`` that its sampler does not draw.
        """
        rng, tuning = random_generator_type("rng"), pt.scalar("tuning")
        carry = {name: value.type(name) for name, value in self.carry.items()}
        state = {v: v for v in self.variables}
        stages = {}
        if self.begin:
            stages["begin"] = Stage(None, {}, self.begin(state, carry), {})
        stages["step"] = Stage(*self.step(rng, state, carry, tuning))
        if self.tune:
            stages["tune"] = Stage(*self.tune(rng, state, carry, tuning), {})
        if self.record:
            next_rng, recorded = self.record(rng, state, carry)
            stages["record"] = Stage(None if next_rng is rng else next_rng, recorded, {}, {})
        inputs = [rng, *self.variables, *carry.values(), tuning]
        outputs = [output for stage in stages.values() for output in stage.outputs]
        refuse_minibatches([*outputs, *self.carry.values()])
        others = [v for v in explicit_graph_inputs(outputs) if v not in inputs]
        return Graph(rng, [*self.variables, *others], carry, tuning, stages)


@dataclass(frozen=True, eq=False)
class Stage:
    """What a part of a turn computes: the next rng unless nothing is drawn, then what changes, then statistics."""

    rng: Variable | None
    state: dict[Variable, Variable]
    carry: dict[str, Variable]
    stats: dict[str, Variable]

    @property
    def outputs(self) -> list[Variable]:
        """All of them in this order."""
        drawn = [] if self.rng is None else [self.rng]
        return [*drawn, *self.state.values(), *self.carry.values(), *self.stats.values()]


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs and outputs of a transition, as a driver compiles them.

    Attributes
    ----------
    rng, tuning : Variable
    values : list of Variable
        The transition's value variables, then those that it reads and other steps move.
    carry : dict of str to Variable
    stages : dict of str to Stage
        "step", and "begin", "tune" and "record" if the transition has them, each a function of all inputs.
    """

    rng: Variable
    values: list[Variable]
    carry: dict[str, Variable]
    tuning: Variable
    stages: dict[str, Stage]

    @property
    def inputs(self) -> list[Variable]:
        """All inputs in order."""
        return [self.rng, *self.values, *self.carry.values(), self.tuning]

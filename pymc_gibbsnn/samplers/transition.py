"""Transitions: samplers as PyTensor graphs of one step.

A transition maps (rng, state, carry, tuning) to (rng', state', carry', stats), and does not know by which driver, in
which backend or for which chain it runs. ``state`` holds the model's value variables; ``carry`` holds what the sampler
remembers from one step to the next; ``tuning`` is the share of the tuning that is still to come, and 0 after tuning;
``stats`` holds the numbers that it reports. The graph is built once, and compiled by the driver that runs it.

A sampler may move coordinates of its own instead of the model's variables. A driver calls it for a *turn* at a time. A
turn has up to four stages: ``begin`` computes the carry from the variables, which other samplers may have moved, and is
left out where none has; then come some steps, which need not look at the variables; while the chain tunes, ``tune``
follows each of these steps; and ``record`` computes the variables, before others read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.random.type import random_generator_type

from pymc_gibbsnn.backends.numba_kernels import MANY
from pymc_gibbsnn.networks.forms import AS_WRITTEN
from pymc_gibbsnn.networks.given import Given, computed_beforehand, loose
from pymc_gibbsnn.networks.minibatch import refuse_minibatches
from pymc_gibbsnn.networks.substitution import substitute

__all__ = ["Arrays", "Graph", "Stage", "Transition"]

Arrays = dict[str, np.ndarray]  # by the names of value variables, or of entries of the carry


@dataclass(frozen=True, eq=False)
class Transition:
    """A sampler before it is compiled.

    Parameters
    ----------
    variables : list of Variable
        The value variables that the transition moves.
    step : callable
        ``step(rng, state, carry, tuning) -> (rng, state, carry, stats)``. The state maps value variables to
        expressions, carry and stats map names to expressions, and tuning is a scalar that falls from 1 to 0. Entries of
        the state and the carry that a step does not return stay as they are.
    carry : dict of str to Variable
        The carry at the start of a chain, as expressions of data and constants.
    stats : list of str
        Names of the statistics, each of which is a scalar; a progress bar shows the first one. A step may return a
        vector of several, by a tuple of their names, so that their number is not a part of the program.
    check : callable
        A function that is called before each chain, and raises an error if the data no longer fit.
    tune_steps : int
        How many tuning steps are enough; 0 where nothing is tuned.
    rows : Variable, optional
        Data whose first axis runs over samples. Arrays with an axis of that length can be spread over devices, and
        blocks of samples over threads.
    begin : callable, optional
        ``begin(state, carry) -> carry``, the stage before the steps of a turn.
    tune : callable, optional
        ``tune(rng, state, carry, tuning) -> (rng, state, carry)``, the stage after each step as long as ``tuning`` is
        not 0; the rng that it returns is None if it draws nothing. Steps after the tuning do not pay for it.
    record : callable, optional
        ``record(rng, state, carry) -> (rng, state)``, the stage after them.
    latents : list of Variable
        Those of the variables that have a row for each row of the data, which predictions at other rows draw anew.
    tuned : dict of str to str or None
        Entries of the carry with which a chain must begin that goes on where another one ended: by name, the statistic
        that reports it at every draw, and whose logarithm it is; None where none does.
    find : callable, optional
        ``find(point, rng) -> (point, carry)`` for arrays of NumPy, by the names of value variables and of entries of
        the carry: from where a chain had better start. A driver asks once, before the first step of a chain that is
        going to tune.
    search : str
        What ``find`` does, told to the user where it may take long.
    advice : str
        What the user can do if values of a chain stop being finite: a sentence without its full stop, for the error.
    watched : Variable, optional
        A vector of numbers, as an expression of the model's value variables, whose autocorrelation says how many sweeps
        a draw should have (:mod:`pymc_gibbsnn.drivers.thinning`); None where the user has to say.
    multiplications : int
        How many a sweep makes, in order of magnitude; the automatic choice is bounded by it.
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
    tuned: Mapping[str, str | None] = field(default_factory=dict)
    find: Callable[[Arrays, np.random.Generator], tuple[Arrays, Arrays]] | None = None
    search: str = ""
    advice: str = ""
    watched: Variable | None = None
    multiplications: int = 0

    def __getstate__(self) -> dict[str, object]:
        """Leave out what is compiled."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_start", "watch")}

    @cached_property
    def data(self) -> list[SharedVariable]:
        """The shared variables from which the carry at the start of a chain is computed."""
        return [v for v in ancestors(list(self.carry.values())) if isinstance(v, SharedVariable)]

    @cached_property
    def _start(self) -> Callable[[], list[np.ndarray]]:
        """The compiled function that computes the carry at the start of a chain."""
        return pytensor.function([], list(self.carry.values()), mode=AS_WRITTEN)

    @cached_property
    def watch(self) -> Callable[[Arrays], np.ndarray]:
        """A function that computes what is watched from the values of value variables by name."""
        read = list(explicit_graph_inputs([self.watched]))
        function = pytensor.function(read, self.watched, mode=AS_WRITTEN)
        return lambda values: function(*(np.asarray(values[v.name], v.dtype) for v in read))

    def start(self) -> dict[str, np.ndarray]:
        """Compute the carry at the start of a chain, from the data as they are now."""
        return dict(zip(self.carry, self._start(), strict=True))

    def graph(
        self,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        carried: Mapping[str, tuple[int, ...]] | None = None,
        whole: Callable[[np.ndarray], np.ndarray] = np.asarray,
    ) -> Graph:
        """Write the transition as a graph with inputs of its own, for a driver to compile.

        Parameters
        ----------
        shapes : mapping of str to tuple of int, optional
            Shapes of the value variables by name, where a backend needs to know them and compiles for them alone. By
            default the graph serves all shapes, but for axes of length 1, which broadcast, and of many columns, by
            which Numba's products are chosen.
        carried : mapping of str to tuple of int, optional
            Likewise of the entries of the carry; by default those that :meth:`start` gives them.
        whole : callable
            A function of the given whole numbers, such as lengths of axes, that says which numbers stand in the graph.

        Raises
        ------
        NotImplementedError
            If it holds a ``pm.Minibatch`` that its sampler does not draw.
        """
        rng, tuning = random_generator_type("rng"), pt.scalar("tuning")
        if shapes is not None and carried is None:
            carried = {name: x.shape for name, x in self.start().items()}
        carry = {name: _input(value, name, carried) for name, value in self.carry.items()}
        state = {v: v for v in self.variables}
        stages = {}
        if self.begin:
            stages["begin"] = Stage(None, {}, self.begin(state, carry), {})
        stages["step"] = Stage(*self.step(rng, state, carry, tuning))
        if self.tune:
            stages["tune"] = Stage(*self.tune(rng, state, carry, tuning), {})  # type: ignore[call-arg]
        if self.record:
            next_rng, recorded = self.record(rng, state, carry)
            stages["record"] = Stage(None if next_rng is rng else next_rng, recorded, {}, {})
        inputs = [rng, *self.variables, *carry.values(), tuning]
        outputs = [output for stage in stages.values() for output in stage.outputs]
        refuse_minibatches([*outputs, *self.carry.values()])
        others = [v for v in explicit_graph_inputs(outputs) if v not in inputs]
        values = {v: _input(v, v.name, shapes, v in self.latents) for v in [*self.variables, *others]}
        numbers = {} if shapes is None else _whole_numbers(outputs, whole)
        stages = {name: stage.at(values | numbers) for name, stage in stages.items()}
        if shapes is None:
            stages = {name: stage.of(computed_beforehand(stage.outputs)) for name, stage in stages.items()}
        return Graph(rng, list(values.values()), carry, tuning, stages)


def _input(v: Variable, name: str, shapes: Mapping[str, tuple[int, ...]] | None, has_rows: bool = False) -> Variable:
    """Make an input in the place of a variable, for arrays of one shape or of all shapes.

    Parameters
    ----------
    v : Variable
        The variable.
    name : str
        Its name.
    shapes : mapping of str to tuple of int, optional
        Shapes by name, if a backend must know them.
    has_rows : bool
        Whether its first axis runs over samples.

    Returns
    -------
    Variable
    """
    if shapes is not None:
        return v.type.clone(shape=shapes[name])(name)
    known, columns = loose(v.type).shape, v.type.shape[has_rows:]
    many = [length if length is not None and length >= MANY else None for length in columns]
    return v.type.clone(shape=[a or b for a, b in zip(known, [None] * has_rows + many, strict=True)])(name)


def _whole_numbers(outputs: Sequence[Variable], whole: Callable) -> dict[Variable, Variable]:
    """Map the given whole numbers in expressions, such as lengths of axes, to constants."""
    numbers = [v for v in ancestors(outputs) if isinstance(v, Given) and v.dtype.startswith("int")]
    return {v: pt.constant(whole(v.get_value()), dtype=v.dtype) for v in numbers}


@dataclass(frozen=True, eq=False)
class Stage:
    """What one stage of a turn computes.

    Attributes
    ----------
    rng : Variable, optional
        The next random generator; None if nothing is drawn.
    state : dict of Variable to Variable
        The value variables that change.
    carry : dict of str to Variable
        The entries of the carry that change.
    stats : dict of str to Variable
        The statistics; vectors of several by tuples of their names.
    """

    rng: Variable | None
    state: dict[Variable, Variable]
    carry: dict[str, Variable]
    stats: dict[str | tuple[str, ...], Variable]

    def at(self, values: Mapping[Variable, Variable]) -> Stage:
        """Return the stage with variables replaced by others."""
        return self.of(substitute(self.outputs, values))

    def of(self, outputs: Iterable[Variable]) -> Stage:
        """Return the stage with other expressions in place of its outputs, in the same order."""
        outputs = iter(outputs)
        rng = None if self.rng is None else next(outputs)
        return Stage(rng, *({name: next(outputs) for name in part} for part in (self.state, self.carry, self.stats)))

    def named_stats(self, values: Iterator) -> dict[str, Any]:
        """Name each statistic, of the values of the statistics in the order of the outputs."""
        named: dict[str, Any] = {}
        for names, value in zip(self.stats, values, strict=True):
            named |= {names: value} if isinstance(names, str) else dict(zip(names, value, strict=True))
        return named

    @property
    def outputs(self) -> list[Variable]:
        """All outputs of the stage: the generator if there is one, then state, carry and statistics."""
        drawn = [] if self.rng is None else [self.rng]
        return [*drawn, *self.state.values(), *self.carry.values(), *self.stats.values()]


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs and outputs of a transition, as a driver compiles them.

    Attributes
    ----------
    rng, tuning : Variable
        The random generator, and the share of the tuning that is still to come.
    values : list of Variable
        The value variables that the transition moves, and then those that it reads and other steps move.
    carry : dict of str to Variable
        The carry.
    stages : dict of str to Stage
        The stage "step", and the stages "begin", "tune" and "record" if the transition has them, as functions of all
        inputs.
    """

    rng: Variable
    values: list[Variable]
    carry: dict[str, Variable]
    tuning: Variable
    stages: dict[str, Stage]

    @property
    def inputs(self) -> list[Variable]:
        """All inputs of the graph, in the order in which compiled functions take them."""
        return [self.rng, *self.values, *self.carry.values(), self.tuning]

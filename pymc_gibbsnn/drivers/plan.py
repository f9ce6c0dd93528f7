"""What a run of ``pmg.sample`` is to do, after all its arguments have been checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymc as pm
import pytensor
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import boolean, describe, model_of, number, one_of, path_of, string_list, whole
from pymc_gibbsnn.drivers.given_steps import steps_of
from pymc_gibbsnn.drivers.initial_points import check_initvals
from pymc_gibbsnn.drivers.placement import Placement, choose_placement
from pymc_gibbsnn.drivers.step import GraphStep
from pymc_gibbsnn.drivers.thinning import AUTO, Thinning, most_sweeps
from pymc_gibbsnn.drivers.until import Until
from pymc_gibbsnn.models.without_latents import without_latents
from pymc_gibbsnn.networks.input_reader import variable_inputs, with_known_places
from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["Plan", "Schedule", "make_plan", "schedule_of"]

# What to do where a chain leaves the finite numbers, if its samplers have no advice of their own
PRECISION = "in single precision, try precision='float64'; else the data or the initial values are too large"


@dataclass(frozen=True)
class Schedule:
    """What each chain is to do.

    Attributes
    ----------
    tune, draws : int
        How many tuning steps it makes, and how many draws it records after them.
    thinning : Thinning
        How many sweeps a tuning step has, and how that is chosen.
    thin : int
        How many times as many sweeps a recorded draw has.
    """

    tune: int
    draws: int
    thinning: Thinning
    thin: int


@dataclass(frozen=True)
class Plan:
    """What a run is to do.

    Attributes
    ----------
    model : pm.Model
        The model.
    steps : list of GraphStep
        The steps, which together move each free variable once.
    recorded : dict of str to Variable
        What is recorded, as expressions of value variables, by name.
    chains : int
        How many chains there are.
    schedule : Schedule
        What each of them does.
    initvals
        Where they start, as the user said it.
    precision : {"float64", "float32"}
        The precision of all numbers.
    placement : Placement
        How chains and rows are spread over devices.
    until : Until
        What ends the run before the schedule does.
    path : Path, optional
        Where the store is; None if draws are kept in memory.
    may_go_on : bool
        Whether the run that the store holds goes on, if there is one.
    checkpoint_every : float
        How many seconds lie between checkpoints.
    callback : callable, optional
        What is called with each draw.
    """

    model: pm.Model
    steps: list[GraphStep]
    recorded: dict[str, Variable]
    chains: int
    schedule: Schedule
    initvals: Any
    precision: str
    placement: Placement
    until: Until
    path: Path | None
    may_go_on: bool
    checkpoint_every: float
    callback: Callable | None

    @property
    def transitions(self) -> list[Transition]:
        """The transitions of the steps."""
        return [step.transition for step in self.steps]

    @property
    def advice(self) -> str:
        """What to do where a chain leaves the finite numbers."""
        return next((transition.advice for transition in self.transitions if transition.advice), PRECISION)


def make_plan(
    model: pm.Model | None,
    step: GraphStep | Sequence[GraphStep],
    *,
    draws: int,
    tune: int | None,
    chains: int,
    thin: int,
    var_names: Sequence[str] | None,
    initvals: Any,
    precision: str | None,
    devices: str | Sequence | None,
    shards: int,
    local_rows: bool,
    store: str | os.PathLike | None,
    resume: str | os.PathLike | None,
    checkpoint_every: float,
    until: Mapping[str, float] | None,
    callback: Callable | None,
    begun: float,
) -> Plan:
    """Check the arguments of a run, and make its plan; what can be refused without the store is refused here.

    Parameters
    ----------
    model, step, draws, tune, chains, thin, var_names, initvals, precision, devices, shards, local_rows, store, resume
    checkpoint_every, until, callback
        As in :func:`pymc_gibbsnn.sample`, and so are the errors.
    begun : float
        When the run began, in seconds of ``time.perf_counter``.
    """
    model = model_of(model)
    steps = steps_of(step, model)
    _check_steps(steps, model)
    recorded = _recorded(model, var_names)
    chains, shards, local_rows = whole("chains", chains), whole("shards", shards), boolean("local_rows", local_rows)
    schedule = schedule_of(steps, draws=draws, tune=tune, thin=thin, chains=chains, local_rows=local_rows)
    precision = one_of("precision", precision or pytensor.config.floatX, ("float32", "float64"))
    check_initvals(model, initvals, chains)
    if precision > pytensor.config.floatX:
        raise ValueError("precision='float64' needs a model that was made with PyTensor's floatX='float64'.")
    checkpoint_every = number("checkpoint_every", checkpoint_every, "a number of seconds", lambda x: x >= 0)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function of a trace and a draw; found {describe(callback)}.")
    return Plan(
        model=model,
        steps=steps,
        recorded=recorded,
        chains=chains,
        schedule=schedule,
        initvals=initvals,
        precision=precision,
        placement=choose_placement([one.transition for one in steps], devices, chains, shards, local_rows),
        until=Until(until, model, begun),
        path=_path(store, resume),
        may_go_on=resume is not None,
        checkpoint_every=checkpoint_every,
        callback=callback,
    )


def _check_steps(steps: list[GraphStep], model: pm.Model) -> None:
    """Refuse steps that do not move each free variable of the model once."""
    for step in steps:
        if not isinstance(step, GraphStep):
            raise TypeError(
                f"step must be one of pymc_gibbsnn, which pmg.sample runs as one JAX program; found "
                f"{type(step).__name__}: use pm.sample(step=[...])."
            )
        step.transition.check()
    moved = [v for step in steps for v in step.transition.variables]
    if left := [rv.name for rv, v in model.rvs_to_values.items() if v in model.value_vars and v not in moved]:
        raise ValueError(f"No step moves the free variables {left}: give one for them, or use pm.sample.")
    if twice := sorted({v.name for v in moved if moved.count(v) > 1}):
        raise ValueError(f"More than one step moves {twice}.")


def _recorded(model: pm.Model, var_names: Sequence[str] | None) -> dict[str, Variable]:
    """Return the variables to record by name, as expressions of value variables."""
    variables = {v.name: v for v in [*model.free_RVs, *model.deterministics]}
    inputs = [found.x for found in variable_inputs(model)]  # which have a number for each row, as latents do
    names = (
        string_list("var_names", var_names)
        if var_names is not None
        else [*without_latents(model), *(v.name for v in model.deterministics if v not in inputs)]
    )
    if not names:
        raise ValueError("var_names names nothing to record; leave it out to record all but the latents.")
    if unknown := [name for name in names if name not in variables]:
        raise ValueError(f"var_names holds {unknown}, which the model does not have; it has {list(variables)}.")
    recorded = with_known_places(model, [variables[name] for name in names])
    return dict(zip(names, model.replace_rvs_by_values(recorded), strict=True))


def schedule_of(
    steps: Sequence[GraphStep], *, draws: int, tune: int | None, thin: int, chains: int, local_rows: bool
) -> Schedule:
    """Return what each chain is to do.

    Parameters
    ----------
    steps : sequence of GraphStep
        The steps, which say how many sweeps a draw has, or one of which that it is to be chosen automatically; the
        others then take part, unless one of them asks for several sweeps.
    draws, tune, thin, chains, local_rows
        As in :func:`pymc_gibbsnn.sample`; if ``tune`` is None, it is as many as the steps need. With ``local_rows``
        nothing is chosen, since no process has all rows.
    """
    asked = {step.sweeps_per_draw for step in steps}
    is_auto = AUTO in asked and asked <= {AUTO, 1}
    numbers = {1} if is_auto else asked - {AUTO}
    if len(numbers) > 1:
        raise ValueError("All steps must have the same sweeps_per_draw, because they take turns; found different ones.")
    if tune is None:
        tune = max(step.default_tune_steps for step in steps)
    tune, draws, thin = whole("tune", tune, least=0), whole("draws", draws), whole("thin", thin)
    most, [sweeps] = most_sweeps(step.transition for step in steps), numbers
    chooses = is_auto and not local_rows
    if chooses:
        sweeps = int(max(step.first_sweeps.max() for step in steps))
    watched = tune if chooses and most > 1 else 0
    thinning = Thinning(tune=watched, draws=draws * thin, chains=chains, most=most, sweeps=sweeps)
    return Schedule(tune=tune, draws=draws, thinning=thinning, thin=thin)


def _path(store: str | os.PathLike | None, resume: str | os.PathLike | None) -> Path | None:
    """Return where the store is that a user names once or twice; None if there is none."""
    given = {"store": store, "resume": resume}
    paths = [path_of(name, value) for name, value in given.items() if value is not None]
    if paths and paths[0].absolute() != paths[-1].absolute():
        raise ValueError(f"store and resume must name the same path, if both are given; found {store} and {resume}.")
    return paths[-1] if paths else None

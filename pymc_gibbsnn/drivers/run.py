"""A run of ``pmg.sample``, by its plan: its results are opened, its chains begin, and they draw."""

from __future__ import annotations

import io
import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import xarray as xr

from pymc_gibbsnn import _compat
from pymc_gibbsnn._arguments import seeds_of_chains
from pymc_gibbsnn._version import __version__
from pymc_gibbsnn.backends.machine import memory_warning
from pymc_gibbsnn.drivers.chain_loop import WATCHED, apart, run_chains
from pymc_gibbsnn.drivers.checkpoints import Checkpoint, pack, unpack
from pymc_gibbsnn.drivers.fingerprint import fingerprint_of, fingerprint_of_model, fingerprint_of_steps
from pymc_gibbsnn.drivers.interrupts import Interrupts
from pymc_gibbsnn.drivers.placement import Placement
from pymc_gibbsnn.drivers.plan import Plan
from pymc_gibbsnn.drivers.processes import all_say, first_says, is_first, one_of_many
from pymc_gibbsnn.drivers.program import Program
from pymc_gibbsnn.drivers.progress import Progress
from pymc_gibbsnn.drivers.results import Elsewhere, Memory, datasets
from pymc_gibbsnn.drivers.starts import find_starts, points_of_chains
from pymc_gibbsnn.drivers.store import Store, is_vacant

__all__ = ["Start", "open_results", "run", "start_of_chains"]


@dataclass(frozen=True)
class Start:
    """Where the chains of a run start.

    Attributes
    ----------
    seeds : list of int
        The seed of each chain.
    points : list of dict of str to array
        The point of value variables at which each chain starts.
    carries : dict of str to array, (chain, ...)
        Entries of the carry that do not start as a transition says, by their names in the state of the program.
    """

    seeds: list[int]
    points: list[dict[str, np.ndarray]]
    carries: dict[str, np.ndarray]


def open_results(plan: Plan) -> Memory | Store:
    """Return what keeps the draws, of which only the first of several processes writes any to a store."""
    path, opened = plan.path, []
    if path is None:
        return Memory(plan.model)

    def open_store() -> bytes:
        goes_on = plan.may_go_on and not is_vacant(path)
        opened.append(Store(path, goes_on, plan.checkpoint_every))
        packed = io.BytesIO()
        if goes_on:
            pack(opened[0].checkpoint, packed)
        return packed.getvalue()

    packed = first_says(open_store)
    return opened[0] if is_first() else Elsewhere(plan.model, unpack(io.BytesIO(packed)) if packed else None)


def start_of_chains(plan: Plan, results: Memory | Store, random_seed: Any) -> Start:
    """Return where the chains start, and make sure that the results are those of this run, here and in all processes.

    Raises
    ------
    ValueError
        If the results hold more draws than the plan has, or are those of another run, or processes differ in the run.
    """
    if results.draws > plan.schedule.draws:
        raise ValueError(f"draws counts all draws of each chain, of which the store holds {results.draws}.")
    seeds = _seeds(plan, results.checkpoint, random_seed)
    points = points_of_chains(plan.model, plan.initvals, seeds)
    tuned = {f"carry {i} {name}": x for i, step in enumerate(plan.steps) for name, x in step.tuned.items()}
    start = Start(seeds, points, tuned)
    if plan.path is not None or one_of_many():
        identity = _identity(plan, start, results.checkpoint)
        if plan.path is not None:
            first_says(lambda: results.identify(identity, _machine(plan.placement)) or b"")
    return start


def run(plan: Plan, start: Start, results: Memory | Store, *, progressbar: bool, interrupts: Interrupts):
    """Let the chains draw from their start, or from where the results stand, and return what the results hold.

    Parameters
    ----------
    plan : Plan
        What to do.
    start : Start
        Where the chains start.
    results : Memory or Store
        What receives the draws.
    progressbar : bool
        Whether to show a progress bar.
    interrupts : Interrupts
        Interrupts that had no effect, which are looked at before a long piece of work.
    """
    schedule, chains_begin = plan.schedule, results.checkpoint is None
    progress = Progress(schedule.tune, schedule.draws, progressbar and is_first(), made=results.tuned + results.draws)
    with progress, jax.enable_x64(plan.precision == "float64"), _without_warnings_of_jax():
        if schedule.tune and chains_begin and not plan.placement.local_rows:
            points, carries = find_starts(plan.transitions, start.points, start.seeds, progress)
            start = replace(start, points=points, carries=start.carries | carries)
        interrupts()
        progress.say(f"Compiling, {plan.chains} chains")
        started = time.perf_counter()
        program = _program(plan, start, chains_begin)
        others = _begin(plan, program, results)
        interrupts()
        try:
            run_chains(plan, program, results, progress)
        except (KeyboardInterrupt, FloatingPointError) as reason:
            if not results.draws:
                raise
            if isinstance(reason, FloatingPointError):
                warnings.warn(f"{reason} The draws before that are returned.", UserWarning, stacklevel=3)
            else:
                interrupts.came.clear()
    if not results.draws:
        kept = f" The run goes on with resume={str(results.path)!r}." if isinstance(results, Store) else ""
        raise TimeoutError(f"The time limit in until= was reached before anything was drawn.{kept}")
    now = time.perf_counter()
    first = progress.first or now  # when the first draws came, until which JAX compiles
    times = {"compilation_time": first - started, "sampling_time": results.seconds + now - first}
    return results.finish(others, _attributes(plan) | times)


def _seeds(plan: Plan, checkpoint: Checkpoint | None, random_seed: Any) -> list[int]:
    """Return a seed for each chain, the same in all processes; a run that goes on keeps its own if none is given."""
    if checkpoint and random_seed is None and checkpoint.run["chains"] == plan.chains:
        random_seed = checkpoint.run["random_seed"]
    return json.loads(first_says(lambda: json.dumps(seeds_of_chains(random_seed, plan.chains)).encode()))


def _identity(plan: Plan, start: Start, checkpoint: Checkpoint | None) -> dict[str, Any]:
    """Return what decides the draws of a run, by name; refuse the run if processes differ in it.

    Raises
    ------
    ValueError
        If another process has another model, other steps, arguments or, where all have all rows, other data.
    """
    starts = [start.points, start.carries] if start.carries else start.points
    initvals = checkpoint.run["initvals"] if checkpoint and plan.initvals is None else fingerprint_of(starts)
    identity = {"the version of pymc_gibbsnn": __version__}
    identity |= fingerprint_of_model(plan.model) | fingerprint_of_steps(plan.steps)
    identity |= {
        "chains": plan.chains,
        "random_seed": start.seeds,
        "precision": plan.precision,
        "tune": plan.schedule.tune,
        "thin": plan.schedule.thin,
        "var_names": list(plan.recorded),
        "initvals": initvals,
    }
    own = {}
    if plan.placement.local_rows:  # with which each process may have data of its own
        own = {name: identity.pop(name) for name in list(identity) if name.startswith("the data")}
        identity["initvals"] = ""  # latents start at values that depend on the data
    said = all_say(**{name: int(fingerprint_of(part)[-7:], 16) for name, part in {"run": identity, "own": own}.items()})
    if len({*said["run"]}) > 1:
        raise ValueError("All processes must build the same model and steps, from the same data; found others.")
    return identity | {"the data of each process": said["own"].tolist()} if own else identity


def _machine(placement: Placement) -> dict[str, str | int]:
    """Return that part of the machine on which the last digits of draws depend."""
    mesh = placement.mesh
    return {
        "JAX": jax.__version__,
        "PyTensor": pytensor.__version__,
        "the kind of device": mesh.devices.flat[0].device_kind,
        "the number of groups of devices": mesh.shape["chain"],
        "the number of shards": mesh.shape["row"],
    }


@contextmanager
def _without_warnings_of_jax() -> Iterator[None]:
    """Leave out warnings of what the package does on purpose."""
    with warnings.catch_warnings():
        # Graphs ask for double precision by name; where it is off, JAX warns each time that it gives single.
        warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
        # JAX cannot raise errors, so PyTensor leaves out its checks of shapes and parameters, and warns of each.
        warnings.filterwarnings("ignore", "Skipping (Assert|Check)", UserWarning)
        yield


def _program(plan: Plan, start: Start, chains_begin: bool) -> Program:
    """Make the program, with chains that begin where they start; it is compiled later."""
    recorded = plan.recorded
    if plan.schedule.thinning.tune:
        recorded = recorded | {WATCHED: pt.concatenate([t.watched for t in plan.transitions if t.watched is not None])}
    program = Program(
        plan.transitions,
        variables=plan.model.value_vars,
        recorded=recorded,
        points=start.points,
        keys=np.array([np.random.SeedSequence([seed, 0]).generate_state(2) for seed in start.seeds]),
        placement=plan.placement,
        dtype=plan.precision,
        constants=plan.steps[0].constants,
    )
    if start.carries and chains_begin:
        program.restore(program.state() | {name: x.astype(plan.precision) for name, x in start.carries.items()})
    return program


def _begin(plan: Plan, program: Program, results: Memory | Store) -> dict[str, xr.Dataset]:
    """Make results, program and ``until`` ready for the first draw, and return the data of the model."""
    thinning, checkpoint, (nothing, _) = plan.schedule.thinning, results.checkpoint, apart(program.nothing(), 0)
    plan.until.check(nothing)
    plan.placement.check_recorded(nothing.values)
    others = {} if plan.placement.local_rows else _compat.data_groups(plan.model)
    if plan.path is None:
        sizes = {name: size for name, size in program.sizes.items() if name != WATCHED}
        if message := memory_warning(sizes, plan.schedule.draws):
            warnings.warn(message, UserWarning, stacklevel=4)
        return others
    state = program.state() | thinning.state()
    first_says(lambda: results.begin(state, datasets(plan.model, nothing, first=0), others) or b"")
    if checkpoint:
        program.restore(checkpoint.state)
        thinning.restore(checkpoint.state)
        if is_first():
            for posterior, _ in results.parts():
                plan.until.take(posterior)
    return others


def _attributes(plan: Plan) -> dict[str, Any]:
    """Return how a run was made, which its posterior holds as attributes."""
    return {
        "inference_library": "pymc_gibbsnn",
        "inference_library_version": __version__,
        "tuning_steps": plan.schedule.tune,
        "thinning": plan.schedule.thin,
        "precision": plan.precision,
        "devices": ", ".join(str(device) for device in plan.placement.mesh.devices.flat),
    }

"""``pmg.sample``, which runs the transitions of a whole model as one JAX program."""

from __future__ import annotations

import io
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable

from pymc_gibbsnn import _compat
from pymc_gibbsnn._arguments import (
    boolean,
    describe,
    model_of,
    number,
    one_of,
    path_of,
    seeds_of_chains,
    string_list,
    whole,
)
from pymc_gibbsnn._version import __version__
from pymc_gibbsnn.backends.jax_backend import keep_programs
from pymc_gibbsnn.backends.machine import memory_warning
from pymc_gibbsnn.drivers.checkpoints import Checkpoint, pack, unpack
from pymc_gibbsnn.drivers.fingerprint import fingerprint_of, fingerprint_of_model, fingerprint_of_steps
from pymc_gibbsnn.drivers.given_steps import steps_of
from pymc_gibbsnn.drivers.initial_points import check_initvals
from pymc_gibbsnn.drivers.interrupts import remembered
from pymc_gibbsnn.drivers.progress import Progress
from pymc_gibbsnn.drivers.results import Draws, Elsewhere, Memory
from pymc_gibbsnn.drivers.starts import find_starts, points_of_chains
from pymc_gibbsnn.drivers.step import GraphStep
from pymc_gibbsnn.drivers.store import Store, is_vacant
from pymc_gibbsnn.drivers.thinning import AUTO, Thinning, most_sweeps
from pymc_gibbsnn.drivers.until import Until
from pymc_gibbsnn.models.without_latents import without_latents
from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["sample"]

# What to do where a chain leaves the finite numbers, if its samplers have no advice of their own
PRECISION = "in single precision, try precision='float64'; else the data or the initial values are too large"
CHECKPOINT_EVERY = 60.0  # seconds


def sample(
    draws: int = 1000,
    *,
    step: GraphStep | Sequence[GraphStep],
    tune: int | None = None,
    chains: int = 4,
    thin: int = 1,
    var_names: Sequence[str] | None = None,
    random_seed=None,
    initvals: dict[str, ArrayLike] | Sequence[dict[str, ArrayLike] | None] | None = None,
    precision: str | None = None,
    devices: str | Sequence | None = None,
    shards: int = 1,
    local_rows: bool = False,
    store: str | os.PathLike | None = None,
    resume: str | os.PathLike | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    until: Mapping[str, float] | None = None,
    callback: Callable | None = None,
    progressbar: bool = True,
    model: pm.Model | None = None,
):
    """Draw from the posterior of a model in JAX, if all its variables are moved by samplers of this package.

    The transitions that ``pm.sample`` would call from Python one by one are compiled into a single program, a loop over
    draws. On a CPU it runs one chain on each core; on a GPU, or on several devices, it moves all chains side by side.
    It returns to Python about once a second. The distribution of the draws is the same as with ``pm.sample(step=...)``;
    the documentation of each step names its source.

    Parameters
    ----------
    draws : int
        How many draws of each chain to record.
    step : GibbsNN or another step of this package, or a list of them
        The samplers, which together move every free variable of the model. PyTensor does not compile them.
    tune : int, optional
        How many draws to make first and discard, while step sizes and the sweeps of a draw adapt and noise may be
        larger; by default as many as the steps need: 1,000 for :class:`GibbsNN`, and for other Metropolis steps whose
        size is tuned; 2,000 for stochastic gradients that fit or learn, and for GibbsNN if its ``anneal`` is a number;
        0 where nothing is tuned.
    chains : int
        How many chains to run.
    thin : int
        Of how many draws one is recorded. Each draw is ``sweeps_per_draw`` sweeps of the step, so that the two numbers
        multiply; tuning draws are not thinned.
    var_names : sequence of str, optional
        Free variables and deterministics to record; by default all but the latents of noisy networks, which predictions
        draw anew (:func:`without_latents`). Nothing else leaves the device.
    random_seed : int, numpy.random.Generator or sequence of int, optional
        The seed. The same seed gives the same draws on the same number and kind of devices.
    initvals : dict or sequence of dict, optional
        Starting values, as for ``pm.sample``; see :func:`initial_values`.
    precision : {"float64", "float32"}, optional
        The precision of all numbers; by default that of PyTensor's ``floatX``. GPUs are fast in single precision; keep
        the variance of the noise above about 1e-7 of the squared signal there.
    devices : str or sequence of jax.Device, optional
        "cpu", "gpu" or "tpu" for the first device of that kind, or a list of devices, over which chains are spread; by
        default JAX's first device; after ``jax.distributed.initialize``, the devices of that kind of all processes.
    shards : int
        Over how many devices the samples (rows of data and latents) of each chain are spread. Chains are then spread
        over ``len(devices) // shards`` groups of devices, and Gram matrices and products are summed across devices.
    local_rows : bool
        Whether the model of each process, after ``jax.distributed.initialize``, has only rows of its own, as many as
        that of any other process. The data are then the rows of all processes, in the order of the processes. This is
        for :class:`GibbsNN`, which then starts at weights of zero and makes one sweep a draw unless it is told
        otherwise, since no process has all rows; ``shards``
        must be a multiple of the number of processes, and ``var_names`` must not name latents.
    store : path, optional
        A new Zarr store on disk, a folder that does not exist or is empty, to which draws are written instead of being
        kept in memory. Needs ``zarr``. :func:`open` reads it at any time.
    resume : path, optional
        The store of a run that was killed, interrupted or has ended, to go on with it, in tuning too, up to ``draws``
        draws in all. They are the draws that an uninterrupted run would have made, with as many sweeps a draw as were
        chosen for the ``draws`` with which it began. All other arguments must be those with which the run began;
        ``random_seed`` and ``initvals`` may be left out. Where there is nothing yet, or an empty folder, the run
        begins. ``store`` may name the same path.
    checkpoint_every : float
        How many seconds lie between checkpoints, at which draws are written to the store, and with them all that is
        needed to go on. There is one more at the end, at an interrupt (Ctrl-C), and at SIGTERM, which schedulers send
        before they take a machine away.
    until : dict, optional
        What ends the run before ``draws`` draws are made: ``{"ess": 400}``, a bulk effective sample size of 400, over
        all chains, of the outputs of the network at up to 50 rows of the data, or of the probabilities of classes
        there, as :func:`summary` computes it; ``{"seconds": 3600}``, a time limit that begins with this call; or both,
        and the first to be reached counts. For "ess" all weights must be recorded.
    callback : callable, optional
        As for ``pm.sample``: ``callback(trace, draw)`` is called for each draw of each chain, in groups once a second.
        ``draw`` has the fields ``chain``, ``is_last``, ``draw_idx``, ``tuning``, ``stats`` and ``point``, which holds
        what is recorded; ``trace`` is None. If it raises KeyboardInterrupt, the draws made so far are returned.
    progressbar : bool
        Whether to show a progress bar.
    model : pm.Model, optional
        The model; by default that of the context.

    Returns
    -------
    InferenceData (ArviZ 0.23) or DataTree (ArviZ 1)
        The groups ``posterior``, ``sample_stats``, ``observed_data`` and ``constant_data``, as ``pm.sample`` returns
        them; those of a store are read when they are needed. After an interrupt (Ctrl-C), the draws made so far. With
        a store, None in processes other than the first. After SIGTERM nothing is returned: the process ends by
        SystemExit, unless the signal has a handler of yours.

    Raises
    ------
    ImportError
        If JAX, or for a store Zarr, is not installed.
    TypeError
        If a step is not of this package, or an argument of another type than asked for.
    ValueError
        If a free variable has no step, two steps move the same variable or have different ``sweeps_per_draw``,
        ``var_names`` names what the model lacks, a number is out of range, chains or rows cannot be spread over the
        devices, or the run in the store was begun with another model, other data, steps, seeds or arguments, or its
        files are damaged; the message names what has changed, or which file.
    NetworkError
        If ``until`` asks for "ess" and the model has no function that :func:`function_space` can compute.
    FloatingPointError
        If a chain reaches numbers that are not finite before anything is drawn. If it does later, the function warns
        and returns the draws before.
    FileExistsError
        If ``store`` exists and is no empty folder.
    FileNotFoundError
        If the store of ``resume`` has lost its checkpoint.
    OSError
        If the store cannot be written, because the disk is full, say. What was written before can be read. A folder
        that cannot be written is found before anything is compiled.
    RuntimeError
        If another process is writing the store.
    TimeoutError
        If the time limit of ``until`` is reached before anything is drawn.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> with pmg.mlp(X, X[:, 0] ** 2, hidden=5):
    ...     idata = pmg.sample(1000, step=pmg.GibbsNN(), chains=8)  # doctest: +SKIP
    """
    try:
        import jax
    except ImportError:
        raise ImportError("pmg.sample runs in JAX, which is not installed: pip install 'pymc-gibbsnn[jax]'.") from None

    begun = time.perf_counter()
    with remembered():
        from pymc_gibbsnn.drivers.chain_loop import WATCHED, apart, run_chains
        from pymc_gibbsnn.drivers.placement import choose_placement
        from pymc_gibbsnn.drivers.processes import first_says, is_first, one_of_many
        from pymc_gibbsnn.drivers.program import Program

        keep_programs()
        model = model_of(model)
        steps = steps_of(step, model)
        transitions = _transitions(steps, model)
        recorded = _recorded(model, var_names)
        chains, shards = whole("chains", chains), whole("shards", shards)
        schedule = _schedule(steps, draws, tune, thin, chains, boolean("local_rows", local_rows))
        precision = one_of("precision", precision or pytensor.config.floatX, ("float32", "float64"))
        check_initvals(model, initvals, chains)
        if precision > pytensor.config.floatX:
            raise ValueError("precision='float64' needs a model that was made with PyTensor's floatX='float64'.")
        checkpoint_every = number("checkpoint_every", checkpoint_every, "a number of seconds", lambda x: x >= 0)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be a function of a trace and a draw; found {describe(callback)}.")
        placement = choose_placement(transitions, devices, chains, shards, boolean("local_rows", local_rows))
        make = partial(_datasets, model)
        ends = Until(until, model, make, begun)
    with remembered() as interrupts, _results(store, resume, checkpoint_every, make) as results:
        before = results.checkpoint
        if results.draws > schedule.draws:
            raise ValueError(f"draws counts all draws of each chain, of which the store holds {results.draws}.")
        seeds = _seeds_of_chains(random_seed, chains, before)
        keys = np.array([np.random.SeedSequence([seed, 0]).generate_state(2) for seed in seeds])
        points = points_of_chains(model, initvals, seeds)
        tuned = {f"carry {i} {name}": x for i, step in enumerate(steps) for name, x in step.tuned.items()}
        starts = [points, tuned] if tuned else points
        on_disk = store is not None or resume is not None
        if on_disk or one_of_many():
            arguments = {
                "chains": chains,
                "random_seed": seeds,
                "precision": precision,
                "tune": schedule.tune,
                "thin": schedule.thin,
                "var_names": list(recorded),
                "initvals": before.run["initvals"] if before and initvals is None else fingerprint_of(starts),
            }
            run = _run_of_all(model, steps, arguments, placement)
            if on_disk:
                first_says(lambda: results.identify(run, _machine(placement)) or b"")
        made = results.tuned + results.draws
        with (
            Progress(schedule.tune, schedule.draws, progressbar and is_first(), made) as progress,
            jax.enable_x64(precision == "float64"),
            warnings.catch_warnings(),
        ):
            if schedule.tune and not before and not placement.local_rows:
                points, carries = find_starts(transitions, points, seeds, progress)
                tuned |= carries
            interrupts()
            progress.say(f"Compiling, {chains} chains")
            # Graphs ask for double precision by name; where it is off, JAX warns each time that it gives single.
            warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
            # JAX cannot raise errors, so PyTensor leaves out its checks of shapes and parameters, and warns of each.
            warnings.filterwarnings("ignore", "Skipping (Assert|Check)", UserWarning)
            started = time.perf_counter()
            if schedule.thinning.tune:
                recorded[WATCHED] = pt.concatenate([t.watched for t in transitions if t.watched is not None])
            variables, constants = model.value_vars, steps[0].constants
            program = Program(transitions, variables, recorded, points, keys, placement, precision, constants)
            if tuned and not before:
                program.restore(program.state() | {name: x.astype(precision) for name, x in tuned.items()})
            nothing, _ = apart(program.nothing(), 0)
            ends.check(nothing)
            placement.check_recorded(nothing[0])
            others = {} if placement.local_rows else _compat.data_groups(model)
            if on_disk:
                state = program.state() | schedule.thinning.state()
                first_says(lambda: results.begin(state, make(nothing, 0), others) or b"")
                if before:
                    program.restore(before.state)
                    schedule.thinning.restore(before.state)
                if before and is_first():
                    for posterior, _ in results.parts():
                        ends.take(posterior)
            elif message := memory_warning({k: x for k, x in program.sizes.items() if k != WATCHED}, schedule.draws):
                warnings.warn(message, UserWarning, stacklevel=2)
            advice = next((t.advice for t in transitions if t.advice), PRECISION)
            interrupts()
            try:
                run_chains(program, schedule, results, progress, advice, ends, callback if is_first() else None)
            except (KeyboardInterrupt, FloatingPointError) as reason:
                if not results.draws:
                    raise
                if isinstance(reason, FloatingPointError):
                    warnings.warn(f"{reason} The draws before that are returned.", UserWarning, stacklevel=2)
                else:
                    interrupts.came.clear()
        if not results.draws:
            kept = f" The run goes on with resume={str(results.path)!r}." if isinstance(results, Store) else ""
            raise TimeoutError(f"The time limit in until= was reached before anything was drawn.{kept}")
        now = time.perf_counter()
        first = progress.first or now  # when the first draws came, until which JAX compiles
        times = {"compilation_time": first - started, "sampling_time": results.seconds + now - first}
        return results.finish(others, _attributes(schedule, precision, placement) | times)


def _schedule(steps: list[GraphStep], draws: int, tune: int | None, thin: int, chains: int, local_rows: bool):
    """Return what each chain is to do.

    Parameters
    ----------
    steps : list of GraphStep
        The steps, which say how many sweeps a draw has, or one of which that it is to be chosen automatically; the
        others then take part, unless one of them asks for several sweeps.
    draws, tune, thin, chains, local_rows
        As in :func:`sample`; if ``tune`` is None, it is as many as the steps need. With ``local_rows`` nothing is
        chosen, since no process has all rows.
    """
    from pymc_gibbsnn.drivers.chain_loop import Schedule

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
    steps_to_watch = tune if chooses and most > 1 else 0
    return Schedule(tune, draws, Thinning(steps_to_watch, draws * thin, chains, most, sweeps), thin)


def _seeds_of_chains(random_seed, chains: int, before: Checkpoint | None) -> list[int]:
    """Return a seed for each chain, the same in all processes; a run that goes on keeps its own if none is given."""
    from pymc_gibbsnn.drivers.processes import first_says

    if before and random_seed is None and before.run["chains"] == chains:
        random_seed = before.run["random_seed"]
    return json.loads(first_says(lambda: json.dumps(seeds_of_chains(random_seed, chains)).encode()))


def _results(
    store: str | os.PathLike | None,
    resume: str | os.PathLike | None,
    checkpoint_every: float,
    make: Callable[[Draws, int], dict[str, xr.Dataset]],
) -> Memory | Store:
    """Return what keeps the draws, of which only the first of several processes writes any to a store.

    Parameters
    ----------
    store, resume, checkpoint_every
        As in :func:`sample`.
    make : callable
        As in :class:`~pymc_gibbsnn.drivers.results.Memory`.
    """
    from pymc_gibbsnn.drivers.processes import first_says, is_first

    if store is None and resume is None:
        return Memory(make)
    given = {"store": store, "resume": resume}
    paths = [path_of(name, value) for name, value in given.items() if value is not None]
    path = paths[-1]
    if paths[0].absolute() != path.absolute():
        raise ValueError(f"store and resume must name the same path, if both are given; found {store} and {resume}.")
    opened = []

    def open_store() -> bytes:
        goes_on = resume is not None and not is_vacant(path)
        opened.append(Store(path, goes_on, checkpoint_every))
        packed = io.BytesIO()
        if goes_on:
            pack(opened[0].checkpoint, packed)
        return packed.getvalue()

    packed = first_says(open_store)
    return opened[0] if is_first() else Elsewhere(unpack(io.BytesIO(packed)) if packed else None)


def _run_of_all(model: pm.Model, steps: Sequence[GraphStep], arguments: dict[str, Any], placement) -> dict[str, Any]:
    """Return what decides the draws of a run, by name; refuse the run if processes differ in it.

    Parameters
    ----------
    model : pm.Model
        The model.
    steps : sequence of GraphStep
        The steps.
    arguments : dict
        The arguments of :func:`sample` that decide draws.
    placement : Placement
        How the run is spread; with it, each process may have data of its own.

    Raises
    ------
    ValueError
        If another process has another model, other steps, arguments or, where all have all rows, other data.
    """
    from pymc_gibbsnn.drivers.processes import all_say

    version = {"the version of pymc_gibbsnn": __version__}
    run = version | fingerprint_of_model(model) | fingerprint_of_steps(steps) | arguments
    own = {}
    if placement.local_rows:
        own = {name: run.pop(name) for name in list(run) if name.startswith("the data")}
        run["initvals"] = ""  # latents start at values that depend on the data
    said = all_say(**{name: int(fingerprint_of(part)[-7:], 16) for name, part in {"run": run, "own": own}.items()})
    if len({*said["run"]}) > 1:
        raise ValueError("All processes must build the same model and steps, from the same data; found others.")
    return run | {"the data of each process": said["own"].tolist()} if own else run


def _machine(placement) -> dict[str, str | int]:
    """Return that part of the machine on which the last digits of draws depend."""
    import jax

    mesh = placement.mesh
    return {
        "JAX": jax.__version__,
        "PyTensor": pytensor.__version__,
        "the kind of device": mesh.devices.flat[0].device_kind,
        "the number of groups of devices": mesh.shape["chain"],
        "the number of shards": mesh.shape["row"],
    }


def _attributes(schedule, precision: str, placement) -> dict[str, Any]:
    """Return how a run was made, which its posterior holds as attributes."""
    return {
        "inference_library": "pymc_gibbsnn",
        "inference_library_version": __version__,
        "tuning_steps": schedule.tune,
        "thinning": schedule.thin,
        "precision": precision,
        "devices": ", ".join(str(device) for device in placement.mesh.devices.flat),
    }


def _transitions(steps: list[GraphStep], model: pm.Model) -> list[Transition]:
    """Return the transitions of the steps; refuse them if they do not move each free variable of the model once."""
    for step in steps:
        if not isinstance(step, GraphStep):
            raise TypeError(
                f"step must be one of pymc_gibbsnn, which pmg.sample runs as one JAX program; found "
                f"{type(step).__name__}: use pm.sample(step=[...])."
            )
        step.transition.check()
    moved = [v for step in steps for v in step.transition.variables]
    left = [rv.name for rv, v in model.rvs_to_values.items() if v in model.value_vars and v not in moved]
    if left:
        raise ValueError(f"No step moves the free variables {left}: give one for them, or use pm.sample.")
    twice = sorted({v.name for v in moved if moved.count(v) > 1})
    if twice:
        raise ValueError(f"More than one step moves {twice}.")
    return [step.transition for step in steps]


def _recorded(model: pm.Model, var_names: Sequence[str] | None) -> dict[str, Variable]:
    """Return the variables to record by name, as expressions of value variables."""
    variables = {v.name: v for v in [*model.free_RVs, *model.deterministics]}
    names = (
        string_list("var_names", var_names)
        if var_names is not None
        else [*without_latents(model), *(v.name for v in model.deterministics)]
    )
    if not names:
        raise ValueError("var_names names nothing to record; leave it out to record all but the latents.")
    unknown = [name for name in names if name not in variables]
    if unknown:
        raise ValueError(f"var_names holds {unknown}, which the model does not have; it has {list(variables)}.")
    return dict(zip(names, model.replace_rvs_by_values([variables[name] for name in names]), strict=True))


def _datasets(model: pm.Model, draws: Draws, first: int) -> dict[str, xr.Dataset]:
    """Turn draws into datasets, the groups "posterior" and "sample_stats"; the first draw has the number ``first``."""
    groups = dict(zip(("posterior", "sample_stats"), draws, strict=True))
    return {
        group: _compat.dataset(model, {name: np.swapaxes(x, 0, 1) for name, x in found.items()}, first)
        for group, found in groups.items()
    }

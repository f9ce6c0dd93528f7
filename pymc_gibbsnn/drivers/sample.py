"""``pmg.sample``, which runs the transitions of a whole model as one JAX program."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import pymc as pm
import pytensor
import xarray as xr
from numpy.typing import ArrayLike
from pymc.initial_point import make_initial_point_fns_per_chain
from pymc.util import _get_seeds_per_chain
from pytensor.graph.basic import Variable

from pymc_gibbsnn import _compat
from pymc_gibbsnn._arguments import boolean, model_of, one_of, string_list, whole
from pymc_gibbsnn._version import __version__
from pymc_gibbsnn.backends.jax_backend import keep_programs
from pymc_gibbsnn.backends.machine import memory_warning
from pymc_gibbsnn.drivers.given_steps import steps_of
from pymc_gibbsnn.drivers.interrupts import uninterrupted
from pymc_gibbsnn.drivers.progress import Progress
from pymc_gibbsnn.drivers.results import Memory, Store
from pymc_gibbsnn.drivers.step import GraphStep
from pymc_gibbsnn.models.initial_values import check_initvals
from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["sample"]

# What to do where a chain leaves the finite numbers, if its samplers have no advice of their own
PRECISION = "in single precision, try precision='float64'; else the data or the initial values are too large"
SECONDS_A_CALL = 1.0  # how long a call of the program takes; the progress bar and Ctrl-C are looked at between calls


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
    store: str | os.PathLike | None = None,
    append: bool = False,
    progressbar: bool = True,
    model: pm.Model | None = None,
):
    """Draw from the posterior of a model in JAX, if all its variables are moved by samplers of this package.

    The transitions that ``pm.sample`` would call from Python one by one are compiled into a single program, a loop over
    draws. On a CPU it runs one chain on each core; on a GPU, or on several devices, it moves all chains side by side.
    It returns to Python about once a second. The law of the draws is the same as with ``pm.sample(step=...)``; the
    documentation of each step names its source.

    Parameters
    ----------
    draws : int
        How many draws of each chain to record.
    step : GibbsNN or another step of this package, or a list of them
        The samplers, which together move every free variable of the model. PyTensor does not compile them.
    tune : int, optional
        How many draws to make and discard before, while step sizes adapt and noise is annealed; by default as many as
        the steps need, which is 0 where nothing is tuned.
    chains : int
        How many chains to run.
    thin : int
        How many draws are made for each recorded one, in addition to the ``sweeps_per_draw`` of the step; it does not
        apply to tuning.
    var_names : sequence of str, optional
        Free variables and deterministics to record; by default all. Nothing else leaves the device.
    random_seed : int, numpy.random.Generator or sequence of int, optional
        The seed. The same seed gives the same draws on the same number and kind of devices.
    initvals : dict or sequence of dict, optional
        Starting values, as for ``pm.sample``; see :func:`initial_values`.
    precision : {"float64", "float32"}, optional
        The precision of all numbers; by default that of PyTensor's ``floatX``. GPUs are fast in single precision; keep
        the variance of the noise above about 1e-6 of the squared signal there.
    devices : str or sequence of jax.Device, optional
        "cpu", "gpu" or "tpu" for the first device of that kind, or a list of devices, over which chains are spread; by
        default JAX's first device.
    shards : int
        Over how many devices the samples (rows of data and latents) of each chain are spread. Chains are then spread
        over ``len(devices) // shards`` groups of devices, and Gram matrices and products are summed across devices.
    store : path, optional
        A Zarr store on disk to which draws are written as they are made, instead of being kept in memory. Needs
        ``zarr``.
    append : bool
        Whether to add the draws to a store that exists, which is refused otherwise. The chains begin at ``initvals``
        again, with other random numbers.
    progressbar : bool
        Whether to show a progress bar.
    model : pm.Model, optional
        The model; by default that of the context.

    Returns
    -------
    InferenceData (ArviZ 0.23) or DataTree (ArviZ 1)
        The groups ``posterior``, ``sample_stats``, ``observed_data`` and ``constant_data``, as ``pm.sample`` returns
        them; those of a store are read when they are needed. After an interrupt (Ctrl-C), the draws made so far.

    Raises
    ------
    ImportError
        If JAX, or for a store Zarr, is not installed.
    TypeError
        If a step is not of this package, or an argument of another type than asked for.
    ValueError
        If a free variable has no step, a number is out of range, or the draws do not go with those of the store.
    FloatingPointError
        If a chain reaches numbers that are not finite before anything is drawn. If it does later, the function warns
        and returns the draws before.
    FileExistsError
        If the store exists and ``append`` is False.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pmg.sample(1000, step=pmg.GibbsNN(), chains=8, var_names=["W1", "b1", "W2", "b2"])
    """
    try:
        import jax
    except ImportError:
        raise ImportError("pmg.sample runs in JAX, which is not installed: pip install 'pymc-gibbsnn[jax]'.") from None

    from pymc_gibbsnn.drivers.placement import choose_placement
    from pymc_gibbsnn.drivers.program import Program

    keep_programs()
    model = model_of(model)
    steps = steps_of(step, model)
    transitions = _transitions(steps, model)
    recorded = _recorded(model, var_names)
    advice = next((t.advice for t in transitions if t.advice), PRECISION)
    if tune is None:
        tune = max(step.default_tune_steps for step in steps)
    if len({step.sweeps_per_draw for step in steps}) > 1:
        raise ValueError("All steps must have the same sweeps_per_draw, because they take turns; found different ones.")
    draws, chains, thin = whole("draws", draws), whole("chains", chains), whole("thin", thin)
    tune, shards, append = whole("tune", tune, least=0), whole("shards", shards), boolean("append", append)
    precision = one_of("precision", precision or pytensor.config.floatX, ("float32", "float64"))
    check_initvals(model, initvals, chains)
    if precision > pytensor.config.floatX:
        raise ValueError("precision='float64' needs a model that was made with PyTensor's floatX='float64'.")
    placement = choose_placement(transitions, devices, chains, shards)
    results = Memory() if store is None else Store(store, append)

    before = results.draws
    seeds = _get_seeds_per_chain(random_seed, chains)
    keys = np.array([np.random.SeedSequence([int(seed), before]).generate_state(2) for seed in seeds])
    points = _points(model, initvals, seeds)
    sweeps = steps[0].sweeps_per_draw
    with jax.enable_x64(precision == "float64"), warnings.catch_warnings():
        # Graphs ask for double precision by name. Where it is off, JAX warns each time that it gives single precision.
        warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
        warnings.filterwarnings("ignore", "Skipping Assert", UserWarning)  # PyTensor's, on shapes we have checked
        started = time.perf_counter()
        program = Program(transitions, model.value_vars, recorded, points, keys, placement, precision)
        results.check(_datasets(model, *program.nothing(), before))
        if store is None and (message := memory_warning(program.sizes, draws)):
            warnings.warn(message, UserWarning, stacklevel=2)
        with Progress(tune, draws, chains, progressbar) as progress:
            try:
                for count, (_, stats) in _calls(program, tune, sweeps, tune, advice):
                    progress.advance(count, stats)
                for count, (values, stats) in _calls(program, draws, sweeps * thin, 0, advice):
                    with uninterrupted():
                        results.append(_datasets(model, values, stats, results.draws))
                        progress.advance(count, stats)
            except (KeyboardInterrupt, FloatingPointError) as reason:
                if results.draws == before:
                    raise
                if isinstance(reason, FloatingPointError):
                    warnings.warn(f"{reason} The draws before that are returned.", UserWarning, stacklevel=2)
    attrs = {
        "inference_library": "pymc_gibbsnn",
        "inference_library_version": __version__,
        "compilation_time": progress.first - started,  # this includes the first draw
        "sampling_time": time.perf_counter() - progress.first,
        "tuning_steps": tune,
        "thinning": thin,
        "precision": precision,
        "devices": ", ".join(str(device) for device in placement.mesh.devices.flat),
    }
    return results.finish(_compat.data_groups(model), attrs)


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
    names = list(variables) if var_names is None else string_list("var_names", var_names)
    if not names:
        raise ValueError("var_names names nothing to record; leave it out to record all.")
    unknown = [name for name in names if name not in variables]
    if unknown:
        raise ValueError(f"var_names holds {unknown}, which the model does not have; it has {list(variables)}.")
    return dict(zip(names, model.replace_rvs_by_values([variables[name] for name in names]), strict=True))


def _points(model: pm.Model, initvals, seeds: Sequence[int]) -> list[dict[str, np.ndarray]]:
    """Return the point of value variables at which each chain starts."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        start = make_initial_point_fns_per_chain(model=model, overrides=initvals, jitter_rvs=set(), chains=len(seeds))
        points = [make(seed) for make, seed in zip(start, seeds, strict=True)]
    for point in points:
        for name, value in point.items():
            if not np.isfinite(value).all():
                raise ValueError(f"The initial value of '{name}' is not finite.")
    return points


def _calls(program, draws: int, sweeps: int, tune: int, advice: str) -> Iterator[tuple[int, tuple[dict, dict]]]:
    """Make draws by calls of the program that take about a second each; the first is short, to learn how long it takes.

    Parameters
    ----------
    program : Program
        The program.
    draws : int
        How many draws to make.
    sweeps : int
        How many sweeps are made for each draw.
    tune : int
        How many of these draws, from the first on, are tuning steps.
    advice : str
        What an error says to do.

    Yields
    ------
    count : int
        How many draws a call has made.
    values, stats : dict of str to array, (draw, chain, ...)
        What it has recorded.

    Raises
    ------
    FloatingPointError
        If a draw is not finite; those before it have been yielded.
    """
    done, count = 0, 1
    while done < draws:
        count = min(count, program.capacity, draws - done)
        before = time.perf_counter()
        values, stats = program.run(count, sweeps, done, tune)
        finite, reason = _finite_draws(stats, advice)
        if finite:
            yield finite, tuple({name: x[:finite] for name, x in part.items()} for part in (values, stats))
        if reason:
            raise FloatingPointError(reason)
        done += count
        seconds = max(time.perf_counter() - before, 1e-6)
        count = max(1, int(min(count * SECONDS_A_CALL / seconds, 10 * count)))


def _finite_draws(stats: dict[str, np.ndarray], advice: str) -> tuple[int, str]:
    """Count the draws before the first one that is not finite, and say in words what is wrong with that one.

    The words are empty if all draws are finite. JAX does not stop at NaN, but goes on with it.
    """
    for name, series in stats.items():
        bad = ~np.isfinite(series)
        if bad.any():
            return int(bad.any(axis=1).argmax()), (
                f"{name} is not finite in chains {np.flatnonzero(bad.any(axis=0)).tolist()}: {advice}."
            )
    return len(next(iter(stats.values()))), ""


def _datasets(model: pm.Model, values: dict, stats: dict, first: int) -> dict[str, xr.Dataset]:
    """Turn the draws of a call, (draw, chain, ...), into datasets.

    Parameters
    ----------
    model : pm.Model
        The model, which has names of axes and coordinates.
    values, stats : dict of str to array
        Recorded variables and statistics.
    first : int
        The number of the first draw.

    Returns
    -------
    dict of str to xarray.Dataset
        The groups "posterior" and "sample_stats".
    """
    groups = {"posterior": values, "sample_stats": stats}
    return {
        group: _compat.dataset(model, {name: np.swapaxes(x, 0, 1) for name, x in found.items()}, first)
        for group, found in groups.items()
    }

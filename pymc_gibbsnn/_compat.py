"""Every difference between the supported generations of PyMC, PyTensor and ArviZ, and nowhere else."""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import xarray as xr
from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_constants, find_observations
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.link.jax.linker import JAXLinker
from pytensor.tensor import subtensor
from pytensor.tensor.random.op import RandomVariable

PYTENSOR_3 = int(pytensor.__version__.split(".")[0]) >= 3
ARVIZ_1 = int(version("arviz").split(".")[0]) >= 1  # ArviZ brings Matplotlib with it: imported where it is used


# The operations that pick elements of an array
SUBTENSORS = tuple(
    getattr(subtensor, name)
    for name in ("Subtensor", "AdvancedSubtensor", "AdvancedSubtensor1")
    if hasattr(subtensor, name)
)


def observed_variables(model: pm.Model) -> list[Variable]:
    """What a model observes, each once: PyMC 5.28's ``sample_posterior_predictive`` adds names to the model's list."""
    return list(dict.fromkeys(model.observed_RVs))


def draw(op: RandomVariable, rng: Variable, *params, size: tuple[int, ...] | None = None) -> tuple[Variable, Variable]:
    """(next rng, draw) of a RandomVariable, which hides its first output before PyTensor 3."""
    if PYTENSOR_3:
        return op(*params, rng=rng, size=size, return_next_rng=True)
    return tuple(op(*params, rng=rng, size=size).owner.outputs)


_JAX_IMPLEMENTATIONS: list[tuple[str, type[Op], Callable]] = []


def _declare_jax(dispatcher: str, op_class: type[Op]) -> Callable:
    """Importing JAX takes seconds and makes forks unsafe, so PyTensor's dispatchers hear of what runs there only from
    :func:`register_jax`.
    """

    def declare(implementation: Callable) -> Callable:
        _JAX_IMPLEMENTATIONS.append((dispatcher, op_class, implementation))
        return implementation

    return declare


def jax_sampler(op_class: type[RandomVariable]) -> Callable:
    """Declare the maker of a RandomVariable's JAX sampler."""
    return _declare_jax("jax_sample_fn", op_class)


def jax_op(op_class: type[Op]) -> Callable:
    """Declare the maker of an Op's JAX function."""
    return _declare_jax("jax_funcify", op_class)


def register_jax() -> None:
    """Tell PyTensor's JAX linker of the implementations declared so far."""
    from pytensor.link.jax.dispatch.basic import jax_funcify
    from pytensor.link.jax.dispatch.random import jax_sample_fn

    dispatchers = {"jax_funcify": jax_funcify, "jax_sample_fn": jax_sample_fn}
    while _JAX_IMPLEMENTATIONS:
        dispatcher, op_class, implementation = _JAX_IMPLEMENTATIONS.pop()
        dispatchers[dispatcher].register(op_class, implementation)


def compilation_mode(mode: str | Mode | None) -> Mode:
    """The mode to compile with: Numba where neither the user nor PyTensor's configuration names one."""
    if mode is None and pytensor.config.mode == "Mode" and pytensor.config.linker == "auto":
        mode = "NUMBA"
    mode = get_mode(mode)
    if uses_jax(mode):
        register_jax()
        if type(mode.linker) is JAXLinker:
            mode = Mode(_ExactJAXLinker(), mode.provided_optimizer, mode.optdb)
    return mode


@cache
def xla_options(platform: str) -> dict[str, str]:
    """What a JAX program must be compiled with to be right on a platform, "cpu" or another.

    On a CPU, XLA as of jaxlib 0.10.2 hands sums along an axis, and what is computed beside them, to the library
    YNNPACK. From 4,096 sums on, of as many chains or rows, some programs come out wrong, such as
    (exp(u)[:, None] * z).sum(1) + expm1(u) + expm1(-u). These options keep sums in XLA. A jaxlib that does not know
    them has no such library.
    """
    if platform != "cpu":
        return {}
    import jax

    options = {"xla_cpu_experimental_ynn_fusion_type": ""}
    probe = jax.device_put(np.float32(0), jax.devices("cpu")[0])
    try:
        jax.jit(lambda x: x).lower(probe).compile(compiler_options=options)
    except jax.errors.JaxRuntimeError:
        return {}
    return options


class _ExactJAXLinker(JAXLinker):
    """PyTensor's linker, with :func:`xla_options`."""

    def jit_compile(self, fn):
        """The function, compiled; inputs that are lengths of axes are known when it is."""
        import jax

        static = self.scalar_shape_inputs
        run = jax.jit(fn, static_argnums=static, compiler_options=xla_options(jax.default_backend()))
        if not static:
            return run
        return lambda *inputs: run(*(int(x) if i in static else x for i, x in enumerate(inputs)))


def uses_jax(mode: Mode) -> bool:
    return isinstance(mode.linker, JAXLinker)


def refuse_jax_in_fork() -> None:
    """JAX's threads do not survive a fork: the child would wait for them for ever."""
    if type(multiprocessing.current_process()).__name__ == "ForkProcess":
        raise RuntimeError("A step compiled for JAX hangs in a forked process: pass cores=1 or mp_ctx='forkserver'.")


def random_state(rng: np.random.Generator, jax: bool) -> Any:
    """What a compiled function takes as its random generator."""
    if not jax:
        return rng
    from pytensor.link.jax.dispatch import jax_typify

    # Half a number that was kept for the next draw may be too large for JAX in single precision.
    state = rng.bit_generator.state | {"has_uint32": 0, "uinteger": 0}
    rng = np.random.Generator(type(rng.bit_generator)())
    rng.bit_generator.state = state
    return jax_typify(rng)


@contextmanager
def jax_settings(rows_are_spread: bool = False) -> Iterator[None]:
    """How JAX is to compile: products in full precision, which GPUs round by default; random numbers two by two, at
    half the cost in single precision, unless rows are spread over devices.
    """
    import jax

    with jax.default_matmul_precision("highest"), jax.threefry_partitionable(rows_are_spread):
        yield


def tuning_steps() -> int | None:
    """Tuning steps of the chain that ``pm.sample``, up the stack, is about to start: before PyMC 6 it does not say."""
    tune = _of_the_chain("tune", "_tune")
    return None if tune is None else int(tune)


def blas_threads_of_fork() -> int | None:
    """How many threads ``pm.sample(blas_cores=)`` leaves this chain, if in a forked process, where PyMC limits none."""
    if _of_the_chain(attribute="_mp_start_method") != "fork":
        return None
    threads = _of_the_chain(attribute="_blas_cores")
    return None if threads is None else max(1, threads)


def _of_the_chain(local: str = "", attribute: str = "") -> Any:
    """A local variable, or an attribute of the object that runs the chain, of the nearest function of ``pm.sample`` up
    the stack that has it; None if there is none.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("pymc.sampling."):
            found = frame.f_locals.get(local, getattr(frame.f_locals.get("self"), attribute, None))
            if found is not None:
                return found
        frame = frame.f_back
    return None


def starts_of_sample() -> tuple[Any, int | None]:
    """(initvals, chains) of the ``pm.sample`` up the stack that is yet to compute where chains start."""
    sampled = _about_to_sample()
    return (None, None) if sampled is None else (sampled["initvals"], sampled["chains"])


def _about_to_sample() -> dict[str, Any] | None:
    """The local variables of a ``pm.sample`` up the stack that has not computed where chains start."""
    frame = sys._getframe(1)
    while frame is not None and not (
        frame.f_code.co_name == "sample" and frame.f_globals.get("__name__") == "pymc.sampling.mcmc"
    ):
        frame = frame.f_back
    return None if frame is None or "initial_points" in frame.f_locals else frame.f_locals


def warn_of_recording(sizes: dict[str, int]) -> None:
    """Warn if ``pm.sample``, up the stack, is about to record more than the machine's free memory holds.

    ``sizes`` are the bytes of each variable. PyMC tells a step neither which variables are recorded nor (before
    PyMC 6) how many draws.
    """
    sampled = _about_to_sample()
    if sampled is None:  # not sampling, or warned already
        return
    draws = sampled["draws"] + (sampled["tune"] or 0)
    names = sampled["var_names"]
    recorded = {name: size * sampled["chains"] for name, size in sizes.items() if names is None or name in names}
    warn_of_memory(recorded, draws)


def records_all() -> bool:
    """Whether ``pm.sample``, up the stack, is about to record every variable, as it does by default."""
    sampled = _about_to_sample()
    return sampled is not None and sampled["var_names"] is None


def warn_at_sample(message: str) -> None:
    """Warn where ``pm.sample`` was called."""
    level, frame = 1, sys._getframe(0)
    while frame is not None and frame.f_globals.get("__name__") != "pymc.sampling.mcmc":
        level, frame = level + 1, frame.f_back
    while frame is not None and frame.f_globals.get("__name__") == "pymc.sampling.mcmc":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)


def warn_of_memory(sizes: dict[str, int], draws: int) -> None:
    """Warn if the machine's free memory does not hold that many draws of variables, a draw of each of these bytes."""
    needed, free = draws * sum(sizes.values()), free_memory()
    if free is not None and needed > free:
        largest = sorted(sizes, key=sizes.get, reverse=True)[:2]
        warnings.warn(
            f"Recording {draws} draws a chain of {sorted(sizes)} needs {needed / 2**30:.1f} GiB, "
            f"of which {free / 2**30:.1f} GiB are free. Most of it is {' and '.join(largest)}: "
            f"name only what you need in var_names=.",
            UserWarning,
            stacklevel=4,
        )


def free_memory() -> int | None:
    """Bytes that can still be had, where the system tells."""
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError, AttributeError):
            return None


def count_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def dataset(model: pm.Model, values: dict[str, np.ndarray], first_draw: int | None) -> xr.Dataset:
    """Arrays (chain, draw, ...) with the model's coordinates, draws from ``first_draw`` on; data if it is None."""
    import arviz as az

    coords, dims = coords_and_dims_for_inferencedata(model)
    sampled = [] if first_draw is None else ["chain", "draw"]
    # The draws of one call may be fewer than the chains: ArviZ 1 can be told, 0.23 warns.
    how = {"sample_dims": sampled, "check_conventions": False} if ARVIZ_1 else {"default_dims": sampled}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "More chains", UserWarning)
        found = az.dict_to_dataset(values, coords=coords, dims=dims, **how)
    if first_draw is None:
        return found
    return found.assign_coords(draw=first_draw + np.arange(found.sizes["draw"]))


def data_groups(model: pm.Model) -> dict[str, xr.Dataset]:
    """What the model observes and its constant data."""
    groups = {"observed_data": find_observations(model), "constant_data": find_constants(model)}
    return {group: dataset(model, values, None) for group, values in groups.items() if values}


def inference_data(groups: dict[str, xr.Dataset]):
    """InferenceData (ArviZ 0.23) or DataTree (ArviZ 1)."""
    if ARVIZ_1:
        return xr.DataTree.from_dict(groups)
    import arviz as az

    return az.InferenceData(**groups)


def dataset_of(idata, group: str) -> xr.Dataset:
    """A group of InferenceData, DataTree or a mapping as a dataset."""
    found = idata[group]
    return found.to_dataset() if hasattr(found, "to_dataset") else found


def add_group(idata, group: str, data: xr.Dataset) -> None:
    """Put a group into InferenceData, DataTree or a mapping, in place of one of that name."""
    if isinstance(idata, xr.DataTree):
        idata[group] = xr.DataTree(data)
    elif hasattr(idata, "add_groups"):
        if group in idata.groups():
            del idata[group]
        idata.add_groups({group: data})
    else:
        idata[group] = data

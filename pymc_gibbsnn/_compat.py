"""All that differs between the supported generations of PyMC, PyTensor and ArviZ, gathered in this one module."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Callable
from copy import copy
from functools import wraps
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from inspect import currentframe
from operator import attrgetter
from pathlib import Path
from shutil import rmtree
from tempfile import NamedTemporaryFile, mkdtemp
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import xarray as xr
from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_constants, find_observations
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor import subtensor

PYTENSOR_3 = int(pytensor.__version__.split(".")[0]) >= 3
PYMC_6 = int(pm.__version__.split(".")[0]) >= 6
ARVIZ_1 = int(version("arviz").split(".")[0]) >= 1  # ArviZ imports Matplotlib, so it is imported where it is used


# The operations that pick elements of an array
SUBTENSORS = tuple(
    getattr(subtensor, name)
    for name in ("Subtensor", "AdvancedSubtensor", "AdvancedSubtensor1")
    if hasattr(subtensor, name)
)


# The operations that give sums, or items of an array, as numbers in place of arrays without axes, and those that join
# numbers, which late PyTensors write at the end
SCALARIZE = "pytensor.tensor.rewriting.scalarize"
_scalarize = import_module(SCALARIZE) if find_spec(SCALARIZE) else None
SCALAR_SUMS = (_scalarize.ScalarCAReduce,) if _scalarize else ()
SCALAR_ITEMS = (_scalarize.ScalarSubtensor,) if _scalarize else ()
SCALAR_JOINS = (_scalarize.ScalarizedJoin,) if _scalarize else ()


# Whether the axis along which arrays are joined is an input of the operation
JOINS_ALONG_INPUT = not PYTENSOR_3


# Whether the parts of an array that is split come as a list from PyTensor's Numba code, and not as a tuple
SPLITS_INTO_LIST = not PYTENSOR_3


# The operations of linear algebra, which lie elsewhere in PyTensor 3
_linear_algebra = import_module("pytensor.tensor.linalg" if PYTENSOR_3 else "pytensor.tensor.slinalg")
Cholesky, SolveTriangular = _linear_algebra.Cholesky, _linear_algebra.SolveTriangular
Eigh = _linear_algebra.Eigh if PYTENSOR_3 else import_module("pytensor.tensor.nlinalg").Eigh

# Whether PyTensor's Numba code solves A X = B, with B row by row in memory, as Xᵀ Aᵀ = Bᵀ: the last digits differ
SOLVES_FROM_THE_RIGHT = PYTENSOR_3

# Whether its loops tell LLVM that results overlap no inputs, which llvmlite can do since then: the last digits differ
TELLS_WHAT_OVERLAPS = PYTENSOR_3


# Where PyTensor writes the source of functions that it generates, some 40 files a fit, which by default stay in the
# folder of temporary files. Late PyTensors can be told of a folder, from which they remove old ones; with others, the
# files go when the process ends.
if hasattr(pytensor.config, "generated_src_dir"):
    pytensor.config.generated_src_dir = pytensor.config.generated_src_dir or str(
        pytensor.config.base_compiledir / "generated_src"
    )
else:
    _sources, _process = Path(mkdtemp(prefix="pymc_gibbsnn_")), os.getpid()

    @atexit.register
    def _remove_sources() -> None:
        if os.getpid() == _process:  # and not in one that was forked
            rmtree(_sources, ignore_errors=True)

    def _file_of_source(**options):
        _sources.mkdir(mode=0o700, exist_ok=True)  # in runs of days, what the system clears away
        return NamedTemporaryFile(dir=_sources, **options)

    for _module in ("pytensor.link.utils", "pytensor.link.numba.cache"):
        import_module(_module).NamedTemporaryFile = _file_of_source  # type: ignore[attr-defined]


# How a loop is compiled that is evaluated once: PyTensor 3 takes the mode of the whole for it
ONCE = {} if PYTENSOR_3 else {"mode": "FAST_COMPILE"}


def inner_graph(op: OpFromGraph) -> FunctionGraph:
    """Return the graph of which an operation is made, as one that can be changed; PyTensor 3 freezes it."""
    return op.fgraph.unfreeze() if PYTENSOR_3 else op.fgraph.clone()


def with_inner_graph(op: OpFromGraph, graph: FunctionGraph) -> OpFromGraph:
    """Return an operation that is made of a graph with another graph in its place, whose types may be others.

    PyTensor 2 has no function for it.
    """
    if PYTENSOR_3:
        return op.clone_with_inner_graph(graph)
    new = copy(op)
    new.fgraph = graph
    new.input_types, new.output_types = ([x.type for x in part] for part in (graph.inputs, graph.outputs))
    return new


def observed_variables(model: pm.Model) -> list[Variable]:
    """List the observed variables of a model, each once.

    The function ``sample_posterior_predictive`` of PyMC 5.28 adds variables to the model's own list a second time.
    """
    return list(dict.fromkeys(model.observed_RVs))


def shape_inference(infer: Callable) -> Callable:
    """Make ``infer(self, shapes of inputs)`` the method ``infer_shape`` of an operation.

    PyTensor 2 passes it the graph before the shapes.
    """
    return wraps(infer)(lambda self, *arguments: infer(self, arguments[-1]))


class DifferentiableOp(Op):
    """An operation that writes its gradient as ``pullback``, the name of PyTensor 3; before, it was ``L_op``."""

    def L_op(self, inputs, outputs, gradients):  # noqa: N802
        """Return the gradients."""
        return self.pullback(inputs, outputs, gradients)


def call_in_pymc(*functions: str) -> FrameType | None:
    """Find the nearest call, up the stack, of one of these functions of ``pymc.sampling``; None outside of them.

    PyMC hands a step method no more than points, one at a time. Before version 6 it does not even say how many tuning
    steps a chain has; and no version says which variables are recorded, where the user lets chains start, and how many
    threads a forked chain may take. What a step has to know of these before anything is drawn is read here, and
    nowhere else. A release of PyMC in which names differ is one outside of which the step finds itself: it works as
    where it is called by hand.
    """
    frame = currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("pymc.sampling.") and frame.f_code.co_name in functions:
            return frame
        frame = frame.f_back
    return None


def read_locals(call: FrameType | None, *names: str) -> list[Any] | None:
    """Read local variables of a call, such as "tune", or attributes of one, such as "self.chain".

    None if there is no call, or if one of the names is not known there.
    """
    try:
        return None if call is None else [attrgetter(name)(SimpleNamespace(**call.f_locals)) for name in names]
    except AttributeError:
        return None


def tuning_steps() -> int | None:
    """Find how many tuning steps the chain has that ``pm.sample`` is about to start; None where this is not known.

    PyMC 6 tells the step itself.
    """
    if PYMC_6:
        return None
    known = read_locals(call_in_pymc("_iter_sample", "_prepare_iter_population"), "tune")
    known = known or read_locals(call_in_pymc("_start_loop"), "self._tune")
    return int(known[0]) if known else None


def number_of_chain() -> int | None:
    """Find the number of the chain that ``pm.sample`` is about to start; None where there is no such call."""
    known = read_locals(call_in_pymc("_iter_sample"), "chain")
    known = known or read_locals(call_in_pymc("_start_loop"), "self.chain")
    return int(known[0]) if known else None


def dataset(model: pm.Model, values: dict[str, np.ndarray], first_draw: int | None) -> xr.Dataset:
    """Make a dataset of arrays (chain, draw, ...), with the model's coordinates and draws numbered from ``first_draw``.

    If ``first_draw`` is None, the arrays are data, without axes of chains and draws.
    """
    import arviz as az

    coords, dims = coords_and_dims_for_inferencedata(model)
    sampled = [] if first_draw is None else ["chain", "draw"]
    # The draws of one call may be fewer than the chains. ArviZ 1 can be told to expect that; ArviZ 0.23 warns.
    how = {"sample_dims": sampled, "check_conventions": False} if ARVIZ_1 else {"default_dims": sampled}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "More chains", UserWarning)
        result = az.dict_to_dataset(values, coords=coords, dims=dims, **how)
    if first_draw is None:
        return result
    return result.assign_coords(draw=first_draw + np.arange(result.sizes["draw"]))


def data_groups(model: pm.Model) -> dict[str, xr.Dataset]:
    """Return the groups "observed_data" and "constant_data" of a model, if they hold anything."""
    groups = {"observed_data": find_observations(model), "constant_data": find_constants(model)}
    return {group: dataset(model, values, None) for group, values in groups.items() if values}


def inference_data(groups: dict[str, xr.Dataset]):
    """Make an InferenceData (ArviZ 0.23) or a DataTree (ArviZ 1) of groups."""
    if ARVIZ_1:
        return xr.DataTree.from_dict(groups)
    import arviz as az

    return az.InferenceData(**groups)


def dataset_of(idata, group: str) -> xr.Dataset:
    """Return a group of an InferenceData, a DataTree or a mapping as a dataset."""
    content = idata[group]
    return content.to_dataset() if hasattr(content, "to_dataset") else content


def add_group(idata, group: str, data: xr.Dataset) -> None:
    """Put a group into an InferenceData, a DataTree or a mapping, in place of any group of that name."""
    if isinstance(idata, xr.DataTree):
        idata[group] = xr.DataTree(data)
    elif hasattr(idata, "add_groups"):
        if group in idata.groups():
            del idata[group]
        idata.add_groups({group: data})
    else:
        idata[group] = data


def stacked(fits: dict[str, Any]) -> np.ndarray:
    """Let ArviZ stack fits, each with a group "log_likelihood"; return their weights."""
    import arviz as az

    table = az.compare(fits, method="stacking", **({"round_to": "none"} if ARVIZ_1 else {"ic": "loo"}))
    return np.array([table.loc[name, "weight"] for name in fits], float)


def draw_predictive_check(samples: xr.DataArray, data: xr.DataArray) -> np.ndarray:
    """Let ArviZ draw the density of data (point, ...), and of draws (chain, draw, point, ...) of them.

    It returns the axes, one for each output.
    """
    import arviz as az

    pairs = {"posterior_predictive": samples, "observed_data": data}
    idata = inference_data({group: x.drop_vars("point").to_dataset(name="y") for group, x in pairs.items()})
    outputs = list(data.dims[1:])
    if not ARVIZ_1:
        return np.ravel(az.plot_ppc(idata, flatten=["point"], mean=False, figsize=(5 * max(1, data[0].size), 3.4)))
    size = {"figsize": (5 * data[0].size, 3.4), "figsize_units": "inches"}
    drawn = az.plot_ppc_dist(
        idata, kind="kde", cols=outputs or ["__variable__"], backend="matplotlib", figure_kwargs=size
    )
    return np.ravel((drawn.viz["plot"] if outputs else drawn.viz["plot"]["y"]).values)

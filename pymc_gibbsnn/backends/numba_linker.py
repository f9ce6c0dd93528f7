"""A linker for Numba that compiles every kernel once, whatever graphs it serves, and every graph once.

A kernel is the compiled function of one operation of a graph. Numba copies the code of a function into each function
that calls it, and optimises it there again; and PyTensor wraps each operation, and the graph, into one more function,
by the name of which they are found in the cache on disk. So a kernel of a sweep is compiled three times for each new
graph. Here a graph is a list of calls of its kernels by their addresses (:mod:`pymc_gibbsnn.backends.numba_calls`), and
Numba's cache finds kernels and graphs by PyTensor's own keys, without the wrappers.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256

import llvmlite
import pytensor
from numba.core import event
from pytensor import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.link.numba.dispatch.basic import (
    cache_key_for_constant,
    numba_funcify_and_cache_key,
    numba_njit,
    numba_typify,
)
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, Split, TensorFromScalar
from pytensor.tensor.blockwise import OpWithCoreShape
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.subtensor import Subtensor

from pymc_gibbsnn._compat import SCALAR_ITEMS, SCALAR_JOINS, SPLITS_INTO_LIST, Cholesky, Eigh, SolveTriangular
from pymc_gibbsnn.backends.declare import source_key
from pymc_gibbsnn.backends.numba_calls import (
    CacheByKey,
    Call,
    cached,
    failures,
    graph_function,
    kernels,
    mistaking_columns,
)
from pymc_gibbsnn.backends.numba_elemwise import elementwise, filled, joined
from pymc_gibbsnn.backends.numba_lapack import cholesky, eigh, solve_triangular
from pymc_gibbsnn.backends.numba_parts import in_parts
from pymc_gibbsnn.backends.numba_views import array_of, length, number_of, part, vector, view

__all__ = ["KernelLinker", "telling_of_compilation"]

# Operations with code of ours, which compiles faster than PyTensor's: functions of an operation and its node, which
# return what Numba can call and its key, or None where PyTensor's code is to serve.
OURS = {
    Alloc: filled,
    Cholesky: cholesky,
    Eigh: eigh,
    Elemwise: elementwise,
    Join: joined,
    SolveTriangular: solve_triangular,
}

# Those of which the code is a few instructions, which are no kernels
IN_LINE = {
    DimShuffle: view,
    MakeVector: vector,
    ScalarFromTensor: number_of,
    Shape_i: length,
    Subtensor: part,
    TensorFromScalar: array_of,
    **dict.fromkeys(SCALAR_ITEMS, part),
    **dict.fromkeys(SCALAR_JOINS, vector),
}

GRAPH = "numba_funcified_fgraph"  # the name of the function of a graph


class KernelLinker(NumbaLinker):
    """Numba's linker, changed so that a graph is a list of calls of kernels."""

    def fgraph_convert(self, fgraph: FunctionGraph, **kwargs) -> tuple[Callable, str | None]:
        """Make the Python function of a graph; return it with its key in the cache.

        The key is None where an operation of the graph has none.
        """
        order, storage_map = kwargs.pop("order", None) or fgraph.toposort(), kwargs.get("storage_map", {})
        used = [v for node in order for v in node.inputs] + fgraph.outputs
        constants = list(dict.fromkeys(v for v in used if isinstance(v, Constant)))
        variables = [*fgraph.inputs, *constants, *(v for node in order for v in node.outputs)]
        numbers = {v: i for i, v in enumerate(variables)}
        keys: list[tuple[str | None, list[int]]] = []
        calls = []
        for node in order:
            function, key, is_kernel = _function_and_key(node, **kwargs)
            inputs = [numbers[v] for v in node.inputs]
            keys.append((key, inputs))
            # PyTensor's key distinguishes functions only where Numba's types of the inputs are the same: add the types.
            if key is not None and is_kernel:
                key = _hash(key, *map(_kind, node.inputs))
                kernels.setdefault(key, function)
                function = key
            calls.append(Call(function, inputs, len(node.outputs)))
        values = [storage_map[v][0] if v in storage_map else v.data for v in constants]
        outputs = [numbers[v] for v in fgraph.outputs]
        typified = [numba_typify(value, variable=v) for value, v in zip(values, constants, strict=True)]
        function = graph_function(GRAPH, len(fgraph.inputs), typified, calls, outputs)
        if any(key is None for key, _ in keys):
            return function, None
        return function, _hash(len(fgraph.inputs), [*map(cache_key_for_constant, values)], keys, outputs)

    def jit_compile(self, converted: tuple[Callable, str | None]) -> Callable:
        """Return the function of a graph, which Numba compiles at its first call or loads from the cache."""
        function, key = converted
        compiled = numba_njit(function, final_function=True)
        if key is not None:
            cached(compiled, key)
            compiled._compile_for_args = in_parts()(_with_few_collections()(compiled._compile_for_args))

        def run(*inputs):
            try:
                return compiled(*inputs)
            except RuntimeError:
                if failures:
                    raise failures.pop() from None
                raise

        return run


class _Teller(event.Listener):
    """Tells the user, once, that the function of a graph is not found on disk and is compiled."""

    def __init__(self, message: str):
        self.message, self.has_told = message, False

    def on_start(self, event):
        function = event.data["dispatcher"]
        if not self.has_told and function.py_func.__name__ == GRAPH and isinstance(function._cache, CacheByKey):
            self.has_told = True
            logging.getLogger("pymc.gibbsnn").info(self.message)

    def on_end(self, event):
        pass


@contextmanager
def _with_few_collections() -> Iterator[None]:
    """Let Python's garbage collector look through new objects less often, and never through all, in the context.

    Numba makes objects by the million, few of which are garbage: looking through them takes a tenth of its time. The
    thresholds are those of the whole process, so only one thread may be in the context: one that holds Numba's lock.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(10_000, 20, 10_000)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@contextmanager
def telling_of_compilation(message: str) -> Iterator[None]:
    """Tell the user, by PyMC's logger, of a graph that is compiled in the context since it is not on disk."""
    with event.install_listener("numba:compile", _Teller(message)):
        yield


def _function_and_key(node: Apply, **kwargs) -> tuple[Callable, str | None, bool]:
    """Return what Numba can call for an operation, its key, and whether it is a kernel.

    The key is None where the operation has none, or nothing is to be kept.
    """
    ours = (IN_LINE | OURS).get(type(node.op))
    found = ours and ours(node.op, node)
    function, key = found or numba_funcify_and_cache_key(node.op, node=node, **kwargs)
    if not found and isinstance(node.op, OpWithCoreShape):
        function = mistaking_columns(function)
    if SPLITS_INTO_LIST and isinstance(node.op, Split):
        function = _in_tuple(function, len(node.outputs))
    is_kernel = not (found and type(node.op) in IN_LINE)
    return function, key if config.numba__cache else None, is_kernel


def _in_tuple(function: Callable, count: int) -> Callable:
    """Let what Numba can call return so many items of its list as a tuple."""
    items = ", ".join(f"found[{i}]" for i in range(count))
    scope = {"function": function, "__name__": __name__}
    exec(f"def split(x, axis, sizes):\n    found = function(x, axis, sizes)\n    return {items}", scope)
    return numba_njit(scope["split"])


def _hash(*parts: object) -> str:
    """Make a key of these parts and of all else on which compiled code depends, but for Numba's version.

    Numba checks its own version when it reads its cache.
    """
    made_by = source_key(__name__), pytensor.__version__, llvmlite.__version__, config.numba__fastmath
    return sha256(str((*made_by, *parts)).encode()).hexdigest()


def _kind(variable: Variable) -> str:
    """Return what is known of an input before it is given, its dtype and number of dimensions, as a string."""
    kind = variable.type
    return f"{kind.dtype}{kind.ndim}" if hasattr(kind, "ndim") else type(kind).__name__

"""A linker for Numba that compiles every kernel once, whatever graphs it serves, and every graph once.

A kernel is the compiled function of one operation of a graph. Numba copies the code of a function into each function
that calls it, and optimises it there again; and PyTensor wraps each operation, and the graph, into one more function,
by the name of which they are found in the cache on disk. So a kernel of a sweep is compiled three times for each new
graph. Here a graph is a list of calls of its kernels by their addresses
(:mod:`pymc_gibbsnn.backends.fast_numba.calls`), and Numba's cache finds kernels and graphs by PyTensor's own keys,
without the wrappers.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from hashlib import sha256

import llvmlite
import pytensor
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
from pymc_gibbsnn.backends.fast_numba import give_up
from pymc_gibbsnn.backends.fast_numba.calls import (
    Call,
    cached,
    failures,
    graph_function,
    kernels,
    mistaking_columns,
)
from pymc_gibbsnn.backends.fast_numba.elementwise import elementwise, filled, joined
from pymc_gibbsnn.backends.fast_numba.linear_algebra import cholesky, eigh, solve_triangular
from pymc_gibbsnn.backends.fast_numba.parts import in_parts
from pymc_gibbsnn.backends.fast_numba.views import array_of, length, number_of, part, vector, view
from pymc_gibbsnn.backends.numba_cache import GRAPH

__all__ = ["KernelLinker"]

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


class KernelLinker(NumbaLinker):
    """Numba's linker, changed so that a graph is a list of calls of kernels.

    A graph that cannot be compiled in this way is compiled as PyTensor does it, and so are all later ones.
    """

    def fgraph_convert(self, fgraph: FunctionGraph, **kwargs) -> tuple[Callable, str | None, Callable]:
        """Make the Python function of a graph; return it with its key in the cache, and PyTensor's way to do so.

        The key is None where an operation of the graph has none; the function is None where it cannot be made.
        """

        def by_pytensor() -> Callable:
            return NumbaLinker.jit_compile(self, NumbaLinker.fgraph_convert(self, fgraph, **kwargs))

        try:
            return *_function_of_graph(fgraph, **kwargs), by_pytensor
        except Exception as error:
            return _instead(by_pytensor, error), None, None

    def jit_compile(self, converted: tuple[Callable, str | None, Callable | None]) -> Callable:
        """Return the function of a graph, which Numba compiles at its first call or loads from the cache."""
        function, key, by_pytensor = converted
        if by_pytensor is None:
            return function
        try:
            compiled = numba_njit(function, final_function=True)
            compiled._compile_for_args = _or_not_compiled(compiled._compile_for_args)
            if key is not None:
                cached(compiled, key)
        except Exception as error:
            return _instead(by_pytensor, error)

        def run(*inputs):
            nonlocal compiled
            try:
                return compiled(*inputs)
            except NotCompiledError as failure:  # before anything was computed
                compiled = _instead(by_pytensor, failure.__cause__)
            except RuntimeError:
                if not failures:
                    raise
                error = failures.pop()
                if not isinstance(error, Exception):
                    raise error from None
                compiled = _instead(by_pytensor, error)
            return compiled(*inputs)

        return run


class NotCompiledError(Exception):
    """A graph cannot be compiled, by an exception that is its cause."""


def _or_not_compiled(compile_for: Callable) -> Callable:
    """Make the method by which Numba compiles a function for its arguments raise :class:`NotCompiledError`."""

    @wraps(compile_for)
    def compile_or_say(*arguments, **kinds):
        try:
            with in_parts(), _few_collections():
                return compile_for(*arguments, **kinds)
        except Exception as error:
            raise NotCompiledError from error

    return compile_or_say


def _instead(by_pytensor: Callable, error: Exception) -> Callable:
    """Return a function as PyTensor compiles it, and give this linker up if PyTensor can, where it could not."""
    compiled = by_pytensor()
    give_up(error)
    return compiled


def _function_of_graph(fgraph: FunctionGraph, **kwargs) -> tuple[Callable, str | None]:
    """Make the Python function of a graph, a list of calls, and its key."""
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


@contextmanager
def _few_collections() -> Iterator[None]:
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


def _function_and_key(node: Apply, **kwargs) -> tuple[Callable, str | None, bool]:
    """Return what Numba can call for an operation, its key, and whether it is a kernel.

    The key is None where the operation has none, or nothing is to be kept.
    """
    ours = (IN_LINE | OURS).get(type(node.op))
    own = ours and ours(node.op, node)
    function, key = own or numba_funcify_and_cache_key(node.op, node=node, **kwargs)
    if not own and isinstance(node.op, OpWithCoreShape):
        function = mistaking_columns(function)
    if SPLITS_INTO_LIST and isinstance(node.op, Split):
        function = _in_tuple(function, len(node.outputs))
    is_kernel = not (own and type(node.op) in IN_LINE)
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

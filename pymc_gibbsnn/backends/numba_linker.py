"""A linker for Numba that compiles every kernel once, whatever graphs it serves, and every graph once.

A kernel is the compiled function of one operation of a graph. Numba copies the code of a function into each function
that calls it, and optimises it there again; and PyTensor wraps each operation, and the graph, into one more function,
by the name of which they are found in the cache on disk. So a kernel of a sweep is compiled three times for each new
graph. Here a graph calls its kernels by their addresses, and Numba's cache finds kernels and graphs by PyTensor's own
keys, without the wrappers. Once its kernels are known, all that remains to compile of a new graph is a list of calls.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from types import FunctionType

import llvmlite
import llvmlite.binding as llvm
import pytensor
from llvmlite import ir
from numba import jit
from numba.core import cgutils, event, types
from numba.core.caching import FunctionCache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from pytensor import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS
from pytensor.link.numba.dispatch.basic import (
    cache_key_for_constant,
    numba_funcify_and_cache_key,
    numba_njit,
    numba_typify,
)
from pytensor.link.numba.linker import NumbaLinker
from pytensor.link.utils import fgraph_to_python
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import Subtensor

from pymc_gibbsnn._compat import Cholesky, SolveTriangular
from pymc_gibbsnn.backends.declare import source_key
from pymc_gibbsnn.backends.numba_lapack import cholesky, solve_triangular
from pymc_gibbsnn.backends.numba_parts import in_parts
from pymc_gibbsnn.backends.numba_views import view

__all__ = ["KernelLinker", "telling_of_compilation"]

# Operations that only look at an array in another way, which cost less than a call: their code is inlined.
INLINED = (
    CheckAndRaise,
    DimShuffle,
    MakeVector,
    Reshape,
    ScalarFromTensor,
    Shape,
    Shape_i,
    SpecifyShape,
    Subtensor,
    TensorFromScalar,
)

# Operations with code of ours, which compiles faster than PyTensor's: functions of an operation and its node, which
# return what Numba can call and its key, or None where PyTensor's code is to serve.
OURS = {Cholesky: cholesky, DimShuffle: view, SolveTriangular: solve_triangular}

GRAPH = "numba_funcified_fgraph"  # the name of the function of a graph
RESOLVER = "pymc_gibbsnn_address_of_kernel"  # the symbol by which compiled code finds the function _address below
_kernels: dict[str, Callable] = {}  # by their keys; a kernel is a Dispatcher, or a function that Numba overloads
_compiled_kernels: dict[tuple[str, tuple[types.Type, ...]], CompileResult] = {}
_failures: list[BaseException] = []  # the errors for which the address of a kernel could not be found


class KernelLinker(NumbaLinker):
    """Numba's linker, changed so that kernels are called by their addresses and the graph's function has no wrapper."""

    def fgraph_convert(self, fgraph: FunctionGraph, **kwargs) -> tuple[Callable, str | None]:
        """Make the Python function of a graph; return it with its key in the cache.

        The key is None where an operation of the graph has none.
        """
        order = fgraph.toposort()
        # Where each variable comes from: with the keys of the operations, this is what tells one graph from another.
        sources = {v: (0, i) for i, v in enumerate(fgraph.inputs)}
        sources |= {v: (i, j) for i, node in enumerate(order, 1) for j, v in enumerate(node.outputs)}
        keys: list[tuple | None] = []

        def convert_operation(op: Op, *, node: Apply, **kwargs) -> Callable:
            ours = OURS.get(type(op))
            found = ours and ours(op, node)
            function, key = found or numba_funcify_and_cache_key(op, node=node, **kwargs)
            if key is None or not config.numba__cache:
                keys.append(None)
                return function
            keys.append((tuple(sources[v] for v in node.inputs), key))
            # PyTensor's key distinguishes functions only where Numba's types of the inputs are the same: add the types.
            key = _hash(key, *map(_kind, node.inputs))
            if isinstance(op, INLINED):
                return _cached(function, key) if isinstance(function, Dispatcher) else function
            _kernels.setdefault(key, function)
            return _call_by_address(key, len(node.inputs))

        def convert_value(value: object, variable: Variable, **kwargs) -> object:
            if isinstance(variable, Constant):
                sources[variable] = (-1, cache_key_for_constant(value))
            return numba_typify(value, variable=variable, **kwargs)

        function = fgraph_to_python(
            fgraph,
            op_conversion_fn=convert_operation,
            type_conversion_fn=convert_value,
            fgraph_name=GRAPH,
            **kwargs,
        )
        if None in keys:
            return function, None
        return function, _hash(len(fgraph.inputs), keys, [sources[v] for v in fgraph.outputs])

    def jit_compile(self, converted: tuple[Callable, str | None]) -> Callable:
        """Return the function of a graph, which Numba compiles at its first call or loads from the cache."""
        function, key = converted
        if key is None:
            return numba_njit(function, final_function=True)

        def run(*inputs):
            try:
                return compiled(*inputs)
            except RuntimeError:
                if _failures:
                    raise _failures.pop() from None
                raise

        compiled = _cached(numba_njit(function, final_function=True), key)
        compiled._compile_for_args = _with_few_collections()(in_parts()(compiled._compile_for_args))
        return run


class _CacheByKey(FunctionCache):
    """Numba's cache of a function that its key alone identifies.

    Numba adds a hash of what the function's closure holds, which differs from process to process.
    """

    def _index_key(self, signature, codegen):
        return signature, codegen.magic_tuple()


class _CacheOfKernels(_CacheByKey):
    """That of kernels, which are called by their addresses: what is kept is machine code."""

    def save_overload(self, sig, data):
        data.library.make_machine_code()
        super().save_overload(sig, data)


class _Teller(event.Listener):
    """Tells the user, once, that the function of a graph is not found on disk and is compiled."""

    def __init__(self, message: str):
        self.message, self.has_told = message, False

    def on_start(self, event):
        function = event.data["dispatcher"]
        if not self.has_told and function.py_func.__name__ == GRAPH and isinstance(function._cache, _CacheByKey):
            self.has_told = True
            logging.getLogger("pymc.gibbsnn").info(self.message)

    def on_end(self, event):
        pass


@contextmanager
def _with_few_collections() -> Iterator[None]:
    """Let Python's garbage collector look through new objects less often, and never through all, in the context.

    Numba makes objects by the million, few of which are garbage: looking through them takes a tenth of its time.
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


def _cached(function: Dispatcher, key: str, cache: type[_CacheByKey] = _CacheByKey) -> Dispatcher:
    """Let Numba keep the compiled code of a function on disk under a key, and return the function."""
    # Numba keeps the name of the function's module with the code and imports it again; some of PyTensor's have none.
    function.py_func.__globals__.setdefault("__name__", __name__)
    # It names files after the file of the function, to which PyTensor gives a random name: another stands for it.
    stand_in = FunctionType(_stand_in.__code__, {})
    CACHED_SRC_FUNCTIONS[stand_in] = key
    function._cache = cache(stand_in)
    return function


def _stand_in():
    """Stand for a function whose compiled code is kept on disk."""


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


def _call_by_address(key: str, inputs: int) -> Callable:
    """Make what Numba can call in place of a kernel with so many inputs: the kernel compiled on its own."""

    def typed(arguments):
        return _compiled(key, tuple(arguments)).signature.return_type(*arguments), lambda *lowering: _call(
            key, *lowering
        )

    # An intrinsic of Numba must name each of its arguments.
    names = ", ".join(f"x{i}" for i in range(inputs))
    return intrinsic(eval(f"lambda typing_context, {names}: typed([{names}])", {"typed": typed}))


def _compiled(key: str, arguments: tuple[types.Type, ...]) -> CompileResult:
    """Compile a kernel for arguments of these types, or load it from the cache; return what Numba knows of it."""
    if (key, arguments) not in _compiled_kernels:
        kernel = _kernels[key]
        with in_parts():
            if not isinstance(kernel, Dispatcher):
                context = cpu_target.typing_context
                [template] = context.resolve_value_type(kernel).templates
                kernel = jit(**{"nopython": True} | template._jit_options)(template._overload_func(*arguments))
            # If the kernel takes ``*arguments``, Numba compiles it for a tuple of them.
            _, _, folded, _ = _cached(kernel, key, _CacheOfKernels).get_call_template(arguments, {})
        _compiled_kernels[key, arguments] = kernel.overloads[tuple(folded)]
    return _compiled_kernels[key, arguments]


def _call(key: str, context, builder: ir.IRBuilder, signature, values) -> ir.Value:
    """Write the code of a call, which asks for the kernel's address once in a process and then remembers it.

    Parameters
    ----------
    key : str
        The key of the kernel.
    context, builder, signature, values
        What Numba gives to the code generator of an intrinsic: its target context, the builder of LLVM instructions,
        the signature of the call and the values of its arguments.

    Returns
    -------
    ir.Value
        The result of the call.
    """
    compiled, module = _compiled(key, signature.args).signature, builder.module
    call_type = context.call_conv.get_function_type(compiled.return_type, compiled.args)
    text = ir.IntType(8).as_pointer()
    resolver_type = ir.FunctionType(call_type.as_pointer(), [text, text])
    resolver = module.globals.get(RESOLVER) or ir.Function(module, ir.FunctionType(text, [text, text]), RESOLVER)
    slot = ir.GlobalVariable(module, call_type.as_pointer(), module.get_unique_name("kernel"))
    slot.linkage, slot.initializer = "internal", ir.Constant(slot.value_type, None)
    with cgutils.if_unlikely(builder, cgutils.is_null(builder, builder.load(slot))):
        described = b64encode(pickle.dumps(tuple(signature.args))).decode()
        names = [context.insert_const_string(module, name) for name in (key, described)]
        address = builder.call(builder.bitcast(resolver, resolver_type.as_pointer()), names)
        with cgutils.if_unlikely(builder, cgutils.is_null(builder, address)):
            context.call_conv.return_user_exc(builder, RuntimeError, ("A kernel could not be compiled.",))
        builder.store(address, slot)
    packed, values = [], list(values)
    for kind in compiled.args:
        if isinstance(kind, types.StarArgTuple | types.StarArgUniTuple):
            packed.append(context.make_tuple(builder, kind, values))
        elif isinstance(kind, types.Omitted):  # one with a default, which takes no place among the values
            packed.append(None)
        else:
            packed.append(values.pop(0))
    kernel = builder.load(slot)
    status, result = context.call_conv.call_function(builder, kernel, compiled.return_type, compiled.args, packed)
    with cgutils.if_unlikely(builder, status.is_error):
        context.call_conv.return_status_propagate(builder, status)
    return result


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
def _address(key: bytes, arguments: bytes) -> int | None:
    """Return the address of a kernel for arguments of these types, to compiled code that calls this function."""
    try:
        compiled = _compiled(key.decode(), pickle.loads(b64decode(arguments)))
        return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    except BaseException as error:  # an interrupt, too: no exception may pass through compiled code
        _failures.append(error)
        return None


llvm.add_symbol(RESOLVER, ctypes.cast(_address, ctypes.c_void_p).value)

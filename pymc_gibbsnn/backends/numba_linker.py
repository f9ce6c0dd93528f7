"""A linker for Numba that compiles every kernel once, whatever graphs it serves, and every graph once.

Numba links the code of a function into that of each caller and optimises it there again; PyTensor besides wraps each
operation of a graph, and the graph, into one function more, by whose name they are found in the cache on disk. A kernel
of a sweep is so compiled three times for each new graph. Here a graph calls its kernels by their addresses, and Numba's
cache finds kernels and graphs by PyTensor's own keys without the wrappers. What is left to compile of a new graph, once
its kernels are known, is a list of calls.
"""

from __future__ import annotations

import ctypes
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import sha256
from types import FunctionType

import llvmlite
import llvmlite.binding as llvm
import pytensor
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher
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

from pymc_gibbsnn.backends.declare import source_key

__all__ = ["KernelLinker"]

# Operations that only look at an array in another way: a call would cost more than they do.
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

RESOLVER = "pymc_gibbsnn_address_of_kernel"  # its symbol in compiled code
_kernels: dict[str, Dispatcher] = {}
_failures: list[BaseException] = []  # why an address could not be had


class KernelLinker(NumbaLinker):
    """Numba's linker, with kernels called by their addresses and no function around that of the graph."""

    def fgraph_convert(self, fgraph: FunctionGraph, **kwargs) -> tuple[Callable, str | None]:
        """(Python function of the graph, its key in the cache); no key where a part of the graph has none."""
        order = fgraph.toposort()
        # Where each variable comes from: with the keys of the operations, this is what tells one graph from another.
        sources = {v: (0, i) for i, v in enumerate(fgraph.inputs)}
        sources |= {v: (i, j) for i, node in enumerate(order, 1) for j, v in enumerate(node.outputs)}
        keys: list[tuple | None] = []

        def convert_operation(op: Op, *, node: Apply, **kwargs) -> Callable:
            function, key = numba_funcify_and_cache_key(op, node=node, **kwargs)
            if key is None or not config.numba__cache:
                keys.append(None)
                return function
            keys.append((tuple(sources[v] for v in node.inputs), key))
            # PyTensor's key tells one function from another where Numba's types of the inputs are the same.
            key = _hash(key, *map(_kind, node.inputs))
            kernel = _kernel(function, key)
            return kernel if isinstance(op, INLINED) else _call_by_address(key, len(node.inputs))

        def convert_value(value: object, variable: Variable, **kwargs) -> object:
            if isinstance(variable, Constant):
                sources[variable] = (-1, cache_key_for_constant(value))
            return numba_typify(value, variable=variable, **kwargs)

        function = fgraph_to_python(
            fgraph,
            op_conversion_fn=convert_operation,
            type_conversion_fn=convert_value,
            fgraph_name="numba_funcified_fgraph",
            **kwargs,
        )
        if None in keys:
            return function, None
        return function, _hash(len(fgraph.inputs), keys, [sources[v] for v in fgraph.outputs])

    def jit_compile(self, converted: tuple[Callable, str | None]) -> Callable:
        """The function, compiled at its first call or loaded from the cache."""
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

        # Numba names a file of its cache after the function's own, to which PyTensor gives a random name.
        code = function.__code__.replace(co_filename="<pymc_gibbsnn>", co_firstlineno=1)
        function = FunctionType(code, function.__globals__, function.__name__)
        compiled = _cached(numba_njit(function, final_function=True), key)
        return run


class _CacheByKey(FunctionCache):
    """Numba's cache of a function that its key alone identifies.

    Numba adds a hash of what the function's closure holds, which differs from process to process.
    """

    def _index_key(self, signature, codegen):
        return signature, codegen.magic_tuple()


def _cached(function: Dispatcher, key: str) -> Dispatcher:
    """The function, kept on disk under a key."""
    CACHED_SRC_FUNCTIONS[function.py_func] = key
    function._cache = _CacheByKey(function.py_func)
    return function


def _hash(*parts: object) -> str:
    """A key of these parts and of all else that compiled code depends on; Numba looks at its own version."""
    made_by = source_key(__name__), pytensor.__version__, llvmlite.__version__, config.numba__fastmath
    return sha256(str((*made_by, *parts)).encode()).hexdigest()


def _kind(variable: Variable) -> str:
    """What Numba knows of an input before it is given: its dtype and number of dimensions."""
    kind = variable.type
    return f"{kind.dtype}{kind.ndim}" if hasattr(kind, "ndim") else type(kind).__name__


def _kernel(function: Callable, key: str) -> Dispatcher:
    """The function of an operation, compiled once for all graphs of this process and kept on disk."""
    if key not in _kernels:
        if not isinstance(function, Dispatcher):  # but a function that Numba overloads
            overloaded = function
            function = numba_njit(lambda *arguments: overloaded(*arguments))
        _kernels[key] = _cached(function, key)
    return _kernels[key]


def _call_by_address(key: str, inputs: int) -> Callable:
    """What Numba can call in place of a kernel of so many inputs: the kernel compiled by itself, for their types."""

    def typed(arguments):
        return _compiled(key, tuple(arguments)).signature.return_type(*arguments), lambda *lowering: _call(
            key, *lowering
        )

    # Numba wants to see each argument of an intrinsic.
    names = ", ".join(f"x{i}" for i in range(inputs))
    return intrinsic(eval(f"lambda typing_context, {names}: typed([{names}])", {"typed": typed}))


def _compiled(key: str, arguments: tuple[types.Type, ...]):
    """Numba's result of compiling a kernel, or of loading it from the cache."""
    # Where the kernel takes *arguments, Numba compiles it for a tuple of them.
    _, _, folded, _ = _kernels[key].get_call_template(arguments, {})
    return _kernels[key].overloads[tuple(folded)]


def _call(key: str, context, builder: ir.IRBuilder, signature, values) -> ir.Value:
    """The code of a call: the address is asked for at the first one in a process and then remembered."""
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
        else:
            packed.append(values.pop(0))
    kernel = builder.load(slot)
    status, result = context.call_conv.call_function(builder, kernel, compiled.return_type, compiled.args, packed)
    with cgutils.if_unlikely(builder, status.is_error):
        context.call_conv.return_status_propagate(builder, status)
    return result


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
def _address(key: bytes, arguments: bytes) -> int | None:
    """Address of a kernel for arguments of these types; called by compiled code."""
    try:
        compiled = _compiled(key.decode(), pickle.loads(b64decode(arguments)))
        return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    except BaseException as error:  # an interrupt too: nothing may pass through compiled code
        _failures.append(error)
        return None


llvm.add_symbol(RESOLVER, ctypes.cast(_address, ctypes.c_void_p).value)

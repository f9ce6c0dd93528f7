"""A graph as Numba compiles it: a list of calls of kernels by their addresses.

PyTensor writes the function of a graph in Python, for Numba to find out types and references line by line. Here it is
one instruction. Each variable of the graph has a place in memory; a kernel is called with the addresses of the places
of its inputs and of its outputs, which takes a few instructions whatever the types are; and a variable that holds
memory lets go of it after its last use. So a graph compiles in a time that hardly depends on how long it is.
"""

from __future__ import annotations

import ctypes
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from types import FunctionType
from typing import NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.caching import FunctionCache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn.backends.fast_numba.parts import in_parts

__all__ = [
    "CacheByKey",
    "Call",
    "Writer",
    "cached",
    "failures",
    "graph_function",
    "kernels",
    "mistaking_columns",
    "named_intrinsic",
    "typed",
]

RESOLVER = "pymc_gibbsnn_addresses_of_kernels"  # the symbol by which compiled code finds the function _resolve below
POINTER, STATUS = ir.IntType(8).as_pointer(), ir.IntType(32)

kernels: dict[str, Callable] = {}
"""By their keys, what Numba can call as kernels."""

failures: list[BaseException] = []
"""The errors for which the addresses of kernels could not be found."""

_compiled_kernels: dict[tuple[str, tuple[types.Type, ...]], CompileResult] = {}


class Call(NamedTuple):
    """One line of a graph's function: ``outputs = function(*inputs)``.

    The variables of a graph are numbered: its inputs first, then its constants, then the outputs of call after call.

    Attributes
    ----------
    function : callable or str
        What Numba can call, which is inlined, or the key of a kernel, which is called by its address.
    inputs : sequence of int
        The numbers of the inputs.
    outputs : int
        How many outputs there are. What Numba calls returns them as a tuple if there are several.
    """

    function: Callable | str
    inputs: Sequence[int]
    outputs: int


class CacheByKey(FunctionCache):
    """Numba's cache of a function that its key alone identifies.

    Numba adds a hash of what the function's closure holds, which differs from process to process.
    """

    def _index_key(self, signature, codegen):
        return signature, codegen.magic_tuple()


class _CacheOfKernels(CacheByKey):
    """That of kernels, which are called by their addresses: what is kept is machine code."""

    def save_overload(self, sig, data):
        data.library.make_machine_code()
        super().save_overload(sig, data)


def cached(function: Dispatcher, key: str, cache: type[CacheByKey] = CacheByKey) -> Dispatcher:
    """Let Numba keep the compiled code of a function on disk under a key, and return the function."""
    # Numba keeps the name of the function's module with the code and imports it again; some of PyTensor's have none.
    function.py_func.__globals__.setdefault("__name__", __name__)
    # It names files after the file of the function, to which PyTensor gives a random name: another stands for it.
    stand_in = FunctionType(_stand_in.__code__, {})
    CACHED_SRC_FUNCTIONS[stand_in] = key
    function._cache, _ = cache(stand_in), function._cache  # an error if Numba should have no such attribute
    return function


def _stand_in():
    """Stand for a function whose compiled code is kept on disk."""


def graph_function(
    name: str, inputs: int, constants: Sequence[object], calls: Sequence[Call], outputs: Sequence[int]
) -> Callable:
    """Make the function of a graph, for Numba to compile.

    Parameters
    ----------
    name : str
        The name of the function.
    inputs : int
        How many inputs the graph has.
    constants : sequence
        The values of its constants.
    calls : sequence of Call
        What is computed, in this order.
    outputs : sequence of int
        The numbers of the graph's outputs.

    Returns
    -------
    callable
        The function, which returns a tuple of the outputs.
    """
    names = [f"x{i}" for i in range(inputs)]
    run = named_intrinsic(names, lambda *arguments: _Graph(arguments, constants, calls, outputs).intrinsic())
    namespace = {"run": run, "__name__": __name__}  # of a function without a module Numba would keep all globals, too
    exec(f"def {name}({', '.join(names)}): return run({', '.join(names)})", namespace)
    return namespace[name]


def named_intrinsic(names: Sequence[str], typed: Callable) -> Callable:
    """Make an intrinsic of Numba of arguments with these names, each of which must be named; ``typed`` is of types."""
    return intrinsic(
        eval(f"lambda {', '.join(['typing_context', *names])}: typed({', '.join(names)})", {"typed": typed})
    )


def mistaking_columns(kernel: Callable) -> Callable:
    """Let a kernel take arrays that lie column by column in memory as arrays of any layout, and return it.

    PyTensor takes a part of an array for an array of the same layout. If the whole lies column by column, a part of it
    does not, and wrong numbers are read.
    """
    kernel.mistakes_columns = True  # type: ignore[attr-defined]
    return kernel


class Writer:
    """Writes LLVM instructions for values of Numba, in its target context and with its builder of instructions."""

    def __init__(self, context, builder: ir.IRBuilder):
        self.context, self.builder = context, builder

    def place(self, kind: types.Type) -> ir.Value:
        """Reserve a place in memory for a value of a type."""
        return cgutils.alloca_once(self.builder, self.context.get_data_type(kind))

    def load(self, kind: types.Type, place: ir.Value) -> ir.Value:
        """Read a value from its place."""
        data = self.builder.load(place)
        if data.type == self.context.get_value_type(kind):
            return data
        return self.context.data_model_manager[kind].from_data(self.builder, data)

    def store(self, kind: types.Type, value: ir.Value, place: ir.Value) -> ir.Instruction:
        """Write a value to its place."""
        if value.type != place.type.pointee:
            value = self.context.data_model_manager[kind].as_data(self.builder, value)
        return self.builder.store(value, place)

    def release(self, kind: types.Type, place: ir.Value) -> None:
        """Let go of the memory that the value in a place holds."""
        if isinstance(kind, types.Array):  # as below, in fewer instructions
            meminfo = self.builder.load(cgutils.gep_inbounds(self.builder, place, 0, 0))
            self.context.nrt.decref(self.builder, types.MemInfoPointer(types.voidptr), meminfo)
        else:
            self.context.nrt.decref(self.builder, kind, self.load(kind, place))

    def call(self, slot: ir.Value, inputs: Sequence[ir.Value], result: ir.Value) -> None:
        """Call the kernel whose address lies in a slot, with the places of its inputs and of its result.

        It has the calling convention of Numba, which returns a status and takes where to put its result and an
        exception. What it raises is raised.
        """
        builder, own = self.builder, self.builder.function
        places = [builder.bitcast(place, POINTER) for place in (result, *inputs)]
        kernel_type = ir.FunctionType(STATUS, [POINTER, own.args[1].type, *[POINTER] * len(inputs)])
        kernel = builder.bitcast(builder.load(slot), kernel_type.as_pointer())
        status = builder.call(kernel, [places[0], own.args[1], *places[1:]])
        with cgutils.if_unlikely(builder, builder.icmp_signed("!=", status, ir.Constant(STATUS, 0))):
            builder.ret(status)

    def inline(self, implementation: tuple, values: Sequence[ir.Value]) -> ir.Value:
        """Call a function that :func:`typed` has found, which LLVM may copy to where it is called."""
        packed, values = [], list(values)
        for kind in implementation[1].args:
            if isinstance(kind, types.StarArgTuple | types.StarArgUniTuple):  # the function takes ``*arguments``
                packed.append(self.context.make_tuple(self.builder, kind, values))
            elif isinstance(kind, types.Omitted):  # one with a default, which takes no place among the values
                packed.append(None)
            else:
                packed.append(values.pop(0))
        return self.context.get_function(*implementation)(self.builder, packed)


class _Graph:
    """The code of a graph for inputs of given types.

    Parameters
    ----------
    arguments : sequence of Numba's types
        The types of the inputs.
    constants, calls, outputs
        Those of :func:`graph_function`.
    """

    def __init__(self, arguments: Sequence[types.Type], constants, calls, outputs):
        self.arguments, self.constants, self.calls, self.outputs = arguments, constants, calls, outputs
        self.kinds = [*arguments, *map(cpu_target.typing_context.resolve_value_type, constants)]
        self.results: list[types.Type] = []  # of the calls
        self.needed: list[tuple[str, tuple[types.Type, ...]]] = []  # the kernels, with the types of their arguments
        self.inlined: list[tuple] = []  # the types of inlined functions, with their signatures
        for call in calls:
            given = tuple(self.kinds[i] for i in call.inputs)
            if isinstance(call.function, str):
                given = _as_taken(kernels[call.function], given)
                self.needed.append((call.function, given))
                signature = _compiled(call.function, given).signature
            else:
                self.inlined.append(typed(call.function, given))
                _, signature = self.inlined[-1]
            self.results.append(signature.return_type)
            self.kinds += [signature.return_type] if call.outputs == 1 else signature.return_type.types
        self.result = types.Tuple([self.kinds[i] for i in outputs])

    def intrinsic(self) -> tuple:
        """Return what Numba asks of an intrinsic: its signature and the function that writes its code."""
        return self.result(*self.arguments), lambda context, builder, _, values: self.write(
            Writer(context, builder), values
        )

    def write(self, writer: Writer, values: Sequence[ir.Value]) -> ir.Value:
        """Write the code of the graph for these values of its inputs, and return a tuple of its outputs."""
        context, builder = writer.context, writer.builder
        kinds, places = self.kinds, []
        constants = zip(kinds[len(values) :], self.constants, strict=False)
        values = [*values, *(context.get_constant_generic(builder, *constant) for constant in constants)]
        for kind, value in zip(kinds, values, strict=False):
            places.append(writer.place(kind))
            writer.store(kind, value, places[-1])
        owned, kept = range(len(values), len(kinds)), set(self.outputs)
        last = {i: number for number, call in enumerate(self.calls) for i in call.inputs}
        slots, inlined = self._slots(context, builder), iter(self.inlined)
        for number, (call, kind) in enumerate(zip(self.calls, self.results, strict=True)):
            result = writer.place(kind)
            if isinstance(call.function, str):
                writer.call(next(slots), [places[i] for i in call.inputs], result)
            else:
                inputs = [writer.load(kinds[i], places[i]) for i in call.inputs]
                writer.store(kind, writer.inline(next(inlined), inputs), result)
            new = range(len(places), len(places) + call.outputs)
            places += [
                result if len(new) == 1 else cgutils.gep_inbounds(builder, result, 0, i) for i in range(len(new))
            ]
            for i in {*call.inputs, *new} - kept:
                if i in owned and last.get(i, number) == number:
                    writer.release(kinds[i], places[i])
        outputs = [writer.load(kinds[i], places[i]) for i in self.outputs]
        for position, (i, value) in enumerate(zip(self.outputs, outputs, strict=True)):
            if i not in owned or i in self.outputs[:position]:
                context.nrt.incref(builder, kinds[i], value)
        return context.make_tuple(builder, self.result, outputs)

    def _slots(self, context, builder: ir.IRBuilder) -> Iterator[ir.Value]:
        """Write the code that asks for the addresses of all kernels, once in a process; return where they lie."""
        module, table_type = builder.module, ir.ArrayType(POINTER, len(self.needed) + 1)
        table = ir.GlobalVariable(module, table_type, module.get_unique_name("kernels"))
        table.linkage, table.initializer = "internal", ir.Constant(table_type, None)
        *slots, is_known = [cgutils.gep_inbounds(builder, table, 0, i) for i in range(len(self.needed) + 1)]
        with cgutils.if_unlikely(builder, cgutils.is_null(builder, builder.load(is_known))):
            resolver_type = ir.FunctionType(POINTER, [POINTER, POINTER])
            resolver = module.globals.get(RESOLVER) or ir.Function(module, resolver_type, RESOLVER)
            described = context.insert_const_string(module, b64encode(pickle.dumps(self.needed)).decode())
            done = builder.call(resolver, [described, builder.bitcast(table, POINTER)])
            with cgutils.if_unlikely(builder, cgutils.is_null(builder, done)):
                context.call_conv.return_user_exc(builder, RuntimeError, ("A kernel could not be compiled.",))
            builder.store(done, is_known)
        return iter(slots)


def _as_taken(kernel: Callable, arguments: tuple[types.Type, ...]) -> tuple[types.Type, ...]:
    """Return the types for which a kernel is compiled that is to take arguments of these types."""
    free = set(getattr(kernel, "any_layout", ()))
    if getattr(kernel, "mistakes_columns", False):
        free |= {i for i, kind in enumerate(arguments) if getattr(kind, "layout", None) == "F"}
    return tuple(kind.copy(layout="A") if i in free else kind for i, kind in enumerate(arguments))


def _compiled(key: str, arguments: tuple[types.Type, ...]) -> CompileResult:
    """Compile a kernel for arguments of these types, or load it from the cache.

    The function that is compiled takes the addresses of the arguments.
    """
    if (key, arguments) not in _compiled_kernels:
        names = [f"x{i}" for i in range(len(arguments))]

        def typed_for(*addresses):
            implementation = typed(kernels[key], arguments)

            def code(context, builder, signature, places):
                writer = Writer(context, builder)
                values = [
                    writer.load(kind, builder.bitcast(place, context.get_data_type(kind).as_pointer()))
                    for kind, place in zip(arguments, places, strict=True)
                ]
                return writer.inline(implementation, values)

            return implementation[1].return_type(*addresses), code

        namespace = {"kernel": named_intrinsic(names, typed_for), "__name__": __name__}
        exec(f"def call({', '.join(names)}): return kernel({', '.join(names)})", namespace)
        function = cached(
            numba_njit(namespace["call"]), sha256(str((key, arguments)).encode()).hexdigest(), _CacheOfKernels
        )
        with in_parts():
            function.compile((types.voidptr,) * len(arguments))
        [_compiled_kernels[key, arguments]] = function.overloads.values()
    return _compiled_kernels[key, arguments]


def typed(function: Callable, arguments: Sequence[types.Type]) -> tuple:
    """Return Numba's type of what it can call, and its signature for arguments of these types."""
    context = cpu_target.typing_context
    kind = context.resolve_value_type(function)
    return kind, kind.get_call_type(context, tuple(arguments), {})


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p))
def _resolve(described: bytes, table) -> int | None:
    """Write the addresses of kernels for arguments of given types into a table; return 1, or None after an error."""
    try:
        for i, (key, arguments) in enumerate(pickle.loads(b64decode(described))):
            compiled = _compiled(key, arguments)
            table[i] = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    except BaseException as error:  # an interrupt, too: no exception may pass through compiled code
        failures.append(error)
        return None
    return 1


llvm.add_symbol(RESOLVER, ctypes.cast(_resolve, ctypes.c_void_p).value)

"""Loops of Numba kernels over independent blocks of samples, divided among as many threads as BLAS uses.

BLAS is the library that computes matrix products. Numba's own threads do not survive a fork, by which ``pm.sample``
starts the processes of its chains. The threads here live only as long as one loop: a POSIX thread starts and ends in
tens of microseconds. Where the system has no POSIX threads, the loop runs in one thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import addressof, c_int64
from functools import cache

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core.cgutils import alloca_once, for_range, if_likely, if_unlikely, is_not_null, is_null
from numba.extending import intrinsic
from pytensor.link.numba.dispatch.basic import numba_njit
from threadpoolctl import LibController, ThreadpoolController

from pymc_gibbsnn.backends.machine import count_cores
from pymc_gibbsnn.backends.one_thread import lock_across_forks

__all__ = [
    "BLOCK",
    "blas",
    "count_blocks",
    "limited",
    "share",
    "take_threads_of_blas",
    "threads_of_blas",
    "without_threads_of_blas",
]

BLOCK = 1024  # samples in a block: few enough that what a block needs of a layer stays in the cache of a core
MOST = 64  # the most threads that a loop is divided among
BLOCKS_EACH = 8  # the fewest blocks for which a further thread is worth starting
# BLAS's threads do not work in sweeps of fewer multiplications, and are worth having from the second number on.
SMALL, LARGE = 20_000, 20_000_000

# The number of threads, at an address where compiled code reads it: a constant would become part of cached code.
_threads = c_int64(1)
llvm.add_symbol("pymc_gibbsnn_threads", addressof(_threads))
_controlled: ThreadpoolController | None = None

# The limits that hold now, and how many threads each library had before them.
_lock = lock_across_forks()
_limits: list[int] = []
_before: list[tuple[LibController, int]] = []

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_POINTER = ir.IntType(8).as_pointer()
_NULL = ir.Constant(_POINTER, None)


@cache
def blas() -> ThreadpoolController:
    """Return the BLAS libraries of this process, whose threads can be limited; to find them takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")


def threads_of_blas() -> int:
    """Return how many threads BLAS uses now or, while they are :func:`limited`, used before.

    Where no library tells how many it uses, this is the environment variable OMP_NUM_THREADS, and all cores if that is
    not set.
    """
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    wanted = int(wanted) if wanted.isdigit() else count_cores()
    with _lock:
        used = [number for _, number in _before] or [library.num_threads for library in blas().lib_controllers]
    return max(1, max((number or wanted for number in used), default=wanted))


def take_threads_of_blas(most: int | None = None) -> None:
    """Divide loops among as many threads as BLAS uses now, or a process that was forked may use.

    Parameters
    ----------
    most : int, optional
        In a forked process, the largest number of threads allowed, which is also set for OpenBLAS. Other BLAS libraries
        rest on an OpenMP runtime, which must not be touched in a forked process.
    """
    global _controlled
    threads = min(threads_of_blas(), most or MOST, MOST)
    _controlled = blas() if most is None else blas().select(internal_api="openblas").select(threading_layer="pthreads")
    if most is not None:
        for library in _controlled.lib_controllers:
            library.set_num_threads(min(library.num_threads, most))
    _threads.value = threads if os.name == "posix" else 1


@contextmanager
def limited(libraries: ThreadpoolController, most: int) -> Iterator[None]:
    """Let BLAS use at most so many threads while the context lasts.

    Where a library has one number for the whole process, the smallest limit holds of all contexts that threads of
    Python are inside, and the last to leave puts back what was before. Where each thread has a number of its own, as
    with MKL and OpenMP, so is the limit.
    """
    known = [library for library in libraries.lib_controllers if library.num_threads]
    own = [(library, library.num_threads) for library in known if _is_of_each_thread(library)]
    for library, _ in own:
        library.set_num_threads(most)
    with _lock:
        if not _limits:
            _before.extend((library, library.num_threads) for library in known if not _is_of_each_thread(library))
        _limits.append(most)
        _set([(library, min([number, *_limits])) for library, number in _before])
    try:
        yield
    finally:
        with _lock:
            _limits.remove(most)
            _set([(library, min([number, *_limits])) for library, number in _before])
            if not _limits:
                _before.clear()
        for library, number in own:
            library.set_num_threads(number)


def _is_of_each_thread(library: LibController) -> bool:
    """Whether a BLAS library has a number of threads for each thread that calls it."""
    return library.internal_api == "mkl" or getattr(library, "threading_layer", None) == "openmp"


def _set(numbers: list[tuple[LibController, int]]) -> None:
    """Set how many threads each library uses, in whatever thread this is."""
    for library, number in numbers:
        # From version 3.8 on, threadpoolctl lets the first thread that has set a number set others, and no other thread
        release = getattr(library, "clear_controlling_thread", lambda force: None)
        release(force=True)
        library.set_num_threads(number)
        release(force=True)


def _forget_other_threads() -> None:
    """In a process that was forked, put back what the other threads, which are not in it, have limited."""
    _limits.clear()
    _set(_before)
    _before.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


@contextmanager
def without_threads_of_blas(rows: int, multiplications: int) -> Iterator[None]:
    """Leave BLAS one thread while the context lasts, if in a sweep its threads would cost more than they gain.

    BLAS's threads, once they have worked, wait for more work by spinning for as long as a small sweep takes. So they
    take processor time from our own threads, which share out the loops over many rows. In sweeps of few rows, products
    are too small a part to be worth it, and beside a busy core each of these threads holds up the others: such a sweep
    can take three times as long. In the smallest sweeps no product is large enough for them.

    Parameters
    ----------
    rows : int
        The rows of the data; 0 if they are not known, and nothing is limited.
    multiplications : int
        How many multiplications by weights compute the outputs of all rows.
    """
    are_shared = count_blocks.py_func(rows) >= 2 * BLOCKS_EACH
    if rows and _threads.value > 1 and (are_shared or SMALL <= multiplications < LARGE):
        with limited(_controlled, 1):
            yield
    else:
        yield


@numba_njit
def count_blocks(n):
    """Return into how many blocks of ``BLOCK`` samples n samples are divided."""
    return (n + BLOCK - 1) // BLOCK


@intrinsic
def share(typing_context, kernel, blocks, arguments):
    """Call ``kernel(block, *arguments)`` for block = 0, ..., blocks − 1, in any order and in threads.

    In compiled code this is called with three arguments, ``share(kernel, blocks, arguments)``.

    Parameters
    ----------
    typing_context
        Numba's, which Numba passes itself.
    kernel : compiled function
        It returns nothing. No two of its calls may write to the same place.
    blocks : int
        How often it is called.
    arguments : tuple
        What it is given beside the number of the block.

    Raises
    ------
    RuntimeError
        In compiled code, if a call of the kernel raises, as when memory runs out.
    """
    signature = typing_context.resolve_function_type(kernel, (types.intp, *arguments.types), {})
    compiled = kernel.dispatcher.get_compile_result(signature)

    def code(context, builder, _, values):
        context.add_linking_libs([compiled.library])
        # What all threads read: the next block, the number of blocks, whether a call has failed, and the arguments.
        task_type = ir.LiteralStructType([_I64, _I64, _I64, context.get_value_type(arguments)])
        task = alloca_once(builder, task_type)
        for i, value in enumerate((_I64(0), values[1], _I64(0), values[2])):
            builder.store(value, _field(builder, task, i))
        work = _work_of_a_thread(context, builder.module, task_type, compiled, signature)
        _run(builder, work, builder.bitcast(task, _POINTER), blocks=values[1])
        with if_unlikely(builder, is_not_null(builder, builder.load(_field(builder, task, 2)))):
            context.call_conv.return_user_exc(builder, RuntimeError, ("a kernel failed in one of its threads",))
        return context.get_dummy_value()

    return types.void(kernel, blocks, arguments), code


def _work_of_a_thread(context, module: ir.Module, task_type: ir.Type, compiled, signature) -> ir.Function:
    """Write the function ``void *work(void *task)`` of a thread, which takes block after block until none is left.

    Parameters
    ----------
    context : Numba's target context
    module : ir.Module
        The module to which the function is added.
    task_type : ir.Type
        The struct of what all threads read.
    compiled, signature
        Numba's compiled kernel and its signature.

    Returns
    -------
    ir.Function
    """
    work = _function(module, module.get_unique_name("work_of_a_thread"), _POINTER, _POINTER)
    work.linkage = "internal"
    start, loop, body, end = (work.append_basic_block() for _ in range(4))
    builder = ir.IRBuilder(start)
    task = builder.bitcast(work.args[0], task_type.as_pointer())
    next_block, count, failed, packed = (_field(builder, task, i) for i in range(4))
    count, packed = builder.load(count), builder.load(packed)
    taken = [builder.extract_value(packed, i) for i in range(len(signature.args) - 1)]
    builder.branch(loop)
    builder.position_at_end(loop)
    block = builder.atomic_rmw("add", next_block, _I64(1), "monotonic")
    builder.cbranch(builder.icmp_signed("<", block, count), body, end)
    builder.position_at_end(body)
    status, _ = context.call_internal_no_propagate(builder, compiled.fndesc, signature, [block, *taken])
    with if_unlikely(builder, status.is_error):
        builder.atomic_rmw("or", failed, _I64(1), "monotonic")
    builder.branch(loop)
    builder.position_at_end(end)
    builder.ret(_NULL)
    return work


def _run(builder: ir.IRBuilder, work: ir.Function, task: ir.Value, blocks: ir.Value) -> None:
    """Write the code that calls ``work(task)`` in this thread and in as many others as are worth starting.

    Parameters
    ----------
    builder : ir.IRBuilder
        Where the code is written.
    work : ir.Function
        The function of a thread.
    task, blocks : ir.Value
        Its argument, and the number of blocks.
    """
    if os.name != "posix":
        builder.call(work, [task])
        return
    module = builder.module
    create = _function(module, "pthread_create", _I32, _I64.as_pointer(), _POINTER, work.type, _POINTER)
    join = _function(module, "pthread_join", _I32, _I64, _POINTER)
    threads = module.globals.get("pymc_gibbsnn_threads") or ir.GlobalVariable(module, _I64, "pymc_gibbsnn_threads")
    threads, useful = builder.load(threads), builder.sdiv(blocks, _I64(BLOCKS_EACH))
    others = builder.sub(builder.select(builder.icmp_signed("<", useful, threads), useful, threads), _I64(1))
    handles, failures = (alloca_once(builder, kind, size=_I64(MOST)) for kind in (_I64, _I32))
    with for_range(builder, others) as thread:
        failure = builder.call(create, [builder.gep(handles, [thread.index]), _NULL, work, task])
        builder.store(failure, builder.gep(failures, [thread.index]))
    builder.call(work, [task])
    with for_range(builder, others) as thread:
        # A thread that could not be started is not joined; the others do its work.
        failure = builder.load(builder.gep(failures, [thread.index]))
        with if_likely(builder, is_null(builder, failure)):
            builder.call(join, [builder.load(builder.gep(handles, [thread.index])), _NULL])


def _field(builder: ir.IRBuilder, struct: ir.Value, i: int) -> ir.Value:
    """Write the code of the address of field i of a struct."""
    return builder.gep(struct, [_I32(0), _I32(i)])


def _function(module: ir.Module, name: str, returns: ir.Type, *taken: ir.Type) -> ir.Function:
    """Return the function of a module with this name; declare it, with these types, if there is none.

    Parameters
    ----------
    module : ir.Module
    name : str
    returns : ir.Type
        The type that it returns.
    *taken : ir.Type
        The types of its arguments.
    """
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(returns, taken), name)

"""Loops of Numba kernels over blocks that do not touch each other, shared out to the threads that BLAS has.

Numba's own threads do not outlive a fork, by which ``pm.sample`` starts its chains. These live as long as one loop:
a POSIX thread starts and ends in tens of microseconds. Where there are none the loop runs in one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import addressof, c_int64

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core.cgutils import alloca_once, for_range, if_likely, if_unlikely, is_not_null, is_null
from numba.extending import intrinsic
from pytensor.link.numba.dispatch.basic import numba_njit
from threadpoolctl import ThreadpoolController

from pymc_gibbsnn._compat import count_cores

__all__ = ["BLOCK", "count_blocks", "share", "take_threads_of_blas", "without_threads_of_blas"]

BLOCK = 1024  # samples: what a block needs of a layer stays in a core's cache
MOST = 64  # threads
BLOCKS_EACH = 8  # at least: fewer are not worth a thread

# The number of threads, where compiled code finds it: a constant would be kept in PyTensor's cache.
_threads = c_int64(1)
llvm.add_symbol("pymc_gibbsnn_threads", addressof(_threads))
_blas: ThreadpoolController | None = None

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_POINTER = ir.IntType(8).as_pointer()
_NULL = ir.Constant(_POINTER, None)


def take_threads_of_blas(most: int | None = None) -> None:
    """Share out to as many threads as BLAS has now; all cores or OMP_NUM_THREADS where it does not tell.

    In a forked process, ``most`` is how many they may be, those of OpenBLAS too. Other libraries rest on an OpenMP
    runtime, which must not be touched there.
    """
    global _blas
    blas = ThreadpoolController().select(user_api="blas")
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    wanted = int(wanted) if wanted.isdigit() else count_cores()
    found = [library["num_threads"] or wanted for library in blas.info()]
    threads = max(1, min(max(found, default=wanted), most or MOST, MOST))
    _blas = blas if most is None else blas.select(internal_api="openblas").select(threading_layer="pthreads")
    if most is not None:
        for library in _blas.lib_controllers:
            library.set_num_threads(min(library.num_threads, most))
    _threads.value = threads if os.name == "posix" else 1


@contextmanager
def without_threads_of_blas(samples: int) -> Iterator[None]:
    """Leave BLAS one thread meanwhile, if so many samples are shared out.

    Its threads, once woken, wait for more by spinning for the time of a whole sweep, in the way of ours.
    """
    if _threads.value > 1 and count_blocks.py_func(samples) >= 2 * BLOCKS_EACH:
        with _blas.limit(limits=1):
            yield
    else:
        yield


@numba_njit
def count_blocks(n):
    """How many blocks of BLOCK samples n samples make."""
    return (n + BLOCK - 1) // BLOCK


@intrinsic
def share(typing_context, kernel, blocks, arguments):
    """Call ``kernel(block, *arguments)`` for all of ``blocks``, a number, in any order.

    ``arguments`` is a tuple. The kernel returns nothing; if it raises, as when memory runs out, RuntimeError is raised.
    """
    signature = typing_context.resolve_function_type(kernel, (types.intp, *arguments.types), {})
    compiled = kernel.dispatcher.get_compile_result(signature)

    def code(context, builder, _, values):
        context.add_linking_libs([compiled.library])
        # What all threads read: the next block, how many there are, whether one has failed, the arguments.
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
    """``void *work(void *task)``: takes block after block until none is left."""
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
    """Call ``work(task)`` in this thread and as many others as are of use."""
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
        # What a thread that could not be had leaves is done by the others.
        failure = builder.load(builder.gep(failures, [thread.index]))
        with if_likely(builder, is_null(builder, failure)):
            builder.call(join, [builder.load(builder.gep(handles, [thread.index])), _NULL])


def _field(builder: ir.IRBuilder, struct: ir.Value, i: int) -> ir.Value:
    return builder.gep(struct, [_I32(0), _I32(i)])


def _function(module: ir.Module, name: str, returns: ir.Type, *taken: ir.Type) -> ir.Function:
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(returns, taken), name)

"""Threads that compile, or limit BLAS, at once: what they change is as before when all have ended."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.rewriting.basic import GraphRewriter
from threadpoolctl import threadpool_limits

from pymc_gibbsnn.backends import threads
from pymc_gibbsnn.backends.modes import compilation_mode
from tests.helpers import threads_of_blas

FLAGS = ("mode", "cxx", "traceback__limit", "optdb__max_use_ratio")


def flags():
    return [getattr(pytensor.config, name) for name in FLAGS]


class Calls(GraphRewriter):
    """A rewrite that calls a function while PyTensor compiles."""

    def __init__(self, function):
        self.function = function

    def apply(self, fgraph):
        self.function()


@pytest.mark.parametrize("compiles", ["a function", "a shape"])
def test_two_threads_that_compile_leave_the_flags_as_they_were(monkeypatch, compiles):
    """The first begins, the second begins, the first ends, the second ends."""
    before, first_is_in, second_is_in, first_is_out = flags(), *(threading.Event() for _ in range(3))
    seen = {}

    def meet():
        if threading.current_thread().name.endswith("_0"):
            first_is_in.set()
            assert second_is_in.wait(60)
        else:
            second_is_in.set()
            assert first_is_out.wait(60)
        seen[threading.current_thread().name] = flags()

    def compile():
        n = pt.lscalar("n")
        if compiles == "a function":
            return pytensor.function([n], n + 1, mode=Mode("py", Calls(meet)))
        return pt.zeros(n)

    if compiles == "a shape":
        monkeypatch.setattr("pytensor.tensor.rewriting.basic.topo_constant_folding", Calls(meet))
    with ThreadPoolExecutor(2, "thread") as pool:
        first = pool.submit(compile)
        assert first_is_in.wait(60)
        assert flags() == before  # in this thread
        assert compilation_mode(None) is compilation_mode("NUMBA")
        second = pool.submit(compile)
        first.result()
        first_is_out.set()
        second.result()
    assert flags() == before
    for changed in seen.values():  # in those threads
        assert changed != before


def test_flags_that_a_user_changes_are_changed_in_all_threads():
    with pytensor.config.change_flags(floatX="float32"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: pt.matrix().dtype).result() == "float32"


def test_a_user_may_change_flags_while_pytensor_compiles():
    seen, before = [], flags()

    def change():
        with pytensor.config.change_flags(traceback__limit=3):
            seen.append(pytensor.config.traceback__limit)

    x = pt.dscalar("x")
    pytensor.function([x], x + 1, mode=Mode("py", Calls(change)))
    assert seen == [3]
    assert flags() == before


def limit_in(thread, most):
    """Limit BLAS in a thread, and return a function that lets it leave the limit there."""
    context = threads.limited(threads.blas(), most)
    thread.submit(context.__enter__).result()
    return lambda: thread.submit(context.__exit__, None, None, None).result()


def test_two_threads_that_limit_blas_leave_it_as_it_was():
    with threadpool_limits(4, user_api="blas"), ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        first, second = limit_in(one, 2), limit_in(two, 1)
        assert (threads_of_blas(), threads.threads_of_blas()) == ({1}, 4)
        second()
        assert (threads_of_blas(), threads.threads_of_blas()) == ({2}, 4)
        third = limit_in(two, 3)
        assert threads_of_blas() == {2}
        first()
        assert threads_of_blas() == {3}
        third()
        assert (threads_of_blas(), threads.threads_of_blas()) == ({4}, 4)
        with threadpool_limits(2, user_api="blas"):  # this thread may set them again
            assert threads_of_blas() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_fork_forgets_the_limits_of_other_threads():
    with threadpool_limits(4, user_api="blas"), ThreadPoolExecutor(1) as one:
        leave = limit_in(one, 1)
        child = os.fork()
        if child == 0:
            os._exit(0 if threads_of_blas() == {4} and not threads._limits else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        leave()


class OfEachThread(threading.local):
    """A stand-in for a library such as MKL, where each thread has a number of threads of its own."""

    internal_api, num_threads = "mkl", 4

    def set_num_threads(self, number):
        self.num_threads = number


def test_a_number_of_each_thread_is_put_back_in_that_thread():
    library = OfEachThread()
    unknown = SimpleNamespace(internal_api="unknown", num_threads=None)  # left alone
    libraries = SimpleNamespace(lib_controllers=[library, unknown])
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        contexts = [threads.limited(libraries, 1) for _ in range(2)]
        for thread, context in zip((one, two), contexts, strict=True):
            thread.submit(context.__enter__).result()
        for thread, context in zip((one, two), contexts, strict=True):
            assert thread.submit(lambda: library.num_threads).result() == 1
            thread.submit(context.__exit__, None, None, None).result()
            assert thread.submit(lambda: library.num_threads).result() == 4
    assert library.num_threads == 4

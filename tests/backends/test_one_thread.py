"""Threads that compile, or limit BLAS, at once: what they change is as before when all have ended."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.rewriting.basic import GraphRewriter
from threadpoolctl import threadpool_info, threadpool_limits

from pymc_gibbsnn.backends import threads
from pymc_gibbsnn.backends.modes import compilation_mode

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


def test_two_threads_that_limit_blas_leave_it_as_it_was():
    def used():
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        first, second = threads.limited(threads.blas(), 1), threads.limited(threads.blas(), 1)
        first.__enter__()
        second.__enter__()
        assert (used(), threads.threads_of_blas()) == ({1}, 2)
        first.__exit__(None, None, None)
        assert (used(), threads.threads_of_blas()) == ({1}, 2)
        second.__exit__(None, None, None)
        assert (used(), threads.threads_of_blas()) == ({2}, 2)

"""Kernels whose blocks of samples are shared out to threads."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numba import njit
from threadpoolctl import threadpool_limits

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends import threads as _threads
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.random.argmax_normal import argmax_normal
from pymc_gibbsnn.random.isotropic_normal import isotropic_normal
from pymc_gibbsnn.random.piecewise_normal import coupled_piecewise_normal, piecewise_normal
from tests.helpers import draw_rv, slow, threads_of_blas

N = 100_000
RELU = [-np.inf, 0.0, np.inf], [0.0, 1.0], [0.0, 0.0]


@pytest.fixture
def threads():
    """Set their number; what it was comes back."""
    before = _threads._threads.value
    yield lambda number: setattr(_threads._threads, "value", number)
    _threads._threads.value = before


@njit
def _mark(block, marks, lengths):
    marks[block] += 1
    lengths[block] = len(np.zeros(block))  # memory is had in a thread, and given back


@njit
def visit(blocks):
    marks, lengths = np.zeros(blocks, np.int64), np.zeros(blocks, np.int64)
    _threads.share(_mark, blocks, (marks, lengths))
    return marks, lengths


@pytest.mark.parametrize("number", [1, 2, 64])
def test_every_block_is_visited_once(threads, number):
    threads(number)
    for blocks in (0, 1, 15, 16, 1000):
        marks, lengths = visit(blocks)
        assert (marks == 1).all()
        assert (lengths == np.arange(blocks)).all()


@njit
def _fail(block, last):
    if block == last:
        raise ValueError("not heard")


@njit
def fail(blocks, last):
    _threads.share(_fail, blocks, (last,))


def test_a_failure_in_a_thread_is_told(threads):
    threads(2)
    fail(100, 100)
    with pytest.raises(RuntimeError, match="kernel failed"):
        fail(100, 50)


def draws():
    rng = np.random.default_rng(0)
    z, m, y, w = (rng.normal(size=shape) for shape in ((N, 4), (N, 4), (N, 3), (3, 4)))
    labels, ones = rng.integers(0, 4, N), np.ones(4)
    return {
        "isotropic": (isotropic_normal, [m, 2.0]),
        "piecewise": (piecewise_normal, [m, ones, z, ones, *RELU]),
        "coupled": (coupled_piecewise_normal, [z, m, 0.5, y, w, w / 3, *RELU]),
        "argmax": (argmax_normal, [np.where(np.arange(4) == labels[:, None], 9, z), m, 1.0, labels]),
    }


@pytest.mark.parametrize("name", ["isotropic", "piecewise", slow("coupled"), "argmax"])
def test_draws_do_not_depend_on_threads(threads, name):
    op, parameters = draws()[name]
    found = []
    for number in (1, 3):
        threads(number)
        found.append(draw_rv(op, parameters, "NUMBA"))
    assert np.isfinite(found[0]).all()
    assert len(np.unique(found[0][:, 0])) == N  # no two blocks from one stream
    np.testing.assert_array_equal(*found)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [1, 12])
def test_tall_products(threads, columns, dtype):
    rng = np.random.default_rng(0)
    data, weights, few = pt.matrix(dtype=dtype, shape=(None, 270)), pt.matrix(dtype=dtype), pt.matrix(dtype=dtype)
    mode = with_our_kernels(compilation_mode("NUMBA"))
    products = [data @ weights, data @ (weights.T + 1).T, data.T @ few]
    function = pytensor.function([data, weights, few], products, mode=mode)
    x, w, z = (rng.normal(size=shape).astype(dtype) for shape in ((20_483, 270), (270, columns), (20_483, columns)))
    for rows in (20_483, 20_000, 100):  # the last by BLAS
        found = []
        for number in (1, 3):
            threads(number)
            found.append(function(x[:rows], w, z[:rows]))
        x64, w64, z64 = x[:rows].astype(float), w.astype(float), z[:rows].astype(float)
        truth = [x64 @ w64, x64 @ (w64 + 1), x64.T @ z64]
        errors = [1e-4, 1e-4, 1e-3] if dtype == "float32" else [1e-9] * 3  # the last sums rows
        for one, three, expected, error in zip(*found, truth, errors, strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-4, atol=error)
            np.testing.assert_array_equal(one, three)


def test_threads_are_those_of_blas(threads):
    with threadpool_limits(2, user_api="blas"):
        _threads.take_threads_of_blas()
        assert _threads._threads.value == 2
        small, middle, large = 100, 100_000, 100_000_000  # multiplications
        of_few_rows, of_many = [(small, 2), (middle, 1), (large, 2)], [(small, 1), (middle, 1), (large, 1)]
        for rows, cases in [(0, [(middle, 2)]), (200, of_few_rows), (15_300, of_few_rows), (15_400, of_many)]:
            for multiplications, expected in cases:
                with _threads.without_threads_of_blas(rows, multiplications):
                    assert threads_of_blas() == {expected}
                assert threads_of_blas() == {2}


class Tells(pmg.GibbsNN):
    def step(self, point):
        raise ValueError(f"BLAS {sorted(threads_of_blas())}, ours {_threads._threads.value}")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize(("blas_cores", "expected"), [("auto", 1), (4, 2), (1, 1), (None, 3), (100, 3)])
def test_blas_in_a_forked_chain(threads, blas_cores, expected):
    x = np.random.default_rng(0).normal(size=(4, 2))
    with pmg.mlp(x, x[:, 0], 1, noise=0.1, prior=None), threadpool_limits(3, user_api="blas"):
        step = Tells(compile_kwargs={"mode": "AS_WRITTEN"})  # what it compiles is not run
        with pytest.raises(Exception, match=rf"BLAS \[{expected}\], ours {expected}"):
            pm.sample(1, tune=0, chains=2, cores=2, mp_ctx="fork", step=step, blas_cores=blas_cores, progressbar=False)


FORK = """
import os, numpy as np
from tests.backends.test_threads import _threads, visit
_threads._threads.value = 2
assert visit(100)[0].all()
child = os.fork()
if child == 0:
    os._exit(0 if visit(100)[0].all() else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_threads_survive_a_fork():
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", FORK], timeout=120, cwd=root).returncode == 0

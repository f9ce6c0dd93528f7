"""Kernels called by their addresses: the same results, each compiled once, errors passed on."""

import gc
import os
import subprocess
import sys
import uuid

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numba.core import event
from numba.core.runtime import _nrt_python
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn.backends import numba_cache
from pymc_gibbsnn.backends.fast_numba import calls
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels

TWO_PROCESSES = """
import sys
import numpy as np
from pytensor.link.utils import compile_function_src
from tests.backends.fast_numba.test_linker import compiled, function, quotient_of_sums, softmax_of_product
compile_function_src("def generated(): return 1", "generated")
f, quotient = function(softmax_of_product), quotient_of_sums()
with compiled() as names:
    found = f(np.ones((2, 3)), np.arange(6.0).reshape(3, 2))
    of_numbers = float(quotient(np.arange(3, dtype=np.float32)))
print(found.tolist(), of_numbers, names)
"""


def function(build):
    x, y = pt.matrix("x"), pt.matrix("y")
    return pytensor.function([x, y], build(x, y), mode=with_our_kernels(compilation_mode("NUMBA")))


class compiled:  # noqa: N801
    """The names of the functions that Numba compiles meanwhile."""

    def __enter__(self):
        names = self.names = []

        class Listener(event.Listener):
            def on_start(self, event):
                names.append(event.data["dispatcher"].py_func.__name__)

            def on_end(self, event):
                pass

        self.listener = Listener()
        event.register("numba:compile", self.listener)
        return names

    def __exit__(self, *_):
        event.unregister("numba:compile", self.listener)


def softmax_of_product(x, y):
    z = pt.exp(x @ y)
    return z / z.sum(axis=1, keepdims=True)


def quotient_of_sums():
    """A function that computes with single numbers in single precision, by a function of PyTensor without a module."""
    x = pt.fvector("x")
    return pytensor.function([x], x.sum() / (x**2).sum(), mode=with_our_kernels(compilation_mode("NUMBA")))


def test_a_second_graph_compiles_no_kernel_again():
    x, y = np.random.default_rng(1).normal(size=(2, 4, 4))
    first = function(softmax_of_product)
    second = function(lambda x, y: softmax_of_product(x, y) + 0.5 - x)
    expected = np.exp(x @ y) / np.exp(x @ y).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(first(x, y), expected)
    np.testing.assert_allclose(second(x, y), expected + 0.5 - x)
    third = function(lambda x, y: softmax_of_product(y, x))
    with compiled() as names:
        np.testing.assert_allclose(third(y, x), expected)
    assert set(names) <= {"numba_funcified_fgraph"}


def test_a_kernel_of_any_layout_is_compiled_once():
    """A triangular system: both triangles of a matrix have one function, by rows or by columns."""
    x, y = pt.matrix("x"), pt.matrix("y")
    a, b = np.triu(np.random.default_rng(2).normal(size=(3, 3))) + 3 * np.eye(3), np.arange(6.0).reshape(3, 2)
    f = pytensor.function([x, y], pt.linalg.solve_triangular(x, y), mode=with_our_kernels(compilation_mode("NUMBA")))
    np.testing.assert_allclose(f(a, b), np.linalg.solve(a, b))
    with compiled() as names:
        np.testing.assert_allclose(f(np.asfortranarray(a), b), np.linalg.solve(a, b))
    assert set(names) <= {"numba_funcified_fgraph"}


@pytest.mark.slow
def test_parts_of_batches_that_lie_column_by_column():
    """Each is read as it lies, by operations on batches and by draws of vectors."""
    mode, rng = with_our_kernels(compilation_mode("NUMBA")), np.random.default_rng(3)
    x, y = pt.matrix("x"), pt.tensor3("y")
    a, b = np.tril(rng.normal(size=(4, 3, 3))) + 3 * np.eye(3), rng.normal(size=(3, 4))
    columns = pt.linalg.solve_triangular(y, x.T[:, :, None], lower=True, b_ndim=2)[:, :, 0]
    vectors = pt.linalg.solve_triangular(y, x.T, lower=True, b_ndim=1)
    draws = pt.random.multivariate_normal(x.T, 1e-20 * np.eye(3))
    found = pytensor.function([x, y], [columns, vectors, draws], mode=mode)(b, a)
    expected = np.linalg.solve(a, b.T[:, :, None])[:, :, 0]
    for result, wanted in zip(found, (expected, expected, b.T), strict=True):
        np.testing.assert_allclose(result, wanted, atol=1e-8)


def test_a_kernel_with_an_argument_that_is_left_out():
    """PyTensor 3 multiplies batches of matrices by a function with an argument that has a default."""
    x, y = np.random.default_rng(2).normal(size=(2, 3, 4, 4))
    z, w = pt.tensor3("z"), pt.tensor3("w")
    mode = with_our_kernels(compilation_mode("NUMBA"))
    np.testing.assert_allclose(pytensor.function([z, w], z @ w, mode=mode)(x, y), x @ y)


def test_parts_of_a_split_array():
    """PyTensor 2 gives them as a list. The gradient of joined arrays is split."""
    x, y = np.random.default_rng(4).normal(size=(2, 3, 4))
    parts = function(lambda x, y: pt.split(x @ y.T, [1, 2], n_splits=2, axis=1))(x, y)
    for found, expected in zip(parts, np.split(x @ y.T, [1], axis=1), strict=True):
        np.testing.assert_allclose(found, expected)


def test_another_process_compiles_nothing(tmp_path):
    """Nor does it leave any of the files in which PyTensor writes code among temporary files."""
    command, environment = [sys.executable, "-c", TWO_PROCESSES], os.environ | {"TMPDIR": str(tmp_path)}
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]
    assert list(tmp_path.iterdir()) == []
    assert runs[1].endswith("[]\n")
    assert runs[0].split("]]")[0] == runs[1].split("]]")[0]


def test_what_a_kernel_raises_is_raised():
    with pytest.raises(ValueError, match=r"incompatible|mismatch|shape"):
        function(lambda x, y: x @ y)(np.ones((2, 3)), np.ones((2, 3)))


def test_an_interrupt_while_a_kernel_is_looked_for_is_raised(monkeypatch):
    f, y = function(lambda x, y: pt.sinh(x) - y), np.ones((2, 2))
    f(y, y)  # so that the graph is on disk, and a copy of it asks for addresses alone

    def interrupted(key, arguments):
        raise KeyboardInterrupt

    copy = function(lambda x, y: pt.sinh(x) - y)
    monkeypatch.setattr(calls, "_compiled", interrupted)
    with pytest.raises(KeyboardInterrupt):
        copy(y, y)
    monkeypatch.undo()
    np.testing.assert_allclose(copy(y, y), np.sinh(y) - y)


def test_the_user_is_told_once_of_what_is_compiled(caplog):
    caplog.set_level("INFO", "pymc")
    unknown = uuid.uuid4().int / 2**128  # a constant that no other code has
    for build in (softmax_of_product, lambda x, y: y - x):
        with numba_cache.telling_of_compilation("Compiling"):
            function(lambda x, y, build=build: build(x, y) + unknown)(np.ones((2, 2)), np.ones((2, 2)))
            function(lambda x, y, build=build: build(x, y) - unknown)(np.ones((2, 2)), np.ones((2, 2)))
    assert caplog.messages == ["Compiling", "Compiling"]
    with numba_cache.telling_of_compilation("Compiling"):
        function(lambda x, y: y - x + unknown)(np.ones((2, 2)), np.ones((2, 2)))
    assert len(caplog.messages) == 2


@pytest.fixture
def held():
    """A function that says how many pieces of memory Numba holds beyond what it held at first."""
    _nrt_python.memsys_enable_stats()

    def count():
        gc.collect()
        return _nrt_python.memsys_get_stats_alloc() - _nrt_python.memsys_get_stats_free()

    at_first = count()
    yield lambda: count() - at_first
    _nrt_python.memsys_disable_stats()


def test_outputs_that_are_inputs_constants_or_the_same(held):
    """Each output holds its memory itself, however often it is returned and whether or not it is computed."""
    constant = np.arange(3.0)
    total = calls.Call(numba_njit(lambda x, y: x + y), [0, 1], 1)
    f = numba_njit(calls.graph_function("f", 2, [constant], [total], [0, 3, 3, 2]), final_function=True)
    x, y = np.random.default_rng(5).normal(size=(2, 3))
    f(x, y)
    references, before = sys.getrefcount(x), held()
    for _ in range(3):
        given, first, second, known = f(x, y)
        assert given is x
        np.testing.assert_array_equal(known, constant)
        del first
        other = f(y, y)[1]  # which would take the place of an array that is freed
        np.testing.assert_array_equal(second, x + y)
        np.testing.assert_array_equal(other, y + y)
        del given, second, known, other
    assert (sys.getrefcount(x), held()) == (references, before)


def test_memory_is_let_go_of(held):
    """Arrays that are computed on the way, overwritten, unused or returned are freed once nobody has them."""
    x, y, rng = pt.matrix("x"), pt.matrix("y"), pytensor.shared(np.random.default_rng(6))
    z = pt.exp(x @ y)
    noise = pt.random.normal(size=z.shape, rng=rng)
    values, _ = pt.linalg.eigh(z + z.T)
    f = pytensor.function(
        [x, y],
        [(z / z.sum()).T[::2], pt.join(0, z, noise), values],
        updates={rng: noise.owner.outputs[0]},
        mode=with_our_kernels(compilation_mode("NUMBA")),
    )
    x, y = np.random.default_rng(7).normal(size=(2, 4, 4))
    f(x, y)
    before = held()
    for _ in range(5):
        f(x, y)
    assert held() == before
    found = f(x, y)
    assert held() > before
    del found
    assert held() == before


def test_names_among_the_built_in_functions_do_not_matter(monkeypatch):
    """Jupyter puts its own there, which cannot be pickled with what is kept on disk."""
    monkeypatch.setattr("builtins.unpicklable", (i for i in range(3)), raising=False)
    new = np.random.default_rng().random()  # so that nothing is found on disk
    found = function(lambda x, y: (x * new) @ y)(np.eye(2), np.eye(2))
    np.testing.assert_array_equal(found, new * np.eye(2))

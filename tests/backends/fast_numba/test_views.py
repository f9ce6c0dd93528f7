"""Parts and lengths of arrays, and numbers in them, in Numba against NumPy."""

import gc
import weakref

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.tensor.basic import MakeVector

from pymc_gibbsnn.backends.fast_numba.linker import IN_LINE, KernelLinker
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels

LAYOUTS = {
    "row by row": np.ascontiguousarray,
    "column by column": np.asfortranarray,
    "every second": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backwards": lambda x: np.flip(np.flip(x).copy()),
}
BOUNDS = [None, 0, 2, -1, -2, 7, -7]
PLAIN = Mode(KernelLinker(), None)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_parts_are_those_of_numpy(layout):
    x, i, j = pt.dmatrix(), pt.iscalar(), pt.bscalar()
    start, stop = (ps.int64() for _ in range(2))
    parts = [x[i], x[:, j], x[i, j], x[i, :stop], x[start:stop], x[:, start:], x[:stop, j], x[:, :], x[i, 1:][0]]
    f = pytensor.function([x, i, j, start, stop], parts, mode=PLAIN, on_unused_input="ignore")
    value = LAYOUTS[layout](np.random.default_rng(1).normal(size=(4, 5)))
    for a in BOUNDS[1:]:
        for b in BOUNDS[1:]:
            k, m = a % 4, b % 5 - 5
            wanted = [value[k], value[:, m], value[k, m], value[k, :b], value[a:b], value[:, a:], value[:b, m], value]
            for found, expected in zip(f(value, k, m, a, b), [*wanted, value[k, 1]], strict=True):
                np.testing.assert_array_equal(found, np.asarray(expected), strict=True)


@pytest.mark.parametrize("index", [4, -5])
def test_numbers_out_of_bounds_are_refused(index):
    x, i = pt.dmatrix(), pt.lscalar()
    for part in (x[i], x[:, 0][i]):
        with pytest.raises(IndexError, match="bounds"):
            pytensor.function([x, i], part, mode=PLAIN)(np.zeros((4, 5)), index)


def test_slices_with_steps_are_those_of_numpy():
    x, step = pt.dmatrix(), ps.int64()
    value = np.random.default_rng(2).normal(size=(4, 5))
    f = pytensor.function([x, step], [x[::step], x[:, 3:0:-1]], mode=PLAIN)
    for found, expected in zip(f(value, -2), [value[::-2], value[:, 3:0:-1]], strict=True):
        np.testing.assert_array_equal(found, expected)


def test_lengths_and_numbers():
    x, y, number, flag = pt.dmatrix(), pt.fscalar(), ps.float32(), ps.bool()
    outputs = [
        *(x.shape[axis] for axis in range(2)),
        pt.tensor_from_scalar(number),
        pt.tensor_from_scalar(flag),
        pt.tensor_from_scalar(ps.add(pt.scalar_from_tensor(y), number)),
        MakeVector("int64")(x.shape[1], pt.constant(3, dtype="int64"), x.shape[0]),
        MakeVector("float64")(y, y),
        MakeVector("float64")(),
    ]
    inputs = [x, y, number, flag]
    values = np.zeros((4, 5)), np.float32(0.1), np.float32(0.2), np.bool_(True)
    expected = pytensor.function(inputs, outputs, mode=Mode("py", None))(*values)
    for found, wanted in zip(pytensor.function(inputs, outputs, mode=PLAIN)(*values), expected, strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)


def test_they_are_no_kernels_in_a_graph_that_pytensor_has_rewritten():
    x, z, i = pt.dmatrix(), pt.dvector(), pt.lscalar()
    number = z[i]
    outputs = [pt.exp(number) + x[0, i], pt.stack([x.shape[0], x.shape[1], i]), x[i, 1:] * number]
    f = pytensor.function([x, z, i], outputs, mode=with_our_kernels(compilation_mode(None)))
    value, vector = np.random.default_rng(3).normal(size=(3, 4)), np.arange(4.0)
    wanted = [np.exp(vector[2]) + value[0, 2], np.array([3, 4, 2]), value[2, 1:] * vector[2]]
    for found, expected in zip(f(value, vector, 2), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-15)
    assert any(type(node.op) in IN_LINE for node in f.maker.fgraph.apply_nodes)


def test_a_part_holds_the_memory_of_its_array_and_lets_it_go():
    x = pt.dmatrix()
    f = pytensor.function([x], x[1:], mode=PLAIN)
    value = np.ones((3, 2))
    held = weakref.ref(value)
    found = f(value)
    del value
    gc.collect()
    np.testing.assert_array_equal(found, np.ones((2, 2)))
    del found
    gc.collect()
    assert held() is None

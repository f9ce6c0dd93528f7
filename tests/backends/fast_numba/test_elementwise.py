"""Elementwise operations and repeated arrays in Numba against NumPy."""

from itertools import chain

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor.elemwise import Elemwise

from pymc_gibbsnn.backends.fast_numba.linker import KernelLinker
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels

SHAPES = [
    [(), ()],
    [(3,), (1,)],
    [(3, 1), (3, 4), (1, 1)],
    [(1, 1), (1, 1)],
    [(2, 3, 1, 5), (1, 3, 4, 1), (1, 1, 1, 5)],
    [(0, 1), (1, 0)],
]
LAYOUTS = {
    "row by row": np.ascontiguousarray,
    "column by column": np.asfortranarray,
    "every second": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backwards": lambda x: np.flip(np.flip(x).copy()),
}


def plain(inputs, outputs):
    """A function of the graph as it is written: nothing fused, nothing in place but what is in place already."""
    return pytensor.function(inputs, outputs, mode=Mode(KernelLinker(), None), accept_inplace=True)


def symbol(shape, dtype="float64"):
    return pt.tensor(dtype=dtype, shape=[1 if n == 1 else None for n in shape])


def test_arrays_are_repeated_where_their_length_is_one():
    rng = np.random.default_rng(1)
    symbols = [[symbol(shape) for shape in shapes] for shapes in SHAPES]
    values = [[np.asarray(rng.normal(size=shape)) for shape in shapes] for shapes in SHAPES]
    outputs = [output for some in symbols for output in (pt.maximum(some[0], some[-1]), pt.add(*some))]
    found = iter(plain([*chain(*symbols)], outputs)(*chain(*values)))
    for some in values:
        np.testing.assert_array_equal(next(found), np.maximum(some[0], some[-1]), strict=True)
        np.testing.assert_allclose(next(found), np.asarray(sum(some)), rtol=0, atol=1e-15, strict=True)


def test_arrays_may_be_laid_out_in_any_way():
    x, y = symbol((3, 4)), symbol((3, 4))
    f = plain([x, y], [x - y])
    x, y = np.random.default_rng(2).normal(size=(2, 3, 4))
    for first, second in [("row by row", "column by column"), ("every second", "backwards")]:
        [found] = f(LAYOUTS[first](x), LAYOUTS[second](y))
        np.testing.assert_array_equal(found, LAYOUTS[first](x) - LAYOUTS[second](y))
        assert found.flags.c_contiguous


def test_results_have_the_dtypes_of_pytensor():
    outputs, inputs, values = [], [], []
    for dtypes in [("float32", "float32"), ("float32", "float64"), ("int64", "float64"), ("int8", "bool")]:
        x, y = (symbol((3, 4), dtype) for dtype in dtypes)
        outputs += [x + y, x * y, pt.cast(x, "float32"), pt.eq(x, y), pt.switch(pt.lt(x, y), x, y)]
        inputs += [x, y]
        values += [np.random.default_rng(2).normal(scale=3, size=(3, 4)).astype(dtype) for dtype in dtypes]
    expected = pytensor.function(inputs, outputs, mode=Mode("py", None))(*values)
    for found, wanted in zip(plain(inputs, outputs)(*values), expected, strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.parametrize("lay_out", [LAYOUTS["row by row"], LAYOUTS["backwards"]])
def test_several_outputs_of_which_one_overwrites_an_input(lay_out):
    a, b = ps.float64(), ps.float64()
    composite = ps.Composite([a, b], [a + b, a * b, ps.lt(a, b)])
    x, y = symbol((3, 4)), symbol((1, 4))
    f = plain([x, y], Elemwise(composite, inplace_pattern={1: 0})(x, y))
    rng = np.random.default_rng(3)
    x, y = lay_out(rng.normal(size=(3, 4))), rng.normal(size=(1, 4))
    expected = x + y, x * y, x < y
    found = f(x, y)
    for out, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(x, expected[1])
    assert np.shares_memory(found[1], x)
    assert not np.shares_memory(found[0], x)


@pytest.mark.parametrize(
    "shapes",
    [[(3, 4), (2, 4)], [(3, 4), (3, 1)], [(1, 4), (3, 4)], [(3, 4), (3, 0)]],
    ids=str,
)
def test_arrays_of_other_lengths_are_refused(shapes):
    """So are those that only happen to have the length one."""
    x, y = pt.matrix(), pt.matrix()
    with pytest.raises(ValueError, match="Incompatible shapes"):
        plain([x, y], [x + y])(*map(np.ones, shapes))


def test_an_array_is_repeated_up_to_a_shape():
    rows, columns, x, row = pt.lscalar(), pt.lscalar(), pt.vector(), pt.row()
    outputs = [
        pt.alloc(2.5, rows, columns),
        pt.alloc(x, rows, columns),
        pt.alloc(row, rows, columns),
        pt.alloc(row, 2, 1, columns),
    ]
    f = plain([rows, columns, x, row], outputs)
    for n, k in [(2, 3), (0, 3), (2, 0), (1, 1)]:
        values = np.arange(1.0, k + 1)
        found = f(n, k, values, values[None])
        expected = np.full((n, k), 2.5), np.tile(values, (n, 1)), np.tile(values, (n, 1)), np.tile(values, (2, 1, 1))
        for out, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(out, wanted)
    values = np.ones(3)
    for bad in [(2, 4, values, values[None]), (2, 3, values[:1], values[None]), (-1, 3, values, values[None])]:
        with pytest.raises(ValueError, match=r"Incompatible shapes|negative"):
            f(*bad)


def test_elementwise_results_are_those_of_pytensor_bit_for_bit():
    x, y, z = pt.matrix(), pt.col(), pt.scalar()
    output = pt.exp(-((x - y) ** 2) / (2 * z)) / z + pt.log1p(pt.abs(x)) * pt.tanh(y)
    rng = np.random.default_rng(4)
    values = rng.normal(size=(57, 31)), rng.normal(size=(57, 1)), 0.7
    ours = pytensor.function([x, y, z], output, mode=with_our_kernels(compilation_mode("NUMBA")))
    theirs = pytensor.function([x, y, z], output, mode="NUMBA")
    assert isinstance(ours.maker.linker, KernelLinker)
    assert type(theirs.maker.linker) is NumbaLinker
    np.testing.assert_array_equal(ours(*values), theirs(*values))


@pytest.mark.parametrize("axis", [0, 1])
def test_arrays_in_any_layout_are_joined(axis):
    x, y, z = pt.matrix(), pt.matrix(), pt.row() if axis == 0 else pt.col()
    f = plain([x, y, z], [pt.join(axis, x, y, z)])
    rng = np.random.default_rng(6)
    shapes = [(3, 4), (2, 4), (1, 4)], [(0, 2), (2, 2), (1, 2)], [(3, 0), (1, 0), (1, 0)]
    for lengths in shapes:
        values = [rng.normal(size=shape if axis == 0 else shape[::-1]) for shape in lengths]
        for first, second in [("row by row", "column by column"), ("every second", "backwards")]:
            given = LAYOUTS[first](values[0]), LAYOUTS[second](values[1]), values[2]
            [found] = f(*given)
            np.testing.assert_array_equal(found, np.concatenate(given, axis), strict=True)
            assert found.flags.c_contiguous
    with pytest.raises(ValueError, match=r"Incompatible shapes|lengths|dimension|Input tensors"):
        f(np.ones((3, 3)), np.ones((2, 2)), np.ones((1, 3) if axis == 0 else (3, 1)))

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.rewriting.utils import rewrite_graph

from pymc_gibbsnn.networks.activations import (
    ACTIVATIONS,
    NotPiecewiseLinearError,
    PiecewiseLinear,
    read_piecewise_linear,
)

POINTS = np.random.default_rng(0).normal(size=200) * 4

FUNCTIONS = {
    "identity": lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "leaky_relu": lambda z: np.where(z > 0, z, 0.01 * z),
    "abs": np.abs,
    "sign": np.sign,
    "hard_tanh": lambda z: np.clip(z, -1, 1),
    "relu6": lambda z: np.clip(z, 0, 6),
}

WAYS_TO_WRITE = {
    "maximum": lambda z: pt.maximum(z, 0),
    "switch": lambda z: pt.switch(z > 0, z, 0.1 * z),
    "clip": lambda z: pt.clip(2 * z + 1, -3, 5) * 0.5,
    "abs": lambda z: 0.5 * (z + abs(z)),
    "sign": pt.sign,
    "mask": lambda z: z * (z >= 0),
    "nested": lambda z: pt.minimum(pt.maximum(z, -1), abs(z) / 2),
    "window": lambda z: pm.math.where((z > -1) & (z < 2), z, -1),
    "outside": lambda z: pt.switch(pt.or_(z < -1, z > 2), 3, 0),
    "not": lambda z: pt.switch(pt.invert(z > 1), z, 2 - z),
    "affine": lambda z: (3 - z) / 4,
    "jump": lambda z: pt.le(z, 1) * 2.0 - pt.lt(z, -1),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_table_is_the_function(name):
    table = ACTIVATIONS[name]
    np.testing.assert_allclose(table(POINTS), FUNCTIONS[name](POINTS), atol=1e-14)
    z = pt.vector("z", dtype="float64")
    np.testing.assert_allclose(table(z).eval({z: POINTS}), FUNCTIONS[name](POINTS), atol=1e-14)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_table_is_read_back(name):
    z = pt.vector("z", dtype="float64")
    expression = rewrite_graph(ACTIVATIONS[name](z), include=("canonicalize",), clone=False)
    assert read_piecewise_linear(expression, z) == ACTIVATIONS[name]


@pytest.mark.parametrize("write", WAYS_TO_WRITE.values(), ids=WAYS_TO_WRITE)
@pytest.mark.parametrize("canonical", [False, True])
def test_reading_an_expression(write, canonical):
    z = pt.vector("z", dtype="float64")
    expression = write(z)
    expected = expression.eval({z: POINTS})
    if canonical:
        expression = rewrite_graph(expression, include=("canonicalize",), clone=False)
    np.testing.assert_allclose(read_piecewise_linear(expression, z)(POINTS), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("write", "culprit"),
    [
        (pt.tanh, "Tanh"),
        (lambda z: z * z, "both vary"),
        (lambda z: z / (1 + abs(z)), "both vary"),
        (lambda z: z + np.arange(3.0), "shape"),
        (lambda z: z + pt.vector("other"), "other"),
        (lambda z: 2.0 * z.astype("int64"), "rounds"),
    ],
)
def test_what_is_not_piecewise_linear_is_named(write, culprit):
    z = pt.vector("z", dtype="float64")
    with pytest.raises(NotPiecewiseLinearError, match=culprit):
        read_piecewise_linear(write(z), z)


def test_neighbours_on_one_line_are_one_piece():
    table = PiecewiseLinear([-1, 0, 2], [1, 1, 1, 0], [0, 0, 0, 2])
    assert table == PiecewiseLinear([2], [1, 0], [0, 2])
    assert table != ACTIVATIONS["relu"]


def test_what_scales():
    assert [n for n, f in ACTIVATIONS.items() if f.is_homogeneous] == ["identity", "relu", "leaky_relu", "abs"]
    assert [n for n, f in ACTIVATIONS.items() if f.is_scale_free] == ["sign"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (([0], [1], [0, 0]), "k - 1 breakpoints"),
        (([0, 0], [1, 2, 3], [0, 0, 0]), "increase"),
        (([np.nan], [1, 2], [0, 0]), "finite"),
    ],
)
def test_bad_tables_are_refused(table, message):
    with pytest.raises(ValueError, match=message):
        PiecewiseLinear(*table)

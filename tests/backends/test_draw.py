"""How draws become parts of graphs."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.random.basic import normal
from pytensor.tensor.random.type import random_generator_type

from pymc_gibbsnn._compat import shape_inference
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.substitution import substitute
from pymc_gibbsnn.random.isotropic_normal import isotropic_normal
from tests.helpers import compile_draw


class Traced(Op):
    """A copy of a matrix, which notes when its shape is asked for."""

    __props__ = ()
    asked = 0

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    @shape_inference
    def infer_shape(self, shapes):
        Traced.asked += 1
        return shapes

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0]


def test_what_parameters_are_computed_from_is_not_looked_at():
    """PyTensor infers shapes from the whole sweep up to a draw, at each draw and whenever the sweep is copied."""
    rng, x, y = random_generator_type("rng"), pt.matrix("x"), pt.matrix("y")
    rng, z = draw(isotropic_normal, rng, Traced()(x), pt.constant(1.0))
    _, z = draw(normal, rng, Traced()(z), pt.constant(1.0))
    Traced.asked = 0
    substitute([z], {x: y})
    assert not Traced.asked


def test_what_a_size_is_computed_from_is_not_looked_at():
    """Nor what arrays are computed from that have the lengths of others, such as those that a loop fills."""
    rng, x, y = random_generator_type("rng"), pt.tensor("x", shape=(None, 1)), pt.tensor("y", shape=(None, 1))
    long = Traced()(2 * x)
    lengths = (3, long.shape[0] + 1, long.shape[1])
    filled = pt.full(lengths, 0.5), pt.empty(lengths)
    Traced.asked = 0
    next_rng, z = draw(normal, rng, 0.0, pt.exp(x[:1]), size=lengths)
    copies = substitute([next_rng, z, *filled], {x: y})
    assert not Traced.asked
    theirs = normal.make_node(rng, lengths, 0.0, pt.exp(x[:1])).outputs[1]
    assert Traced.asked
    assert theirs.type.shape == (3, None, 1)
    assert [v.type.shape for v in (z, *copies[1:])] == [theirs.type.shape] * 4
    drawn = compile_draw(lambda inner: substitute(copies, {rng: inner, y: pt.constant(np.zeros((4, 1)))}))()
    assert [found.shape for found in drawn] == [(3, 5, 1)] * 3


@pytest.mark.parametrize("size", [None, (4, 1), (2, 4, 1)])
def test_known_lengths_of_axes_stay_known(size):
    rng, mean = random_generator_type("rng"), pt.tensor("mean", shape=(None, 1))
    ours = draw(normal, rng, mean + 1, pt.exp(pt.vector("sd", shape=(1,))), size=size)
    theirs = normal.make_node(rng, size, mean + 1, pt.exp(pt.vector("sd", shape=(1,)))).outputs
    assert [v.type for v in ours] == [v.type for v in theirs]


def test_a_draw_takes_its_place_in_another_graph():
    rng, x = random_generator_type("rng"), pt.tensor("x", shape=(None, 1))
    next_rng, z = draw(normal, rng, 2 * x, pt.constant(np.ones(1)))
    new_rng, new_z = substitute([next_rng, z], {x: pt.constant(np.array([[3.0], [50.0]]))})
    assert new_z.type.shape == (2, 1)
    assert new_rng.owner is new_z.owner
    np.testing.assert_array_equal(
        compile_draw(lambda inner: substitute([new_rng, new_z], {rng: inner}), seed=1)(),
        np.random.default_rng(1).normal([[6.0], [100.0]], 1.0),
    )

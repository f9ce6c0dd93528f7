"""What is compiled once serves all graphs of one form, and no others."""

import sys
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.type import random_generator_type

import pymc_gibbsnn as pmg
from pymc_gibbsnn.drivers import compiled as module
from pymc_gibbsnn.drivers.compiled import compiled
from pymc_gibbsnn.networks.forms import AS_WRITTEN
from tests.helpers import LEAN, PYTHON

rng = np.random.default_rng(0)
RNG, X = random_generator_type("rng"), pt.vector("x")
A, B = rng.normal(size=(2, 3))


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    """What is compiled in a test, of which there is nothing before."""
    monkeypatch.setattr(module, "_functions", OrderedDict())
    return module._functions


def call(graph, x=A):
    function, _ = compiled(RNG, [X], [graph], AS_WRITTEN, "as written")
    return function(np.random.default_rng(1), x)[0]


def test_values_of_shared_variables_are_those_at_the_call(kept):
    one, two = pytensor.shared(A), pytensor.shared(B)
    np.testing.assert_array_equal(call(X * one), A * A)
    np.testing.assert_array_equal(call(X * two), A * B)
    function, shared = compiled(RNG, [X], [X * two], AS_WRITTEN, "as written")
    two.set_value(B + 1)
    np.testing.assert_array_equal(function(None, A)[0], A * (B + 1))
    assert shared == [two]
    assert len(kept) == 1


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (lambda a, b: X * 2, lambda a, b: X * 3),
        (lambda a, b: X + a, lambda a, b: X - a),
        (lambda a, b: X + a * a, lambda a, b: X + a * b),
        (lambda a, b: a - b * X, lambda a, b: a * X - b),
        (lambda a, b: X + a, lambda a, b: X + a.sum()),
        (lambda a, b: pt.exp(X), lambda a, b: X),
    ],
)
def test_graphs_of_other_forms_are_compiled_anew(one, two, kept):
    for graph in (one, two):
        found = call(graph(pytensor.shared(A), pytensor.shared(B)))
        expected = graph(pt.constant(A), pt.constant(B)).eval({X: A})
        np.testing.assert_allclose(found, expected)
    assert len(kept) == 2


def test_zeros_of_either_sign_are_not_the_same(kept):
    """Though they compare equal."""
    for zero in (0.0, -0.0):
        found = call(pt.switch(X > 0, pt.constant(np.float64(zero)), X), np.ones(3))
        np.testing.assert_array_equal(np.signbit(found), np.signbit(zero))


def test_other_types_modes_and_options_are_other_functions(kept):
    wide = pytensor.shared(np.ones((2, 3)), shape=(None, 3))
    loose = pytensor.shared(np.ones((2, 3)))
    narrow = pytensor.shared(np.ones((2, 1)), shape=(None, 1))
    for shared in (wide, loose, narrow):
        assert call((X + shared).sum(axis=0)).shape == (3,)
    compiled(RNG, [X], [(X + wide).sum(axis=0)], AS_WRITTEN, "another")
    assert len(kept) == 4
    call(X + wide)
    made = len(kept)
    compiled(RNG, [X], [X - wide], AS_WRITTEN, "as written", name="f")
    assert len(kept) == made


def test_those_that_were_used_last_are_kept(monkeypatch, kept):
    monkeypatch.setattr(module, "MOST", 2)
    call(X + 1)
    [first] = kept
    for number in (2, 1, 3, 1):
        call(X + number)
    assert len(kept) == 2
    assert first in kept


def test_threads_do_not_disturb_each_other(kept):
    """Each compiles for itself; and where two have one function, each gets its own result."""
    graph = pt.exp(X * pytensor.shared(A)).sum()
    function, _ = compiled(RNG, [X], [graph], AS_WRITTEN, "as written")
    interval = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda i: [function(None, np.full(3, i / 9))[0] for _ in range(2000)], range(2)))
            pool.submit(call, graph).result()
    finally:
        sys.setswitchinterval(interval)
    for i in range(2):
        np.testing.assert_allclose(found[i], np.exp(i / 9 * A).sum())
    assert len(kept) == 2


def chain(step, model, draws=4):
    point, found = model.initial_point(), []
    for _ in range(draws):
        point, [stats] = step.step(point)
        found.append(np.r_[point["W1"].ravel(), stats["lp"]])
    return np.array(found)


def network(rows, inputs, units, noise, seed, **kwargs):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, inputs))
    return pmg.mlp(x, x[:, 0] + generator.normal(size=rows), units, noise=noise, **kwargs)


def test_a_second_model_of_one_architecture_makes_the_draws_it_would_make_alone(kept):
    models = [network(8, 2, 3, 0.3, 1), network(11, 4, 2, 0.7, 2)]
    alone = []
    for model in models:
        kept.clear()
        alone.append(chain(pmg.GibbsNN(model=model, compile_kwargs=PYTHON, rng=1, **LEAN), model))
    made = len(kept)
    steps = [pmg.GibbsNN(model=model, compile_kwargs=PYTHON, rng=1, **LEAN) for model in models]
    for step, model, expected in zip(steps, models, alone, strict=True):
        np.testing.assert_array_equal(chain(step, model), expected)
    assert len(kept) == made
    for step in steps:  # in turn, draw by draw
        step.set_rng(1)
    points = [model.initial_point() for model in models]
    for i in range(4):
        for k in (0, 1):
            points[k], [stats] = steps[k].step(points[k])
            np.testing.assert_array_equal(np.r_[points[k]["W1"].ravel(), stats["lp"]], alone[k][i])


def test_new_data_are_seen_by_a_function_that_another_model_made():
    first, second = network(8, 2, 3, 0.3, 1), network(8, 2, 3, 0.3, 2)
    chain(pmg.GibbsNN(model=first, compile_kwargs=PYTHON, rng=1, **LEAN), first)
    step = pmg.GibbsNN(model=second, compile_kwargs=PYTHON, rng=1, **LEAN)
    with second:
        pm.set_data({name: first[name].get_value() for name in ("X", "y_data")})
    step.set_rng(1)
    again = pmg.GibbsNN(model=first, compile_kwargs=PYTHON, rng=1, **LEAN)
    point = first.initial_point()
    np.testing.assert_array_equal(step.step(point)[0]["W1"], again.step(point)[0]["W1"])

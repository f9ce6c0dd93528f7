"""One program serves all models of an architecture, whatever their widths, rows, noises, priors and data."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.io import In
from pytensor.raise_op import Assert

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from tests.backends.fast_numba.test_linker import compiled
from tests.helpers import slow

RNG = np.random.default_rng(0)
PLAIN = {"interweave": False, "scale_move": False}
SMALL = {"n": 20, "d": 3, "units": 4, "outputs": 3, "noise": 0.1}
LARGE = {"n": 31, "d": 5, "units": 7, "outputs": 6, "noise": 1.0}


def data(n, d, *outputs):
    return RNG.normal(size=(n, d)), RNG.normal(size=(n, *outputs))


def labels(n, classes):
    return np.arange(n) % classes


def noisy(depth=1, prior=None, **kwargs):
    return lambda n, d, units, outputs, noise: pmg.mlp(*data(n, d), [units] * depth, noise=noise, prior=prior, **kwargs)


def convolutional(n, d, units, outputs, noise):
    """Other numbers of images and noises share a program, other images and filters do not."""
    images = RNG.normal(size=(n, 6, 6))
    return pmg.cnn(images, images[:, 0, 0], 2, pool=2, noise=noise, prior=None)


def several_outputs(n, d, units, outputs, noise):
    return pmg.mlp(*data(n, d, outputs), [units, units + 2], noise=noise, prior=None)


def probit(n, d, units, outputs, noise):
    return pmg.mlp(data(n, d)[0], labels(n, outputs), units, noise=noise, prior="learned", likelihood="probit")


def binary(n, d, units, outputs, noise):
    return pmg.mlp(data(n, d)[0], labels(n, 2), units, noise=noise, likelihood="probit", activation="tanh", prior=None)


def written_by_hand(n, d, units, outputs, noise):
    """With data and scales as plain numbers, a prior for each input, and factors as networks in NTK form have."""
    X, y = data(n, d, 1)
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0, RNG.uniform(1, 2, size=d), shape=(units, d))
        b1 = pm.Normal("b1", 0, noise * 3, shape=units)
        Z2 = pm.Normal("Z2", (X @ W1.T) / d**0.5 + b1, noise)
        A2 = pm.Normal("A2", pt.maximum(Z2, 0), noise * 2)
        W2 = pm.Normal("W2", 0, noise * 4, shape=(1, units))
        pm.Normal("y", A2 @ W2.T / units**0.5, noise * 5, observed=y)
    return model


def learned_scales(n, d, units, outputs, noise):
    X, y = data(n, d)
    with pm.Model() as model:
        v, tau = pm.InverseGamma("v", 2 + noise, noise), pm.Gamma("tau", 1 + noise, 2)
        W1, b1 = pm.Normal("W1", 0, tau**-0.5, shape=(units, d)), pm.Normal("b1", 0, noise * 3, shape=units)
        A2 = pm.Normal("A2", pt.maximum(pm.Normal("Z2", X @ W1.T / d**0.5 + b1, pt.sqrt(v)), 0), noise)
        W2 = pm.Normal("W2", 0, noise * 4, shape=units)
        pm.Normal("y", A2 @ W2, pt.sqrt(v), observed=y)
    return model


def priors_of_units(n, d, units, outputs, noise):
    X, y = data(n, d, outputs)
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0, RNG.uniform(1, 2, size=(units, 1)), shape=(units, d))
        b1 = pm.Normal("b1", 0, RNG.uniform(1, 2, size=units), shape=units)
        A2 = pm.Normal("A2", pt.maximum(pm.Normal("Z2", X @ W1.T + b1, noise), 0), noise)
        W2 = pm.Normal("W2", 0, RNG.uniform(1, 2, size=(outputs, units)), shape=(outputs, units))
        pm.Normal("y", A2 @ W2.T + pm.Normal("b2", shape=outputs), noise, observed=y)
    return model


def wide(n, d, units, outputs, noise):
    scales = {"weight_scale": noise * 2, "bias_scale": noise * 3, "readout_scale": noise * 5}
    return pmg.wide_mlp(*data(n, d, outputs), units, noise=noise, **scales)


def wider_than_rows(n, d, units, outputs, noise):
    return pmg.wide_mlp(*data(n, d, outputs), 10 * units, 2, noise=noise)


def classical(n, d, units, outputs, noise):
    return pmg.classical_mlp(data(n, d)[0], labels(n, outputs), units, prior_variance=noise)


def effects_by_hand(n, d, units, outputs, noise):
    """A classical network with shapes, data and scales as plain numbers, and a noise that has a prior."""
    X, y = data(n, d)
    with pm.Model() as model:
        W1 = pm.Normal("W1", noise, RNG.uniform(1, 2, size=d), shape=(units, d))
        W2 = pm.MvNormal("W2", np.zeros(units), np.diag(RNG.uniform(1, 2, size=units)))
        s = pm.HalfNormal("s", noise)
        pm.Normal("y", pt.tanh(X @ W1.T / d**0.5) @ W2 * (noise + 1), s, observed=y)
    return model


def keys(model, step):
    """The keys under which Numba's compiled code of a step is kept."""
    with model:
        found = step()
    graph, mode = found.transition.graph(), with_our_kernels(found._mode)
    inputs = [In(graph.rng, mutable=True), *graph.inputs[1:]]
    functions = {
        name: pytensor.function(inputs, stage.outputs, mode=mode, on_unused_input="ignore")
        for name, stage in graph.stages.items()
    }
    for function in functions.values():  # asserts of shapes vary their order from process to process
        assert not any(isinstance(node.op, Assert) for node in function.maker.fgraph.apply_nodes)
    return {name: f.maker.linker.fgraph_convert(f.maker.fgraph)[1] for name, f in functions.items()}


@pytest.mark.parametrize(
    ("build", "step"),
    [
        pytest.param(noisy(), pmg.GibbsNN, id="default"),
        slow(noisy(), lambda: pmg.GibbsNN(collapse=False, interweave=False), id="algorithm 1"),
        slow(noisy(activation="tanh"), pmg.GibbsNN, id="langevin"),
        slow(several_outputs, pmg.GibbsNN, id="deep"),
        slow(noisy(depth=2), lambda: pmg.GibbsNN(interweave="langevin"), id="deep langevin"),
        slow(
            noisy(depth=3),
            lambda: pmg.GibbsNN(schedule="layer-parallel", collapse=False, interweave=False),
            id="layer-parallel",
        ),
        slow(convolutional, pmg.GibbsNN, id="convolutional"),
        slow(probit, lambda: pmg.GibbsNN(interweave=False), id="probit"),
        slow(binary, pmg.GibbsNN, id="probit langevin"),
        slow(written_by_hand, pmg.GibbsNN, id="by hand"),
        slow(learned_scales, lambda: pmg.GibbsNN(**PLAIN), id="learned scales"),
        slow(priors_of_units, lambda: pmg.GibbsNN(**PLAIN), id="priors of units"),
        slow(wide, lambda: pmg.PCN(reparametrise=True), id="pCN"),
        slow(wider_than_rows, lambda: pmg.PCN(reparametrise=True), id="pCN, more units than rows"),
        slow(effects_by_hand, pmg.MALA, id="MALA by hand"),
        pytest.param(classical, pmg.FNBG, id="FNBG"),
        slow(effects_by_hand, lambda: pmg.FNBG(blocks="layer"), id="FNBG by hand"),
    ],
)
def test_models_of_one_architecture_share_a_program(build, step):
    first, second = (keys(build(**numbers), step) for numbers in (SMALL, LARGE))
    assert None not in first.values()
    assert first == second


@pytest.mark.slow
def test_a_second_hidden_layer_compiles_no_move_of_weights_again():
    def draw(units):
        with pmg.mlp(*data(20, 2), units, noise=0.1, prior=None) as model:
            pmg.GibbsNN().step(model.initial_point())

    draw(3)
    with compiled() as names:
        draw([3, 3])
    assert not {"passes", "scales", "sample"} & {*names}

"""Sweeps over networks with layers of other kinds, written here."""

from dataclasses import fields, replace

import numpy as np
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.moves.centred_scale import scale_conditional
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.layers.dense import Dense
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.samplers.gibbs import gibbs
from tests.helpers import random_point, value

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(7, 3)), RNG.normal(size=7)


class Paired(Dense):
    """A dense layer of which two columns of the output are one unit, as the pixels of a channel are."""

    places = 2

    @property
    def fan_in(self):
        return 2 * super().fan_in

    def by_unit(self, x):
        return super().by_unit(x).reshape((-1, 2)).sum(axis=1)

    def spread(self, c):
        return pt.repeat(c, 2)

    def incoming(self, w):
        return super().incoming(w).reshape((-1, 2)).sum(axis=1)

    def scaled(self, w, c):
        return super().scaled(w, self.spread(c))


def paired(model):
    """The network of a model, the first layer of which has two columns a unit."""
    network = read_network(model)
    first, *others = network.layers
    parts = {f.name: getattr(first.operator, f.name) for f in fields(first.operator)}
    return replace(network, layers=(replace(first, operator=Paired(**parts)), *others))


@pytest.fixture
def model():
    return pmg.mlp(X, Y, 4, noise=0.4, prior=None)


def test_scales_of_units_of_several_columns(model):
    """Along the orbit of the scale of a unit the log density changes as the conditional of the scale says."""
    point, c = random_point(model, 2), np.array([1.7, 0.6])
    values = {v: pt.constant(point[v.name]) for v in model.value_vars}
    site = NetworkState.begin(paired(model).at, values, pt.constant(0.0)).site(0)
    exponent, rising, falling = map(value, scale_conditional(site))
    assert exponent == 2 * (3 + 1) + 2 * 2 * len(X) - 2  # numbers that c multiplies less those that it divides
    columns = np.repeat(c, 2)
    scaled = {name: point[name] * columns for name in ("b1", "Z2", "A2")}
    scaled |= {"W1": point["W1"] * columns[:, None], "W2": point["W2"] / columns}
    logp = model.compile_logp(mode="AS_WRITTEN")
    expected = -0.5 * (rising * (c**2 - 1) + falling * (c**-2 - 1)).sum()
    np.testing.assert_allclose(logp(point | scaled) - logp(point), expected, rtol=1e-9)


def test_moves_that_take_a_column_for_a_unit_are_left_out(model):
    class Step(pmg.GibbsNN):
        @staticmethod
        def build_transition(model, vars, **kwargs):
            return gibbs([paired(model)], **kwargs)

    step = Step(model=model, rng=1, compile_kwargs={"mode": "AS_WRITTEN"})
    assert not {"acceptance_W1", "log_step_W1", "unit_gram_W1"} & {*step.transition.stats, *step.transition.carry}
    point = random_point(model, 1)
    for _ in range(3):
        point, [stats] = step.step(point)
    np.testing.assert_allclose(stats["lp"], model.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-9)


@pytest.mark.parametrize("interweave", ["pieces", False])
def test_post_activations_that_were_integrated_out_cannot_be_read(interweave, monkeypatch):
    """A sweep that does not draw them anew before a move reads them is no program."""
    monkeypatch.setattr("pymc_gibbsnn.samplers.gibbs.postactivations", lambda rng, site: (rng, site))
    step = pmg.GibbsNN(model=pmg.mlp(X, Y, 3), interweave=interweave, compile_kwargs={"mode": "AS_WRITTEN"})
    with pytest.raises(NotImplementedError, match="Cannot convert None to a tensor"):
        step.step(random_point(step.model, 0))

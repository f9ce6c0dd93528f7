"""A vector of means and a column of targets make a matrix, and no posterior that anyone has asked for."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_gibbsnn as pmg
from pymc_gibbsnn.prediction.observed_shapes import check_observed_shapes
from tests.helpers import in_python

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 2)), RNG.normal(size=30)
REFUSED = r"The data of 'y' have the shape \(30, 1\), but a parameter of it.*has \(30,\): together they make \(30, 30\)"


def classical(y, minibatch=False):
    with pm.Model() as model:
        inputs, y = pm.Minibatch(X, y, batch_size=30) if minibatch else (pm.Data("X", X), y)
        mean = pm.math.tanh(inputs @ pm.Normal("W1", shape=(2, 3))) @ pm.Normal("W2", shape=3)
        pm.Normal("y", mean, 0.5, observed=y, total_size=30 if minibatch else None)
    return model


def noisy(y):
    with pm.Model() as model:
        Z2 = pm.Normal("Z2", pm.Data("X", X) @ pm.Normal("W1", shape=(2, 3)), 0.1)
        pm.Normal("y", pm.Normal("A2", pm.math.tanh(Z2), 0.1) @ pm.Normal("W2", shape=3), 0.5, observed=y)
    return model


EXACT = [pmg.PCN, pmg.PCNL, pmg.MALA, pmg.FNBG, lambda model: pmg.PCN(model=model, reparametrise=True)]
STOCHASTIC = [pmg.ISGD, pmg.SGLD, pmg.SGHMC, pmg.ConstantSGD]


@pytest.mark.parametrize("step", EXACT)
def test_exact_samplers_refuse_a_column_of_targets_with_a_vector_of_means(step):
    with pytest.raises(ValueError, match=REFUSED):
        step(model=classical(Y[:, None]))


@pytest.mark.parametrize("step", STOCHASTIC)
def test_stochastic_samplers_refuse_it(step):
    with pytest.raises(ValueError, match=REFUSED):
        step(model=classical(Y[:, None], minibatch=True))


@pytest.mark.parametrize("read", [pmg.summary, pmg.function_space])
def test_gibbs_and_what_reads_a_posterior_refuse_it(read):
    with pytest.raises(ValueError, match=REFUSED):
        pmg.GibbsNN(model=noisy(Y[:, None]))
    weights = {"W1": (2, 3), "W2": (3,)}
    draws = {
        name: (("chain", "draw", *(f"{name}_{i}" for i in range(len(shape)))), RNG.normal(size=(2, 4, *shape)))
        for name, shape in weights.items()
    }
    with pytest.raises(ValueError, match=REFUSED), in_python():
        read({"posterior": xr.Dataset(draws)}, classical(Y[:, None]))


@pytest.mark.parametrize("model", [classical(Y), classical(Y, minibatch=True), noisy(Y)])
def test_targets_of_the_same_shape_are_taken(model):
    check_observed_shapes(model)


@pytest.mark.filterwarnings("ignore:Data in")
def test_what_broadcasts_to_the_data_is_taken():
    with pm.Model() as model:
        pm.Normal("a", pm.Normal("m"), 1, observed=Y)
        pm.Normal("b", pm.Normal("k", shape=2), pm.HalfNormal("s", shape=(30, 1)), observed=X)
        pm.MvNormal("c", pm.Normal("v", shape=2), np.eye(2), observed=X)
        pm.Categorical("d", logit_p=pm.Normal("l", shape=(30, 3)), observed=np.zeros(30, int))
        pm.Normal("e", pm.Normal("g"), 1, observed=np.where(Y > 0, Y, np.nan))
        pm.Censored("f", pm.Normal.dist(pm.Normal("h"), 1), lower=None, upper=9.0, observed=Y)
    check_observed_shapes(model)


def test_the_scale_may_be_the_one_that_broadcasts():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("m"), np.ones(30), observed=Y[:, None])
    with pytest.raises(ValueError, match=REFUSED):
        check_observed_shapes(model)

"""Networks as parts of larger models: offsets, and several networks in one model."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.networks.reader import read_networks
from tests.helpers import check_same_distribution, in_python, slow_but
from tests.samplers.test_gibbs import NUMBA, check_geweke

N, D = 6, 2
rng = np.random.default_rng(0)
X, U = rng.normal(size=(N, D)), rng.normal(size=(N, 2))
Y = rng.normal(size=N)
GROUPS = np.arange(N) % 3
FAST = {"compile_kwargs": {"mode": "AS_WRITTEN"}}


def hidden(number="", offset=0.0, width=2):
    """A noisy hidden layer and its product with the weights above it."""
    W1 = pm.Normal(f"W1{number}", 0, 1, shape=(width, D))
    Z2 = pm.Normal(f"Z2{number}", X @ W1.T + offset, 0.8)
    A2 = pm.Normal(f"A2{number}", pt.maximum(Z2, 0), 0.6)
    return A2 @ pm.Normal(f"W2{number}", 0, 1, shape=width)


def intercepts():
    effect = pm.Normal("effect", 1, 1, shape=3)
    pm.Normal("y", hidden() + pm.Normal("b2", 0, 1) + effect[GROUPS], 0.7, observed=pm.Data("y_data", Y))


def known_offsets():
    """In the hidden layer, where the scale move does not apply, and in the last."""
    pm.Normal("y", hidden(offset=U) + pm.Normal("b2", 0, 1) + 1.5 + U[:, 0], 0.7, observed=pm.Data("y_data", Y))


def skip_connection():
    v = pm.Normal("v", 0, 1, shape=2)
    pm.Normal("y", hidden() + U @ v + pm.Normal("b2", 0, 1), 0.7, observed=pm.Data("y_data", Y))


def two_networks():
    sd = pt.sqrt(pm.InverseGamma("delta", 3, 2))
    pm.Normal("y", hidden("a") + hidden("b", U[:, :1], 3) + pm.Normal("b2", 0, 1), sd, observed=pm.Data("y_data", Y))


def two_outputs():
    """Two networks with data of their own."""
    pm.Normal("u", hidden("a"), 0.7, observed=Y)
    pm.Normal("y", hidden("b") + pm.Normal("b2", 0, 1), 0.7, observed=pm.Data("y_data", Y))


def two_networks_of_a_label():
    z = pm.Normal("Z3", hidden("a") + hidden("b"), 0.7)
    pmg.SignLabel("y", z, observed=pm.Data("y_data", (Y > 0).astype("int64")))


MODELS = [intercepts, known_offsets, skip_connection, two_networks, two_outputs, two_networks_of_a_label]


@pytest.mark.parametrize("build", slow_but({skip_connection, two_networks_of_a_label}, MODELS))
def test_lp_is_the_log_density_of_the_model(build):
    with pm.Model() as model:
        build()
    step = pmg.GibbsNN(model=model, rng=1, **FAST)
    point = model.initial_point()
    for _ in range(2):
        point, [stats] = step.step(point)
    logp = model.compile_logp(vars=[*step_rvs(model, step), *model.observed_RVs], mode="AS_WRITTEN")
    np.testing.assert_allclose(stats["lp"], logp(point), rtol=1e-8)


def step_rvs(model, step):
    return [model.values_to_rvs[v] for v in step.vars]


@pytest.mark.slow
@pytest.mark.parametrize("build", [skip_connection, known_offsets, two_networks, two_networks_of_a_label])
def test_geweke(build):
    with pm.Model() as model:
        build()
    slow_to_mix = {two_networks_of_a_label: 20_000, known_offsets: 12_000}
    check_geweke(model, slow_to_mix.get(build, 6000), **NUMBA)


def test_the_first_network_takes_the_bias():
    with pm.Model() as model:
        two_networks()
    first, second = read_networks(model)
    assert first.layers[-1].operator.bias.name == "b2"
    assert not second.layers[-1].operator.has_bias
    of_second = [rv for rv in model.free_RVs if rv.name.endswith("b") or rv.name == "b2"]
    [alone] = read_networks(model, of_second)
    assert alone.layers[-1].operator.bias.name == "b2"
    assert not alone.variances


@pytest.mark.slow
def test_a_network_in_a_larger_model_against_nuts_alone():
    with pm.Model() as model:
        intercepts()
        nuts = pm.sample(
            4000, tune=1000, chains=2, cores=2, nuts={"target_accept": 0.95}, progressbar=False, random_seed=1
        )
        steps = [pmg.GibbsNN(**FAST), pm.NUTS([model["effect"]])]
        ours = pm.sample(6000, tune=500, chains=2, cores=2, step=steps, progressbar=False, random_seed=2)
    series = []
    for idata in (ours, nuts):
        effect, bias = (idata["posterior"][name].values for name in ("effect", "b2"))
        series.append({"effect 0": effect[..., 0], "effect 2": effect[..., 2], "b2": bias.squeeze()})
    check_same_distribution(*series)


@in_python()
def test_pm_sample_gives_what_is_left_to_other_steps():
    with pm.Model():
        intercepts()
        idata = pm.sample(
            20, tune=20, chains=1, step=pmg.GibbsNN(**FAST), progressbar=False, random_seed=1,
            compute_convergence_checks=False,
        )  # fmt: skip
    assert np.ptp(idata["posterior"]["effect"].values) > 0


def test_an_offset_of_the_block_itself_is_refused():
    with pm.Model() as model:
        w = pm.Normal("w", 0, 1, shape=D)
        pm.Normal("y", X @ w + w.sum(), 1, observed=Y)
    with pytest.raises(NetworkError, match="'w' enters the mean of 'y' twice"):
        read_networks(model)

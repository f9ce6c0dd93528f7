"""Annealing: more noise while a chain tunes."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.starts.annealing import annealed, choose_highest_variance
from tests.helpers import LEAN, PYTHON, pm_sample, slow, value

X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.maximum(X[:, 0], 0) + 0.1 * np.random.default_rng(1).normal(size=8)


@pytest.fixture
def model():
    return pmg.mlp(X, Y, 3, noise=0.3, prior=None)


def test_noise_falls_to_its_own_value(model):
    network = read_network(model)
    for share in (1.0, 0.5, 0.0):
        raised = annealed(network, pt.constant(4.0), pt.constant(share))
        for part, now in zip(
            [*network.layers, *network.activations], [*raised.layers, *raised.activations], strict=True
        ):
            np.testing.assert_allclose(value(now.noise), max(value(part.noise), 4.0 * share**6))
    same = annealed(network, pt.constant(0.01), pt.constant(1.0))
    assert value(same.layers[0].noise) == value(network.layers[0].noise)


@pytest.mark.parametrize("cores", [slow(1), 2])
def test_the_share_of_tuning_to_come_reaches_the_sweep(model, cores):
    """The mean squared noise in units of the annealed variance stays near 1 only if both fall together."""
    with model:
        step = pmg.GibbsNN(anneal=1e4, compile_kwargs=PYTHON, **LEAN)
    idata = pm_sample(model, draws=30, step=step, tune=30, cores=cores, discard_tuned_samples=False)
    warmup, after = (idata[group]["noise_Z2"].values for group in ("warmup_sample_stats", "sample_stats"))
    assert warmup.shape == (2, 30)
    for ratios in (warmup[:, 10:], after):
        assert 0.5 < np.median(ratios) < 2
    posterior, tuning = idata["posterior"], idata["warmup_posterior"]
    residual = tuning["Z2"].values - (X @ np.swapaxes(tuning["W1"].values, -1, -2) + tuning["b1"].values[..., None, :])
    found = np.log((residual**2).mean((0, 2, 3)))
    expected = np.log(np.maximum(0.09, 1e4 * (1 - np.arange(30) / 30) ** 6))
    np.testing.assert_allclose(found[3:], expected[3:], atol=0.8)
    residual = posterior["Z2"].values - (
        X @ np.swapaxes(posterior["W1"].values, -1, -2) + posterior["b1"].values[..., None, :]
    )
    np.testing.assert_allclose((residual**2).mean(), 0.09, rtol=0.3)


# By default, for networks that cannot be fitted

IMAGES = np.random.default_rng(2).normal(size=(8, 4, 4))


@pytest.fixture(scope="module")
def images():
    """A network that is not fitted, because one of its variances is learned."""
    noise = [0.1, 0.1, 0.1, "learned"]
    return pmg.cnn(IMAGES, 2 * Y, 2, pool=2, noise=noise, prior=None, likelihood="normal")


@pytest.fixture(scope="module")
def steps(images):
    """A step that anneals and one that does not, compiled once for the tests below."""
    return [pmg.GibbsNN(model=images, anneal=anneal, compile_kwargs=PYTHON, **LEAN) for anneal in ("auto", None)]


def test_what_is_annealed(model, images):
    def entries(model):
        return [name for name in pmg.GibbsNN(model=model).transition.carry if name.startswith("hottest")]

    assert entries(images) == ["hottest_W1"]
    large = np.zeros((12, 400)), np.zeros(12), 40
    assert entries(pmg.mlp(*large, likelihood="student", noise=0.1, prior=None)) == ["hottest_W1"]
    assert entries(pmg.mlp(*large, noise=0.1, prior=None)) == ["hottest_W1"]
    assert entries(pmg.mlp(X, Y, 3, likelihood="student", noise=0.1, prior=None)) == []
    assert entries(pmg.mlp(X, Y, 3, noise="learned", prior=None)) == []
    assert entries(model) == []


def test_networks_of_the_same_data_are_annealed_apart():
    with pm.Model() as model:
        mean = 0
        for name, inputs in (("U", X), ("V", 10 * X)):
            weights = pm.Normal(f"{name}1", 0, 1, shape=(3, 2)), pm.Normal(f"{name}2", 0, 1, shape=3)
            hidden = pm.Normal(f"{name}A", pt.tanh(pm.Normal(f"{name}Z", inputs @ weights[0].T, 0.1)), 0.1)
            mean = mean + hidden @ weights[1]
        pm.Normal("y", mean, 0.1, observed=Y)
        transition = pmg.GibbsNN().transition
    _, carry = transition.find(model.initial_point(), np.random.default_rng(0))
    np.testing.assert_allclose([carry["hottest_U1"], carry["hottest_V1"]], [(X**2).mean(), 100 * (X**2).mean()])


def test_the_variance_from_which_noise_falls(images):
    network, zero = read_network(images), images.initial_point()
    expected = max((IMAGES**2).mean(), (4 * Y**2).mean())
    np.testing.assert_allclose(choose_highest_variance(network, zero), expected)
    assert choose_highest_variance(network, zero | {"b2": np.ones_like(zero["b2"])}) == 0
    large = pmg.cnn(IMAGES, 1e200 * Y, 2, pool=2, noise=0.1, prior=None)
    assert choose_highest_variance(read_network(large), large.initial_point()) == 0
    labels = pmg.cnn(IMAGES, (Y > 0).astype(int), 2, pool=2, noise=0.1, likelihood="probit", prior=None)
    np.testing.assert_allclose(
        choose_highest_variance(read_network(labels), labels.initial_point()), (IMAGES**2).mean()
    )


def chain(step, point, tune, draws):
    """Return the mean squared noise of Z2 in units of its variance in the model, draw by draw."""
    step.setup_chain(np.random.default_rng(1), tune=tune, draws=draws)
    found = []
    for i in range(draws):
        if i == tune:
            step.stop_tuning()
        point, _ = step.step(point)
        windows = np.lib.stride_tricks.sliding_window_view(IMAGES, (3, 3), axis=(1, 2))
        mean = np.einsum("nhvij,uij->nuhv", windows, point["W1"][:, 0]) + point["b1"][:, None, None]
        found.append(((point["Z2"] - mean) ** 2).mean() / 0.01)
    return np.array(found)


def test_chains_from_zero_are_annealed_while_they_tune(steps, images):
    auto, _ = steps
    found = chain(auto, images.initial_point(), 20, 30)
    r = choose_highest_variance(read_network(images), images.initial_point())
    expected = np.maximum(1, 100 * r * (1 - np.arange(20) / 20) ** 6)
    np.testing.assert_allclose(np.log(found[:20]), np.log(expected), atol=1)
    assert 0.5 < found[20:].mean() < 1.7
    assert auto.carry["hottest_W1"] == 0


@pytest.mark.parametrize(("start", "tune"), [("zero", 0), ("prior", 5)])
def test_other_chains_are_not_annealed(steps, images, start, tune):
    auto, plain = steps
    point = images.initial_point() | pmg.initial_values(images, start, random_seed=1)
    found = chain(auto, point, tune, 5)
    assert found.max() < 10
    if not tune:
        assert [*found] == [*chain(plain, point, tune, 5)]


@pytest.mark.slow
def test_annealing_in_jax(monkeypatch):
    """Of two chains, the one that starts at zero is annealed, and only while it tunes."""
    monkeypatch.setattr("pymc_gibbsnn.samplers.gibbs.can_be_fitted", lambda network: False)
    seen, images = [], pmg.cnn(IMAGES, 2 * Y, 2, pool=2, noise=0.1, prior=None)
    with images:
        starts = [{}, pmg.initial_values(images, "prior", random_seed=1)]
        pmg.sample(
            10, step=pmg.GibbsNN(**LEAN), tune=10, chains=2, initvals=starts, random_seed=1, progressbar=False,
            var_names=["W1"], callback=lambda trace, draw: seen.append((draw.chain, draw.tuning, draw.stats[0]["lp"])),
        )  # fmt: skip
    lp = {key: [x for *k, x in seen if tuple(k) == key] for key in ((0, True), (1, True), (0, False))}
    assert lp[0, True][0] < lp[1, True][0] - 100  # that of a noise so large
    assert lp[0, False][0] > lp[0, True][0] + 100


@pytest.mark.parametrize("anneal", [0, -1.0, np.nan, np.inf])
def test_an_impossible_start_of_annealing_is_refused(model, anneal):
    with pytest.raises(ValueError, match="anneal must be a positive, finite number"):
        pmg.GibbsNN(model=model, anneal=anneal)

"""Noise that is hotter while a chain tunes."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.samplers.heat import FALLS, Heat, heated
from tests.helpers import PYTHON, pm_sample, pmg_sample, value

X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.maximum(X[:, 0], 0) + 0.1 * np.random.default_rng(1).normal(size=8)


@pytest.fixture
def model():
    return pmg.mlp(X, Y, 3, noise=0.3)


def test_noise_falls_to_its_own_value(model):
    network = read_network(model)
    for share in (1.0, 0.5, 0.0):
        hot = heated(network, pt.constant(4.0), pt.constant(share))
        for part, now in zip([*network.layers, *network.activations], [*hot.layers, *hot.activations], strict=True):
            np.testing.assert_allclose(value(now.noise), max(value(part.noise), 4.0 * share**6))
    cold = heated(network, pt.constant(0.01), pt.constant(1.0))
    assert value(cold.layers[0].noise) == value(network.layers[0].noise)


@pytest.mark.parametrize("cores", [1, 2])
def test_the_share_of_tuning_to_come_reaches_the_sweep(model, cores):
    """The mean squared noise in units of the hotter variance stays near 1 only if both fall together."""
    with model:
        step = pmg.GibbsNN(anneal=1e4, compile_kwargs=PYTHON)
    idata = pm_sample(model, draws=30, step=step, tune=30, cores=cores, discard_tuned_samples=False)
    warmup, after = (idata[group]["noise_Z2"].values for group in ("warmup_sample_stats", "sample_stats"))
    assert warmup.shape == (2, 30)
    for ratios in (warmup[:, 10:], after):
        assert 0.5 < np.median(ratios) < 2
    posterior, hot = idata["posterior"], idata["warmup_posterior"]
    residual = hot["Z2"].values - (X @ np.swapaxes(hot["W1"].values, -1, -2) + hot["b1"].values[..., None, :])
    found = np.log((residual**2).mean((0, 2, 3)))
    expected = np.log(np.maximum(0.09, 1e4 * (1 - np.arange(30) / 30) ** 6))
    np.testing.assert_allclose(found[3:], expected[3:], atol=0.8)
    residual = posterior["Z2"].values - (
        X @ np.swapaxes(posterior["W1"].values, -1, -2) + posterior["b1"].values[..., None, :]
    )
    np.testing.assert_allclose((residual**2).mean(), 0.09, rtol=0.3)


@pytest.mark.parametrize("anneal", [0, -1.0, np.nan, np.inf])
def test_an_impossible_start_of_annealing_is_refused(model, anneal):
    with pytest.raises(ValueError, match="anneal must be a positive, finite number"):
        pmg.GibbsNN(model=model, anneal=anneal)


# Heat by default: several falls, of which the best goes on


@pytest.fixture(scope="module")
def step():
    """One compiled step for all tests below."""
    return pmg.GibbsNN(model=pmg.mlp(X, Y, 3, noise=0.3), compile_kwargs=PYTHON)


def tuned(step, point, steps, seed=1):
    """The states, log densities and carries of so many tuning steps from a point, and of three draws after them."""
    step.setup_chain(seed, tune=steps, draws=3)
    found = []
    for k in range(steps + 3):
        if k == steps:
            step.stop_tuning()
        point, [stats] = step.step(point)
        found.append((point, stats["lp"], dict(step.carry)))
    return found


def test_the_schedule_falls_rests_and_falls_again(model):
    heat = Heat([read_network(model)], None, FALLS)
    done, t = (np.arange(1000) + 0.5) / 1000, pt.scalar()
    now = heat.at(t)
    read = pytensor.function([t], [now.number, now.factor, now.to_come, now.rests], mode="FAST_COMPILE")
    number, factor, to_come, rests = np.array([read(share) for share in 1 - done]).T
    ends = np.cumsum([fall.share for fall in FALLS])
    np.testing.assert_array_equal(number, np.searchsorted(ends, done))
    for i, fall in enumerate(FALLS):
        mine = number == i
        assert (factor[mine] == fall.factor).all()
        np.testing.assert_allclose(rests[mine].mean(), fall.rest, atol=0.01)
        falling = to_come[mine][rests[mine] == 0]
        if fall.factor:
            np.testing.assert_allclose(falling[[0, -1]], [1, 0], atol=0.01)
            assert (np.diff(falling) < 0).all()
        assert (rests[mine][-5:] == 1).all()
    np.testing.assert_array_equal(read(0.0)[2], 0)


@pytest.fixture(scope="module")
def plain(step):
    """The same without heat."""
    return pmg.GibbsNN(model=step.model, anneal=None, compile_kwargs=PYTHON)


@pytest.mark.parametrize(("start", "is_on"), [("zero", 1), ("prior", 0)])
def test_a_start_that_the_user_chose_is_left_as_it_is(step, plain, start, is_on):
    point = step.model.initial_point() | pmg.initial_values(step.model, start, random_seed=1)
    found = tuned(step, point, 20)
    assert all(carry["heat_is_on"] == is_on for _, _, carry in found)
    plain.set_rng(1)
    new, _ = plain.step(plain.step(point)[0])  # as many sweeps as the first tuning step of heat has
    assert np.allclose(found[0][0]["Z2"], new["Z2"]) == (not is_on)


@pytest.mark.parametrize("by_hand", [False, True])
def test_without_tuning_or_a_driver_there_is_no_heat(step, plain, by_hand):
    assert (step.default_tune_steps, plain.default_tune_steps) == (1000, 0)
    states = []
    for one in (step, plain):
        one.set_rng(1) if by_hand else one.setup_chain(1, tune=0, draws=1)
        if by_hand:
            one.steps = 600  # of 1,000 tuning steps, where a step makes one sweep
        states.append(one.step(step.model.initial_point())[0])
    for name, x in states[0].items():
        np.testing.assert_array_equal(x, states[1][name])


def test_the_best_fall_goes_on(step):
    """A second fall that ends with a lower log density is forgotten: the weights are those of the first one again."""
    found = tuned(step, step.model.initial_point(), 100)
    falls = np.array([carry["heat_fall"] for _, _, carry in found])
    ends = [int(np.flatnonzero(falls == i)[-1]) for i in (0, 1)]
    first, second = (found[end] for end in ends)
    after = [found[end + 1] for end in ends]
    assert after[0][2]["heat_best"] == pytest.approx(first[2]["heat_sum"] / first[2]["heat_count"])
    for name in ("W1", "b1", "W2", "b2"):
        np.testing.assert_array_equal(first[0][name], first[2][f"last_{name}"])
        np.testing.assert_array_equal(after[0][2][f"best_{name}"], first[2][f"last_{name}"])
    score = second[2]["heat_sum"] / second[2]["heat_count"]
    is_better = score > after[0][2]["heat_best"]
    assert after[1][2]["heat_best"] == max(score, after[0][2]["heat_best"])
    best = (second if is_better else first)[0]
    np.testing.assert_array_equal(after[1][2]["best_W1"], best["W1"])
    # The same once more, where the first fall was as good as none can be
    step.setup_chain(1, tune=100, draws=0)
    point = step.model.initial_point()
    for k in range(ends[1] + 2):
        if k == ends[1]:
            step.carry["heat_best"] = np.asarray(1e9)
        point, _ = step.step(point)
    np.testing.assert_array_equal(point["W1"], first[0]["W1"])
    np.testing.assert_allclose(point["Z2"], X @ point["W1"].T + point["b1"])
    np.testing.assert_allclose(point["A2"], np.maximum(point["Z2"], 0))


def test_two_sweeps_a_step_in_the_first_fall_alone(step, monkeypatch):
    run, calls = step._run, []
    monkeypatch.setattr(step, "_run", lambda name, *rest: calls.append(name) or run(name, *rest))
    tuned(step, step.model.initial_point(), 30)
    assert calls.count("step") == 14 * 2 + 16 + 3
    assert calls.count("tune") == 14 * 2 + 16


def test_heat_of_labels_convolutions_and_learned_noise():
    images = np.random.default_rng(2).normal(size=(12, 1, 6, 6))
    with pmg.cnn(images, np.arange(12) % 3, 2, pool=2, likelihood="probit", noise=[0.3, 0.3, "learned", 0.3]) as model:
        step = pmg.GibbsNN(compile_kwargs=PYTHON)
    found = tuned(step, model.initial_point(), 40)
    assert np.isfinite([lp for _, lp, _ in found]).all()
    assert found[-1][2]["heat_fall"] == 2
    assert np.isfinite(found[-1][2]["heat_best"])


def test_heat_in_jax(model):
    """After a fall from the start, the noise of the latents is that of the model again, and all chains differ."""
    idata = pmg_sample(model, 200, tune=100, var_names=["W1", "b1"])
    noise = idata["sample_stats"]["noise_Z2"].values
    assert noise.shape == (2, 200)
    assert 0.7 < noise.mean() < 1.3
    assert idata["posterior"].attrs["tuning_steps"] == 100


def test_targets_may_change_under_a_step_that_is_called_by_hand(model):
    """As in Geweke's joint test: what heat knows of them serves the tuning alone."""
    step = pmg.GibbsNN(model=model, rng=1, compile_kwargs=PYTHON)
    point, _ = step.step(model.initial_point())
    model.set_data("y_data", Y + 1)
    point, [stats] = step.step(point)
    np.testing.assert_allclose(stats["lp"], model.compile_logp(mode="FAST_COMPILE")(point))

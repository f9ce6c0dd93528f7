"""pCN, pCNL and MALA in both drivers, their models, and what is refused."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.util import _get_seeds_per_chain
from scipy.stats import multivariate_normal, norm

import pymc_gibbsnn as pmg
from pymc_gibbsnn.targets.readout import ReadoutTarget
from tests.gaussian_models import MODELS, RNG, Numbers, X, direct_marginal, run
from tests.helpers import PYTHON, QUIET, check_moments, slow

# The drivers


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "name"), [(pmg.PCNL, "vector"), (pmg.PCN, "wide data")])
def test_the_whole_program_draws_what_the_step_draws_in_jax(sampler, name):
    model = MODELS[name]()
    step = sampler(model=model, beta=None, reparametrise=True, sweeps_per_draw=2, compile_kwargs={"mode": "JAX"})
    with model:
        idata = pmg.sample(4, tune=0, thin=1, step=step, chains=2, random_seed=7, progressbar=False)
    for chain, seed in enumerate(_get_seeds_per_chain(7, 2)):
        step.set_rng(0)
        step.tune = False
        step._jax_key = step._jax_key | {"jax_state": np.random.SeedSequence([int(seed), 0]).generate_state(2)}
        values, stats = run(step, 4)
        for name, found in values.items():
            np.testing.assert_allclose(idata["posterior"][name][chain], found, rtol=1e-6)
        for name, found in stats.items():
            np.testing.assert_allclose(idata["sample_stats"][name][chain], found, rtol=1e-6)


@pytest.mark.slow
def test_several_steps_take_turns():
    """Each begins from where the others have brought the variables."""
    with MODELS["vector"]() as model:
        scale = pmg.PCN([model["log_scale"]], beta=0.5)
        rest = pmg.PCN([model[name] for name in ("W1", "b1", "W2", "b2")], beta=0.3, reparametrise=True)
        idata = pmg.sample(20, tune=0, step=[scale, rest], thin=3, chains=2, random_seed=7, progressbar=False)
    posterior, stats = idata["posterior"], idata["sample_stats"]
    point = {v.name: posterior[v.name].values[1, -1] for v in model.free_RVs}
    marginal = direct_marginal(model, point)[0]
    prior = norm.logpdf(point["b1"], 0.1, 1.3).sum() + norm.logpdf(point["W1"], 0, np.exp(point["log_scale"])).sum()
    # lp of the last step, with the scale that the first has just moved.
    rest_of_model = norm.logpdf(point["log_scale"], 0.2, 0.7)
    np.testing.assert_allclose(stats["lp_1"].values[1, -1], marginal + prior + rest_of_model, atol=1e-6)


def test_changes_by_others_are_seen():
    """ℓ is not remembered from one draw to the next."""
    with MODELS["vector"]() as model:
        step = pmg.PCN([model["W1"]], beta=1e-6, compile_kwargs=PYTHON, rng=1)
    point = model.initial_point()
    step.step(point)
    for shift in (1.0, 2.0):
        moved = {name: x + shift for name, x in point.items()}
        new, [stats] = step.step(moved)
        np.testing.assert_allclose(stats["lp"], _expected_lp(model, new), atol=1e-4)
        assert stats["acceptance_rate"] > 0.99
        np.testing.assert_array_equal(new["W2"], moved["W2"])
    model.set_data("X", 2 * X)
    step.set_rng(1)
    new, [stats] = step.step(moved)
    np.testing.assert_allclose(stats["lp"], _expected_lp(model, new), atol=1e-4)


def test_a_chain_begins_again_only_where_another_has_moved_it():
    """What is remembered of a place is computed anew where a variable that is moved, or read, has another value."""
    with MODELS["vector"]() as model:
        step = pmg.MALA([model["W1"]], compile_kwargs=PYTHON, rng=1)
    begun = []
    step._compile()
    begin, step._functions["begin"] = step._functions["begin"], lambda *arguments: begun.append(1) or begin(*arguments)

    def makes_a_draw(point):
        before = len(begun)
        new, [stats] = step.step(point)
        np.testing.assert_allclose(stats["lp"], _expected_lp(model, new), atol=1e-6)
        return new, len(begun) > before

    point, has_begun = makes_a_draw(model.initial_point())
    assert has_begun
    for _ in range(3):
        point, has_begun = makes_a_draw({name: x.copy() for name, x in point.items()})
        assert not has_begun
    for name in ("W1", "W2"):
        point[name][...] += 0.1  # in place, as where a process keeps its point in shared memory
        point, has_begun = makes_a_draw(point)
        assert has_begun
    state, (expected, _) = step.sampling_state, makes_a_draw(point)
    step.sampling_state = state
    found, has_begun = makes_a_draw(point)
    assert not has_begun
    np.testing.assert_array_equal(found["W1"], expected["W1"])
    step.set_rng(2)
    assert makes_a_draw(found)[1]


@pytest.mark.parametrize("sampler", [pmg.PCN, pmg.PCNL, pmg.MALA])
def test_data_that_change_between_draws_are_seen(sampler):
    with pm.Model() as model:
        w, scale = pm.Normal("w", shape=3), pm.Data("scale", 1.0)
        mean = pm.Data("X", X) @ w
        pm.Normal("y", mean, scale, observed=pm.Data("targets", X[:, 0]), shape=mean.shape)
        step = sampler(**({"step_size": 0.1} if sampler is pmg.MALA else {"beta": 0.1}), compile_kwargs=PYTHON, rng=1)
    point, _ = step.step(model.initial_point())
    for name, value in {"scale": 0.5, "X": 2 * X, "targets": X[:, 1]}.items():
        model.set_data(name, value)
        for _ in range(2):
            point, [stats] = step.step(point)
            np.testing.assert_allclose(stats["lp"], _expected_lp(model, point), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("others", "expected"),
    [([], 2), (["W2", "b2", "log_scale"], 8)],
    ids=["alone", "in turns"],
)
def test_a_program_begins_again_only_where_another_transition_may_move_it(others, expected, monkeypatch):
    """Alone it begins at the first tuning step and at the first draw."""
    jax = pytest.importorskip("jax")
    from pymc_gibbsnn.drivers.jax_transition import JaxTransition

    begun, call = [], JaxTransition.__call__

    def counted(move, name, *arguments):
        if name == "begin" and any(entry.startswith("gradient") for entry in move.carry):
            jax.debug.callback(lambda: begun.append(name))
        return call(move, name, *arguments)

    monkeypatch.setattr(JaxTransition, "__call__", counted)
    with MODELS["vector"]() as model:
        step = [pmg.MALA([rv for rv in model.free_RVs if rv.name not in others])]
        step += [pmg.PCN([model[name] for name in others], beta=0.3)] if others else []
        pmg.sample(5, tune=3, step=step, chains=1, random_seed=7, progressbar=False)
    jax.effects_barrier()
    assert len(begun) == expected


def _expected_lp(model, point):
    return model.compile_logp(mode="AS_WRITTEN")(point)


@pytest.mark.parametrize("sampler", [pmg.PCN, pmg.PCNL, pmg.MALA])
def test_the_log_density_without_the_readout(sampler):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    with pm.Model():
        features = pm.math.tanh(X @ pm.Normal("w", 0, 2, shape=(2, 3)))
        pm.Normal("y", features @ pm.Normal("theta", 0, 0.7, shape=3), 0.5, observed=y)
        step = sampler(reparametrise=True, compile_kwargs=PYTHON, rng=1)
    point, [stats] = step.step({"w": rng.normal(size=(2, 3)), "theta": rng.normal(size=3)})
    psi = np.tanh(X @ point["w"])
    of_data = multivariate_normal(np.zeros(6), 0.5**2 * np.eye(6) + 0.7**2 * psi @ psi.T).logpdf(y)
    np.testing.assert_allclose(stats["lp"], norm(0, 2).logpdf(point["w"]).sum() + of_data, rtol=1e-9)


@pytest.mark.parametrize("sampler", [pmg.PCN, slow(pmg.PCNL), slow(pmg.MALA)])
def test_the_step_size_is_tuned_during_tuning_alone(sampler):
    kwargs = {"beta": None} if sampler is not pmg.MALA else {}
    with MODELS["vector"]():
        step = sampler(compile_kwargs=PYTHON, **kwargs)
        idata = pm.sample(50, tune=150, chains=1, step=step, random_seed=1, discard_tuned_samples=False, **QUIET)
    tuned, after = (idata[group]["step_size"].values[0] for group in ("warmup_sample_stats", "sample_stats"))
    assert len(set(tuned)) > 100
    assert len(set(after)) == 1
    assert {"lp", "acceptance_rate", "accepted", "step_size"} <= set(idata["sample_stats"].data_vars)
    target = 0.3 if sampler is pmg.PCN else 0.574
    assert abs(idata["warmup_sample_stats"]["acceptance_rate"].values[0, 50:].mean() - target) < 0.12


@pytest.mark.slow
def test_numba_and_the_row_space_at_some_width():
    """The default backend, on wide data, by pm.sample; the complement keeps its prior."""
    x, rng = np.random.default_rng(4).normal(size=(5, 40)), np.random.default_rng(5)
    model = pmg.wide_mlp(x, rng.normal(size=(5, 2)), width=8)
    with model:
        idata = pm.sample(
            2000,
            tune=300,
            chains=1,
            random_seed=1,
            step=pmg.PCN(beta=None, reparametrise=True, sweeps_per_draw=2),
            **QUIET,
        )
    w = idata["posterior"]["W1"].values[0]
    _, _, v = np.linalg.svd(x)
    complement = w @ v[5:].T
    check_moments(complement[:, 3, :6], np.zeros(6), np.eye(6))
    assert np.abs(np.corrcoef(complement[1:, 0, 0], complement[:-1, 0, 0])[0, 1]) < 0.1


# Models and bad input


def test_wide_mlp_is_in_ntk_form():
    y = np.ones((6, 2))
    model = pmg.wide_mlp(X, y, width=5, depth=2, activation="gelu", noise=0.2, weight_scale=1.5, bias_scale=0.3)
    assert model.eval_rv_shapes() == {"W1": (5, 3), "b1": (5,), "W2": (5, 5), "b2": (5,), "W3": (2, 5), "b3": (2,)}
    point = {name: RNG.normal(size=shape) for name, shape in model.eval_rv_shapes().items()}
    a = X
    for l in (1, 2):
        z = 1.5 / a.shape[1] ** 0.5 * a @ point[f"W{l}"].T + 0.3 * point[f"b{l}"]
        a = z * norm.cdf(z)
    mean = a @ point["W3"].T / 5**0.5 + 0.1 * point["b3"]
    expected = norm.logpdf(y, mean, 0.2).sum() + sum(norm.logpdf(x).sum() for x in point.values())
    np.testing.assert_allclose(model.compile_logp(mode="AS_WRITTEN")(point), expected)
    single = pmg.wide_mlp(X, y[:, 0], width=4, activation="relu", bias_scale=0, readout_bias_scale=0)
    assert single.eval_rv_shapes() == {"W1": (4, 3), "W2": (4,)}
    assert "wide" not in ReadoutTarget(single).constants


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 0}, "width must be a positive integer.*; found 0"),
        ({"depth": 1.5}, "depth must be"),
        ({"noise": 0}, "noise must be a positive, finite number"),
        ({"bias_scale": -1}, "bias_scale must be"),
        ({"activation": "rleu"}, "activation must be one of.*found 'rleu'"),
        ({"y": np.ones(5)}, r"found \(6, 3\) and \(5,\)"),
        ({"X": X * np.nan}, "X holds 18 values"),
    ],
)
def test_impossible_networks_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        pmg.wide_mlp(**({"X": X, "y": np.ones(6), "width": 3} | arguments))


@pytest.mark.parametrize("beta", [0, -0.1, 1.1, np.nan])
@pytest.mark.parametrize("sampler", [pmg.PCN, pmg.PCNL])
def test_beta_outside_its_range_is_refused(sampler, beta):
    with MODELS["vector"](), pytest.raises(ValueError, match=r"beta must be a number in \(0, 1\]"):
        sampler(beta=beta)


def test_impossible_steps_of_mala_are_refused():
    with MODELS["vector"]():
        with pytest.raises(ValueError, match=r"step_size must be a positive, finite number.*found 0"):
            pmg.MALA(step_size=0)
        with pytest.raises(ValueError, match=r"momentum_refresh.*\(0, 1\]; found 0"):
            pmg.MALA(momentum_refresh=0)
    with pm.Model():
        pm.Poisson("count", 3)
        with pytest.raises(ValueError, match=r"\['count'\] are discrete"):
            pmg.MALA()


def test_priors_that_are_not_gaussian_are_named():
    with pm.Model() as model:
        s = pm.HalfNormal("s")
        w = pm.Normal("w", 0, s, shape=2)
        pm.Normal("t", 0, 1, transform=pm.distributions.transforms.log)
        pm.MvNormal("m", np.zeros(2), np.stack([np.eye(2), 2 * np.eye(2)]), shape=(2, 2))
        with pytest.raises(ValueError, match=r"prior of 's' is no Normal or MvNormal but half.*vars="):
            pmg.PCN()
        with pytest.raises(ValueError, match="'t' is transformed"):
            pmg.PCN([model["t"]])
        with pytest.raises(ValueError, match="'m' has a covariance for each row"):
            pmg.PCNL([model["m"]])
        with pytest.raises(ValueError, match=r"free variables of the model, which has.*other"):
            pmg.PCN([w, pt.scalar("other")])
        assert [v.name for v in pmg.PCN([w]).transition.variables] == ["w"]


def refused(build):
    with pm.Model():
        w, v = pm.Normal("w", 0, 1, shape=3), pm.Normal("v", 0, 1, shape=3)
        build(w, v)
        with pytest.raises(pmg.NetworkError) as error:
            pmg.PCN(reparametrise=True)
    return str(error.value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda w, v: pm.Normal("y", pt.exp(X @ w), 1, observed=X[:, 0]), "mean of 'y' is not linear in weights"),
        (
            lambda w, v: pm.Bernoulli("y", logit_p=X @ w, observed=np.ones(6)),
            "likelihood 'y' must be pm.Normal; found Bernoulli",
        ),
        (lambda w, v: pm.Normal("y", X @ w, pt.exp(v).sum() * np.ones(6), observed=X[:, 0]), "sigma of 'y' has shape"),
        (lambda w, v: pm.Normal("y", (X * w) @ w, 1, observed=X[:, 0]), "'w' enters the model in another way too"),
        (
            lambda w, v: pm.Normal("y", X @ w, pt.exp(w.sum()), observed=X[:, 0]),
            "'w' enters the model in another way too",
        ),
        (lambda w, v: None, "observes nothing"),
        (
            lambda w, v: [pm.Normal(f"y{i}", X @ x, 1, observed=X[:, 0]) for i, x in enumerate((w, v))],
            "likelihoods 'y0', 'y1' each have a linear readout",
        ),
        (
            lambda w, v: pm.Normal("y", X @ pm.Normal("u", 0, [1.0, 2.0], shape=(3, 2)), 1, observed=X[:, :2]),
            "prior scale of 'u' differs between outputs",
        ),
    ],
)
def test_readouts_that_cannot_be_integrated_out_are_refused(build, message):
    assert message in refused(build)


def test_a_readout_among_other_terms_is_found():
    """Two blocks of features, a factor around all, an offset that moves, and a second likelihood of inner weights."""
    with pm.Model() as model:
        w, v, u = pm.Normal("w", shape=3), pm.Normal("v", 0.2, 0.8, shape=3), pm.Normal("u", shape=2)
        s, b = pm.Normal("s"), pm.Normal("b", 0.1, 1.5)
        pm.Normal("y", -(pt.tanh(X * w) @ v - X[:, :2] @ u + b) / 2 + s**2, 0.4, observed=X[:, 0])
        pm.Normal("z", w * s, 0.5, observed=np.ones(3))
    target = ReadoutTarget(model)
    assert list(target.coordinates) == ["whitened_w", "whitened_s"]
    numbers, rng = Numbers(target), np.random.default_rng(8)
    w, s = phi = numbers.random(rng)
    psi = np.c_[np.tanh(X * w) * 0.8, -X[:, :2], np.full(6, 1.5)] / -2
    mean = -(np.tanh(X * w).sum(1) * 0.2 + 0.1) / 2 + s**2
    expected = multivariate_normal.logpdf(X[:, 0], mean, psi @ psi.T + 0.16 * np.eye(6))
    np.testing.assert_allclose(numbers(phi)[0], expected + norm.logpdf(1, w * s, 0.5).sum(), rtol=1e-7)
    [point] = numbers.states(phi)
    assert {name: x.shape for name, x in point.items()} == model.eval_rv_shapes()

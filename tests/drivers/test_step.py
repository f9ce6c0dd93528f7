"""What PyMC expects of a step method, and what its users expect of ours."""

import copy
import inspect

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.step_methods.compound import CompoundStep
from scipy.stats import multivariate_normal

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.drivers.step import GraphStep
from tests.helpers import LEAN, PYTHON, QUIET, check_mean, in_python, pm_sample, slow

X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.maximum(X[:, 0], 0) + 0.1 * np.random.default_rng(1).normal(size=8)


@pytest.fixture
def model():
    return pmg.mlp(X, Y, 3, noise=0.3, prior=None)


def test_chains_differ_and_cores_do_not_matter(model):
    step = pmg.GibbsNN(model=model, compile_kwargs=PYTHON, **LEAN)
    one, two = (pm_sample(model, step=step, cores=cores)["posterior"]["W1"].values for cores in (1, 2))
    assert not np.allclose(one[0], one[1])
    np.testing.assert_array_equal(one, two)


def test_seeds(model):
    step = pmg.GibbsNN(model=model, compile_kwargs=PYTHON, **LEAN)
    found = [pm_sample(model, step=step, random_seed=seed)["posterior"]["W1"].values for seed in (1, 1, 2)]
    first, again, other = found
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_statistics_reach_sample_stats(model):
    idata = pm_sample(model)
    stats, posterior = idata["sample_stats"], idata["posterior"]
    names = {"lp", "norm_W1", "norm_W2", "noise_Z2", "noise_A2", "noise_y"}
    assert names <= set(stats.data_vars)
    point = {v.name: posterior[v.name].values[1, -1] for v in model.free_RVs}
    logp = model.compile_logp(mode="AS_WRITTEN")(point)
    np.testing.assert_allclose(stats["lp"].values[1, -1], logp, rtol=1e-8, atol=1e-6)


@pytest.mark.slow
def test_numba_is_what_nobody_has_to_name():
    from pytensor.link.numba.linker import NumbaLinker

    assert isinstance(compilation_mode(None).linker, NumbaLinker)
    with pmg.mlp(X, np.stack([Y, Y], axis=1), 2, noise=1.0, prior=None):  # as in test_gibbs.py: compiled once
        idata = pm.sample(50, step=pmg.GibbsNN(), tune=0, chains=2, cores=2, random_seed=1, **QUIET)
    w = idata["posterior"]["W1"].values
    assert np.isfinite(w).all()
    assert not np.allclose(w[0], w[1])


def test_variables_are_read_without_compiling_but_by_pm_sample_before_it_forks(model, monkeypatch):
    step, calls, compile_ = pmg.GibbsNN(model=model, compile_kwargs=PYTHON, **LEAN), [], GraphStep._compile_stages
    monkeypatch.setattr(GraphStep, "_compile_stages", lambda self: (calls.append(self), compile_(self)))
    assert step.vars == CompoundStep([step]).vars == step.transition.variables
    assert not calls
    pm_sample(model, draws=2, step=step, cores=2, var_names=["W1"])
    assert calls == [step]


@pytest.mark.parametrize("kwargs", [{}, {"interweave": "langevin"}, {"collapse": False}])
def test_arguments_keep_their_types(model, kwargs):
    """Or Numba would compile the sweep again for the second draw, in every process."""
    step, seen = pmg.GibbsNN(model=model, compile_kwargs=PYTHON, **kwargs), []
    step._compile()
    function = step._functions["step"]

    def watch(random, *arguments):
        seen.append([(x.dtype, x.ndim, x.flags.c_contiguous, x.flags.writeable) for x in map(np.asarray, arguments)])
        return function(random, *arguments)

    step._functions["step"] = watch
    point = {name: np.asfortranarray(x) if x.ndim else x for name, x in model.initial_point().items()}
    for _ in range(3):
        point, _ = step.step(point)
    assert seen[0] == seen[1] == seen[2]
    assert all(c_contiguous for _, _, c_contiguous, _ in seen[0])


@pytest.mark.slow
def test_the_c_backend(model):
    with pytensor.config.change_flags(gcc__cxxflags="-O0"):  # a hundred files of C++ that run for a moment
        idata = pm_sample(model, compile_kwargs={"mode": "CVM"})
    assert np.isfinite(idata["sample_stats"]["lp"].values).all()


def test_the_jax_backend(model):
    w = pm_sample(model, compile_kwargs={"mode": "JAX"})["posterior"]["W1"].values
    assert np.isfinite(w).all()
    assert not np.allclose(w[0], w[1])


def test_jax_in_a_fork_is_refused_rather_than_left_to_hang(model, monkeypatch):
    step = pmg.GibbsNN(model=model, compile_kwargs={"mode": "JAX"})
    process = type("ForkProcess", (), {})()
    monkeypatch.setattr("multiprocessing.current_process", lambda: process)
    with pytest.raises(RuntimeError, match="forkserver"):
        step.set_rng(1)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", slow("JAX"), slow("NUMBA")])
def test_single_precision(mode):
    with pytensor.config.change_flags(floatX="float32"):
        idata = pm_sample(pmg.mlp(X, Y, 3, noise=0.3, prior=None), compile_kwargs={"mode": mode})
    assert idata["posterior"]["Z2"].dtype == "float32"
    assert np.isfinite(idata["sample_stats"]["lp"].values).all()


def test_sweeps_per_draw_thin_the_chain(model):
    once, thrice = (
        pmg.GibbsNN(model=model, compile_kwargs=PYTHON, **LEAN),
        pmg.GibbsNN(model=model, compile_kwargs=PYTHON, **LEAN, sweeps_per_draw=3),
    )
    point = start = model.initial_point()
    once.set_rng(3)
    thrice.set_rng(3)
    for _ in range(3):
        point, _ = once.step(point)
    np.testing.assert_array_equal(thrice.step(start)[0]["W1"], point["W1"])
    with pytest.raises(ValueError, match="sweeps_per_draw must be a positive integer or 'auto'; found 0"):
        pmg.GibbsNN(model=model, sweeps_per_draw=0)


def test_var_names_keep_latents_out(model):
    idata = pm_sample(model, var_names=["W1", "b1", "W2", "b2"])
    assert set(idata["posterior"].data_vars) == {"W1", "b1", "W2", "b2"}


@in_python()
def test_prediction_at_new_inputs(model):
    idata = pm_sample(model, draws=20, var_names=["W1", "b1", "W2", "b2"])
    x_new = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    with model:
        pm.set_data({"X": x_new})
        predictive = pm.sample_posterior_predictive(idata, progressbar=False, random_seed=1)
    assert predictive["posterior_predictive"]["y"].shape == (2, 20, 3)


def test_changed_data_reach_the_next_chain(model):
    """The spectrum of the inputs belongs to the chain, not to the step."""
    step = pmg.GibbsNN(model=model, compile_kwargs=PYTHON, **LEAN)
    model.set_data("X", 2 * X)
    changed = pm_sample(model, step=step)["posterior"]["W1"].values
    fresh = pm_sample(model)["posterior"]["W1"].values
    np.testing.assert_allclose(changed, fresh)
    model.set_data("X", np.full_like(X, np.nan))
    with pytest.raises(pmg.NetworkError, match="input data holds 16 values that are NaN"):
        step.set_rng(0)


@pytest.mark.slow
def test_compound_with_nuts():
    """Noise with its own prior is left to NUTS, the network to Gibbs; the distribution by quadrature over the noise."""
    x = np.linspace(-1, 1, 12)[:, None]
    y = x[:, 0] + 0.3 * np.random.default_rng(5).normal(size=12)
    with pm.Model():
        w, b = pm.Normal("w", shape=1), pm.Normal("b")
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", x @ w + b, sigma, observed=y)
        found = pm.sample(2000, tune=500, chains=2, cores=2, random_seed=1, step=[pmg.GibbsNN([w, b])], **QUIET)
    features, grid = np.hstack([x, np.ones_like(x)]), np.linspace(0.05, 3, 600)[:, None, None]
    covariance = np.linalg.inv(np.eye(2) + features.T @ features / grid**2)  # of (w, b) given each σ
    mean = (covariance @ (features.T @ y)[:, None] / grid**2)[..., 0]
    density = [multivariate_normal(cov=s**2 * np.eye(12) + features @ features.T).logpdf(y) for s in grid.ravel()]
    weight = np.exp(density - grid.ravel() ** 2 / 2 - np.max(density))
    weight /= weight.sum()
    squares = mean**2 + np.diagonal(covariance, axis1=1, axis2=2)
    truth = {
        "w": (mean[:, 0], squares[:, 0]),
        "b": (mean[:, 1], squares[:, 1]),
        "sigma": (grid.ravel(), grid.ravel() ** 2),
    }
    for name, moments in truth.items():
        draws = found["posterior"][name].values.reshape(2, -1)
        for power, moment in enumerate(moments, start=1):
            check_mean(draws**power, weight @ moment, f"{name} to the power {power}")
    assert "lp" in found["sample_stats"]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_makes_the_same_draws(model, copied):
    def draws(step, point):
        found = []
        for _ in range(3):
            point, _ = step.step(point)
            found.append(point["W1"])
        return np.stack(found)

    step, point = pmg.GibbsNN(model=model, sweeps_per_draw=1, compile_kwargs=PYTHON, rng=1), model.initial_point()
    before = copied(step)
    first = draws(step, point)
    between, second = copied(step), draws(step, point)
    np.testing.assert_array_equal(draws(before, point), first)
    np.testing.assert_array_equal(draws(between, point), second)
    assert (first != second).all()


@pytest.mark.parametrize("step", [pmg.GibbsNN, pmg.MALA])
def test_a_model_that_is_none(step):
    with pytest.raises(TypeError, match="model must be a PyMC model; found 3"):
        step(model=3)


def test_signatures_show_the_options_of_each_sampler_and_what_all_share():
    shared = ["sweeps_per_draw", "model", "initial_point", "compile_kwargs", "rng", "blocked"]
    for step, options in {
        pmg.GibbsNN: {"collapse": True, "scale_move": True, "interweave": "auto", "schedule": "sequential"},
        pmg.PCN: {"beta": 0.1, "reparametrise": False},
        pmg.PCNL: {"beta": 0.1, "reparametrise": False},
        pmg.MALA: {"step_size": None, "momentum_refresh": 1.0, "reparametrise": False},
        pmg.FNBG: {"blocks": "node", "scale": None, "target_accept": 0.35, "stratify": False},
    }.items():
        found = inspect.signature(step).parameters
        assert next(iter(found)) == "vars"
        assert list(found)[-len(shared) :] == shared
        assert options.items() <= {name: p.default for name, p in found.items()}.items()
        with pytest.raises(TypeError, match=f"{step.__name__} has no argument 'colapse'; its arguments are"):
            step(model=pm.Model(), vars=[None], colapse=True)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", slow("NUMBA")])
def test_pickling(mode):
    model = pmg.mlp(X, np.stack([Y, Y], axis=1), 2, noise=1.0, prior=None)  # as in test_gibbs.py: compiled once
    step = pmg.GibbsNN(model=model, compile_kwargs={"mode": mode})
    step._compile()
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    for s in (step, copy):
        s.set_rng(5)
    point = model.initial_point()
    np.testing.assert_array_equal(step.step(point)[0]["W1"], copy.step(point)[0]["W1"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "mp_ctx"),
    [
        ("JAX", "forkserver"),
        ("JAX", "spawn"),
        ("NUMBA", "forkserver"),
        ("NUMBA", "spawn"),
    ],
)
def test_processes_that_are_not_forked_draw_the_same(mode, mp_ctx):
    """They get the step pickled, and have neither its code nor what was declared to JAX."""
    model = pmg.mlp(X, np.stack([Y, Y], axis=1), 2, noise=1.0, prior=None)  # as in test_gibbs.py: compiled once
    with model:
        step = pmg.GibbsNN(scale_move=mode != "JAX", compile_kwargs={"mode": mode})
    one, two = (
        pm_sample(model, draws=3, step=step, cores=cores, mp_ctx=mp_ctx)["posterior"]["W1"].values for cores in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_processes_that_are_not_forked_keep_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        step = pmg.GibbsNN(model=pmg.mlp(X, Y, 3, noise=0.3, prior=None), compile_kwargs=PYTHON)
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    copy.step(step.model.initial_point())
    assert {name: x.dtype for name, x in copy.carry.items()} == {name: x.dtype for name, x in step.carry.items()}
    assert copy._tuning_dtype == "float32"


def test_sampling_state_resumes(model):
    step = pmg.GibbsNN(model=model, compile_kwargs=PYTHON, **LEAN)
    state = step.sampling_state
    first, _ = step.step(model.initial_point())
    step.sampling_state = state
    again, _ = step.step(model.initial_point())
    np.testing.assert_array_equal(first["W1"], again["W1"])


@pytest.mark.parametrize("mode", ["AS_WRITTEN", slow("JAX")])
def test_sampling_state_is_all_that_another_step_needs(mode):
    """In the middle of the tuning, with a step size and a momentum to remember."""
    with pm.Model() as linear:
        pm.Normal("y", X @ pm.Normal("w", shape=2), 0.3, observed=Y)
    one, two = (pmg.MALA(model=linear, momentum_refresh=0.5, compile_kwargs={"mode": mode}) for _ in range(2))
    for seed, step in enumerate((one, two)):
        step.setup_chain(np.random.default_rng(seed), 6, 10)
    point = linear.initial_point()
    for _ in range(3):
        point, _ = one.step(point)
    two.sampling_state = one.sampling_state
    there = point
    for _ in range(5):
        point, [stats] = one.step(point)
        there, [again] = two.step(there)
    np.testing.assert_array_equal(point["w"], there["w"])
    assert stats == again


def test_progress_bar_shows_the_log_density(model, capsys):
    pm_sample(model, progressbar=True)
    columns, start = pmg.GibbsNN._progressbar_config(2)
    assert columns
    assert len(start["lp"]) == 2
    [update] = pmg.GibbsNN._make_progressbar_update_functions()
    shown = {"lp": 1.5, "sweeps_per_draw": 2.0}
    assert update(shown | {"norm_W1": 2.0}) == shown


def test_an_interrupt_returns_what_was_drawn(model):
    def interrupt(trace, draw):
        if draw.draw_idx == 30:
            raise KeyboardInterrupt

    idata = pm_sample(model, draws=100, chains=1, callback=interrupt)
    assert 29 <= idata["posterior"].sizes["draw"] <= 31


def test_a_step_by_hand_wants_a_new_chain_for_new_data(model):
    step, point = pmg.GibbsNN(model=model, compile_kwargs=PYTHON, **LEAN), model.initial_point()
    step.step(point)
    model.set_data("X", X.copy())
    step.step(point)
    model.set_data("X", X + 1)
    with pytest.raises(RuntimeError, match=r"The data \['X'\] have changed.*step.set_rng"):
        step.step(point)
    step.set_rng(0)
    fresh = pmg.GibbsNN(model=model, compile_kwargs=PYTHON, **LEAN, rng=0)
    np.testing.assert_array_equal(step.step(point)[0]["W1"], fresh.step(point)[0]["W1"])

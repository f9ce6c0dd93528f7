"""What PyMC expects of a step method, and what its users expect of ours."""

import inspect
import warnings

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.sampling.parallel import ParallelSamplingError

import pymc_gibbsnn as pmg
from pymc_gibbsnn import _compat
from pymc_gibbsnn.drivers.step import GraphStep
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.samplers.gibbs import _heated
from pymc_gibbsnn.samplers.transition import Transition
from tests.helpers import check_mean, value

X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.maximum(X[:, 0], 0) + 0.1 * np.random.default_rng(1).normal(size=8)
PYTHON = {"mode": "FAST_COMPILE"}
QUIET = {"progressbar": False, "compute_convergence_checks": False}


@pytest.fixture
def model():
    return pmg.mlp(X, Y, 3, noise=0.3)


def sample(model, draws=20, step=None, compile_kwargs=PYTHON, **kwargs):
    with model:
        step = step or pmg.GibbsNN(compile_kwargs=compile_kwargs)
        return pm.sample(draws, step=step, **({"tune": 0, "chains": 2, "cores": 1, "random_seed": 7} | QUIET | kwargs))


def test_chains_differ_and_cores_do_not_matter(model):
    one, two = (sample(model, cores=cores)["posterior"]["W1"].values for cores in (1, 2))
    assert not np.allclose(one[0], one[1])
    np.testing.assert_array_equal(one, two)


def test_seeds(model):
    first, again, other = (sample(model, random_seed=seed)["posterior"]["W1"].values for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_statistics_reach_sample_stats(model):
    idata = sample(model)
    stats, posterior = idata["sample_stats"], idata["posterior"]
    names = {"lp", "norm_W1", "norm_W2", "noise_Z2", "noise_A2", "noise_y"}
    assert names <= set(stats.data_vars)
    point = {v.name: posterior[v.name].values[1, -1] for v in model.free_RVs}
    logp = model.compile_logp(mode="FAST_COMPILE")(point)
    np.testing.assert_allclose(stats["lp"].values[1, -1], logp, rtol=1e-8, atol=1e-6)


def test_numba_is_what_nobody_has_to_name():
    from pytensor.link.numba.linker import NumbaLinker

    assert isinstance(_compat.compilation_mode(None).linker, NumbaLinker)
    with pmg.mlp(X, np.stack([Y, Y], axis=1), 2, noise=1.0):  # as in test_gibbs.py: compiled once
        idata = pm.sample(50, step=pmg.GibbsNN(), tune=0, chains=2, cores=2, random_seed=1, **QUIET)
    w = idata["posterior"]["W1"].values
    assert np.isfinite(w).all()
    assert not np.allclose(w[0], w[1])


@pytest.mark.parametrize("kwargs", [{}, {"interweave": "langevin"}, {"collapse": False}])
def test_arguments_keep_their_types(model, kwargs):
    """Or Numba would compile the sweep again for the second draw, in every process."""
    step, seen = pmg.GibbsNN(model=model, compile_kwargs=PYTHON, **kwargs), []
    assert step.vars
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


def test_the_c_backend(model):
    idata = sample(model, compile_kwargs={"mode": "CVM"})
    assert np.isfinite(idata["sample_stats"]["lp"].values).all()


def test_the_jax_backend(model):
    w = sample(model, compile_kwargs={"mode": "JAX"})["posterior"]["W1"].values
    assert np.isfinite(w).all()
    assert not np.allclose(w[0], w[1])


def test_jax_in_a_fork_is_refused_rather_than_left_to_hang(model, monkeypatch):
    step = pmg.GibbsNN(model=model, compile_kwargs={"mode": "JAX"})
    process = type("ForkProcess", (), {})()
    monkeypatch.setattr("multiprocessing.current_process", lambda: process)
    with pytest.raises(RuntimeError, match="forkserver"):
        step.set_rng(1)


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "JAX", pytest.param("NUMBA", marks=pytest.mark.slow)])
def test_single_precision(mode):
    import pytensor

    with pytensor.config.change_flags(floatX="float32"):
        idata = sample(pmg.mlp(X, Y, 3, noise=0.3), compile_kwargs={"mode": mode})
    assert idata["posterior"]["Z2"].dtype == "float32"
    assert np.isfinite(idata["sample_stats"]["lp"].values).all()


def test_sweeps_per_draw_thin_the_chain(model):
    once, thrice = (
        pmg.GibbsNN(model=model, compile_kwargs=PYTHON),
        pmg.GibbsNN(model=model, compile_kwargs=PYTHON, sweeps_per_draw=3),
    )
    point = start = model.initial_point()
    once.set_rng(3)
    thrice.set_rng(3)
    for _ in range(3):
        point, _ = once.step(point)
    np.testing.assert_array_equal(thrice.step(start)[0]["W1"], point["W1"])
    with pytest.raises(ValueError, match="sweeps_per_draw must be a positive integer; found 0"):
        pmg.GibbsNN(model=model, sweeps_per_draw=0)


def test_var_names_keep_latents_out(model):
    idata = sample(model, var_names=["W1", "b1", "W2", "b2"])
    assert set(idata["posterior"].data_vars) == {"W1", "b1", "W2", "b2"}


def test_prediction_at_new_inputs(model):
    idata = sample(model, draws=100, var_names=["W1", "b1", "W2", "b2"])
    x_new = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    with model:
        pm.set_data({"X": x_new})
        predictive = pm.sample_posterior_predictive(idata, progressbar=False, random_seed=1)
    assert predictive["posterior_predictive"]["y"].shape == (2, 100, 3)


def test_changed_data_reach_the_next_chain(model):
    """The spectrum of the inputs belongs to the chain, not to the step."""
    step = pmg.GibbsNN(model=model, compile_kwargs=PYTHON)
    model.set_data("X", 2 * X)
    changed = sample(model, step=step)["posterior"]["W1"].values
    fresh = sample(model)["posterior"]["W1"].values
    np.testing.assert_allclose(changed, fresh)
    model.set_data("X", np.full_like(X, np.nan))
    with pytest.raises(pmg.NetworkError, match="input data holds 16 values that are NaN"):
        step.set_rng(0)


def test_compound_with_nuts():
    """Noise with its own prior is left to NUTS, the network to Gibbs; NUTS alone agrees."""
    x = np.linspace(-1, 1, 12)[:, None]
    y = x[:, 0] + 0.3 * np.random.default_rng(5).normal(size=12)
    with pm.Model():
        w, b = pm.Normal("w", shape=1), pm.Normal("b")
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", x @ w + b, sigma, observed=y)
        both = pm.sample(
            3000, tune=500, chains=2, cores=2, random_seed=1, step=[pmg.GibbsNN([w, b], compile_kwargs=PYTHON)], **QUIET
        )
        alone = pm.sample(3000, tune=500, chains=2, cores=2, random_seed=2, **QUIET)
    for name in ("w", "b", "sigma"):
        found, truth = both["posterior"][name].values.reshape(2, -1), alone["posterior"][name].values.reshape(2, -1)
        check_mean(found, truth.mean(), name, truth.std() / np.sqrt(1000))
        check_mean(found**2, (truth**2).mean(), f"{name}²", (truth**2).std() / np.sqrt(1000))
    assert "lp" in both["sample_stats"]


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


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
def test_pickling(mode):
    model = pmg.mlp(X, np.stack([Y, Y], axis=1), 2, noise=1.0)  # as in test_gibbs.py: compiled once
    step = pmg.GibbsNN(model=model, compile_kwargs={"mode": mode})
    assert step.vars
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    for s in (step, copy):
        s.set_rng(5)
    point = model.initial_point()
    np.testing.assert_array_equal(step.step(point)[0]["W1"], copy.step(point)[0]["W1"])


@pytest.mark.parametrize(
    ("mode", "mp_ctx"),
    [
        ("JAX", "forkserver"),
        pytest.param("JAX", "spawn", marks=pytest.mark.slow),
        pytest.param("NUMBA", "forkserver", marks=pytest.mark.slow),
        pytest.param("NUMBA", "spawn", marks=pytest.mark.slow),
    ],
)
def test_processes_that_are_not_forked_draw_the_same(mode, mp_ctx):
    """They get the step pickled, and have neither its code nor what was declared to JAX."""
    model = pmg.mlp(X, np.stack([Y, Y], axis=1), 2, noise=1.0)  # as in test_gibbs.py: compiled once
    with model:
        step = pmg.GibbsNN(scale_move=mode != "JAX", compile_kwargs={"mode": mode})
    one, two = (
        sample(model, draws=3, step=step, cores=cores, mp_ctx=mp_ctx)["posterior"]["W1"].values for cores in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_processes_that_are_not_forked_keep_single_precision():
    import pytensor

    with pytensor.config.change_flags(floatX="float32"):
        step = pmg.GibbsNN(model=pmg.mlp(X, Y, 3, noise=0.3), compile_kwargs=PYTHON)
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    copy.step(step.model.initial_point())
    assert {name: x.dtype for name, x in copy.carry.items()} == {name: x.dtype for name, x in step.carry.items()}
    assert copy._tuning_dtype == "float32"


def test_sampling_state_resumes(model):
    step = pmg.GibbsNN(model=model, compile_kwargs=PYTHON)
    state = step.sampling_state
    first, _ = step.step(model.initial_point())
    step.sampling_state = state
    again, _ = step.step(model.initial_point())
    np.testing.assert_array_equal(first["W1"], again["W1"])


def test_progress_bar_shows_the_log_density(model, capsys):
    sample(model, progressbar=True)
    columns, start = pmg.GibbsNN._progressbar_config(2)
    assert columns
    assert len(start["lp"]) == 2
    [update] = pmg.GibbsNN._make_progressbar_update_functions()
    assert update({"lp": 1.5, "norm_W1": 2.0}) == {"lp": 1.5}


def test_an_interrupt_returns_what_was_drawn(model):
    def interrupt(trace, draw):
        if draw.draw_idx == 30:
            raise KeyboardInterrupt

    idata = sample(model, draws=100, chains=1, callback=interrupt)
    assert 29 <= idata["posterior"].sizes["draw"] <= 31


def test_more_draws_than_memory_holds(model, monkeypatch):
    monkeypatch.setattr(_compat, "free_memory", lambda: 10_000)
    with pytest.warns(UserWarning, match=r"GiB.*Z2.*var_names="):
        sample(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample(model, var_names=["b2"])


# A chain that leaves the finite numbers


class Counting(GraphStep):
    """Counts; its log density is NaN from the 6th draw of a chain on that starts at 0."""

    name = "counting"

    @staticmethod
    def build_transition(model, vars):
        [x] = model.value_vars

        def step(rng, state, carry, tuning):
            return rng, {x: state[x] + 1}, {}, {"lp": pt.sqrt(5.5 - state[x])}

        return Transition([x], step, stats=["lp"])


@pytest.mark.parametrize("cores", [1, 2])
def test_draws_before_a_chain_leaves_the_finite_numbers_are_kept(cores):
    with pm.Model() as model, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pm.Flat("x", initval=0)
        idata = sample(model, draws=12, step=Counting(compile_kwargs=PYTHON), cores=cores)
    nan = np.nan
    expected = [1, 2, 3, 4, 5, 6] + [nan] * 6
    np.testing.assert_array_equal(idata["posterior"]["x"].values, [expected, expected])
    assert np.isnan(idata["sample_stats"]["lp"].values[:, 6:]).all()
    if cores == 1:  # other processes warn in their own
        assert sum("left the finite numbers at draw 6, warm-up included" in str(w.message) for w in caught) == 2


def test_a_factorisation_that_fails_ends_a_chain_and_loses_nothing(monkeypatch):
    run, calls = GraphStep._run, []

    def fail(self, name, *arguments):
        calls.append(name)
        if calls.count("step") == 4:
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        return run(self, name, *arguments)

    monkeypatch.setattr(GraphStep, "_run", fail)
    with pm.Model() as model:
        pm.Flat("x", initval=0)
        with pytest.warns(UserWarning, match=r"at draw 3, .*not positive definite"):
            idata = sample(model, draws=5, step=Counting(compile_kwargs=PYTHON), chains=1)
    np.testing.assert_array_equal(idata["posterior"]["x"].values, [[1, 2, 3, np.nan, np.nan]])


@pytest.mark.parametrize(
    ("start", "error", "message"),
    [
        (np.nan, ValueError, r"initvals\['Z2'\] must be finite; found 24 values"),
        (1e200, FloatingPointError, r"'Z2' is -inf.*the largest number, in 'Z2', is 1e\+200"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's of overflows
def test_starts_that_are_not_finite_are_refused(model, start, error, message):
    with model:
        step = pmg.GibbsNN(compile_kwargs=PYTHON)
    for cores in (1, 2):
        with pytest.raises((error, ParallelSamplingError), match=message):
            sample(model, step=step, initvals={"Z2": np.full((8, 3), start)}, cores=cores)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_data_too_large_are_refused():
    model = pmg.mlp(X, 1e300 * Y, 3, noise=0.3)
    with pytest.raises(FloatingPointError, match=r"first draw of .*'y' is -inf; the largest number, in 'y', is"):
        sample(model)


def test_a_step_by_hand_wants_a_new_chain_for_new_data(model):
    step, point = pmg.GibbsNN(model=model, compile_kwargs=PYTHON), model.initial_point()
    step.step(point)
    model.set_data("X", X.copy())
    step.step(point)
    model.set_data("X", X + 1)
    with pytest.raises(RuntimeError, match=r"The data \['X'\] have changed.*step.set_rng"):
        step.step(point)
    step.set_rng(0)
    fresh = pmg.GibbsNN(model=model, compile_kwargs=PYTHON, rng=0)
    np.testing.assert_array_equal(step.step(point)[0]["W1"], fresh.step(point)[0]["W1"])


# Annealing


def test_noise_falls_geometrically_to_its_own_value(model):
    network = read_network(model)
    for share in (1.0, 0.5, 0.0):
        hot = _heated(network, 4.0, pt.constant(share))
        for part, now in zip([*network.layers, *network.activations], [*hot.layers, *hot.activations], strict=True):
            np.testing.assert_allclose(value(now.noise), value(part.noise) ** (1 - share) * 4.0**share)
    cold = _heated(network, 0.01, pt.constant(1.0))
    assert value(cold.layers[0].noise) == value(network.layers[0].noise)


@pytest.mark.parametrize("cores", [1, 2])
def test_the_share_of_tuning_to_come_reaches_the_sweep(model, cores):
    """The mean squared noise in units of the hotter variance stays near 1 only if both fall together."""
    with model:
        step = pmg.GibbsNN(anneal=1e4, compile_kwargs=PYTHON)
    idata = sample(model, draws=30, step=step, tune=30, cores=cores, discard_tuned_samples=False)
    warmup, after = (idata[group]["noise_Z2"].values for group in ("warmup_sample_stats", "sample_stats"))
    assert warmup.shape == (2, 30)
    for ratios in (warmup[:, 10:], after):
        assert 0.5 < np.median(ratios) < 2
    posterior, hot = idata["posterior"], idata["warmup_posterior"]
    residual = hot["Z2"].values - (X @ np.swapaxes(hot["W1"].values, -1, -2) + hot["b1"].values[..., None, :])
    found = np.log((residual**2).mean((0, 2, 3)))
    expected = np.log(0.09) + (1 - np.arange(30) / 30) * np.log(1e4 / 0.09)
    np.testing.assert_allclose(found[3:], expected[3:], atol=0.8)
    residual = posterior["Z2"].values - (
        X @ np.swapaxes(posterior["W1"].values, -1, -2) + posterior["b1"].values[..., None, :]
    )
    np.testing.assert_allclose((residual**2).mean(), 0.09, rtol=0.3)


@pytest.mark.parametrize("anneal", [0, -1.0, np.nan, np.inf])
def test_an_impossible_start_of_annealing_is_refused(model, anneal):
    with pytest.raises(ValueError, match="anneal must be a positive, finite number"):
        pmg.GibbsNN(model=model, anneal=anneal)


def test_noise_that_is_lost_to_rounding_is_named(model, monkeypatch):
    step = pmg.GibbsNN(model=model, compile_kwargs=PYTHON)

    def fail(point):
        raise np.linalg.LinAlgError("Matrix is not positive definite")

    monkeypatch.setattr(step, "_draw", fail)
    with pytest.raises(FloatingPointError, match=r"not positive definite. Noise is lost .* 1e-15 .* larger sigma\."):
        step.step(model.initial_point())

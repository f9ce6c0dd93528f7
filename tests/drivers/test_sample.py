"""The JAX driver: the same distribution as ``pm.sample``, the same result, on any number of chains and devices."""

import sys
from functools import cache

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import rich
from pymc.util import _get_seeds_per_chain

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends import machine
from pymc_gibbsnn.backends.jax_backend import xla_options
from pymc_gibbsnn.drivers import chain_loop
from pymc_gibbsnn.drivers import program as _program
from pymc_gibbsnn.drivers.jax_transition import jaxify
from pymc_gibbsnn.drivers.program import Program, _factors_batches
from pymc_gibbsnn.moves import interweave_pieces, noncentred_scale
from tests.helpers import LEAN, check_mean, in_python, pmg_sample, slow

X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.maximum(X[:, 0], 0) + 0.1 * np.random.default_rng(1).normal(size=8)
WEIGHTS = ["W1", "b1", "W2", "b2"]


@pytest.fixture
def model():
    return pmg.mlp(X, Y, 3, noise=0.3, prior=None)


@pytest.fixture
def regression():
    """A model that compiles in a moment, where the test is of the driver."""
    return pmg.mlp(X, Y, [], noise=0.3, prior=None)


def plain_sample(model, draws=20, **kwargs):
    """A run of fewer moves, which compile in a third of the time."""
    step = pmg.GibbsNN(model=model, **LEAN)
    return pmg_sample(model, draws, **({"step": step} | kwargs))


def w1(idata):
    return idata["posterior"]["W1"].values


def test_no_blas_for_c_is_looked_for(monkeypatch):
    """PyTensor warns where there is none, as after an installation by pip, and JAX needs none."""
    searched = []
    parameter = pytensor.config._config_var_dict["blas__ldflags"]
    monkeypatch.delattr(parameter, "val", raising=False)
    monkeypatch.setattr(parameter, "_default", lambda: searched.append("BLAS") or "")
    scale, vector = pt.row("scale"), pt.matrix("vector")
    jaxify([scale, vector], [vector - pt.specify_shape(scale, (1, 1)) * vector])
    assert not searched


def test_the_draws_are_those_of_the_step_in_jax(model):
    """Number by number, from the same key."""
    idata = pmg_sample(model, 5, chains=2, var_names=["W1", "A2", "b2"])
    step = pmg.GibbsNN(model=model, compile_kwargs={"mode": "JAX"})
    for chain, seed in enumerate(_get_seeds_per_chain(7, 2)):
        point = model.initial_point()
        step.set_rng(0)
        step.stop_tuning()
        step._jax_key = step._jax_key | {"jax_state": np.random.SeedSequence([int(seed), 0]).generate_state(2)}
        for draw in range(5):
            point, [stats] = step.step(point)
            for name in ("W1", "A2", "b2"):
                np.testing.assert_allclose(idata["posterior"][name][chain, draw], point[name], rtol=1e-6)
            for name, value in stats.items():
                np.testing.assert_allclose(idata["sample_stats"][name][chain, draw], value, rtol=1e-6)


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("fixture", "moves"),
    [("regression", LEAN), slow("model", LEAN), slow("model", {})],
    ids=["regression", "plain", "all"],
)
def test_chains_do_not_depend_on_those_beside_them(fixture, moves, monkeypatch, request):
    """Three calls of a chain, which is spared vmap, or one call of three chains."""
    model = request.getfixturevalue(fixture)
    programs, run = [], Program.run
    monkeypatch.setattr(Program, "run", lambda self, *a, **k: (programs.append(self), run(self, *a, **k))[1])
    alone = pmg_sample(model, 5, pmg.GibbsNN(model=model, **moves), tune=2, chains=3)
    assert len(programs[0].chains) == 3
    monkeypatch.setattr(_program, "_factors_batches", lambda program: True)
    together = pmg_sample(model, 5, pmg.GibbsNN(model=model, **moves), tune=2, chains=3)
    assert len(programs[-1].chains) == 1
    for group in ("posterior", "sample_stats"):
        for name, series in alone[group].data_vars.items():
            np.testing.assert_allclose(series, together[group][name], rtol=1e-6, err_msg=name)


@pytest.mark.slow
def test_a_gpu_does_more_in_each_turn_of_a_loop(monkeypatch):
    """And draws the same; here a CPU does as much."""
    x = np.random.default_rng(0).normal(size=(60, 2))
    model = pmg.mlp(x, np.abs(x[:, 0]), 3, noise=0.1, prior=None)
    less = pmg_sample(model, 5, chains=2, random_seed=4)
    asked = []

    def on_gpu(function, *arguments, cpu, gpu):
        asked.append(gpu)
        return function(gpu, *arguments)

    for module in (interweave_pieces, noncentred_scale):
        monkeypatch.setattr(module, "by_platform", on_gpu)
    more = pmg_sample(model, 5, chains=2, random_seed=4)
    assert {interweave_pieces.ROWS_AT_ONCE["gpu"], noncentred_scale.AT_ONCE["gpu"]} <= set(asked)
    np.testing.assert_allclose(w1(less), w1(more), rtol=1e-6)


@pytest.mark.cpu
@pytest.mark.parametrize("function", [jnp.linalg.cholesky, jnp.linalg.eigh, jnp.linalg.inv])
def test_batches_of_matrices_are_seen(function):
    """Two programs that factor them at once can wait for each other for ever."""
    batched, single = (jax.jit(function).lower(jnp.ones(shape)).as_text() for shape in ((3, 4, 4), (4, 4)))
    assert _factors_batches(batched)
    assert not _factors_batches(single)


@cache
def functions_by_pm_sample(interweave):
    model = pmg.mlp(X, Y, 3, noise=0.3, prior=None)
    with model:
        idata = pm.sample(
            5000, tune=1000, chains=1, random_seed=1, progressbar=False, var_names=WEIGHTS,
            step=pmg.GibbsNN(interweave=interweave, compile_kwargs={"mode": "AS_WRITTEN"}),
            compute_convergence_checks=False,
        )  # fmt: skip
    return functions(idata, model)


def functions(idata, model):
    """Series (chain, draw) of what can be compared."""
    found = pmg.function_space(idata, model, [[1.0, 0.0], [-1.0, 0.5]])
    return {
        "lp": idata["sample_stats"]["lp"].values.astype(float),
        **{f"{name} {i}": found[name].values[:, :, i].astype(float) for name in ("output", "norm") for i in range(2)},
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interweave", "precision"), [("pieces", "float32"), ("pieces", "float64"), ("langevin", "float64")]
)
def test_the_distribution_is_that_of_pm_sample(model, interweave, precision):
    step = pmg.GibbsNN(model=model, interweave=interweave)
    idata = pmg_sample(model, 2500, step, chains=4, tune=500, precision=precision, var_names=WEIGHTS)
    assert w1(idata).dtype == precision
    expected = functions_by_pm_sample(interweave)
    for name, found in functions(idata, model).items():
        for power in (1, 2):
            truth = expected[name] ** power
            mcse = truth.std() / np.sqrt(float(az.ess(truth, method="mean")))
            check_mean(found**power, truth.mean(), f"{name} to the power {power}", mcse)


def test_the_result_is_that_of_pm_sample(model):
    with model:
        pm.Deterministic("largest", pt.max(model["W2"]))
        one = pm.sample(
            5, tune=0, chains=2, cores=1, progressbar=False, compute_convergence_checks=False,
            step=pmg.GibbsNN(compile_kwargs={"mode": "AS_WRITTEN"}, **LEAN),
        )  # fmt: skip
    other = plain_sample(model, 5, var_names=[v.name for v in [*model.free_RVs, *model.deterministics]])
    for group in ("posterior", "sample_stats", "observed_data", "constant_data"):
        expected, found = one[group], other[group]
        assert set(expected.data_vars) - {"sampling_time"} <= set(found.data_vars)
        for name, variable in found.data_vars.items():
            assert variable.dims == expected[name].dims
            assert variable.dtype == expected[name].dtype
        assert all((found[c] == expected[c]).all() for c in expected.coords)
    posterior = other["posterior"]
    attrs = {"inference_library", "inference_library_version", "sampling_time", "tuning_steps", "precision", "devices"}
    assert set(posterior.attrs) >= attrs
    np.testing.assert_array_equal(posterior["largest"], posterior["W2"].max("hidden_2"))
    point = {v.name: posterior[v.name].values[1, -1] for v in model.free_RVs}
    logp = model.compile_logp(mode="AS_WRITTEN")(point)
    np.testing.assert_allclose(other["sample_stats"]["lp"].values[1, -1], logp, rtol=1e-8, atol=1e-6)


def test_var_names_and_start(regression):
    start = pmg.initial_values(regression, "prior", chains=2, random_seed=0)
    idata = plain_sample(regression, 3, initvals=start, var_names=["b1"])
    assert list(idata["posterior"].data_vars) == ["b1"]
    assert not np.allclose(idata["sample_stats"]["lp"][0], idata["sample_stats"]["lp"][1])


@pytest.mark.cpu
@pytest.mark.parametrize("moves", [LEAN, slow({})], ids=["plain", "all"])
def test_a_program_is_compiled_once(model, moves, monkeypatch):
    programs, run, compiled = [], Program.run, []  # of each compilation, its options
    monkeypatch.setattr(Program, "run", lambda self, *a, **k: (programs.append(self), run(self, *a, **k))[1])
    compile_ = jax.stages.Lowered.compile

    def watched(lowered, **options):
        compiled.append((options, lowered.as_text()))
        return compile_(lowered, **options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", watched)
    xla_options("cpu")
    compiled.clear()
    pmg_sample(model, 20, pmg.GibbsNN(model=model, **moves), tune=5)
    assert len(programs) > 3
    [(options, program)] = compiled
    assert options == {"compiler_options": xla_options("cpu", program)}
    assert moves or "exponential_minus_one" in program


def test_seeds_decide_and_the_length_of_calls_does_not(regression, monkeypatch):
    first, other = (w1(plain_sample(regression, random_seed=seed)) for seed in (1, 2))
    monkeypatch.setattr(chain_loop, "SECONDS_A_CALL", 0)
    again = w1(plain_sample(regression, random_seed=1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    assert not np.allclose(first[0], first[1])


def test_thinning(regression):
    every = w1(plain_sample(regression, 12))
    step = pmg.GibbsNN(model=regression, sweeps_per_draw=2, **LEAN)
    np.testing.assert_array_equal(w1(plain_sample(regression, 2, thin=3, step=step)), every[:, 5::6])


@pytest.mark.slow
def test_step_sizes_change_while_tuning_and_noise_falls():
    model = pmg.mlp(X, Y, 3, noise=0.01, prior=None)
    step = pmg.GibbsNN(model=model, interweave="langevin", anneal=1.0)
    calls = []
    run = Program.run

    def watch(program, count, **arguments):
        drawn = run(program, count, **arguments)
        calls.append((drawn.stats, float(program.chains[0][2][0]["log_step_W1"][0])))
        return drawn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "run", watch)
        patch.setattr(chain_loop, "SECONDS_A_CALL", 0)  # a call a draw
        pmg_sample(model, 10, step=step, tune=20)
    steps = [call[1] for call in calls]
    assert len(set(steps[:20])) > 5
    assert len(set(steps[19:])) == 1
    ratios = np.array([call[0]["noise_Z2"].mean() for call in calls])
    assert ((ratios > 0.3) & (ratios < 3)).all()


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"anneal": "auto", **LEAN}, 1000),
        slow({"anneal": None, **LEAN}, 0),
        slow({"anneal": None, "interweave": "langevin"}, 1000),
    ],
    ids=["annealed", "not annealed", "langevin"],
)
def test_tuning_by_default_is_what_the_step_asks_for(model, options, steps):
    idata = pmg_sample(model, 2, step=pmg.GibbsNN(model=model, **options), tune=None)
    assert idata["posterior"].attrs["tuning_steps"] == steps


def test_two_networks_in_one_model():
    with pm.Model() as model:
        names = []
        for i, y in enumerate((Y, -Y)):
            w, b = pm.Normal(f"w{i}", 0, 1, shape=2), pm.Normal(f"b{i}", 0, 1)
            pm.Normal(f"y{i}", X @ w + b, 0.3, observed=y)
            names.append([w, b])
        steps = [pmg.GibbsNN(vars) for vars in names]
    idata = pmg_sample(model, 2000, step=steps)
    gram = np.c_[X, np.ones(8)].T @ np.c_[X, np.ones(8)] / 0.09 + np.eye(3)
    mean = np.linalg.solve(gram, np.c_[X, np.ones(8)].T @ Y / 0.09)
    for i, sign in enumerate((1, -1)):
        for j in range(2):
            check_mean(idata["posterior"][f"w{i}"].values[..., j], sign * mean[j], f"w{i}")
    assert {"lp", "lp_1", "norm_w0", "norm_w1"} <= set(idata["sample_stats"].data_vars)


# Bad input


@in_python()
def test_steps_of_others_are_refused():
    with pm.Model(), pytest.raises(TypeError, match=r"found NUTS: use pm\.sample"):
        pmg.sample(5, step=pm.NUTS([pm.Normal("x")]))


def test_free_variables_without_a_step_are_refused(model):
    with model:
        pm.Poisson("count", 1.0)
    with pytest.raises(ValueError, match=r"No step moves the free variables \['count'\]"):
        pmg_sample(model)


def test_variables_with_two_steps_are_refused(model):
    step = pmg.GibbsNN(model=model)
    with pytest.raises(ValueError, match=r"More than one step moves.*W1"):
        pmg_sample(model, step=[step, step])


def test_steps_of_other_models_are_refused(model):
    with pytest.raises(ValueError, match="found a GibbsNN of another model"):
        pmg_sample(model, step=pmg.GibbsNN(model=pmg.mlp(X, Y, 2, noise=0.3, prior=None)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"draws": 0}, "draws must be a positive integer; found 0"),
        ({"chains": 1.5}, "chains must be a positive integer"),
        ({"thin": 0}, "thin must be"),
        ({"tune": -1}, "tune must be"),
        ({"precision": "float16"}, "precision must be 'float32' or 'float64'; found 'float16'"),
        ({"var_names": ["V"]}, r"var_names holds \['V'\]"),
        ({"var_names": []}, "var_names names nothing to record"),
        ({"shards": 2}, "shards=2 needs at least as many devices; found 1"),
        ({"devices": []}, "shards=1 needs at least as many devices; found 0"),
        ({"initvals": {"W1": np.full((3, 2), np.nan)}}, r"initvals\['W1'\] must be finite"),
    ],
)
def test_impossible_arguments_are_refused(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        pmg_sample(model, **arguments)


def test_a_callback_that_is_no_function_is_refused(model):
    with pytest.raises(TypeError, match="callback must be a function of a trace and a draw; found 1"):
        pmg_sample(model, callback=1)


def test_double_precision_of_a_single_model_is_refused():
    with pytensor.config.change_flags(floatX="float32"):
        model = pmg.mlp(X, Y, 3, noise=0.3, prior=None)
        with pytest.raises(ValueError, match="floatX='float64'"):
            pmg_sample(model, precision="float64")


def test_a_chain_that_leaves_the_numbers_stops(regression, monkeypatch):
    run, done = Program.run, []

    def broken(program, count, **arguments):
        drawn = run(program, count, **arguments)
        done.append(count)
        if len(done) == 3:
            drawn.stats["lp"][count // 2 :, 1] = np.nan
        return drawn

    monkeypatch.setattr(Program, "run", broken)
    with pytest.warns(UserWarning, match=r"lp is not finite in chains \[1\]"):
        idata = plain_sample(regression, 10_000)
    assert idata["posterior"].sizes["draw"] == sum(done[:2]) + done[2] // 2
    done[:] = [0, 0]
    with pytest.raises(FloatingPointError, match="lp is not finite"):
        plain_sample(regression, 10_000)


def test_data_are_checked_again(model):
    step = pmg.GibbsNN(model=model)
    model.set_data("X", np.full_like(X, np.nan))
    with pytest.raises(pmg.NetworkError, match="16 values that are NaN"):
        pmg_sample(model, step=step)


def test_changed_data_are_used(regression):
    step = pmg.GibbsNN(model=regression, **LEAN)
    regression.set_data("X", 2 * X)
    np.testing.assert_array_equal(w1(plain_sample(regression, step=step)), w1(plain_sample(regression)))


def test_jax_missing(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match=r"pymc-gibbsnn\[jax\]"):
        pmg_sample(model)


# Interrupts, progress, memory


def test_an_interrupt_returns_what_was_drawn(regression, monkeypatch):
    run, done = Program.run, []

    def interrupted(program, count, **arguments):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(count)
        return run(program, count, **arguments)

    monkeypatch.setattr(Program, "run", interrupted)
    idata = plain_sample(regression, 10_000)
    assert idata["posterior"].sizes["draw"] == sum(done) < 10_000
    with pytest.raises(KeyboardInterrupt):
        plain_sample(regression)


def test_a_notebook_without_widgets_is_told_once(regression, monkeypatch, recwarn):
    monkeypatch.setattr(rich.get_console(), "is_jupyter", True)
    monkeypatch.setattr("pymc_gibbsnn.drivers.progress.find_spec", lambda name: None)
    plain_sample(regression, 30, progressbar=True)
    [told] = [str(warning.message) for warning in recwarn if "ipywidgets" in str(warning.message)]
    assert told.startswith("The progress bar needs ipywidgets in a notebook: pip install")


def test_progress(regression, capsys):
    plain_sample(regression, 30, progressbar=True)
    shown = capsys.readouterr().out
    assert "30/30" in shown
    assert "lp" in shown


def test_more_draws_than_memory_holds(model, monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda: 10_000)
    with pytest.warns(UserWarning, match=r"GiB.*Z2.*var_names="):
        plain_sample(model, var_names=["W1", "Z2"])

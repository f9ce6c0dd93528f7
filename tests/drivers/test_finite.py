"""What becomes of a chain that leaves the finite numbers, or starts outside of them."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from pymc.sampling.parallel import ParallelSamplingError

import pymc_gibbsnn as pmg
from pymc_gibbsnn.drivers.step import GraphStep
from pymc_gibbsnn.samplers.transition import Transition
from tests.helpers import PYTHON, pm_sample

X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.maximum(X[:, 0], 0) + 0.1 * np.random.default_rng(1).normal(size=8)


@pytest.fixture
def model():
    return pmg.mlp(X, Y, 3, noise=0.3, prior=None)


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
        idata = pm_sample(model, draws=12, step=Counting(compile_kwargs=PYTHON), cores=cores)
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
            idata = pm_sample(model, draws=5, step=Counting(compile_kwargs=PYTHON), chains=1)
    np.testing.assert_array_equal(idata["posterior"]["x"].values, [[1, 2, 3, np.nan, np.nan]])


def test_a_parameter_out_of_its_range_is_no_matter_of_digits(model, monkeypatch):
    def fail(self, point):
        raise ParameterValueError("alpha > 0")

    monkeypatch.setattr(GraphStep, "_draw", fail)
    with pytest.raises(FloatingPointError, match=r"The first draw of a chain has failed: alpha > 0\.$"):
        pmg.GibbsNN(model=model).step(model.initial_point())


def test_where_a_noisy_network_gives_nan_lost_digits_are_named(model, monkeypatch):
    """Numba's factorisations give NaN where those of NumPy raise an error."""
    monkeypatch.setattr(GraphStep, "_draw", lambda self, point: (point, {"lp": np.nan}))
    step = pmg.GibbsNN(model=model)
    with pytest.raises(FloatingPointError, match=r"is nan\. Noise is lost to rounding .* take a larger sigma"):
        step.step(model.initial_point())


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
            pm_sample(model, step=step, initvals={"Z2": np.full((8, 3), start)}, cores=cores)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_data_too_large_are_refused():
    model = pmg.mlp(X, 1e300 * Y, 3, noise=0.3, prior=None)
    with pytest.raises(FloatingPointError, match=r"first draw of .*'y' is -inf; the largest number, in 'y', is"):
        pm_sample(model)


def test_noise_that_is_lost_to_rounding_is_named(model, monkeypatch):
    step = pmg.GibbsNN(model=model, compile_kwargs=PYTHON)

    def fail(point):
        raise np.linalg.LinAlgError("Matrix is not positive definite")

    monkeypatch.setattr(step, "_draw", fail)
    with pytest.raises(FloatingPointError, match=r"not positive definite. Noise is lost .* .* or standardise"):
        step.step(model.initial_point())

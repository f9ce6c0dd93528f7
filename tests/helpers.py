"""What the tests share: small networks, distributions by brute force, and one rule for statistical agreement."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.io import In
from pytensor.compile.mode import predefined_modes
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import random_generator_type
from scipy.signal import lfilter
from threadpoolctl import threadpool_info

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.backends.jax_backend import random_state
from pymc_gibbsnn.backends.modes import compilation_mode, uses_jax
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.networks.given import Given
from pymc_gibbsnn.networks.layers.dense import Dense
from pymc_gibbsnn.networks.reader import starting_point
from pymc_gibbsnn.networks.substitution import substitute

MODES = ["AS_WRITTEN", "NUMBA", "JAX"]  # NumPy and SciPy, Numba, JAX
PYTHON = {"mode": "AS_WRITTEN"}
QUIET = {"progressbar": False, "compute_convergence_checks": False}
LEAN = {"interweave": False, "scale_move": False}  # a sweep of few moves: it is compiled in a third of the time


def slow(*values, id=None):
    """A case of a parametrised test that is run with the slow tests."""
    return pytest.param(*values, id=id, marks=pytest.mark.slow)


def slow_but(quick, cases):
    """All cases, of which those that are not among the quick ones are run with the slow tests."""
    return [case if case in quick else slow(*case if isinstance(case, tuple) else [case]) for case in cases]


def in_turn(cases, modes=MODES):
    """Each case in each mode, the last value of a case; all but one of the modes of a case are slow, in turn."""
    cases = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [
        pytest.param(*case, mode, marks=[pytest.mark.slow] * (k != i % len(modes)))
        for i, case in enumerate(cases)
        for k, mode in enumerate(modes)
    ]


MOSTLY_PYTHON = [MODES[0], *map(slow, MODES[1:])]  # for what the cheap mode shows as well


@contextmanager
def in_python():
    """A decorator, or a context, in which graphs are evaluated in Python, as written, unless Numba or JAX is named.

    Where there are few draws, rewriting and compiling them, with Numba or a C compiler, takes far longer.
    """
    as_written = patch.dict(predefined_modes, {"FAST_COMPILE": predefined_modes["AS_WRITTEN"]})
    with as_written, pytensor.config.change_flags(mode="FAST_COMPILE", cxx=""):
        yield


def of_known_lengths(outputs):
    """Lengths of axes stand in the graph, as for the drivers that compile for JAX."""
    given = [v for v in ancestors(outputs) if isinstance(v, Given) and v.dtype.startswith("int")]
    return substitute(outputs, {v: pt.constant(v.get_value(), dtype=v.dtype) for v in given})


def compile_draw(build, mode: str = "AS_WRITTEN", seed: int = 0):
    """A function of no arguments that returns the draws of ``build(rng) -> (rng, *draws)``."""
    mode = with_our_kernels(compilation_mode(mode))
    rng = random_generator_type("rng")
    function = pytensor.function([In(rng, mutable=True)], list(build(rng)), mode=mode)
    function.trust_input = True
    state = [random_state(np.random.default_rng(seed), uses_jax(mode))]

    def draw():
        state[0], *draws = function(state[0])
        draws = [np.asarray(draw) for draw in draws]
        return draws[0] if len(draws) == 1 else draws

    return draw


@cache
def _compiled_rv(op, mode: str, types: tuple[tuple, ...]):
    """One compilation for all parameters of these data types and shapes."""
    mode = with_our_kernels(compilation_mode(mode))
    rng, parameters = random_generator_type("rng"), [pt.tensor(dtype=dtype, shape=shape) for dtype, shape in types]
    function = pytensor.function([In(rng, mutable=True), *parameters], draw(op, rng, *parameters)[1], mode=mode)
    function.trust_input = True
    return function, uses_jax(mode)


def draw_rv(op, parameters, mode: str = "AS_WRITTEN", seed: int = 0) -> np.ndarray:
    """One draw of a RandomVariable at numeric parameters; lengths of short vectors, such as tables, are known to it."""
    parameters = [np.asarray(x, "int64" if np.asarray(x).dtype.kind == "i" else "float64") for x in parameters]
    types = [(x.dtype.name, x.shape if x.ndim == 1 and 1 < x.size < 10 else (None,) * x.ndim) for x in parameters]
    function, jax = _compiled_rv(op, mode, tuple(types))
    return np.asarray(function(random_state(np.random.default_rng(seed), jax), *parameters))


def check_mean(draws: np.ndarray, truth: float, name: str = "mean", truth_mcse: float = 0.0, least_ess: int = 400):
    """Fail unless the draws (chain, draw) have a large enough ESS and their mean is within 5 MCSE."""
    draws = np.atleast_2d(draws)
    ess = float(az.ess(draws, method="mean"))
    mcse = np.hypot(float(draws.std()) / np.sqrt(ess), truth_mcse)
    assert ess > least_ess, f"{name}: ESS {ess:.0f} of {draws.size} draws; run longer"
    assert abs(draws.mean() - truth) < 5 * mcse, f"{name}: {draws.mean():.5g}, not {truth:.5g}; MCSE {mcse:.2g}"


def check_same_distribution(
    found: dict[str, np.ndarray], expected: dict[str, np.ndarray], powers: tuple[int, ...] = (1, 2)
):
    """Fail unless the powers of each quantity, (chain, draw), have the means of those that another sampler draws."""
    for name, theirs in expected.items():
        for power in powers:
            mcse = float((theirs**power).std()) / np.sqrt(float(az.ess(theirs**power, method="mean")))
            check_mean(found[name] ** power, (theirs**power).mean(), f"{name} to the power {power}", mcse)


def check_moments(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray):
    """Fail unless independent Gaussian draws (draw, d) have this mean and covariance within 5 standard errors."""
    n = len(draws)
    error = np.sqrt(np.diag(covariance) / n)
    assert (np.abs(draws.mean(0) - mean) < 5 * error).all(), (draws.mean(0), mean)
    found = np.cov(draws.T).reshape(covariance.shape)
    diagonal = np.diag(covariance)
    error = np.sqrt((np.outer(diagonal, diagonal) + covariance**2) / n)
    assert (np.abs(found - covariance) < 5 * error).all(), (found, covariance)


def threads_of_blas() -> set[int]:
    """How many threads the BLAS libraries of this process use now."""
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def dense(
    shape: tuple[int, int], has_bias: bool = False, precision=1.0, layout: str = "rows", bias_ndim: int = 1
) -> Dense:
    """A dense operator of this shape (d_out, d_in); its precision broadcasts to one row."""
    weights = pt.vector("W") if layout == "vector" else pt.matrix("W")
    bias = pt.tensor("b", dtype="float64", shape=(None,) * bias_ndim) if has_bias else None
    precision = np.asarray(precision, "float64")
    precision = pt.constant(precision if precision.ndim else np.full((1, shape[1] + has_bias), precision))
    return Dense(weights=weights, bias=bias, layout=layout, shape=shape, precision=precision)


def value(expression: Variable) -> np.ndarray:
    """Evaluate an expression of constants."""
    return np.asarray(pytensor.function([], expression, mode="AS_WRITTEN")())


def random_point(model: pm.Model, seed: int) -> dict[str, np.ndarray]:
    """A point of a model far from any optimum."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=x.shape) for name, x in starting_point(model).items()}


def pm_sample(model: pm.Model, draws: int = 20, step=None, compile_kwargs: dict = PYTHON, **kwargs):
    """A short run of ``pm.sample``, by a lean Gibbs sampler unless another step is given."""
    with model:
        step = step or pmg.GibbsNN(compile_kwargs=compile_kwargs, **LEAN)
        return pm.sample(draws, step=step, **({"tune": 0, "chains": 2, "cores": 1, "random_seed": 7} | QUIET | kwargs))


def pmg_sample(model: pm.Model, draws: int = 20, step=None, **kwargs):
    """A short run of ``pmg.sample``, by the Gibbs sampler unless another step is given."""
    with model:
        step = step or pmg.GibbsNN()
        return pmg.sample(
            draws, step=step, **({"tune": 0, "chains": 2, "random_seed": 7, "progressbar": False} | kwargs)
        )


def autoregression(rng: np.random.Generator, rho: float, n: int) -> np.ndarray:
    """A stationary Gaussian series of mean 0 and variance 1."""
    noise = rng.normal(size=n)
    noise[1:] *= np.sqrt(1 - rho**2)
    return lfilter([1], [1, -rho], noise)

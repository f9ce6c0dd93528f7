"""The scales of rows, as a function that users write: its values and derivatives, and what it refuses."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.forms import is_elemwise
from pymc_gibbsnn.networks.scales_of_rows import RowScale
from tests.helpers import MODES

G = np.linspace(-40, 40, 17)
NUMBERS = {
    "as written by default": {},
    "a line": {"slope": -0.7, "intercept": 0.4},
    "a floor": {"slope": 2, "floor": 0.3},
    "a span": {"intercept": np.log(3), "span": 5.0},
    "both": {"slope": 0.5, "intercept": -1, "floor": np.float32(0.25), "span": np.array(10)},
}


def formula(g, slope=1.0, intercept=0.0, floor=0.0, span=np.inf):
    return np.sqrt(floor + 1 / (np.exp(-(slope * g + intercept)) + 1 / span))


@pytest.mark.parametrize("mode", [*MODES, "FAST_RUN", "AS_WRITTEN"])
@pytest.mark.parametrize("numbers", NUMBERS.values(), ids=NUMBERS)
def test_values_and_derivatives(numbers, mode):
    g = pt.vector("g", dtype="float64")
    scale = pmg.row_scale(g, **numbers)
    derivative = pytensor.grad(scale.sum(), g)
    found = pytensor.function([g], [scale, derivative], mode=mode)(G)
    np.testing.assert_allclose(found[0], formula(G, **numbers), rtol=1e-12)
    h = 1e-5
    expected = (formula(G + h, **numbers) - formula(G - h, **numbers)) / (2 * h)
    np.testing.assert_allclose(found[1], expected, rtol=1e-6, atol=1e-9)


def test_what_is_compiled_has_no_marks():
    g = pt.matrix("g")
    scale = pmg.row_scale(g, floor=0.1, span=10)
    assert scale.type == g.type
    assert is_elemwise(scale, RowScale)
    assert "RowScale" not in str(pytensor.function([g], scale, mode="FAST_COMPILE").maker.fgraph)


@pytest.mark.parametrize(("given", "dtype"), [("float32", "float32"), ("float64", "float64"), ("int8", "float32")])
def test_the_precision_is_that_of_the_latent(given, dtype):
    with pytensor.config.change_flags(floatX="float32"):
        assert pmg.row_scale(pt.vector(dtype=given), 0.5, 1, 0.1, 10).dtype == dtype


@pytest.mark.parametrize(
    ("numbers", "error", "message"),
    [
        ({"slope": 0}, ValueError, "slope must be a known, finite number other than 0, .* found 0"),
        ({"slope": np.inf}, ValueError, "slope must be .* found inf"),
        ({"intercept": np.nan}, ValueError, "intercept must be a known, finite number, .* found nan"),
        ({"floor": -0.1}, ValueError, "floor must be a known, finite number of at least 0, .* found -0.1"),
        ({"floor": np.inf}, ValueError, "floor must be .* found inf"),
        ({"span": 0}, ValueError, "span must be a known, positive number or infinity, .* found 0"),
        ({"span": -np.inf}, ValueError, "span must be .* found -inf"),
        ({"span": np.nan}, ValueError, "span must be .* found nan"),
        ({"span": None}, TypeError, "span must be .* found None"),
        ({"floor": "low"}, TypeError, "floor must be .* found 'low'"),
        ({"slope": np.ones(3)}, TypeError, "slope must be .* found "),
        ({"slope": pt.scalar("a")}, TypeError, r"slope must be .* before the scale, as in s \* pmg.row_scale\(G\); f"),
    ],
)
def test_refused(numbers, error, message):
    with pytest.raises(error, match=message):
        pmg.row_scale(G, **numbers)


@pytest.mark.slow
def test_nuts_samples_it():
    """Of a regression whose noise is known but for a number."""
    rng = np.random.default_rng(0)
    g = rng.normal(size=400)
    y = np.sqrt(0.1 + np.exp(g + 1)) * rng.normal(size=400)
    with pm.Model():
        level = pm.Normal("level", 0, 2)
        pm.Normal("y", 0, pmg.row_scale(g + level, floor=0.1), observed=y)
        idata = pm.sample(200, tune=300, chains=1, progressbar=False, random_seed=1, compute_convergence_checks=False)
    assert abs(float(idata.posterior["level"].mean()) - 1) < 0.3
    assert int(idata.sample_stats["diverging"].sum()) == 0

"""The logarithm of the normal distribution function, far into its tails, in each backend and precision."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import log_ndtr

from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.random.log_normal_cdf import log_normal_cdf
from tests.helpers import MODES


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("mode", MODES)
def test_log_normal_cdf(mode, dtype):
    points = np.append(np.linspace(-60, 10, 3001), [-1e3, -1e8, 1e8, np.inf]).astype(dtype)
    x = pt.vector("x", dtype=dtype)
    with pytensor.config.change_flags(floatX=dtype):
        function = pytensor.function([x], log_normal_cdf(x), mode=with_our_kernels(compilation_mode(mode)))
        found = np.asarray(function(points))
    expected = log_ndtr(points.astype("float64"))
    assert found.dtype == dtype
    error = np.abs(found - expected) / np.maximum(1, np.abs(expected))
    assert error.max() < 40 * np.finfo(dtype).eps

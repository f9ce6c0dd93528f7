"""The likelihood with the readout integrated out, beside that of the dense covariance."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import multivariate_normal

from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.targets.marginal import Marginal


@pytest.mark.parametrize(("dtype", "error"), [("float64", 1e-8), ("float32", 0.02)])
@pytest.mark.parametrize("wide", [False, True])
def test_digits_at_small_noise(dtype, error, wide):
    """The squares that the fit leaves are 1e4 times smaller than those of the data."""
    n, h, noise = (400, 20, 1e-3) if not wide else (40, 60, 0.3)
    rng = np.random.default_rng(0)
    features = rng.normal(size=(n, h)).astype(dtype)
    y = (features @ rng.normal(size=(h, 1)) + noise**0.5 * rng.normal(size=(n, 1))).astype(dtype)
    psi, r, variance = pt.matrix(dtype=dtype), pt.matrix(dtype=dtype), pt.scalar(dtype=dtype)
    marginal = Marginal([psi], [h], r, variance, (r.shape[0], r.shape[1]), wide)
    found = pytensor.function([psi, r, variance], marginal.log_likelihood, mode=compilation_mode("NUMBA"))
    psi, y, noise = features.astype(float), y.astype(float), float(np.asarray(noise, dtype))
    expected = multivariate_normal(np.zeros(n), noise * np.eye(n) + psi @ psi.T).logpdf(y[:, 0])
    np.testing.assert_allclose(found(features, y.astype(dtype), np.asarray(noise, dtype)), expected, rtol=0, atol=error)

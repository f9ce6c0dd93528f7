"""What differs between the versions that the package runs on."""

import warnings

import numpy as np
import pymc as pm

from pymc_gibbsnn import _compat


def test_fewer_draws_than_chains_are_no_reason_to_warn():
    """The calls of a run may be short."""
    with pm.Model() as model:
        pm.Normal("u")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = _compat.dataset(model, {"u": np.zeros((4, 1))}, 5)
    assert dict(found.sizes) == {"chain": 4, "draw": 1}
    assert found["draw"] == 5

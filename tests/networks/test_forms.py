"""Numbers that are computed while a network is read."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import gammaln

from pymc_gibbsnn.networks.forms import evaluate


@pytest.mark.parametrize(("function", "expected"), [(pt.sqrt, np.sqrt), (pt.exp, np.exp), (pt.gammaln, gammaln)])
def test_numbers_have_the_precision_of_their_types(function, expected):
    """NumPy computes functions of small integers in half precision, unless it is told another one."""
    for number in (3, 7, 12):
        found = evaluate(function(pt.constant(number)))
        assert found.dtype in ("float32", "float64")
        assert found == pytest.approx(expected(float(number)), rel=1e-6)


def test_what_is_computed_shares_no_memory_with_data():
    data = pytensor.shared(np.arange(6.0).reshape(2, 3))
    found = evaluate(data.T)
    assert found.flags.c_contiguous
    assert not np.shares_memory(found, data.get_value(borrow=True))

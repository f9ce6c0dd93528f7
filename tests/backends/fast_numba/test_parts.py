"""Functions that are compiled as parts of others work as if they had been compiled on their own."""

import numba
import numpy as np
import pytest

from pymc_gibbsnn.backends.fast_numba.parts import in_parts
from pymc_gibbsnn.networks.likelihoods.bernoulli import BernoulliLikelihood

COUNTS = np.arange(4.0)
KERNEL = BernoulliLikelihood.kernel  # it passes a function on to functions of its own


def machine_code(function) -> list[bool]:
    return [overload.library.has_machine_code for overload in function.overloads.values()]


@pytest.fixture
def functions():
    @numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
    def inner(x):
        if x[0] < 0:
            raise ValueError("negative")
        return (x * COUNTS).sum()

    @numba.njit
    def outer(x):
        return 1 + inner(x)

    with in_parts():
        outer.compile((numba.float64[::1],))
    return inner, outer


def test_only_what_python_calls_has_machine_code(functions):
    inner, outer = functions
    assert machine_code(inner) == [False]
    assert machine_code(outer) == [True]
    assert outer(np.ones(4)) == 7


def test_a_part_raises(functions):
    _, outer = functions
    with pytest.raises(ValueError, match="negative"):
        outer(-np.ones(4))


def test_a_part_can_be_called_by_its_address_and_be_a_part_of_other_code(functions):
    inner, _ = functions
    [overload] = inner.overloads.values()
    assert overload.library.get_pointer_to_function(overload.fndesc.llvm_func_name) > 0
    assert machine_code(inner) == [True]
    assert numba.njit(lambda x: 2 * inner(x))(np.ones(4)) == 12


def test_a_function_that_was_a_part_can_be_called_from_python():
    inner = numba.njit(lambda x: x + 1)
    with in_parts():
        assert numba.njit(lambda x: 2 * inner(x))(3) == 8
    assert inner(3) == 4


def test_code_that_needs_no_address_once_it_is_optimised_can_be_kept_on_disk():
    function = numba.njit(lambda z, y, scratch: KERNEL(z, y, scratch))
    with in_parts():
        function.compile((numba.float64[:, ::1],) * 3)
    [overload] = function.overloads.values()
    overload.library.make_machine_code()
    assert not overload.library.has_dynamic_globals

"""Files of Numba's cache that are empty or cut short: deleted, with a warning that names them, and made anew."""

import uuid
import warnings
from pathlib import Path

import pytest
from numba import float64
from pytensor.link.numba.cache import NUMBA_CACHE_PATH, compile_numba_function_src
from pytensor.link.numba.dispatch.basic import numba_njit

import pymc_gibbsnn.backends.numba_cache  # noqa: F401  which is what is tested
from pymc_gibbsnn.backends.fast_numba.calls import cached

TOO_LONG = b"\x8e" + (2**62).to_bytes(8, "little")  # a pickle of more bytes than any machine has, a MemoryError


def of_ours(key):
    return cached(numba_njit(lambda x: x + 1, final_function=True), key)


def of_pytensor(key):
    function = compile_numba_function_src("def plus_one(x): return x + 1", "plus_one", {"__name__": "m"}, cache_key=key)
    return numba_njit(function, final_function=True, cache=True)


def compiled_from_disk(function) -> bool:
    function.compile((float64,))
    assert function(2.0) == 3
    return sum(function.stats.cache_hits.values()) > 0


@pytest.fixture
def key():
    key = uuid.uuid4().hex
    yield key
    for path in files_of(key):
        path.unlink()


def files_of(key) -> list[Path]:
    return sorted(NUMBA_CACHE_PATH.glob(f"*{key}*"))


@pytest.mark.parametrize("make", [of_ours, of_pytensor])
def test_damaged_files_are_deleted_and_made_anew(key, make):
    assert not compiled_from_disk(make(key))
    data, index = files_of(key)
    assert (data.suffix, index.suffix) == (".nbc", ".nbi")
    for damaged in (data, index):
        whole = damaged.read_bytes()
        for left in (b"", whole[:10], whole[:-10], b"no pickle", TOO_LONG):
            damaged.write_bytes(left)
            with pytest.warns(UserWarning, match=f"{damaged.name} of Numba's cache is damaged"):
                assert not compiled_from_disk(make(key))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled_from_disk(make(key))

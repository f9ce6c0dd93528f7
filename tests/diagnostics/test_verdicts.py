"""Verdicts in sentences."""

import re

import numpy as np
import pytest

from pymc_gibbsnn.diagnostics.thermalisation import _judge
from tests.helpers import autoregression


@pytest.mark.parametrize(
    ("shift", "rho", "drop", "sentence"),
    [
        (0.0, 0.5, 0, "thermalised from the first sweep on; over the second half .* 99% interval .* within -1 to 1"),
        (0.0, 0.5, 600, "thermalised from sweep 1,200 on; over the last quarter .* 99% interval .* within -1 to 1"),
        (
            50.0,
            0.5,
            0,
            "not thermalised; .* 52 standard deviations above .* equilibrium differ by at most 0.35",
        ),
        (50.0, 0.99, 0, "undecided; .* is worth .* independent draws, and a verdict takes 20. Run longer"),
        (
            0.9,
            0.9,
            0,
            "undecided; .* no more than the .* in equilibrium, but .* not within -1 to 1. Run longer",
        ),
    ],
)
def test_verdicts_in_sentences(shift, rho, drop, sentence):
    rng = np.random.default_rng(0)
    informed, other = autoregression(rng, rho, 1000), shift + autoregression(rng, rho, 1000)
    other[:drop] += 50
    found = _judge({"informed": informed, "zero": other}, rng.normal(size=(2, 1000, 3)), None, 50, 2)
    words = found.attrs["verdict"]
    assert re.fullmatch(f"zero: {sentence}.", words), words
    assert "e+" not in words
    assert "±" not in words

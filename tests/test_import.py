"""What ``import pymc_gibbsnn`` brings with it, and what it leaves to the functions that need it."""

import subprocess
import sys

import numpy as np
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn import plots

HEAVY = ["arviz", "jax", "matplotlib", "scipy.cluster", "scipy.stats", "sklearn", "zarr"]


def test_what_is_used_loads_nothing_heavy_that_pymc_has_not_loaded():
    """PyMC before 6 imports ArviZ, and with it Matplotlib and Zarr, itself."""
    code = "import sys, pymc; before = {*sys.modules}; from pymc_gibbsnn import *; print(*{*sys.modules} - before)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "pymc_gibbsnn" in loaded
    assert not {*HEAVY} & {*loaded}


def test_names_are_imported_when_they_are_used():
    code = "import sys, pymc_gibbsnn as pmg; print('pymc' in sys.modules); pmg.mlp; print('pymc' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found == ["False", "True"]


def test_all_public_names_are_found():
    assert {*pmg.__all__} <= {*dir(pmg)}
    for name in pmg.__all__:
        assert getattr(pmg, name) is not None
    with pytest.raises(AttributeError, match="Gibbs"):
        pmg.Gibbs  # noqa: B018
    assert isinstance(pmg.__version__, str)


def test_figures_and_scores_are_at_hand():
    for name in plots.__all__:
        assert getattr(pmg, name) is getattr(plots, name)
    assert pmg.scoring.rmse(np.zeros((1, 2, 3)), np.ones(3)) == 1
    assert {*plots.__all__, "scoring"} <= {*pmg.__all__}


def test_figures_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"pip install 'pymc-gibbsnn\[plots\]'"):
        pmg.plot_predictive_band(np.zeros((1, 2, 3)), np.zeros(3))

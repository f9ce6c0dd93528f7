"""Where a private name of Numba is missing, or the fast linker is wrong, PyTensor's own linker takes its place."""

import os
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor.elemwise import Elemwise

from pymc_gibbsnn.backends import fast_numba
from pymc_gibbsnn.backends.fast_numba import linker
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from tests.helpers import slow
from tests.test_private_names import names_of_others

FOLDER = Path(fast_numba.__file__).parent
NAMES = sorted(names_of_others([path.read_text() for path in FOLDER.glob("*.py")]))

WITHOUT_A_NAME = """
import os
import sys
from ast import literal_eval
import warnings
from importlib.machinery import PathFinder, SourceFileLoader
from re import sub
from uuid import uuid4

import llvmlite
import numpy as np
import pymc as pm
import pymc_gibbsnn as pmg
import pytensor
import pytensor.tensor as pt
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels

what, *names = sys.argv[1:]

class Loader(SourceFileLoader):
    def get_code(self, fullname):
        source = self.get_source(fullname)
        return compile(sub(rf"\\b{name}\\b", f"{name}_of_another_release", source), self.path, "exec")

class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if not name.startswith("pymc_gibbsnn.backends.fast_numba."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        spec.loader = Loader(name, spec.origin)
        return spec

def function():
    x, y = pt.matrix("x"), pt.matrix("y")
    outputs = [pt.exp(x @ y).sum(axis=0), pt.linalg.cholesky(x @ x.T)[1:, 0]]
    f = pytensor.function([x, y], outputs, mode=with_our_kernels(compilation_mode("NUMBA")))
    for _ in range(2):
        a, b = np.random.default_rng(1).normal(size=(2, 2, 2))
        expected = [np.exp(a @ b).sum(axis=0), np.linalg.cholesky(a @ a.T)[1:, 0]]
        for found, wanted in zip(f(a, b), expected, strict=True):
            np.testing.assert_allclose(found, wanted)

def fit():
    with pmg.mlp(np.arange(12.0).reshape(6, 2) / 12, np.arange(6.0), 2):
        how = {"chains": 1, "var_names": ["W1"], "progressbar": False, "compute_convergence_checks": False}
        idata = pm.sample(5, tune=5, step=pmg.GibbsNN(anneal=None), **how)
    assert np.isfinite(idata["posterior"]["W1"].values).all()

sys.meta_path.insert(0, Finder)
for name in names:
    if os.fork() == 0:  # each in a process of its own, in which nothing of the folder is imported yet
        llvmlite.__version__ = str(uuid4())  # so that nothing is found on disk
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            {"function": function, "fit": fit}[what]()
        print(repr((name, [str(w.message) for w in caught if "fast linker" in str(w.message)])), flush=True)
        os._exit(0)
    os.wait()
"""


def warnings_without(what: str, *names: str) -> dict[str, list[str]]:
    command = [sys.executable, "-c", WITHOUT_A_NAME, what, *names]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(literal_eval(line) for line in printed.splitlines() if line.startswith("("))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize(("what", "names"), [slow("function", NAMES[:1]), slow("function", NAMES), slow("fit", NAMES)])
def test_without_a_private_name_pytensor_compiles(what, names):
    """A function is right and a fit goes on, and the user is told once, of whichever name is missing."""
    found = warnings_without(what, *names)
    assert [*found] == names
    assert {len(messages) for messages in found.values()} == {1}


@pytest.fixture
def untried(monkeypatch):
    """The state of the package before the linker was tried."""
    monkeypatch.setattr(fast_numba, "_passes", None)
    monkeypatch.delenv("PYMC_GIBBSNN_LINKER", raising=False)


def test_a_linker_that_is_wrong_is_given_up(untried, monkeypatch):
    double = numba_njit(lambda *x: 2 * x[0])
    monkeypatch.setitem(linker.OURS, Elemwise, lambda op, node: (double, "double"))
    with pytest.warns(UserWarning, match="PyTensor's own linker takes its place"):
        assert type(fast_numba.fastest(NumbaLinker())) is NumbaLinker
    assert type(fast_numba.fastest(NumbaLinker())) is NumbaLinker  # without a second warning


@pytest.mark.parametrize("name", ["_function_and_key", "in_parts"])
def test_what_cannot_be_compiled_later_is_compiled_by_pytensor(name, untried, monkeypatch):
    """By a linker that has passed its test: where the graph is read, and where its kernels are compiled."""
    fast_numba.fastest(NumbaLinker())
    monkeypatch.setattr(linker, name, missing(name))
    with pytest.warns(UserWarning, match=f"'{name}' is gone"):
        found = square_of_sum(np.ones((2, 3)))
    np.testing.assert_array_equal(found, [4, 4, 4])
    assert not fast_numba._passes


def square_of_sum(value):
    x = pt.matrix("x")
    return pytensor.function([x], pt.sqr(x.sum(axis=0)), mode=with_our_kernels(compilation_mode("NUMBA")))(value)


def missing(name):
    def raises(*_, **__):
        raise AttributeError(f"'{name}' is gone")

    return raises


def test_single_precision_is_no_reason_to_give_up(untried):
    with pytensor.config.change_flags(floatX="float32"):
        assert isinstance(fast_numba.fastest(NumbaLinker()), linker.KernelLinker)


def test_an_error_of_the_graph_itself_is_no_reason_to_give_up(untried):
    x, y = pt.matrix("x"), pt.vector("y")
    f = pytensor.function([x, y], x.sum(axis=1) + y, mode=with_our_kernels(compilation_mode("NUMBA")))
    with pytest.raises(ValueError, match=r"[Ii]ncompatible|length|shape"):
        f(np.ones((2, 3)), np.ones(3))
    assert fast_numba._passes


def test_the_linker_can_be_chosen(untried, monkeypatch):
    assert isinstance(fast_numba.fastest(NumbaLinker()), linker.KernelLinker)
    monkeypatch.setenv("PYMC_GIBBSNN_LINKER", "pytensor")
    assert type(fast_numba.fastest(NumbaLinker())) is NumbaLinker
    monkeypatch.setenv("PYMC_GIBBSNN_LINKER", "fastest")
    with pytest.raises(ValueError, match=r"PYMC_GIBBSNN_LINKER must be one of \['fast', 'pytensor'\]; found 'fastest'"):
        fast_numba.fastest(NumbaLinker())

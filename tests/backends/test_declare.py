"""The key under which compiled code is kept: it follows the sources that a kernel calls."""

import pytest

from pymc_gibbsnn.backends import declare

SOURCES = {
    "random/density.py": "def kernel():\n    from pymc_gibbsnn.networks.formula import term\n    return term()\n",
    "networks/formula.py": "import pymc_gibbsnn.backends.maths as maths\ndef term():\n    return maths.exp(1)\n",
    "backends/maths.py": "from pymc_gibbsnn.random import density  # a circle\ndef exp(x):\n    return x\n",
    "networks/other.py": "def unused():\n    return 1\n",
}


@pytest.fixture
def root(tmp_path):
    for name, source in SOURCES.items():
        path = tmp_path / "pymc_gibbsnn" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return tmp_path


@pytest.mark.parametrize("name", SOURCES)
def test_a_key_changes_with_the_sources_that_a_kernel_calls_and_with_no_other(root, name):
    before = declare.key_of_sources("pymc_gibbsnn.random.density", root)
    assert declare.key_of_sources("pymc_gibbsnn.random.density", root) == before
    (root / "pymc_gibbsnn" / name).write_text(SOURCES[name].replace("return", "x = 2; return"))
    assert (declare.key_of_sources("pymc_gibbsnn.random.density", root) != before) == (name != "networks/other.py")


def test_the_sweep_of_networks_depends_on_the_likelihoods_and_on_vector_maths(monkeypatch):
    module, path_of = "pymc_gibbsnn.samplers.fnbg_network", declare._path
    read = []
    monkeypatch.setattr(declare, "_path", lambda name, root: read.append(name) or path_of(name, root))
    declare.key_of_sources(module, declare.ROOT)
    needed = {"samplers.fnbg_kernels", "networks.likelihoods.poisson", "backends.vector_math", "backends.declare"}
    assert needed <= {name.removeprefix("pymc_gibbsnn.") for name in read}

import gc
import os
import signal

# A program in the background of a shell ignores Ctrl-C, which some tests are about.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Small matrices: threads of BLAS cost more than they do.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# Graphs are many small objects that refer to each other: looking for garbage less often takes half the time.
gc.set_threshold(20_000, 50, 50)

# Many tests run the same JAX program: compile it once (pytest_configure says where it is kept).
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

# And in half the time: each runs for a moment.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

# Programs of JAX need not know where each operation was written.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

# PyTensor notes for each variable where it was made, for its error messages: a fifth of the time a graph takes.
flags = os.environ.get("PYTENSOR_FLAGS", "").split(",")
os.environ["PYTENSOR_FLAGS"] = ",".join(["traceback__limit=0", *filter(None, flags)])

import matplotlib  # noqa: E402

matplotlib.use("Agg")

import pytest  # noqa: E402
from pytensor.compile.mode import Mode, register_mode  # noqa: E402
from pytensor.link.c.op import ExternalCOp  # noqa: E402
from pytensor.link.vm import VMLinker  # noqa: E402
from pytensor.scan import op  # noqa: E402

# Most graphs of tests are evaluated a few times, as they are written: to rewrite them would take far longer.
IN_PYTHON = VMLinker(use_cloop=False, c_thunks=False)
register_mode("AS_WRITTEN", Mode(IN_PYTHON, "merge"))

# What a scan repeats is compiled in C even then, in a hundred files of C++, before PyTensor 3 with all rewrites, too.
if hasattr(op, "link_only_mode"):
    op.Scan.link_mode = lambda self, impl: op.link_only_mode(IN_PYTHON)
else:
    op.Mode = lambda linker, optimizer: Mode(IN_PYTHON, "merge")

# Operations such as DimShuffle, of which graphs have thousands, read their code for C from disk whenever one is made.
load_c_code, loaded = ExternalCOp.load_c_code, {}


def load_once(self, files):
    key = type(self), tuple(files)
    if key not in loaded:
        load_c_code(self, key[1])
        loaded[key] = self.func_codes, self.code_sections
    codes, sections = loaded[key]
    self.func_codes, self.code_sections = [*codes], {**sections}


ExternalCOp.load_c_code = load_once


def pytest_addoption(parser):
    parser.addoption("--part", metavar="K/N", help="of the tests that are chosen, run every N-th one, from number K on")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Several runs that take a part each run all of them."""
    if part := config.getoption("part"):
        first, count = map(int, part.split("/"))
        config.hook.pytest_deselected(items=[item for i, item in enumerate(items) if i % count != first % count])
        items[:] = items[first % count :: count]


def pytest_configure(config):
    """JAX keeps what it compiles where pytest keeps what it remembers: not in a folder that others may write to."""
    if config.pluginmanager.hasplugin("cacheprovider"):
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("jax")))


def pytest_collection_finish():
    """What has been imported stays: the garbage collector need not look at it again."""
    gc.freeze()


def pytest_runtest_setup(item):
    """Where JAX finds a GPU, tests of what it does on CPUs alone have nothing to test."""
    if item.get_closest_marker("cpu"):
        import jax

        if jax.default_backend() != "cpu":
            pytest.skip("JAX computes on another device than a CPU")


def pytest_sessionfinish():
    """Nor, in the ten collections with which pytest ends, at what the tests have left."""
    gc.freeze()

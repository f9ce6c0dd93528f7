"""What each piece of the package that only saves time is worth: without it, how long compiling and sweeping take.

Each row is two processes without one piece, of which the first compiles with nothing on disk. Both build the same
networks, and the second one times their sweeps. "all" leaves nothing out; "PyTensor alone" leaves out the fast linker
and all rewrites of graphs. Seconds to compile are of the processor; milliseconds of a sweep are medians, on as many
threads as ``OMP_NUM_THREADS`` says. Pieces of JAX are timed in ``pymc_gibbsnn.sample``, one chain. Run::

    OMP_NUM_THREADS=1 python benchmarks/pieces.py [--only "the fast linker" ...] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

NETWORKS = {  # rows, inputs, hidden units, arguments of pmg.mlp
    "first network": (100, 3, 4, {}),
    "two layers": (100, 3, [4, 4], {}),
    "200 rows, 5-3-1": (200, 5, 3, {}),
    "2,084 rows, 50-10-1": (2084, 50, 10, {}),
    "20,000 rows, 20-20-1": (20_000, 20, 20, {}),
    "2,000 rows, 784-10-10, labels": (2000, 784, 10, {"classes": 10, "likelihood": "probit"}),
}
COMPILED = "first network", "two layers"
JAX = {  # rows, inputs, hidden units, precision, arguments of pmg.mlp
    "JAX, 200 rows, 5-3-1": (200, 5, 3, "float64", {}),
    "JAX, 200 rows, 5-3-1, Gaussian": (200, 5, 3, "float64", {"likelihood": "normal"}),
    "JAX, 2,084 rows, 50-10-1": (2084, 50, 10, "float64", {}),
    "JAX, 2,084 rows, 50-10-1, single": (2084, 50, 10, "float32", {}),
}


def without_threads() -> None:
    from pymc_gibbsnn.drivers import step

    step.take_threads_of_blas = lambda most=None: None  # one thread, as before it is called
    step.without_threads_of_blas = lambda rows, multiplications: nullcontext()


def without_tall_products() -> None:
    from pytensor.link.numba.dispatch.basic import numba_njit

    from pymc_gibbsnn.backends import numba_kernels

    numba_kernels.is_tall = numba_njit(lambda x, columns: False)


def without_parts() -> None:
    from pymc_gibbsnn.backends.fast_numba import calls, linker

    calls.in_parts = linker.in_parts = nullcontext
    del calls._CacheOfKernels.save_overload


def without_rewrites(*names: str) -> Callable[[], None]:
    def leave_out() -> None:
        from pytensor.graph.rewriting.basic import node_rewriter
        from pytensor.tensor.math import Dot

        from pymc_gibbsnn.backends import numba_kernels

        for name in names:
            setattr(numba_kernels, name, node_rewriter([Dot])(lambda fgraph, node: None))

    return leave_out


def without_the_linker() -> None:
    os.environ["PYMC_GIBBSNN_LINKER"] = "pytensor"


def with_pytensor_alone() -> None:
    from pymc_gibbsnn.drivers import step

    step.with_our_kernels = lambda mode: mode


def without_our_hash() -> None:
    """Keys are JAX's own. Gamma variables are then drawn by the same function of JAX."""
    from pymc_gibbsnn.drivers import jax_transition

    jax_transition.KEYS = "threefry2x32"


def without_our_normals() -> None:
    from pymc_gibbsnn.random import _jax_normals

    _jax_normals.LEAST = 2**62


PIECES = {
    "all": lambda: None,
    "PyTensor alone": with_pytensor_alone,
    "the fast linker": without_the_linker,
    "the fast linker: parts": without_parts,
    "matrix products": without_rewrites("_use_product"),
    "sums of matrices": without_rewrites("_use_matrix_sum"),
    "the error function": without_rewrites("_use_error_function"),
    "direct draws": without_rewrites("_use_sampler"),
    "generators in place": without_rewrites("_update_generator"),
    "lengths of broadcasts": without_rewrites("_choose_length"),
    "tall products": without_tall_products,
    "threads": without_threads,
}
JAX_PIECES = {
    "all": lambda: None,
    "hashes without loops": without_our_hash,
    "pairs of normals": without_our_normals,
}


def measure(piece: str, sweeps: int, what: str) -> dict[str, float]:
    """Processor seconds until a first draw, and milliseconds of a sweep, without a piece, in this process."""
    import numpy as np

    import pymc_gibbsnn as pmg

    leave_out, found = (JAX_PIECES if what == "jax" else PIECES)[piece], {}
    leave_out()
    rng = np.random.default_rng(0)
    for name, (n, d, hidden, *precision, how) in (JAX if what == "jax" else NETWORKS).items():
        if what == "compile" and name not in COMPILED:
            continue
        how = dict(how)
        X, classes = rng.normal(size=(n, d)), how.pop("classes", None)
        y = X[:, 0] ** 2 + 0.1 * rng.normal(size=n) if classes is None else rng.integers(classes, size=n)
        with pmg.mlp(X, y, hidden, **how) as model:
            if what == "jax":
                found[name] = _sweep_in_jax(sweeps, *precision)
                continue
            start = time.process_time()
            step = pmg.GibbsNN(sweeps_per_draw=1, anneal=None)
            point = step.step(model.initial_point())[0]
            seconds = time.process_time() - start
            if what == "compile":
                found[name] = seconds
            else:
                found[name] = 1000 * _median_of_sweeps(step, point, sweeps)
    return found


def _median_of_sweeps(step, point, sweeps: int) -> float:
    seconds = []
    for _ in range(sweeps):
        start = time.perf_counter()
        point = step.step(point)[0]
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[sweeps // 2]


def _sweep_in_jax(sweeps: int, precision: str) -> float:
    import pymc_gibbsnn as pmg

    seconds = []
    for _ in range(5):
        idata = pmg.sample(
            sweeps, tune=0, chains=1, step=pmg.GibbsNN(sweeps_per_draw=1, anneal=None), progressbar=False,
            precision=precision, random_seed=1,
        )  # fmt: skip
        seconds.append(idata["posterior"].attrs["sampling_time"])
    return 1000 * sorted(seconds)[2] / sweeps


def run(piece: str, sweeps: int) -> dict[str, float]:
    """Measure a piece in processes of their own, with a folder of compiled code that is empty at first."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"PYTENSOR_FLAGS": f"base_compiledir={cache}"}
        for what in ["compile", "sweep"] * (piece in PIECES) + ["jax"] * (piece in JAX_PIECES):
            command = [sys.executable, __file__, "--here", what, "--only", piece, "--sweeps", str(sweeps)]
            printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
            measured = json.loads(printed.splitlines()[-1])
            if what == "compile":
                found |= {f"compile {name}, s": measured[name] for name in COMPILED}
            else:
                found |= {f"{name}, ms": value for name, value in measured.items() if name not in COMPILED}
    return found


if __name__ == "__main__":
    names = [*PIECES, *(name for name in JAX_PIECES if name != "all")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--sweeps", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "pieces.json")
    parser.add_argument("--here", choices=["compile", "sweep", "jax"], help="measure in this process and print JSON")
    arguments = parser.parse_args()
    if arguments.here:
        [piece] = arguments.only
        print(json.dumps(measure(piece, arguments.sweeps, arguments.here)))
        raise SystemExit
    from common import Results, print_table  # not before: it imports PyMC

    results = Results(arguments.output)
    for piece in arguments.only:
        if piece not in results:
            results[piece] = run(piece, arguments.sweeps)
    columns = list(results["all"] if "all" in results else next(iter(results.values())))
    print_table(
        "Without one piece",
        [{"": piece} | {column: row.get(column, "-") for column in columns} for piece, row in results.items()],
    )

"""What a sweep of GibbsNN consists of, and what bounds it: each operation's time beside what the machine can do.

The graph of a sweep is compiled for Numba as always, but as one function for each operation, and these are timed while
the sweep calls them one after another. ``sweep`` is the time of the whole sweep, compiled as one function, and ``sum``
that of its operations, in processor time. Operations are put together by kind; of products of matrices the operations
(additions and multiplications) and the bytes that they read and write are counted, and the bytes of what works element
by element.

``bound`` is the least time that this machine would need: for products the larger of bytes over bandwidth and of
operations over the speed of a product of square matrices; for what works element by element, bytes over bandwidth. The
bandwidth is that of adding an array that is too large for the caches to itself.

::

    OMP_NUM_THREADS=1 python benchmarks/sweep_parts.py [--networks mnist-collapsed ...] [--sweeps 10] [--output FILE]

Data are simulated. ``mnist`` has the size of the images of MNIST, 60,000 rows of 784 inputs, in single precision, with
12 hidden units and labels of ten classes; the others have 2,000 rows of ten inputs and 50 hidden units, "two layers"
50 in each.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
from common import RESULTS, VARIANTS, Results, print_table
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.link.numba.linker import NumbaLinker
from pytensor.scalar.basic import ScalarType
from pytensor.scan.op import Scan
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.random.type import RandomType

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.fast_numba import fastest
from pymc_gibbsnn.drivers import step as driver
from pymc_gibbsnn.moves.unit_passes import UnitPasses

ROWS, INPUTS, UNITS = 2000, 10, 50
IMAGES, PIXELS, HIDDEN, CLASSES = 60_000, 784, 12, 10
PRODUCTS = ("Product", "Dot", "Gemm", "Gemv", "Ger", "BatchedDot", "MatMul")
FACTORS = ("Cholesky", "SolveTriangular", "CholeskySolve", "Solve", "Eigh", "Blockwise")
TIMES: list[tuple[Apply, float, list, list]] = []  # of the last sweep: operations, seconds, inputs and outputs


def images(variant: str) -> tuple[pm.Model, dict]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(IMAGES, PIXELS)).astype("float32")
    y = (X[:, :CLASSES] + rng.normal(size=(IMAGES, CLASSES))).argmax(1)
    return pmg.mlp(X, y, HIDDEN, noise=2**0.5, likelihood="probit", prior=None), VARIANTS[variant]


def table_of_numbers(hidden: int | list[int] = UNITS, classes: bool = False, **of_model) -> tuple[pm.Model, dict]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, INPUTS))
    f = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 2
    y = (f + 0.3 * rng.normal(size=ROWS)) / f.std()
    return pmg.mlp(X, np.digitize(y, [-0.5, 0.5]) if classes else y, hidden, **of_model), {}


NETWORKS: dict[str, tuple[str, Callable]] = {  # their precision, and what makes them
    "mnist-plain": ("float32", partial(images, "plain")),
    "mnist-collapsed": ("float32", partial(images, "collapsed")),
    "one noise": ("float64", table_of_numbers),
    "noise by row": ("float64", partial(table_of_numbers, likelihood="normal", noise_hidden=10)),
    "labels": ("float64", partial(table_of_numbers, classes=True, likelihood="probit")),
    "two layers": ("float64", partial(table_of_numbers, [UNITS, UNITS])),
}


class TimingLinker(NumbaLinker):
    """Compiles the operations of a graph one by one, and notes the time of each when the graph is evaluated."""

    def fgraph_convert(self, fgraph: FunctionGraph, order: Sequence[Apply] | None = None, **kwargs):
        return fgraph, [(node, _function(node)) for node in order or fgraph.toposort()]

    def jit_compile(self, converted):
        fgraph, functions = converted

        def run(*inputs):
            values = {v: v.data for node, _ in functions for v in node.inputs if isinstance(v, Constant)}
            values |= dict(zip(fgraph.inputs, inputs, strict=True))
            TIMES.clear()
            for node, function in functions:
                arguments = [values[v] for v in node.inputs if not isinstance(v, Constant)]
                start = time.process_time()
                outputs = function(*arguments)
                seconds = time.process_time() - start
                outputs = [
                    np.dtype(v.type.dtype).type(x) if isinstance(v.type, ScalarType) else x
                    for v, x in zip(node.outputs, outputs, strict=True)
                ]
                TIMES.append((node, seconds, [values[v] for v in node.inputs], outputs))
                values.update(zip(node.outputs, outputs, strict=True))
            return [v.data if isinstance(v, Constant) else values[v] for v in fgraph.outputs]

        return run


def _function(node: Apply) -> Callable:
    """Compile one operation of a graph."""
    inputs = [v if isinstance(v, Constant) else v.type() for v in node.inputs]
    graph = FunctionGraph(
        [v for v in inputs if not isinstance(v, Constant)],
        node.clone_with_new_inputs(inputs, strict=False).outputs,
        clone=False,
    )
    linker = fastest(NumbaLinker())
    return linker.jit_compile(linker.fgraph_convert(graph, storage_map={}))


def sweep(make: Callable, timed: bool) -> Callable[[], None]:
    """A sweep that goes on where the last one ended; with ``timed`` it fills TIMES."""
    model, arguments = make()
    with_kernels = driver.with_our_kernels
    if timed:
        driver.with_our_kernels = lambda mode: Mode(TimingLinker(), with_kernels(mode).provided_optimizer)
    try:
        step = pmg.GibbsNN(model=model, rng=1, sweeps_per_draw=1, anneal=None, **arguments)
        point, _ = step.step(model.initial_point())
    finally:
        driver.with_our_kernels = with_kernels

    def run() -> None:
        nonlocal point
        point, _ = step.step(point)

    return run


def kind_of(node: Apply) -> str:
    op = node.op
    name = type(op).__name__
    if name in PRODUCTS:
        return "products"
    if isinstance(op, Scan):
        return "loops"
    if isinstance(op, UnitPasses):
        return f"moves of units: {name}"
    if any(isinstance(v.type, RandomType) for v in node.outputs):
        return "draws"
    if name.startswith(FACTORS):
        return "factors and triangular systems"
    if isinstance(op, Elemwise | CAReduce | Alloc):
        return "element by element, sums"
    return "others"


def machine(dtype: str) -> tuple[float, float]:
    """Bytes a second that a copy with addition reads and writes, and operations a second of a product of squares."""
    x = np.ones(2**25, dtype)
    out, square = np.empty_like(x), np.ones((1000, 1000), dtype)

    def best(function: Callable) -> float:
        seconds = []
        for _ in range(7):
            start = time.process_time()
            function()
            seconds.append(time.process_time() - start)
        return min(seconds)

    bandwidth = 2 * x.nbytes / best(lambda: np.add(x, x, out=out))
    return bandwidth, 2e9 / best(lambda: square @ square)


def measure(name: str, sweeps: int) -> list[dict[str, object]]:
    """One row for each kind of operation of a network's sweep."""
    precision, make = NETWORKS[name]
    with pytensor.config.change_flags(floatX=precision):
        bandwidth, speed = machine(precision)
        runs = {"sweep": sweep(make, False), "sum": sweep(make, True)}
        whole, parts = [], defaultdict(list)
        for _ in range(sweeps + 1):
            start = time.process_time()
            runs["sweep"]()
            whole.append(time.process_time() - start)
            runs["sum"]()
            for i, (_, seconds, *_) in enumerate(TIMES):
                parts[i].append(seconds)
    rows: dict[str, dict] = {}
    for i, (node, _, inputs, outputs) in enumerate(TIMES):
        arrays = [x for x in (*inputs, *outputs) if isinstance(x, np.ndarray)]
        size, kind = sum(x.nbytes for x in arrays), kind_of(node)
        row = rows.setdefault(kind, {"kind": kind, "number": 0, "ms": 0.0, "MB": 0.0, "Gflop": 0.0, "bound, ms": 0.0})
        row["ms"] += 1e3 * float(np.median(parts[i][1:]))
        row["number"] += 1
        if kind == "products":
            operations = 2 * (inputs[-2].size * inputs[-1].size * outputs[0].size) ** 0.5  # 2 m k n
            row["Gflop"] += operations / 1e9
            row["bound, ms"] += 1e3 * max(size / bandwidth, operations / speed)
            row["MB"] += size / 1e6
        elif kind == "element by element, sums":
            row["bound, ms"] += 1e3 * size / bandwidth
            row["MB"] += size / 1e6
    total = sum(row["ms"] for row in rows.values())
    found = [
        {"network": name} | row | {"share": row["ms"] / total} for row in sorted(rows.values(), key=lambda r: -r["ms"])
    ]
    print(f"\n{name}: sweep {1e3 * np.median(whole[1:]):.3g} ms, sum {total:.3g} ms, {len(TIMES)} operations; "
          f"{bandwidth / 1e9:.1f} GB/s, {speed / 1e9:.0f} Gflop/s")  # fmt: skip
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--sweeps", type=int, default=10)
    parser.add_argument("--output", type=Path, default=RESULTS / "sweep_parts.json")
    arguments = parser.parse_args()
    results = Results(arguments.output)
    for name in arguments.networks:
        results[name] = measure(name, arguments.sweeps)
        print_table(name, results[name])

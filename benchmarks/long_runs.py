"""What it costs ``pmg.sample`` to write draws and checkpoints: time that the store takes of the whole run.

The network has the paper's size, n = 2084 and widths 50-10-1, and four chains. Weights are recorded, or all variables,
which are latents almost all. A run lasts as long as it is told, compilation included; its time in the table begins with
the first draws. ``share`` is the time for which the chains wait for the store. ``share, processor`` is its processor
time, that of the thread in which it writes included, which a busy machine disturbs less. Run::

    python benchmarks/long_runs.py [--seconds 150] [--every 60 5] [--output FILE]
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path

from common import PAPER, RESULTS, Results, draw_teacher, make_model, print_table

import pymc_gibbsnn as pmg
from pymc_gibbsnn.drivers import chunks
from pymc_gibbsnn.drivers.store import Store


class Clock:
    """Adds up the time that some functions take, by the clock and by the processor."""

    def __init__(self):
        self.wall = self.processor = 0.0

    def watch(self, function):
        def watched(*arguments):
            wall, processor = time.perf_counter(), time.thread_time()
            try:
                return function(*arguments)
            finally:
                self.wall += time.perf_counter() - wall
                self.processor += time.thread_time() - processor

        return watched


def share(model, start, names, seconds: float, every: float) -> dict:
    """Draw for some seconds, and find what part of them the store takes."""
    storing, writing, usual = Clock(), Clock(), (Store.append, Store.save, chunks.replace_file)
    first = []  # when drawing begins

    def callback(trace, draw):
        if not first:
            first.append((time.perf_counter(), time.process_time()))

    Store.append, Store.save = storing.watch(usual[0]), storing.watch(usual[1])
    chunks.replace_file = writing.watch(usual[2])
    with tempfile.TemporaryDirectory() as folder, model:
        try:
            idata = pmg.sample(
                10**6,
                step=pmg.GibbsNN(sweeps_per_draw=1),
                tune=0,
                chains=4,
                initvals=start,
                var_names=names,
                random_seed=1,
                progressbar=False,
                store=Path(folder) / "run.zarr",
                checkpoint_every=every,
                until={"seconds": seconds},
                callback=callback,
            )
            wall, processor = time.perf_counter() - first[0][0], time.process_time() - first[0][1]
        finally:
            Store.append, Store.save, chunks.replace_file = usual
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    draws = idata["posterior"].sizes["draw"]
    return {
        "draws": draws,
        "MB": size / 1e6,
        "run (s)": wall,
        "store (s)": storing.wall,
        "share": f"{storing.wall / wall:.2%}",
        "share, processor": f"{(storing.processor + writing.processor) / processor:.2%}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--every", type=float, nargs="+", default=[60.0, 5.0])
    parser.add_argument("--output", type=Path, default=RESULTS / "long_runs.json")
    arguments = parser.parse_args()
    results = Results(arguments.output)
    teacher = draw_teacher(PAPER, seed=0)
    model = make_model(PAPER, teacher)
    weights = [rv.name for rv in model.free_RVs if rv.name[0] in "Wb"]
    rows = []
    for (recorded, names), every in itertools.product({"weights": weights, "all": None}.items(), arguments.every):
        found = share(model, teacher.point, names, arguments.seconds, every)
        row = {"recorded": recorded, "checkpoint every (s)": every, **found}
        rows.append(row)
        results[f"{recorded}, {every:g} s"] = row
    print_table(f"Storing a run of {PAPER}", rows)


if __name__ == "__main__":
    main()

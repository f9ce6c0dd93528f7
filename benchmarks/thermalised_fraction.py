"""How many chains thermalise from a zero start, against Fig. 2 (left) of Piccioli, Troiani, Zdeborová (2306.02729).

n = 2084 samples, 50-10-1, ReLU, labels of a teacher *without* noise, sampled with noise Δ everywhere. For each teacher
an informed chain starts at the teacher and gives the test error (mean square, without noise) at equilibrium; two chains
start from zero, one with GibbsNN() as it is, the other with GibbsNN(anneal=1) tuned for 2,000 sweeps.

The rule: test errors are averaged over blocks of 250 sweeps. A chain from zero has thermalised at the end of the first
block, the tuning left out, whose mean is at most 1.25 times the largest block of the informed chain's second half. It
stops there, or after 25,000 sweeps, the tuning included. How often the informed chain's own blocks 3 to 8 would fail
the rule is in the last column.

The paper's plain Gibbs sampler had thermalised for 59, 30 and 4 of 72 teachers at Δ = 1e-3, 1e-4 and 1e-5, after 2.5
million sweeps.

Every teacher's result is saved as it comes and never measured twice; several processes with different outputs may share
the work. Run, with one thread a process::

    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    python benchmarks/thermalised_fraction.py [--teachers 0-23] [--delta 1e-3] [--variant annealed] [--output FILE]
    python benchmarks/thermalised_fraction.py --table [--output FILE ...]
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace
from itertools import product
from pathlib import Path

warnings.filterwarnings("ignore", "\\s*ArviZ is undergoing", FutureWarning)

import numpy as np  # noqa: E402
import pymc as pm  # noqa: E402
from common import PAPER, RESULTS, Point, Results, Teacher, draw_teacher, load, make_model, predict, print_table  # noqa: E402

import pymc_gibbsnn as pmg  # noqa: E402

PAPERS_SHARE = {"0.001": "59/72", "0.0001": "30/72", "1e-05": "4/72"}
BLOCK, SPACING = 250, 10  # sweeps in a block, and between two test errors
INFORMED_BLOCKS, MOST_BLOCKS = 16, 100
MARGIN = 1.25
VARIANTS = {"as it is": None, "annealed": 1.0}
ANNEALED_BLOCKS = 8


def run_block(step: pmg.GibbsNN, point: Point, teacher: Teacher) -> tuple[Point, float, float]:
    """(point, mean test error, seconds of the sweeps alone) after one block."""
    errors, seconds = [], 0.0
    for _ in range(BLOCK // SPACING):
        start = time.perf_counter()
        point, _ = step.step(point)
        seconds += time.perf_counter() - start
        errors.append(((predict(point, teacher.X_test) - teacher.y_test) ** 2).mean())
    return point, float(np.mean(errors)), seconds


def measure(step: pmg.GibbsNN, teacher: Teacher, seed: int, tuning_blocks: int) -> dict[str, object]:
    pm.set_data({"X": teacher.X, "y_data": teacher.y}, model=step.model)
    step.sweeps_per_draw = SPACING
    step.setup_chain(seed, tune=0, draws=0)
    step.tune = False
    point, informed = teacher.point, []
    for _ in range(INFORMED_BLOCKS):
        point, error, _ = run_block(step, point, teacher)
        informed.append(error)
    half = INFORMED_BLOCKS // 2
    bound = MARGIN * max(informed[half:])

    step.setup_chain(seed + 1_000_000, tune=tuning_blocks * BLOCK // SPACING, draws=0)
    step.tune = tuning_blocks > 0
    point, total, thermalised = {name: np.zeros_like(value) for name, value in teacher.point.items()}, 0.0, False
    for block in range(MOST_BLOCKS):
        if block == tuning_blocks:
            step.stop_tuning()
        point, error, seconds = run_block(step, point, teacher)
        total += seconds
        thermalised = block >= tuning_blocks and error <= bound
        if thermalised:
            break
    return {
        "equilibrium": float(np.mean(informed[half:])),
        "thermalised": thermalised,
        "sweeps": BLOCK * (block + 1),
        "seconds": total,
        "error": error,
        "informed blocks that fail": sum(error > bound for error in informed[2:half]) / (half - 2),
    }


def print_results(results: dict) -> None:
    rows = []
    for (delta, share), variant in product(PAPERS_SHARE.items(), VARIANTS):
        runs = [run for key, run in results.items() if key.startswith(f"{delta} | {variant} | ")]
        done = [run for run in runs if run["thermalised"]]
        stuck = [run["error"] / run["equilibrium"] for run in runs if not run["thermalised"]]
        if runs:
            rows.append(
                {
                    "Δ": delta,
                    "GibbsNN": variant,
                    "thermalised": f"{len(done)}/{len(runs)}",
                    "paper, 2.5e6 sweeps": share,
                    "sweeps to it, median": float(np.median([run["sweeps"] for run in done])) if done else "-",
                    "slowest": max((float(run["sweeps"]) for run in done), default="-"),
                    "seconds to it, median": float(np.median([run["seconds"] for run in done])) if done else "-",
                    "test error at equilibrium": float(np.median([run["equilibrium"] for run in runs])),
                    "stuck: error over it": float(np.median(stuck)) if stuck else "-",
                    "false alarms": float(np.mean([run["informed blocks that fail"] for run in runs])),
                }
            )
    print_table("Thermalised from zero within 25,000 sweeps (n=2084, 50-10-1, noiseless labels)", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teachers", default="0-23", help="first-last (default: 0-23)")
    parser.add_argument("--delta", type=float, nargs="+", default=[1e-3, 1e-4, 1e-5])
    parser.add_argument("--variant", choices=VARIANTS, nargs="+", default=list(VARIANTS))
    parser.add_argument("--table", action="store_true", help="print what has been measured, and stop")
    parser.add_argument("--output", type=Path, nargs="+", default=[RESULTS / "thermalised_fraction.json"])
    args = parser.parse_args()
    if args.table:
        print_results({key: value for path in args.output for key, value in load(path).items()})
        return
    results = Results(args.output[0])
    first, _, last = args.teachers.partition("-")
    for delta, variant in product(args.delta, args.variant):
        step, tuning_blocks = None, ANNEALED_BLOCKS if variant == "annealed" else 0
        for seed in range(int(first), int(last or first) + 1):
            key = f"{delta:g} | {variant} | {seed}"
            if key in results:
                continue
            teacher = draw_teacher(replace(PAPER, delta=0.0), seed)
            if step is None:
                step = pmg.GibbsNN(model=make_model(replace(PAPER, delta=delta), teacher), anneal=VARIANTS[variant])
            results[key] = measure(step, teacher, seed, tuning_blocks)
            print(key, results[key], flush=True)
    print_results(results)


if __name__ == "__main__":
    main()

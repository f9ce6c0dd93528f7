"""How many chains thermalise from a zero start, against Fig. 2 (left) of Piccioli, Troiani, Zdeborová (2306.02729).

n = 2084 samples, 50-10-1, ReLU, labels of a teacher *without* noise, sampled with noise Δ everywhere. For each teacher
an informed chain starts at the teacher; two chains start from zero, one with GibbsNN() as it is, the other with
GibbsNN(anneal=1): 2,000 sweeps, which tune if there is something to tune, and as many more as the informed chain has:
4,000 at Δ = 1e-2, where the test error decorrelates most slowly, 2,000 at 1e-3, 1,000 below. Every tenth state gives a
test error (mean square, without noise); pymc_gibbsnn.diagnostics.convergence.merge compares those after the first
2,000 sweeps with the informed chain's, in blocks of 100 sweeps, and says whether the chain has thermalised.

The paper's plain Gibbs sampler had thermalised for 72, 59, 30 and 4 of 72 teachers at Δ = 1e-2, 1e-3, 1e-4 and 1e-5,
after 2.5 million sweeps.

Every teacher's result is saved as it comes and never measured twice; several processes with different outputs may share
the work. Run, with one thread a process::

    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    python benchmarks/thermalised_fraction.py [--teachers 0-7] [--delta 1e-3] [--variant annealed] [--output FILE]
    python benchmarks/thermalised_fraction.py --table [--output FILE ...]
"""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import product
from pathlib import Path

warnings.filterwarnings("ignore", "\\s*ArviZ is undergoing", FutureWarning)

import numpy as np  # noqa: E402
import pymc as pm  # noqa: E402
from common import RESULTS, Point, Results, load, predict, print_table  # noqa: E402

import pymc_gibbsnn as pmg  # noqa: E402
from pymc_gibbsnn.diagnostics.convergence import merge  # noqa: E402

PAPERS_SHARE = {"0.01": "72/72", "0.001": "59/72", "0.0001": "30/72", "1e-05": "4/72"}
WIDTHS, SAMPLES = (50, 10, 1), 2084
SWEEPS = {1e-2: 4000, 1e-3: 2000, 1e-4: 1000, 1e-5: 1000}  # that are compared
BEFORE = 2000
SPACING, BLOCK = 10, 10  # sweeps between two test errors, test errors in a block
VARIANTS = {"as it is": None, "annealed": 1.0}


def run(step: pmg.GibbsNN, point: Point, study: pmg.TeacherStudent, sweeps: int) -> tuple[Point, np.ndarray]:
    """(point, test errors)."""
    errors = []
    for _ in range(sweeps // SPACING):
        point, _ = step.step(point)
        errors.append(((predict(point, study.X_test) - study.f_test) ** 2).mean())
    return point, np.array(errors)


def measure(step: pmg.GibbsNN, study: pmg.TeacherStudent, seed: int, sweeps: int) -> dict[str, object]:
    pm.set_data({"X": study.X, "y_data": study.y}, model=step.model)
    step.setup_chain(seed, tune=0, draws=0)
    step.tune = False
    _, informed = run(step, study.teacher, study, sweeps)

    tune = BEFORE // SPACING if step.options.get("anneal") else 0
    step.setup_chain(seed + 1_000_000, tune=tune, draws=0)
    step.tune = tune > 0
    start = time.perf_counter()
    point, _ = run(step, pmg.initial_values(study.model, "zero"), study, BEFORE)
    step.stop_tuning()
    _, errors = run(step, point, study, sweeps)
    seconds = time.perf_counter() - start
    found = merge(informed, errors, BLOCK)
    return {
        "equilibrium": float(informed[len(informed) // 2 :].mean()),
        "verdict": found.verdict,
        "sweeps": BEFORE + SPACING * found.draw,
        "seconds": seconds,
        "error": float(errors[len(errors) // 2 :].mean()),
    }


def print_results(results: dict) -> None:
    rows = []
    for (delta, share), variant in product(PAPERS_SHARE.items(), VARIANTS):
        runs = [run for key, run in results.items() if key.startswith(f"{delta} | {variant} | ")]
        done = [run for run in runs if run["verdict"] == "thermalised"]
        stuck = [run["error"] / run["equilibrium"] for run in runs if run["verdict"] != "thermalised"]
        if runs:
            rows.append(
                {
                    "Δ": delta,
                    "GibbsNN": variant,
                    "thermalised": f"{len(done)}/{len(runs)}",
                    "undecided": sum(run["verdict"] == "undecided" for run in runs),
                    "paper, 2.5e6 sweeps": share,
                    "sweeps to it, median": float(np.median([run["sweeps"] for run in done])) if done else "-",
                    "seconds for all, median": float(np.median([run["seconds"] for run in runs])),
                    "test error at equilibrium": float(np.median([run["equilibrium"] for run in runs])),
                    "not thermalised: error over it": float(np.median(stuck)) if stuck else "-",
                }
            )
    print_table("Thermalised from zero (n=2084, 50-10-1, noiseless labels)", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teachers", default="0-7", help="first-last (default: 0-7)")
    parser.add_argument("--delta", type=float, nargs="+", choices=SWEEPS, default=list(SWEEPS))
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
        step = None
        for seed in range(int(first), int(last or first) + 1):
            key = f"{delta:g} | {variant} | {seed}"
            if key in results:
                continue
            study = pmg.teacher_student(WIDTHS, SAMPLES, noisy=False, noise=delta**0.5, random_seed=seed)
            if step is None:
                step = pmg.GibbsNN(model=study.model, anneal=VARIANTS[variant], sweeps_per_draw=SPACING)
            results[key] = measure(step, study, seed, SWEEPS[delta])
            print(key, results[key], flush=True)
    print_results(results)


if __name__ == "__main__":
    main()

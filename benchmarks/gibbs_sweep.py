"""Time of one Gibbs sweep, against the same sweep in NumPy and against the plain sampler, and peak memory.

Measured, each as the median over repeats in which the competitors take turns in one process:

- sizes: milliseconds per sweep of the compiled step (``step.step(point)`` in a loop) and of the NumPy sweep of
  ``numpy_sweep.py``, by samples, width and depth, with the ratio NumPy/compiled;
- variants of the step at the paper's size (n = 2084, 50-10-1, Δ = 1e-4), with the ratio to plain Gibbs;
- what ``pm.sample`` adds to a draw at the paper's size: two lengths of run tell the cost of a draw from that of a call;
- with ``--memory``, alone and in a process of its own: what 1000 draws of the weights by ``pm.sample`` at n = 60,000
  add to the memory of the process at most, over the size of one state with its data (Linux).

Run, with one thread for a fair comparison::

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/gibbs_sweep.py [--quick | --memory] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pymc as pm
from common import (
    PAPER,
    RESULTS,
    VARIANTS,
    Problem,
    draw_teacher,
    load,
    make_model,
    print_table,
    save,
    sweeps,
    time_in_turn,
)
from numpy_sweep import NumpySweep

import pymc_gibbsnn as pmg

TIMED = VARIANTS["collapsed + scale"]  # where no other is named: what the NumPy sweep does, and the scale moves
SAMPLES = [Problem(n, 50, (10,), 1e-4) for n in (200, 2084, 20_000, 100_000)]
WIDTHS = [Problem(2084, 50, (width,), 1e-4) for width in (30, 100)]
DEPTHS = [Problem(2084, 50, (10,) * depth, 1e-4) for depth in (2, 3)]
WEIGHTS = ["W1", "b1", "W2", "b2"]


def make_step(problem: Problem, **kwargs) -> tuple[pmg.GibbsNN, dict[str, np.ndarray]]:
    """A step for a teacher's data, and the teacher's variables to start from."""
    teacher = draw_teacher(problem, seed=0)
    return pmg.GibbsNN(model=make_model(problem, teacher), rng=1, **kwargs), teacher.point


def numpy_sweeps(problem: Problem, count: int) -> Callable[[], None]:
    teacher = draw_teacher(problem, seed=0)
    sweep = NumpySweep(teacher.X, teacher.y, teacher.point, problem.delta, seed=1)
    return lambda: [sweep() for _ in range(count)]


def measure_size(problem: Problem, repeats: int, seconds: float) -> dict[str, object]:
    """One row: the compiled step and NumPy in turn, each for about the given seconds a repeat."""
    step, point = make_step(problem, **TIMED)
    runs, counts = {}, {}
    for name, make in {"step": lambda k: sweeps(step, point, k), "numpy": lambda k: numpy_sweeps(problem, k)}.items():
        trial = make(3)
        trial()
        start = time.perf_counter()
        trial()
        counts[name] = max(1, round(seconds / (time.perf_counter() - start) * 3))
        runs[name] = make(counts[name])
    ms = {name: 1e3 * times / counts[name] for name, times in time_in_turn(runs, repeats).items()}
    return {
        "network": "-".join(map(str, (problem.d, *problem.hidden, 1))),
        "n": problem.n,
        "step, ms": float(np.median(ms["step"])),
        "NumPy, ms": float(np.median(ms["numpy"])),
        "NumPy/step": float(np.median(ms["numpy"] / ms["step"])),
        "step, μs per sample": float(1e3 * np.median(ms["step"]) / problem.n),
    }


def measure_variants(repeats: int, count: int) -> list[dict[str, object]]:
    runs = {name: sweeps(*make_step(PAPER, **kwargs), count) for name, kwargs in VARIANTS.items()}
    seconds = time_in_turn(runs, repeats)
    return [
        {
            "variant": name,
            "ms": float(1e3 * np.median(times) / count),
            "ratio to plain": float(np.median(times / seconds["plain"])),
        }
        for name, times in seconds.items()
    ]


def sample(step: pmg.GibbsNN, point: dict[str, np.ndarray], draws: int) -> None:
    """The weights by pm.sample, one chain."""
    pm.sample(
        draws=draws,
        tune=0,
        chains=1,
        cores=1,
        step=step,
        model=step.model,
        initvals=point,
        var_names=WEIGHTS,
        progressbar=False,
        compute_convergence_checks=False,
        random_seed=1,
    )


def measure_overhead(repeats: int, draws: int) -> dict[str, object]:
    """What a draw costs by ``pm.sample`` beyond its sweep, apart from the call and with its share of the call."""
    step, point = make_step(PAPER, **TIMED)
    short = draws // 10
    runs = {
        "bare": sweeps(step, point, draws),
        "long": lambda: sample(step, point, draws),
        "short": lambda: sample(step, point, short),
    }
    seconds = time_in_turn(runs, repeats)
    bare, slope = seconds["bare"] / draws, (seconds["long"] - seconds["short"]) / (draws - short)
    return {
        "draws": draws,
        "sweep, ms": float(1e3 * np.median(bare)),
        "added to a draw, ms": float(1e3 * np.median(slope - bare)),
        "ratio": float(np.median(slope / bare)),
        "one call, s": float(np.median(seconds["short"] - short * slope)),
        "added to a draw with its share of the call, ms": float(1e3 * np.median(seconds["long"] / draws - bare)),
    }


def measure_memory(draws: int) -> dict[str, object]:
    """Peak of the process while pm.sample runs, less its memory just before."""
    problem = Problem(60_000, 50, (10,), 1e-4)
    step, point = make_step(problem, **TIMED)
    state = sum(value.nbytes for value in point.values()) + 8 * problem.n * (problem.d + 1)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = resident("VmRSS")
    sample(step, point, draws)
    added = resident("VmHWM") - before
    return {
        "n": problem.n,
        "draws": draws,
        "one state, MB": state / 1e6,
        "added, MB": added / 1e6,
        "ratio": added / state,
    }


def resident(field: str) -> int:
    """Resident memory of this process in bytes: VmRSS now, VmHWM the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sizes and repeats: under a minute once compiled")
    parser.add_argument("--memory", action="store_true", help="peak memory only")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--draws", type=int, help="draws of pm.sample (default: 2000; 500 with --quick, 1000 with --memory)"
    )
    parser.add_argument("--repeats", type=int, help="repeats of each measurement (default: 9; 3 with --quick)")
    parser.add_argument("--output", type=Path, default=RESULTS / "gibbs_sweep.json")
    args = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)

    if args.in_process:
        print(json.dumps(measure_memory(args.draws or 1000)))
        return
    results = load(args.output)
    if args.memory:
        command = [sys.executable, __file__, "--in-process", "--draws", str(args.draws or 1000)]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        results["memory"] = json.loads(lines[-1])
        print_table("Peak memory of pm.sample, weights recorded", [results["memory"]])
        save(args.output, results)
        return

    repeats = args.repeats or (3 if args.quick else 9)
    sizes = SAMPLES[:2] if args.quick else SAMPLES + WIDTHS + DEPTHS
    results["sizes"] = [measure_size(problem, repeats, 0.3 if args.quick else 1.0) for problem in sizes]
    print_table("One sweep, collapsed with scale moves, Δ = 1e-4", results["sizes"])
    save(args.output, results)
    results["variants"] = measure_variants(repeats, 50 if args.quick else 300)
    print_table(f"Variants, {PAPER}", results["variants"])
    save(args.output, results)
    results["overhead"] = measure_overhead(2 if args.quick else 5, args.draws or (500 if args.quick else 2000))
    print_table(f"pm.sample over the bare transition, {PAPER}", [results["overhead"]])
    save(args.output, results)


if __name__ == "__main__":
    main()

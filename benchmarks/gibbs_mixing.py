"""How fast the variants of GibbsNN mix, at equilibrium and from a zero start, over several teachers.

Equilibrium: chains start at the teacher, latents included, which is an exact draw of the posterior. Measured is the
integrated autocorrelation time τ = sweeps/ESS, in sweeps and in seconds, of

- outputs, without noise, at 20 test points (the median over them);
- lp, the log density;
- norm_W1, norm_W2, the squared norms of the layers.

Every second state is recorded in a run of 60,000 sweeps (20,000 at the paper's size). A τ above a twentieth of the run
is only a lower bound; a star marks a median to which at least half the teachers give bounds. Seconds take the time of a
sweep measured with all variants in turn.

Zero: test error (mean square, without noise) on the way from a zero start, at the paper's size, beside that at
equilibrium. A value at k sweeps is the mean over the last tenth of them.

Results of each (problem, teacher, variant) are saved as they come and never measured twice; two processes with
different outputs may share the work. Run, with one thread a process::

    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    python benchmarks/gibbs_mixing.py --part equilibrium [--teachers 0-4] [--sweeps N] [--output FILE]
    python benchmarks/gibbs_mixing.py --part zero [--teachers 0-4] [--output FILE]
    python benchmarks/gibbs_mixing.py --part table [--output FILE ...]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

warnings.filterwarnings("ignore", "\\s*ArviZ is undergoing", FutureWarning)

import arviz as az  # noqa: E402
import numpy as np  # noqa: E402
import pymc as pm  # noqa: E402
from common import (  # noqa: E402
    PAPER,
    RESULTS,
    VARIANTS,
    Point,
    Problem,
    Results,
    Teacher,
    draw_teacher,
    load,
    make_model,
    predict,
    print_table,
    time_in_turn,
)

import pymc_gibbsnn as pmg  # noqa: E402

PLAIN, REFERENCE = "plain", "all"
PROBLEMS = [Problem(n, d, (h,), delta) for n, d, h in [(200, 5, 3), (500, 10, 5)] for delta in (1e-2, 1e-4)]
EQUILIBRIUM_SWEEPS = {PAPER: 20_000} | dict.fromkeys(PROBLEMS, 60_000)
THIN = 2
MARKS = [100, 1000, 3000, 10_000]  # sweeps from the zero start
SPACING = 10  # sweeps between two values of the test error
REFERENCE_SWEEPS = 3000
TIMED_SWEEPS, TIMED_REPEATS = 500, 9


class Chain:
    """One variant on one problem, compiled at its first use and run for any teacher."""

    def __init__(self, problem: Problem, variant: str):
        self.problem, self.variant, self.step = problem, variant, None

    def start(self, teacher: Teacher, seed: int, sweeps_per_draw: int) -> pmg.GibbsNN:
        if self.step is None:
            self.step = pmg.GibbsNN(model=make_model(self.problem, teacher), **VARIANTS[self.variant])
        pm.set_data({"X": teacher.X, "y_data": teacher.y}, model=self.step.model)
        self.step.sweeps_per_draw = sweeps_per_draw
        self.step.set_rng(seed)
        return self.step

    def run(self, teacher: Teacher, point: Point, seed: int, sweeps: int, thin: int, record: Callable) -> np.ndarray:
        """record(point, stats) after every ``thin`` sweeps."""
        step, records = self.start(teacher, seed, thin), []
        for _ in range(sweeps // thin):
            point, [stats] = step.step(point)
            records.append(record(point, stats))
        return np.array(records)


def measure_equilibrium(results: Results, problem: Problem, teachers: range, sweeps: int) -> None:
    chains = {variant: Chain(problem, variant) for variant in VARIANTS}
    norms = [f"norm_W{l}" for l in range(1, len(problem.hidden) + 2)]
    for seed in teachers:
        teacher = draw_teacher(problem, seed)
        X_test = teacher.X_test[:20]
        for variant, chain in chains.items():
            key = f"equilibrium | {problem} | {seed} | {variant}"
            if key in results:
                continue
            series = chain.run(
                teacher,
                teacher.point,
                seed,
                sweeps,
                THIN,
                lambda point, stats, X=X_test: [*predict(point, X), *(stats[name] for name in ["lp", *norms])],
            )
            # τ = sweeps/ESS; the ESS of the mean, not of ranks
            tau = [THIN * len(column) / float(az.ess(column[None], method="mean")) for column in series.T]
            results[key] = {
                "sweeps": sweeps,
                "tau": {"outputs": float(np.median(tau[:20]))} | dict(zip(["lp", *norms], tau[20:], strict=True)),
                "mean": {"outputs": list(series.mean(0)[:20])}
                | dict(zip(["lp", *norms], series.mean(0)[20:], strict=True)),
            }
            print(f"{key}: " + ", ".join(f"{name} {tau:.0f}" for name, tau in results[key]["tau"].items()), flush=True)
    measure_time(results, problem, chains)


def measure_time(results: Results, problem: Problem, chains: dict[str, Chain]) -> None:
    """Seconds per sweep at equilibrium, all variants in turn."""
    keys = {variant: f"time | {problem} | {variant}" for variant in chains}
    if all(key in results for key in keys.values()):
        return
    teacher = draw_teacher(problem, 0)
    points = dict.fromkeys(chains, teacher.point)
    steps = {variant: chain.start(teacher, 0, TIMED_SWEEPS) for variant, chain in chains.items()}

    def go(variant: str) -> None:
        points[variant], _ = steps[variant].step(points[variant])

    seconds = time_in_turn({variant: lambda variant=variant: go(variant) for variant in chains}, TIMED_REPEATS)
    for variant, key in keys.items():
        results[key] = float(np.median(seconds[variant]) / TIMED_SWEEPS)


def measure_zero(results: Results, problem: Problem, teachers: range, sweeps: int) -> None:
    chains = {variant: Chain(problem, variant) for variant in VARIANTS}
    for seed in teachers:
        teacher = draw_teacher(problem, seed)

        def error(point: Point, stats: dict, teacher: Teacher = teacher) -> float:
            return float(((predict(point, teacher.X_test) - teacher.y_test) ** 2).mean())

        key = f"reference | {problem} | {seed}"
        if key not in results:
            errors = chains[REFERENCE].run(teacher, teacher.point, seed, REFERENCE_SWEEPS, SPACING, error)
            results[key] = float(errors[len(errors) // 2 :].mean())
        zeros = {name: np.zeros_like(value) for name, value in teacher.point.items()}
        for variant, chain in chains.items():
            key = f"zero | {problem} | {seed} | {variant}"
            if key in results:
                continue
            errors = chain.run(teacher, zeros, seed, sweeps, SPACING, error)
            results[key] = {
                str(mark): float(errors[int(0.9 * mark) // SPACING : mark // SPACING].mean())
                for mark in MARKS
                if mark <= sweeps
            }
            print(f"{key}: " + ", ".join(f"{mark}: {value:.3g}" for mark, value in results[key].items()), flush=True)


def select(results: dict, *parts: str) -> dict[str, object]:
    """Results whose key begins with the parts, by what follows."""
    head = " | ".join(parts) + " | "
    return {key.removeprefix(head): value for key, value in results.items() if key.startswith(head)}


def print_equilibrium(results: dict, problem: Problem) -> None:
    found = select(results, "equilibrium", str(problem))
    seconds = select(results, "time", str(problem))
    runs = {}  # variant -> teacher -> result
    for key, value in found.items():
        seed, variant = key.split(" | ")
        runs.setdefault(variant, {})[seed] = value
    rows = []
    for quantity in next(iter(found.values()))["tau"]:
        for variant, by_teacher in runs.items():
            tau = {seed: run["tau"][quantity] for seed, run in by_teacher.items()}
            bounds = sum(tau[seed] > run["sweeps"] / 20 for seed, run in by_teacher.items())
            plain = {seed: run["tau"][quantity] for seed, run in runs.get(PLAIN, {}).items() if seed in tau}
            gain = float(np.median([value / tau[seed] for seed, value in plain.items()])) if plain else float("nan")
            slower = seconds.get(variant, np.nan) / seconds.get(PLAIN, np.nan)
            median = float(np.median(list(tau.values())))
            rows.append(
                {
                    "quantity": quantity,
                    "variant": variant,
                    "τ, sweeps": median,
                    "τ, s": median * seconds.get(variant, np.nan),
                    "lower bounds": f"{bounds}/{len(tau)}" + ("*" if 2 * bounds >= len(tau) else " "),
                    "plain/variant, sweeps": gain,
                    "plain/variant, time": gain / slower,
                }
            )
    sweeps = ", ".join(f"{variant} {1e3 * value:.3g} ms" for variant, value in seconds.items())
    print_table(f"Equilibrium, {problem}: medians over teachers. A sweep: {sweeps}", rows)


def print_zero(results: dict, problem: Problem) -> None:
    reference = select(results, "reference", str(problem))
    runs = {}  # teacher -> variant -> errors
    for key, errors in select(results, "zero", str(problem)).items():
        seed, variant = key.split(" | ")
        runs.setdefault(seed, {})[variant] = errors
    rows = []
    for variant in VARIANTS:
        marks = {seed: by_variant[variant] for seed, by_variant in runs.items() if variant in by_variant}
        last = {seed: list(errors.values())[-1] for seed, errors in marks.items()}
        if marks:
            common = set.intersection(*(set(errors) for errors in marks.values()))
            rows.append(
                {"variant": variant}
                | {mark: float(np.median([e[mark] for e in marks.values()])) for mark in sorted(common, key=int)}
                | {"equilibrium": float(np.median([reference[seed] for seed in marks]))}
                | {"at most twice it at the end": f"{sum(last[s] <= 2 * reference[s] for s in last)}/{len(last)}"}
            )
    print_table(f"Test error from a zero start by sweeps, {problem}: medians over teachers", rows)
    rows = [
        {"teacher": seed, "equilibrium": reference[seed]}
        | {variant: list(runs[seed][variant].values())[-1] if variant in runs[seed] else "-" for variant in VARIANTS}
        for seed in sorted(runs, key=int)
    ]
    print_table("Test error at the end of the run, by teacher", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["equilibrium", "zero", "table"], required=True)
    parser.add_argument("--teachers", default="0-9", help="first-last (default: 0-9)")
    parser.add_argument("--sweeps", type=int, help="length of a run")
    parser.add_argument("--problem", help="only the problems whose name contains this, e.g. n=200 or Δ=0.01")
    parser.add_argument("--output", type=Path, nargs="+", default=[RESULTS / "gibbs_mixing.json"])
    args = parser.parse_args()
    first, _, last = args.teachers.partition("-")
    teachers = range(int(first), int(last or first) + 1)
    problems = [problem for problem in EQUILIBRIUM_SWEEPS if (args.problem or "") in str(problem)]

    if args.part == "table":
        results = {key: value for path in args.output for key, value in load(path).items()}
        for problem in problems:
            if select(results, "equilibrium", str(problem)):
                print_equilibrium(results, problem)
        if select(results, "zero", str(PAPER)):
            print_zero(results, PAPER)
        return
    results = Results(args.output[0])
    if args.part == "equilibrium":
        for problem in problems:
            measure_equilibrium(results, problem, teachers, args.sweeps or EQUILIBRIUM_SWEEPS[problem])
            print_equilibrium(results, problem)
    else:
        measure_zero(results, PAPER, teachers, args.sweeps or MARKS[-1])
        print_zero(results, PAPER)


if __name__ == "__main__":
    main()

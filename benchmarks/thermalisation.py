"""The teacher-student criterion: its wrong verdicts, and Fig. 1 of Piccioli, Troiani, Zdeborová (2306.02729).

calibration (n = 200, 5-3-1, ReLU, Δ = 1e-4, GibbsNN() as it is, the test function every second sweep, 1,000 sweeps):

- equilibrium: 200 teachers. The informed chain against one that starts at the state of another informed chain after
  2,000 sweeps. "not thermalised" is wrong.
- stuck: chains that start at a draw of the prior and whose test error is still more than twice that of equilibrium on
  average over the second half of the run, until there are 50 of them. "thermalised" is wrong.

figure (n = 2084, 50-10-1, ReLU, Δ = 1e-4, labels with noise): an informed chain, one from zero and two from the prior,
of Algorithm 1 of the paper ("plain", 100,000 sweeps) and of GibbsNN() as it is (5,000).

Results are saved as they come and never measured twice. Run, with one thread a process::

    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    python benchmarks/thermalisation.py --part calibration [--quick] [--output FILE]
    python benchmarks/thermalisation.py --part figure [--quick] [--seed 2] [--figures DIRECTORY]
    python benchmarks/thermalisation.py --part table [--output FILE]
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", "\\s*ArviZ is undergoing", FutureWarning)

import numpy as np  # noqa: E402
import pymc as pm  # noqa: E402
from common import RESULTS, VARIANTS, Point, Results, predict, print_table  # noqa: E402

import pymc_gibbsnn as pmg  # noqa: E402
from pymc_gibbsnn.diagnostics.convergence import merge  # noqa: E402
from pymc_gibbsnn.plots import plot_rhat, plot_thermalisation  # noqa: E402

SMALL, PAPER = ((5, 3, 1), 200), ((50, 10, 1), 2084)
DELTA = 1e-4
PAIRS, STUCK = 200, 50
SWEEPS, THIN, APART = 1000, 2, 2000
RUNS = {
    "plain": (VARIANTS["plain"], 100_000, 50),
    "as it is": ({}, 5_000, 5),
}  # arguments, sweeps, sweeps between draws


def draw_study(size: tuple[tuple[int, ...], int], seed: int, step: pmg.GibbsNN | None) -> pmg.TeacherStudent:
    """A teacher whose data the compiled step sees."""
    widths, n = size
    study = pmg.teacher_student(widths, n, 500, noise=DELTA**0.5, random_seed=seed)
    if step is not None:
        pm.set_data({"X": study.X, "y_data": study.y}, model=step.model)
    return study


def run(step: pmg.GibbsNN, study: pmg.TeacherStudent, point: Point, seed: int, sweeps: int) -> tuple[Point, np.ndarray]:
    """(point, test errors every THIN sweeps)."""
    step.set_rng(seed)
    step.tune = False
    errors = []
    for _ in range(sweeps // THIN):
        point, _ = step.step(point)
        errors.append(((predict(point, study.X_test) - study.f_test) ** 2).mean())
    return point, np.array(errors)


def calibrate(results: Results, pairs: int, stuck: int) -> None:
    step = pmg.GibbsNN(model=draw_study(SMALL, 0, None).model, sweeps_per_draw=THIN)
    found, seed = sum(run.get("stuck", False) for run in results.values()), 0
    while seed < pairs or found < stuck:
        key = f"teacher {seed}"
        if key not in results:
            study = draw_study(SMALL, seed, step)
            _, informed = run(step, study, study.teacher, 3 * seed, SWEEPS)
            verdicts = {}
            if seed < pairs:
                far, _ = run(step, study, study.teacher, 3 * seed + 1, APART)
                _, other = run(step, study, far, 3 * seed + 2, SWEEPS)
                verdicts["equilibrium"] = merge(informed, other)._asdict()
            if found < stuck:
                start = pmg.initial_values(study.model, "prior", random_seed=seed)
                _, other = run(step, study, start, 3 * seed + 2, SWEEPS)
                half = len(other) // 2
                verdicts["random"] = merge(informed, other)._asdict()
                verdicts["stuck"] = bool(other[half:].mean() > 2 * informed[half:].mean())
                found += verdicts["stuck"]
            results[key] = verdicts
        seed += 1


def print_rates(results: Results) -> None:
    groups = {
        "equilibrium": [r["equilibrium"] for r in results.values() if "equilibrium" in r],
        "stuck": [r["random"] for r in results.values() if r.get("stuck")],
        "random starts that are not stuck": [r["random"] for r in results.values() if r.get("stuck") is False],
    }
    rows = []
    for name, runs in groups.items():
        verdicts = [run["verdict"] for run in runs]
        times = [THIN * run["draw"] for run in runs if run["verdict"] == "thermalised"]
        rows.append(
            {"chains": name, "number": len(runs)}
            | {v: verdicts.count(v) for v in ("thermalised", "undecided", "not thermalised")}
            | {"sweeps to it, median": float(np.median(times)) if times else "-"}
        )
    print_table("Verdicts (n=200, 5-3-1, Δ=1e-4, 1,000 sweeps)", rows)


def draw_figure(seed: int, figures: Path, quick: bool) -> None:
    import matplotlib.pyplot as plt

    figures.mkdir(parents=True, exist_ok=True)
    study, rows = draw_study(SMALL if quick else PAPER, seed, None), []
    series, axes = plt.subplots(2, 2, figsize=(13, 11), layout="constrained")
    percentiles, below = plt.subplots(2, 2, figsize=(13, 8), layout="constrained")
    for i, (variant, (arguments, sweeps, thin)) in enumerate(RUNS.items()):
        thin, draws = (2, 200) if quick else (thin, sweeps // thin)
        results = sample(study, pmg.GibbsNN(model=study.model, sweeps_per_draw=thin, **arguments), draws, seed)
        for j, start in enumerate(("zero", "prior")):
            found = pmg.thermalisation(
                study, {name: results[name] for name in ("informed", start)}, sweeps_per_draw=thin
            )
            plot_thermalisation(found, ax=axes[i, j]).set_title(f"{variant}, {start}")
            plot_rhat(found, ax=below[i, j]).set_title(f"{variant}, {start}")
            print(f"{variant}\n{found.attrs['verdict']}", flush=True)
            late = found.isel(draw=slice(draws // 2, None), block=slice(found.sizes["block"] // 2, None))
            for name in found["start"].values:
                this = found.sel(start=name, chain=name)
                rows.append(
                    {
                        "GibbsNN": variant,
                        "start": str(name),
                        "verdict": str(this["verdict"].item()),
                        "merged": float(this["merge_time"]),
                        "stationary": float(this["stationarity_time"]),
                        "score": float(this["score_time"]),
                        "R-hat close": float(found.get("rhat_time_uninformed", this["rhat_time"])),
                        "R-hat, late": float(late[f"rhat{'_uninformed' * j}"].mean()),
                        "ArviZ's": float(late[f"rhat_rank{'_uninformed' * j}"].mean()),
                        "test error, late": float(late["series"].sel(chain=name).mean()),
                        "equilibrium": float(late["series"].sel(chain="informed").mean()),
                    }
                )
    series.savefig(figures / "thermalisation.png", dpi=120)
    percentiles.savefig(figures / "rhat.png", dpi=120)
    print_table("Fig. 1: times in sweeps; R-hat with the informed chain, of random starts among themselves", rows)


def sample(study: pmg.TeacherStudent, step: pmg.GibbsNN, draws: int, seed: int) -> dict[str, object]:
    """Chains by their starts."""
    results = {}
    for name, chains in (("informed", 1), ("zero", 1), ("prior", 2)):
        teacher = study.teacher if name == "informed" else None
        start = pmg.initial_values(study.model, name, teacher=teacher, chains=chains, random_seed=seed)
        results[name] = pm.sample(
            draws,
            tune=0,
            chains=chains,
            cores=1,
            step=step,
            initvals=start,
            var_names=["W1", "b1", "W2", "b2", "score"],
            random_seed=seed + chains + len(results),
            model=study.model,
            compute_convergence_checks=False,
            progressbar=False,
            quiet=True,
        )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["calibration", "figure", "table"], required=True)
    parser.add_argument("--quick", action="store_true", help="a few small chains, to see that it runs")
    parser.add_argument("--seed", type=int, default=2, help="of the teacher of the figure")
    parser.add_argument("--figures", type=Path, default=RESULTS / "figures")
    parser.add_argument("--output", type=Path, default=RESULTS / "thermalisation.json")
    args = parser.parse_args()
    if args.part == "figure":
        draw_figure(args.seed, args.figures, args.quick)
        return
    results = Results(args.output)
    if args.part == "calibration":
        calibrate(results, *((4, 2) if args.quick else (PAIRS, STUCK)))
    print_rates(results)


if __name__ == "__main__":
    main()

"""Test error against seconds for several samplers, as Fig. 2 (right) of Piccioli, Troiani, Zdeborová (2306.02729).

One teacher without noise, n = 500, 10-5-1, ReLU (or the paper's n = 2084, 50-10-1 with ``--paper``). GibbsNN() samples
the intermediate-noise posterior at Δ = 4.64e-4, NUTS and MALA (100 steps a draw) the classical posterior at
Δ = 1e-3, as in the paper so that they reach about the same error. Each runs from the teacher and from an uninformed
start: zero for Gibbs, normal with standard deviation 1e-4 for the others. Tuning counts. Run, with one thread a
process::

    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    python benchmarks/thermalisation_dynamics.py [--quick] [--paper] [--seed 1] [--output FILE] [--figures DIRECTORY]
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial
from pathlib import Path

warnings.filterwarnings("ignore", "\\s*ArviZ is undergoing", FutureWarning)

import numpy as np  # noqa: E402
import pymc as pm  # noqa: E402
from common import RESULTS, Point, Results, predict, print_table  # noqa: E402

import pymc_gibbsnn as pmg  # noqa: E402
from pymc_gibbsnn.diagnostics.convergence import merge  # noqa: E402

NOISY, CLASSICAL = 4.64e-4, 1e-3
WEIGHTS = ["W1", "b1", "W2", "b2"]
SWEEPS, SPACING, DRAWS = 10_000, 10, 1000
MALA_STEPS = 100  # a draw


def classical(study: pmg.TeacherStudent) -> pm.Model:
    """The same network without noise inside."""
    widths = study.X.shape[1], len(study.teacher["b1"])
    with pm.Model() as model:
        x = pm.Data("X", study.X)
        w1 = pm.Normal("W1", 0, widths[0] ** -0.5, shape=widths[::-1])
        b1 = pm.Normal("b1", 0, widths[0] ** -0.5, shape=widths[1])
        w2 = pm.Normal("W2", 0, widths[1] ** -0.5, shape=widths[1])
        b2 = pm.Normal("b2", 0, widths[1] ** -0.5)
        pm.Normal("y", pm.math.maximum(x @ w1.T + b1, 0) @ w2 + b2, CLASSICAL**0.5, observed=study.y)
    return model


def run_gibbs(study: pmg.TeacherStudent, point: Point, sweeps: int) -> dict[str, list[float]]:
    step = pmg.GibbsNN(model=study.model, sweeps_per_draw=SPACING)
    step.setup_chain(1, tune=0, draws=0)
    step.step(study.teacher)  # compiles
    seconds, errors = [0.0], []
    for _ in range(sweeps // SPACING):
        start = time.perf_counter()
        point, _ = step.step(point)
        seconds.append(seconds[-1] + time.perf_counter() - start)
        errors.append(float(((predict(point, study.X_test) - study.f_test) ** 2).mean()))
    return {"seconds": seconds[1:], "errors": errors}


def run_classical(study: pmg.TeacherStudent, make_step, point: Point, draws: int) -> dict[str, list[float]]:
    with classical(study) as model:
        step = make_step()
        start = time.perf_counter()
        idata = pm.sample(
            draws,
            tune=draws,
            chains=1,
            step=step,
            initvals=point,
            random_seed=1,
            discard_tuned_samples=False,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
        seconds = time.perf_counter() - start
    errors = []
    for group in ("warmup_posterior", "posterior"):
        space = pmg.function_space({"posterior": idata[group]}, model, study.X_test)
        errors += list(((space["output"].values[0] - study.f_test) ** 2).mean(axis=1))
    if "perf_counter_diff" in idata["sample_stats"]:
        parts = [idata[group]["perf_counter_diff"].values[0] for group in ("warmup_sample_stats", "sample_stats")]
        times = np.cumsum(np.concatenate(parts))
    else:
        times = np.linspace(0, seconds, len(errors) + 1)[1:]
    return {"seconds": list(times), "errors": [float(error) for error in errors]}


def main() -> None:
    import matplotlib.pyplot as plt

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few draws, to see that it runs")
    parser.add_argument("--paper", action="store_true", help="at the paper's size")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS / "thermalisation_dynamics.json")
    parser.add_argument("--figures", type=Path, default=RESULTS / "figures")
    args = parser.parse_args()
    widths, n = ((50, 10, 1), 2084) if args.paper else ((10, 5, 1), 500)
    study = pmg.teacher_student(widths, n, 500, noisy=False, noise=NOISY**0.5, random_seed=args.seed)
    weights = {name: study.teacher[name] for name in WEIGHTS}
    rng = np.random.default_rng(args.seed)
    small = {name: rng.normal(0, 1e-4, size=np.shape(value)) for name, value in weights.items()}
    zero = pmg.initial_values(study.model, "zero")
    draws = DRAWS // 20 if args.quick else DRAWS
    samplers = {"NUTS": pm.NUTS, "MALA": partial(pmg.MALA, sweeps_per_draw=MALA_STEPS)}
    results, rows = Results(args.output), []
    fig, ax = plt.subplots(figsize=(8, 5))
    for i, name in enumerate(["GibbsNN", *samplers]):
        for start in ("informed", "uninformed"):
            key = f"{widths}, seed {args.seed}, {draws} draws | {name} | {start}"
            if key not in results and name == "GibbsNN":
                point = study.teacher if start == "informed" else zero
                results[key] = run_gibbs(study, point, draws * SWEEPS // DRAWS)
            elif key not in results:
                point = weights if start == "informed" else small
                results[key] = run_classical(study, samplers[name], point, draws)
            run = results[key]
            alpha = 0.4 if start == "informed" else 1
            ax.plot(run["seconds"], run["errors"], color=f"C{i}", alpha=alpha, lw=0.8, label=f"{name}, {start}")
        found = merge(results[key.replace("uninformed", "informed")]["errors"], run["errors"], max(10, draws // 40))
        after = "-" if np.isnan(found.draw) else run["seconds"][max(int(found.draw) - 1, 0)]
        rows.append({"sampler": name, "verdict": found.verdict, "seconds to it": after, "all": run["seconds"][-1]})
    ax.set(xscale="log", yscale="log", xlabel="seconds", ylabel="test error")
    ax.legend(frameon=False)
    args.figures.mkdir(parents=True, exist_ok=True)
    fig.savefig(args.figures / "thermalisation_dynamics.png", dpi=120)
    print_table(f"From an uninformed start (n={n}, {'-'.join(map(str, widths))})", rows)


if __name__ == "__main__":
    main()

"""How many chains of the default call thermalise, against Fig. 2 (left) of Piccioli, Troiani, Zdeborová (2306.02729).

For each teacher an informed chain starts at the teacher, and another one from zero, where ``pm.sample`` starts by
itself: 1,000 tuning steps of GibbsNN(), and then as many sweeps as the informed chain has. "from zero" is
GibbsNN(anneal=None), which fits no network to start from, and anneals none. "informed" is a second chain from the
teacher: the share of these that thermalise is what the rule grants, on average, to chains that need not be found.
pymc_gibbsnn.diagnostics.convergence.merge compares the test errors of both chains (mean square, without noise) after
the tuning and says whether the chain has thermalised. The networks are

- paper: n = 2084, 50-10-1, ReLU, labels of a teacher *without* noise, sampled with noise Δ everywhere; every second
  sweep gives a test error, in blocks of 100 sweeps; 4,000 sweeps at Δ = 1e-2, where the test error decorrelates most
  slowly, 2,000 at 1e-3, 1,000 below. The paper's plain Gibbs sampler had thermalised for 72, 59, 30 and 4 of 72
  teachers at 1e-2, 1e-3, 1e-4 and 1e-5, after 2.5 million sweeps;
- small (n = 200, 5-3-1) and middle (n = 500, 10-5-1) at Δ = 1e-4, and convolution (n = 200 images of 8x8, 2 filters of
  3x3, an average pool of 2x2, ReLU, one output) at 1e-4: labels with noise, 1,000 sweeps, each with a test error, in
  blocks of 50;
- deep (n = 500, 10-5-5-1) at 1e-3: the same with 20,000 sweeps, every tenth of which gives a test error;
- learned-small and learned-middle: the data of small and middle, for a model with noise="learned" and prior="learned".

Every teacher's result is saved as it comes and never measured twice; several processes with different outputs may share
the work. Run, with one thread a process::

    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    python benchmarks/thermalised_fraction.py [--part paper] [--teachers 100-123] [--delta 1e-3] [--output FILE]
    python benchmarks/thermalised_fraction.py --table [--output FILE ...]
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

warnings.filterwarnings("ignore", "\\s*ArviZ is undergoing", FutureWarning)

import numpy as np  # noqa: E402
import pymc as pm  # noqa: E402
from common import RESULTS, Point, Results, load, print_table  # noqa: E402

import pymc_gibbsnn as pmg  # noqa: E402
from pymc_gibbsnn.diagnostics.convergence import merge  # noqa: E402
from pymc_gibbsnn.drivers.starts import points_of_chains  # noqa: E402
from pymc_gibbsnn.networks.reader import read_network  # noqa: E402
from pymc_gibbsnn.prediction.function import forward  # noqa: E402

TUNE = 1000


@dataclass(frozen=True)
class Part:
    """A network, whether its teachers have noise, sweeps by Δ, sweeps between test errors, and a block of those.

    The network without widths is the one with a convolution. ``learned``: whether the model learns noise and priors.
    """

    widths: tuple[int, ...] | None
    n: int
    noisy: bool
    sweeps: dict[float, int]
    spacing: int
    block: int
    learned: bool = False


PARTS = {
    "paper": Part((50, 10, 1), 2084, False, {1e-2: 4000, 1e-3: 2000, 1e-4: 1000, 1e-5: 1000}, 2, 50),
    "small": Part((5, 3, 1), 200, True, {1e-4: 1000}, 1, 50),
    "middle": Part((10, 5, 1), 500, True, {1e-4: 1000}, 1, 50),
    "deep": Part((10, 5, 5, 1), 500, True, {1e-3: 20_000}, 10, 50),
    "convolution": Part(None, 200, True, {1e-4: 1000}, 1, 50),
    "learned-small": Part((5, 3, 1), 200, True, {1e-4: 1000}, 1, 50, learned=True),
    "learned-middle": Part((10, 5, 1), 500, True, {1e-4: 1000}, 1, 50, learned=True),
}
PAPERS_SHARE = {"0.01": "72/72", "0.001": "59/72", "0.0001": "30/72", "1e-05": "4/72"}
VARIANTS = {"default": "auto", "from zero": None, "informed": None}  # each with its argument ``anneal``


def draw_study(part: Part, delta: float, seed: int) -> pmg.TeacherStudent:
    if part.widths:
        study = pmg.teacher_student(part.widths, part.n, noisy=part.noisy, noise=delta**0.5, random_seed=seed)
        if not part.learned:
            return study
        model = pmg.mlp(study.X, study.y, part.widths[1:-1], noise="learned", prior="learned", likelihood="normal")
        scales = {f"precision_W{l}": d for l, d in enumerate(part.widths[:-1], start=1)}
        scales |= {rv.name: delta for rv in model.free_RVs if rv.name.startswith("variance")}
        return replace(study, model=model, teacher=study.teacher | scales)
    model = pmg.cnn(np.zeros((part.n, 8, 8)), np.zeros(part.n), 2, size=3, pool=2, noise=delta**0.5, prior=None)
    return pmg.teacher_student(model, part.n, noisy=part.noisy, random_seed=seed)


def run(step: pmg.GibbsNN, point: Point, study: pmg.TeacherStudent, part: Part, sweeps: int) -> np.ndarray:
    """Test errors."""
    network, errors = read_network(study.model), []
    X_test = study.X_test.reshape(len(study.X_test), -1)
    for sweep in range(sweeps):
        point, _ = step.step(point)
        if (sweep + 1) % part.spacing == 0:
            *_, (output, _) = forward(network, point, X_test)
            errors.append(((output[:, 0] - study.f_test) ** 2).mean())
    return np.array(errors)


def measure(
    step: pmg.GibbsNN, study: pmg.TeacherStudent, seed: int, part: Part, sweeps: int, variant: str
) -> dict[str, object]:
    pm.set_data({"X": study.X, "y_data": study.y}, model=step.model)
    zero = pmg.initial_values(study.model, "zero")
    teacher, zero = points_of_chains(study.model, [study.teacher, zero], [seed, seed])
    step.setup_chain(seed, tune=0, draws=0)
    informed = run(step, teacher, study, part, sweeps)

    point, tune = (teacher, 0) if variant == "informed" else (zero, TUNE)
    step.setup_chain(seed + 1_000_000, tune=tune, draws=0)
    start = time.process_time()
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    tuned = time.process_time()
    errors = run(step, point, study, part, sweeps)
    found = merge(informed, errors, part.block)
    return {
        "equilibrium": float(informed[len(informed) // 2 :].mean()),
        "verdict": found.verdict,
        "sweeps": part.spacing * found.draw,
        "tuning": tuned - start,
        "drawing": (time.process_time() - tuned) * 1000 / sweeps,
        "error": float(errors[len(errors) // 2 :].mean()),
    }


def print_results(results: dict) -> None:
    rows = []
    for name, part in PARTS.items():
        for delta, variant in product(part.sweeps, VARIANTS):
            runs = [run for key, run in results.items() if key.startswith(f"{name} | {delta:g} | {variant} | ")]
            done = [run for run in runs if run["verdict"] == "thermalised"]
            stuck = [run["error"] / run["equilibrium"] for run in runs if run["verdict"] != "thermalised"]
            if runs:
                rows.append(
                    {
                        "network": name,
                        "Δ": f"{delta:g}",
                        "GibbsNN": variant,
                        "thermalised": f"{len(done)}/{len(runs)}",
                        "undecided": sum(run["verdict"] == "undecided" for run in runs),
                        "paper, 2.5e6 sweeps": PAPERS_SHARE[f"{delta:g}"] if name == "paper" else "-",
                        "draws to it, median": float(np.median([run["sweeps"] for run in done])) if done else "-",
                        "seconds of tuning, median": float(np.median([run["tuning"] for run in runs])),
                        "of 1,000 draws": float(np.median([run["drawing"] for run in runs])),
                        "test error at equilibrium": float(np.median([run["equilibrium"] for run in runs])),
                        "not thermalised: error over it": float(np.median(stuck)) if stuck else "-",
                    }
                )
    print_table("Chains that thermalised", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--teachers", default="100-123", help="first-last (default: 100-123)")
    parser.add_argument("--delta", type=float, nargs="+", help="only these noise variances")
    parser.add_argument("--variant", choices=VARIANTS, nargs="+", default=list(VARIANTS))
    parser.add_argument("--table", action="store_true", help="print what has been measured, and stop")
    parser.add_argument("--output", type=Path, nargs="+", default=[RESULTS / "thermalised_fraction.json"])
    args = parser.parse_args()
    if args.table:
        print_results({key: value for path in args.output for key, value in load(path).items()})
        return
    results = Results(args.output[0])
    first, _, last = args.teachers.partition("-")
    for name, variant in product(args.part, args.variant):
        part = PARTS[name]
        for delta in [delta for delta in part.sweeps if not args.delta or delta in args.delta]:
            step = None
            for seed in range(int(first), int(last or first) + 1):
                key = f"{name} | {delta:g} | {variant} | {seed}"
                if key in results:
                    continue
                study = draw_study(part, delta, seed)
                if step is None:
                    step = pmg.GibbsNN(model=study.model, anneal=VARIANTS[variant], sweeps_per_draw=1)
                results[key] = measure(step, study, seed, part, part.sweeps[delta], variant)
                print(key, results[key], flush=True)
    print_results(results)


if __name__ == "__main__":
    main()

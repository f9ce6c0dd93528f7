"""How fast convolutional networks mix in equilibrium: Algorithm 1 of the paper beside all moves.

n = 200 random images of 8x8 pixels, two filters of 3x3, ReLU and one output, with and without an average pool of 2x2
after the convolution, and noise of variance Δ everywhere. Chains start at the teacher, latents included, which is an
exact draw of the posterior. The table holds the integrated autocorrelation time, in sweeps, of the output for 20 test
images (the median over them), and the processor's milliseconds for a sweep. A time above a twentieth of the run is only
a lower bound, marked with a star. Run::

    OMP_NUM_THREADS=1 python benchmarks/image_mixing.py [--teachers 3] [--sweeps 20000] [--delta 1e-2] [--output FILE]
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", "\\s*ArviZ is undergoing", FutureWarning)

import arviz as az  # noqa: E402
import numpy as np  # noqa: E402
import pymc as pm  # noqa: E402
from common import RESULTS, VARIANTS, Results, print_table  # noqa: E402

import pymc_gibbsnn as pmg  # noqa: E402
from pymc_gibbsnn.networks.reader import read_network  # noqa: E402
from pymc_gibbsnn.prediction.function import forward  # noqa: E402

N, THIN = 200, 2
POOLS = {"without a pool": None, "with a pool": 2}
COMPARED = {"Algorithm 1": VARIANTS["plain"], "all moves": VARIANTS["all"]}


def write(pool: int | None, delta: float) -> pm.Model:
    return pmg.cnn(np.zeros((N, 8, 8)), np.zeros(N), 2, size=3, pool=pool, noise=delta**0.5, prior=None)


def measure(step: pmg.GibbsNN, study: pmg.TeacherStudent, seed: int, sweeps: int) -> tuple[float, float]:
    """Sweeps and milliseconds of a sweep."""
    pm.set_data({"X": study.X, "y_data": study.y}, model=step.model)
    step.setup_chain(seed, tune=0, draws=0)
    step.tune = False
    network, point, outputs, spent = read_network(study.model), study.teacher, [], 0.0
    X_test = study.X_test[:20].reshape(20, -1)
    for _ in range(sweeps // THIN):
        start = time.process_time()
        point, _ = step.step(point)
        spent += time.process_time() - start
        *_, (output, _) = forward(network, point, X_test)
        outputs.append(output[:, 0])
    tau = [THIN * len(x) / float(az.ess(x[None], method="mean")) for x in np.transpose(outputs)]
    return float(np.median(tau)), 1000 * spent / sweeps


def main(teachers: int, sweeps: int, delta: float, output: Path) -> None:
    """Measure what is not yet in the output, and print the table."""
    results, rows = Results(output), []
    for name, pool in POOLS.items():
        steps = {
            variant: pmg.GibbsNN(model=write(pool, delta), sweeps_per_draw=THIN, **moves)
            for variant, moves in COMPARED.items()
        }
        for seed in range(teachers):
            row: dict[str, object] = {"network": name, "teacher": seed}
            for variant, step in steps.items():
                key = f"{name} | {delta:g} | {seed} | {variant} | {sweeps}"
                if key not in results:
                    study = pmg.teacher_student(write(pool, delta), N, noisy=True, random_seed=seed)
                    results[key] = measure(step, study, seed, sweeps)
                tau, milliseconds = results[key]
                row |= {variant: f"{tau:.3g}{'*' * (tau > sweeps / 20)}", f"ms, {variant}": milliseconds}
            rows.append(row)
    print_table(f"Sweeps to decorrelate outputs, Δ={delta:g}", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teachers", type=int, default=3)
    parser.add_argument("--sweeps", type=int, default=20_000)
    parser.add_argument("--delta", type=float, default=1e-2)
    parser.add_argument("--output", type=Path, default=RESULTS / "image_mixing.json")
    main(**vars(parser.parse_args()))

"""Time of one sweep of GibbsNN by the likelihood, beside that of Gaussian targets.

A noisy network of 50 ReLU units in its default form, but for the likelihood, on 2,000 rows of 10 inputs. The steps take
turns in one process, after their compilation; ``ratio`` is the median over repeats of the time of a sweep over that of
the Gaussian one in the same repeat. Beside it stands the time of the first call. It compiles all anew only where
``PYTENSOR_FLAGS=base_compiledir=FOLDER`` names an empty folder.

::

    OMP_NUM_THREADS=1 python benchmarks/likelihoods.py [--likelihoods bernoulli ...] [--repeats 5] [--output FILE]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from common import RESULTS, load, print_table, save, sweeps, time_in_turn

import pymc_gibbsnn as pmg

ROWS, INPUTS, UNITS = 2000, 10, 50
GAUSSIAN = "normal"
SWEEPS = 20  # in a repeat


def simulated() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Inputs, and targets around a smooth function of them for each likelihood."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, INPUTS))
    f = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 2
    real, labels = f + 0.3 * rng.normal(size=ROWS), (f + 0.5 * rng.logistic(size=ROWS) > 0).astype(int)
    classes, counts = np.digitize(f, [-0.5, 0.5]), rng.poisson(np.exp(f))
    return X, {
        GAUSSIAN: real,
        "student": real,
        "laplace": real,
        "bernoulli": labels,
        "probit": labels,
        "ordered": classes,
        "categorical": classes,
        "poisson": counts,
        "negative_binomial": counts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    X, targets = simulated()
    parser.add_argument("--likelihoods", nargs="+", choices=list(targets), default=list(targets))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS / "likelihoods.json")
    args = parser.parse_args()
    runs, first = {}, {}
    for name in dict.fromkeys([GAUSSIAN, *args.likelihoods]):
        model = pmg.mlp(X, targets[name], UNITS, likelihood=name)
        start = time.perf_counter()
        step = pmg.GibbsNN(model=model, rng=1)
        step.step(model.initial_point())
        first[name] = time.perf_counter() - start
        runs[name] = sweeps(step, model.initial_point(), SWEEPS)
    seconds = time_in_turn(runs, args.repeats)
    rows = [
        {
            "likelihood": name,
            "ms": float(1e3 * np.median(times) / SWEEPS),
            "ratio": float(np.median(times / seconds[GAUSSIAN])),
            "first call, s": first[name],
        }
        for name, times in seconds.items()
    ]
    save(args.output, load(args.output) | {row["likelihood"]: row for row in rows})
    print_table(f"One sweep, n = {ROWS}, {INPUTS}-{UNITS}", rows)


if __name__ == "__main__":
    main()

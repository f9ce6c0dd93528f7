"""Time of ``pmg.sample`` by chains, samples and precision, against ``pm.sample``; compile time and memory.

A run makes as many draws as it can in a few seconds, after the program is compiled, recording the weights. ``ms`` is
the time of one sweep of one chain. ``pm.sample`` runs the same step, compiled by Numba, one chain in one process. Peak
memory is that of the device, where it tells (GPUs do). Every row is measured in a process of its own.

Run on the CPU, or on a GPU if JAX finds one::

    python benchmarks/jax_driver.py [--quick] [--chains 1 4 16] [--output FILE]
    python benchmarks/jax_driver.py --mnist FILE.npz     # 784-12-10, n = 60,000, without interweaving and with it

FILE.npz holds ``x_train`` (60000, 28, 28) or (60000, 784) and ``y_train``.
"""

from __future__ import annotations

import argparse
import itertools
import logging
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import jax
import numpy as np
import pymc as pm
from common import PAPER, RESULTS, VARIANTS, Problem, Results, draw_teacher, make_model, print_table

import pymc_gibbsnn as pmg

SMALL = Problem(n=200, d=5, hidden=(3,), delta=1e-2)
MEASURED = {name: VARIANTS[name] for name in ("collapsed + scale", "all")}
SECONDS = 5.0


def rate(problem: Problem | Path, variant: str, chains: int, precision: str) -> dict:
    """Time of a sweep and of the compilation."""
    model, start = load_problem(problem)
    names = [rv.name for rv in model.free_RVs if rv.name[0] in "Wb"]

    def run(draws: int):
        with model:
            idata = pmg.sample(
                draws,
                step=pmg.GibbsNN(**MEASURED[variant]),
                tune=0,
                chains=chains,
                precision=precision,
                initvals=start,
                var_names=names,
                random_seed=1,
                progressbar=False,
            )
        return idata["posterior"].attrs

    trial = run(4)
    draws = int(np.clip(SECONDS / (trial["sampling_time"] / 3), 10, 100_000))
    attrs = run(draws)
    seconds = attrs["sampling_time"] / (draws - 1)
    memory = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return {
        "ms": 1e3 * seconds / chains,
        "draws/s": chains / seconds,
        "compile (s)": trial["compilation_time"],
        "memory (MiB)": "-" if memory is None else memory / 2**20,
    }


def rate_of_pm_sample(problem: Problem | Path, variant: str) -> float:
    """Milliseconds per draw of one chain."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    model, start = load_problem(problem)
    with model:
        step = pmg.GibbsNN(**MEASURED[variant])
        names = [rv.name for rv in model.free_RVs if rv.name[0] in "Wb"]
        times = {}
        for draws in (1, 20, 1020):  # the first call compiles
            idata = pm.sample(
                draws,
                tune=0,
                chains=1,
                cores=1,
                step=step,
                initvals=start,
                var_names=names,
                progressbar=False,
                compute_convergence_checks=False,
            )
            times[draws] = idata["posterior"].attrs["sampling_time"]
    return (times[1020] - times[20]) / 1000 * 1e3


def load_problem(problem: Problem | Path) -> tuple[pm.Model, dict[str, np.ndarray] | None]:
    """The model, and the teacher to start from."""
    if isinstance(problem, Problem):
        teacher = draw_teacher(problem, seed=0)
        return make_model(problem, teacher), teacher.point
    data = np.load(problem)
    x = data["x_train"].reshape(len(data["x_train"]), -1) / 255
    x = (x - x.mean()) / x.std()
    return pmg.mlp(x, data["y_train"].astype(int), 12, noise=2**0.5, likelihood="probit"), None


def alone(function: Callable, *arguments):
    """Call in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one to sixteen chains at the paper's size only")
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--precision", nargs="+", default=["float32", "float64"])
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--output", type=Path, default=RESULTS / "jax_driver.json")
    arguments = parser.parse_args()
    results = Results(arguments.output)
    chains = [c for c in arguments.chains if c <= 16] if arguments.quick else arguments.chains
    problems = [arguments.mnist] if arguments.mnist else [PAPER] if arguments.quick else [PAPER, SMALL]
    rows = []
    for problem, variant in itertools.product(problems, MEASURED):
        reference = alone(rate_of_pm_sample, problem, variant)
        for precision, count in itertools.product(arguments.precision, chains):
            found = alone(rate, problem, variant, count, precision)
            row = {"problem": str(problem), "variant": variant, "precision": precision, "chains": count, **found}
            row["pm.sample (ms)"] = reference
            row["draws/s over pm.sample's"] = found["draws/s"] * reference / 1e3
            rows.append(row)
            results[" ".join(map(str, list(row.values())[:4]))] = row
    print_table(f"pmg.sample on {jax.devices()[0].device_kind}", rows)


if __name__ == "__main__":
    main()

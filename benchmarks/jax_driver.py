"""Time of ``pmg.sample`` by chains, samples and precision, against ``pm.sample``; compile time and memory.

A run makes as many draws as it can in a few seconds, after the program is compiled, recording the weights, of large
networks those of the last layer alone. ``ms`` is the time of one draw of one chain: a sweep, or 25 steps of pCN or
pCNL. ``pm.sample`` runs the same step, compiled by Numba, one chain in one process. Peak memory is that of the device,
where it tells (GPUs do). Every row is measured in a process of its own.

Run on the CPU, or on a GPU if JAX finds one::

    python benchmarks/jax_driver.py [--quick] [--networks paper wide] [--chains 1 4 16] [--output FILE]
    python benchmarks/jax_driver.py --networks mnist cnn blocks --mnist FILE.npz

The networks are

- ``paper``, 2,084 rows, 50-10-1, and ``small``, 200 rows, 5-3-1;
- ``logistic``, 1,000 rows, 10-10-1, labels drawn with probabilities;
- ``wide``: 256 rows of 3,072 inputs, 4,192 hidden units, 10 outputs, pCN and pCNL in the row space of the data;
- on the 60,000 images of MNIST: ``mnist``, 784-12-10; ``cnn``, two filters of 4x4 at stride 2, an average pool of 2x2
  and ten outputs; and ``blocks``, 784-10-10-10-10 without noise, of which FNBG moves 130 blocks in turn, each on the
  same batch of 3,000 images. FILE.npz is the ``mnist.npz`` that ``data_sets.py images`` writes.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import jax
import numpy as np
import pymc as pm
from common import PAPER, RESULTS, VARIANTS, Point, Problem, Results, draw_teacher, make_model, print_table

import pymc_gibbsnn as pmg

SMALL = Problem(n=200, d=5, hidden=(3,), delta=1e-2)
GIBBS = {name: partial(pmg.GibbsNN, **VARIANTS[name]) for name in ("collapsed + scale", "all")}
IN_ROW_SPACE = {"beta": 0.1, "reparametrise": True, "sweeps_per_draw": 25}
SAMPLERS = {
    "paper": GIBBS,
    "small": GIBBS,
    "logistic": GIBBS,
    "wide": {"pCN": partial(pmg.PCN, **IN_ROW_SPACE), "pCNL": partial(pmg.PCNL, **IN_ROW_SPACE)},
    "mnist": GIBBS,
    "cnn": GIBBS,
    "blocks": {"FNBG": partial(pmg.FNBG, blocks=79, scale=0.01)},
}
ON_MNIST = ("mnist", "cnn", "blocks")
SECONDS = 5.0


def load(network: str, mnist: Path | None) -> tuple[pm.Model, Point | None, list[str]]:
    """The model, the teacher to start from, and what is recorded; without a file, images and labels are random."""
    if network == "wide":
        rng = np.random.default_rng(0)
        labels = np.eye(10)[rng.integers(10, size=256)] - 0.1
        return pmg.wide_mlp(rng.normal(size=(256, 3072)), labels, width=4192, noise=0.1), None, ["W2"]
    if network == "logistic":
        rng = np.random.default_rng(0)
        x = rng.normal(size=(1000, 10))
        y = rng.random(1000) < 1 / (1 + np.exp(-3 * np.sin(x[:, 0]) - x[:, 1]))
        return pmg.mlp(x, y.astype(int), 10, noise=0.1, likelihood="bernoulli", prior=None), None, ["W2"]
    if network in ON_MNIST:
        x, y = images(mnist)
        rows = x.reshape(len(x), -1)
        if network == "mnist":
            return pmg.mlp(rows, y, 12, noise=2**0.5, likelihood="probit", prior=None), None, ["W2"]
        if network == "cnn":
            return pmg.cnn(x, y, 2, size=4, stride=2, pool=2, noise=10.0, likelihood="probit", prior=None), None, ["W2"]
        return pmg.classical_mlp(rows, y, [10, 10, 10], prior_variance=10, batch_size=3000), None, ["W4"]
    problem = PAPER if network == "paper" else SMALL
    teacher = draw_teacher(problem, seed=0)
    model = make_model(problem, teacher)
    return model, teacher.point, [rv.name for rv in model.free_RVs if rv.name[0] in "Wb"]


def images(mnist: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The images of MNIST, standardised, and their labels; or as many of random numbers."""
    if mnist is None:
        rng = np.random.default_rng(0)
        return rng.normal(size=(60_000, 28, 28)), rng.integers(10, size=60_000)
    data = np.load(mnist)
    x = data["x_train"] / 255
    return (x - x.mean()) / x.std(), data["y_train"].astype(int)


def rate(
    network: str, sampler: str, mnist: Path | None, chains: int, precision: str, seconds: float = SECONDS
) -> dict[str, object]:
    """Time of a sweep and of the compilation."""
    model, start, names = load(network, mnist)

    def run(draws: int):
        with model:
            idata = pmg.sample(
                draws,
                step=SAMPLERS[network][sampler](),
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
    draws = int(np.clip(seconds / (trial["sampling_time"] / 3), 10, 100_000))
    attrs = run(draws)
    of_all = attrs["sampling_time"] / (draws - 1)
    memory = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return {
        "ms": 1e3 * of_all / chains,
        "draws/s": chains / of_all,
        "compile (s)": trial["compilation_time"],
        "memory (MiB)": "-" if memory is None else memory / 2**20,
    }


def rate_of_pm_sample(network: str, sampler: str, mnist: Path | None) -> float:
    """Milliseconds per draw of one chain."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    model, start, names = load(network, mnist)
    with model:
        step = SAMPLERS[network][sampler]()

        def seconds(draws: int) -> float:
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
            return idata["posterior"].attrs["sampling_time"]

        seconds(1)  # this compiles
        few = seconds(4)
        draws = int(np.clip(SECONDS / (few / 4), 4, 1000))
        return (seconds(4 + draws) - few) / draws * 1e3


def alone(function: Callable, *arguments):
    """Call in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one to sixteen chains of the paper's network only")
    parser.add_argument("--networks", nargs="+", choices=list(SAMPLERS), default=["paper", "small"])
    parser.add_argument("--samplers", nargs="+", help="some of 'collapsed + scale', 'all', 'pCN', 'pCNL', 'FNBG'")
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--precision", nargs="+", default=["float32", "float64"])
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--output", type=Path, default=RESULTS / "jax_driver.json")
    arguments = parser.parse_args()
    if {*ON_MNIST} & {*arguments.networks} and arguments.mnist is None:
        parser.error(f"the networks {', '.join(ON_MNIST)} need --mnist FILE.npz")
    results = Results(arguments.output)
    chains = [c for c in arguments.chains if c <= 16] if arguments.quick else arguments.chains
    cases = [
        (network, sampler, arguments.mnist)
        for network in (["paper"] if arguments.quick else arguments.networks)
        for sampler in SAMPLERS[network]
        if sampler in (arguments.samplers or [sampler])
    ]
    with ThreadPoolExecutor(max(1, os.cpu_count() // 4)) as pool:
        references = list(pool.map(lambda case: alone(rate_of_pm_sample, *case), cases))
    rows = []
    for (case, reference), precision, count in itertools.product(
        zip(cases, references, strict=True), arguments.precision, chains
    ):
        found = alone(rate, *case, count, precision)
        row = {"network": case[0], "sampler": case[1], "precision": precision, "chains": count, **found}
        row["pm.sample (ms)"] = reference
        row["draws/s over pm.sample's"] = found["draws/s"] * reference / 1e3
        rows.append(row)
        results[" ".join(map(str, list(row.values())[:4]))] = row
    print_table(f"pmg.sample on {jax.devices()[0].device_kind}", rows)


if __name__ == "__main__":
    main()

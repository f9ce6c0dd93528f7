"""Blocked Metropolis for classifiers: the experiments of Papamarkou (arXiv 2208.11389), and the time of a sweep.

``xor``: noisy XOR, 10 chains of 110,000 sweeps, sigmoid networks 2-2-1 and 2-2-2-2-2-2-2-1, prior variance 10. On
batches of 100 with proposals of variance .04, exactly with .001 (deep network only), and with tuned proposals; accuracy
by chain and acceptance by layer (Figs. 3, 4, 7).

``images``: MNIST and Fashion-MNIST, 784-10-10-10-10, one chain of 110,000 sweeps, accuracy of the last 10,000 (Table
2), with the variances that the paper tuned by hand (Tables 5, 6) and with tuned ones, at blocks of at most 79 and 11
parameters. The target is prior x likelihood of a batch, as in the paper: without total_size.

``speed``: milliseconds of a sweep over the 130 blocks of 784-10-10-10-10 at batch 3000 on one core, beside a NumPy
sweep that makes a full forward pass for each block.

Needs mnist.npz and fashion_mnist.npz (x_train, y_train, x_test, y_test) in the folder PYMC_GIBBSNN_DATA, except for
``xor``. Run as::

    python benchmarks/fnbg.py {xor,images,speed} [--quick] [--output FILE]
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
from common import RESULTS, Results, print_table

import pymc_gibbsnn as pmg

SWEEPS, BURN_IN, LAST = 110_000, 10_000, 10_000
PAPER_XOR = {("2-2-1", "batch"): 0.8675, ("2-2-2-2-2-2-2-1", "batch"): 0.9888, ("2-2-2-2-2-2-2-1", "exact"): 0.8692}
PAPER_IMAGES = {
    "mnist": {600: 0.8599, 1800: 0.8901, 3000: 0.9075, 4200: 0.9043},
    "fashion_mnist": {600: 0.7150, 1800: 0.8007, 3000: 0.8089, 4200: 0.7917},
}
PAPER_VARIANCES = {  # by layer
    600: [5e-2, 5e-4, 5e-4, 5e-5],
    1800: [2e-2, 2e-4, 2e-4, 2e-5],
    3000: [1e-2, 1e-4, 1e-4, 1e-5],
    4200: [1e-2, 1e-4, 1e-4, 1e-5],
}


def run(model: pm.Model, scale, blocks, sweeps: int, chains: int, thin: int):
    """(draws, seconds) on two cores through Numba, after a burn-in of a part of the sweeps."""
    burn_in = sweeps * BURN_IN // SWEEPS
    started = time.perf_counter()
    with model:
        idata = pm.sample(
            (sweeps - burn_in) // thin,
            tune=burn_in // thin,
            step=pmg.FNBG(blocks=blocks, scale=scale, sweeps_per_draw=thin),
            chains=chains,
            cores=2,
            initvals=start(model, chains),
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    return idata, time.perf_counter() - started


def start(model: pm.Model, chains: int) -> list[dict[str, np.ndarray]]:
    """Standard normal weights, another draw for each chain."""
    rng = np.random.default_rng(0)
    shapes = {name: np.shape(x) for name, x in model.initial_point().items()}
    return [{name: rng.normal(size=shape) for name, shape in shapes.items()} for _ in range(chains)]


def accuracy(idata, model: pm.Model, X: np.ndarray, y: np.ndarray, thin: int, last: int) -> np.ndarray:
    """By chain, from the last sweeps."""
    posterior = idata["posterior"]
    tail = {"posterior": posterior.isel(draw=slice(-max(1, last // thin), None))}
    return (pmg.class_probabilities(tail, model, X).values.argmax(-1) == y).mean(-1)


def acceptance(idata, layers: int) -> dict[str, float]:
    stats = idata["sample_stats"]
    return {f"acc {l}": float(stats[f"acceptance_W{l}"].mean()) for l in range(1, layers + 1)}


def xor(quick: bool, results: Results) -> None:
    X, y, X_test, y_test = pmg.noisy_xor(random_seed=0)
    sweeps, chains = (5500, 4) if quick else (SWEEPS, 10)
    thin = 10
    rows = []
    for hidden, kind in [
        ([2], "batch"),
        ([2] * 6, "batch"),
        ([2] * 6, "exact"),
        ([2], "batch, tuned"),
        ([2] * 6, "batch, tuned"),
        ([2] * 6, "exact, tuned"),
    ]:
        batch = 100 if kind.startswith("batch") else None
        name = "-".join(map(str, [2, *hidden, 1]))
        model = pmg.classical_mlp(X, y, hidden, likelihood="bernoulli", prior_variance=10, batch_size=batch)
        scale = None if kind.endswith("tuned") else 0.2 if batch else 0.001**0.5
        idata, seconds = run(model, scale, "node", sweeps, chains, thin)
        found = accuracy(idata, model, X_test, y_test, thin, sweeps * LAST // SWEEPS)
        rows.append(
            {
                "network": name,
                "kind": kind,
                "sweeps": sweeps,
                "chains": chains,
                "median accuracy": float(np.median(found)),
                "paper": PAPER_XOR.get((name, kind), float("nan")),
                "lowest": float(found.min()),
                "highest": float(found.max()),
                "minutes": seconds / 60,
            }
        )
        results[f"xor {name} {kind} {sweeps}"] = {
            **rows[-1],
            "accuracy": found.tolist(),
            **acceptance(idata, len(hidden) + 1),
        }
    print_table("noisy XOR", rows)


def load(name: str) -> tuple[np.ndarray, ...]:
    """Standardised images as rows, and integer labels."""
    data = np.load(Path(os.environ["PYMC_GIBBSNN_DATA"]) / f"{name}.npz")
    X, X_test = (data[f"x_{part}"].reshape(len(data[f"x_{part}"]), -1) / 255 for part in ("train", "test"))
    mean, sd = X.mean(), X.std()
    return (X - mean) / sd, data["y_train"].astype(int), (X_test - mean) / sd, data["y_test"].astype(int)


def images(quick: bool, results: Results) -> None:
    sweeps, thin = (1100, 10) if quick else (SWEEPS, 10)
    runs = [(3000, 79, "paper's"), (3000, 79, "tuned")]
    if not quick:
        runs += [(b, 79, "paper's") for b in (600, 1800, 4200)] + [(3000, 11, "paper's"), (3000, 11, "tuned")]
    rows = []
    for name in ["mnist"] if quick else ["mnist", "fashion_mnist"]:
        X, y, X_test, y_test = load(name)
        for batch, blocks, scales in runs:
            model = pmg.classical_mlp(X, y, [10, 10, 10], prior_variance=10, batch_size=batch)
            scale = None if scales == "tuned" else np.sqrt(PAPER_VARIANCES[batch])
            idata, seconds = run(model, scale, blocks, sweeps, 1, thin)
            rows.append(
                {
                    "data": name,
                    "batch": batch,
                    "blocks of": blocks,
                    "scales": scales,
                    "sweeps": sweeps,
                    "accuracy": float(accuracy(idata, model, X_test, y_test, thin, sweeps * LAST // SWEEPS)[0]),
                    "paper (110,000)": PAPER_IMAGES[name][batch],
                    **acceptance(idata, 4),
                    "minutes": seconds / 60,
                }
            )
            results[" ".join(map(str, list(rows[-1].values())[:5]))] = rows[-1]
    print_table("784-10-10-10-10", rows)


def numpy_sweep(X: np.ndarray, y: np.ndarray, weights: list[np.ndarray], blocks: int) -> None:
    """Every block with a forward pass of its own, never accepted."""
    for _ in range(blocks):
        a = X
        for l, w in enumerate(weights):
            z = a @ w[:, :-1].T + w[:, -1]
            a = 1 / (1 + np.exp(-z)) if l < len(weights) - 1 else z
        largest = a.max(1)
        (a[np.arange(len(y)), y] - largest - np.log(np.exp(a - largest[:, None]).sum(1))).sum()


def speed(quick: bool, results: Results) -> None:
    """Run as ``taskset -c 0 ...``, with OMP_NUM_THREADS=1, for one core."""
    X, y, _, _ = load("mnist")
    sweeps, rows = 20 if quick else 200, []
    kwargs = {"blocks": 79, "scale": np.sqrt(PAPER_VARIANCES[3000])}
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(10, d + 1)) for d in (784, 10, 10, 10)]
    for precision in ("float32", "float64"):
        x = X[:3000].astype(precision)
        casted = [w.astype(precision) for w in weights]
        times = []
        for _ in range(3):
            before = time.perf_counter()
            numpy_sweep(x, y[:3000], casted, 130)
            times.append(time.perf_counter() - before)
        rows.append({"driver": "NumPy, full passes", "precision": precision, "ms": 1e3 * min(times)})
        model = pmg.classical_mlp(X, y, [10, 10, 10], prior_variance=10, batch_size=3000)
        with model:
            idata = pmg.sample(
                sweeps,
                tune=0,
                chains=1,
                step=pmg.FNBG(**kwargs),
                var_names=["W4"],
                precision=precision,
                random_seed=1,
                progressbar=False,
            )
        attrs = idata["posterior"].attrs
        rows.append({"driver": "pmg.sample", "precision": precision, "ms": 1e3 * attrs["sampling_time"] / (sweeps - 1)})
    for precision in ("float32", "float64"):
        with pytensor.config.change_flags(floatX=precision):
            model = pmg.classical_mlp(X, y, [10, 10, 10], prior_variance=10, batch_size=3000)
            step, point, times = pmg.FNBG(**kwargs, model=model), model.initial_point(), []
            for _ in range(sweeps):
                before = time.perf_counter()
                point, _ = step.step(point)
                times.append(time.perf_counter() - before)
        rows.append({"driver": "pm.sample, Numba", "precision": precision, "ms": 1e3 * float(np.median(times[1:]))})
    for row in rows:
        results[f"speed {row['driver']} {row['precision']}"] = row
    print_table("a sweep over 130 blocks, batch 3000", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["xor", "images", "speed"])
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the sweeps, or less")
    parser.add_argument("--output", type=Path, default=RESULTS / "fnbg.json")
    arguments = parser.parse_args()
    {"xor": xor, "images": images, "speed": speed}[arguments.part](arguments.quick, Results(arguments.output))


if __name__ == "__main__":
    main()

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

    python benchmarks/fnbg.py {xor,images,speed} [--quick] [--figures DIR] [--output FILE]
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
from pymc_gibbsnn.plots import plot_acceptance, plot_class_probabilities

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


def probabilities(idata, model: pm.Model, X: np.ndarray, thin: int, last: int) -> np.ndarray:
    """(chain, point, class), averaged over the last sweeps."""
    posterior = idata["posterior"]
    tail = {"posterior": posterior.isel(draw=slice(-max(1, last // thin), None))}
    return pmg.class_probabilities(tail, model, X).values


def acceptance(idata, layers: int) -> dict[str, float]:
    stats = idata["sample_stats"]
    return {f"acc {l}": float(stats[f"acceptance_W{l}"].mean()) for l in range(1, layers + 1)}


def errors(idata, X: np.ndarray, y: np.ndarray, layers: int, most: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of at most so many draws, evenly spaced, and the errors of each of them alone on noisy XOR, by chain."""
    posterior = idata["posterior"]
    draws = np.unique(np.linspace(0, posterior.sizes["draw"] - 1, most).astype(int))
    a = X.T
    for l in range(1, layers + 1):
        w, b = (posterior[f"{name}{l}"].values[:, draws] for name in "Wb")
        z = w.reshape(*w.shape[:2], -1, a.shape[-2]) @ a + b.reshape(*b.shape[:2], -1, 1)
        a = 1 / (1 + np.exp(-z))
    return draws, ((a[..., 0, :] > 0.5) != y).mean(-1)


def draw_xor(runs: dict[str, tuple], X: np.ndarray, y: np.ndarray, folder: Path) -> None:
    """Error and log posterior by draw, accuracy, and acceptance, of (idata, layers, accuracy by chain) of each run."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(runs), figsize=(3.2 * len(runs), 5), sharex=True, layout="constrained")
    for (name, (idata, layers, _)), (above, below) in zip(runs.items(), axes.T, strict=True):
        draws, found = errors(idata, X, y, layers)
        above.plot(draws, found.T, lw=0.7)
        below.plot(draws, idata["sample_stats"]["lp"].values[:, draws].T, lw=0.7)
        above.set(title=name, ylim=(0, 0.6))
        below.set_xlabel("draw")
    axes[0, 0].set_ylabel("test error of a draw")
    axes[1, 0].set_ylabel("log posterior (of a batch)")
    figure.savefig(folder / "xor_traces.png", dpi=100)

    figure, ax = plt.subplots(figsize=(1.6 * len(runs), 3.5), layout="constrained")
    ax.boxplot([found for _, _, found in runs.values()], widths=0.5)
    ax.set_xticks(range(1, len(runs) + 1), [name.replace(" ", "\n", 1) for name in runs], fontsize=7)
    ax.set(ylabel="accuracy of a chain", ylim=(0.45, 1.02))
    figure.savefig(folder / "xor_accuracy.png", dpi=100)

    figure, axes = plt.subplots(len(runs), 2, figsize=(10, 2.2 * len(runs)), width_ratios=(1, 2), layout="constrained")
    for (name, (idata, *_)), pair in zip(runs.items(), axes, strict=True):
        plot_acceptance(idata, axes=pair)
        pair[0].set_ylabel(name, fontsize=7)
    figure.savefig(folder / "xor_acceptance.png", dpi=100)
    plt.close("all")


def xor(quick: bool, results: Results, figures: Path | None) -> None:
    X, y, X_test, y_test = pmg.noisy_xor(random_seed=0)
    sweeps, chains = (5500, 4) if quick else (SWEEPS, 10)
    thin = 10
    rows, runs = [], {}
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
        p = probabilities(idata, model, X_test, thin, sweeps * LAST // SWEEPS)
        found = (p.argmax(-1) == y_test).mean(-1)
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
        runs[f"{name} {kind}"] = idata, len(hidden) + 1, found
    print_table("noisy XOR", rows)
    if figures:
        draw_xor(runs, X_test, y_test, figures)


def load(name: str) -> tuple[np.ndarray, ...]:
    """Standardised images as rows, and integer labels."""
    data = np.load(Path(os.environ["PYMC_GIBBSNN_DATA"]) / f"{name}.npz")
    X, X_test = (data[f"x_{part}"].reshape(len(data[f"x_{part}"]), -1) / 255 for part in ("train", "test"))
    mean, sd = X.mean(), X.std()
    return (X - mean) / sd, data["y_train"].astype(int), (X_test - mean) / sd, data["y_test"].astype(int)


def draw_images(name: str, p: np.ndarray, X: np.ndarray, y: np.ndarray, idata, folder: Path) -> None:
    """The surest and the least sure predictions (Fig. 8), acceptance and log posterior of a chain."""
    import matplotlib.pyplot as plt

    order = p.max(-1).argsort()
    shown = [*order[-4:], *order[len(order) // 2 - 1 : len(order) // 2 + 1], *order[:4]]
    axes = plot_class_probabilities(p[shown], X[shown].reshape(-1, 28, 28), y[shown])
    axes[0, 0].figure.savefig(folder / f"{name}_probabilities.png", dpi=100)
    figure, axes = plt.subplots(1, 3, figsize=(15, 3.5), width_ratios=(1, 2, 1.5), layout="constrained")
    plot_acceptance(idata, axes=axes[:2])
    axes[2].plot(idata["sample_stats"]["lp"].values.T, lw=0.7)
    axes[2].set(xlabel="draw", title="log posterior of a batch")
    figure.savefig(folder / f"{name}_acceptance.png", dpi=100)
    plt.close("all")


def images(quick: bool, results: Results, figures: Path | None) -> None:
    sweeps, thin = (1100, 10) if quick else (SWEEPS, 10)
    runs = [(3000, 79, "paper's"), (3000, 79, "tuned")]
    if not quick:
        runs += [(b, 79, "paper's") for b in (600, 1800, 4200)] + [(3000, 11, "paper's"), (3000, 11, "tuned")]
    rows = []
    for name in ["mnist", "fashion_mnist"]:
        X, y, X_test, y_test = load(name)
        for batch, blocks, scales in runs:
            model = pmg.classical_mlp(X, y, [10, 10, 10], prior_variance=10, batch_size=batch)
            scale = None if scales == "tuned" else np.sqrt(PAPER_VARIANCES[batch])
            idata, seconds = run(model, scale, blocks, sweeps, 1, thin)
            [p] = probabilities(idata, model, X_test, thin, sweeps * LAST // SWEEPS)
            rows.append(
                {
                    "data": name,
                    "batch": batch,
                    "blocks of": blocks,
                    "scales": scales,
                    "sweeps": sweeps,
                    "accuracy": float((p.argmax(-1) == y_test).mean()),
                    "paper (110,000)": PAPER_IMAGES[name][batch],
                    **acceptance(idata, 4),
                    "minutes": seconds / 60,
                }
            )
            results[" ".join(map(str, list(rows[-1].values())[:5]))] = rows[-1]
            if figures:
                draw_images(f"{name}_{batch}_{blocks}_{scales[:5]}", p, X_test, y_test, idata, figures)
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


def speed(quick: bool, results: Results, figures: None = None) -> None:
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
    parser.add_argument("--figures", type=Path, help="folder for figures, of xor and images")
    parser.add_argument("--output", type=Path, default=RESULTS / "fnbg.json")
    arguments = parser.parse_args()
    if arguments.figures:
        arguments.figures.mkdir(parents=True, exist_ok=True)
    part = {"xor": xor, "images": images, "speed": speed}[arguments.part]
    part(arguments.quick, Results(arguments.output), arguments.figures)


if __name__ == "__main__":
    main()

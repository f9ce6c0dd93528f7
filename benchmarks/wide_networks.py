"""pCN, pCNL and Langevin samplers on wide networks: Figures 1 to 4 of Pezzetti, Favaro and Peluchetti (2024).

One hidden layer, GELU, NTK form, on 256 CIFAR-10 images with the paper's preprocessing: one mean and one standard
deviation of all pixels, labels one-hot less 0.1. Measured, for each width and step size β (ε of the Langevin ones):

- acceptance; effective sample size per stored draw and per second, and R-hat, of the network's outputs at some training
  points, averaged over the readout. Samplers move the inner weights with the readout integrated out and draw it afresh
  for each stored draw: the marginal-conditional form of pCN, pCNL, MALA and underdamped MALA (momentum refresh 0.01),
  all in the row space of the data;
- beside them plain pCN, which moves inner weights and readout together;
- the time of one step at the largest width in three forms, taking turns in one process: the paper's, a width x width
  factorisation with all of the first layer moved; the same with an n x n factorisation; and ``pmg.PCN``, n x n with the
  first layer moved in the row space of the data.

Chains start from the prior and share a warm-up by pCN with its step size tuned.

Run, with the folder in PYMC_GIBBSNN_DATA that holds images and labels in ``cifar10_subset.npz``, ``x_train`` (1024, 32,
32, 3) and ``y_train``::

    python benchmarks/wide_networks.py [--quick | --full] [--part time | figures] [--images N] [--draws N]

``--quick`` takes a quarter of an hour: 64 images, two chains of 100 stored draws. Acceptance alone, on all images,
takes half an hour: ``--quick --images 256 --draws 5``. The default takes hours: 256 images and three chains of 400.
``--full`` is the paper's design: a million steps, every 25th stored. Of a chain that stands still ESS and R-hat tell no
more than that.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from common import RESULTS, Point, Results, print_table, time_in_turn
from scipy.linalg import solve_triangular
from scipy.special import erf

import pymc_gibbsnn as pmg
from pymc_gibbsnn.drivers.step import GraphStep

BETAS = (0.2, 0.1, 0.01)
WIDTHS = (128, 512, 1024, 2096, 4192)
THIN = 25
NOISE = 0.1
QUANTITIES = ("acceptance", "ESS/stored draw", "ESS/s", "R-hat")
OUTPUTS = 20  # training points at which the network is looked at


# All tune their step size, so that one compiled step serves every β: it is set before each chain, and nothing is tuned.
SAMPLERS: dict[str, Callable[[pm.Model], GraphStep]] = {
    "pCN": lambda model: pmg.PCN(model=model, beta=None, reparametrise=True, sweeps_per_draw=THIN),
    "pCNL": lambda model: pmg.PCNL(model=model, beta=None, reparametrise=True, sweeps_per_draw=THIN),
    "MALA": lambda model: pmg.MALA(model=model, reparametrise=True, sweeps_per_draw=THIN),
    "underdamped": lambda model: pmg.MALA(model=model, momentum_refresh=0.01, reparametrise=True, sweeps_per_draw=THIN),
    "plain pCN": lambda model: pmg.PCN(model=model, beta=None, sweeps_per_draw=THIN),
}


@dataclass(frozen=True)
class Design:
    """How long is run, and on what."""

    widths: tuple[int, ...]
    betas: tuple[float, ...]
    draws: int
    warm_up: int  # draws, shared by all samplers
    burn_in: int  # draws, of each
    chains: int
    images: int = 256


QUICK = Design(widths=WIDTHS[:3], betas=BETAS, draws=100, warm_up=100, burn_in=10, chains=2, images=64)
DEFAULT = Design(widths=WIDTHS[:3], betas=BETAS, draws=400, warm_up=100, burn_in=20, chains=3)
FULL = Design(widths=WIDTHS, betas=BETAS, draws=40_000 - 800, warm_up=0, burn_in=800, chains=3)


def load_images(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Standardised pixels (count, 3072) and one-hot labels less 0.1 (count, 10)."""
    folder = os.environ.get("PYMC_GIBBSNN_DATA")
    if folder is None:
        raise SystemExit("Set PYMC_GIBBSNN_DATA to the folder that holds cifar10_subset.npz.")
    with np.load(Path(folder) / "cifar10_subset.npz") as data:
        pixels, labels = data["x_train"][:count].reshape(count, -1).astype(float), data["y_train"][:count]
    return (pixels - pixels.mean()) / pixels.std(), np.eye(10)[labels] - 0.1


def features(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """GELU units in NTK form, w (h, d)."""
    z = x @ w.T * (2 / x.shape[1]) ** 0.5 + 0.1 * b
    return 0.5 * z * (1 + erf(z * 0.5**0.5))


def outputs(X: np.ndarray, y: np.ndarray, point: Point) -> np.ndarray:
    """The network at the first rows, one output of each, averaged over the readout: Ψ Ψᵀ K⁻¹ y.

    With the readout drawn afresh its noise would hide inner weights that do not move.
    """
    psi = np.c_[features(X, point["W1"], point["b1"]) / len(point["W1"]) ** 0.5, np.full(len(X), 0.1)]
    gram = psi @ psi.T
    f = gram[:OUTPUTS] @ np.linalg.solve(gram + NOISE**2 * np.eye(len(X)), y)
    return f[np.arange(OUTPUTS), np.arange(OUTPUTS) % f.shape[1]]


def warm_up(step: GraphStep, design: Design) -> list[Point]:
    """Where each chain begins: from the prior by pCN, tuned."""
    points = []
    for chain in range(design.chains):
        rng = np.random.default_rng(chain)
        point = {key: rng.normal(size=shape) for key, shape in step.model.eval_rv_shapes().items()}
        step.set_rng(rng)
        for _ in range(design.warm_up):
            point, _ = step.step(point)
        points.append(point)
    return points


def measure(
    name: str, step: GraphStep, starts: list[Point], width: int, beta: float, design: Design
) -> dict[str, object]:
    """One row of the table."""
    X, y = (step.model[name].get_value() for name in ("X", "y_data"))
    series, accepted, seconds = [], [], 0.0
    step._compile()
    for chain, point in enumerate(starts):
        step.set_rng(np.random.default_rng([chain, 1]))
        step.carry["log_step"] = np.asarray(np.log(beta))
        # As `step.step` does it, but every acceptance is seen.
        values, no_tuning, kept = step._values(point), np.asarray(0.0), []
        step._run("begin", values, no_tuning)
        for draw in range(design.burn_in + design.draws):
            start = time.perf_counter()
            rates = [step._run("step", values, no_tuning)["acceptance_rate"] for _ in range(THIN)]
            step._run("record", values, no_tuning)
            if draw >= design.burn_in:
                seconds += time.perf_counter() - start
                accepted += rates
                kept.append(outputs(X, y, values))
        series.append(kept)
    series = np.moveaxis(np.array(series), -1, 0)  # (output, chain, draw)
    ess = np.array([float(az.ess(draws)) for draws in series])
    stored = design.draws * design.chains
    return {
        "sampler": name,
        "width": width,
        "β": beta,
        "acceptance": float(np.mean(accepted)),
        "ESS/stored draw": float(ess.mean() / stored),
        "least": float(ess.min() / stored),
        "most": float(ess.max() / stored),
        "ESS/s": float(ess.mean() / seconds),
        "R-hat": float(np.mean([float(az.rhat(draws)) for draws in series])),
        "ms/stored draw": 1e3 * seconds / stored,
    }


class NumpyStep:
    """One step of reparametrised pCN, all of the first layer moved, with a width x width or an n x n factorisation."""

    def __init__(self, X: np.ndarray, y: np.ndarray, width: int, dual: bool):
        self.X, self.y, self.dual, self.rng = X, y, dual, np.random.default_rng(0)
        self.w, self.b = self.rng.normal(size=(width, X.shape[1])), self.rng.normal(size=width)
        self.now = self.log_likelihood(self.w, self.b)

    def log_likelihood(self, w: np.ndarray, b: np.ndarray) -> float:
        psi = np.c_[features(self.X, w, b) / len(w) ** 0.5, np.full(len(self.X), 0.1)]
        n, k = self.y.shape
        gram = psi @ psi.T if self.dual else psi.T @ psi
        factor = np.linalg.cholesky(gram + NOISE**2 * np.eye(len(gram)))
        half = solve_triangular(factor, self.y if self.dual else psi.T @ self.y, lower=True)
        log_det = 2 * np.log(np.diag(factor)).sum()
        if self.dual:
            return -0.5 * ((half**2).sum() + k * log_det)
        log_det += 2 * (n - len(gram)) * np.log(NOISE)
        return -0.5 * (((self.y**2).sum() - (half**2).sum()) / NOISE**2 + k * log_det)

    def __call__(self, beta: float = 0.1) -> None:
        w, b = ((1 - beta**2) ** 0.5 * x + beta * self.rng.normal(size=x.shape) for x in (self.w, self.b))
        new = self.log_likelihood(w, b)
        if np.log(self.rng.random()) < new - self.now:
            self.w, self.b, self.now = w, b, new


def measure_time(images: int, width: int, repeats: int) -> list[dict[str, object]]:
    """Milliseconds of one step in each form, and of what comes with a recorded draw."""
    X, y = load_images(images)
    model = pmg.wide_mlp(X, y, width, noise=NOISE)
    rng = np.random.default_rng(0)
    point = {name: rng.normal(size=shape) for name, shape in model.eval_rv_shapes().items()}
    steps = {count: pmg.PCN(model=model, reparametrise=True, sweeps_per_draw=count, rng=0) for count in (1, 21)}
    runs = {
        "width x width (NumPy)": NumpyStep(X, y, width, dual=False),
        "n x n (NumPy)": NumpyStep(X, y, width, dual=True),
        **{f"{count}": lambda step=step: step.step(point) for count, step in steps.items()},
    }
    seconds = time_in_turn(runs, repeats)
    ours = (seconds.pop("21") - seconds["1"]) / 20
    recorded = seconds.pop("1") - ours
    seconds |= {"n x n in the row space (pmg.PCN)": ours, "added to a recorded draw": recorded}
    first = seconds["width x width (NumPy)"]
    return [
        {"form": name, "width": width, "ms": float(1e3 * np.median(x)), "ratio": float(np.median(first / x))}
        for name, x in seconds.items()
    ]


def draw_figure(rows: list[dict[str, object]], folder: Path) -> None:
    """Each quantity against width, a column for each step size."""
    betas = sorted({row["β"] for row in rows})
    fig, axes = plt.subplots(
        len(QUANTITIES), len(betas), figsize=(4 * len(betas), 11), sharex=True, sharey="row", layout="constrained"
    )
    for quantity, line in zip(QUANTITIES, axes, strict=True):
        for beta, ax in zip(betas, line, strict=True):
            for name in SAMPLERS:
                chosen = [row for row in rows if row["sampler"] == name and row["β"] == beta]
                ax.plot([row["width"] for row in chosen], [row[quantity] for row in chosen], "o-", label=name)
            ax.set(xscale="log")
            if quantity.startswith("ESS"):
                ax.set(yscale="log")
        line[0].set(ylabel=quantity)
    widths = sorted({row["width"] for row in rows})
    for beta, first, last in zip(betas, axes[0], axes[-1], strict=True):
        first.set(title=f"β = {beta:g}", ylim=(0, 1))
        last.set(xlabel="width")
        last.set_xticks(widths, widths)
        last.minorticks_off()
    axes[0, 0].legend(frameon=False)
    folder.mkdir(parents=True, exist_ok=True)
    fig.savefig(folder / "wide_networks.png", dpi=120)


def print_against_width(rows: list[dict[str, object]], quantity: str) -> None:
    """A line for each sampler and step size, a column for each width."""
    lines = {}
    for row in rows:
        line = lines.setdefault((row["sampler"], row["β"]), {"sampler": row["sampler"], "β": row["β"]})
        line[f"{row['width']}"] = row[quantity]
    print_table(f"{quantity} against width", list(lines.values()))


def main(design: Design, parts: list[str], repeats: int, output: Path, figures: Path) -> None:
    results = Results(output)
    if "time" in parts:
        rows = measure_time(design.images, WIDTHS[-1], repeats)
        results["time"] = rows
        print_table("one step of reparametrised pCN", rows)
    if "figures" in parts:
        X, y = load_images(design.images)
        rows = []
        for width in design.widths:
            model = pmg.wide_mlp(X, y, width, noise=NOISE)
            steps = {name: make(model) for name, make in SAMPLERS.items()}
            starts = warm_up(steps["pCN"], design)
            for name, step in steps.items():
                for beta in design.betas:
                    rows.append(measure(name, step, starts, width, beta, design))
                    results[f"figures, {design}"] = rows
        print_table(f"{design}", rows)
        for quantity in QUANTITIES:
            print_against_width(rows, quantity)
        draw_figure(rows, figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a quarter of an hour: few images")
    size.add_argument("--full", action="store_true", help="the paper's design: days")
    parser.add_argument("--images", type=int, help="instead of the design's")
    parser.add_argument("--draws", type=int, help="stored draws of a chain, instead of the design's")
    parser.add_argument("--part", choices=["time", "figures"], action="append", help="both by default")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS / "wide_networks.json")
    parser.add_argument("--figures", type=Path, default=RESULTS / "figures")
    arguments = parser.parse_args()
    chosen = QUICK if arguments.quick else FULL if arguments.full else DEFAULT
    chosen = replace(chosen, draws=arguments.draws or chosen.draws, images=arguments.images or chosen.images)
    main(chosen, arguments.part or ["time", "figures"], arguments.repeats, arguments.output, arguments.figures)

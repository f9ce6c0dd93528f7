"""pCN, pCNL and Langevin samplers on wide networks: Figures 1 to 4 of Pezzetti, Favaro and Peluchetti (2024).

One hidden layer, GELU, NTK form, on 256 CIFAR-10 images with the paper's preprocessing: one mean and one standard
deviation of all pixels, labels one-hot less 0.1. Measured, for each width and step size β (ε of the Langevin ones):

- acceptance; effective sample size per stored draw and per second, and R-hat, of the network's outputs at some training
  points; all samplers move the inner weights with the readout integrated out (reparametrised), MALA and its underdamped
  form (momentum refresh 0.01) without the reduction to the row space, as in the paper;
- beside them plain pCN, which moves inner weights and readout together;
- the time of one step at the largest width in three forms, taking turns in one process: the paper's, a width x width
  factorisation with all of the first layer moved; the same with an n x n factorisation; and ``pmg.PCN``, n x n with the
  first layer moved in the row space of the data.

Run, with the folder of the data in PYMC_GIBBSNN_DATA::

    python benchmarks/wide_networks.py [--quick | --full] [--part time | figures] [--output FILE]

``--quick`` takes minutes, ``--full`` is the paper's design: a million steps, every 25th stored.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from common import RESULTS, Point, Results, print_table, time_in_turn
from scipy.linalg import solve_triangular
from scipy.special import erf

import pymc_gibbsnn as pmg
from pymc_gibbsnn.readout import readout_target
from pymc_gibbsnn.steps import GraphStep
from pymc_gibbsnn.transitions.mala import mala

BETAS = (0.2, 0.1, 0.01)
WIDTHS = (128, 512, 1024, 2096, 4192)
THIN = 25
NOISE = 0.1
OUTPUTS = 20  # training points at which the network is looked at


# All tune their step size, so that one compiled step serves every β: it is set before each chain, and nothing is tuned.
SAMPLERS: dict[str, Callable[[pm.Model], GraphStep]] = {
    "pCN": lambda model: pmg.PCN(model=model, beta=None, reparametrise=True, sweeps_per_draw=THIN),
    "pCNL": lambda model: pmg.PCNL(model=model, beta=None, reparametrise=True, sweeps_per_draw=THIN),
    "MALA": lambda model: langevin(model, 1.0),
    "underdamped": lambda model: langevin(model, 0.01),
    "plain pCN": lambda model: pmg.PCN(model=model, beta=None, sweeps_per_draw=THIN),
}


def langevin(model: pm.Model, refresh: float) -> GraphStep:
    """The paper's sampler: all of the first layer moved."""
    transition = mala(readout_target(model, reduce=False), momentum_refresh=refresh)
    return GraphStep(transition, model=model, sweeps_per_draw=THIN)


@dataclass(frozen=True)
class Design:
    """How long is run, and on what."""

    widths: tuple[int, ...]
    betas: tuple[float, ...]
    draws: int
    burn_in: int  # draws
    chains: int
    images: int = 256


QUICK = Design(widths=(128, 512), betas=(0.2, 0.1, 0.01), draws=40, burn_in=40, chains=2)
DEFAULT = Design(widths=WIDTHS[:3], betas=BETAS, draws=400, burn_in=100, chains=3)
FULL = Design(widths=WIDTHS, betas=BETAS, draws=40_000 - 800, burn_in=800, chains=3)


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


def outputs(x: np.ndarray, point: Point) -> np.ndarray:
    """The network at the points x, one output of each."""
    a = features(x, point["W1"], point["b1"])
    f = a @ point["W2"].T / a.shape[1] ** 0.5 + 0.1 * point["b2"]
    return f[np.arange(len(x)), np.arange(len(x)) % f.shape[1]]


def measure(name: str, step: GraphStep, width: int, beta: float, design: Design) -> dict[str, object]:
    """One row of the table."""
    x, series, accepted, seconds = step.model["X"].get_value()[:OUTPUTS], [], [], 0.0
    for chain in range(design.chains):
        step.set_rng(np.random.default_rng(chain))
        step.tune, step.carry["log_step"] = False, np.asarray(np.log(beta))
        rng, kept = np.random.default_rng(chain), []
        point = {key: rng.normal(size=shape) for key, shape in step.model.eval_rv_shapes().items()}
        for draw in range(design.burn_in + design.draws):
            start = time.perf_counter()
            point, [stats] = step.step(point)
            if draw >= design.burn_in:
                seconds += time.perf_counter() - start
                accepted.append(stats["acceptance_rate"])
                kept.append(outputs(x, point))
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


def main(design: Design, parts: list[str], repeats: int, output: Path) -> None:
    results = Results(output)
    if "time" in parts:
        rows = measure_time(design.images, design.widths[-1], repeats)
        results["time"] = rows
        print_table("one step of reparametrised pCN", rows)
    if "figures" in parts:
        X, y = load_images(design.images)
        rows = []
        for width in design.widths:
            model = pmg.wide_mlp(X, y, width, noise=NOISE)
            for name, make in SAMPLERS.items():
                step = make(model)
                for beta in design.betas:
                    rows.append(measure(name, step, width, beta, design))
                    results[f"figures, {design}"] = rows
        print_table(f"{design}", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="minutes: small widths, few draws")
    size.add_argument("--full", action="store_true", help="the paper's design: days")
    parser.add_argument("--part", choices=["time", "figures"], action="append", help="both by default")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS / "wide_networks.json")
    arguments = parser.parse_args()
    chosen = QUICK if arguments.quick else FULL if arguments.full else DEFAULT
    main(chosen, arguments.part or ["time", "figures"], arguments.repeats, arguments.output)

"""What the benchmarks share: teachers, timing of several things in turn, tables and results."""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import arviz as az
import numpy as np
import xarray as xr

import pymc_gibbsnn as pmg

RESULTS = Path(__file__).parent / "results"
PACKAGES = (  # whose versions are written beside results, if they are installed
    "pymc-gibbsnn", "pymc", "pytensor", "numba", "jax", "numpy", "scipy", "arviz", "scikit-learn",
    "ngboost", "catboost", "xgboost", "xgboost-cpu", "xgboost-distribution", "bartz", "mapie", "sklearn-contrib-bde",
)  # fmt: skip
Point = dict[str, np.ndarray]
# MILE, as the documentation of sklearn-contrib-bde sets it for regression
QUICK_MILE = {"n_members": 8, "epochs": 200, "patience": 10, "warmup_steps": 5000, "n_samples": 2000}


@dataclass(frozen=True)
class Problem:
    """A ReLU network with Gaussian noise of variance delta everywhere, a scalar output and n samples of d inputs."""

    n: int
    d: int
    hidden: tuple[int, ...]
    delta: float

    def __str__(self) -> str:
        return f"n={self.n}, {'-'.join(map(str, (self.d, *self.hidden, 1)))}, Δ={self.delta:g}"


PAPER = Problem(n=2084, d=50, hidden=(10,), delta=1e-4)
VARIANTS = {  # arguments of GibbsNN
    "plain": {"collapse": False, "scale_move": False, "interweave": False},
    "collapsed": {"scale_move": False, "interweave": False},
    "collapsed + scale": {"interweave": False},
    "all": {},
}


@dataclass(frozen=True)
class Teacher:
    """One draw of all variables of a problem from the prior: one exact draw of the posterior given its data."""

    X: np.ndarray
    y: np.ndarray
    point: Point  # weights and latents, by the names that pmg.mlp gives them
    X_test: np.ndarray
    y_test: np.ndarray  # without noise


def draw_teacher(problem: Problem, seed: int, n_test: int = 2000) -> Teacher:
    rng = np.random.default_rng(seed)
    noise = problem.delta**0.5
    X, X_test = rng.normal(size=(problem.n, problem.d)), rng.normal(size=(n_test, problem.d))
    widths = (problem.d, *problem.hidden)
    point, a = {}, X
    for l, (d, width) in enumerate(zip(widths, (*problem.hidden, None), strict=True), start=1):
        point[f"W{l}"] = rng.normal(0, d**-0.5, size=d if width is None else (width, d))
        point[f"b{l}"] = np.asarray(rng.normal(0, d**-0.5, size=width))
        z = a @ point[f"W{l}"].T + point[f"b{l}"]
        z += rng.normal(0, noise, size=z.shape)
        if width is not None:
            a = np.maximum(z, 0) + rng.normal(0, noise, size=z.shape)
            point |= {f"Z{l + 1}": z, f"A{l + 1}": a}
    return Teacher(X, z, point, X_test, predict(point, X_test))


def predict(point: Mapping[str, np.ndarray], X: np.ndarray) -> np.ndarray:
    """The network's output without noise."""
    layers = sum(name.startswith("W") for name in point)
    for l in range(1, layers):
        X = np.maximum(X @ point[f"W{l}"].T + point[f"b{l}"], 0)
    return X @ point[f"W{layers}"] + point[f"b{layers}"]


def make_model(problem: Problem, teacher: Teacher):
    return pmg.mlp(teacher.X, teacher.y, problem.hidden, noise=problem.delta**0.5, prior=None)


def sweeps(step: pmg.GibbsNN, point: Point, count: int) -> Callable[[], None]:
    """A run of some sweeps, which goes on where the last one ended."""

    def run() -> None:
        nonlocal point
        for _ in range(count):
            point, _ = step.step(point)

    return run


def time_in_turn(runs: Mapping[str, Callable[[], None]], repeats: int) -> dict[str, np.ndarray]:
    """Seconds of each run in each repeat, warm. The runs take turns, so that ratios within a repeat are fair."""
    for run in runs.values():
        run()
    seconds = {name: np.empty(repeats) for name in runs}
    for i in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name][i] = time.perf_counter() - start
    return seconds


def mixing(outputs: np.ndarray) -> dict[str, float]:
    """The median and the largest R-hat of outputs, an array (chain, draw, ...), and the median ESS of all draws."""
    dims = ("chain", "draw", *(f"dim_{i}" for i in range(outputs.ndim - 2)))
    data = xr.Dataset({"x": (dims, outputs)})
    rhat, ess = (f(data)["x"].values for f in (az.rhat, az.ess))
    return {"R-hat": float(np.median(rhat)), "largest": float(rhat.max()), "ESS": float(np.median(ess))}


def some_images(folder: Path, name: str, rows: int, seed: int) -> tuple[np.ndarray, ...]:
    """X, X_test, y, y_test of MNIST or Fashion-MNIST: rows drawn for training, and the first 5,000 test images."""
    file = np.load(folder / f"{name}.npz")
    drawn = np.random.default_rng(seed).choice(len(file["x_train"]), rows, replace=False)
    X, X_test = (x.reshape(len(x), -1) / 255 for x in (file["x_train"][drawn], file["x_test"][:5000]))
    return X, X_test, file["y_train"][drawn].astype(int), file["y_test"][:5000].astype(int)


def load(path: Path) -> dict:
    return json.loads(path.read_text()) if path.exists() else {}


def save(path: Path, results: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1, ensure_ascii=False))
    part.replace(path)
    beside = path.with_suffix(".machines.json")  # all machines and versions that have added to the results
    machines = json.loads(beside.read_text()) if beside.exists() else []
    if machine() not in machines:
        beside.write_text(json.dumps([*machines, machine()], indent=1))


@cache
def machine() -> dict[str, object]:
    """What numbers depend on: the processor, its threads, and the versions of what computes."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    versions = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "system": platform.platform(),
        "python": platform.python_version(),
        **versions,
    }


class Results(dict):
    """A dictionary that is saved to its file at every change."""

    def __init__(self, path: Path):
        super().__init__(load(path))
        self.path = path

    def __setitem__(self, key: str, value: object) -> None:
        super().__setitem__(key, value)
        save(self.path, self)


def score_splits(
    description: str,
    score: Callable[[Path, str, int, str], dict[str, float] | None],
    sets: Sequence[str],
    methods: Sequence[str],
    by_default: Sequence[str],
    splits: int,
    output: Path,
    sets_by_default: Sequence[str] | None = None,
) -> tuple[dict[str, dict[str, float]], Path]:
    """The command line of a comparison of methods on splits of data sets: score what has not been scored yet.

    ``score(folder, set, split, method)`` fits and scores; None says that a set has no such split. ``by_default`` are
    the methods that are run if none is named, ``sets_by_default`` the sets, if these are not all. Returns the scores of
    the splits below ``--splits``, and the file of results.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=sets, default=sets_by_default or sets)
    parser.add_argument("--methods", nargs="+", choices=methods, default=by_default)
    parser.add_argument("--splits", type=int, default=splits)
    parser.add_argument("--table", action="store_true", help="only print what has been computed")
    parser.add_argument("--output", type=Path, default=output)
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    results = Results(arguments.output)
    for split in range(0 if arguments.table else arguments.splits):
        for name in arguments.sets:
            for method in arguments.methods:
                key = f"{name}/{method}/{split}"
                if key in results or (found := score(arguments.data, name, split, method)) is None:
                    continue
                results[key] = found
                print(key, {k: float(f"{v:.4g}") for k, v in found.items()}, flush=True)
    found = {key: values for key, values in results.items() if int(key.rpartition("/")[2]) < arguments.splits}
    if not found:
        parser.exit(1, f"{arguments.output} has no scores yet: leave out --table to compute them\n")
    return found, arguments.output


def scores_by_method(
    results: Mapping[str, Mapping[str, float]],
    name: str,
    methods: Sequence[str],
    scores: Sequence[str],
) -> list[dict[str, object]]:
    """Means over splits with their standard errors; and of the NLL's differences to the first method, split by split.

    The keys of the results are "set/method/split"; ``name`` is the set. A method may lack scores.
    """
    rows = []
    for method in methods:
        splits = _by_split(results, name, method)
        if not splits:
            continue
        row = {"set": name, "method": method, "splits": len(splits)}
        row |= {score: _mean([values[score] for values in splits.values() if score in values]) for score in scores}
        row[f"NLL less {methods[0]}'s"] = _mean(nll_differences(results, name, method, methods[0]))
        row["seconds"] = float(np.median([values["seconds"] for values in splits.values()]))
        rows.append(row)
    return rows


def nll_differences(results: Mapping[str, Mapping[str, float]], name: str, method: str, reference: str) -> list[float]:
    """How much higher the NLL of a method is than that of another, on each split of a set that both have."""
    ours, others = (_by_split(results, name, which) for which in (method, reference))
    both = sorted(i for i in set(ours) & set(others) if "NLL" in ours[i] and "NLL" in others[i])
    return [ours[i]["NLL"] - others[i]["NLL"] for i in both]


def standard_error(values: Sequence[float]) -> float:
    """Of the mean of two values or more."""
    return float(np.std(values, ddof=1)) / len(values) ** 0.5


def _by_split(results: Mapping[str, Mapping[str, float]], name: str, method: str) -> dict[int, Mapping[str, float]]:
    """The scores of a method on a set, by split."""
    fit = f"{name}/{method}/"
    return {int(key.removeprefix(fit)): values for key, values in results.items() if key.startswith(fit)}


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "-"
    error = f" ± {standard_error(values):.1g}" if len(values) > 1 else ""
    return f"{np.mean(values):.3g}{error}"


def print_table(title: str, rows: Sequence[Mapping[str, object]]) -> None:
    """A plain table; numbers with three significant digits."""
    columns = list(rows[0])
    cells = [columns, *([_show(row[column]) for column in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    print(f"\n{title}")
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def _show(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"
    return str(value)

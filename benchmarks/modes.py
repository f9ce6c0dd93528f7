"""How far apart the modes of the posterior are: could a chain leave its mode by a new unit, or by noise on its weights?

Networks of 30 ReLU units with normal errors, learned noise and prior scales, on the first split of each set: the state
after 1,000 tuning steps and 1,000 draws of each of four chains. Of two of them the weights of the first layer are then
looked for anew, with the last layer integrated out, the noise of latents held, and all variances fixed. All numbers are
log densities of these weights given all that is held, in nats; "log density" is that of the state itself. Those of
chains can be compared only where the noise of their latents is alike.

- "unit": the weights of one hidden unit are drawn from their prior and climb to a maximum, 20 times for each of ten
  units, while all others stay. A unit that could be redrawn, moved to another's place or merged with it has a second
  maximum as high as its own. "least" and "median" of the ten say how far the highest other one lies below its own. Two
  maxima are the same if the unit's activations have a correlation above 0.99.
- "layer": normal noise is added to all these weights, in units of their prior standard deviations, and they climb to a
  maximum; six times for each size. "least" and "median" of the six say how far it lies below the maximum above the
  state of the chain, and "outputs" how far outputs of the test rows are from those at that maximum, in standard
  deviations of the noise (root mean square).

::

    OMP_NUM_THREADS=1 python benchmarks/modes.py FOLDER [--sets energy concrete yacht]

FOLDER holds what ``data_sets.py uci`` writes.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
import uci
from common import RESULTS, Results, print_table
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.stats import norm

import pymc_gibbsnn as pmg

UNITS, DRAWS, CHAINS, LEFT = 30, 1000, 4, 2  # LEFT is the number of chains whose mode is tried to be left
TRIED, STARTS = 10, 20  # units of a chain, and starts of each
REPEATS, SIZES = 6, (0.03, 0.1, 0.3)


class State(NamedTuple):
    """What stays fixed: inputs with a 1, targets, noise of latents, variances, and precisions of the first weights."""

    X: np.ndarray
    y: np.ndarray
    noise_z: np.ndarray
    noise_a: np.ndarray
    variance: float
    of_last: float
    precisions: np.ndarray


def states(X: np.ndarray, y: np.ndarray) -> list[tuple[np.ndarray, State]]:
    """The first weights, (unit, input and bias), and all else of the last draw of each chain."""
    with pmg.mlp(X, y, UNITS, likelihood="normal"):
        posterior = pm.sample(
            DRAWS, tune=DRAWS, chains=CHAINS, cores=1, step=pmg.GibbsNN(sweeps_per_draw=1), random_seed=1,
            progressbar=False, compute_convergence_checks=False,
        )["posterior"].isel(draw=-1)  # fmt: skip
    X = np.column_stack([X, np.ones(len(X))])
    found = []
    for chain in range(CHAINS):
        at = {name: x.values[chain] for name, x in posterior.items()}
        W = np.column_stack([at["W1"], at["b1"]])
        noise_z, noise_a = at["Z2"] - X @ W.T, at["A2"] - np.maximum(at["Z2"], 0)
        precisions = np.append(at["precision_W1"], 1.0)
        found.append((W, State(X, y, noise_z, noise_a, at["variance_y"], 1 / at["precision_W2"], precisions)))
    return found


def density(W: np.ndarray, state: State) -> tuple[float, np.ndarray, np.ndarray]:
    """The log density of the first weights, its gradient, and the mean of the last layer, whose first number is b."""
    n = len(state.y)
    z = state.X @ W.T + state.noise_z
    H = np.column_stack([np.ones(n), np.maximum(z, 0) + state.noise_a])
    variances = np.append(1.0, np.full(len(W), state.of_last))
    factor = cho_factor(H.T @ H + np.diag(state.variance / variances), lower=True)
    mean = cho_solve(factor, H.T @ state.y)
    residual = (state.y - H @ mean) / state.variance
    log_determinant = 2 * np.log(np.diag(factor[0])).sum() + np.log(variances).sum()
    log_determinant += (n - len(variances)) * np.log(state.variance)
    log_likelihood = -0.5 * (state.y @ residual + log_determinant + n * np.log(2 * np.pi))
    log_prior = norm.logpdf(W, 0, state.precisions**-0.5).sum()
    slopes = np.outer(residual, mean) - cho_solve(factor, H.T).T
    return log_likelihood + log_prior, (slopes[:, 1:] * (z > 0)).T @ state.X - state.precisions * W, mean


def climb(W: np.ndarray, state: State, moving: np.ndarray, steps: int) -> tuple[float, np.ndarray]:
    """Return the log density at the maximum that L-BFGS finds from here, and its weights; some units move."""

    def loss(part):
        at = W.copy()
        at[moving] = part.reshape(-1, W.shape[1])
        value, gradient, _ = density(at, state)
        return -value, -gradient[moving].ravel()

    found = minimize(loss, W[moving].ravel(), jac=True, method="L-BFGS-B", options={"maxiter": steps, "maxfun": steps})
    W = W.copy()
    W[moving] = found.x.reshape(-1, W.shape[1])
    return -found.fun, W


def other_units(W: np.ndarray, state: State, rng: np.random.Generator) -> np.ndarray:
    """How far below its own maximum the highest other one of some units lies."""

    def activations(W, k):
        return np.maximum(state.X @ W[k], 0)

    gaps = []
    for k in rng.choice(len(W), TRIED, replace=False):
        best, own = climb(W, state, [k], 500)
        own_activations, others = activations(own, k), [-np.inf]
        for _ in range(STARTS):
            start = W.copy()
            start[k] = rng.normal(size=W.shape[1]) / np.sqrt(state.precisions)
            height, found = climb(start, state, [k], 500)
            pair = np.array([activations(found, k), own_activations])
            same = (pair.std(axis=1) > 0).all() and np.corrcoef(pair)[0, 1] > 0.99
            best = max(best, height) if same else best
            others += [] if same else [height]
        gaps.append(best - max(others))
    return np.array(gaps)


def other_layers(
    W: np.ndarray, state: State, X_test: np.ndarray, rng: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each size of noise: how far below the maximum above the chain's state others lie, and how outputs differ."""

    def outputs(W):
        mean = density(W, state)[2]
        return mean[0] + np.maximum(X_test @ W.T, 0) @ mean[1:]

    everything = np.arange(len(W))
    best, own = climb(W, state, everything, 2000)
    own_outputs, by_size = outputs(own), []
    for size in SIZES:
        gaps, moved = np.empty(REPEATS), np.empty(REPEATS)
        for i in range(REPEATS):
            start = W + size * rng.normal(size=W.shape) / np.sqrt(state.precisions)
            height, found = climb(start, state, everything, 2000)
            gaps[i] = best - height
            moved[i] = np.sqrt(np.mean((outputs(found) - own_outputs) ** 2) / state.variance)
        by_size.append((gaps, moved))
    return by_size


def measured(X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> list[dict[str, object]]:
    """The rows of the table of a set."""

    def summarised(gaps: np.ndarray) -> dict[str, float]:
        return {"least": float(gaps.min()), "median": float(np.median(gaps))}

    X_test = np.column_stack([X_test, np.ones(len(X_test))])
    rng, rows = np.random.default_rng(0), []
    for chain, (W, state) in enumerate(states(X, y)):
        row = {"chain": chain, "noise": float(state.variance**0.5), "log density": density(W, state)[0]}
        if chain >= LEFT:
            rows.append(row)
            continue
        rows.append(row | {"what": "unit"} | summarised(other_units(W, state, rng)))
        for size, (gaps, moved) in zip(SIZES, other_layers(W, state, X_test, rng), strict=True):
            rows.append(row | {"what": f"layer, {size}"} | summarised(gaps) | {"outputs": float(np.median(moved))})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=uci.NINE, default=("yacht", "energy", "concrete"))
    parser.add_argument("--output", type=Path, default=RESULTS / "modes.json")
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", "The latents .* are recorded")  # they are needed here
    results = Results(arguments.output)
    for name in arguments.sets:
        if name not in results:
            results[name] = measured(*uci.read_split(arguments.data, name, 0)[:3])
    columns = ("chain", "noise", "log density", "what", "least", "median", "outputs")
    print_table(
        "How far apart modes are",
        [{"set": name} | {c: row.get(c, "-") for c in columns} for name, rows in results.items() for row in rows],
    )


if __name__ == "__main__":
    main()

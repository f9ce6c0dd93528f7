"""How small a noise still mixes: the limits of the intermediate-noise network.

Three ways to let noise fall, on n = 200 samples of 5-3-1 networks, from equilibrium (the teacher, latents included):

- all Δ together;
- ΔA alone, ΔZ = Δy = 1e-2: the stochastic feed-forward network, whose post-activations carry no noise;
- ΔZ = ΔA, Δy = 1e-2: the classical posterior, of a network without noise and data with it.

The table holds the integrated autocorrelation time, in sweeps, of outputs at 20 test points (median over points and
teachers), and its largest value over the teachers. A time above a twentieth of the run is only a lower bound, marked
with a star. Run::

    python benchmarks/small_noise.py [--sweeps 20000] [--teachers 3] [--output FILE]
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", "\\s*ArviZ is undergoing", FutureWarning)

import arviz as az  # noqa: E402
import numpy as np  # noqa: E402
import pymc as pm  # noqa: E402
from common import RESULTS, Results, print_table  # noqa: E402

import pymc_gibbsnn as pmg  # noqa: E402

N, D, H = 200, 5, 3
FALLING = [1e-1, 1e-2, 1e-4, 1e-6, 1e-8]
LIMITS = {
    "all": lambda delta: (delta, delta, delta),
    "ΔA": lambda delta: (1e-2, delta, 1e-2),
    "ΔZ = ΔA": lambda delta: (delta, delta, 1e-2),
}


def make_model(activation: str) -> pm.Model:
    """The network, with its noises as data: compiled once for all."""
    with pm.Model() as model:
        X, y = pm.Data("X", np.zeros((N, D))), pm.Data("y_data", np.zeros(N))
        sigma = [pm.Data(f"sigma_{name}", 0.1) for name in ("Z2", "A2", "y")]
        function = {"relu": lambda z: pm.math.maximum(z, 0), "tanh": pm.math.tanh}[activation]
        W1, b1 = pm.Normal("W1", 0, D**-0.5, shape=(H, D)), pm.Normal("b1", 0, D**-0.5, shape=H)
        A2 = pm.Normal("A2", function(pm.Normal("Z2", X @ W1.T + b1, sigma[0])), sigma[1])
        W2, b2 = pm.Normal("W2", 0, H**-0.5, shape=H), pm.Normal("b2", 0, H**-0.5)
        pm.Normal("y", A2 @ W2 + b2, sigma[2], observed=y)
    return model


def autocorrelation(step: pmg.GibbsNN, activation: str, deltas: tuple[float, ...], seed: int, sweeps: int) -> float:
    """Median integrated autocorrelation time of the outputs, from equilibrium."""
    rng, model = np.random.default_rng(seed), step.model
    function = {"relu": lambda z: np.maximum(z, 0), "tanh": np.tanh}[activation]
    X, X_test, (sz, sa, sy) = rng.normal(size=(N, D)), rng.normal(size=(20, D)), np.sqrt(deltas)
    point = {"W1": rng.normal(size=(H, D)) * D**-0.5, "b1": rng.normal(size=H) * D**-0.5}
    point["Z2"] = X @ point["W1"].T + point["b1"] + sz * rng.normal(size=(N, H))
    point["A2"] = function(point["Z2"]) + sa * rng.normal(size=(N, H))
    point |= {"W2": rng.normal(size=H) * H**-0.5, "b2": rng.normal() * H**-0.5}
    y = point["A2"] @ point["W2"] + point["b2"] + sy * rng.normal(size=N)
    pm.set_data({"X": X, "y_data": y, "sigma_Z2": sz, "sigma_A2": sa, "sigma_y": sy}, model=model)
    step.set_rng(seed)
    outputs = []
    for sweep in range(sweeps):
        if sweep == sweeps // 10:
            step.stop_tuning()
        point, _ = step.step(point)
        if sweep >= sweeps // 10:
            outputs.append(function(X_test @ point["W1"].T + point["b1"]) @ point["W2"] + point["b2"])
    return float(np.median([len(outputs) / float(az.ess(x[None], method="mean")) for x in np.transpose(outputs)]))


def main(sweeps: int, teachers: int, output: Path) -> None:
    """Measure what is not yet in the output, and print the table."""
    results = Results(output)
    for activation in ("relu", "tanh"):
        step = pmg.GibbsNN(model=make_model(activation), sweeps_per_draw=1)
        rows = []
        for limit, deltas in LIMITS.items():
            row = {"falling": limit}
            for delta in FALLING:
                found = []
                for seed in range(teachers):
                    key = f"{activation} | {limit} | {delta:g} | {seed} | {sweeps}"
                    if key not in results:
                        results[key] = autocorrelation(step, activation, deltas(delta), seed, sweeps)
                    found.append(results[key])
                star = "*" if np.median(found) > sweeps / 20 else ""
                row[f"{delta:g}"] = f"{np.median(found):.3g}{star} ({max(found):.3g})"
            rows.append(row)
        print_table(f"Sweeps to decorrelate outputs, {activation}: median over teachers (largest)", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=20_000)
    parser.add_argument("--teachers", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS / "small_noise.json")
    main(**vars(parser.parse_args()))

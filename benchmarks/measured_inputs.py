"""A curve whose inputs are measured with error: the network that knows of the error, and the one that does not.

The data are y = sin(2x) + e with x ~ N(0, 1), e ~ N(0, 0.1²) and 200 rows. Measured is x + u with u ~ N(0, 0.3²). Three
networks of 20 ReLU units have the same priors:

- ``true inputs``: is given x, which nobody knows in practice.
- ``measured, error ignored``: takes x + u for x.
- ``measured, error modelled``: x is a variable of the model, and x + u is observed around it
  (docs/guide/missing_inputs.rst, "Measured with error").

The error of the posterior mean curve is taken on a grid of the middle 80 % of x. Over the data sets its mean at a grid
point is the bias there. The table has the root mean squared bias over the grid, the root mean squared error, the slope
of the posterior mean on the curve, which is below 1 if the posterior mean is too flat, and the share of grid points
at which a 90 % credible band contains the curve. ``noise`` is the posterior mean of the standard deviation of e.
Effective draws are those of the curve, at the median grid point.

::

    OMP_NUM_THREADS=1 python benchmarks/measured_inputs.py [--sets 5]
    python benchmarks/measured_inputs.py --table

What is there already is not computed again.
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from common import RESULTS, Results, mixing, print_table, standard_error
from scipy.stats import norm

import pymc_gibbsnn as pmg

ROWS, UNITS, NOISE, ERROR = 200, 20, 0.1, 0.3
CHAINS, DRAWS = 4, 300
GRID = norm.ppf(np.linspace(0.1, 0.9, 33))[:, None]
METHODS = ("true inputs", "measured, error ignored", "measured, error modelled")


def curve(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x[:, 0])


def write_model(x: np.ndarray, y: np.ndarray, has_error: bool) -> pm.Model:
    """A noisy network with learned scales, of given inputs or of measured ones."""
    with pm.Model() as model:
        inputs = pm.Data("X", x)
        if has_error:
            truth = pm.Normal(
                "x", pm.Normal("mu", 0, 1, shape=1), pt.sqrt(pm.InverseGamma("tau2", 2, 1, shape=1)), shape=x.shape
            )
            pm.Normal("x_measured", truth, ERROR, observed=inputs)
            inputs = truth
        inside = [pt.sqrt(pm.InverseGamma(f"variance_{name}", 5, 0.0001)) for name in ("Z2", "A2")]
        W1, b1 = pm.Normal("W1", 0, 1, shape=(UNITS, 1)), pm.Normal("b1", 0, 1, shape=UNITS)
        Z2 = pm.Normal("Z2", inputs @ W1.T + b1, inside[0], shape=(len(y), UNITS))
        A2 = pm.Normal("A2", pm.math.maximum(Z2, 0), inside[1], shape=(len(y), UNITS))
        spread = 1 / pt.sqrt(pm.Gamma("precision_W2", 2, 2 / UNITS))
        mean = A2 @ pm.Normal("W2", 0, spread, shape=UNITS) + pm.Normal("b2", 0, 1)
        pm.Normal("y", mean, pt.sqrt(pm.InverseGamma("variance_y", 1, 0.001)), observed=y)
    return model


def fit(x: np.ndarray, y: np.ndarray, has_error: bool, seed: int) -> dict[str, object]:
    """Draw from the posterior; return what it says of the curve at the grid."""
    start, model = time.perf_counter(), write_model(x, y, has_error)
    with model:
        idata = pm.sample(
            DRAWS, tune=DRAWS, chains=CHAINS, cores=1, step=pmg.GibbsNN(), var_names=pmg.without_latents(),
            initvals={"x": x} if has_error else None, random_seed=seed, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    W1, b1, W2, b2 = (idata["posterior"][name].values for name in ("W1", "b1", "W2", "b2"))
    hidden = np.maximum(GRID[:, 0, None] * W1[..., None, :, 0] + b1[..., None, :], 0)  # (chain, draw, point, unit)
    f = np.einsum("cdpu,cdu->cdp", hidden, W2) + b2[..., None]
    low, high = np.quantile(f, [0.05, 0.95], axis=(0, 1))
    return {
        "mean": f.mean(axis=(0, 1)).tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
        "noise": float(np.sqrt(idata["posterior"]["variance_y"]).mean()),
        "seconds": time.perf_counter() - start,
    } | mixing(f)


def row(method: str, results: dict[str, dict]) -> dict[str, object]:
    """Summarise a method over data sets."""
    found = [values for key, values in results.items() if key.startswith(f"{method}/")]
    truth, means = curve(GRID), np.array([one["mean"] for one in found])
    errors = means - truth
    covers = [(np.array(one["low"]) <= truth) & (truth <= np.array(one["high"])) for one in found]
    slopes = (means @ truth) / (truth @ truth)
    return {
        "method": method,
        "sets": len(found),
        "bias": float((errors.mean(axis=0) ** 2).mean() ** 0.5),
        "RMSE": float((errors**2).mean() ** 0.5),
        "slope": f"{slopes.mean():.3f} ± {standard_error(slopes):.3f}",
        "coverage": float(np.mean(covers)),
        "noise": float(np.mean([one["noise"] for one in found])),
        "ESS": float(np.median([one["ESS"] for one in found])),
        "seconds": float(np.median([one["seconds"] for one in found])),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=5)
    parser.add_argument("--table", action="store_true", help="only print what has been computed")
    parser.add_argument("--output", type=Path, default=RESULTS / "measured_inputs.json")
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    results = Results(arguments.output)
    for seed in range(0 if arguments.table else arguments.sets):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(ROWS, 1))
        y, measured = curve(x) + NOISE * rng.normal(size=ROWS), x + ERROR * rng.normal(size=x.shape)
        for method, inputs in zip(METHODS, (x, measured, measured), strict=True):
            if (key := f"{method}/{seed}") not in results:
                results[key] = fit(inputs, y, method == METHODS[2], seed)
                print(key, {name: results[key][name] for name in ("noise", "ESS", "R-hat", "seconds")}, flush=True)
    print_table("Measured inputs", [row(method, results) for method in METHODS])

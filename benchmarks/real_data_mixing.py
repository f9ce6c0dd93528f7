"""How outputs mix on small real data sets: GibbsNN as it is called, and NUTS on the network without noise inside.

One hidden layer of 30 ReLU units, standardised inputs and targets, the first split of each set, four chains of 1,000
tuning steps and 1,000 draws, one core. GibbsNN has the network that ``pmg.mlp`` writes by default, with learned noise
and prior scales; NUTS has the classical network, the same without the noise of hidden units and of the last latent.
Sonar has labels: a probit likelihood for GibbsNN, and a logit one for NUTS, since probits underflow where NUTS starts.
``--sweeps`` gives the draws of GibbsNN another number of sweeps than it chooses.

Outputs are those at all test points, without noise of the data: the median and the largest R-hat, and the median
effective sample size (ESS) of all draws together. Seconds are the processor's, without compilation. What is there
already is not computed again. Run, with one thread a process::

    OMP_NUM_THREADS=1 python benchmarks/real_data_mixing.py FOLDER [--sets yacht ...] [--methods ...] [--sweeps 10]
    python benchmarks/real_data_mixing.py FOLDER --table

FOLDER holds what ``data_sets.py uci`` and ``data_sets.py tables`` write.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from pathlib import Path

import classification
import numpy as np
import pymc as pm
import uci
from common import RESULTS, Results, mixing, print_table

import pymc_gibbsnn as pmg

REGRESSION, LABELS = ("yacht", "energy", "concrete", "boston", "wine_red"), ("sonar",)
SETS = (*REGRESSION, *LABELS)
UNITS, DRAWS, CHAINS = 30, 1000, 4


class Clock:
    """Seconds of the processor since the first draw, by a callback of ``pm.sample``."""

    def __init__(self):
        self.start = None

    def __call__(self, trace, draw) -> None:
        self.start = self.start or time.process_time()

    @property
    def seconds(self) -> float:
        return time.process_time() - self.start


def gibbs(X, y, X_test, is_label: bool, sweeps: int | str) -> tuple[np.ndarray, float]:
    """Outputs (chain, draw, point) and seconds."""
    with pmg.mlp(X, y, UNITS, likelihood="probit" if is_label else "student") as model:
        step, clock = pmg.GibbsNN(sweeps_per_draw=sweeps), Clock()
        idata = sample(clock, step=step, var_names=pmg.without_latents())
        seconds = clock.seconds
        return pmg.function_space(idata, model, X_test)["output"].values, seconds


def nuts(X, y, X_test, is_label: bool, sweeps: int | str) -> tuple[np.ndarray, float]:
    """The same of the classical network."""
    d = X.shape[1]
    with pm.Model():
        precision_1 = pm.Gamma("precision_1", 2, 2 / d, shape=(d, 1))  # one for each input
        W1, b1 = pm.Normal("W1", 0, tau=precision_1, shape=(d, UNITS)), pm.Normal("b1", 0, 1, shape=UNITS)
        wider = 3 if is_label else 1  # as pmg.mlp does
        precision_2 = pm.Gamma("precision_2", 2, 2 / UNITS * wider**2)
        W2, b2 = pm.Normal("W2", 0, tau=precision_2, shape=UNITS), pm.Normal("b2", 0, wider)
        f = pm.math.maximum(X @ W1 + b1, 0) @ W2 + b2
        if is_label:
            pm.Bernoulli("y", logit_p=f, observed=y)
        else:
            noise = pm.InverseGamma("variance", 1, 0.001) ** 0.5
            pm.StudentT("y", 4, mu=f, sigma=noise, observed=y)
        clock = Clock()
        posterior = sample(clock)["posterior"]
        seconds = clock.seconds
    W1, b1, W2, b2 = (posterior[name].values for name in ("W1", "b1", "W2", "b2"))
    hidden = np.maximum(X_test @ W1 + b1[..., None, :], 0)
    return (hidden @ W2[..., None])[..., 0] + b2[..., None], seconds


def sample(clock: Clock, **arguments):
    return pm.sample(
        DRAWS, tune=DRAWS, chains=CHAINS, cores=1, callback=clock, random_seed=1, progressbar=False,
        compute_convergence_checks=False, **arguments,
    )  # fmt: skip


METHODS: dict[str, Callable] = {"GibbsNN": gibbs, "NUTS": nuts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--sweeps", type=lambda x: x if x == "auto" else int(x), default="auto")
    parser.add_argument("--table", action="store_true", help="only print what has been computed")
    parser.add_argument("--output", type=Path, default=RESULTS / "real_data_mixing.json")
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    results = Results(arguments.output)
    for name in () if arguments.table else arguments.sets:
        for method in arguments.methods:
            key = f"{name}/{method}/{arguments.sweeps}" if method == "GibbsNN" else f"{name}/{method}"
            if key in results:
                continue
            if name in LABELS:
                X, X_test, y, _ = classification.load(arguments.data, name, 0)
            else:
                X, y, X_test, *_ = uci.read_split(arguments.data, name, 0)
            outputs, seconds = METHODS[method](X, y, X_test, name in LABELS, arguments.sweeps)
            results[key] = mixing(outputs) | {"seconds": seconds}
            print(key, {k: float(f"{v:.4g}") for k, v in results[key].items()}, flush=True)
    rows = []
    for key, found in results.items():
        name, _, method = key.partition("/")
        row = {"set": name, "method": method, **found, "ESS a second": found["ESS"] / found["seconds"]}
        other = results.get(f"{name}/NUTS")
        row["over NUTS"] = row["ESS a second"] * other["seconds"] / other["ESS"] if other else "-"
        rows.append(row)
    print_table("How outputs mix", rows)


if __name__ == "__main__":
    main()

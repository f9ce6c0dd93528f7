"""How long a user waits for the first draw: processor seconds to read a model, compile its sweep and make one.

Two processes build the same models one after another, the second with what the first has left in PyTensor's cache on
disk. Each model differs from the first one in what its row of the table names; those of PCN and FNBG come in pairs, of
which the second differs from the first in the numbers of rows, inputs and units, the noise and the priors. Run::

    OMP_NUM_THREADS=1 python benchmarks/compile_times.py [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODELS = {
    "the first model: 100 rows, 3-4-1, relu": {},
    "the same again": {},
    "101 rows": {"n": 101},
    "5 units": {"hidden": 5},
    "4 inputs": {"d": 4},
    "noise 0.2": {"noise": 0.2},
    "another prior": {"prior": 2.0},
    "two hidden layers": {"hidden": [4, 4]},
    "tanh": {"activation": "tanh"},
}

SAMPLERS = ("PCN", "FNBG")
SIZES = {
    "another sampler": {"n": 100, "d": 3, "hidden": 4, "noise": 0.1, "prior": 2.0},
    "other numbers": {"n": 131, "d": 5, "hidden": 7, "noise": 0.3, "prior": 3.0},
}


def written_by_hand(X, y, hidden: int, noise: float, prior: float):
    """The network of ``pmg.mlp`` with another standard deviation of weights and biases."""
    import pymc as pm

    with pm.Model() as model:
        W1, b1 = pm.Normal("W1", 0, prior, shape=(hidden, X.shape[1])), pm.Normal("b1", 0, prior, shape=hidden)
        Z2 = pm.Normal("Z2", pm.Data("X", X) @ W1.T + b1, noise)
        A2 = pm.Normal("A2", pm.math.maximum(Z2, 0), noise)
        W2, b2 = pm.Normal("W2", 0, prior, shape=hidden), pm.Normal("b2", 0, prior)
        pm.Normal("y", A2 @ W2 + b2, noise, observed=pm.Data("y_data", y))
    return model


def measure() -> dict[str, float]:
    """Processor seconds of this process, by row of the table."""
    started = time.process_time()
    import pymc  # noqa: F401

    imported = time.process_time()
    import numpy as np

    import pymc_gibbsnn as pmg

    found = {"import pymc": imported - started, "import pymc_gibbsnn after it": time.process_time() - imported}
    rng = np.random.default_rng(0)
    for name, change in MODELS.items():
        architecture = {"n": 100, "d": 3, "hidden": 4, "noise": 0.1} | change
        n, d, prior = architecture.pop("n"), architecture.pop("d"), architecture.pop("prior", None)
        X, y = rng.normal(size=(n, d)), rng.normal(size=n)
        model = (
            pmg.mlp(X, y, prior=None, **architecture)
            if prior is None
            else written_by_hand(X, y, prior=prior, **architecture)
        )
        found[name] = _first_draw(pmg.GibbsNN, model)
    for sampler in SAMPLERS:
        for name, numbers in SIZES.items():
            X, y = rng.normal(size=(numbers["n"], numbers["d"])), rng.normal(size=numbers["n"])
            if sampler == "PCN":
                scale = {"weight_scale": numbers["prior"]}
                model = pmg.wide_mlp(X, y, numbers["hidden"], noise=numbers["noise"], **scale)
            else:
                model = pmg.classical_mlp(X, y > 0, numbers["hidden"], prior_variance=numbers["prior"])
            found[f"{sampler}, {name}"] = _first_draw(getattr(pmg, sampler), model)
    return found


def _first_draw(step, model) -> float:
    """Processor seconds until a step, of default options, has made one draw of a model."""
    with model:
        started = time.process_time()
        step().step(model.initial_point())
        return time.process_time() - started


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", action="store_true", help="measure this process and print JSON")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "compile_times.json")
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(measure()))
        raise SystemExit
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"PYTENSOR_FLAGS": f"base_compiledir={cache}"}
        command = [sys.executable, __file__, "--here"]
        runs = [
            subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
            for _ in range(2)
        ]
    cold, warm = (json.loads(run.splitlines()[-1]) for run in runs)
    from common import print_table, save  # not before: it imports PyMC

    print_table("Processor seconds", [{"": name, "cold": cold[name], "warm": warm[name]} for name in cold])
    save(arguments.output, {"cold": cold, "warm": warm})

"""How long prediction takes: pmg.predict, in processor time, of a package here and of another one.

    python benchmarks/prediction.py                      # this package
    python benchmarks/prediction.py --other PATH         # by ratio: PATH is the folder of another version's source

Each version runs in a process of its own, in turn, so that both meet the same load of the machine. The posterior is
made of draws from the prior.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[1]
MODELS = {
    "student": {},
    "normal": {"likelihood": "normal"},
    "probit": {"likelihood": "probit"},
}
SCRIPT = """
import json, resource, sys, time
import numpy as np
import pymc as pm
import pymc_gibbsnn as pmg
from pymc_gibbsnn import _compat

options, rows, draws, hidden, columns = json.loads(sys.argv[1])
rng = np.random.default_rng(0)
X = rng.normal(size=(200, columns))
y = (X[:, 0] > 0).astype(int) if options.get("likelihood") == "probit" else X[:, 0]
model = pmg.mlp(X, y, hidden, **options)
rvs = [model[name] for name in pmg.without_latents(model)]
rvs = [rv for rv in rvs if rv in model.free_RVs]
values = pm.draw(rvs, draws=4 * draws, random_seed=1, mode="FAST_COMPILE")
values = {rv.name: x.reshape(4, draws, *x.shape[1:]) for rv, x in zip(rvs, values)}
idata = _compat.inference_data({"posterior": _compat.dataset(model, values, 0)})
new = rng.normal(size=(rows, columns))
pmg.predict(idata, model, new[:2], random_seed=1)
start, wall = time.process_time(), time.perf_counter()
pmg.predict(idata, model, new, random_seed=1)
seconds = {"processor": time.process_time() - start, "wall": time.perf_counter() - wall}
print(json.dumps(seconds | {"peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def measure(folder: Path, arguments: list) -> dict[str, float]:
    """Run the script with the package of a folder."""
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, json.dumps(arguments)]
    done = subprocess.run(command, env=environment, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    from common import RESULTS, load, print_table, save

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, help="the folder of another version of the package")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["student"])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--draws", type=int, default=1000, help="of each of 4 chains")
    parser.add_argument("--hidden", type=int, default=50)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS / "prediction.json")
    options = parser.parse_args()
    results = load(options.output)
    folders = {"here": HERE} | ({"other": options.other.resolve()} if options.other else {})
    for name in options.models:
        arguments = [MODELS[name], options.rows, options.draws, options.hidden, options.columns]
        runs = [
            {which: measure(folder, arguments) for which, folder in folders.items()} for _ in range(options.repeats)
        ]
        key = f"{name}, {options.rows} rows, 4 x {options.draws} draws, {options.columns}-{options.hidden}-1"
        results[key] = {
            which: {unit: float(np.median([run[which][unit] for run in runs])) for unit in runs[0][which]}
            for which in folders
        }
        if options.other:
            ratios = [run["other"]["processor"] / run["here"]["processor"] for run in runs]
            results[key]["ratio"] = float(np.median(ratios))
        save(options.output, results)
    rows = []
    for key, found in results.items():
        row = {"model": key, **{f"{unit}, here": x for unit, x in found["here"].items()}}
        if "other" in found:
            row |= {f"{unit}, other": x for unit, x in found["other"].items()} | {"ratio": found["ratio"]}
        rows.append(row)
    print_table("Seconds of pmg.predict", rows)


if __name__ == "__main__":
    main()

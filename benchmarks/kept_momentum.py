"""MALA with kept momentum: which acceptance its step size should be tuned to.

The target is a Gaussian of 300 dimensions, with standard deviations from 1 to 16. The table holds, for shares α of the
momentum that are drawn anew at each step and for several step sizes ε, the acceptance, and the integrated
autocorrelation times of the widest variable and of its square (twelve chains of 12,000 steps, which start in
equilibrium). Run::

    python benchmarks/kept_momentum.py [--output FILE]
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

SCALES = np.geomspace(1, 16, 300)
CHAINS, STEPS = 12, 12_000
SHARES, SIZES = (1.0, 0.3, 0.1, 0.03, 0.01), (1.05, 0.85, 0.7, 0.6, 0.45, 0.3)


def measure(share: float, size: float) -> dict[str, float]:
    """The acceptance, and the integrated autocorrelation times."""
    starts = np.random.default_rng(1).normal(size=(CHAINS, len(SCALES))) * SCALES
    with pm.Model():
        x = pm.Normal("x", 0, SCALES)
        pm.Deterministic("widest", x[-1])
        idata = pmg.sample(
            STEPS, tune=0, chains=CHAINS, step=pmg.MALA(step_size=size, momentum_refresh=share), random_seed=1,
            var_names=["widest"], initvals=[{"x": start} for start in starts], progressbar=False,
        )  # fmt: skip
    widest = idata["posterior"]["widest"].values
    return {
        "acceptance": float(idata["sample_stats"]["acceptance_rate"].mean()),
        "steps, x": widest.size / float(az.ess(widest)),
        "steps, x²": widest.size / float(az.ess(widest**2)),
    }


def main(output: Path) -> None:
    results, rows = Results(output), []
    for share in SHARES:
        for size in SIZES:
            key = f"{share} {size}"
            if key not in results:
                results[key] = measure(share, size)
            rows.append({"α": share, "ε": size, **results[key]})
    print_table("MALA with kept momentum", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "kept_momentum.json")
    main(parser.parse_args().output)

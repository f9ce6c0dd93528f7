"""Noisy 784-12-10 network on MNIST: test accuracy against sweeps, time of a sweep, peak memory.

The experiment of Piccioli, Troiani, Zdeborová (arXiv 2306.02729, fig. 3): multinomial probit, all Δ = 2, priors of
precision 784 and 12, pixels standardised by their common mean and standard deviation, started from zero; accuracy of
single states of the chain, without noise, on the first 5,000 test images, beside that of the majority of all states so
far.
They report .908 by 3,000 sweeps.

Run::

    OMP_NUM_THREADS=2 python benchmarks/mnist.py FILE.npz [--variant collapsed] [--precision float32]

Moves of scales, without interweaving, do harm to a chain that starts from zero: neither is made unless asked for.
FILE.npz is the ``mnist.npz`` that ``data_sets.py images`` writes. OMP_NUM_THREADS is the number of cores that may be
used.
"""

from __future__ import annotations

import argparse
import resource
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor
from common import RESULTS, VARIANTS, Results, print_table

import pymc_gibbsnn as pmg

WEIGHTS = ["W1", "b1", "W2", "b2"]


def main(file: Path, sweeps: int, every: int, precision: str, variant: str, output: Path) -> None:
    """Run a chain, measure its accuracy, draw the figure."""
    data = np.load(file)
    pixels = data["x_train"].reshape(len(data["x_train"]), -1) / 255
    X, X_test = ((x - pixels.mean()) / pixels.std() for x in (pixels, data["x_test"][:5000].reshape(5000, -1) / 255))
    pytensor.config.floatX = precision
    with pmg.mlp(X, data["y_train"].astype(int), 12, noise=2**0.5, likelihood="probit", prior=None):
        idata = pm.sample(
            sweeps // every,
            tune=0,
            chains=1,
            step=pmg.GibbsNN(**VARIANTS[variant], sweeps_per_draw=every),
            initvals=pmg.initial_values(kind="zero"),
            var_names=WEIGHTS,
            random_seed=1,
            compute_convergence_checks=False,
        )
        logits = pmg.function_space(idata, X_new=X_test)["output"].values[0]
    labels = data["y_test"][:5000]
    single = (logits.argmax(-1) == labels).mean(1)
    shares = np.cumsum(logits.argmax(-1)[..., None] == np.arange(10), axis=0)
    together = (shares.argmax(-1) == labels).mean(1)
    at = every * np.arange(1, len(single) + 1)
    milliseconds = 1000 * float(idata["posterior"].attrs["sampling_time"]) / at[-1]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # GiB; KiB on Linux
    rows = [
        {"sweeps": int(at[i]), "one state": float(single[i]), "majority": float(together[i])}
        for i in np.unique(np.linspace(0, len(at) - 1, 8).astype(int))
    ]
    print_table("Test accuracy", rows)
    print(f"\n{milliseconds:.0f} ms a sweep ({variant}) in {precision}, peak memory {memory:.1f} GiB")
    results = Results(output)
    results[f"{variant}, {precision}"] = {
        "ms": milliseconds, "GiB": memory, "sweeps": at.tolist(), "one": single.tolist(), "mean": together.tolist()
    }  # fmt: skip
    _, ax = plt.subplots(layout="constrained")
    ax.loglog(at, 1 - single, label="one state")
    ax.loglog(at, 1 - together, label="majority of states so far")
    ax.axhline(1 - 0.908, color="grey", linestyle=":", label="reported at 3,000 sweeps")
    ax.set(xlabel="sweeps", ylabel="share of wrong labels")
    ax.legend()
    ax.figure.savefig(output.with_suffix(".png"), dpi=150)
    print(f"wrote {output} and {output.with_suffix('.png')}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--sweeps", type=int, default=3000)
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--precision", choices=["float32", "float64"], default="float32")
    parser.add_argument("--variant", choices=VARIANTS, default="collapsed")
    parser.add_argument("--output", type=Path, default=RESULTS / "mnist.json")
    main(**vars(parser.parse_args()))

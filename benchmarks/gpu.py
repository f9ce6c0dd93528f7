"""What a GPU gains: sweeps and effective samples in a second, and whether the draws there are right.

It is meant to take ten minutes on a GPU, and needs no data and nothing but this package with JAX. Without a GPU it
measures the processor::

    OMP_NUM_THREADS=1 python benchmarks/gpu.py [--quick] [--parts law mixing speed] [--output FILE]

The parts are

- ``law``: two distributions by chains on the device. A linear regression has a posterior that is known; means and
  covariances of draws of it are compared with the exact ones. The outputs of a network, 200 rows, 5-3-1, are compared
  with those of chains that ``pm.sample`` runs on two cores of the processor. The table has the largest deviation in
  standard errors, and the number of quantities compared; the script fails if one is above 5.
- ``mixing``: the effective sample size of the network's outputs, the median over 20 rows, which many chains make in a
  second once they have tuned, in double precision, beside that of ``pm.sample`` with four chains on two cores.
- ``speed``: sweeps in a second in single and in double precision: of many networks 5-3-1 on 200 rows, of networks
  10-10-1 with labels on 1,000 rows (a logistic likelihood), and of networks 784-12-10 on 60,000 rows of random numbers,
  as many as MNIST has. The last column is the ratio to ``pm.sample`` with one chain on one core.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import arviz as az
import jax
import numpy as np
import pymc as pm
import xarray as xr
from common import RESULTS, Results, draw_teacher, make_model, mixing, print_table
from jax_driver import GIBBS, SMALL, alone, rate, rate_of_pm_sample

import pymc_gibbsnn as pmg

ROWS = 20  # at which outputs are looked at
CHAINS = {"small": (64, 4096), "logistic": (64, 1024), "mnist": (16,)}
PRECISIONS = "float32", "float64"
PARTS = "law", "mixing", "speed"
BOUND = 5.0  # standard errors
MOST = 1_000_000  # draws of all chains


def deviations_from_exact(chains: int, precision: str, draws: int = 250) -> np.ndarray:
    """Of means and covariances of a linear regression's weights from the exact ones, in standard errors.

    Its Gibbs sweep draws all weights at once, so that draws are independent.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    y = x @ [1.0, -0.5, 0.2] + 0.5 * rng.normal(size=40)
    with pm.Model():
        pm.Normal("y", x @ pm.Normal("W", 0, 1, shape=3), 0.5, observed=y)
        idata = pmg.sample(
            draws, step=pmg.GibbsNN(), tune=0, chains=chains, precision=precision, random_seed=1, progressbar=False
        )
    found = idata["posterior"]["W"].values.astype(float).reshape(-1, 3)
    covariance = np.linalg.inv(np.eye(3) + x.T @ x / 0.5**2)
    centred = found - covariance @ x.T @ y / 0.5**2
    products = np.einsum("si,sj->sij", centred, centred)[:, *np.triu_indices(3)]
    of_mean = centred.mean(0) / centred.std(0)
    of_products = (products.mean(0) - covariance[np.triu_indices(3)]) / products.std(0)
    return np.sqrt(len(found)) * np.concatenate([of_mean, of_products])


@cache
def run(where: str, sampler: str, chains: int, draws: int, precision: str) -> tuple[np.ndarray, float]:
    """Outputs of the small network, (chain, draw, row), and how many draws of all chains were made in a second.

    Chains begin at the teacher, which is a draw of the posterior, and have as many tuning draws as others. They run on
    the ``device`` or, by ``pm.sample``, on ``two cores``.
    """
    teacher = draw_teacher(SMALL, seed=0)
    with make_model(SMALL, teacher) as model:
        step = GIBBS[sampler](sweeps_per_draw=1)
        how = {
            "tune": draws,
            "chains": chains,
            "initvals": teacher.point,
            "var_names": [rv.name for rv in model.free_RVs if rv.name[0] in "Wb"],
            "random_seed": len(where),
            "progressbar": False,
        }
        if where == "device":
            idata = pmg.sample(draws, step=step, precision=precision, **how)
        else:
            idata = pm.sample(draws, step=step, cores=2, mp_ctx="fork", compute_convergence_checks=False, **how)
    found = pmg.function_space(idata, model, teacher.X[:ROWS])["output"].values
    return found, 2 * found.shape[0] * found.shape[1] / idata["posterior"].attrs["sampling_time"]


@cache
def two_cores(sampler: str, draws: int) -> tuple[np.ndarray, float]:
    """What :func:`run` returns of ``pm.sample``, five times as long, in a process where JAX has started no threads."""
    return alone(run, "two cores", sampler, 4, 5 * draws, "float64")


def deviations(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Of means and second moments of two kinds of chains, (chain, draw, quantity), in standard errors."""

    def mean_and_error(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ess = az.ess(xr.Dataset({"x": (("chain", "draw", "quantity"), x)}), method="mean")["x"].values
        return x.mean((0, 1)), x.std((0, 1)) / np.sqrt(ess)

    (ours, error), (theirs, their_error) = (
        mean_and_error(np.concatenate([x, (x - expected.mean((0, 1))) ** 2], axis=-1)) for x in (found, expected)
    )
    return (ours - theirs) / np.hypot(error, their_error)


def law(sampler: str, chains: int, draws: int, precisions: Sequence[str]) -> list[dict[str, object]]:
    """How far two distributions are from what they must be."""
    expected, _ = two_cores(sampler, draws)
    rows = []
    for precision in precisions:
        found, _ = run("device", sampler, chains, draws, precision)
        apart = {
            "a linear regression, with the truth": deviations_from_exact(chains, precision),
            "outputs of a network, with two cores": deviations(found, expected),
        }
        for what, z in apart.items():
            row = {"compared": what, "precision": precision, "chains": chains, "quantities": len(z)}
            rows.append(row | {"standard errors": float(np.abs(z).max())})
    return rows


def effective_samples(sampler: str, chains: Sequence[int], draws: int) -> list[dict[str, object]]:
    """Effective samples of the outputs in a second, by the number of chains on the device, and on two cores."""
    runs = {("two cores, pm.sample", 4): two_cores(sampler, draws)}
    for count in chains:
        runs[jax.devices()[0].device_kind, count] = run("device", sampler, count, min(draws, MOST // count), "float64")
    rows = []
    for (where, count), (found, of_a_second) in runs.items():
        ess = of_a_second * mixing(found)["ESS"] / (found.shape[0] * found.shape[1])
        rows.append({"where": where, "chains": count, "sweeps/s": of_a_second, "ESS/s": ess})
        rows[-1]["over two cores"] = ess / rows[0]["ESS/s"]
    return rows


def speed(sampler: str, networks: Mapping[str, Sequence[int]], seconds: float) -> list[dict[str, object]]:
    """Sweeps in a second by network, chains and precision."""
    rows = []
    for network, chains in networks.items():
        reference = alone(rate_of_pm_sample, network, sampler, None)
        for count, precision in itertools.product(chains, PRECISIONS):
            made = rate(network, sampler, None, count, precision, seconds)
            row = {"network": network, "precision": precision, "chains": count, "sweeps/s": made["draws/s"]}
            row |= {"compile (s)": made["compile (s)"], "over pm.sample": made["draws/s"] * reference / 1e3}
            rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small form, of a few chains and moves")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu.json")
    arguments = parser.parse_args(arguments)
    many = [4, 64] if jax.default_backend() == "cpu" else [4, 64, 4096]
    if arguments.quick:
        parts = {
            "law": partial(law, "collapsed + scale", 4, 1000, ["float64"]),
            "mixing": partial(effective_samples, "collapsed + scale", [4], 1000),
            "speed": partial(speed, "collapsed + scale", {"small": [4]}, 0.2),
        }
    else:
        parts = {
            "law": partial(law, "all", 64, 2000, PRECISIONS),
            "mixing": partial(effective_samples, "all", many, 2000),
            "speed": partial(speed, "all", CHAINS, 5.0),
        }
    results = Results(arguments.output)
    for part in arguments.parts:
        results[part] = parts[part]()
        print_table(f"{part.capitalize()}, {jax.devices()[0].device_kind}", results[part])
    apart = [row for row in results["law"] if not row["standard errors"] <= BOUND] if "law" in arguments.parts else []
    if apart:
        sys.exit(f"{len(apart)} of the comparisons of the law are more than {BOUND:g} standard errors apart.")


if __name__ == "__main__":
    main()

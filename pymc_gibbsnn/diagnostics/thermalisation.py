"""Has a chain thermalised? The teacher-student criterion beside the estimates that one compares it with.

A teacher is an exact draw of the posterior given its own labels, so a chain that starts at the teacher is in
equilibrium from the start, for every function that does not name the teacher. A chain from any other start has
thermalised no earlier than its test function merges with that of the informed chain (Piccioli, Troiani, Zdeborová,
arXiv 2306.02729, section II). :mod:`pymc_gibbsnn.diagnostics.convergence` has the rules.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_gibbsnn.diagnostics.convergence import (
    blockwise_rhat,
    check_series,
    law_of,
    merge,
    when_close,
    when_settled,
    when_stationary,
)
from pymc_gibbsnn.drivers.gibbs_step import GibbsNN
from pymc_gibbsnn.models.datasets import TeacherStudent, check_teacher
from pymc_gibbsnn.models.initial_values import initial_values
from pymc_gibbsnn.networks.function import function_evaluator
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.networks.reader import read_network

__all__ = ["thermalisation"]

NUMBERS = 2**20  # outputs that are held at a time


def thermalisation(
    study: TeacherStudent,
    results: Mapping[str, object] | None = None,
    *,
    step=None,
    starts: Sequence[str | Mapping[str, ArrayLike]] = ("zero",),
    draws: int = 1000,
    tune: int = 0,
    block: int = 50,
    points: int = 50,
    test_function: Callable[[xr.Dataset], xr.DataArray] | None = None,
    sweeps_per_draw: int | None = None,
    random_seed: int | None = None,
    **sample_arguments,
) -> xr.Dataset:
    """Run a chain from the teacher and others from elsewhere, and say which of these have thermalised.

    Parameters
    ----------
    study : TeacherStudent
        Of :func:`teacher_student`.
    results : mapping of str to InferenceData or DataTree, optional
        Chains that were run already, by the names of their starts, one of which is "informed"; their posteriors hold
        all weights and have the same number of draws. By default chains are run.
    step : step method of PyMC, optional
        Made for ``study.model``; ``GibbsNN()`` by default.
    starts : sequence of "zero", "prior" or mapping of str to array_like
        Where the uninformed chains start, one chain each; see :func:`initial_values`.
    draws : int
        Of each chain, after tuning.
    tune : int
        Tuning steps. With a step that anneals the uninformed chains alone tune: heat would take the informed chain out
        of equilibrium.
    block : int
        Draws in a block.
    points : int
        Test points at which R-hat is taken, the first ones.
    test_function : callable, optional
        From a dataset like that of :func:`function_space`, at the test points, to the series (chain, draw); by default
        the mean squared difference of ``output`` from the teacher's.
    sweeps_per_draw : int, optional
        The unit of times; by default that of the step, or 1.
    random_seed : int, optional
    **sample_arguments
        Further arguments of ``pm.sample``.

    Returns
    -------
    xarray.Dataset
        Times are in sweeps after tuning, NaN where there is none.

        - ``series`` (chain, draw): the test function;
        - ``verdict``, ``merge_time``, ``difference``, ``half_width`` (start): see
          :mod:`pymc_gibbsnn.diagnostics.convergence`;
        - ``stationarity_time`` (chain): from when the series is as in its own second half;
        - ``score`` (chain, draw), ``score_time`` (chain): of a noisy network, if it was recorded (``study.model`` holds
          it as a deterministic), and from when it is about 0;
        - ``rhat``, ``rhat_rank`` (start, block, point): of each uninformed chain with the informed one, as in the paper
          and as in ArviZ; ``rhat_time`` (start): from when the mean over points stays below 1.2;
        - ``rhat_uninformed``, ``rhat_rank_uninformed`` (block, point), ``rhat_time_uninformed``: of all uninformed
          chains, if there are at least two: what one sees without a teacher.

        ``attrs["verdict"]`` says it in words; ``attrs["ess"]`` is the effective sample size of the informed chain's
        second half.

    Raises
    ------
    ValueError
        If the teacher or its data are not those of the model, there is no informed or no other chain, chains are
        shorter than two blocks or of different lengths, or the test function is constant.
    """
    check_teacher(study)
    if int(block) != block or block < 10:
        raise ValueError(f"block must be an integer of at least 10 draws; found {block}.")
    if results is None:
        if draws < 2 * block:
            raise ValueError(f"draws={draws} are shorter than two blocks of {block}.")
        if not starts:
            raise ValueError("starts names no uninformed chain to compare with the informed one.")
        with study.model:
            step = GibbsNN() if step is None else step
        results = _run(study, step, list(starts), draws, tune, random_seed, sample_arguments)
        sweeps_per_draw = sweeps_per_draw or getattr(_steps(step)[0], "sweeps_per_draw", 1)
    series, outputs, scores = _evaluate(study, _chains(results, block), test_function or _error(study), points)
    return _judge(series, outputs, scores, block, sweeps_per_draw or 1)


# Chains


def _run(study: TeacherStudent, step, starts: list, draws: int, tune: int, random_seed, arguments: dict) -> dict:
    model = study.model
    seeds = np.random.SeedSequence(random_seed).spawn(len(starts) + 2)
    points = [
        dict(start) if isinstance(start, Mapping) else initial_values(model, start, random_seed=seed)
        for start, seed in zip(starts, seeds, strict=False)
    ]
    names = [_name(start, i, starts) for i, start in enumerate(starts)]
    try:
        latents = {value.name for value in read_network(model).latents}
    except NetworkError:
        latents = set()
    recorded = [rv.name for rv in model.free_RVs if rv.name not in latents]
    recorded += ["score"] * ("score" in model.named_vars)
    anneals = any(getattr(one, "anneal", None) is not None for one in _steps(step))

    def sample(points: list, tune: int, seed: np.random.SeedSequence) -> object:
        return pm.sample(
            draws,
            tune=tune,
            chains=len(points),
            step=step,
            initvals=points,
            var_names=recorded,
            random_seed=int(seed.generate_state(1)[0]),
            **{"compute_convergence_checks": False, "progressbar": False} | arguments,
        )

    with model, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "More chains", UserWarning)
        informed = sample([study.teacher], 0 if anneals else tune, seeds[-2])
        others = sample(points, tune, seeds[-1])
    posterior = _posterior(others)
    return {"informed": informed} | {name: {"posterior": posterior.isel(chain=[i])} for i, name in enumerate(names)}


def _steps(step) -> list:
    return list(step) if isinstance(step, Sequence) else [step]


def _name(start: str | Mapping, i: int, starts: list) -> str:
    kinds = [start if isinstance(start, str) else "start" for start in starts]
    number = f" {kinds[: i + 1].count(kinds[i])}" if kinds.count(kinds[i]) > 1 else ""
    return kinds[i] + number


def _posterior(idata) -> xr.Dataset:
    posterior = idata["posterior"]
    return posterior.to_dataset() if hasattr(posterior, "to_dataset") else posterior


def _chains(results: Mapping[str, object], block: int) -> dict[str, xr.Dataset]:
    """The posterior of each single chain by its name, the informed one first."""
    if "informed" not in results:
        raise ValueError(f"results lack the chain 'informed'; found {list(results)}.")
    chains = {}
    for name in sorted(results, key=lambda name: name != "informed"):
        posterior = _posterior(results[name])
        m = posterior.sizes["chain"]
        if name == "informed" and m > 1:
            raise ValueError(f"One informed chain is understood; found {m}.")
        chains |= {name if m == 1 else f"{name} {i + 1}": posterior.isel(chain=[i]) for i in range(m)}
    if len(chains) < 2:
        raise ValueError("There is one chain only, 'informed'; it takes another to be compared with it.")
    lengths = {name: chain.sizes["draw"] for name, chain in chains.items()}
    if min(lengths.values()) < 2 * block or len(set(lengths.values())) > 1:
        raise ValueError(f"Chains must have equal lengths of at least two blocks of {block} draws; found {lengths}.")
    return chains


# What is looked at


def _error(study: TeacherStudent) -> Callable[[xr.Dataset], xr.DataArray]:
    def mean_squared_error(space: xr.Dataset) -> xr.DataArray:
        squares = (space["output"] - study.f_test) ** 2
        return squares.mean([dim for dim in squares.dims if dim not in ("chain", "draw")])

    return mean_squared_error


def _evaluate(study: TeacherStudent, chains: dict[str, xr.Dataset], test_function: Callable, points: int):
    """Of all chains the test function, outputs at some points (chain, draw, point) and, if recorded, scores."""
    function = function_evaluator(study.model)
    size = max(1, NUMBERS // study.f_test.size)
    series, outputs, scores = {}, [], []
    for name, chain in chains.items():
        parts, seen = [], []
        for first in range(0, chain.sizes["draw"], size):
            space = function(chain.isel(draw=slice(first, first + size)), study.X_test)
            part = test_function(space)
            if not isinstance(part, xr.DataArray) or set(part.dims) != {"chain", "draw"}:
                raise ValueError(f"test_function must return a DataArray (chain, draw); found {part!r:.200}.")
            parts.append(part.transpose("chain", "draw").values[0])
            seen.append(space["output"].values[0, :, :points])
        series[name] = np.concatenate(parts)
        outputs.append(np.concatenate(seen))
        if "score" in chain:
            scores.append(chain["score"].values[0])
    return series, np.stack(outputs), np.stack(scores) if len(scores) == len(chains) else None


# What is said of it


def _judge(series: dict[str, np.ndarray], outputs: np.ndarray, scores, block: int, sweeps: int) -> xr.Dataset:
    names = list(series)
    for name, x in series.items():
        check_series(name, x, block)
    merges = [merge(series["informed"], series[name], block) for name in names[1:]]
    draws, k = outputs.shape[1], outputs.shape[1] // block
    found = xr.Dataset(
        {
            "series": (("chain", "draw"), np.stack(list(series.values()))),
            "verdict": ("start", [m.verdict for m in merges]),
            "merge_time": ("start", [sweeps * m.draw for m in merges]),
            "difference": ("start", [m.difference for m in merges]),
            "half_width": ("start", [m.half_width for m in merges]),
            "stationarity_time": ("chain", [sweeps * when_stationary(x, block) for x in series.values()]),
        },
        coords={
            "chain": names,
            "start": names[1:],
            "draw": sweeps * np.arange(1, draws + 1),
            "block": sweeps * block * (np.arange(k) + 0.5),
        },
        attrs={"block": block, "sweeps_per_draw": sweeps, "ess": merges[0].ess},
    )
    dims = ("block", "point", "output")[: outputs.ndim - 1]
    for name, rank in (("rhat", False), ("rhat_rank", True)):
        pairs = [blockwise_rhat(outputs[[0, i]], block, rank=rank) for i in range(1, len(names))]
        found[name] = (("start", *dims), np.stack(pairs))
        if len(names) > 2:
            found[f"{name}_uninformed"] = (dims, blockwise_rhat(outputs[1:], block, rank=rank))
    found["rhat_time"] = ("start", [sweeps * when_close(rhat, block) for rhat in found["rhat"].values])
    if "rhat_uninformed" in found:
        found["rhat_time_uninformed"] = sweeps * when_close(found["rhat_uninformed"].values, block)
    if scores is not None:
        found["score"] = (("chain", "draw"), scores)
        times = [when_settled(x, law_of(x)._replace(mean=0.0), 1) for x in scores]
        found["score_time"] = ("chain", [sweeps * time for time in times])
    found.attrs["verdict"] = _in_words(found)
    return found


def _in_words(found: xr.Dataset) -> str:
    lines = []
    for start in found["start"].values:
        this = found.sel(start=start)
        verdict = str(this["verdict"].item())
        apart = (
            f"the means over the last part of the run differ by {this['difference'].item():.2g} ± "
            f"{this['half_width'].item():.1g} posterior standard deviations"
        )
        if verdict == "thermalised":
            verdict += f" from sweep {this['merge_time'].item():,.0f} on"
        elif verdict == "undecided":
            verdict += f", run longer (the second half of the informed chain is worth {found.attrs['ess']:.0f} draws)"
        lines.append(f"{start}: {verdict}; {apart}.")
    if np.isfinite(found.get("rhat_time_uninformed", np.nan)) and "not thermalised" in found["verdict"]:
        lines.append("R-hat of the uninformed chains among themselves is close to 1 nevertheless.")
    return "\n".join(lines)

"""Has a chain thermalised? The teacher-student criterion, beside the usual estimates with which it is compared.

A chain has thermalised when it has forgotten where it started. A teacher is an exact draw from the posterior given its
own labels, so that a chain which starts at the teacher, the informed one, is in equilibrium from the start, for every
function that does not depend on the teacher itself. A chain from any other start has thermalised no earlier than its
test function merges with that of the informed chain (Piccioli, Troiani, Zdeborová, arXiv 2306.02729, section II). The
rules by which this is decided are in :mod:`pymc_gibbsnn.diagnostics.convergence`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import describe, posterior_of, whole
from pymc_gibbsnn._compat import dataset_of
from pymc_gibbsnn.diagnostics.convergence import (
    blockwise_rhat,
    check_series,
    merge,
    stretch_of,
    when_close,
    when_settled,
    when_stationary,
)
from pymc_gibbsnn.diagnostics.verdicts import in_words
from pymc_gibbsnn.drivers.gibbs_step import GibbsNN
from pymc_gibbsnn.drivers.given_steps import steps_of
from pymc_gibbsnn.drivers.initial_points import check_initvals
from pymc_gibbsnn.drivers.thinning import AUTO, SWEEPS
from pymc_gibbsnn.models.initial_values import initial_values
from pymc_gibbsnn.models.teachers import TeacherStudent, check_teacher
from pymc_gibbsnn.models.without_latents import without_latents
from pymc_gibbsnn.prediction.function import function_evaluator
from pymc_gibbsnn.prediction.provenance import posterior_for

__all__ = ["thermalisation"]

NUMBERS = 2**20  # how many outputs are held in memory at a time


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
    """Run a chain from a teacher and others from elsewhere, and say which of the others have thermalised.

    The chain from the teacher, the informed one, starts in equilibrium. Another chain has thermalised when its test
    function agrees with that of the informed chain [1]_; :mod:`pymc_gibbsnn.diagnostics.convergence` has the rules.

    Parameters
    ----------
    study : TeacherStudent
        What :func:`teacher_student` returned.
    results : mapping of str to InferenceData or DataTree, optional
        Chains that were run already, by the names of their starts, one of which is "informed". Their posteriors must
        hold all weights and have the same number of draws. By default chains are run.
    step : step method of PyMC, optional
        The sampler, made for ``study.model``; by default ``GibbsNN()``. Chains are compared sweep by sweep: where
        ``sweeps_per_draw`` is "auto", a draw has one sweep here.
    starts : sequence of "zero", "prior" or mapping of str to array_like
        Where the uninformed chains start, one chain for each entry; see :func:`initial_values`.
    draws : int
        How many draws each chain makes after tuning.
    tune : int
        How many tuning steps each chain makes. ``GibbsNN()`` starts chains from a fitted network instead of zero, or
        anneals them, if they tune, and asks for 1,000; it leaves the informed chain as it is. With
        ``GibbsNN(anneal=1)``, which anneals any start, only the uninformed chains tune.
    block : int
        How many draws a block has, at least 10; a chain needs two blocks.
    points : int
        At how many of the test points, the first ones, R-hat is computed.
    test_function : callable, optional
        A function from a dataset like that of :func:`function_space`, at the test points, to a series (chain, draw). By
        default it is the mean squared difference of ``output`` from the teacher's function.
    sweeps_per_draw : int, optional
        How many sweeps a draw counts in times; by default as many as the step made, or 1 where that is not known.
    random_seed : int, optional
        The seed of all chains.
    **sample_arguments
        Further arguments of ``pm.sample``.

    Returns
    -------
    xarray.Dataset
        Times count sweeps after tuning; NaN stands for none.

        - ``series`` (chain, draw): the test function.
        - ``verdict``, ``merge_time``, ``difference``, ``half_width``, ``bound`` and ``part`` (start): the comparison of
          each uninformed chain with the informed one, as :class:`pymc_gibbsnn.diagnostics.convergence.Merge` explains.
          The verdict is "thermalised", "not thermalised" or "undecided".
        - ``stationarity_time`` (chain): since when the series is as in its own second half.
        - ``score`` (chain, draw) and ``score_time`` (chain), for a noisy network whose ``score`` was recorded
          (``study.model`` holds it as a deterministic variable): the score, and since when it oscillates around 0.
        - ``rhat`` and ``rhat_rank`` (start, block, point), with a last axis ``output`` for several outputs: R-hat of
          each uninformed chain together with the informed one, as in the paper and as in ArviZ; ``rhat_time`` (start):
          since when its mean over points stays below 1.2.
        - ``rhat_uninformed`` and ``rhat_rank_uninformed`` (block, point), with the same last axis, and
          ``rhat_time_uninformed``: R-hat of all uninformed chains, if there are at least two, which is what one sees
          without a teacher.

        ``attrs["verdict"]`` states the verdicts in sentences; ``attrs["ess"]`` is the effective sample size of the
        informed chain's second half.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for: a model instead of a study, a class instead of a step, a name
        instead of a list of starts; or if ``sample_arguments`` hold ``chains``, ``initvals``, ``model``, ``step`` or
        ``var_names``, which are set here.
    ValueError
        If the step was made for another model, the teacher or its data are not those of the model, ``starts`` is empty
        or holds another word, there is no informed or no other chain, ``block`` is less than 10, chains are shorter
        than two blocks or of different lengths, or the test function is constant or returns no DataArray (chain, draw).

    References
    ----------
    .. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729,
       section II.

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> study = pmg.teacher_student((3, 4, 1), n=20, noise=0.1, random_seed=1)
    >>> found = pmg.thermalisation(study, starts=["zero", "prior"], draws=2000)  # doctest: +SKIP
    >>> print(found.attrs["verdict"])  # doctest: +SKIP
    """
    if not isinstance(study, TeacherStudent):
        raise TypeError(f"study must be what teacher_student returns; found {describe(study)}.")
    block, points = whole("block", block, least=10, why=" draws"), whole("points", points)
    if sweeps_per_draw is not None:
        sweeps_per_draw = whole("sweeps_per_draw", sweeps_per_draw)
    if test_function is not None and not callable(test_function):
        raise TypeError(f"test_function must be a function of a dataset; found {describe(test_function)}.")
    check_teacher(study)
    if results is None:
        draws = whole("draws", draws, least=2 * block, why=f", two blocks of {block}")
        tune, starts = whole("tune", tune, least=0), _checked_starts(study.model, starts)
        own = {"chains", "initvals", "model", "step", "var_names"} & set(sample_arguments)
        if own:
            raise TypeError(f"thermalisation sets {sorted(own)} of pm.sample itself: leave them out.")
        with study.model:
            step = GibbsNN() if step is None else step
        steps = steps_of(step, study.model, context="with study.model:")
        steps = [method for one in steps for method in getattr(one, "methods", [one])]
        steps = [one.with_sweeps(1) if getattr(one, "sweeps_per_draw", 1) == AUTO else one for one in steps]
        results = _run(study, steps, starts, draws, tune, random_seed, sample_arguments)
        sweeps_per_draw = sweeps_per_draw or getattr(steps[0], "sweeps_per_draw", 1)
    elif not isinstance(results, Mapping):
        raise TypeError(f"results must map names of starts to what pm.sample returned; found {describe(results)}.")
    chains = _chains(study.model, results, block)
    series, outputs, scores = _evaluate(study, chains, test_function or _error(study), points)
    return _judge(series, outputs, scores, block, sweeps_per_draw or _sweeps_of(results))


# Chains


def _sweeps_of(results: Mapping[str, object]) -> int:
    """Return how many sweeps a draw of these chains has, 1 where they do not say; refuse chains that differ in it."""
    counts = set()
    for result in results.values():
        stats = dataset_of(result, "sample_stats") if "sample_stats" in result else {}
        counts |= {*np.unique(stats[SWEEPS]).astype(int).tolist()} if SWEEPS in stats else set()
    if len(counts) > 1:
        raise ValueError(
            f"The chains of results have {sorted(counts)} sweeps a draw, and can only be compared sweep by sweep: run "
            f"them with the same number, such as GibbsNN(sweeps_per_draw=1)."
        )
    return counts.pop() if counts else 1


def _checked_starts(model: pm.Model, starts: object) -> list:
    """Return the starts of the uninformed chains, each "zero", "prior" or a mapping; refuse any other."""
    must_be = "starts must be a list of 'zero', 'prior' or mappings of names to values"
    if isinstance(starts, str | Mapping) or not isinstance(starts, Sequence):
        hint = f": write starts=[{starts!r}]" if isinstance(starts, str) else ""
        raise TypeError(f"{must_be}; found {describe(starts)}{hint}.")
    if not starts:
        raise ValueError("starts names no uninformed chain to compare with the informed one.")
    for start in starts:
        if isinstance(start, Mapping):
            check_initvals(model, start)
        elif start not in ("zero", "prior"):
            raise ValueError(f"{must_be}; found {describe(start)} among them.")
    return list(starts)


def _run(study: TeacherStudent, steps: list, starts: list, draws: int, tune: int, random_seed, arguments: dict) -> dict:
    """Run the informed chain, and one chain from each of the starts.

    Parameters
    ----------
    study : TeacherStudent
        The study.
    steps : list of step methods
        The samplers.
    starts : list of "zero", "prior" or mapping of str to array_like
        Where the uninformed chains start.
    draws, tune : int
        How many draws each chain makes, and how many tuning steps before them.
    random_seed : int, optional
        The seed of all chains.
    arguments : dict
        Further arguments of ``pm.sample``.

    Returns
    -------
    dict of str to InferenceData or DataTree
        The chains by the names of their starts, as :func:`thermalisation` takes them.
    """
    model = study.model
    seeds = np.random.SeedSequence(random_seed).spawn(len(starts) + 2)
    points = [
        dict(start) if isinstance(start, Mapping) else initial_values(model, start, random_seed=seed)
        for start, seed in zip(starts, seeds, strict=False)
    ]
    names = [_name(start, i, starts) for i, start in enumerate(starts)]
    recorded = without_latents(model) + ["score"] * ("score" in model.named_vars)
    anneals = any(getattr(one, "options", {}).get("anneal", "auto") not in (None, "auto") for one in steps)

    def sample(points: list, tune: int, seed: np.random.SeedSequence) -> object:
        return pm.sample(
            draws,
            tune=tune,
            chains=len(points),
            step=steps,
            initvals=points,
            var_names=recorded,
            random_seed=int(seed.generate_state(1)[0]),
            **{"compute_convergence_checks": False, "progressbar": False} | arguments,
        )

    with model, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "More chains", UserWarning)
        informed = sample([study.teacher], 0 if anneals else tune, seeds[-2])
        others = sample(points, tune, seeds[-1])
    posterior = posterior_of("others", others)
    return {"informed": informed} | {name: {"posterior": posterior.isel(chain=[i])} for i, name in enumerate(names)}


def _name(start: str | Mapping, i: int, starts: list) -> str:
    """Name the chain from start number i, with a number where several starts are of the same kind."""
    kinds = [start if isinstance(start, str) else "start" for start in starts]
    number = f" {kinds[: i + 1].count(kinds[i])}" if kinds.count(kinds[i]) > 1 else ""
    return kinds[i] + number


def _chains(model: pm.Model, results: Mapping[str, object], block: int) -> dict[str, xr.Dataset]:
    """Return the posterior of each single chain by its name, the informed one first."""
    if "informed" not in results:
        raise ValueError(f"results lack the chain 'informed'; found {list(results)}.")
    chains = {}
    for name in sorted(results, key=lambda name: name != "informed"):
        posterior = posterior_for(model, results[name], f"results['{name}']")
        m = posterior.sizes["chain"]
        if name == "informed" and m > 1:
            raise ValueError(f"results['informed'] must hold one chain; found {m}.")
        chains |= {name if m == 1 else f"{name} {i + 1}": posterior.isel(chain=[i]) for i in range(m)}
    if len(chains) < 2:
        raise ValueError(
            "results must hold another chain to compare with the informed one; found one chain only, 'informed'."
        )
    lengths = {name: chain.sizes["draw"] for name, chain in chains.items()}
    if min(lengths.values()) < 2 * block or len(set(lengths.values())) > 1:
        raise ValueError(f"Chains must have equal lengths of at least two blocks of {block} draws; found {lengths}.")
    return chains


# The quantities that are compared


def _error(study: TeacherStudent) -> Callable[[xr.Dataset], xr.DataArray]:
    """Make the default test function: the mean squared difference from the teacher's function at the test points."""

    def mean_squared_error(space: xr.Dataset) -> xr.DataArray:
        squares = (space["output"] - study.f_test) ** 2
        return squares.mean([dim for dim in squares.dims if dim not in ("chain", "draw")])

    return mean_squared_error


def _evaluate(study: TeacherStudent, chains: dict[str, xr.Dataset], test_function: Callable, points: int):
    """Compute what the verdicts rest on, chain by chain.

    Parameters
    ----------
    study : TeacherStudent
        The study.
    chains : dict of str to xarray.Dataset
        The posterior of each chain.
    test_function : callable
        The test function, of a dataset like that of :func:`function_space`.
    points : int
        At how many test points to keep the outputs.

    Returns
    -------
    series : dict of str to array, (draw,)
        The test function of each chain.
    outputs : array, (chain, draw, point, ...)
        Outputs at the first points.
    scores : array, (chain, draw), or None
        The score, if all chains recorded it.
    """
    function = function_evaluator(study.model, study.X_test)
    size = max(1, NUMBERS // study.f_test.size)
    series, outputs, scores = {}, [], []
    for name, chain in chains.items():
        parts, seen = [], []
        for first in range(0, chain.sizes["draw"], size):
            space = function(chain.isel(draw=slice(first, first + size)))
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


# The verdicts


def _judge(series: dict[str, np.ndarray], outputs: np.ndarray, scores, block: int, sweeps: int) -> xr.Dataset:
    """Compare the chains by the rules, and gather what :func:`thermalisation` returns.

    Parameters
    ----------
    series, outputs, scores
        What :func:`_evaluate` returned.
    block : int
        How many draws a block has.
    sweeps : int
        How many sweeps a draw counts.

    Returns
    -------
    xarray.Dataset
    """
    names = list(series)
    for name, x in series.items():
        check_series(name, x, block)
    merges = [merge(series["informed"], series[name], block) for name in names[1:]]
    draws, k = outputs.shape[1], outputs.shape[1] // block
    judgement = xr.Dataset(
        {
            "series": (("chain", "draw"), np.stack(list(series.values()))),
            "verdict": ("start", [m.verdict for m in merges]),
            "merge_time": ("start", [sweeps * m.draw for m in merges]),
            "difference": ("start", [m.difference for m in merges]),
            "half_width": ("start", [m.half_width for m in merges]),
            "bound": ("start", [m.bound for m in merges]),
            "part": ("start", [m.part for m in merges]),
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
        judgement[name] = (("start", *dims), np.stack(pairs))
        if len(names) > 2:
            judgement[f"{name}_uninformed"] = (dims, blockwise_rhat(outputs[1:], block, rank=rank))
    judgement["rhat_time"] = ("start", [sweeps * when_close(rhat, block) for rhat in judgement["rhat"].values])
    if "rhat_uninformed" in judgement:
        judgement["rhat_time_uninformed"] = sweeps * when_close(judgement["rhat_uninformed"].values, block)
    if scores is not None:
        judgement["score"] = (("chain", "draw"), scores)
        times = [when_settled(x, stretch_of(x)._replace(mean=0.0), 1) for x in scores]
        judgement["score_time"] = ("chain", [sweeps * time for time in times])
    judgement.attrs["verdict"] = in_words(judgement)
    return judgement

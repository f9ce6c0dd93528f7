"""Where the chains of ``pmg.sample`` start: where PyMC or the user says, or where a sampler finds a better place."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pymc as pm
import pytensor
import rich.progress
from pymc.initial_point import make_initial_point_fns_per_chain

from pymc_gibbsnn.backends.threads import threads_of_blas
from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["find_starts", "points_of_chains"]

SEARCHES = 8  # how many chains look for a start of their own

Found = dict[str, np.ndarray]


def points_of_chains(model: pm.Model, initvals, seeds: Sequence[int]) -> list[dict[str, np.ndarray]]:
    """Return the point of value variables at which each chain starts."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        start = make_initial_point_fns_per_chain(model=model, overrides=initvals, jitter_rvs=set(), chains=len(seeds))
        points = [make(seed) for make, seed in zip(start, seeds, strict=True)]
    for point in points:
        for name, value in point.items():
            if not np.isfinite(value).all():
                raise ValueError(f"The initial value of '{name}' is not finite.")
    return points


def find_starts(
    transitions: Sequence[Transition], points: list[dict[str, np.ndarray]], seeds: Sequence[int], progressbar: bool
) -> tuple[list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Look for better places for chains to start, as transitions find them from the points where they would start.

    Of many chains with one such point, the first few look for a start, which the others take in turn.

    Parameters
    ----------
    transitions : sequence of Transition
        What moves the chains.
    points : list of dict of str to array
        The point of value variables at which each chain would start.
    seeds : sequence of int
        The seed of each chain.
    progressbar : bool
        Whether to show how many chains have their start.

    Returns
    -------
    points : list of dict of str to array
        Where the chains had better start.
    carries : dict of str to array, (chain, ...)
        Entries of the carry, by their names in the state of the program.
    """
    from pymc_gibbsnn.drivers.processes import first_says  # which imports JAX

    def search(i: int) -> Found:
        point, carries = points[i], {}
        for k, transition in enumerate(transitions):
            if transition.find:
                point, carry = transition.find(point, np.random.default_rng([seeds[i], 1]))
                carries |= {f"carry {k} {name}": x for name, x in carry.items()}
        return {f"value {name}": x for name, x in point.items()} | carries

    def look() -> bytes:
        def has_twin(i: int) -> bool:
            return i >= SEARCHES and all(np.array_equal(x, points[i - SEARCHES][name]) for name, x in points[i].items())

        searching = [i for i in range(len(points)) if not has_twin(i)]
        found = dict(zip(searching, _side_by_side(search, searching, progressbar), strict=True))
        for i in range(len(points)):
            found[i] = found[i] if i in found else found[i - SEARCHES]
        file = io.BytesIO()
        np.savez(file, **{f"{i} {name}": x for i, entries in found.items() for name, x in entries.items()})
        return file.getvalue()

    if not any(transition.find for transition in transitions):
        return points, {}
    found = np.load(io.BytesIO(first_says(look)))
    carries = [name.removeprefix("0 ") for name in found if name.startswith("0 carry ")]
    return (
        [{name: found[f"{i} value {name}"] for name in point} for i, point in enumerate(points)],
        {name: np.stack([found[f"{i} {name}"] for i in range(len(points))]) for name in carries},
    )


def _side_by_side(search: Callable[[int], Found], chains: Sequence[int], progressbar: bool) -> list[Found]:
    """Search for each chain, in as many threads as BLAS uses, and show how many chains have their start.

    An interrupt is raised at once; searches that have begun go on to their end, and nothing waits for them.
    """
    blas, most = threads_of_blas()
    threads = min(most, len(chains))
    columns = "{task.description}", "{task.completed} of {task.total}", rich.progress.TimeElapsedColumn()
    bar = rich.progress.Progress(*columns, disable=not progressbar, transient=True)
    shown = partial(bar.track, total=len(chains), description="Looking for starts of chains:")
    with bar, blas.limit(limits=most // threads):
        if threads == 1:
            return [search(i) for i in shown(chains)]
        pool = ThreadPoolExecutor(threads)
        try:
            return list(shown(pool.map(search, chains)))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

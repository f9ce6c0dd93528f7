"""Where the chains of ``pmg.sample`` start: where PyMC or the user says, or where a sampler finds a better place."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from ctypes import c_ulong, py_object, pythonapi
from threading import get_ident

import numpy as np
import pymc as pm
import pytensor
from pymc.initial_point import make_initial_point_fns_per_chain

from pymc_gibbsnn.backends.threads import blas, limited, threads_of_blas
from pymc_gibbsnn.drivers.processes import first_says
from pymc_gibbsnn.drivers.progress import Progress
from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["find_starts", "points_of_chains"]

SEARCHES = 8  # how many chains look for a start of their own
ENOUGH = 20_000  # numbers in a point, latents included, from which on searches are worth a thread each

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
    transitions: Sequence[Transition], points: list[dict[str, np.ndarray]], seeds: Sequence[int], progress: Progress
) -> tuple[list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Look for better places for chains to start, as transitions find them from the points where they would start.

    Of many chains with one such point, the first few look for a start, which the others take in turn. They look side by
    side, in as many threads as BLAS uses, unless points are so small that threads would only wait for each other.

    Parameters
    ----------
    transitions : sequence of Transition
        What moves the chains.
    points : list of dict of str to array
        The point of value variables at which each chain would start.
    seeds : sequence of int
        The seed of each chain.
    progress : Progress
        What is told of how many searches have ended.

    Returns
    -------
    points : list of dict of str to array
        Where the chains had better start.
    carries : dict of str to array, (chain, ...)
        Entries of the carry, by their names in the state of the program.
    """

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
        most = threads_of_blas()
        is_large = sum(x.size for x in points[0].values()) >= ENOUGH
        threads = min(most, len(searching)) if is_large else 1
        with limited(blas(), most // threads):
            starts = dict(zip(searching, _side_by_side(search, searching, threads, progress), strict=True))
        for i in range(len(points)):
            starts[i] = starts[i] if i in starts else starts[i - SEARCHES]
        file = io.BytesIO()
        np.savez(file, **{f"{i} {name}": x for i, entries in starts.items() for name, x in entries.items()})
        return file.getvalue()

    if not any(transition.find for transition in transitions):
        return points, {}
    arrays = np.load(io.BytesIO(first_says(look)))
    carries = [name.removeprefix("0 ") for name in arrays if name.startswith("0 carry ")]
    return (
        [{name: arrays[f"{i} value {name}"] for name in point} for i, point in enumerate(points)],
        {name: np.stack([arrays[f"{i} {name}"] for i in range(len(points))]) for name in carries},
    )


def _side_by_side(
    search: Callable[[int], Found], chains: Sequence[int], threads: int, progress: Progress
) -> list[Found]:
    """Search for each chain, in so many threads, and say how many searches have ended.

    Parameters
    ----------
    search : callable
        The search for the start of a chain, by its number.
    chains : sequence of int
        The numbers of the chains.
    threads : int
        In how many threads; with one, this thread searches for one after the other.
    progress : Progress
        What is told.

    Returns
    -------
    list of dict of str to array
        What the searches return.
    """
    running = set()

    def run(i: int) -> Found:
        running.add(get_ident())
        try:
            return search(i)
        finally:
            running.discard(get_ident())

    def say(ended: int) -> None:
        progress.say(f"Fitting starting points, {ended} of {len(chains)}")

    say(0)
    if threads == 1:
        starts = []
        for i in chains:
            starts.append(search(i))
            say(len(starts))
        return starts
    pool = ThreadPoolExecutor(threads)
    try:
        searches = [pool.submit(run, i) for i in chains]
        for ended, one in enumerate(as_completed(searches), start=1):
            one.result()
            say(ended)
        return [one.result() for one in searches]
    finally:  # after an interrupt, or an error of one search, others are left, which end here
        pool.shutdown(wait=False, cancel_futures=True)
        for thread in [*running]:
            pythonapi.PyThreadState_SetAsyncExc(c_ulong(thread), py_object(SystemExit))

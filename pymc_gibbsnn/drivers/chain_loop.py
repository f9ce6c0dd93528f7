"""The loop of ``pmg.sample``: calls of the program, one after another, and what is looked at between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from signal import SIGTERM

import numpy as np
from jax.errors import JaxRuntimeError
from pymc.sampling.parallel import Draw

from pymc_gibbsnn.drivers.interrupts import remembered, uninterrupted
from pymc_gibbsnn.drivers.plan import Plan, Schedule
from pymc_gibbsnn.drivers.processes import all_say, is_first, one_of_many
from pymc_gibbsnn.drivers.program import Program
from pymc_gibbsnn.drivers.progress import Progress
from pymc_gibbsnn.drivers.results import Draws, Memory
from pymc_gibbsnn.drivers.store import Store
from pymc_gibbsnn.drivers.thinning import SWEEPS

__all__ = ["WATCHED", "apart", "run_chains"]

WATCHED = "what automatic thinning watches"  # beside what is recorded, among the values that the program returns

LOST = (
    "Another process of this run has ended, or cannot be reached ({}). Start all processes again; with a store, the "
    "run goes on from its last checkpoint with resume=."
)
SECONDS_A_CALL = 1.0  # how long a call of the program takes; the progress bar and Ctrl-C are looked at between calls


def run_chains(plan: Plan, program: Program, results: Memory | Store, progress: Progress) -> None:
    """Let chains tune and draw, from where the results stand to the end of the schedule.

    Between calls of the program the results are where the chains are, so that both can be saved. An interrupt, or
    SIGTERM, waits for the end of a call, which takes about a second, or as long as a single draw.

    Parameters
    ----------
    plan : Plan
        What to do in all.
    program : Program
        The program, with its chains where the results stand.
    results : Memory or Store
        They receive the draws.
    progress : Progress
        The progress bar.

    Raises
    ------
    KeyboardInterrupt, SystemExit
        After an interrupt, or SIGTERM; what was drawn is in the results.
    FloatingPointError
        If a draw is not finite; those before it are in the results.
    """
    schedule, until = plan.schedule, plan.until
    if results.draws >= schedule.draws:
        return
    started = time.perf_counter() - results.seconds
    thinning = schedule.thinning
    can_go_on = True  # whether the chains are where the results are, and finite
    failed = None  # what has gone wrong in this process alone, so that all can stop at the same place

    def save() -> None:
        state = program.state() | thinning.state() if can_go_on else None
        results.save(state, time.perf_counter() - started)

    count = 1  # the first call is short, to learn how long it takes
    with remembered():
        program.compiled  # noqa: B018, before the loop, in which an interrupt would have to wait for it
    with uninterrupted(SIGTERM) as interrupts:
        try:
            while True:
                tunes = results.tuned < schedule.tune
                first, end = (results.tuned, schedule.tune) if tunes else (results.draws, schedule.draws)
                chooses = tunes and thinning.tune > 0
                count = min(count, program.capacity, (thinning.next_choice if chooses else end) - first)
                # The first process decides; what happens in any of them, all do at this place.
                came = max((1 + (number == SIGTERM) for number, _ in interrupts.came), default=0)
                said = all_say(
                    count=count, sweeps=thinning.sweeps, is_due=results.is_due, is_reached=until.is_reached,
                    came=came, failed=failed is not None,
                )  # fmt: skip
                count, thinning.sweeps = int(said["count"][0]), int(said["sweeps"][0])
                if said["failed"].any():
                    can_go_on = can_go_on and not one_of_many()
                    raise failed or RuntimeError("Another process of this run has stopped: see its error.")
                if said["came"].any():
                    interrupts()
                    if one_of_many():
                        raise SystemExit(128 + SIGTERM) if said["came"].max() == 2 else KeyboardInterrupt
                if said["is_reached"][0] or first == end:
                    break
                if said["is_due"][0]:
                    try:
                        save()
                    except OSError as error:
                        failed = error
                        continue
                before, can_go_on = time.perf_counter(), False
                sweeps = thinning.sweeps
                if tunes:
                    draws = program.run(count, sweeps=sweeps, first=first, tune=schedule.tune)
                else:
                    draws = program.run(count, sweeps=sweeps * schedule.thin, first=first, tune=0)
                finite, reason = _finite_draws(draws.stats, plan.advice)
                draws, watched = apart(draws.first(finite), sweeps)
                try:
                    if tunes:
                        results.tuned += finite
                        if chooses:
                            thinning.add(watched)
                    elif finite:
                        results.append(draws)
                        until.add(draws)
                    can_go_on = not reason
                    if finite:
                        progress.advance(finite, draws.stats)
                    if plan.callback and is_first():
                        _call_back(plan.callback, draws, first + (0 if tunes else schedule.tune), schedule)
                except BaseException as error:
                    failed = error
                if reason:
                    raise FloatingPointError(reason)
                seconds = max(time.perf_counter() - before, 1e-6)
                count = max(1, int(min(count * SECONDS_A_CALL / seconds, 10 * count) * sweeps / thinning.sweeps))
                if tunes and results.tuned == schedule.tune:
                    count = 1  # a draw may take longer than a tuning step
        except BaseException as error:
            is_lost = isinstance(error, JaxRuntimeError) and one_of_many()
            can_go_on = can_go_on and not is_lost
            if not isinstance(error, OSError):  # which may be that of a disk that is full
                save()
            if is_lost:
                raise RuntimeError(LOST.format(error)) from error
            raise
        save()


def apart(draws: Draws, sweeps: int) -> tuple[Draws, np.ndarray | None]:
    """Take what automatic thinning watches out of draws, and put their number of sweeps into the statistics.

    Returns
    -------
    draws : Draws
        The draws as they are recorded.
    watched : array, (draw, chain, number), or None
        What was watched, and the log density; None if the user said how many sweeps a draw has.
    """
    values, stats = draws
    lp = stats["lp"]
    watched = np.concatenate([values[WATCHED], lp[..., None]], axis=-1) if WATCHED in values else None
    values = {name: x for name, x in values.items() if name != WATCHED}
    return Draws(values, stats | {SWEEPS: np.full_like(lp, sweeps)}), watched


def _call_back(callback: Callable, draws: Draws, first: int, schedule: Schedule) -> None:
    """Call a function with some draws, one after the other.

    Parameters
    ----------
    callback : callable
        The function.
    draws : Draws
        The draws.
    first : int
        The number of the first of them, tuning steps included.
    schedule : Schedule
        How many there are in all.
    """
    for i, chain in np.ndindex(draws.stats["lp"].shape):
        number = first + i
        is_last = number + 1 == schedule.tune + schedule.draws
        point, stats = ({name: x[i, chain] for name, x in part.items()} for part in draws)
        callback(trace=None, draw=Draw(chain, is_last, number, number < schedule.tune, [stats], point))


def _finite_draws(stats: dict[str, np.ndarray], advice: str) -> tuple[int, str]:
    """Count the draws before the first one that is not finite, and say in words what is wrong with that one.

    The words are empty if all draws are finite. JAX does not stop at NaN, but goes on with it.
    """
    for name, series in stats.items():
        bad = ~np.isfinite(series)
        if bad.any():
            return int(bad.any(axis=1).argmax()), (
                f"{name} is not finite in chains {np.flatnonzero(bad.any(axis=0)).tolist()}: {advice}."
            )
    return len(next(iter(stats.values()))), ""

"""The loop of ``pmg.sample``: calls of the program, one after another, and what is looked at between them."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from pymc_gibbsnn.drivers.interrupts import uninterrupted
from pymc_gibbsnn.drivers.program import Program
from pymc_gibbsnn.drivers.progress import Progress
from pymc_gibbsnn.drivers.results import Draws, Memory
from pymc_gibbsnn.drivers.store import Store

__all__ = ["Schedule", "run_chains"]

SECONDS_A_CALL = 1.0  # how long a call of the program takes; the progress bar and Ctrl-C are looked at between calls


@dataclass(frozen=True)
class Schedule:
    """What each chain is to do.

    Attributes
    ----------
    tune, draws : int
        How many tuning steps it makes, and how many draws it records after them.
    sweeps, thin : int
        How many sweeps a tuning step has, and how many times as many a recorded draw.
    """

    tune: int
    draws: int
    sweeps: int
    thin: int


def run_chains(program: Program, schedule: Schedule, results: Memory | Store, progress: Progress, advice: str) -> None:
    """Let chains tune and draw, from where the results stand to the end of the schedule.

    Between calls of the program the results are where the chains are, so that both can be saved. An interrupt waits for
    the end of a call, which takes about a second, or as long as a single draw.

    Parameters
    ----------
    program : Program
        The program, with its chains where the results stand.
    schedule : Schedule
        What to do in all.
    results : Memory or Store
        They receive the draws.
    progress : Progress
        The progress bar.
    advice : str
        What an error says to do where a chain leaves the finite numbers.

    Raises
    ------
    KeyboardInterrupt
        After an interrupt; what was drawn is in the results.
    FloatingPointError
        If a draw is not finite; those before it are in the results.
    """
    if results.draws >= schedule.draws:
        return
    started = time.perf_counter() - results.seconds
    can_go_on = True  # whether the chains are where the results are, and finite

    def save() -> None:
        results.save(program.state() if can_go_on else None, time.perf_counter() - started)

    count = 1  # the first call is short, to learn how long it takes
    try:
        program.compiled  # noqa: B018, before the loop, in which an interrupt would have to wait for it
        while results.draws < schedule.draws:
            tunes = results.tuned < schedule.tune
            first, end = (results.tuned, schedule.tune) if tunes else (results.draws, schedule.draws)
            count = min(count, program.capacity, end - first)
            with uninterrupted():
                before, can_go_on = time.perf_counter(), False
                if tunes:
                    draws = program.run(count, schedule.sweeps, first, schedule.tune)
                else:
                    draws = program.run(count, schedule.sweeps * schedule.thin, first, 0)
                finite, reason = _finite_draws(draws, advice)
                if tunes:
                    results.tuned += finite
                elif finite:
                    results.append(tuple({name: x[:finite] for name, x in part.items()} for part in draws))
                if finite:
                    progress.advance(finite, draws[1])
                can_go_on = not reason
                if reason or results.is_due:
                    save()
                if reason:
                    raise FloatingPointError(reason)
            seconds = max(time.perf_counter() - before, 1e-6)
            count = max(1, int(min(count * SECONDS_A_CALL / seconds, 10 * count)))
            if tunes and results.tuned == schedule.tune:
                count = 1  # a draw may take longer than a tuning step
    except KeyboardInterrupt:
        with uninterrupted():
            save()
        raise
    with uninterrupted():
        save()


def _finite_draws(draws: Draws, advice: str) -> tuple[int, str]:
    """Count the draws before the first one that is not finite, and say in words what is wrong with that one.

    The words are empty if all draws are finite. JAX does not stop at NaN, but goes on with it.
    """
    stats = draws[1]
    for name, series in stats.items():
        bad = ~np.isfinite(series)
        if bad.any():
            return int(bad.any(axis=1).argmax()), (
                f"{name} is not finite in chains {np.flatnonzero(bad.any(axis=0)).tolist()}: {advice}."
            )
    return len(next(iter(stats.values()))), ""

"""Where the chains of ``pmg.sample`` start: where PyMC or the user says, or where a sampler finds a better place."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pymc as pm
import pytensor
from pymc.initial_point import make_initial_point_fns_per_chain

from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["find_starts", "points_of_chains"]

SEARCHES = 8  # how many chains look for a start of their own


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
    transitions: Sequence[Transition], points: list[dict[str, np.ndarray]], seeds: Sequence[int]
) -> tuple[list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Return where chains had better start, as transitions find it from the points at which they would start.

    Of many chains with one such point, the first few look for a start, which the others take in turn. Returned are the
    points, and entries of the carry as arrays (chain, ...) by their names in the state of the program.
    """
    from pymc_gibbsnn.drivers.processes import first_says  # which imports JAX

    def look() -> bytes:
        found: list[dict[str, np.ndarray]] = []
        for i, (point, seed) in enumerate(zip(points, seeds, strict=True)):
            twin = i - SEARCHES
            if twin >= 0 and all(np.array_equal(x, points[twin][name]) for name, x in point.items()):
                found.append(found[twin])
                continue
            carries = {}
            for k, transition in enumerate(transitions):
                if transition.find:
                    point, carry = transition.find(point, np.random.default_rng([seed, 1]))
                    carries |= {f"carry {k} {name}": x for name, x in carry.items()}
            found.append({f"value {name}": x for name, x in point.items()} | carries)
        file = io.BytesIO()
        np.savez(file, **{f"{i} {name}": x for i, entries in enumerate(found) for name, x in entries.items()})
        return file.getvalue()

    if not any(transition.find for transition in transitions):
        return points, {}
    found = np.load(io.BytesIO(first_says(look)))
    carries = [name.removeprefix("0 ") for name in found if name.startswith("0 carry ")]
    return (
        [{name: found[f"{i} value {name}"] for name in point} for i, point in enumerate(points)],
        {name: np.stack([found[f"{i} {name}"] for i in range(len(points))]) for name in carries},
    )

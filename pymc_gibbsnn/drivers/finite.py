"""How an error message says why a chain has reached numbers that are not finite."""

from __future__ import annotations

import numpy as np
import pymc as pm
from pymc.blocking import PointType

from pymc_gibbsnn.networks.forms import evaluate

__all__ = ["why_not_finite"]


def why_not_finite(model: pm.Model, point: PointType) -> str:
    """Say what is not finite at a point: values of variables or, if these are finite, terms of the log density.

    The result is empty if all is finite. The log density is compiled for this, which takes a second.
    """
    holes = {name: int((~np.isfinite(value)).sum()) for name, value in point.items()}
    if any(holes.values()):
        problems = [f"'{name}' holds {count} values that are NaN or infinite" for name, count in holes.items() if count]
        return f"{', '.join(problems)}."
    with np.errstate(all="ignore"):
        terms = model.point_logps(point, mode="FAST_COMPILE")
    problems = [f"that of '{name}' is {float(term)}" for name, term in terms.items() if not np.isfinite(term)]
    if not problems:
        return ""
    data = {rv.name: evaluate(model.rvs_to_values[rv]) for rv in model.observed_RVs}
    sizes = {name: np.abs(np.asarray(value, float)).max(initial=0) for name, value in (point | data).items()}
    largest = max(sizes, key=sizes.get)
    return (
        f"Of the terms of the log density, {', '.join(problems)}; the largest number, in '{largest}', is "
        f"{sizes[largest]:.2g}. Bring data and initial values to the order of one."
    )

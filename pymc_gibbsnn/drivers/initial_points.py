"""Starting values and points that a user gives are checked before PyMC computes with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import describe

__all__ = ["check_initvals", "check_point"]


def check_initvals(model: pm.Model, initvals: object, chains: int | None = None) -> None:
    """Refuse starting values that do not go with a model, before PyMC computes with them.

    Parameters
    ----------
    model : pm.Model
        The model.
    initvals : mapping, or sequence of mapping or None
        What the user gave to ``pm.sample`` or ``pmg.sample``: values by variable or name, the same for all chains or
        one mapping for each. Values that are no numbers, such as "prior", are left to PyMC.
    chains : int, optional
        How many chains there will be, if that is known.

    Raises
    ------
    TypeError
        If ``initvals`` is neither a mapping nor a sequence of mappings.
    ValueError
        If there are more or fewer mappings than chains, a name is not one of the model, a shape does not fit, or a
        value is not finite.
    """
    if initvals is None:
        return
    if isinstance(initvals, Mapping):
        initvals = [initvals]
    elif isinstance(initvals, str) or not isinstance(initvals, Sequence):
        raise TypeError(
            f"initvals must be a mapping of names to values, or a list of them; found {describe(initvals)}."
        )
    elif chains is not None and len(initvals) != chains:
        raise ValueError(
            f"initvals must be one mapping, or one for each of the {chains} chains; found {len(initvals)}."
        )
    known = {name: tuple(map(int, shape)) for name, shape in model.eval_rv_shapes().items()}
    for start in initvals:
        if start is not None and not isinstance(start, Mapping):
            raise TypeError(f"initvals must hold mappings of names to values; found {describe(start)} among them.")
        for key, value in (start or {}).items():
            name = getattr(key, "name", key)
            if name not in known:
                names = [rv.name for rv in model.free_RVs]
                raise ValueError(f"initvals names {name!r}, which is no free variable of the model; it has {names}.")
            if isinstance(value, str | Variable) or value is None:
                continue
            if np.shape(value) != known[name]:
                raise ValueError(
                    f"initvals['{name}'] must have the shape of '{name}', {known[name]}; found {np.shape(value)}."
                )
            holes = int((~np.isfinite(np.asarray(value, float))).sum())
            if holes:
                raise ValueError(f"initvals['{name}'] must be finite; found {holes} values that are NaN or infinite.")


def check_point(model: pm.Model, point: object) -> None:
    """Refuse a point of value variables that lacks some, or holds them in other shapes than the model."""
    if not isinstance(point, Mapping):
        raise TypeError(f"initial_point must be a dictionary of values by name; found {describe(point)}.")
    for name, expected in model.initial_point().items():
        if name not in point:
            raise ValueError(f"initial_point must hold a value of '{name}'; found {sorted(point)}.")
        if np.shape(point[name]) != np.shape(expected):
            raise ValueError(
                f"initial_point['{name}'] must have the shape {np.shape(expected)}; found {np.shape(point[name])}."
            )

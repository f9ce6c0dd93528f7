"""Draws of a variable, taken from a posterior that must be one of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from numbers import Real

import numpy as np
import pymc as pm
import xarray as xr

__all__ = ["draws_of"]


def draws_of(
    posterior: xr.Dataset, model: pm.Model, name: str, shape: tuple[int, ...], has_rows: bool = False
) -> np.ndarray:
    """Take a variable from a posterior, as an array (chain, draw, ...).

    Parameters
    ----------
    posterior : xarray.Dataset
        The posterior.
    model : pm.Model
        The model.
    name : str
        The name of the variable.
    shape : tuple of int
        Its shape in the model.
    has_rows : bool
        Whether its first axis runs over rows of the data, whose labels do not matter.

    Raises
    ------
    ValueError
        If the posterior lacks the variable, or has it in another shape, or with other coordinates, or these in another
        order, than the model, so that it is the posterior of another model.
    """
    if name not in posterior:
        raise ValueError(f"The posterior lacks '{name}': record it by naming it in var_names of pm.sample.")
    x = posterior[name].transpose("chain", "draw", ...)
    dims = model.named_vars_to_dims.get(name) or ()
    if {*dims} == {*x.dims[2:]}:
        x = x.transpose("chain", "draw", *dims)
    if x.shape[2:] != shape:
        raise ValueError(
            f"'{name}' has shape {x.shape[2:]} in the posterior, but {shape} in the model: they do not belong together."
        )
    for dim, axis in [*zip(dims, x.dims[2:], strict=False)][has_rows:]:
        if model.coords.get(dim) is not None and axis in x.coords:
            _check_coordinates(name, axis, model.coords[dim], x.coords[axis].values)
    return x.values


def _check_coordinates(name: str, axis: str, here: Sequence, there: Sequence) -> None:
    """Refuse a variable whose coordinates in the posterior are not those in the model.

    Names and numbers are compared, but no dates, which files write otherwise; and where one of the two only numbers
    what the other one names, they agree.

    Parameters
    ----------
    name, axis : str
        The variable, and the dimension of it.
    here, there : sequence
        The coordinates in the model, and those in the posterior.
    """
    both = [[*here], [*there]]
    if not all(isinstance(x, str | Real | np.bool_) for x in both[0] + both[1]):
        return
    kind = str if any(isinstance(x, str) for x in both[0] + both[1]) else np.float32
    known, recorded = ([kind(x) for x in coordinates] for coordinates in both)
    numbers = [kind(i) for i in range(len(known))]
    if known == recorded or (numbers in (known, recorded) and Counter(known) != Counter(recorded)):
        return
    first = next(i for i, pair in enumerate(zip(recorded, known, strict=True)) if pair[0] != pair[1])
    raise ValueError(
        f"'{name}' does not belong to this model: number {first + 1} of its coordinates along '{axis}' is "
        f"{there[first]} in the posterior, but {here[first]} in the model. Build the model from "
        f"the same columns, classes or groups, in the same order, as when the posterior was drawn."
    )

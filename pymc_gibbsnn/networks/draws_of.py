"""Draws of a variable, taken from a posterior that must be one of the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pymc as pm
import pytensor
import xarray as xr
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import describe

__all__ = ["draws_of", "shapes_of"]


def shapes_of(rvs: Sequence[Variable]) -> list[tuple[int, ...]]:
    """Compute the shapes that random variables have with the data that their model holds now."""
    shapes = pytensor.function([], [rv.shape for rv in rvs], mode="FAST_COMPILE")()
    return [tuple(map(int, shape)) for shape in shapes]


def draws_of(posterior: xr.Dataset, model: pm.Model, name: str, shape: tuple[int, ...]) -> np.ndarray:
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

    Raises
    ------
    ValueError
        If the posterior lacks the variable, or has it in another shape, or with other coordinates, or these in another
        order, than the model, so that it is the posterior of another model.
    """
    if name not in posterior:
        raise ValueError(
            f"The posterior lacks '{name}': record it by naming it in var_names of pm.sample. Predictions take nothing "
            f"from the prior."
        )
    x = posterior[name].transpose("chain", "draw", ...)
    dims = model.named_vars_to_dims.get(name) or ()
    if {*dims} == {*x.dims[2:]}:
        x = x.transpose("chain", "draw", *dims)
    if x.shape[2:] != shape:
        raise ValueError(
            f"'{name}' has shape {x.shape[2:]} in the posterior, but {shape} in the model: they do not belong together."
        )
    for dim, axis in zip(dims, x.dims[2:], strict=bool(dims)):
        if model.coords.get(dim) is None or axis not in x.coords:
            continue
        here, there = np.asarray(model.coords[dim]).tolist(), x.coords[axis].values.tolist()
        if _are_others(here, there):
            raise ValueError(
                f"'{name}' has the coordinates {describe(there)} along '{axis}' in the posterior, but {describe(here)} "
                f"in the model. Build the model from the same columns, classes or groups, in the same order, as when "
                f"the posterior was drawn."
            )
    return x.values


def _are_others(here: list, there: list) -> bool:
    """Whether coordinates differ in more than that one of them only numbers what the other one names."""
    here, there = [str(one) for one in here], [str(one) for one in there]
    numbers = [str(i) for i in range(len(here))]
    return here != there and (sorted(here) == sorted(there) or numbers not in (here, there))

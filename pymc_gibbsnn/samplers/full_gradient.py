r"""Gradients of batches with a control variate: g = ∇f(θ̂) + g(θ) − g(θ̂).

θ̂ is a fitted point, and ∇f(θ̂) is computed once in a chain, batch after batch. A gradient on a batch is linear in how
often each row occurs in it. So all rows are taken in batches of N_b, the last of which is filled up with copies of the
last row, and the copies are subtracted:

    N ∇f = N_b Σ_k g(rows of batch k) − (copies) g(last row, N_b times).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import describe
from pymc_gibbsnn._compat import ONCE
from pymc_gibbsnn._data import finite
from pymc_gibbsnn.targets.target import Target

__all__ = ["control_variate", "full_gradient"]


def control_variate(
    target: Target, point: Mapping[str, ArrayLike]
) -> tuple[Callable[[Target, list[Variable], dict, dict], tuple[Variable, list[Variable]]], dict[str, Variable]]:
    """Make a gradient on batches with a control variate at a point, given by the names of the target's variables.

    Returns
    -------
    gradient : callable
        As ``plain_gradient`` of :mod:`pymc_gibbsnn.samplers.stochastic_gradient`.
    carried : dict of str to Variable
        The point, and ∇ℓ there, which a chain carries.

    Raises
    ------
    TypeError
        If the point is no mapping.
    ValueError
        If there are no minibatches, or the point lacks a variable or has it in another shape.
    """
    if target.batches is None:
        raise ValueError("control_variates are for models that observe minibatches; this one gives exact gradients.")
    floatx = pytensor.config.floatX
    fitted = _point(target, point)
    fixed = {f"control_{name}": pt.constant(x.astype(floatx)) for name, x in fitted.items()}
    at_point = full_gradient(target, list(fixed.values()))
    slopes = {f"slope_at_{name}": -x for name, x in zip(fixed, at_point, strict=True)}

    def gradient_of_batch(target: Target, theta: list[Variable], data: dict, carry: dict):
        here = target.place(theta, data, with_gradient=True)
        there = target.place([carry[name] for name in fixed], data, with_gradient=True)
        exact = [carry[name] for name in slopes]
        # A control variate for ℓ would have the same form, but ℓ(θ̂) is not needed to sample.
        return here.log_likelihood, [
            full - mine + theirs for full, mine, theirs in zip(exact, here.gradient, there.gradient, strict=True)
        ]

    return gradient_of_batch, fixed | slopes


def full_gradient(target: Target, position: list[Variable]) -> list[Variable]:
    """Compute ∇ℓ at a place on all rows of the data, from gradients on batches."""
    size, rows = target.batches.size, target.batches.rows

    def gradient(index: Variable) -> list[Variable]:
        return target.place(position, target.constants | {"rows": index}, with_gradient=True).gradient

    rows = pt.cast(rows, "int64")
    count = (rows + size - 1) // size
    sums = pytensor.scan(
        lambda first: gradient(pt.minimum(first + np.arange(size), rows - 1)),
        sequences=[pt.arange(count) * size],
        return_updates=False,
        **ONCE,
    )
    sums = sums if isinstance(sums, list) else [sums]
    copies = gradient(pt.alloc(rows - 1, size))
    excess = count * size - rows
    return [(size * x.sum(axis=0) - excess * y) / rows for x, y in zip(sums, copies, strict=True)]


def _point(target: Target, point: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    """Check the values of the target's variables that a user gave, and return them by name."""
    if not isinstance(point, Mapping):
        raise TypeError(f"control_variates must be a dictionary of values by name; found {describe(point)}.")
    values = {}
    for variable, like in zip(target.variables, target.coordinates.values(), strict=True):
        if variable.name not in point:
            raise ValueError(f"control_variates must hold a value of '{variable.name}'; found {sorted(point)}.")
        value, shape = finite(f"control_variates['{variable.name}']", point[variable.name]), like.type.shape
        if value.shape != shape:
            raise ValueError(f"control_variates['{variable.name}'] must have the shape {shape}; found {value.shape}.")
        values[variable.name] = value
    return values

"""How the step methods that a user gives, one or several, are checked."""

from __future__ import annotations

from collections.abc import Sequence

import pymc as pm
from pymc.step_methods.compound import BlockedStep

from pymc_gibbsnn._arguments import describe
from pymc_gibbsnn.drivers.step import GraphStep

__all__ = ["steps_of"]


def steps_of(step: object, model: pm.Model, context: str = "with model:") -> list:
    """Return the steps that a user gave for a model as a list.

    Parameters
    ----------
    step : step method or sequence of step methods
        Steps of this package or of PyMC.
    model : pm.Model
        The model.
    context : str
        The ``with`` statement inside which a user makes a step for this model, for error messages.

    Returns
    -------
    list of step methods

    Raises
    ------
    TypeError
        If there is none, or a class stands where a step made by it is meant.
    ValueError
        If one of them was made for another model.
    """
    steps = list(step) if isinstance(step, Sequence) else [step]
    for one in steps or [None]:
        if isinstance(one, type):
            raise TypeError(f"step must be a step method; found {describe(one)}: write step={one.__name__}().")
        if not (isinstance(one, BlockedStep) or hasattr(one, "methods")):
            raise TypeError(
                f"step must be a step method, such as GibbsNN(), or a list of them; found {describe(step)}."
            )
        theirs = one.model is model if isinstance(one, GraphStep) else set(one.vars) <= set(model.value_vars)
        if not theirs:
            raise ValueError(
                f"step must be made for the model that is sampled; found a {type(one).__name__} of another model: "
                f"make it in '{context}'."
            )
    return steps

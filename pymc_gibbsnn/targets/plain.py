"""The posterior of continuous variables in the coordinates that PyMC gives them.

These coordinates are PyMC's value variables: a variable itself, or its transform, such as the logarithm of a variance.
"""

from __future__ import annotations

from collections.abc import Sequence

import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.targets.target import Data, Target, free_variables

__all__ = ["PlainTarget", "continuous_variables"]


class PlainTarget(Target):
    """The posterior of continuous variables as they are: ℓ is the log density of the whole model.

    Parameters
    ----------
    model : pm.Model
        The model.
    vars : sequence of Variable, optional
        Random or value variables to move; by default all free ones. The others are held where they are.
    total_size_needed : bool
        Whether to refuse a minibatch without ``total_size``, as :class:`~pymc_gibbsnn.targets.target.Target` explains.

    Raises
    ------
    ValueError
        If a variable is discrete or not free, or for a minibatch as :class:`~pymc_gibbsnn.targets.target.Target` says.
    """

    whitened = False

    def __init__(self, model: pm.Model, vars: Sequence[Variable] | None = None, *, total_size_needed: bool = True):
        self.variables = continuous_variables(model, vars)
        super().__init__(model, [model.logp()], total_size_needed)
        shapes, self.constants = model.eval_rv_shapes(), {}
        self.coordinates = {
            f"now_{v.name}": pt.zeros(shapes[v.name], dtype=pytensor.config.floatX) for v in self.variables
        }

    def locate(self, state: dict[Variable, Variable], data: Data) -> list[Variable]:
        """Return the values of the variables, which are the coordinates φ."""
        return [state[v] for v in self.variables]

    def replacements(self, position: list[Variable], data: Data) -> dict[Variable, Variable]:
        """Map each variable to its coordinate."""
        return dict(zip(self.variables, position, strict=True))

    def log_prior(self, position: list[Variable], data: Data) -> Variable:
        """Return 0, because ℓ already holds the prior."""
        return pt.zeros((), dtype=pytensor.config.floatX)

    def draw(self, rng: Variable, position: list[Variable], data: Data) -> tuple[Variable, dict[Variable, Variable]]:
        """Return the generator as it is, and the coordinates as the values of the variables: nothing is drawn."""
        return rng, dict(zip(self.variables, position, strict=True))


def continuous_variables(model: pm.Model, vars: Sequence[Variable] | None) -> list[Variable]:
    """Find the value variables that a user names, in the order of the model; by default those of all free variables.

    Raises
    ------
    ValueError
        If one of them is discrete or is no free variable of the model.
    """
    variables = [model.rvs_to_values[rv] for rv in free_variables(model, vars)]
    discrete = [v.name for v in variables if not v.dtype.startswith("float")]
    if discrete:
        raise ValueError(
            f"{discrete} are discrete, and this step moves continuous variables: name the others in vars=."
        )
    return variables

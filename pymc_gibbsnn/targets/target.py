"""What pCN, pCNL and MALA move: a density over coordinates of a model's variables.

The coordinates φ of a whitened target are standard normal a priori, and its density relative to it is exp(ℓ(φ)).
Where no prior is whitened, the coordinates are the variables themselves and ℓ is their log density.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

__all__ = ["Place", "Target"]


@dataclass(frozen=True, eq=False)
class Place:
    """A point φ, ℓ there, and ∇ℓ for the samplers that need it."""

    position: list[Variable]
    log_likelihood: Variable
    gradient: list[Variable]


@dataclass(frozen=True, eq=False)
class Target:
    """A density over coordinates φ, a list of arrays.

    Attributes
    ----------
    variables : list of Variable
        Value variables that the coordinates determine.
    coordinates : dict of str to Variable
        Arrays of the coordinates' shapes, by names of their own.
    constants : dict of str to Variable
        What of the data is computed once a chain; the functions below take its value in the carry.
    locate : callable
        ``locate(state, constants) -> φ`` of the variables as they are.
    log_likelihood : callable
        ``log_likelihood(φ, constants) -> ℓ``.
    gradient : callable
        ``gradient(φ, constants) -> (ℓ, ∇ℓ)`` for φ without a graph of their own.
    log_prior : callable
        ``log_prior(φ, constants)``, what the statistic ``lp`` holds beside ℓ.
    draw : callable
        ``draw(rng, φ, constants) -> (rng, state)``: the variables given φ; what φ leaves open is drawn from its exact
        conditional.
    whitened : bool
        Whether φ is standard normal a priori.
    """

    variables: list[Variable]
    coordinates: dict[str, Variable]
    constants: dict[str, Variable]
    locate: Callable
    log_likelihood: Callable
    gradient: Callable
    log_prior: Callable
    draw: Callable
    whitened: bool = True

    def place(self, position: list[Variable], constants: dict[str, Variable], with_gradient: bool) -> Place:
        """The place of a position."""
        if not with_gradient:
            return Place(position, self.log_likelihood(position, constants), [])
        # What has a graph is copied when it is put into another one: the derivative is by leaves.
        leaves = [x.type() for x in position]
        log_likelihood, slopes = self.gradient(leaves, constants)
        found = clone_replace([log_likelihood, *slopes], dict(zip(leaves, position, strict=True)), rebuild_strict=False)
        return Place(position, found[0], found[1:])

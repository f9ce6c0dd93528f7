"""What Metropolis, Langevin and stochastic-gradient samplers move: a density over coordinates of a model's variables.

The coordinates φ of a whitened target are standard normal a priori, and its density relative to it is exp(ℓ(φ)).
Where no prior is whitened, the coordinates are the variables themselves and ℓ is their log density.

A target carries its data. What it is made of is read off the model here, in one place, with the rows of the model's
minibatches as a free variable, so that ℓ cannot be computed without them: a sampler asks ``draw_data`` once a step for
the data of that step, a batch drawn from the generator of its chain, and hands them to all that it evaluates. Where
nothing is a minibatch these are all data, and nothing is drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import named_variables
from pymc_gibbsnn.networks.minibatch import check_minibatches, read_minibatches
from pymc_gibbsnn.networks.substitution import substitute

__all__ = ["Place", "Target", "free_variables"]

Data = dict[str, Variable]  # constants of a chain and rows of a batch, by name


@dataclass(frozen=True, eq=False)
class Place:
    """A point φ, ℓ there, and ∇ℓ for the samplers that need it."""

    position: list[Variable]
    log_likelihood: Variable
    gradient: list[Variable]


class Target(ABC):
    """A density over coordinates φ, a list of arrays.

    Parameters
    ----------
    model : pm.Model
    expressions : sequence of Variable
        All of which ℓ is made, in the model's value variables.
    total_size_needed : bool
        Refuse what observes a minibatch without ``total_size``: the batch would count as all the data there are.

    Attributes
    ----------
    expressions : list of Variable
        Those given, with the row numbers of a batch as a free variable where the model holds minibatches.
    batches : Batches or None
        The minibatches of the model.
    variables : list of Variable
        Value variables that the coordinates determine.
    coordinates : dict of str to Variable
        Arrays of the coordinates' shapes, by names of their own.
    constants : dict of str to Variable
        What of the data is computed once a chain; the methods below take its value within ``data``.
    whitened : bool
        Whether φ is standard normal a priori.

    Raises
    ------
    ValueError
        If inputs and targets are minibatches of different rows, if a prior depends on a minibatch, or if ``total_size``
        is missing or not positive; the message names the variable.
    """

    whitened = True
    variables: list[Variable]
    coordinates: dict[str, Variable]
    constants: dict[str, Variable]

    def __init__(self, model: pm.Model, expressions: Sequence[Variable], total_size_needed: bool = True):
        check_minibatches(model, total_size_needed)
        self.expressions, self.batches = read_minibatches(expressions)
        self.check()

    def check(self) -> None:
        """Refuse batches that do not fit the data as they are now; see :meth:`Batches.check`."""
        if self.batches is not None:
            self.batches.check()

    # The data of a step

    def start(self) -> dict[str, Variable]:
        """What a chain keeps of the data."""
        return self.constants | ({} if self.batches is None else self.batches.start())

    def constant_data(self, carry: dict[str, Variable]) -> Data:
        """The data that all steps of a chain share, from what it keeps: enough for all but ℓ on a minibatch."""
        return {name: carry[name] for name in self.constants}

    def draw_data(self, rng: Variable, carry: dict[str, Variable]) -> tuple[Variable, Data]:
        """(next rng, the data of one step): all there are, or a fresh batch of them."""
        data = self.constant_data(carry)
        if self.batches is not None:
            rng, data["rows"] = self.batches.draw(rng, carry)
        return rng, data

    # The density

    def at(self, position: list[Variable], data: Data) -> list[Variable]:
        """The target's expressions at φ, on the data of a step."""
        replacements = self.replacements(position, data)
        if self.batches is not None:
            replacements = replacements | {self.batches.index: data["rows"]}
        return substitute(self.expressions, replacements)

    def log_likelihood(self, position: list[Variable], data: Data) -> Variable:
        """ℓ at φ."""
        [found] = self.at(position, data)
        return found

    def gradient(self, position: list[Variable], data: Data) -> tuple[Variable, list[Variable]]:
        """(ℓ, ∇ℓ) at φ without a graph of its own."""
        found = self.log_likelihood(position, data)
        return found, pt.grad(found, position, disconnected_inputs="ignore")

    def place(self, position: list[Variable], data: Data, with_gradient: bool) -> Place:
        """φ, ℓ and, if asked for, ∇ℓ there."""
        if not with_gradient:
            return Place(position, self.log_likelihood(position, data), [])
        # The derivative is by leaves, which the graph of φ, random draws within, then takes the place of.
        leaves = [x.type() for x in position]
        log_likelihood, slopes = self.gradient(leaves, data)
        found = substitute([log_likelihood, *slopes], dict(zip(leaves, position, strict=True)))
        return Place(position, found[0], found[1:])

    # Between coordinates and variables

    @abstractmethod
    def locate(self, state: dict[Variable, Variable], data: Data) -> list[Variable]:
        """φ of the variables as they are."""

    @abstractmethod
    def replacements(self, position: list[Variable], data: Data) -> dict[Variable, Variable]:
        """What φ puts in the place of nodes of the expressions."""

    @abstractmethod
    def log_prior(self, position: list[Variable], data: Data) -> Variable:
        """What the statistic ``lp`` holds beside ℓ."""

    @abstractmethod
    def draw(self, rng: Variable, position: list[Variable], data: Data) -> tuple[Variable, dict[Variable, Variable]]:
        """(next rng, variables given φ); what φ leaves open is drawn from its exact conditional."""


def free_variables(model: pm.Model, vars: Sequence[Variable] | None) -> list[Variable]:
    """The free random variables that a user names, parents before children; all of them by default.

    Raises
    ------
    ValueError
        If one is no free variable of the model.
    """
    return named_variables(model, vars) or list(model.free_RVs)

"""Targets: the densities, over coordinates of a model's variables, that a sampler is to leave invariant.

A target has coordinates φ, a list of arrays. In a whitened target φ is standard normal a priori, and exp(ℓ(φ)) is the
density of the posterior relative to that prior. In a plain target the coordinates are the variables of the model, and
ℓ is the log density of the model itself.

A target carries its data. The expressions of which ℓ is made are read from the model here, in one place, with the row
numbers of the model's minibatches as a free variable, so that ℓ cannot be computed without choosing rows. Once in each
step a sampler calls ``draw_data`` for the data of that step, which are a fresh batch, drawn with the generator of its
chain, and passes them to all that it evaluates. Where the model holds no minibatch these are all data, and nothing is
drawn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn._arguments import named_variables
from pymc_gibbsnn.networks.given import checked_beforehand
from pymc_gibbsnn.networks.given_model import with_given_numbers
from pymc_gibbsnn.networks.minibatch import check_minibatches, read_minibatches
from pymc_gibbsnn.networks.notation import distribution_name
from pymc_gibbsnn.networks.substitution import substitute

__all__ = ["Place", "Target", "free_variables", "of_given_numbers"]

Data = dict[str, Variable]  # the constants of a chain and, under "rows", the row numbers of a batch


@dataclass(frozen=True, eq=False)
class Place:
    """A point φ (``position``), with ℓ there (``log_likelihood``) and, for samplers that need it, ∇ℓ (``gradient``)."""

    position: list[Variable]
    log_likelihood: Variable
    gradient: list[Variable]


class Target(ABC):
    """A density over coordinates φ, a list of arrays; the module describes it.

    A subclass sets ``variables``, ``coordinates`` and ``constants``, and says by four methods how φ and the variables
    of the model belong together.

    Parameters
    ----------
    model : pm.Model
        The model.
    expressions : sequence of Variable
        The expressions of which ℓ is made, in the model's value variables.
    total_size_needed : bool
        Whether to refuse an observed minibatch without ``total_size``, which would count as all the data there are.

    Attributes
    ----------
    expressions : list of Variable
        The expressions given, with the row numbers of a batch as a free variable where the model holds minibatches.
    batches : Batches or None
        The minibatches of the model.
    variables : list of Variable
        The value variables that the coordinates determine.
    coordinates : dict of str to Variable
        Arrays of the shapes of φ, by the names under which a chain carries φ.
    constants : dict of str to Variable
        What is computed from the data once in a chain, by name; the methods below find its values in ``data``.
    whitened : bool
        Whether φ is standard normal a priori.

    Raises
    ------
    ValueError
        If inputs and targets are minibatches of different rows, if a prior depends on a minibatch, or if ``total_size``
        is missing or not positive; the message names the variable. If the log density holds random draws.
    """

    whitened = True
    variables: list[Variable]
    coordinates: dict[str, Variable]
    constants: dict[str, Variable]

    def __init__(self, model: pm.Model, expressions: Sequence[Variable], total_size_needed: bool = True):
        check_minibatches(model, total_size_needed)
        self.expressions, self.batches = read_minibatches(checked_beforehand(expressions))
        _refuse_draws(self.expressions)
        self.check()

    def check(self) -> None:
        """Refuse batches that do not fit the data as they are now; see :meth:`Batches.check`."""
        if self.batches is not None:
            self.batches.check()

    # The data of a step

    def start(self) -> dict[str, Variable]:
        """Return what a chain keeps of the data: constants and, with minibatches, what draws them."""
        return self.constants | ({} if self.batches is None else self.batches.start())

    def constant_data(self, carry: dict[str, Variable]) -> Data:
        """Return the data that all steps of a chain share, from what it keeps: enough for all but ℓ on a minibatch."""
        return {name: carry[name] for name in self.constants}

    def draw_data(self, rng: Variable, carry: dict[str, Variable]) -> tuple[Variable, Data]:
        """Draw the data of one step, a fresh batch where there are minibatches; return the next generator and them."""
        data = self.constant_data(carry)
        if self.batches is not None:
            rng, data["rows"] = self.batches.draw(rng, carry)
        return rng, data

    # The density

    def at(self, position: list[Variable], data: Data) -> list[Variable]:
        """Write the target's expressions in terms of φ, on the data of a step."""
        replacements = self.replacements(position, data)
        if self.batches is not None:
            replacements = replacements | {self.batches.index: data["rows"]}
        return substitute(self.expressions, replacements)

    def log_likelihood(self, position: list[Variable], data: Data) -> Variable:
        """Compute ℓ at φ, on the data of a step."""
        [log_likelihood] = self.at(position, data)
        return log_likelihood

    def gradient(self, position: list[Variable], data: Data) -> tuple[Variable, list[Variable]]:
        """Compute ℓ and ∇ℓ at φ, which must be variables that are not computed from others."""
        log_likelihood = self.log_likelihood(position, data)
        return log_likelihood, pt.grad(log_likelihood, position, disconnected_inputs="ignore")

    def place(self, position: list[Variable], data: Data, with_gradient: bool) -> Place:
        """Compute ℓ and, if asked for, ∇ℓ at φ, which may be computed from other variables."""
        if not with_gradient:
            return Place(position, self.log_likelihood(position, data), [])
        # Differentiate by fresh variables, and then put φ, whose graph may hold random draws, in their place.
        leaves = [x.type() for x in position]
        log_likelihood, slopes = self.gradient(leaves, data)
        at_position = substitute([log_likelihood, *slopes], dict(zip(leaves, position, strict=True)))
        return Place(position, at_position[0], at_position[1:])

    # How coordinates and variables belong together

    @abstractmethod
    def locate(self, state: dict[Variable, Variable], data: Data) -> list[Variable]:
        """Compute the coordinates φ from the values of the variables in ``state``."""

    @abstractmethod
    def replacements(self, position: list[Variable], data: Data) -> dict[Variable, Variable]:
        """Say which nodes of the expressions are to be replaced, and by which functions of φ."""

    @abstractmethod
    def log_prior(self, position: list[Variable], data: Data) -> Variable:
        """Compute what is to be added to ℓ to give ``lp``, the log density that is reported."""

    @abstractmethod
    def draw(self, rng: Variable, position: list[Variable], data: Data) -> tuple[Variable, dict[Variable, Variable]]:
        """Compute the variables from φ, drawing what φ leaves open from its exact conditional distribution.

        It returns the next generator and the values of the variables.
        """


def _refuse_draws(expressions: Sequence[Variable]) -> None:
    """Refuse a log density that is a random number, as that of a simulator, or of copies of variables, is."""
    draws = [x.owner for x in ancestors(expressions) if x.owner and isinstance(x.owner.op, RandomVariable)]
    if draws:
        raise ValueError(
            f"The log density of the model holds a draw of {distribution_name(draws[0].op)}: it is no function of its "
            f"variables. A model with pm.Simulator is for pm.sample_smc. In a Potential, pm.logp of a distribution "
            f"made of others takes variables as model.replace_rvs_by_values gives them."
        )


def of_given_numbers(kind: type[Target], model: pm.Model, *args, **kwargs) -> Target:
    """Make a target of a model in which numbers are given, so that one program serves all models like it.

    A few distributions, such as ``pm.Interpolated``, and densities that users write look at their numbers while the
    density is derived. The target is then made of the model as it is written.

    Parameters
    ----------
    kind : type of Target
        What is made.
    model : pm.Model
        The model.
    *args, **kwargs
        Further arguments of the target.
    """
    try:
        return kind(with_given_numbers(model), *args, **kwargs)
    except Exception:  # an error of the model itself, or a refusal, comes again
        return kind(model, *args, **kwargs)


def free_variables(model: pm.Model, vars: Sequence[Variable] | None) -> list[Variable]:
    """Find the free random variables that a user names, parents before children; by default all of them.

    Raises
    ------
    ValueError
        If one of them is no free variable of the model.
    """
    return named_variables(model, vars) or list(model.free_RVs)

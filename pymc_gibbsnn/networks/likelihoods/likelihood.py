"""What all likelihoods have in common: how they are read, check data, and are written in a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn._data import check_finite, finite
from pymc_gibbsnn.networks.forms import NetworkError, evaluate
from pymc_gibbsnn.networks.layers import Operator

__all__ = ["Likelihood", "Parameters", "integers"]


class Parameters(Protocol):
    """An object that turns parameters of random variables into expressions of data and value variables."""

    def noise(self, sigma: Variable, rv: Variable) -> Variable:
        """Turn the standard deviation ``sigma`` of a random variable into its variance, one number that is checked."""

    def noise_of_data(self, sigma: Variable, rv: Variable) -> tuple[Variable, Variable | None]:
        """Turn the standard deviation of data into a variance, one number, and factors of its root, if they differ."""

    def value(self, parameter: Variable) -> Variable:
        """Turn any other parameter into such an expression."""


@dataclass(frozen=True, eq=False)
class Likelihood(ABC):
    """The distribution of data y given the output f of a network, with one row of each for every sample.

    A kind of likelihood is a subclass of
    :class:`~pymc_gibbsnn.networks.likelihoods.classical_likelihood.ClassicalLikelihood` or
    :class:`~pymc_gibbsnn.networks.likelihoods.latent_likelihood.LatentLikelihood`, in a file of its own, and an entry
    in a table of :mod:`pymc_gibbsnn.networks.likelihoods`. It needs ``rv_type``, ``form`` and what is abstract; all
    else has a default. Other parameters of the likelihood, such as a variance, are fields of the subclass: expressions
    of the model's data and value variables.

    Parameters
    ----------
    name : str
        The name of the observed variable.
    value : Variable, (n,) or (n, k)
        The data y.
    """

    rv_type: ClassVar[type[RandomVariable]]
    """The type of random variable from which it is read."""
    form: ClassVar[str]
    """How a user writes it, for error messages."""
    is_discrete: ClassVar[bool] = True
    """Whether y are whole numbers."""
    has_classes: ClassVar[bool] = False
    """Whether y are labels of classes."""
    is_deterministic: ClassVar[bool] = False
    """Whether y is a function of f, as the labels argmax f are; it then has :attr:`integrated_probabilities`."""
    arguments: ClassVar[tuple[str, ...]] = ()
    """What :meth:`observe` needs beside the noise, by the names that :func:`pymc_gibbsnn.mlp` has for it."""
    integrated_probabilities: ClassVar[Callable]
    """``integrated_probabilities(mean, sigma)``: those of classes with f ~ Normal(mean, sigma) integrated out."""

    name: str
    value: Variable

    @classmethod
    def matches(cls, node: Apply) -> bool:
        """Whether a node of the graph draws random variables of this kind."""
        return isinstance(node.op, cls.rv_type)

    @classmethod
    @abstractmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read a random variable of this type: find the output f of the network and the fields of the subclass.

        Parameters
        ----------
        node : Apply
            The node of the graph that draws the random variable, inside any minibatch.
        observed : Variable
            The observed variable.
        parameters : Parameters
            What turns the other parameters of the random variable into expressions.

        Returns
        -------
        f : Variable
        fields : dict of str to Variable
            The fields of the subclass by name.

        Raises
        ------
        NetworkError
            If the output of the network enters the likelihood in another way than ``form`` says.
        """

    @classmethod
    def centre(cls, node: Apply) -> Variable:
        """Return the value, without noise, that a random variable of this type takes given inputs and weights."""
        return node.op.dist_params(node)[0]

    def with_parts(self, change: Callable[[list[Variable]], list[Variable]]) -> Likelihood:
        """Return the likelihood with its data and its other expressions changed by a function of all of them."""
        names = [f.name for f in fields(self) if f.name != "name" and getattr(self, f.name) is not None]
        return replace(self, **dict(zip(names, change([getattr(self, name) for name in names]), strict=True)))

    # The data

    def row_shapes(self, layer: Operator) -> list[tuple[int, ...]]:
        """Return the shapes that a row of y may have, given the last layer."""
        return layer.row_shapes

    def largest(self, width: int) -> ArrayLike:
        """Return the largest value that discrete data can take, for an output of ``width`` units."""
        return np.inf

    def check(self, x: np.ndarray, layer: Operator) -> None:
        """Refuse data that are not finite or not possible here, or that do not fit inputs x or the last layer.

        Raises
        ------
        NetworkError
            Names the variable and what was found in it.
        """
        y, rows = evaluate(self.value), self.row_shapes(layer)
        check_finite(f"the data of '{self.name}'", y, NetworkError)
        if len(x) != len(y) or y.shape[1:] not in rows:
            raise NetworkError(
                f"the data of '{self.name}' has shape {y.shape}, but the network predicts {(len(x), *rows[0])} from "
                f"the input data of shape {x.shape}."
            )
        if self.is_discrete:
            largest = self.largest(layer.shape[0])
            wrong = y[(y < 0) | (y > largest) | (y != np.floor(y))]
            if wrong.size:
                raise NetworkError(
                    f"the data of '{self.name}' must hold {self._understood(largest)}; found {np.unique(wrong)[:5]}."
                )

    @classmethod
    def _understood(cls, largest: ArrayLike) -> str:
        """Say in words what the data must be."""
        return f"labels, integers from 0 to {largest}" if cls.has_classes else "integers from 0 up"

    # Labels of classes

    @staticmethod
    def classes(*parameters: np.ndarray) -> int:
        """Return the number of classes, for labels whose random variable has these parameters."""
        return 2

    @classmethod
    def probabilities(cls, y: np.ndarray, *parameters: np.ndarray) -> np.ndarray:
        """Compute the probabilities of classes (..., classes).

        Parameters
        ----------
        y : array
            Draws of labels; a likelihood that fixes them gives their class the probability 1.
        *parameters : array
            The parameters of the random variable of which the labels are draws.

        Returns
        -------
        array
        """
        raise NotImplementedError

    # How a model is written in one call

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Check data that a user gives for a model to observe; return them and the names of their classes, if any.

        Raises
        ------
        ValueError
            If this likelihood cannot give such data.
        """
        return integers(y), None

    @staticmethod
    def width(y: np.ndarray, classes: np.ndarray | None) -> int | None:
        """Return the number of outputs for data y with these classes; None for a single one without its own axis."""
        return None if y.ndim == 1 else y.shape[1]

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe data in the model of the context.

        Parameters
        ----------
        name : str
            The name of the observed variable.
        f : Variable
            The output of the network.
        parameters : dict of str
            The "noise", and the :attr:`arguments`.
        **observed
            Arguments of the distribution: ``observed`` and, say, ``dims`` or ``total_size``.

        Returns
        -------
        Variable
        """
        raise NotImplementedError


def integers(y: ArrayLike, name: str = "y") -> np.ndarray:
    """Return data as an array of whole numbers from 0 up; raise ValueError if they hold anything else."""
    y = finite(name, y)
    wrong = y[(y < 0) | (y != np.floor(y))]
    if wrong.size:
        raise ValueError(f"{name} must hold whole numbers from 0 up; found {np.unique(wrong)[:5]}.")
    return y.astype("int64")

"""What every likelihood answers, whoever asks: the readers, the samplers, and those who write models and predict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn._arguments import check_finite, finite
from pymc_gibbsnn.networks.forms import NetworkError, evaluate
from pymc_gibbsnn.networks.layers.dense import Dense

__all__ = ["LabelLikelihood", "Likelihood", "Parameters", "integers"]


class Parameters(Protocol):
    """What makes parameters of random variables expressions of data and of the model's value variables."""

    def noise(self, sigma: Variable, rv: Variable) -> Variable:
        """The variance of a random variable, of which ``sigma`` is the standard deviation: one number, checked."""

    def value(self, parameter: Variable) -> Variable:
        """Any parameter."""


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The law of data y given the output f of a network, one row of each for every sample.

    A kind of likelihood is a subclass in a file of its own, and an entry in one of the lists of
    :mod:`pymc_gibbsnn.networks.likelihoods`. What a law has beside its output, a variance say, are fields of the
    subclass: expressions of the model's data and value variables.

    Attributes
    ----------
    name : str
        Name of the observed variable.
    value : Variable
        The data y.
    """

    rv_type: ClassVar[type[RandomVariable]]
    """The type of random variable that it is read from."""
    form: ClassVar[str]
    """How it is written, for messages."""
    is_discrete: ClassVar[bool] = True
    """Whether y are whole numbers."""
    has_classes: ClassVar[bool] = False
    """Whether y are labels of classes."""
    kernel: ClassVar[Callable]
    """``kernel(z, y, scratch)``: :meth:`log_density` as a function that Numba compiles, ``scratch`` being (2, n)."""

    name: str
    value: Variable

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """The output f, and the fields of the subclass by name, of a random variable of this type.

        Parameters
        ----------
        node : Apply
            The random variable's own node, without its minibatch.
        observed : Variable
            The observed variable.
        parameters : Parameters
            Called on what else the random variable depends on.

        Raises
        ------
        NetworkError
            If the output enters it in another way than ``form`` says.
        """
        raise NotImplementedError

    @classmethod
    def centre(cls, node: Apply) -> Variable:
        """What of a random variable of this type is a function of inputs and weights without noise."""
        return node.op.dist_params(node)[0]

    def with_parts(self, change: Callable[[list[Variable]], list[Variable]]) -> Likelihood:
        """The likelihood with its data and its other expressions changed, all at once."""
        names = [f.name for f in fields(self) if f.name != "name"]
        return replace(self, **dict(zip(names, change([getattr(self, name) for name in names]), strict=True)))

    # Its data

    def row_shapes(self, layer: Dense) -> list[tuple[int, ...]]:
        """What a row of y may look like, given the last layer."""
        return layer.row_shapes

    def largest(self, width: int) -> ArrayLike:
        """The largest value that discrete data can take, for an output of that many units."""
        return np.inf

    def check(self, x: np.ndarray, layer: Dense) -> None:
        """Refuse data that are not finite, are not of this law, or do not fit inputs x or the last layer.

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

    @staticmethod
    def _understood(largest: ArrayLike) -> str:
        return "integers from 0 up"

    # Its density and what it predicts

    @staticmethod
    def log_density(z: Any, y: Any, xp: Any) -> Any:
        """Σ log p(y | z) over all data, times :attr:`dispersion`, but for :attr:`constant`.

        Parameters
        ----------
        z : array (units, n)
            The output, unit by unit.
        y : array
            :attr:`data`, transposed.
        xp : module
            ``numpy`` or ``jax.numpy``.
        """
        raise NotImplementedError

    @property
    def data(self) -> Variable:
        """The data as :meth:`log_density` takes them, before they are transposed: real numbers, (n, units)."""
        y = pt.cast(self.value, pytensor.config.floatX)
        return y[:, None] if y.ndim == 1 else y

    @property
    def dispersion(self) -> Variable:
        """By what the log density is divided."""
        return pt.constant(np.asarray(1.0, pytensor.config.floatX))

    @property
    def constant(self) -> Variable:
        """What of Σ log p(y | f) does not depend on the output f."""
        return pt.constant(np.asarray(0.0, pytensor.config.floatX))

    @staticmethod
    def classes(*parameters: np.ndarray) -> int:
        """The number of classes of labels with these parameters of their random variable."""
        return 2

    @classmethod
    def probabilities(cls, y: np.ndarray, *parameters: np.ndarray) -> np.ndarray:
        """Probabilities of classes (..., classes).

        Parameters
        ----------
        y : array
            Draws of labels, from which those are counted whose law is not known.
        *parameters : array
            Those of the random variable that the labels are draws of.
        """
        raise NotImplementedError

    # Models that are written in one call

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Data that a user gives for a model to observe, and the names of their classes, if they have any.

        Raises
        ------
        ValueError
            If they are no data of this law.
        """
        return integers(y), None

    @staticmethod
    def width(y: np.ndarray, classes: np.ndarray | None) -> int | None:
        """The number of outputs for targets y with these classes; None for a single one without an axis of its own."""
        return None if y.ndim == 1 else y.shape[1]

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe data in the model of the context; ``parameters`` are those that the builder of models takes."""
        raise NotImplementedError


class LabelLikelihood(Likelihood):
    """Labels that are a function of the last noisy pre-activation Z of a network."""

    has_classes = True
    least_ndim: ClassVar[int] = 1
    """The number of axes that Z has at least."""

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """The latent Z of which they are labels."""
        return node.op.dist_params(node)[0], {}

    @staticmethod
    def _understood(largest: ArrayLike) -> str:
        return f"labels, integers from 0 to {largest}"

    @classmethod
    def probabilities(cls, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        """1 of the label of Z, 0 of the others."""
        return (y[..., None] == np.arange(cls.classes(z))).astype(float)

    @staticmethod
    def label(z: np.ndarray) -> np.ndarray:
        """The labels of latents (..., units)."""
        raise NotImplementedError

    def agreeing(self, z: np.ndarray) -> np.ndarray:
        """Latents with their entries reordered, or their signs changed, so that they agree with the labels."""
        raise NotImplementedError

    def draw_latent(self, rng: Variable, z: Variable, m: Variable, noise: Variable) -> tuple[Variable, Variable]:
        """(rng, Z) given the labels.

        Parameters
        ----------
        rng : Variable
        z : matrix (n, units)
            The current Z.
        m : matrix (n, units)
            Its mean M, given the layers below.
        noise : scalar
            Its variance ΔZ.
        """
        raise NotImplementedError


def integers(y: ArrayLike) -> np.ndarray:
    """Whole numbers from 0 up, one or several for each row, refused if they are anything else."""
    y = finite("y", y)
    wrong = y[(y < 0) | (y != np.floor(y))]
    if wrong.size:
        raise ValueError(f"y must hold whole numbers from 0 up; found {np.unique(wrong)[:5]}.")
    return y.astype("int64")

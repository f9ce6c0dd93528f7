"""The base class of likelihoods: all that readers, samplers, builders of models and predictions ask of one."""

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

from pymc_gibbsnn._data import check_finite, finite
from pymc_gibbsnn.networks.forms import NetworkError, evaluate
from pymc_gibbsnn.networks.layers.dense import Dense

__all__ = ["LabelLikelihood", "LatentLikelihood", "Likelihood", "Parameters", "integers"]


class Parameters(Protocol):
    """An object that turns parameters of random variables into expressions of data and value variables."""

    def noise(self, sigma: Variable, rv: Variable) -> Variable:
        """Turn the standard deviation ``sigma`` of a random variable into its variance, one number that is checked."""

    def noise_of_data(self, sigma: Variable, rv: Variable) -> tuple[Variable, Variable | None]:
        """Turn the standard deviation of data into a variance, one number, and factors of its root, if they differ."""

    def value(self, parameter: Variable) -> Variable:
        """Turn any other parameter into such an expression."""


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The distribution of data y given the output f of a network, with one row of each for every sample.

    A kind of likelihood is a subclass in a file of its own, and an entry in one of the lists of
    :mod:`pymc_gibbsnn.networks.likelihoods`. Other parameters of the likelihood, such as a variance, are fields of the
    subclass: expressions of the model's data and value variables.

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
    kernel: ClassVar[Callable]
    """``kernel(z, y, scratch)``: :meth:`log_density` for Numba, which overwrites the array ``scratch`` (2, n)."""

    name: str
    value: Variable

    @classmethod
    def matches(cls, node: Apply) -> bool:
        """Whether a node of the graph draws random variables of this kind."""
        return isinstance(node.op, cls.rv_type)

    @classmethod
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
        raise NotImplementedError

    @classmethod
    def centre(cls, node: Apply) -> Variable:
        """Return the value, without noise, that a random variable of this type takes given inputs and weights."""
        return node.op.dist_params(node)[0]

    def with_parts(self, change: Callable[[list[Variable]], list[Variable]]) -> Likelihood:
        """Return the likelihood with its data and its other expressions changed by a function of all of them."""
        names = [f.name for f in fields(self) if f.name != "name" and getattr(self, f.name) is not None]
        return replace(self, **dict(zip(names, change([getattr(self, name) for name in names]), strict=True)))

    # The data

    def row_shapes(self, layer: Dense) -> list[tuple[int, ...]]:
        """Return the shapes that a row of y may have, given the last layer."""
        return layer.row_shapes

    def largest(self, width: int) -> ArrayLike:
        """Return the largest value that discrete data can take, for an output of ``width`` units."""
        return np.inf

    def check(self, x: np.ndarray, layer: Dense) -> None:
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

    # The log density, and what the likelihood predicts

    @staticmethod
    def log_density(z: Any, y: Any, xp: Any) -> Any:
        """Compute the log density that samplers need: dispersion · (Σ log p(y | z) − constant).

        :attr:`dispersion` and :attr:`constant` do not depend on the output z of the network.

        Parameters
        ----------
        z : array, (units, n)
            The output, with units first.
        y : array
            :attr:`data`, transposed.
        xp : module
            ``numpy`` or ``jax.numpy``.

        Returns
        -------
        array, ()
        """
        raise NotImplementedError

    @property
    def data(self) -> Variable:
        """The data as :meth:`log_density` takes them, before they are transposed: real numbers, (n, units)."""
        y = pt.cast(self.value, pytensor.config.floatX)
        return y[:, None] if y.ndim == 1 else y

    @property
    def dispersion(self) -> Variable:
        """The number by which :meth:`log_density` is to be divided: the variance of a normal distribution, else 1."""
        return pt.constant(np.asarray(1.0, pytensor.config.floatX))

    @property
    def constant(self) -> Variable:
        """The part of Σ log p(y | f) that does not depend on the output f."""
        return pt.constant(np.asarray(0.0, pytensor.config.floatX))

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

    # What is needed to write a model in one call

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
            Arguments of :func:`pymc_gibbsnn.classical_mlp` that a likelihood may need: "noise" and "trials".
        **observed
            Arguments of the distribution: ``observed`` and, say, ``dims`` or ``total_size``.

        Returns
        -------
        Variable
        """
        raise NotImplementedError


class LatentLikelihood(Likelihood):
    """Data y that a noisy network gives through its last pre-activations Z (n, units), which are latents."""

    least_ndim: ClassVar[int] = 1
    """The smallest number of axes that Z may have in the model."""
    is_integrable: ClassVar[bool] = True
    """Whether :meth:`log_probability` is exact, not an estimate by a draw."""
    noise: Variable | None = None
    """The variance of the noise that y has beside that of Z, or None if y is a function of Z."""

    @property
    def output(self) -> Variable:
        """The data, as the variable that has the noise."""
        return self.value

    @staticmethod
    def label(z: np.ndarray) -> np.ndarray:
        """Compute the data without noise, such as labels, of latents Z (..., units)."""
        raise NotImplementedError

    @staticmethod
    def log_probability(
        mean: np.ndarray,
        sigma: np.ndarray,
        y: np.ndarray,
        rng: np.random.Generator,
        parameters: list[np.ndarray],
    ) -> np.ndarray:
        """Compute the log density of data, with their latent Z ~ Normal(mean, sigma) integrated out.

        Parameters
        ----------
        mean : array (draw, row, ...)
            One mean of Z for each draw of the posterior.
        sigma : array
            Its standard deviation, which broadcasts to the shape of the mean.
        y : array (row, ...)
            The data.
        rng : numpy.random.Generator
            For what has no closed form.
        parameters : list of array
            The parameters of the random variable of the data, each with axes that broadcast to the shape of the mean;
            that which is Z is not to be used.

        Returns
        -------
        array (draw, row, ...)
        """
        raise NotImplementedError

    def agreeing(self, z: np.ndarray) -> np.ndarray:
        """Return latents Z with their entries reordered, or their signs changed, so that data such as labels can be."""
        return z

    def log_density_given(self, z: Variable) -> Variable | None:
        """Compute Σ log p(y | Z) for the rows of Z (n, units); None if y is a function of Z."""
        return None

    def draw_latent(
        self, rng: Variable, z: Variable, m: Variable, noise: Variable
    ) -> tuple[Variable, Variable, Variable | None]:
        """Draw Z given the data, or move it by a transition that leaves its distribution given the data invariant.

        Parameters
        ----------
        rng : Variable
            The random generator.
        z : Variable, (n, units)
            The current Z.
        m : Variable, (n, units)
            The mean of Z, given the layers below.
        noise : Variable, ()
            The variance ΔZ of its noise.

        Returns
        -------
        rng, z : Variable
        squares : Variable, () or None
            The sum of the squared noises of y beside that of Z, of which each has the variance :attr:`noise`; None if y
            has no such noise.
        """
        raise NotImplementedError


class LabelLikelihood(LatentLikelihood):
    """Class labels that are a function of the last noisy pre-activations Z (n, units) of a network."""

    has_classes = True

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read the latent Z of which the data are labels."""
        return node.op.dist_params(node)[0], {}

    @staticmethod
    def integrated_probabilities(mean: np.ndarray, sigma: np.ndarray) -> np.ndarray:
        """Compute the probabilities of classes with their latent Z ~ Normal(mean, sigma) integrated out.

        Parameters
        ----------
        mean : array (..., units)
            The mean of Z.
        sigma : array
            Its standard deviation, which broadcasts to the shape of the mean.

        Returns
        -------
        array (..., classes)
        """
        raise NotImplementedError

    @classmethod
    def logistic_probabilities(cls, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Compute the probabilities of classes by the rule of :meth:`logistic_log_probability`, with NumPy.

        Parameters
        ----------
        mean : array (..., units)
            The latents without noise.
        variance : array
            The variance of the noise of each latent, which broadcasts to the shape of the mean.

        Returns
        -------
        array (..., units)
            One for each class or, for labels of two classes by the sign of a latent, that of class 1.
        """
        raise NotImplementedError

    @classmethod
    def logistic_log_probability(cls, mean: Variable, variance: Variable, y: np.ndarray) -> Variable:
        """Compute Σ log p(y | mean) as if noise made differences of the latents, or the only latent, logistic.

        This is smooth, quick, and close to the probability under normal noise of the same variance. It is written with
        operations that NumPy has for arrays, since it is not compiled.

        Parameters
        ----------
        mean : Variable (n, units)
            The latents without noise.
        variance : Variable ()
            The variance of the noise of each latent.
        y : array
            The labels.

        Returns
        -------
        Variable ()
        """
        raise NotImplementedError

    def log_probability_of_means(self, mean: Variable, noise: Variable, variance: Variable) -> Variable:
        """Compute Σ log p(y | mean, noises) with the noise of the latent of each label integrated out.

        Parameters
        ----------
        mean, noise : Variable, (n, units)
            The mean of Z and its noise; that of the latents that are integrated out is not used.
        variance : Variable, ()
            The variance of the noise.

        Returns
        -------
        Variable, ()
        """
        raise NotImplementedError

    @classmethod
    def probabilities(cls, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        """Return 1 for the label of Z and 0 for the other classes."""
        return (y[..., None] == np.arange(cls.classes(z))).astype(float)


def integers(y: ArrayLike) -> np.ndarray:
    """Return data as an array of whole numbers from 0 up; raise ValueError if they hold anything else."""
    y = finite("y", y)
    wrong = y[(y < 0) | (y != np.floor(y))]
    if wrong.size:
        raise ValueError(f"y must hold whole numbers from 0 up; found {np.unique(wrong)[:5]}.")
    return y.astype("int64")

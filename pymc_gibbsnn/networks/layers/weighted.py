r"""What dense layers and convolutions share: weights and biases with Normal priors, as one matrix W̃ = [W, b] (c, d).

There is a row for each of c *units*, which are the columns of a dense layer's output, and the channels of a
convolution's; d is the number of a unit's weights, bias included.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.given import given, is_given, sizes
from pymc_gibbsnn.networks.layers.operator import Array, Linear, Operator

__all__ = ["Weighted", "library", "precisions", "times"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Weighted(Operator):
    """A layer with weights, seen as one matrix W̃; a kind says how they are written and how they act on activations.

    Parameters
    ----------
    weights, bias : Variable
        The value variables of W and b, in the shapes that the user gave them; the bias is None if there is none.
    precision : Variable, (1 or c, d)
        The prior precisions Λ of W̃, in one row if all units have the same prior.
    factor, bias_factor : float
        Numbers by which the model multiplies weights and bias, as networks in NTK form do: with f W and f' b in the
        model, W̃ = [f W, f' b], with the precision of that.
    """

    weights: Variable
    bias: Variable | None
    precision: Variable
    factor: float = 1.0
    bias_factor: float = 1.0

    # How it is read

    @classmethod
    @abstractmethod
    def read(
        cls,
        term: Linear,
        name: str,
        *,
        shape: tuple[int, ...],
        sigma: Variable,
        bias_sigma: Variable | None,
        **values: Any,
    ) -> Weighted:
        """Make the layer of a term that ``match`` recognised.

        Parameters
        ----------
        term : Linear
            The term.
        name : str
            The name of the variable in whose mean it stands.
        shape : tuple of int
            The shape of the weights in the model.
        sigma, bias_sigma : Variable
            The standard deviations of W and b, which broadcast to their shapes in the model, times their factors; the
            latter is None without a bias.
        **values
            Weights, bias and their factors, as the class takes them.
        """

    @staticmethod
    @abstractmethod
    def is_along_units(term: Variable) -> bool:
        """Whether a term of a mean may be a bias: it lies along the units, and is the same for all else."""

    @staticmethod
    @abstractmethod
    def bias_shapes(how: Any, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """List the shapes that a bias may have in the model, beside weights that are written in this way and shape."""

    @property
    def variables(self) -> list[Variable]:
        """The weights and, if there is one, the bias."""
        return [self.weights] if self.bias is None else [self.weights, self.bias]

    @property
    def name(self) -> str:
        """The name of the weights in the model."""
        return self.weights.name

    @abstractmethod
    def matrix(self, values: Mapping[Variable, Array]) -> Array:
        """There are weights: no default."""

    @abstractmethod
    def values(self, w: Variable) -> dict[Variable, Variable]:
        """There are weights: no default."""

    # The regression for the weights: Z = Ã W̃ᵀ, with a row of Ã and Z for each place of each sample

    ones = None
    """What stands in the place of the ones in Ã = [A, 1], if these are not ones."""

    @property
    @abstractmethod
    def augmented_shape(self) -> tuple[int, int]:
        """The shape (c, d) of W̃."""

    @abstractmethod
    def design(self, a: Variable, n: Variable) -> Variable:
        """Make Ã (n · places, d) of an input A of n samples."""

    @abstractmethod
    def moments(self, a: Variable, z: Variable) -> Variable:
        """Compute Ãᵀ Z (d, c), without forming Ã."""

    @abstractmethod
    def gram(self, a: Variable, n: Variable) -> Variable:
        """Compute Ãᵀ Ã (d, d) of an input A of n samples, without forming Ã."""

    @property
    def size(self) -> tuple[Variable | int, Variable | int]:
        """The shape (c, d) of W̃ as a program is given it, so that one program serves layers of all widths."""
        return sizes(self.augmented_shape)

    @property
    def fan_in(self) -> int:
        """The number of weights, bias included, that come into each unit."""
        return self.augmented_shape[1]

    @property
    def shares_prior(self) -> bool:
        """Whether all units have the same prior."""
        return self.precision.type.broadcastable[-2]

    def linear(self, w: Array) -> Array:
        """Return W, all of W̃ but the bias."""
        return w[..., :-1] if self.has_bias else w

    def squares(self, w: Array) -> Array:
        """Compute Σ W² + b² (..., c) of each unit, with W and b as they are in the model."""
        squares = times((self.linear(w) ** 2).sum(-1), self.factor**-2)
        return squares + times(w[..., -1] ** 2, self.bias_factor**-2) if self.has_bias else squares

    def log_prior(self, w: Variable) -> Variable:
        """Compute the log density of the weights and the bias under their prior."""
        # A row of precisions that all units share counts once for each.
        copies = pt.cast(self.size[0], w.dtype) if self.shares_prior else 1
        constant = copies * pt.log(self.precision / (2 * math.pi)).sum()
        density = -0.5 * ((self.precision * w**2).sum() - constant)
        # The density is that of the model's W, of which W̃ holds a multiple.
        units, fan_in = self.augmented_shape
        factors = units * (fan_in - self.has_bias) * math.log(abs(self.factor)) + units * math.log(
            abs(self.bias_factor)
        )
        return density + given(np.asarray(factors, w.dtype)) if factors else density

    # The scale of a unit multiplies its output and its weights

    def incoming(self, w: Variable) -> Variable:
        """Compute Σ Λ W̃² (c,) over the weights that come into each unit, bias included."""
        return (self.precision * w**2).sum(axis=1)

    def scaled(self, w: Variable, c: Variable) -> Variable:
        """Return W̃ with the weights of each unit multiplied by its scale."""
        return w * c[:, None]

    # The scale of an input divides the weights that it meets, in a kind that knows the units of the layer below. A
    # weight that meets several inputs counts in equal parts for each

    @property
    def fan_out(self) -> float:
        """The number of weights that go out of each input."""
        raise NotImplementedError

    def outgoing(self, w: Variable) -> Variable:
        """Compute Σ Λ W² (d_in,) over the weights that go out of each input."""
        raise NotImplementedError

    def relieved(self, w: Variable, c: Variable) -> Variable:
        """Return W̃ with the weights that go out of each input divided by its scale (d_in,); the bias stays."""
        raise NotImplementedError


def precisions(sigma: Variable, units: int, fan_in: int, bias_sigma: Variable | None) -> Variable:
    """Compute the prior precisions Λ of W̃ from standard deviations.

    Parameters
    ----------
    sigma : Variable
        The standard deviations of W, a matrix that broadcasts to (units, fan_in).
    units, fan_in : int
        The shape of W.
    bias_sigma : Variable, optional
        Those of the bias, one for all units or one for each; None without a bias.

    Returns
    -------
    Variable, (1 or units, fan_in (+ 1))
    """
    known = all(is_given(x) for x in (sigma, bias_sigma) if x is not None)
    sigmas = [_spread(sigma, 1 if sigma.type.broadcastable[0] else units, fan_in, known)]
    if bias_sigma is not None:
        sigmas.append(bias_sigma.reshape((1 if all(bias_sigma.type.broadcastable) else -1, 1)))
    if len({sigma.type.broadcastable[0] for sigma in sigmas}) > 1:
        columns = fan_in, 1
        sigmas = [_spread(sigma, units, d, known) for sigma, d in zip(sigmas, columns, strict=True)]
    return 1 / pt.concatenate(sigmas, axis=1) ** 2


def _spread(x: Variable, rows: int, columns: int, known: bool) -> Variable:
    """Broadcast to a matrix whose shape is not a part of the program, unless it is known before one is compiled.

    Parameters
    ----------
    x : Variable
        An array that broadcasts to the shape (rows, columns).
    rows, columns : int
        The shape of the matrix.
    known : bool
        Whether all shapes are known before a program is compiled.
    """
    return pt.broadcast_to(x, (rows, columns)) if known else x * given(np.ones((rows, columns), x.dtype))


def times(x: Array, factor: float) -> Array:
    """Multiply an array by a number of the model, which a program is given when it runs."""
    if factor == 1:
        return x
    return x * (given(np.asarray(factor, x.dtype)) if isinstance(x, Variable) else factor)


def library(x: Array):
    """Return the module, NumPy or PyTensor, whose functions take this array."""
    return pt if isinstance(x, Variable) else np

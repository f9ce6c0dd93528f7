r"""What dense layers and convolutions share: weights and biases with Normal priors, as one matrix W̃ = [W, b] (c, d).

There is a row for each of c *units*, which are the columns of a dense layer's output, and the channels of a
convolution's; d is the number of a unit's weights, bias included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.given import given, is_given, sizes

__all__ = ["Array", "Weighted", "library", "precisions", "times"]

Array = Any  # an array of NumPy or a variable of PyTensor


@dataclass(frozen=True, eq=False, kw_only=True)
class Weighted:
    """A layer with weights, seen as one matrix W̃; a subclass says how the weights act on activations.

    A subclass has the attributes ``units``, the number c, and ``augmented_shape``, (c, d), and a method ``matrix``.

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

    augmented_shape: ClassVar[Any]
    matrix: ClassVar[Callable]

    weights: Variable
    bias: Variable | None
    precision: Variable
    factor: float = 1.0
    bias_factor: float = 1.0

    @property
    def variables(self) -> list[Variable]:
        """Value variables of the weights and, if there is one, of the bias."""
        return [self.weights] if self.bias is None else [self.weights, self.bias]

    @property
    def name(self) -> str:
        """The name of the weights in the model."""
        return self.weights.name

    @property
    def has_bias(self) -> bool:
        """Whether the layer has a bias."""
        return self.bias is not None

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

    def named_matrix(self, arrays: Mapping[str, Array]) -> Array:
        """Make W̃ as ``matrix`` does, of arrays by the names of the weights and the bias."""
        return self.matrix({v: arrays[v.name] for v in self.variables})

    def linear(self, w: Array) -> Array:
        """Return W, the part of W̃ (..., c, d) that multiplies the input."""
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

r"""The dense layer as an operator on activations.

    forward(A, W̃) = A Wᵀ + b = Ã W̃ᵀ,     Ã = [A, 1] (n, d),     W̃ = [W, b] (c, d)

All that depends on the kind of a layer is asked of its operator, and known nowhere else. Activations are matrices with
a row for each of n samples, whatever a row holds (the pixels of all channels of an image, say). The weights are one
matrix W̃ with a row for each *unit*, which is a column of the output here and would be a channel of a convolution; c is
the number of units, and d that of a unit's weights, bias included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.given import given, is_given, sizes
from pymc_gibbsnn.networks.layers.gain import Gain

__all__ = ["Dense", "transpose"]

Array = Any  # an array of NumPy or a variable of PyTensor


@dataclass(frozen=True, eq=False, kw_only=True)
class Dense:
    """The dense layer A ↦ A Wᵀ + b, with Normal priors of mean 0 and its weights seen as one matrix W̃ = [W, b].

    Any other kind of layer is a class that answers the same questions:

    - ``variables``, ``name``: its value variables and what statistics call it. An average pool has no variables; its
      W̃ may be anything, since no move draws it or scales it;
    - ``shape``, ``row_shapes``, ``is_single``: numbers (out, in) of a sample, and the shapes in which a user may write
      what it gives;
    - ``matrix``, ``named_matrix``, ``values``, ``rows``, ``written``: from the user's shapes to matrices and back;
    - ``squares``: what the norm of the weights is the sum of;
    - ``forward``: the map itself, the same for one matrix W̃ and for many, in NumPy and in PyTensor;
    - ``design``, ``moments``, ``gram``: the regression for W̃ of an output on an input. Of a convolution they are those
      of its windows, in which each sample counts as often as it has places;
    - ``linear``, ``intercept``, ``gain``: the map as a matrix that acts on the activations below, for their
      conditional. Of a convolution it is banded, of an average pool constant;
    - ``places``, ``by_unit``, ``spread``, ``fan_in``, ``incoming``, ``scaled``: how the scale of each of its units
      enters, its weights moving with it. A channel has as many places as pixels;
    - ``fan_out``, ``outgoing``, ``relieved``: how the scales of the inputs enter, its weights moving against them. A
      weight that meets several inputs counts in equal parts for each;
    - ``log_prior``: the log density of its weights.

    Parameters
    ----------
    weights, bias : Variable
        The value variables of W and b, in the shapes that the user gave them; the bias is None if there is none.
    layout : str
        How the user wrote W: "rows" for the shape (d_out, d_in), "columns" for (d_in, d_out), "vector" for (d_in,).
    shape : tuple of int
        The numbers (d_out, d_in) of outputs and inputs.
    precision : Variable, (1 or d_out, d_in (+ 1))
        The prior precisions Λ of W̃, in one row if all units have the same prior.
    factor, bias_factor : float
        Numbers c and c' by which the model multiplies the product and the bias, c A Wᵀ + c' b, as networks in NTK form
        do. Here W̃ = [c W, c' b], with the precision of that.
    """

    weights: Variable
    bias: Variable | None
    layout: str
    shape: tuple[int, int]
    precision: Variable
    factor: float = 1.0
    bias_factor: float = 1.0

    # How the user wrote the layer

    @staticmethod
    def shape_of(layout: str, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return (d_out, d_in) of weights that have this layout and shape in the model."""
        return {"rows": shape, "columns": shape[::-1], "vector": (1, *shape)}[layout]

    @staticmethod
    def broadcast_as(layout: str, x: Variable) -> Variable:
        """Turn what broadcasts to the shape of weights of this layout into what broadcasts to (d_out, d_in)."""
        x = pt.shape_padleft(x, 2 - x.ndim)
        return x.T if layout == "columns" else x

    @staticmethod
    def written_as(layout: str, matrix: Variable) -> Variable:
        """Turn a matrix (d_out, d_in) into weights of this layout."""
        return {"rows": matrix, "columns": matrix.T, "vector": matrix[0]}[layout]

    @staticmethod
    def precision_of(layout: str, shape: tuple[int, int], sigma: Variable, bias_sigma: Variable | None) -> Variable:
        """Compute the prior precisions Λ from standard deviations.

        Parameters
        ----------
        layout : str
            The layout of the weights.
        shape : tuple of int
            (d_out, d_in).
        sigma, bias_sigma : Variable
            The standard deviations of W and b, which broadcast to their shapes in the model; the latter is None without
            a bias.

        Returns
        -------
        Variable, (1 or d_out, d_in (+ 1))
        """
        d_out, d_in = shape
        sigma = Dense.broadcast_as(layout, sigma)
        known = all(is_given(x) for x in (sigma, bias_sigma) if x is not None)
        sigmas = [_spread(sigma, 1 if sigma.type.broadcastable[0] else d_out, d_in, known)]
        if bias_sigma is not None:
            sigmas.append(bias_sigma.reshape((1 if all(bias_sigma.type.broadcastable) else -1, 1)))
        if len({sigma.type.broadcastable[0] for sigma in sigmas}) > 1:
            columns = d_in, 1
            sigmas = [_spread(sigma, d_out, d, known) for sigma, d in zip(sigmas, columns, strict=True)]
        return 1 / pt.concatenate(sigmas, axis=1) ** 2

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
    def is_single(self) -> bool:
        """Whether the user wrote a single output, as one number for each sample."""
        return self.layout == "vector"

    @property
    def row_shapes(self) -> list[tuple[int, ...]]:
        """The shapes that one sample of the output may have in the model."""
        width = self.shape[0]
        return [(width,)] + [()] * (width == 1)

    def matrix(self, values: Mapping[Variable, Array]) -> Array:
        """Make W̃ (..., d_out, d_in (+ 1)) of weights and bias in the model's shapes, which may follow axes of draws."""
        w = values[self.weights]
        w = w[..., None, :] if self.layout == "vector" else w.mT if self.layout == "columns" else w
        w = _times(w, self.factor)
        if not self.has_bias:
            return w
        b = _times(values[self.bias], self.bias_factor)
        b = b.reshape((*b.shape[: b.ndim - self.bias.ndim], 1 if self.shape[0] == 1 else -1, 1))
        return _library(w).concatenate([w, b], axis=-1)

    def named_matrix(self, arrays: Mapping[str, Array]) -> Array:
        """Make W̃ as :meth:`matrix` does, of arrays by the names of the weights and the bias."""
        return self.matrix({v: arrays[v.name] for v in self.variables})

    def values(self, w: Variable) -> dict[Variable, Variable]:
        """Take W̃ (d_out, d_in (+ 1)) apart into weights and bias, in the shapes that the user gave them."""
        matrix = _times(self.linear(w), 1 / self.factor)
        values = {self.weights: self.written_as(self.layout, matrix)}
        if self.has_bias:
            b = _times(w[:, -1], 1 / self.bias_factor)
            values[self.bias] = {0: b[0], 1: b, 2: b[None]}[self.bias.ndim]
        return values

    def squares(self, w: Array) -> Array:
        """Compute Σ W² + b² (..., d_out) of each unit, with W and b as they are in the model."""
        squares = _times((self.linear(w) ** 2).sum(-1), self.factor**-2)
        return squares + _times(w[..., -1] ** 2, self.bias_factor**-2) if self.has_bias else squares

    def rows(self, z: Array) -> Array:
        """Make an output of shape (n, d_out) or (n,) a matrix (n, d_out)."""
        return z[:, None] if z.ndim == 1 else z

    def written(self, z: Array, ndim: int) -> Array:
        """Give the matrix (n, d_out) of an output as many dimensions as it has in the model."""
        return z if ndim == 2 else z[:, 0]

    # The map

    def forward(self, a: Array, w: Array) -> Array:
        """Compute Ã W̃ᵀ (..., n, d_out), of A (..., n, d_in) and W̃ (..., d_out, d_in (+ 1)), without forming Ã."""
        z = a @ self.linear(w).mT
        return z + _library(w).expand_dims(w[..., -1], -2) if self.has_bias else z

    def linear(self, w: Array) -> Array:
        """Return W (..., d_out, d_in), the part of W̃ that multiplies the input."""
        return w[..., :-1] if self.has_bias else w

    def intercept(self, w: Variable) -> Variable | float:
        """Return the bias (d_out,) in W̃; 0 for a layer without one."""
        return w[:, -1] if self.has_bias else 0.0

    # The regression for the weights. The number of samples is taken from the shape of the data: PyTensor 2 writes the
    # shapes of computed arrays differently in every process, and compiled code would then not be found again.

    @property
    def augmented_shape(self) -> tuple[int, int]:
        """The shape (c, d) of W̃."""
        return self.shape[0], self.shape[1] + self.has_bias

    @property
    def size(self) -> tuple[Variable | int, Variable | int]:
        """The shape (c, d) of W̃ as a program is given it, so that one program serves layers of all widths."""
        return sizes(self.augmented_shape)

    @property
    def shares_prior(self) -> bool:
        """Whether all units have the same prior."""
        return self.precision.type.broadcastable[-2]

    def design(self, a: Variable, n: Variable) -> Variable:
        """Make Ã (n, d) of an input A of n samples."""
        return pt.concatenate([a, pt.ones((n, 1), a.dtype)], axis=1) if self.has_bias else a

    def moments(self, a: Variable, z: Variable) -> Variable:
        """Compute Ãᵀ Z (d, c), without copying A to Ã."""
        return pt.concatenate([a.T @ z, z.sum(axis=0)[None]]) if self.has_bias else a.T @ z

    def gram(self, a: Variable, n: Variable) -> Variable:
        """Compute Ãᵀ Ã (d, d) of an input A of n samples, without copying A to Ã."""
        if not self.has_bias:
            return a.T @ a
        last = pt.concatenate([a.sum(axis=0), pt.cast(n, a.dtype)[None]])
        return pt.concatenate([self.moments(a, a), last[:, None]], axis=1)

    def log_prior(self, w: Variable) -> Variable:
        """Compute the log density of the weights and the bias under their prior."""
        # A row of precisions that all units share counts once for each.
        copies = pt.cast(self.size[0], w.dtype) if self.shares_prior else 1
        logs = copies * pt.log(self.precision / (2 * math.pi)).sum()
        density = -0.5 * ((self.precision * w**2).sum() - logs)
        # The density is that of the model's W, of which W̃ holds a multiple.
        factors = math.prod(self.shape) * math.log(abs(self.factor)) + self.shape[0] * math.log(abs(self.bias_factor))
        return density + given(np.asarray(factors, w.dtype)) if factors else density

    # The conditional of the activations below

    def gain(self, v: Variable, noise_below: Variable, noise_above: Variable) -> Variable:
        """Compute the gain G = S⁻¹ W (..., d_out, d_in), where S = ΔZ I + ΔA W Wᵀ and ``v`` is W, as of :meth:`linear`.

        ``noise_below`` is ΔA, the variance of the input's noise; ``noise_above`` is ΔZ, that of the output's. G is also
        W (ΔZ I + ΔA Wᵀ W)⁻¹; the smaller of the two matrices is factorised.
        """
        if self.shape[0] == 1:
            return v / (noise_above + noise_below * (v**2).sum(axis=-1, keepdims=True))
        return Gain()(v, noise_below, noise_above)

    # The scales of units. The scale of one of the layer's own units multiplies its output and its weights; the scale of
    # one of its inputs divides the weights that this input meets.

    places = 1
    """How many numbers of a sample of the output belong to each unit."""

    @property
    def fan_in(self) -> int:
        """The number of weights, bias included, that come into each unit."""
        return self.augmented_shape[1]

    @property
    def fan_out(self) -> int:
        """The number of weights that go out of each input."""
        return self.shape[0]

    def by_unit(self, x: Variable) -> Variable:
        """Sum an array like the output over all that belongs to each unit, (c,)."""
        return x.sum(axis=0)

    def spread(self, c: Variable) -> Variable:
        """Repeat the scales of units (c,) for each column of the output that belongs to a unit, (d_out,)."""
        return c

    def incoming(self, w: Variable) -> Variable:
        """Compute Σ Λ W̃² (c,) over the weights that come into each unit, bias included."""
        return (self.precision * w**2).sum(axis=1)

    def outgoing(self, w: Variable) -> Variable:
        """Compute Σ Λ W² (d_in,) over the weights that go out of each input."""
        return self.linear(self.precision * w**2).sum(axis=0)

    def scaled(self, w: Variable, c: Variable) -> Variable:
        """Return W̃ with the weights of each unit multiplied by its scale."""
        return w * c[:, None]

    def relieved(self, w: Variable, c: Variable) -> Variable:
        """Return W̃ with the weights that go out of each input divided by its scale; the bias stays."""
        return pt.concatenate([w[:, :-1] / c, w[:, -1:]], axis=1) if self.has_bias else w / c


def transpose(matrix: Variable) -> Variable:
    """Exchange the last two axes of an array, which may be a batch of matrices."""
    return pt.swapaxes(matrix, -1, -2)


def _times(x: Array, factor: float) -> Array:
    """Multiply an array by a number of the model, which a program is given when it runs."""
    if factor == 1:
        return x
    return x * (given(np.asarray(factor, x.dtype)) if isinstance(x, Variable) else factor)


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


def _library(x: Array):
    """The module, NumPy or PyTensor, whose functions take this array."""
    return pt if isinstance(x, Variable) else np

r"""The dense layer as an operator on activations.

    forward(A, W̃) = A Wᵀ + b = Ã W̃ᵀ,     Ã = [A, 1] (n, d),     W̃ = [W, b] (c, d)

All that depends on the kind of a layer is asked of its operator, and known nowhere else. Activations are matrices with
a row for each of n samples, whatever a row holds (the pixels of all channels of an image, say). The weights are one
matrix W̃ with a row for each *unit*, which is a column of the output here and a channel of a convolution; c is the
number of units, and d that of a unit's weights, bias included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.layers.gain import Gain
from pymc_gibbsnn.networks.layers.weighted import Array, Weighted, library, precisions, times

__all__ = ["Dense", "transpose"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Dense(Weighted):
    """The dense layer A ↦ A Wᵀ + b, with Normal priors of mean 0 and its weights seen as one matrix W̃ = [W, b].

    Any other kind of layer is a class that answers the same questions, some of which
    :class:`~pymc_gibbsnn.networks.layers.weighted.Weighted` answers for all layers with weights:

    - ``variables``, ``name``: its value variables and what statistics call it. An average pool has no variables; its
      W̃ may be anything, since no move draws it or scales it;
    - ``shape``, ``row_shapes``, ``is_single``: numbers (out, in) of a sample, and the shapes in which a user may write
      what it gives; ``input_shapes``, those of what it takes;
    - ``matrix``, ``named_matrix``, ``values``, ``rows``, ``written``: from the user's shapes to matrices and back;
    - ``squares``: what the norm of the weights is the sum of;
    - ``forward``: the map itself, the same for one matrix W̃ and for many, in NumPy and in PyTensor;
    - ``design``, ``moments``, ``gram``: the regression for W̃ of an output on an input. Of a convolution they are those
      of its windows, in which each sample counts as often as it has places;
    - ``correction``: by how much the output of the layer moves the activations below, for their conditional;
    - ``linear``, ``intercept``, ``gain``: the map as a matrix that acts on the activations below, for moves with these
      integrated out. ``has_gain`` says whether there is one; that of a convolution is too large. ``tiles`` says whether
      each input belongs to one output alone, as of a pool, whose inputs ``by_window`` arranges;
    - ``places``, ``by_unit``, ``spread``, ``fan_in``, ``incoming``, ``scaled``: how the scale of each of its units
      enters, its weights moving with it. A channel has as many places as pixels;
    - ``knows_units_of``, ``fan_out``, ``outgoing``, ``relieved``: whether and how the scales of the inputs enter, its
      weights moving against them. A weight that meets several inputs counts in equal parts for each;
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
    ones : Variable, (n, 1), optional
        What stands in the place of the ones in Ã, if these are not ones.
    """

    layout: str
    shape: tuple[int, int]
    ones: Variable | None = None

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
        return precisions(Dense.broadcast_as(layout, sigma), *shape, bias_sigma)

    @property
    def is_single(self) -> bool:
        """Whether the user wrote a single output, as one number for each sample."""
        return self.layout == "vector"

    @property
    def row_shapes(self) -> list[tuple[int, ...]]:
        """The shapes that one sample of the output may have in the model."""
        width = self.shape[0]
        return [(width,)] + [()] * (width == 1)

    @property
    def input_shapes(self) -> list[tuple[int, ...]]:
        """The shapes that one sample of the input may have; the first one is what a user would write."""
        return [(self.shape[1],)]

    def matrix(self, values: Mapping[Variable, Array]) -> Array:
        """Make W̃ (..., d_out, d_in (+ 1)) of weights and bias in the model's shapes, which may follow axes of draws."""
        w = values[self.weights]
        w = w[..., None, :] if self.layout == "vector" else w.mT if self.layout == "columns" else w
        w = times(w, self.factor)
        if not self.has_bias:
            return w
        b = times(values[self.bias], self.bias_factor)
        b = b.reshape((*b.shape[: b.ndim - self.bias.ndim], 1 if self.shape[0] == 1 else -1, 1))
        return library(w).concatenate([w, b], axis=-1)

    def values(self, w: Variable) -> dict[Variable, Variable]:
        """Take W̃ (d_out, d_in (+ 1)) apart into weights and bias, in the shapes that the user gave them."""
        matrix = times(self.linear(w), 1 / self.factor)
        values = {self.weights: self.written_as(self.layout, matrix)}
        if self.has_bias:
            b = times(w[:, -1], 1 / self.bias_factor)
            values[self.bias] = {0: b[0], 1: b, 2: b[None]}[self.bias.ndim]
        return values

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
        if not self.has_bias:
            return z
        b = library(w).expand_dims(w[..., -1], -2)
        return z + (b if self.ones is None else b * self.ones)

    def intercept(self, w: Variable) -> Variable | float:
        """Return what the bias in W̃ adds to the output, (d_out,) or (n, d_out); 0 for a layer without one."""
        if not self.has_bias:
            return 0.0
        return w[:, -1] if self.ones is None else w[:, -1] * self.ones

    # The regression for the weights. The number of samples is taken from the shape of the data: PyTensor 2 writes the
    # shapes of computed arrays differently in every process, and compiled code would then not be found again.

    @property
    def augmented_shape(self) -> tuple[int, int]:
        """The shape (c, d) of W̃."""
        return self.shape[0], self.shape[1] + self.has_bias

    def design(self, a: Variable, n: Variable) -> Variable:
        """Make Ã (n, d) of an input A of n samples."""
        if not self.has_bias:
            return a
        return pt.concatenate([a, pt.ones((n, 1), a.dtype) if self.ones is None else self.ones], axis=1)

    def moments(self, a: Variable, z: Variable) -> Variable:
        """Compute Ãᵀ Z (d, c), without copying A to Ã."""
        if not self.has_bias:
            return a.T @ z
        return pt.concatenate([a.T @ z, z.sum(axis=0)[None] if self.ones is None else self.ones.T @ z])

    def gram(self, a: Variable, n: Variable) -> Variable:
        """Compute Ãᵀ Ã (d, d) of an input A of n samples, without copying A to Ã."""
        if not self.has_bias:
            return a.T @ a
        if self.ones is None:
            last = pt.concatenate([a.sum(axis=0), pt.cast(n, a.dtype)[None]])
        else:
            last = pt.concatenate([(self.ones.T @ a)[0], (self.ones**2).sum()[None]])
        return pt.concatenate([self.moments(a, a), last[:, None]], axis=1)

    # The conditional of the activations below

    has_gain = True
    """Whether the layer has a gain, of which moves with the activations below integrated out are made."""

    def gain(self, v: Variable, noise_below: Variable, noise_above: Variable) -> Variable:
        """Compute the gain G = S⁻¹ W (..., d_out, d_in), where S = ΔZ I + ΔA W Wᵀ and ``v`` is W, as of ``linear``.

        ``noise_below`` is ΔA, the variance of the input's noise; ``noise_above`` is ΔZ, that of the output's. G is also
        W (ΔZ I + ΔA Wᵀ W)⁻¹; the smaller of the two matrices is factorised.
        """
        if self.shape[0] == 1:
            return v / (noise_above + noise_below * (v**2).sum(axis=-1, keepdims=True))
        return Gain()(v, noise_below, noise_above)

    def correction(self, r: Variable, w: Variable, noise_below: Variable, noise_above: Variable) -> Variable:
        """Compute ΔA R S⁻¹ W (n, d_in): by how much residuals R of the output move the mean of the input.

        Parameters
        ----------
        r : Variable, (n, d_out)
            The residuals R.
        w : Variable
            The weights W̃.
        noise_below, noise_above : Variable, ()
            The variances ΔA of the noise of the input and ΔZ of that of the output.

        Returns
        -------
        Variable, (n, d_in)
        """
        return r @ (noise_below * self.gain(self.linear(w), noise_below, noise_above))

    # The scales of units. The scale of one of the layer's own units multiplies its output and its weights; the scale of
    # one of its inputs divides the weights that this input meets.

    places = 1
    """How many numbers of a sample of the output belong to each unit."""

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

    def knows_units_of(self, below: Any) -> bool:
        """Whether a scale of a unit of the layer below can be taken out of weights here."""
        return True

    def outgoing(self, w: Variable) -> Variable:
        """Compute Σ Λ W² (d_in,) over the weights that go out of each input."""
        return self.linear(self.precision * w**2).sum(axis=0)

    def relieved(self, w: Variable, c: Variable) -> Variable:
        """Return W̃ with the weights that go out of each input divided by its scale; the bias stays."""
        return pt.concatenate([w[:, :-1] / c, w[:, -1:]], axis=1) if self.has_bias else w / c


def transpose(matrix: Variable) -> Variable:
    """Exchange the last two axes of an array, which may be a batch of matrices."""
    return pt.swapaxes(matrix, -1, -2)

r"""The dense layer as an operator on activations.

forward(A, W̃) = A Wᵀ + b = Ã W̃ᵀ,     Ã = [A, 1] (n, d),     W̃ = [W, b] (c, d)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.forms import match_scaled_product, spans_columns
from pymc_gibbsnn.networks.given import real
from pymc_gibbsnn.networks.layers.layout import broadcast_as, shape_of, written_as
from pymc_gibbsnn.networks.layers.operator import Array, Linear, Operator
from pymc_gibbsnn.networks.layers.weighted import Weighted, library, precisions, times

__all__ = ["Dense", "transpose"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Dense(Weighted):
    """The dense layer A ↦ A Wᵀ + b, with Normal priors of mean 0.

    Parameters
    ----------
    weights, bias, precision, factor, bias_factor
        As of :class:`~pymc_gibbsnn.networks.layers.weighted.Weighted`.
    layout : str
        How the user wrote W: "rows" for the shape (d_out, d_in), "columns" for (d_in, d_out), "vector" for (d_in,).
    shape : tuple of int
        The numbers (d_out, d_in) of outputs and inputs.
    ones : Variable, (n, 1), optional
        What stands in the place of the ones in Ã, if these are not ones.
    """

    layout: str
    shape: tuple[int, int]
    ones: Variable | None = None

    # How the user wrote the layer

    @classmethod
    def match(cls, term: Variable) -> Linear | None:
        """Recognise a product of matrices times a number."""
        product = match_scaled_product(term)
        if product is None:
            return None
        factor, source, weights, layout = product
        return Linear(cls, source, weights, factor, layout)

    @classmethod
    def read(
        cls, term: Linear, name: str, *, shape: tuple[int, ...], sigma: Variable, bias_sigma: Variable | None, **values
    ) -> Dense:
        """Make the layer of a product."""
        shape = shape_of(term.how, shape)
        precision = real(precisions(broadcast_as(term.how, sigma), *shape, bias_sigma))
        return cls(layout=term.how, shape=shape, precision=precision, **values)

    is_along_units = staticmethod(spans_columns)

    @staticmethod
    def bias_shapes(how: str, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """A bias has a number for each output, or is the number of a single one."""
        units, _ = shape_of(how, shape)
        return [(units,), (1, units)] + [()] * (units == 1)

    is_product = True

    @property
    def is_single(self) -> bool:
        """Whether the weights are a vector."""
        return self.layout == "vector"

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
        values = {self.weights: written_as(self.layout, matrix)}
        if self.has_bias:
            b = times(w[:, -1], 1 / self.bias_factor)
            values[self.bias] = {0: b[0], 1: b, 2: b[None]}[self.bias.ndim]
        return values

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

    # Rows with scales, and the conditional of the activations below

    scales_with_rows = True

    def of_scaled_rows(self, ones: Variable) -> Dense:
        """Return the layer whose bias meets ``ones`` times what it met before."""
        return replace(self, ones=ones if self.ones is None else self.ones * ones)

    has_gain = True

    def correction(self, r: Variable, w: Variable, noise_below: Variable, noise_above: Variable) -> Variable:
        """Compute ΔA R G, of which G is the gain; that of a single output may differ from row to row."""
        gain = noise_below * self.gain(self.linear(w), noise_below, noise_above)
        return r * gain if noise_above.ndim == 2 else r @ gain

    # The scales of inputs

    @property
    def fan_out(self) -> int:
        """The number of outputs."""
        return self.shape[0]

    def knows_units_of(self, below: Operator) -> bool:
        """Each input has weights of its own."""
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

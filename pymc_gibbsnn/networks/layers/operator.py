"""What a network asks of a layer: the linear map between two activations, whatever its kind.

No move, sampler or diagnostic knows more of a layer than :class:`Operator` lists and, of a layer with weights,
:class:`~pymc_gibbsnn.networks.layers.weighted.Weighted`. Activations are matrices with a row for each of n samples,
whatever a row holds: the pixels of all channels of an image, say. V is the matrix of the map, which need not be formed:

    Z = A Vᵀ + b + noise,     A (n, d_in), V (d_out, d_in), Z (n, d_out).

A *unit* is what has weights of its own: a column of the output, or a channel of a convolution's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.layers.gain import Gain

__all__ = ["Array", "Linear", "Operator"]

Array = Any  # an array of NumPy or a variable of PyTensor


class Linear(NamedTuple):
    """A term of a mean that is linear in an input.

    Attributes
    ----------
    kind : type of Operator
        The kind of layer that it is.
    source : Variable
        The input.
    weights : Variable, optional
        What stands in the place of weights; None for a kind without them.
    factor : float
        The number by which the model multiplies the term.
    how : object
        What else the kind needs in order to read it.
    """

    kind: type[Any]
    source: Variable
    weights: Variable | None = None
    factor: float = 1.0
    how: Any = None


class Operator(ABC):
    """A layer. What has no default here, each kind must give; the defaults are those of a layer without weights.

    A kind is a frozen dataclass, whose fields are what was read of a model.
    """

    # How it is read

    @classmethod
    @abstractmethod
    def match(cls, term: Variable) -> Linear | None:
        """Recognise a term of a mean, in canonical form, as a layer of this kind; return None for any other term."""

    @classmethod
    @abstractmethod
    def read(cls, term: Linear, name: str) -> Operator:
        """Make the layer of a term that ``match`` recognised, in the mean of the variable of this name.

        Raises
        ------
        NetworkError
            If the kind does not know such a term.
        """

    is_product = False
    """Whether it is the product Ã W̃ᵀ with a matrix all of whose numbers are weights: what least squares can fit, what
    classical networks are made of, and what does not follow another product without an activation."""

    # Names, and the shapes of one sample

    shape: tuple[int, int]
    """The numbers (d_out, d_in) of outputs and inputs. It has no default."""

    is_single = False
    """Whether the user wrote a single output, as one number for each sample."""

    @property
    def name(self) -> str:
        """What messages and statistics call it."""
        return type(self).__name__

    @property
    def row_shapes(self) -> list[tuple[int, ...]]:
        """The shapes that one sample of the output may have in the model; the first is what others are told."""
        width = self.shape[0]
        return [(width,)] + [()] * (width == 1)

    @property
    def input_shapes(self) -> list[tuple[int, ...]]:
        """The shapes that one sample of the input may have; the first is what a user would write."""
        return [(self.shape[1],)]

    def rows(self, z: Array) -> Array:
        """Make an output in the model's shape a matrix (n, d_out)."""
        return z[:, None] if z.ndim == 1 else z

    def written(self, z: Array, ndim: int) -> Array:
        """Give the matrix (n, d_out) of an output as many dimensions as it has in the model."""
        return z if ndim == 2 else z[:, 0]

    # Weights as one matrix W̃. Where there are none it is a placeholder, which no move draws or scales

    bias: Variable | None = None
    """The value variable of the bias, if there is one."""

    @property
    def has_bias(self) -> bool:
        """Whether there is a bias."""
        return self.bias is not None

    @property
    def variables(self) -> list[Variable]:
        """Value variables of the weights and of the bias; where there are some, the layer is a ``Weighted``."""
        return []

    def matrix(self, values: Mapping[Variable, Array]) -> Array:
        """Make W̃ of weights and bias in the model's shapes, which may follow axes of draws."""
        return np.zeros((1, 1))

    def named_matrix(self, arrays: Mapping[str, Array]) -> Array:
        """Make W̃ as ``matrix`` does, of arrays by the names of the weights and the bias."""
        return self.matrix({v: arrays[v.name] for v in self.variables})

    def values(self, w: Variable) -> dict[Variable, Variable]:
        """Take W̃ apart into weights and bias, in the shapes that the user gave them."""
        return {}

    # The map

    @abstractmethod
    def forward(self, a: Array, w: Array | None = None) -> Array:
        """Compute A Vᵀ + b (..., n, d_out), of A (..., n, d_in) and one W̃ or many, in NumPy and in PyTensor.

        A layer without weights needs no W̃.
        """

    def intercept(self, w: Variable) -> Variable | float:
        """Return b, what the bias in W̃ adds to the output."""
        return 0.0

    scales_with_rows = False
    """Whether inputs and outputs of each row may be divided by a scale of this row, as ``of_scaled_rows`` does."""

    def of_scaled_rows(self, ones: Variable) -> Operator:
        """Return the layer between inputs and outputs that are multiplied by ``ones`` (n, 1), as its bias is."""
        return self

    # The conditional of the activations below

    @abstractmethod
    def correction(self, r: Variable, w: Variable, noise_below: Variable, noise_above: Variable) -> Variable:
        """Compute by how much residuals of the output move the mean of the input: ΔA R S⁻¹ V, S = ΔZ I + ΔA V Vᵀ.

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

    has_gain = False
    """Whether ``linear`` gives V, for moves with the activations below integrated out. That of images is too large."""

    def linear(self, w: Array) -> Array:
        """Return the part of W̃ that multiplies the input; V itself where there is a gain."""
        raise NotImplementedError

    def gain(self, v: Variable, noise_below: Variable, noise_above: Variable) -> Variable:
        """Compute the gain G = S⁻¹ V (..., d_out, d_in), S = ΔZ I + ΔA V Vᵀ, of V as of ``linear``.

        ``noise_below`` is ΔA, the variance of the input's noise; ``noise_above`` is ΔZ, that of the output's. G is also
        V (ΔZ I + ΔA Vᵀ V)⁻¹; the smaller of the two matrices is factorised.
        """
        if self.shape[0] == 1:
            return v / (noise_above + noise_below * (v**2).sum(axis=-1, keepdims=True))
        return Gain()(v, noise_below, noise_above)

    has_filters = False
    """Whether units are filters that see images through ``windows``: they move together, and there is ``pooled``."""

    takes_means = False
    """Whether outputs are means over ``windows`` that do not overlap, with the adjoint ``adjoint``."""

    tiles = False
    """Whether these fill the images, so that inputs are independent given ``by_window``."""

    # The scales of units. The scale of one of the layer's own units multiplies its output and its weights; the scale of
    # one of its inputs divides the weights that this input meets

    places = 1
    """How many numbers of a sample of the output belong to each unit."""

    def by_unit(self, x: Variable) -> Variable:
        """Sum an array like the output over all that belongs to each unit, (units,)."""
        return x.sum(axis=0)

    def spread(self, c: Variable) -> Variable:
        """Repeat the scales of units for each column of the output that belongs to one, (d_out,)."""
        return c

    def knows_units_of(self, below: Operator) -> bool:
        """Whether the scale of a unit of the layer below passes through, or can be taken out of weights here."""
        return False

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return what only layers with weights have, which ``Weighted`` describes, or layers with windows."""

r"""Inputs of a network that are not known, or not exactly: missing entries, and true values behind measured ones.

    x_ij ~ N(μ_ij, τ_ij²),     x̃_ij ~ N(x_ij, s_ij²) where there is a measurement.

Entries of x that are observed are numbers; all others are free variables of the model. Means μ_j and variances τ_j² and
s_j² of columns may be learned. Rows may also be drawn from a mixture, with means and variances for each component k,

    k_i ~ Categorical(π),   x_ij ~ N(μ_kj, τ_kj²) with k = k_i,   π ~ Dirichlet(α),

so that entries of a row which are known tell of the others. They do so, too, if each row has *factors* f with common
*loadings* V, as in factor analysis,

    f_ia ~ N(0, s_a²),   x_ij ~ N(μ_ij + Σ_a V_ja f_ia, τ_ij²).

:mod:`pymc_gibbsnn.networks.input_reader` finds such inputs
in a model.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.forms import evaluate
from pymc_gibbsnn.networks.given import given

if TYPE_CHECKING:
    from pymc_gibbsnn.networks.network import LearnedVariance

__all__ = [
    "FactorModel",
    "Holes",
    "LearnedLoadings",
    "LearnedMean",
    "LearnedWeights",
    "Measurement",
    "Mixture",
    "RandomInputs",
]


@dataclass(frozen=True, eq=False)
class LearnedMean:
    """Learned means μ ~ N(mean, variance) of columns of the inputs, on which nothing else depends.

    Attributes
    ----------
    name : str
        The name of the variable in the model.
    value : Variable
        Its value variable.
    shape : tuple of int
        Its shape.
    which : array of int, (1, d) or (components, d)
        Which element of μ, by its number, is the mean of each column, in each component of a mixture.
    mean, variance : Variable
        The parameters of its prior, which broadcast to its shape.
    """

    name: str
    value: Variable
    shape: tuple[int, ...]
    which: np.ndarray
    mean: Variable
    variance: Variable


@dataclass(frozen=True, eq=False)
class LearnedWeights:
    """Learned weights π ~ Dirichlet(α) of the components of a mixture, on which nothing else depends.

    Attributes
    ----------
    name : str
        The name of the variable in the model.
    value : Variable
        Its value variable.
    is_simplex : bool
        Whether this holds log π_k − Σ_j log π_j/K, for all components k but the last, and not π itself.
    alpha : Variable, (components,)
        The parameters α.
    """

    name: str
    value: Variable
    is_simplex: bool
    alpha: Variable

    def value_at(self, logs: Variable) -> Variable:
        """Compute the value of the value variable from log π, up to a constant."""
        value = (logs - logs.mean())[:-1] if self.is_simplex else pt.exp(logs - pt.logsumexp(logs))
        return pt.cast(value, self.value.dtype)


@dataclass(frozen=True, eq=False)
class Mixture:
    """The mixture from which rows of the inputs are drawn.

    Attributes
    ----------
    name : str
        The name of k, the number of the component of each row, in the model.
    value : Variable, (n,)
        Its value variable.
    number : int
        How many components there are.
    probabilities : Variable, (components,) or (n, components)
        π.
    mean, variance : Variable, (components, d)
        μ, without what factors add to it, and τ² of each component, which broadcast to this shape.
    learned_weights : LearnedWeights, optional
        The distribution of π, if it is drawn with the inputs.
    """

    name: str
    value: Variable
    number: int
    probabilities: Variable
    mean: Variable
    variance: Variable
    learned_weights: LearnedWeights | None


@dataclass(frozen=True, eq=False)
class LearnedLoadings:
    """Learned loadings V ~ N(mean, variance), on which nothing else depends.

    Attributes
    ----------
    name : str
        The name of the variable in the model.
    value : Variable
        Its value variable.
    is_transposed : bool
        Whether the user wrote Vᵀ (k, d), as in ``f @ V``, and not V (d, k), as in ``f @ V.T``.
    mean, variance : Variable, (d, k)
        The parameters of its prior, which broadcast to this shape.
    """

    name: str
    value: Variable
    is_transposed: bool
    mean: Variable
    variance: Variable


@dataclass(frozen=True, eq=False)
class FactorModel:
    """The factors f of rows of the inputs, and their loadings V.

    Attributes
    ----------
    name : str
        The name of f in the model.
    value : Variable, (n, k)
        Its value variable.
    number : int
        How many factors k there are.
    variance : Variable, (k,)
        Their variances s².
    loadings : Variable, (d, k)
        V.
    center : Variable
        The means of inputs without f Vᵀ, which broadcast to (n, d).
    learned_loadings : LearnedLoadings, optional
        The distribution of V, if it is drawn with the inputs.
    """

    name: str
    value: Variable
    number: int
    variance: Variable
    loadings: Variable
    center: Variable
    learned_loadings: LearnedLoadings | None


@dataclass(frozen=True, eq=False)
class Measurement:
    """Measured values x̃ ~ N(x, s²) of all entries of the inputs.

    Attributes
    ----------
    name : str
        The name of the observed variable in the model.
    measured : Variable, (n, d)
        The values x̃.
    variance : Variable
        s², which broadcasts to (n, d).
    """

    name: str
    measured: Variable
    variance: Variable


@dataclass(frozen=True, eq=False)
class Holes:
    """Inputs (n, d) of which some entries are missing, as arrays that a program is given.

    Rows with missing entries are grouped by which of their entries are missing.

    Attributes
    ----------
    known : Variable, (n, d)
        The entries that are known, and 0 for the others.
    row, column : Variable, (m,)
        Where the missing entries are.
    rows : Variable, (k,)
        The numbers of the rows with missing entries, those with the same ones next to each other.
    complete : Variable, (n − k,)
        The numbers of all other rows.
    missing : Variable, (g, d)
        For each group, which entries are missing.
    group : Variable, (k,)
        The group of each of these rows.
    places : Variable, (m,)
        The places of the missing entries among the k d entries of these rows.
    """

    known: Variable
    row: Variable
    column: Variable
    rows: Variable
    complete: Variable
    missing: Variable
    group: Variable
    places: Variable

    @classmethod
    def of(cls, x: np.ndarray) -> Holes:
        """Find the holes of an array, which are NaN."""
        missing = np.isnan(x)
        [rows], [complete] = np.nonzero(missing.any(axis=1)), np.nonzero(~missing.any(axis=1))
        groups, group = np.unique(missing[rows], axis=0, return_inverse=True)
        group = group.ravel()  # NumPy 2.0 returns a column
        order = np.argsort(group, kind="stable")
        place = np.zeros(len(x), int)
        place[rows[order]] = np.arange(len(rows))
        row, column = np.nonzero(missing)
        known = np.where(missing, 0, x).astype(pytensor.config.floatX)
        places = place[row] * x.shape[1] + column
        return cls(*map(given, (known, row, column, rows[order], complete, groups, group[order], places)))

    def filled(self, value: Variable) -> Variable:
        """Return the inputs (n, d) with the entries of a vector in the holes."""
        return pt.set_subtensor(self.known[self.row, self.column], pt.cast(value, pytensor.config.floatX))

    @property
    def indicators(self) -> Variable:
        """The entries (n, d) as 1 where they are missing, and 0 elsewhere."""
        return pt.set_subtensor(pt.zeros_like(self.known)[self.row, self.column], 1)

    def filled_with_means(self) -> np.ndarray:
        """Return the inputs (n, d) with the means of known entries of each column in its holes."""
        row, column = evaluate(self.row), evaluate(self.column)
        x = evaluate(self.known).copy()
        missing = np.zeros(x.shape, bool)
        missing[row, column] = True
        first = x[missing.argmin(axis=0), range(x.shape[1])]  # a constant column has exactly this mean
        means = first + np.where(missing, 0, x - first).sum(axis=0) / np.maximum((~missing).sum(axis=0), 1)
        x[row, column] = means[column]
        return x


@dataclass(frozen=True, eq=False)
class RandomInputs:
    """The inputs x (n, d) of a network, of which some or all entries are variables of the model.

    Attributes
    ----------
    name : str
        The name of the inputs in the model.
    value : Variable
        The value variable of the entries that are not known: a vector of these or, where none is known, x itself.
    holes : Holes, optional
        The entries that are known, and where the others are; None where none is known.
    mean, variance : Variable
        μ and τ², which broadcast to (n, d); (1, d) or (1, 1) where all rows have the same.
    measurement : Measurement, optional
        Measured values of x, where none is known exactly.
    means : tuple of LearnedMean
        Means of columns that are drawn with x.
    variances : tuple of LearnedVariance
        Variances of columns that are drawn with x: those of x, whose use is named like it, or of its measurement.
    mixture : Mixture, optional
        The mixture from which rows are drawn, so that the means and variances of rows are those of their components.
    factor_model : FactorModel, optional
        The factors of rows, which are a part of the means.
    slope, shift : Variable, (1, d), optional
        What the network sees is slope x + shift, such as x less means and divided by scales; by default x itself.
    is_drawn : bool
        Whether x is drawn with this network. Where another network that takes x, too, sets its noise, x is drawn with
        that one.
    """

    name: str
    value: Variable
    holes: Holes | None
    mean: Variable
    variance: Variable
    measurement: Measurement | None
    means: tuple[LearnedMean, ...] = ()
    variances: tuple[LearnedVariance, ...] = ()
    mixture: Mixture | None = None
    factor_model: FactorModel | None = None
    slope: Variable | None = None
    shift: Variable | None = None
    is_drawn: bool = True

    @property
    def variables(self) -> list[Variable]:
        """The value variables that are drawn: that of x, and then all others."""
        return [*self.of_rows, *self.of_columns]

    @property
    def of_rows(self) -> list[Variable]:
        """The value variables that hold numbers of rows: those of x, of components of a mixture, and of factors."""
        return [self.value, *(one.value for one in (self.mixture, self.factor_model) if one is not None)]

    @property
    def learned(self) -> list[LearnedMean | LearnedVariance | LearnedWeights | LearnedLoadings]:
        """The means and variances of columns that are drawn, the weights of a mixture, and the loadings of factors."""
        weights = None if self.mixture is None else self.mixture.learned_weights
        loadings = None if self.factor_model is None else self.factor_model.learned_loadings
        return [one for one in (*self.means, *self.variances, weights, loadings) if one is not None]

    @property
    def identified(self) -> list[LearnedMean | LearnedVariance | LearnedWeights | LearnedLoadings]:
        """What is learned but for components, which may exchange their numbers, and loadings, which may rotate."""
        return [] if self.mixture is not None else [one for one in self.learned if not isinstance(one, LearnedLoadings)]

    @property
    def of_columns(self) -> list[Variable]:
        """The value variables of what is learned."""
        return [one.value for one in self.learned]

    def at(self, values: Mapping[Variable, Variable]) -> Variable:
        """Return the inputs x (n, d) at values of the model's variables."""
        value = values[self.value]
        return pt.cast(value, pytensor.config.floatX) if self.holes is None else self.holes.filled(value)

    def seen(self, x: Variable) -> Variable:
        """Return what the network sees of inputs x (n, d)."""
        return x if self.slope is None else self.slope * x + self.shift

    def given_measurement(self) -> tuple[Variable, Variable]:
        """Return the precisions of entries given measured values, if there are some, and these times the means."""
        precision, linear = 1 / self.variance, self.mean / self.variance
        if self.measurement is not None:
            certainty = 1 / self.measurement.variance
            precision, linear = precision + certainty, linear + self.measurement.measured * certainty
        return precision, linear

    def guess(self) -> np.ndarray:
        """Return numbers (n, d) in place of x: measured values, or means of columns where entries are missing."""
        return self.holes.filled_with_means() if self.measurement is None else evaluate(self.measurement.measured)

    def guessed_values(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return values of the variables of rows, by name: those with which x is what :meth:`guess` returns.

        The components of a mixture are clusters of rows, found by k-means; factors are 0.
        """
        x, holes = self.guess(), self.holes
        values = {self.value.name: x if holes is None else x[evaluate(holes.row), evaluate(holes.column)]}
        if self.mixture is not None:
            from scipy.cluster.vq import kmeans2

            x = x / np.where(np.ptp(x, axis=0) > 0, x.std(axis=0), 1)
            # Components without rows are none the worse, nor are rows that are equal
            with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
                warnings.simplefilter("ignore", UserWarning)
                _, clusters = kmeans2(x, min(self.mixture.number, len(x)), minit="++", seed=rng)
            values[self.mixture.value.name] = clusters
        if (factors := self.factor_model) is not None:
            values[factors.value.name] = np.zeros((len(x), factors.number), factors.value.dtype)
        return values

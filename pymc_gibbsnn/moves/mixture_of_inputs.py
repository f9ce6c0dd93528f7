r"""The components of a mixture from which rows of inputs are drawn, and their weights.

Model, for the rows x_i of inputs, of which all entries have values:

    k_i ~ Categorical(π),   x_ij ~ N(μ_kj, τ_kj²) with k = k_i,   π ~ Dirichlet(α).

Conditionals. The network tells of k_i only through x_i:

    p(k_i = k | x_i) ∝ π_k Π_j N(x_ij; μ_kj, τ_kj²),     π | k_1, ..., k_n ~ Dirichlet(α + n),   n_k = Σ_i [k_i = k].

A product over the known entries j alone has those that are not known integrated out. Where rows have factors
(:mod:`pymc_gibbsnn.moves.factors_of_inputs`), these are integrated out, too. The sums over j of

    log N(x_ij; μ_kj, τ_kj²) = −½ x_ij²/τ_kj² + x_ij μ_kj/τ_kj² − ½ (μ_kj²/τ_kj² + log 2π τ_kj²)

are matrix products; x and μ are taken less the mean of the μ of their column, so that few digits cancel.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import uniform

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.factors_of_inputs import log_added_density
from pymc_gibbsnn.networks.random_inputs import FactorModel, LearnedWeights, Mixture
from pymc_gibbsnn.random.vectorised_gamma import vectorised_gamma

if TYPE_CHECKING:
    from pymc_gibbsnn.networks.input_reader import VariableFactors

__all__ = ["by_component", "draw_components", "draw_weights", "log_densities_of_rows", "log_density_of_components"]


def draw_components(
    rng: Variable, mixture: Mixture, x: Variable, known: Variable | None = None, factors: FactorModel | None = None
) -> tuple[Variable, Variable]:
    """Draw the component of each row.

    Parameters
    ----------
    rng : Variable
        The random generator.
    mixture : Mixture
        The mixture.
    x : Variable, (n, d)
        The inputs.
    known : Variable, (n, d), optional
        Which entries are known, as 1 and 0, if the others are to be integrated out.
    factors : FactorModel, optional
        The factors of rows, which are integrated out.

    Returns
    -------
    rng, component : Variable
    """
    zeros = pt.zeros((mixture.number, x.shape[1]), x.dtype)
    of_rows = log_densities_of_rows(x, mixture.mean + zeros, mixture.variance + zeros, known, factors)
    logs = pt.log(mixture.probabilities) + of_rows
    shares = pt.exp(logs - logs.max(axis=1, keepdims=True)).cumsum(axis=1)
    zero, one = pt.constant(np.array([0, 1], x.dtype))
    rng, u = draw(uniform, rng, zero, one, size=(x.shape[0],))
    component = (shares[:, :-1] <= (u * shares[:, -1])[:, None]).sum(axis=1)
    return rng, pt.cast(component, mixture.value.dtype)


def draw_weights(rng: Variable, weights: LearnedWeights, counts: Variable, number: int) -> tuple[Variable, Variable]:
    """Draw learned weights given the components of rows, as the value of their value variable.

    Parameters
    ----------
    rng : Variable
        The random generator.
    weights : LearnedWeights
        The weights.
    counts : Variable, (components,)
        How many rows each component has.
    number : int
        How many components there are.

    Returns
    -------
    rng, value : Variable
    """
    alpha = weights.alpha + counts
    # log of a Gamma(α) variable as that of a Gamma(α + 1) one and log(u)/α, which no small α makes infinite
    zero, one = pt.constant(np.array([0, 1], alpha.dtype))
    rng, gamma = draw(vectorised_gamma, rng, alpha + 1, one, size=(number,))
    rng, u = draw(uniform, rng, zero, one, size=(number,))
    return rng, weights.value_at(pt.log(gamma) + pt.log1p(-u) / alpha)


def by_component(mixture: Mixture | None, entries: Variable, values: dict[Variable, Variable]) -> Variable:
    """Sum the rows (n, d) of each component, (components, d); of all rows, (1, d), where there is no mixture."""
    if mixture is None:
        return entries.sum(axis=0, keepdims=True)
    return _indicators(mixture, values[mixture.value], entries.dtype).T @ entries


def log_densities_of_rows(
    x: Variable,
    mean: Variable,
    variance: Variable,
    known: Variable | None = None,
    factors: FactorModel | VariableFactors | None = None,
) -> Variable:
    """Compute Σ_j log N(x_ij; μ_kj, τ_kj²) of each row and each component (n, components), with factors integrated out.

    Parameters
    ----------
    x : Variable, (n, d)
        The inputs.
    mean, variance : Variable, (components, d)
        μ and τ².
    known : Variable, (n, d), optional
        Over which entries j to sum, as 1 and 0; by default all.
    factors : FactorModel or VariableFactors, optional
        The factors of rows, if they have some.
    """
    middle, known = mean.mean(axis=0), pt.ones_like(x) if known is None else known
    x, mean, precision = (x - middle) * known, mean - middle, 1 / variance
    constant = mean**2 * precision - pt.log(precision) + math.log(2 * math.pi)
    density = x @ (mean * precision).T - (x**2 @ precision.T + known @ constant.T) / 2
    return density if factors is None else density + log_added_density(x, mean, variance, known, factors)


def log_density_of_components(mixture: Mixture, values: dict[Variable, Variable]) -> dict[str, Variable]:
    """Compute the log densities of the components of rows and of their weights, by name."""
    logs, component = pt.log(mixture.probabilities), values[mixture.value]
    indicators = _indicators(mixture, component, logs.dtype)
    densities = {mixture.name: pt.switch(indicators > 0, logs, 0).sum()}
    if (weights := mixture.learned_weights) is not None:
        alpha = weights.alpha
        of_each = pt.switch(pt.eq(alpha, 1), 0, (alpha - 1) * logs)
        of_weights = (of_each - pt.gammaln(alpha)).sum() + pt.gammaln(alpha.sum())
        # d π/d value is Π π_k times the number of components
        jacobian = logs.sum() + math.log(mixture.number) if weights.is_simplex else 0
        densities[weights.name] = of_weights + jacobian
    return densities


def _indicators(mixture: Mixture, component: Variable, dtype: str) -> Variable:
    """Write components as 1 in their column, and 0 elsewhere, (n, components)."""
    return pt.cast(pt.eq(component[:, None], np.arange(mixture.number)), dtype)

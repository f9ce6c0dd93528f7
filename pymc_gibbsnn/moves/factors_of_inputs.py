r"""Factors of rows of the inputs, as in factor analysis, and their loadings.

Model, for the rows x_i (d,) of inputs, with factors f_i (k,) and loadings V (d, k):

    x_ij ~ N(μ_ij + Σ_a V_ja f_ia, τ_ij²),   f_ia ~ N(0, s_a²),   V_ja ~ N(m_ja, v_ja).

Given the entries O of a row that are known, with the others integrated out, f is Gaussian,

    f | x_O ~ N(P⁻¹ u, P⁻¹),   P = diag(1/s²) + Σ_{j∈O} V_j V_jᵀ/τ_j²,   u = Σ_{j∈O} V_j (x_j − μ_j)/τ_j²,

and with f integrated out, too, the density of x_O is, with P = L Lᵀ,

    log p(x_O) = Σ_{j∈O} log N(x_j; μ_j, τ_j²) + ½ |L⁻¹ u|² − log |L| − Σ_a log s_a.

Factors are few, so that the elements of L are written out, each an array over rows (and components of a mixture). Given
x and f, the loadings of a column are the weights of a regression of x_j − μ_j on f:

    V_j | x, f ~ N(Q⁻¹ h, Q⁻¹),   Q = diag(1/v_j) + Σ_i f_i f_iᵀ/τ_ij²,   h = m_j/v_j + Σ_i f_i (x_ij − μ_ij)/τ_ij².

The factors of a row and the entries that are not known are drawn at once given the network
(:mod:`pymc_gibbsnn.moves.random_inputs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import normal

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.gaussian_rows import gaussian_rows
from pymc_gibbsnn.networks.given import given
from pymc_gibbsnn.networks.random_inputs import FactorModel

if TYPE_CHECKING:
    from pymc_gibbsnn.networks.input_reader import VariableFactors

__all__ = ["added_by_factors", "draw_loadings", "factors_of_rows", "log_added_density"]

Rows = Sequence[Variable]  # one for each factor


def added_by_factors(factors: FactorModel | VariableFactors, f: Variable) -> Variable:
    """Compute f Vᵀ (n, d), what factors f (n, k) add to the means of entries."""
    return pt.cast(f, factors.loadings.dtype) @ factors.loadings.T


def factors_of_rows(x: Variable, precision: Variable, factors: FactorModel | VariableFactors, xi: Variable) -> Variable:
    """Compute factors (n, k) from normal numbers, so that they are draws given entries of rows.

    Parameters
    ----------
    x : Variable, (n, d)
        x − μ.
    precision : Variable, (n, d)
        1/τ² of entries that are known, and 0 for the others.
    factors : FactorModel or VariableFactors
        The factors.
    xi : Variable, (n, k)
        Standard normal numbers.
    """
    columns, variances = _by_factor(factors)
    of_rows = [[precision @ (v * w) for w in columns[: a + 1]] for a, v in enumerate(columns)]
    lower = _factorised(of_rows, variances)
    f = [z + xi[:, a] for a, z in enumerate(_solved(lower, [(precision * x) @ v for v in columns]))]
    for a in reversed(range(len(f))):
        f[a] = (f[a] - sum(lower[b][a] * f[b] for b in range(a + 1, len(f)))) / lower[a][a]
    return pt.stack(f, axis=1)


def log_added_density(
    x: Variable, mean: Variable, variance: Variable, known: Variable, factors: FactorModel | VariableFactors
) -> Variable:
    """Compute what factors add to the log densities of rows in each component (n, components), integrated out.

    Parameters
    ----------
    x, known : Variable, (n, d)
        The inputs, and which entries are known, as 1 and 0.
    mean, variance : Variable, (components, d)
        μ and τ².
    factors : FactorModel or VariableFactors
        The factors.
    """
    (columns, variances), certainty = _by_factor(factors), 1 / variance
    of_rows = [[known @ (certainty * v * w).T for w in columns[: a + 1]] for a, v in enumerate(columns)]
    lower = _factorised(of_rows, variances)
    pulls = [(x * known) @ (certainty * v).T - known @ (certainty * v * mean).T for v in columns]
    density = sum(z**2 / 2 for z in _solved(lower, pulls))
    return density - sum(pt.log(row[-1]) + pt.log(s2) / 2 for row, s2 in zip(lower, variances, strict=True))


def _by_factor(factors: FactorModel | VariableFactors) -> tuple[Rows, Rows]:
    """Return the loadings (d,) and the variance s² of each factor."""
    numbers = range(factors.number)
    return [factors.loadings[:, a] for a in numbers], [factors.variance[a] for a in numbers]


def _factorised(of_rows: Sequence[Rows], variances: Rows) -> list[list[Variable]]:
    """Compute the elements of L, where P = L Lᵀ has those of a lower triangle and, on its diagonal, 1/s² besides."""
    lower: list[list[Variable]] = []
    for a, row in enumerate(of_rows):
        lower.append([])
        for b in range(a):
            rest = row[b] - sum(lower[a][c] * lower[b][c] for c in range(b))
            lower[a].append(rest / lower[b][b])
        lower[a].append(pt.sqrt(row[a] + 1 / variances[a] - sum(x**2 for x in lower[a])))
    return lower


def _solved(lower: Sequence[Rows], u: Rows) -> list[Variable]:
    """Compute the elements of L⁻¹ u."""
    z: list[Variable] = []
    for a, row in enumerate(lower):
        z.append((u[a] - sum(row[b] * z[b] for b in range(a))) / row[a])
    return z


def draw_loadings(
    rng: Variable, model: FactorModel, x: Variable, f: Variable, precision: Variable
) -> tuple[Variable, Variable]:
    """Draw learned loadings, as the value of their value variable.

    Parameters
    ----------
    rng : Variable
        The random generator.
    model : FactorModel
        The factors.
    x : Variable, (n, d)
        x − μ.
    f : Variable, (n, k)
        The factors.
    precision : Variable, (n, d)
        1/τ².

    Returns
    -------
    rng, value : Variable
    """
    k, prior = model.number, model.learned_loadings
    zeros, one = pt.zeros_like(model.loadings), pt.constant(np.asarray(1, model.loadings.dtype))
    pairs = (f[:, :, None] * f[:, None, :]).reshape((f.shape[0], k * k))
    # Σ_i f_i f_iᵀ/τ_ij² of each column j, as multiples of the matrices that have one element 1
    single = given(np.eye(k * k).reshape(k * k, k, k).astype(f.dtype))
    linear = (precision * x).T @ f + prior.mean / prior.variance
    rng, xi = draw(normal, rng, zeros, one)
    drawn, group = pt.ones_like(zeros, dtype="bool"), pt.arange(zeros.shape[0])
    new = gaussian_rows(single, precision.T @ pairs, 1 / prior.variance + zeros, drawn, group, linear, xi)
    return rng, pt.cast(new.T if prior.is_transposed else new, prior.value.dtype)

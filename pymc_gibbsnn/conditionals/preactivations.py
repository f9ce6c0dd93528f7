r"""Pre-activations of a layer given its weights, and what they see above them.

Model

    Z = M + N(0, ΔZ),   A = σ(Z) + N(0, ΔA),   Y = A Wᵀ + N(0, ΔZ'),   M = Ã W̃ᵀ (n, h), W (c, h), Y (n, c)

Given A (plain; Piccioli, Troiani, Zdeborová, arXiv 2306.02729, eq. 10), each element is a normal seen through σ, with

    κ = 1/ΔA,   t = A/ΔA.

With A integrated out (collapsed), Y | Z ~ N(σ(Z) Wᵀ, S), S = ΔZ' I + ΔA W Wᵀ, the units of a sample in turn have

    κ_j = w_jᵀ S⁻¹ w_j,   t = (Y − σ(Z) Wᵀ) S⁻¹ w_j + κ_j σ(z_j).

A collapsed draw leaves A out of date: A given Z must follow before anything reads A (van Dyk & Park 2008).

References
----------
.. [1] D. A. van Dyk, T. Park. Partially collapsed Gibbs samplers. JASA 103 (2008).
"""

from __future__ import annotations

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn._compat import draw
from pymc_gibbsnn.activations import PiecewiseLinear
from pymc_gibbsnn.random.piecewise_normal import coupled_piecewise_normal, piecewise_normal

__all__ = ["draw_preactivations", "draw_preactivations_collapsed"]


def draw_preactivations(
    rng: Variable, m: Variable, a: Variable, noise: Variable, noise_above: Variable, function: PiecewiseLinear
) -> tuple[Variable, Variable]:
    """Z (n, h) given M and A (n, h); ``noise`` is ΔZ and ``noise_above`` is ΔA."""
    kappa = pt.ones_like(m[0]) / noise_above
    return draw(piecewise_normal, rng, m, noise, a / noise_above, kappa, *_table(function, m.dtype))


def draw_preactivations_collapsed(
    rng: Variable,
    z: Variable,
    m: Variable,
    y: Variable,
    w: Variable,
    g: Variable,
    noise: Variable,
    function: PiecewiseLinear,
) -> tuple[Variable, Variable]:
    """Z (n, h) with A integrated out, from the current Z, M, Y, W and G = S⁻¹ W."""
    return draw(coupled_piecewise_normal, rng, z, m, noise, y, w, g, *_table(function, m.dtype))


def _table(function: PiecewiseLinear, dtype: str) -> list[Variable]:
    return [pt.constant(x.astype(dtype)) for x in (function.edges, function.slopes, function.intercepts)]

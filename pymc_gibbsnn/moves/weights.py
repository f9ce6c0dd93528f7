r"""Weights and bias of a layer, jointly, given its input and output.

Model

    Z = Ã W̃ᵀ + N(0, Δ),   W̃_ij ~ N(0, 1/Λ_ij),   Ã = [A, 1] (n, d), W̃ = [W, b] (c, d)

Conditional (Piccioli, Troiani, Zdeborová, arXiv 2306.02729, eq. 9, with a bias as in appendix F): the rows of W̃ are
independent,

    W̃_i ~ N(M_i, Q_i⁻¹),   Q_i = ÃᵀÃ/Δ + diag(Λ_i),   Q_i M_i = Ãᵀ Z_i/Δ.

Where all rows share their prior (Λ of shape (1, d)) they share one Cholesky factor. Where A is data besides, ÃᵀÃ is
diagonalised once and a draw takes no factorisation.
"""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal

from pymc_gibbsnn._compat import draw
from pymc_gibbsnn.networks.layers.dense import Dense, transpose

__all__ = ["draw_weights", "draw_weights_from_spectrum", "spectrum"]

ONE = pt.constant(np.float32(1))  # of the lower precision: a draw takes that of its mean


def draw_weights(
    rng: Variable, gram: Variable, products: Variable, noise: Variable, precision: Variable
) -> tuple[Variable, Variable]:
    """W̃ (c, d) given ÃᵀÃ (d, d), ÃᵀZ (d, c), Δ and Λ (1 or c, d).

    With Q = L Lᵀ,  W̃ᵀ = L⁻ᵀ (L⁻¹ ÃᵀZ/Δ + ξ). Layers of one shape are drawn together, where all arrays have an axis
    before these, and Λ one row.
    """
    shared = precision.type.broadcastable[-2]
    if not shared:  # units are as many layers of one unit each
        products, precision = products.T[:, :, None], precision[:, None, :]
    prior = precision[..., 0, :, None] * pt.eye(precision.shape[-1])
    factor = pt.linalg.cholesky(gram / noise + prior)
    target = products / noise
    rng, whitened = draw(normal, rng, pt.linalg.solve_triangular(factor, target, lower=True, b_ndim=2), ONE)
    w = pt.linalg.solve_triangular(transpose(factor), whitened, lower=False, b_ndim=2)
    return rng, transpose(w) if shared else w[:, :, 0]


def spectrum(operator: Dense, a: Variable, n: Variable, precision: Variable, thin: bool) -> tuple[Variable, Variable]:
    """(U, e) with Λ^{-1/2} ÃᵀÃ Λ^{-1/2} = U diag(e) Uᵀ, for an input A of n samples and a prior shared by all rows.

    U is (d, d), or (d, n) where ``thin``: with fewer samples than weights, the other directions keep their prior.
    """
    scale = 1 / pt.sqrt(precision[0])
    if thin:
        _, singular_values, u = pt.linalg.svd(operator.design(a, n) * scale, full_matrices=False)
        return u.T, singular_values**2
    eigenvalues, u = pt.linalg.eigh(scale[:, None] * operator.gram(a, n) * scale)
    return u, pt.maximum(eigenvalues, 0)


def draw_weights_from_spectrum(
    rng: Variable,
    u: Variable,
    eigenvalues: Variable,
    products: Variable,
    noise: Variable,
    precision: Variable,
    thin: bool,
) -> tuple[Variable, Variable]:
    """W̃ (c, d) from the spectrum of the data, ÃᵀZ (d, c), Δ and Λ (1, d).

    In the eigenbasis the coordinates of Λ^{1/2} W̃ᵀ are independent,

        x ~ N(Uᵀ Λ^{-1/2} ÃᵀZ/(e + Δ), Δ/(e + Δ)),    W̃ᵀ = Λ^{-1/2} (U x + ξ − U Uᵀ ξ),

    ξ from the whitened prior, for the directions that a thin U leaves out.
    """
    scale = 1 / pt.sqrt(precision[0])[:, None]
    shrink = 1 / (eigenvalues + noise)[:, None]
    rng, x = draw(normal, rng, (u.T @ (scale * products)) * shrink, pt.sqrt(noise * shrink))
    if thin:
        rng, xi = draw(normal, rng, pt.zeros_like(products), ONE)
        return rng, (scale * (xi + u @ (x - u.T @ xi))).T
    return rng, (scale * (u @ x)).T

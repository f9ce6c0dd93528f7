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

from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.random import normal

from pymc_gibbsnn._compat import draw
from pymc_gibbsnn.moves.site import Move, NetworkState, Site
from pymc_gibbsnn.networks.layers.dense import Dense, transpose
from pymc_gibbsnn.networks.network import Layer, Network

__all__ = [
    "data_spectrum",
    "data_weights",
    "draw_weights",
    "draw_weights_from_spectrum",
    "draw_weights_of",
    "spectrum",
    "weights_above",
]

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


def draw_weights_of(
    rng: Variable, layer: Layer, a: Variable, z: Variable, samples: Variable
) -> tuple[Variable, Variable]:
    """W̃ of a layer given its input A (n, d) and output Z (n, c)."""
    operator = layer.operator
    gram, moments = operator.gram(a, samples), operator.moments(a, layer.centred(z))
    return draw_weights(rng, gram, moments, layer.noise, operator.precision)


@Move
def weights_above(rng: Variable, site: Site, carry: dict) -> tuple[Variable, Site, dict, dict]:
    """W̃ of the layer above, given its input and output."""
    rng, w = draw_weights_of(rng, site.above, site.post, site.z_above, site.samples)
    return rng, replace(site, w_above=w), carry, {}


def data_weights(network: Network) -> Move:
    """W̃ of the first layer. What of its data can be computed once is kept.

    That is their spectrum, or ÃᵀÃ where units or draws differ in their prior.
    """
    operator, a = network.layers[0].operator, network.inputs
    gram, thin = f"gram_{operator.name}", network.is_thin
    by_spectrum = isinstance(operator.precision, Constant) and operator.shares_prior
    start = data_spectrum(network) if by_spectrum else {gram: operator.gram(a, a.shape[0])}

    def step(rng: Variable, state: NetworkState, carry: dict) -> tuple[Variable, NetworkState, dict, dict]:
        layer = state.network.layers[0]
        moments = layer.operator.moments(state.network.inputs, layer.centred(state.outputs[0]))
        law = moments, layer.noise, layer.operator.precision
        if by_spectrum:
            rng, w = draw_weights_from_spectrum(rng, *(carry[name] for name in start), *law, thin)
        else:
            rng, w = draw_weights(rng, carry[gram], *law)
        return rng, replace(state, weights=(w, *state.weights[1:])), carry, {}

    return Move(step, start)


def data_spectrum(network: Network) -> dict[str, Variable]:
    """(U, e) of the data for the mean of their precisions over units, or for 1 where precisions change, by name."""
    operator, a = network.layers[0].operator, network.inputs
    precision = operator.precision.mean(axis=0, keepdims=True)
    if not isinstance(operator.precision, Constant):
        precision = pt.ones((1, operator.fan_in), dtype=a.dtype)
    u, eigenvalues = spectrum(operator, a, a.shape[0], precision, network.is_thin)
    return {f"u_{operator.name}": u, f"eigenvalues_{operator.name}": eigenvalues}

r"""Weights and bias of a layer, drawn jointly given its input and output.

Model, with c units and Z less any offset

    Z = Ã W̃ᵀ + N(0, Δ),   W̃_ij ~ N(0, 1/Λ_ij),   Ã = [A, 1] (n, d), W̃ = [W, b] (c, d)

Conditional (Piccioli, Troiani, Zdeborová, arXiv 2306.02729, eq. 9, with a bias as in appendix F): the rows of W̃, one
for each unit, are independent,

    W̃_i ~ N(M_i, Q_i⁻¹),   Q_i = ÃᵀÃ/Δ + diag(Λ_i),   Q_i M_i = Ãᵀ Z_i/Δ.

Rows with the same prior (Λ of shape (1, d)) have one Cholesky factor. If A is also data, ÃᵀÃ is diagonalised once, and
a draw needs no factorisation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.plus_diagonal import plus_diagonal
from pymc_gibbsnn.moves.site import NOTHING, Move, NetworkState, Nothing, Site
from pymc_gibbsnn.networks.given import is_given
from pymc_gibbsnn.networks.layers.dense import transpose
from pymc_gibbsnn.networks.layers.weighted import Weighted
from pymc_gibbsnn.networks.network import Layer, Network

__all__ = [
    "Spectrum",
    "data_spectrum",
    "data_weights",
    "draw_weights",
    "draw_weights_from_spectrum",
    "draw_weights_of",
    "spectrum",
    "weights_above",
]

Size = tuple[Variable | int, ...]  # it is given, because PyTensor does not always write shapes of computed arrays alike
ONE = pt.constant(np.float32(1))  # in single precision, so that a draw has the precision of its mean


def draw_weights(
    rng: Variable, gram: Variable, products: Variable, noise: Variable, precision: Variable, size: Size
) -> tuple[Variable, Variable]:
    """Draw W̃ by a Cholesky factor: with Q = L Lᵀ and ξ ~ N(0, I), W̃ᵀ = L⁻ᵀ (L⁻¹ ÃᵀZ/Δ + ξ).

    A batch of layers of the same shape is drawn at once if all arrays have one more axis in front, and Λ has one row.

    Parameters
    ----------
    rng : Variable
        The random generator.
    gram : Variable, (d, d)
        ÃᵀÃ.
    products : Variable, (d, c)
        ÃᵀZ.
    noise : Variable, ()
        The variance Δ; of shape (layers, 1, 1) for a batch.
    precision : Variable, (1 or c, d)
        Prior precisions Λ, in one row if all units share them.
    size : tuple of Variable or int
        The shape (c, d) of W̃, with the number of layers in front for a batch.

    Returns
    -------
    rng : Variable
    w : Variable, (c, d)
    """
    shared = precision.type.broadcastable[-2]
    *layers, c, d = size
    size = *layers, d, c
    if not shared:  # treat units as a batch of layers of one unit each
        products, precision, size = products.T[:, :, None], precision[:, None, :], (c, d, 1)
        # The lengths are given, because those that PyTensor would work out vary their order from process to process.
        gram, precision = pt.specify_shape(gram, (d, d)), pt.specify_shape(precision, (c, 1, d))
        products = pt.specify_shape(products, (c, d, 1))
    factor = pt.linalg.cholesky(plus_diagonal(gram / noise, precision[..., 0, :]))
    target = products / noise
    mean = pt.linalg.solve_triangular(factor, target, lower=True, b_ndim=2)
    rng, whitened = draw(normal, rng, mean, ONE, size=size)
    w = pt.linalg.solve_triangular(transpose(factor), whitened, lower=False, b_ndim=2)
    return rng, transpose(w) if shared else w[:, :, 0]


class Spectrum(NamedTuple):
    """The spectrum Λ^{-1/2} ÃᵀÃ Λ^{-1/2} = U diag(e) Uᵀ of the input of a layer, for a prior that all units share."""

    u: Variable  # U (d, d), or (d, n) if it is thin
    eigenvalues: Variable  # e (d,) or (n,)


def spectrum(operator: Weighted, a: Variable, n: Variable, precision: Variable, thin: bool) -> Spectrum:
    """Compute the spectrum of the input of a layer.

    Parameters
    ----------
    operator : Weighted
        The operator of the layer.
    a : Variable, (n, inputs)
        Its input A.
    n : Variable, ()
        The number of samples.
    precision : Variable, (1, d)
        Prior precisions Λ.
    thin : bool
        Whether to find only the n directions that fewer samples than weights determine; in the others weights keep
        their prior.
    """
    scale = 1 / pt.sqrt(precision[0])
    if thin:
        _, singular_values, u = pt.linalg.svd(operator.design(a, n) * scale, full_matrices=False)
        return Spectrum(u.T, singular_values**2)
    eigenvalues, u = pt.linalg.eigh(scale[:, None] * operator.gram(a, n) * scale)
    return Spectrum(u, pt.maximum(eigenvalues, 0))


def draw_weights_from_spectrum(
    rng: Variable,
    basis: Spectrum,
    products: Variable,
    noise: Variable,
    precision: Variable,
    size: Size,
    thin: bool,
) -> tuple[Variable, Variable]:
    """Draw W̃ by the spectrum of the input.

    In the eigenbasis the coordinates x of Λ^{1/2} W̃ᵀ are independent,

        x ~ N(Uᵀ Λ^{-1/2} ÃᵀZ/(e + Δ), Δ/(e + Δ)),    W̃ᵀ = Λ^{-1/2} (U x + ξ − U Uᵀ ξ),

    where ξ ~ N(0, I) fills the directions that a thin U leaves out, in which the prior stays as it is.

    Parameters
    ----------
    rng : Variable
        The random generator.
    basis : Spectrum
        U (d, r) and e (r,).
    products : Variable, (d, c)
        ÃᵀZ.
    noise : Variable, ()
        The variance Δ.
    precision : Variable, (1, d)
        Prior precisions Λ, the same for all units.
    size : tuple of Variable or int
        The shape (c, d) of W̃.
    thin : bool
        Whether U leaves directions out.

    Returns
    -------
    rng : Variable
    w : Variable, (c, d)
    """
    u, eigenvalues = basis
    scale = 1 / pt.sqrt(precision[0])[:, None]
    shrink = 1 / (eigenvalues + noise)[:, None]
    c, d = size
    mean, sd = (u.T @ (scale * products)) * shrink, pt.sqrt(noise * shrink)
    rng, x = draw(normal, rng, mean, sd, size=(eigenvalues.shape[0], c))
    if thin:
        rng, xi = draw(normal, rng, pt.cast(0, products.dtype), ONE, size=(d, c))
        return rng, (scale * (xi + u @ (x - u.T @ xi))).T
    return rng, (scale * (u @ x)).T


def draw_weights_of(
    rng: Variable, layer: Layer, a: Variable, z: Variable, samples: Variable
) -> tuple[Variable, Variable]:
    """Draw W̃ of a layer given its input and output.

    Where the variance of its noise is one for each row, (n, 1), rows are divided by its root first.

    Parameters
    ----------
    rng : Variable
        The random generator.
    layer : Layer
        The layer.
    a, z : Variable, (n, inputs) and (n, c)
        Its input A and output Z.
    samples : Variable, ()
        The number n of samples.

    Returns
    -------
    rng : Variable
    w : Variable, (c, d)
    """
    operator, z, noise = layer.operator, layer.centred(z), layer.noise
    if noise.ndim:
        ones, noise = 1 / pt.sqrt(noise), pt.constant(np.asarray(1, z.dtype))
        operator, a, z = operator.of_scaled_rows(ones), a * ones, z * ones
    gram, moments = operator.gram(a, samples), operator.moments(a, z)
    return draw_weights(rng, gram, moments, noise, operator.precision, operator.size)


def weights_above(rng: Variable, site: Site) -> tuple[Variable, Site]:
    """Draw the weights W̃ of the layer above, given its input and output."""
    rng, w = draw_weights_of(rng, site.above, site.post, site.z_above, site.samples)
    return rng, replace(site, w_above=w)


class Gram(NamedTuple):
    """What :func:`data_weights` remembers where it has no use for the spectrum of the data: ÃᵀÃ (d, d).

    Where a few rows change in each sweep, it is that of the others.
    """

    gram: Variable


def data_weights(network: Network) -> Move:
    """Make the move that draws the weights W̃ of the first layer, and keeps what can be computed once from its data.

    This is the spectrum of the data or, if the prior differs between units or is learned, ÃᵀÃ. Where inputs of a few
    rows are drawn, it is ÃᵀÃ of the others; where rows have scales, or most inputs are drawn, nothing is kept.
    """
    operator, a, thin = network.layers[0].operator, network.lasting_inputs, network.is_thin
    is_kept, changing = network.keeps_inputs, network.changing_rows
    by_spectrum = operator.shares_prior and (is_given(operator.precision) if is_kept else thin)
    keeps_gram = a is not None and not by_spectrum

    def step(rng: Variable, state: NetworkState, memory: Any) -> tuple[Variable, NetworkState, Any, Nothing]:
        layer, a = state.network.layers[0], state.network.inputs
        operator = layer.operator
        regression = (
            operator.moments(a, layer.centred(state.outputs[0])),
            layer.noise,
            operator.precision,
            operator.size,
        )
        if by_spectrum:
            basis = memory if is_kept else spectrum(operator, a, state.samples, operator.precision, thin)
            rng, w = draw_weights_from_spectrum(rng, basis, *regression, thin)
        else:
            gram = memory.gram if keeps_gram else operator.gram(a, state.samples)
            if keeps_gram and changing is not None:
                gram = gram + operator.gram(a[changing], changing.shape[0])
            rng, w = draw_weights(rng, gram, *regression)
        return rng, replace(state, weights=(w, *state.weights[1:])), memory, NOTHING

    memory: Spectrum | Gram | Nothing = NOTHING
    if keeps_gram:
        memory = Gram(operator.gram(a, a.shape[0]))
    elif is_kept:
        memory = data_spectrum(network)
    return Move.of(operator.name, step, memory)


def data_spectrum(network: Network) -> Spectrum:
    """Compute the spectrum of data that no move changes, which several moves may remember.

    It is that for the mean of the prior precisions over units, or for precisions of 1 if they are learned. Where rows
    have scales, it is that without them, and where a few rows change, that of the others.
    """
    operator, a = network.layers[0].operator, network.inputs
    if network.changing_rows is not None:
        a = network.lasting_inputs
    precision = operator.precision.mean(axis=0, keepdims=True)
    if not is_given(operator.precision):
        precision = pt.ones((1, operator.fan_in), dtype=a.dtype)
    return spectrum(operator, a, a.shape[0], precision, network.is_thin)

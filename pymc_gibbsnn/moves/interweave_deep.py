r"""The interweaving move of one unit of a lower hidden layer at a time, all noise above held fixed.

With two hidden layers or more, :mod:`pymc_gibbsnn.moves.interweave_pieces` moves the weights of a lower layer given the
output of the layer above. This output has little noise, so that they hardly change. So here it moves along: with the
weights W̃_j of unit j of layer l all Z and A above change, each with its noise held fixed. Only the last A is integrated
out. In the letters of :mod:`pymc_gibbsnn.moves`, with the last weights W (c, h') and the data, or last latent, Y (n, c)
less its bias and offset,

    Y = f(W̃_j) + N(0, S),     f = σ(Z_L) Wᵀ,     S = ΔZ' I + ΔA W Wᵀ,

where Z_L, the last pre-activations, follow from

    Z_j = Ã W̃_j + ε_j,     A_i = σ(Z_i) + noise,     Z_{i+1} = Ã_i W̃_iᵀ + noise   for all layers i from l on.

On the linear pieces on which all these Z lie now, f is linear, and the target is Gaussian. Let g_μ (c,) be the
derivative of f of sample μ by z_μj, a product of all weights and slopes on the way up. Then

    Q = Ãᵀ diag(g_μᵀ S⁻¹ g_μ) Ã + Λ,     ∇ = Σ_μ Ã_μ g_μᵀ S⁻¹ (Y_μ − f_μ) − Λ W̃_j.

Proposal, acceptance and the two passes over the units are those of :mod:`pymc_gibbsnn.moves.interweave_pieces`. A draw
of the last A must follow before anything reads it. All of this is done in double precision, where JAX has it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from scipy.linalg import solve_triangular

from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.lines import on_lines
from pymc_gibbsnn.moves.interweave_deep_kernels import numba_deep_passes
from pymc_gibbsnn.moves.plus_diagonal import plus_diagonal
from pymc_gibbsnn.moves.site import NOTHING, Move, NetworkState, Nothing
from pymc_gibbsnn.moves.unit_passes import (
    UnitPasses,
    cholesky_or_nan,
    draw_numbers,
    propose,
    ratio_of_proposals,
    scan_units,
    visit_units,
)
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.given import given
from pymc_gibbsnn.networks.network import Network

__all__ = ["DeepInputs", "DeepOutputs", "InterweaveDeep", "interweave_deep"]


class DeepInputs(NamedTuple):
    """What :class:`InterweaveDeep` takes, in double precision but for ``widths``."""

    x: Any  # (n, d): the layer's input Ã
    w: Any  # (h, d): its weights W̃
    z: Any  # (n, h): its output
    latents: Any  # (n, units): the Z of the hidden layers above, side by side
    weights: Any  # (numbers,): the weights W of all layers above without their biases, one after the other
    widths: Any  # (layers + 1,): h, the numbers of units of the hidden layers above, and c; known to JAX
    y: Any  # (n, c): Y
    inverse: Any  # (c, c): S⁻¹
    precision: Any  # (1 or h, d): prior precisions Λ, one row where all units share them
    rho: Any  # (p, h): for each of p passes and each unit, the persistence
    log_u: Any  # (p, h): the logarithms of uniform numbers
    xi: Any  # (p, h, d): standard normal numbers
    tables: Any  # (layers, 3, k): edges, slopes and intercepts of each activation, from this layer upwards


class DeepOutputs(NamedTuple):
    """What it returns: values after the passes, and ones in ``accepted`` (p, h) where a unit moved."""

    w: Any
    z: Any
    latents: Any
    accepted: Any


class InterweaveDeep(UnitPasses):
    r"""Passes of the move over the units of a layer: a deterministic function of the random numbers that it is given.

    It takes :class:`DeepInputs` and returns :class:`DeepOutputs`.
    """

    __props__ = ()
    takes, returns = DeepInputs, DeepOutputs

    def perform(self, node, inputs, outputs):
        """Compute the outputs with NumPy and SciPy."""
        solve = partial(solve_triangular, check_finite=False)
        results = _passes(DeepInputs(*inputs), visit_units, xp=np, cholesky=cholesky_or_nan, solve=solve)
        for output, result in zip(outputs, results, strict=True):
            output[0] = result


def _passes(inputs, visit_all, *, xp, cholesky, solve):
    """Compute the outputs of :class:`InterweaveDeep`, with NumPy or JAX.

    Parameters
    ----------
    inputs : DeepInputs
        Its inputs.
    visit_all : callable
        How units are visited.
    xp, cholesky, solve
        As of ``_visit``.
    """
    layers, above = _above(inputs, xp)
    visit = partial(_visit, inputs, layers, xp=xp, cholesky=cholesky, solve=solve)
    priors, numbers = (xp.broadcast_to(inputs.precision, inputs.w.shape),), (inputs.rho, inputs.log_u, inputs.xi)
    above, w, z, accepted = visit_all(visit, above, inputs.w, inputs.z, priors, numbers)
    return DeepOutputs(w, z, xp.concatenate(above.latents, axis=1), accepted)


class Above(NamedTuple):
    """What a visit to a unit changes above it."""

    latents: tuple  # Z of each hidden layer above
    residual: Any  # Y − f (n, c)


def _above(inputs, xp):
    """Return the weights W of all layers above, and what is above before the passes."""
    widths, layers, first = np.asarray(inputs.widths), [], 0  # which JAX, too, has as numbers
    for below, units in pairwise(widths):
        layers.append(inputs.weights[first : first + units * below].reshape((units, below)))
        first += units * below
    latents = tuple(xp.split(inputs.latents, np.cumsum(widths[1:-2]), axis=1))
    s, _ = on_lines(latents[-1], *inputs.tables[-1], xp)
    return layers, Above(latents, inputs.y - s @ layers[-1].T)


def _visit(inputs, layers, above, j, unit, numbers, *, xp, cholesky, solve):
    """Propose a move of unit j and decide whether it is accepted; for NumPy and JAX.

    Parameters
    ----------
    inputs : DeepInputs
        Of which those that all visits share are read.
    layers : sequence of array
        The weights W of all layers above.
    above : Above
        What is above, as it is.
    j : int
        The unit.
    unit : tuple of array
        W̃_j (d,), Z_j (n,) and Λ (d,).
    numbers : tuple of array
        ρ, log u and ξ (d,).
    xp : module
        ``numpy`` or ``jax.numpy``.
    cholesky, solve : callable
        The Cholesky factor of a matrix, NaN where there is none, and SciPy's ``solve_triangular``.

    Returns
    -------
    accepted : bool
    w, z : array
        W̃_j and Z_j after the visit.
    above : Above
    """
    (w, z, precision), (rho, log_u, xi), x = unit, numbers, inputs.x
    first, *others = layers

    def approximate(w, slopes, residual):
        """Compute the Cholesky factor L of Q, and L⁻¹ ∇, from the slopes of the unit and of each layer above."""
        g = slopes[0][:, None] * first[:, j]
        for of_layer, weights in zip(slopes[1:], others, strict=True):
            g = (g * of_layer) @ weights.T
        weighted = g @ inputs.inverse
        factor = cholesky((x * (weighted * g).sum(1)[:, None]).T @ x + xp.diag(precision))
        return factor, solve(factor, x.T @ (weighted * residual).sum(1) - precision * w, lower=True)

    (latents, residual), (own, *tables) = above, inputs.tables
    s, a = on_lines(z, *own, xp)
    upper = [on_lines(latent, *table, xp) for latent, table in zip(latents, tables, strict=True)]
    factor, drift = approximate(w, [a, *(a for _, a in upper)], residual)
    step = propose(factor, drift, rho, xi, solve, xp)

    w_new, z_new = w + step, z + x @ step
    s_new, a_new = on_lines(z_new, *own, xp)
    change, latents_new, slopes_new = (s_new - s)[:, None] * first[:, j], [], [a_new]
    for (s, _), latent, table, weights in zip(upper, latents, tables, others, strict=True):
        latents_new.append(latent + change)
        s_new, a_new = on_lines(latents_new[-1], *table, xp)
        slopes_new.append(a_new)
        change = (s_new - s) @ weights.T
    residual_new = residual - change
    factor_new, drift_new = approximate(w_new, slopes_new, residual_new)
    log_ratio = (
        (change @ inputs.inverse * (residual + residual_new)).sum() / 2
        - (precision * step * (w + w_new)).sum() / 2
        + ratio_of_proposals(step, factor, factor_new, drift_new, rho, xi, xp)
    )
    accepted = log_u < log_ratio

    def kept(new, old):
        return xp.where(accepted, new, old)

    latents = tuple(kept(*pair) for pair in zip(latents_new, latents, strict=True))
    return accepted, kept(w_new, w), kept(z_new, z), Above(latents, kept(residual_new, residual))


def interweave_deep(network: Network, l: int) -> Move:
    """Make the move of W̃ and Z of layer l and of all latents above, which visits all units twice.

    All layers above must be dense, and all activations from layer l on of linear pieces.
    """
    last = len(network.activations) - 1
    widths = given(np.array([layer.operator.shape[0] for layer in network.layers[l:]]))
    tables = _tables([activation.function for activation in network.activations[l:]])

    def step(rng: Variable, state: NetworkState, memory: Nothing) -> tuple[Variable, NetworkState, Nothing, Any]:
        operator, top, dtype = state.network.layers[l].operator, state.site(last), "float64"
        rng, numbers = draw_numbers(rng, operator.size, dtype)
        upper = range(l + 1, last + 1)
        weights = [network.layers[i].operator.linear(state.weights[i]) for i in range(l + 1, last + 2)]
        v, *noises = (pt.cast(part, dtype) for part in (top.v, top.above.noise, top.activation.noise))
        covariance = plus_diagonal(noises[1] * (v @ v.T), noises[0] * pt.ones_like(v[:, 0]))
        inputs = DeepInputs(
            x=operator.design(state.input(l), state.samples),
            w=state.weights[l],
            z=state.outputs[l],
            latents=pt.concatenate([state.outputs[i] for i in upper], axis=1),
            weights=pt.concatenate([w.flatten() for w in weights]),
            widths=widths,
            y=top.y,
            inverse=pt.linalg.inv(covariance),
            precision=operator.precision,
            **dict(zip(("rho", "log_u", "xi"), numbers, strict=True)),
            tables=tables,
        )
        inputs = DeepInputs(*(pt.cast(x, dtype) for x in inputs))._replace(widths=widths)
        outputs = DeepOutputs(*InterweaveDeep()(*inputs))
        of_float = state.weights[l].dtype
        weights, zs, posts = list(state.weights), list(state.outputs), list(state.posts)
        weights[l] = pt.cast(outputs.w, of_float)
        moved, first = pt.concatenate([outputs.z, outputs.latents], axis=1), 0
        for i in range(l, last + 1):
            units, function = state.network.layers[i].operator.size[0], network.activations[i].function
            z, first = pt.cast(moved[:, first : first + units], of_float), first + units
            if i < last:
                posts[i] = posts[i] + (function(z) - function(zs[i]))
            zs[i] = z
        posts[last] = None
        state = replace(state, weights=tuple(weights), outputs=tuple(zs), posts=tuple(posts))
        return rng, state, memory, DeepAcceptance(pt.cast(outputs.accepted.mean(), of_float))

    return Move.of(network.layers[l].operator.name, step, NOTHING, DeepAcceptance)


class DeepAcceptance(NamedTuple):
    """What the move reports: the share of its proposals that were accepted."""

    deep_acceptance: Variable


def _tables(functions: list[PiecewiseLinear]) -> np.ndarray:
    """Stack the tables of several activations; those of fewer pieces get further ones that begin at infinity."""
    pieces = max(len(function.slopes) for function in functions)
    tables = np.full((len(functions), 3, pieces), np.inf)
    for table, function in zip(tables, functions, strict=True):
        table[1:] = 0
        k = len(function.slopes)
        table[:, :k] = function.edges[:-1], function.slopes, function.intercepts
    return tables


def _jax(op, node):
    """Make the function of :class:`DeepInputs` for JAX, which scans over passes and units."""
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular

    cholesky = partial(jnp.linalg.cholesky, symmetrize_input=False)

    def passes(*inputs):
        return _passes(DeepInputs(*inputs), scan_units, xp=jnp, cholesky=cholesky, solve=solve_triangular)

    return passes


declare(InterweaveDeep, numba=numba_deep_passes, jax=_jax)

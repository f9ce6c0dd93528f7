r"""The interweaving move of one unit at a time with the weights above integrated out, all noise held fixed.

The move of :mod:`pymc_gibbsnn.moves.interweave_pieces` holds the weights above fixed. But what a unit can do depends on
what the weights above make of it, and of all other units: on many real data sets these move together or hardly at all.
So here the post-activations A are given in place of the weights W̃' of the layer above. Let B = Ã' (n, H) be the input
of that layer, bias included, Y (n, c) its output less an offset, and Λ' the prior precisions of W̃', the same for each
of the c units above. Let b be the column of B that is the output of unit j below, w (c,) the weights of W̃' that go out
of it, λ their prior precision, and a subscript −j all columns but this one. With all other weights of W̃' integrated
out, each column of Y is Gaussian,

    Y_k | b, w ~ N(b w_k, K⁻¹),   K = T − T B_{−j} C B_{−j}ᵀ T,   C = (B_{−j}ᵀ T B_{−j} + Λ'_{−j})⁻¹,   T = I/ΔZ'.

First w is drawn, which its conditional distribution makes independent of all that was before:

    w_k ~ N(bᵀ K Y_k / p, 1/p),   p = λ + bᵀ K b.

Then W̃_j moves, with the noise ε = Z_j − Ã W̃_j of its pre-activations held fixed, and the noise of b around σ(Z_j), so
that b = σ(Ã W̃_j + ε) + A_j − σ(Z_j). With κ = Σ w_k² and Ȳ = Σ w_k Y_k the target is

    log π(W̃_j) = bᵀ K Ȳ − κ bᵀ K b/2 − ½ W̃_jᵀ Λ W̃_j.

On the linear pieces on which Z_j lies now, of slopes a, it is Gaussian, with D = diag(a) Ã and

    Q = κ Dᵀ K D + Λ,     ∇ = Dᵀ K (Ȳ − κ b) − Λ W̃_j.

The proposal and its acceptance are those of :mod:`pymc_gibbsnn.moves.interweave_pieces`, and so are the two passes over
the units: with ρ = 0, then with a random ρ. A draw of W̃' given A must follow before anything reads W̃'.

BᵀTB is kept, and a visit factors the matrix of which C is the inverse, L Lᵀ. What is needed of K are products such as
bᵀ K b = bᵀTb − ‖L⁻¹v‖², with v = B_{−j}ᵀTb, so that K is never formed. Nor is C, or any update of it: where noise is
small and columns of B are nearly linearly dependent, C has numbers of the size of 1/Λ', whose rounding errors alone,
times v twice, are more than the target. The errors of a Cholesky factor are those of a slightly different BᵀTB. A visit
takes O(n H d + H³) operations, and with M = B_{−j}ᵀTD, Dᵀ K D = DᵀTD − ‖L⁻¹M‖². The change of the
target is computed from that of b, as a difference of two targets would lose digits. All of this is done in double
precision; where JAX has none, no unit moves.

Rows may have variances ΔZ' of their own if there is one unit above, or for all units alike: T is any diagonal matrix.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal
from scipy.linalg import solve_triangular

from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.backends.lines import on_lines
from pymc_gibbsnn.moves.interweave_marginal_kernels import numba_marginal_passes
from pymc_gibbsnn.moves.site import NOTHING, Move, Nothing, Site
from pymc_gibbsnn.moves.unit_passes import (
    UnitPasses,
    cholesky_or_nan,
    draw_numbers,
    propose,
    ratio_of_proposals,
    scan_units,
    visit_units,
)
from pymc_gibbsnn.networks.network import Network

__all__ = ["InterweaveMarginal", "MarginalInputs", "MarginalOutputs", "interweave_marginal"]


class MarginalInputs(NamedTuple):
    """What :class:`InterweaveMarginal` takes, in double precision."""

    x: Any  # (n, d): the layer's input Ã
    w: Any  # (h, d): its weights W̃
    z: Any  # (n, h): its output
    root: Any  # (n,): the square roots of T
    b: Any  # (n, H): the input B of the layer above, its rows times the roots
    y: Any  # (n, c): the output Y of the layer above, its rows times the roots
    precision: Any  # (1 or h, d): prior precisions Λ, one row where all units share them
    above: Any  # (H,): prior precisions Λ' of the weights above
    rho: Any  # (p, h): for each of p passes and each unit, the persistence
    log_u: Any  # (p, h): the logarithms of uniform numbers
    xi: Any  # (p, h, d): standard normal numbers
    eta: Any  # (p, h, c): standard normal numbers for w
    edges: Any  # (k + 1,): the table of σ
    slopes: Any  # (k,)
    intercepts: Any  # (k,)


class MarginalOutputs(NamedTuple):
    """What it returns: values after the passes, and ones in ``accepted`` (p, h) where a unit moved."""

    w: Any
    z: Any
    accepted: Any


class InterweaveMarginal(UnitPasses):
    r"""Passes of the move over the units of a layer: a deterministic function of the random numbers that it is given.

    It takes :class:`MarginalInputs` and returns :class:`MarginalOutputs`.
    """

    __props__ = ()
    takes, returns = MarginalInputs, MarginalOutputs

    def perform(self, node, inputs, outputs):
        """Compute the outputs with NumPy and SciPy."""
        solve = partial(solve_triangular, check_finite=False)
        results = _passes(MarginalInputs(*inputs), visit_units, xp=np, cholesky=cholesky_or_nan, solve=solve)
        for output, result in zip(outputs, results, strict=True):
            output[0] = result


def _passes(inputs, visit_all, *, xp, cholesky, solve):
    """Compute the outputs of :class:`InterweaveMarginal`, with NumPy or JAX.

    Parameters
    ----------
    inputs : MarginalInputs
        Its inputs.
    visit_all : callable
        How units are visited.
    xp, cholesky, solve
        As of ``_visit``.
    """
    visit = partial(_visit, inputs, xp=xp, cholesky=cholesky, solve=solve)
    priors = xp.broadcast_to(inputs.precision, inputs.w.shape), inputs.above[: len(inputs.w)]
    numbers = inputs.rho, inputs.log_u, inputs.xi, inputs.eta
    _, *results = visit_all(visit, Above(inputs.b, inputs.b.T @ inputs.b), inputs.w, inputs.z, priors, numbers)
    return MarginalOutputs(*results)


class Above(NamedTuple):
    """What a visit to a unit changes of the layer above; its rows are multiplied by the roots of T."""

    b: Any  # (n, H)
    products: Any  # BᵀTB (H, H)


def _visit(inputs, above, j, unit, numbers, *, xp, cholesky, solve):
    """Propose a move of unit j and decide whether it is accepted; for NumPy and JAX.

    Parameters
    ----------
    inputs : MarginalInputs
        Of which those that all visits share are read.
    above : Above
        The layer above as it is.
    j : int
        The unit.
    unit : tuple of array
        W̃_j (d,), Z_j (n,), Λ (d,) and λ ().
    numbers : tuple of array
        ρ, log u, ξ (d,) and η (c,).
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
    (w, z, precision, prior), (rho, log_u, xi, eta) = unit, numbers
    (b, products), (x, root, y), table = above, (inputs.x, inputs.root, inputs.y), inputs[-3:]
    is_j = xp.arange(len(products)) == j
    others = xp.where(is_j[:, None] | is_j, 0, products + xp.diag(inputs.above)) + xp.diag(1.0 * is_j)
    root_of_others = cholesky(others)

    def whiten(m):
        """Compute L⁻¹ of what B_{−j} has in common with a matrix or vector: of BᵀT times it."""
        return solve(root_of_others, xp.where(is_j if m.ndim == 1 else is_j[:, None], 0, m), lower=True)

    def less_fit(column):
        """Compute K times a column (n,), both with rows times the roots of T: what the other units leave of it."""
        return column - b @ solve(root_of_others, whiten(column @ b), lower=True, trans=1)

    def approximate(w, slopes, rest):
        """Compute the Cholesky factor L of Q, and L⁻¹ ∇, from K (Ȳ − κ b)."""
        design = (root * slopes)[:, None] * x
        half = whiten(b.T @ design)
        factor = cholesky(kappa * (design.T @ design - half.T @ half) + xp.diag(precision))
        return factor, solve(factor, design.T @ rest - precision * w, lower=True)

    post, (s, a) = b[:, j], on_lines(z, *table, xp)
    rest = less_fit(post)
    p = prior + rest @ post
    p = xp.where(p > 0, p, xp.nan)  # where it is lost to rounding, the unit does not move
    out = rest @ y / p + eta / xp.sqrt(p)
    kappa, rest = out @ out, less_fit((y - post[:, None] * out) @ out)
    factor, drift = approximate(w, a, rest)
    step = propose(factor, drift, rho, xi, solve, xp)

    w_new, z_new = w + step, z + x @ step
    s_new, a_new = on_lines(z_new, *table, xp)
    change = root * (s_new - s)
    less = less_fit(change)
    factor_new, drift_new = approximate(w_new, a_new, rest - kappa * less)
    # The change of the target: the target itself would lose digits, since it is large where noise is small
    log_ratio = (
        change @ rest
        - kappa * (change @ less) / 2
        - (precision * step * (w + w_new)).sum() / 2
        + ratio_of_proposals(step, factor, factor_new, drift_new, rho, xi, xp)
    )
    accepted = log_u < log_ratio

    def kept(new, old):
        return xp.where(accepted, new, old)

    post = kept(post + change, post)
    b = xp.where(is_j, post[:, None], b)
    v = post @ b
    products = xp.where(is_j, v[:, None], xp.where(is_j[:, None], v, products))
    return accepted, kept(w_new, w), kept(z_new, z), Above(b, products)


def interweave_marginal(network: Network, l: int) -> Move:
    """Make the move of W̃, Z and A of layer l, which visits all units with ρ = 0 first and then with a random ρ.

    The layer above must be dense, and its units must share their prior.
    """

    def step(rng: Variable, site: Site, memory: Nothing) -> tuple[Variable, Site, Nothing, MarginalAcceptance]:
        operator, above, function = site.layer.operator, site.above, site.activation.function
        (h, d), (c, _), dtype = operator.size, above.operator.size, "float64"
        rng, numbers = draw_numbers(rng, (h, d), dtype)
        zero, one = pt.constant(np.array([0, 1], dtype))
        rng, eta = draw(normal, rng, zero, one, size=(2, h, c))
        noise = pt.cast(above.noise, dtype)
        root = 1 / pt.sqrt(noise[:, 0] if noise.ndim else pt.ones((site.samples,)) * noise)
        b = root[:, None] * pt.cast(above.operator.design(site.post, site.samples), dtype)
        inputs = MarginalInputs(
            x=operator.design(site.a, site.samples),
            w=site.w,
            z=site.z,
            root=root,
            b=b,
            y=root[:, None] * above.centred(site.z_above),
            precision=operator.precision,
            above=above.operator.precision[0],
            **dict(zip(("rho", "log_u", "xi"), numbers, strict=True)),
            eta=eta,
            edges=function.edges,
            slopes=function.slopes,
            intercepts=function.intercepts,
        )
        outputs = MarginalOutputs(*InterweaveMarginal()(*(pt.cast(x, dtype) for x in inputs)))
        w, z = (pt.cast(x, site.w.dtype) for x in (outputs.w, outputs.z))
        moved = {"mean": site.mean + (z - site.z), "post": site.post + (function(z) - function(site.z))}
        # Neither noise has changed; the weights above have been integrated out
        site = replace(site, w=w, z=z, **moved, w_above=None)
        return rng, site, memory, MarginalAcceptance(pt.cast(outputs.accepted.mean(), w.dtype))

    return Move.of(network.layers[l].operator.name, step, NOTHING, MarginalAcceptance)


class MarginalAcceptance(NamedTuple):
    """What the move reports: the share of its proposals that were accepted."""

    marginal_acceptance: Variable


def _jax(op, node):
    """Make the function of :class:`MarginalInputs` for JAX, which scans over passes and units."""
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular

    cholesky = partial(jnp.linalg.cholesky, symmetrize_input=False)

    def passes(*inputs):
        inputs = MarginalInputs(*inputs)
        if inputs.w.dtype != jnp.float64:  # the prior would be lost to rounding beside BᵀTB
            return MarginalOutputs(inputs.w, inputs.z, jnp.zeros_like(inputs.rho))
        return _passes(inputs, scan_units, xp=jnp, cholesky=cholesky, solve=solve_triangular)

    return passes


declare(InterweaveMarginal, numba=numba_marginal_passes, jax=_jax)

r"""The normal seen through a smooth function: the conditional of a pre-activation below such an activation.

A pre-activation z has the prior N(m, v) and a likelihood that is Gaussian in σ(z), of precision κ and linear term t:

    p(z) ∝ exp(−(z − m)²/2v) · exp(t σ(z) − κ σ(z)²/2).

This has no closed form. With σ̃ a piecewise-linear function close to σ, a proposal z' is drawn from the same
distribution with σ̃ in place of σ (:mod:`pymc_gibbsnn.random.piecewise_normal`), independently of the current z, and
accepted with probability min(1, r(z')/r(z)), where

    log r(z) = t σ(z) − κ σ(z)²/2 − t σ̃(z) + κ σ̃(z)²/2 = (σ(z) − σ̃(z)) (t − κ (σ(z) + σ̃(z))/2).

This is the independence sampler of Tierney [1]_, which leaves p(z) invariant exactly. Acceptance is near 1 where σ̃ is
much closer to σ than κ^{-1/2}.

References
----------
.. [1] L. Tierney. Markov chains for exploring posterior distributions. Ann. Stat. 22 (1994).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.link.numba.dispatch.basic import numba_funcify_and_cache_key, numba_njit
from pytensor.tensor.random.op import RandomVariable
from scipy.special import log_ndtr, ndtri_exp

from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.lines import on_lines
from pymc_gibbsnn.backends.vector_math import copy, exp
from pymc_gibbsnn.random._piecewise_numba import activate_unit, coupled_sampler, unit_sampler
from pymc_gibbsnn.random._streams import uniforms
from pymc_gibbsnn.random.piecewise_normal import _invert

__all__ = ["CoupledSmoothNormalRV", "log_correction"]


def log_correction(s, s_table, t, kappa):
    """Log r(z), by how much the log density with σ exceeds that with its table σ̃; elementwise.

    Parameters
    ----------
    s, s_table : array or float
        σ(z) and σ̃(z).
    t, kappa : array or float
        Linear term and precision of the likelihood in σ(z).

    Returns
    -------
    array or float
    """
    return (s - s_table) * (t - 0.5 * kappa * (s + s_table))


_log_correction = numba_njit(log_correction)


class CoupledSmoothNormalRV(RandomVariable):
    r"""One pass over the h units of a layer, each given the others: y | z ~ N(σ(z) Wᵀ, P⁻¹), z ~ N(m, v).

    As :class:`pymc_gibbsnn.random.piecewise_normal.CoupledPiecewiseNormalRV`, but each z is moved by the independence
    sampler of this module in place of an exact draw.

    Parameters
    ----------
    z : (n, h)
        Current values.
    m : (n, h)
        Prior means.
    v : ()
        Prior variance, positive.
    y : (n, c)
        Output of the layer above, less its bias.
    w, g : (c, h)
        W and P W.
    edges : (k + 1,)
        Ends of the k pieces of σ̃, from −inf to inf.
    slopes, intercepts : (k,)
        Slope and intercept of σ̃ on each piece.

    Notes
    -----
    The property ``function`` is σ, a function of an array or of a PyTensor variable.
    """

    __props__ = (*RandomVariable.__props__, "function")
    name = "coupled_smooth_normal"
    signature = "(n,h),(n,h),(),(n,c),(c,h),(c,h),(e),(k),(k)->(n,h)"
    dtype = "floatX"

    def __init__(self, function: Callable, **kwargs):
        self.function = function
        super().__init__(**kwargs)

    def rng_fn(self, rng, z, m, v, y, w, g, edges, slopes, intercepts, size=None):
        """Draw with NumPy and SciPy.

        Parameters
        ----------
        rng : numpy.random.Generator
        z, m, v, y, w, g, edges, slopes, intercepts : array
            As in the class.
        size : None
            PyTensor passes it; the shape of the draw is that of ``z``.
        """
        table, z, kappa = (edges, slopes, intercepts), z.copy(), (w * g).sum(0)
        s = self.function(z)
        r = y - s @ w.T
        u = 1.0 - rng.random((z.shape[1], 3, len(z)))
        for j in range(z.shape[1]):
            t = r @ g[:, j] + kappa[j] * s[:, j]
            new = _invert(u[j], m[:, j], v, t, kappa[j], *table, np, log_ndtr, ndtri_exp)
            z[:, j], change = _choose(self.function(new), s[:, j], new, z[:, j], t, kappa[j], table, u[j, 2], np)
            r -= change[:, None] * w[:, j]
        return z


def _choose(s_new, s, z_new, z, t, kappa, table, u, xp):
    """Accept or reject proposals for one unit.

    Parameters
    ----------
    s_new, s : array of shape (n,)
        σ at the proposals and at the current values.
    z_new, z : array of shape (n,)
        Proposals and current values.
    t : array of shape (n,)
        Linear terms of the likelihood in σ(z).
    kappa : float
        Its precision.
    table : tuple of array
        Edges, slopes and intercepts of σ̃.
    u : array of shape (n,)
        Uniform numbers in (0, 1].
    xp : module
        ``numpy`` or ``jax.numpy``.

    Returns
    -------
    z, change : array of shape (n,)
        The values after acceptance or rejection, and by how much σ has changed.
    """
    log_ratio = log_correction(s_new, on_lines(z_new, *table, xp)[0], t, kappa)
    log_ratio -= log_correction(s, on_lines(z, *table, xp)[0], t, kappa)
    accept = xp.log(u) < log_ratio
    return xp.where(accept, z_new, z), xp.where(accept, s_new - s, 0)


def _numba(op, node):
    """Make the sampler for Numba, with σ compiled from its graph, and say on what its code depends."""
    z = pt.vector("z", dtype="float64")
    s = rewrite_graph(op.function(z), include=("canonicalize", "specialize", "fusion"))
    graph = FunctionGraph([z], [pt.cast(s, z.dtype)], clone=False)
    activate, key = numba_funcify_and_cache_key(graph, squeeze_output=True, fgraph_name="activation")

    draw_unit = unit_sampler(node)

    @numba_njit
    def write_activation(z, table, s):
        copy(activate(z), s)

    @numba_njit
    def move(stream, z, s, m, v, t, kappa, table, work):
        # Moves z of one unit; s is σ(z), kept up to date; t, read as the linear term, is left as the change of σ(z).
        new, s_table, s_table_new, u = work[9], work[10], work[11], work[12]
        draw_unit(stream, m, v, t, kappa, table, new, work)
        s_new = activate(new)
        activate_unit(new, table, s_table_new)
        activate_unit(z, table, s_table)
        uniforms(stream, u)
        for i in range(len(z)):
            log_ratio = _log_correction(s_new[i], s_table_new[i], t[i], kappa)
            log_ratio -= _log_correction(s[i], s_table[i], t[i], kappa)
            if log_ratio >= 0 or u[i] < exp(log_ratio):
                z[i], t[i] = new[i], s_new[i] - s[i]
                s[i] = s_new[i]
            else:
                t[i] = 0

    sample = coupled_sampler(write_activation, move)
    return sample, None if key is None else (key, node.inputs[-2].type.shape == (2,))


def _jax(op, node):
    """Make the sampler for JAX: a scan over units, vectorised over samples."""
    import jax
    import jax.numpy as jnp
    from pytensor.link.jax.dispatch import jax_funcify

    from pymc_gibbsnn.random._jax import log_ndtr, ndtri_exp, open_uniform

    z = pt.vector("z", dtype=node.outputs[1].dtype)
    function = jax_funcify(FunctionGraph([z], [op.function(z)], clone=False))

    def activate(z):
        return jnp.asarray(function(z.ravel())[0], z.dtype).reshape(z.shape)

    def sample(key, size, dtype, z, m, v, y, w, g, edges, slopes, intercepts):
        z, m, v, y, w, g = (jnp.asarray(x, dtype) for x in (z, m, v, y, w, g))
        table = tuple(jnp.asarray(x, dtype) for x in (edges, slopes, intercepts))

        def unit(r, inputs):
            u, z, s, m, w, g = inputs
            kappa = w @ g
            t = r @ g + kappa * s
            new = _invert(u, m, v, t, kappa, *table, jnp, log_ndtr, ndtri_exp)
            z, change = _choose(activate(new), s, new, z, t, kappa, table, u[2], jnp)
            return r - change[:, None] * w, z

        s = activate(z)
        u = open_uniform(key, (m.shape[1], 3, len(m)), dtype)
        _, z = jax.lax.scan(unit, y - s @ w.T, (u, z.T, s.T, m.T, w.T, g.T))
        return z.T

    return sample


declare(CoupledSmoothNormalRV, numba=_numba, jax=_jax)

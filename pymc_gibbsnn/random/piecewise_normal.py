r"""The normal seen through a piecewise-linear function: the distribution of one pre-activation given all the rest.

A pre-activation z has the prior N(m, v). The rest of the network sees it through its activation σ, with a likelihood
that is Gaussian in σ(z), of precision κ and linear term t:

    p(z) ∝ exp(−(z − m)²/2v) · exp(t σ(z) − κ σ(z)²/2),     σ(z) = a_p z + c_p on (edge_p, edge_{p+1}).

On each piece of σ this is a Gaussian. With g = 1 + v κ a², it has

    mean μ = (m + v a (t − κ c))/g,   variance v/g, standard deviation sd = sqrt(v/g),
    log mass = h(μ) − ½ log g + log[Φ((hi − μ)/sd) − Φ((lo − μ)/sd)],

where (lo, hi) is the piece, h the exponent of p(z) with σ continued as the line of this piece, and factors that all
pieces share are dropped (Piccioli, Troiani, Zdeborová, arXiv 2306.02729, give the case of plain Gibbs, κ = 1/Δ and
t = A/Δ). A draw first chooses the piece by its mass, then draws a truncated normal on it.

In :class:`PiecewiseNormalRV` t is given and all z are independent; :class:`CoupledPiecewiseNormalRV` visits the units
of a layer in turn, and takes t from the residual of the layer above.

NumPy and JAX draw by inverting the distribution function, vectorised over samples; Numba by rejection, in
:mod:`pymc_gibbsnn.random._piecewise_numba`.
"""

from __future__ import annotations

from functools import reduce
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.tensor.random.op import RandomVariable
from scipy.special import log_ndtr, ndtri_exp

from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.lines import on_lines
from pymc_gibbsnn.random._piecewise_numba import activate_unit, coupled_sampler, independent_sampler, unit_sampler
from pymc_gibbsnn.random.truncated_normal import Interval

__all__ = ["CoupledPiecewiseNormalRV", "PiecewiseNormalRV", "coupled_piecewise_normal", "piecewise_normal"]


class PiecewiseNormalRV(RandomVariable):
    r"""Independent z with prior N(m, v) and likelihood exp(t σ(z) − κ σ(z)²/2), for n samples of h units.

    Parameters
    ----------
    m : (n, h)
        Prior means.
    v : (h,)
        Prior variances, positive, one for each unit.
    t : (n, h)
        Linear term of the likelihood in σ(z).
    kappa : (h,)
        Precision of the likelihood in σ(z), not negative, one for each unit.
    edges : (k + 1,)
        Ends of the k pieces of σ, from −inf to inf.
    slopes, intercepts : (k,)
        Slope and intercept of σ on each piece, as in :class:`pymc_gibbsnn.networks.activations.PiecewiseLinear`.
    """

    name = "piecewise_normal"
    signature = "(n,h),(h),(n,h),(h),(e),(k),(k)->(n,h)"
    dtype = "floatX"

    @classmethod
    def rng_fn(cls, rng, m, v, t, kappa, edges, slopes, intercepts, size=None):
        """Draw with NumPy and SciPy.

        Parameters
        ----------
        rng : numpy.random.Generator
        m, v, t, kappa, edges, slopes, intercepts : array
            As in the class.
        size : None
            PyTensor passes it; the shape of the draw is that of ``m``.
        """
        u = 1.0 - rng.random((2, *m.shape))
        return _invert(u, m, v, t, kappa, edges, slopes, intercepts, np, log_ndtr, ndtri_exp).astype(m.dtype)


class CoupledPiecewiseNormalRV(RandomVariable):
    r"""One Gibbs pass over the h units of a layer, each given the others: y | z ~ N(σ(z) Wᵀ, P⁻¹), z ~ N(m, v).

    The units are drawn in turn, all n samples at once. With w_j column j of W, g_j column j of G = P W, κ_j = w_jᵀ g_j,
    and the residual r = y − σ(z) Wᵀ kept up to date,

        z_j | rest ~ piecewise normal of this module with t = r g_j + κ_j σ(z_j).

    This is one transition that leaves the distribution of z given y invariant, not a draw of it.

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
        Ends of the k pieces of σ, from −inf to inf.
    slopes, intercepts : (k,)
        Slope and intercept of σ on each piece, as in :class:`pymc_gibbsnn.networks.activations.PiecewiseLinear`.
    """

    name = "coupled_piecewise_normal"
    signature = "(n,h),(n,h),(),(n,c),(c,h),(c,h),(e),(k),(k)->(n,h)"
    dtype = "floatX"

    @classmethod
    def rng_fn(cls, rng, z, m, v, y, w, g, edges, slopes, intercepts, size=None):
        """Draw with NumPy and SciPy.

        Parameters
        ----------
        rng : numpy.random.Generator
        z, m, v, y, w, g, edges, slopes, intercepts : array
            As in the class.
        size : None
            PyTensor passes it; the shape of the draw is that of ``z``.
        """
        z, kappa = z.copy(), (w * g).sum(0)
        s = on_lines(z, edges, slopes, intercepts, np)[0]
        r = y - s @ w.T
        u = 1.0 - rng.random((z.shape[1], 2, len(z)))
        for j in range(z.shape[1]):
            t = r @ g[:, j] + kappa[j] * s[:, j]
            z[:, j] = _invert(u[j], m[:, j], v, t, kappa[j], edges, slopes, intercepts, np, log_ndtr, ndtri_exp)
            change = on_lines(z[:, j], edges, slopes, intercepts, np)[0] - s[:, j]
            r -= change[:, None] * w[:, j]
        return z


piecewise_normal = PiecewiseNormalRV()
coupled_piecewise_normal = CoupledPiecewiseNormalRV()


class Piece(NamedTuple):
    """The density on one piece of σ: z = mean + sd x, with x a standard normal in an interval; fields are arrays."""

    log_mass: Any  # logarithm of the mass of the piece, up to what all pieces share
    mean: Any
    sd: Any
    interval: Interval  # that of x


def pieces(m, v, t, kappa, edges, a, c, xp, log_ndtr):
    """Describe the density on each piece of σ.

    Parameters
    ----------
    m, v, t, kappa : array
        Prior mean and variance, linear term and precision of the likelihood in σ(z); they broadcast.
    edges : (k + 1,)
        Ends of the pieces.
    a, c : (k,)
        Slopes and intercepts of σ.
    xp : module
        ``numpy`` or ``jax.numpy``.
    log_ndtr : callable
        The logarithm of Φ, for arrays of ``xp``.

    Returns
    -------
    list of Piece
    """
    parts, last = [], len(a) - 1
    for p in range(last + 1):
        g = 1 + v * kappa * a[p] ** 2
        sd = xp.sqrt(v / g)
        slope = a[p] * (t - kappa * c[p])
        mean = (m + v * slope) / g
        # h(μ), in a form that is exactly 0 where σ is flat at 0, so that no large numbers cancel
        height = t * c[p] - kappa * c[p] ** 2 / 2 + (slope * (2 * m + v * slope) - kappa * a[p] ** 2 * m**2) / (2 * g)
        alpha = (edges[p] - mean) / sd if p > 0 else None
        beta = (edges[p + 1] - mean) / sd if p < last else None
        interval = Interval.between(alpha, beta, xp, log_ndtr)
        parts.append(Piece(height - xp.log(g) / 2 + interval.log_mass(xp), mean, sd, interval))
    return parts


def _invert(u, m, v, t, kappa, edges, a, c, xp, log_ndtr, ndtri_exp):
    """Draw from uniform numbers, by inverting the distribution function; for NumPy and JAX.

    Parameters
    ----------
    u : array of shape (2, ...)
        Uniform numbers in (0, 1]: u[0] chooses the piece, u[1] the place within it.
    m, v, t, kappa, edges, a, c, xp, log_ndtr
        As in :func:`pieces`.
    ndtri_exp : callable
        The inverse of ``log_ndtr``.

    Returns
    -------
    array
        One draw of z for each element of m.
    """
    parts = pieces(m, v, t, kappa, edges, a, c, xp, log_ndtr)
    greatest = reduce(xp.maximum, (part.log_mass for part in parts))
    masses = list(accumulate(xp.exp(part.log_mass - greatest) for part in parts))
    _, mean, sd, interval, low, high = (*parts[0], edges[0], edges[1])
    for p, part in enumerate(parts[1:], 1):
        beyond = u[0] * masses[-1] > masses[p - 1]
        mean, sd, low, high = (
            xp.where(beyond, x, y)
            for x, y in zip((part.mean, part.sd, edges[p], edges[p + 1]), (mean, sd, low, high), strict=True)
        )
        interval = Interval(*(xp.where(beyond, x, y) for x, y in zip(part.interval, interval, strict=True)))
    return xp.clip(mean + sd * interval.invert(u[1], xp, ndtri_exp), low, high)


def _numba(op, node):
    """Make the sampler of :class:`PiecewiseNormalRV` for Numba, and say on what its code depends."""
    return independent_sampler(unit_sampler(node)), _has_two_pieces(node)


def _numba_coupled(op, node):
    """Make the sampler of :class:`CoupledPiecewiseNormalRV` for Numba, and say on what its code depends."""
    draw_unit = unit_sampler(node)

    @numba_njit
    def move(stream, z, s, m, v, t, kappa, table, work):
        # Draws z of one unit anew; s is σ at the old z; t, read as the linear term, is left as the change of σ(z).
        draw_unit(stream, m, v, t, kappa, table, z, work)
        activate_unit(z, table, t)
        for i in range(len(t)):
            t[i] -= s[i]

    return coupled_sampler(activate_unit, move), _has_two_pieces(node)


def _has_two_pieces(node) -> bool:
    """Whether the table of σ is known to have two pieces, for which there is a kernel of its own."""
    return node.inputs[-2].type.shape == (2,)


def _jax(op, node):
    """Make the sampler of :class:`PiecewiseNormalRV` for JAX."""
    import jax.numpy as jnp

    from pymc_gibbsnn.random._jax import log_ndtr, ndtri_exp, open_uniform

    def sample(key, size, dtype, m, v, t, kappa, edges, slopes, intercepts):
        # Parameters of a model in single precision may arrive here in double: JAX's sums promote them.
        m, v, t, kappa, edges, slopes, intercepts = (
            jnp.asarray(x, dtype) for x in (m, v, t, kappa, edges, slopes, intercepts)
        )
        u = open_uniform(key, (2, *m.shape), dtype)
        return _invert(u, m, v, t, kappa, edges, slopes, intercepts, jnp, log_ndtr, ndtri_exp)

    return sample


def _jax_coupled(op, node):
    """Make the sampler of :class:`CoupledPiecewiseNormalRV` for JAX: a scan over units, vectorised over samples."""
    import jax
    import jax.numpy as jnp

    from pymc_gibbsnn.random._jax import log_ndtr, ndtri_exp, open_uniform

    def sample(key, size, dtype, z, m, v, y, w, g, edges, slopes, intercepts):
        z, m, v, y, w, g = (jnp.asarray(x, dtype) for x in (z, m, v, y, w, g))
        table = tuple(jnp.asarray(x, dtype) for x in (edges, slopes, intercepts))

        def unit(r, inputs):
            u, z, m, w, g = inputs
            kappa, s = w @ g, on_lines(z, *table, jnp)[0]
            t = r @ g + kappa * s
            z = _invert(u, m, v, t, kappa, *table, jnp, log_ndtr, ndtri_exp)
            return r - (on_lines(z, *table, jnp)[0] - s)[:, None] * w, z

        r = y - on_lines(z, *table, jnp)[0] @ w.T
        u = open_uniform(key, (m.shape[1], 2, len(m)), dtype)
        _, z = jax.lax.scan(unit, r, (u, z.T, m.T, w.T, g.T))
        return z.T

    return sample


declare(PiecewiseNormalRV, numba=_numba, jax=_jax)
declare(CoupledPiecewiseNormalRV, numba=_numba_coupled, jax=_jax_coupled)

r"""Numba's draws of the piecewise normal, whose density stands in :mod:`pymc_gibbsnn.random.piecewise_normal`.

The work is divided into blocks of samples, each with a random stream of its own; within a block it goes unit by unit.

Where σ has two pieces, the masses of both half lines are computed for many samples at once (by Mills' ratio, without
the error function), the side is drawn by its mass, and then a normal beyond the edge. No mass is computed for a sample
of which one side has a negligible weight.

Where σ has more pieces, no mass is needed: proposals come from a mixture, over the pieces, of the envelopes of
:mod:`pymc_gibbsnn.random.truncated_normal`, and are accepted or rejected. The weight of a piece in the mixture is
exp(height of the log density at the mode on the piece) times the factor that belongs to its envelope. A weight below
exp(−50) of the largest lies below the precision of a double, whatever the widths of the pieces; so most draws look at
one piece only.

First attempts are made for all samples of a block with vectorised arithmetic; the samples at which they fail are drawn
one by one. All is computed in double precision, whatever the precision of the model.

The letters are those of the density: m and v prior mean and variance of z, t and κ the linear term and the precision of
the likelihood in σ(z), a and c slope and intercept of σ on a piece, g = 1 + v κ a².
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn.backends.threads import BLOCK, share
from pymc_gibbsnn.backends.vector_math import add_multiple, exp, inlined, vectorisable
from pymc_gibbsnn.random._half_line import excess, relative_mass
from pymc_gibbsnn.random._streams import normals, streams_of_blocks, uniform, uniforms
from pymc_gibbsnn.random.truncated_normal import draw_truncated_normal, envelope, propose

__all__ = ["Table", "activate_unit", "coupled_sampler", "independent_sampler", "unit_sampler"]

NEGLIGIBLE = 50.0  # a piece whose log density lies lower by this has no weight in double precision


class Table(NamedTuple):
    """The table of σ."""

    edges: Any  # (pieces + 1,)
    slopes: Any  # (pieces,)
    intercepts: Any  # (pieces,)


class Piece(NamedTuple):
    """A piece of the table, with what is the same there for all samples."""

    low: float
    high: float
    slope: float
    intercept: float
    shrink: float  # 1/g, the variance on this piece divided by the prior variance
    sd: float  # the standard deviation


class Sides(NamedTuple):
    """The Gaussians left (0) and right (1) of the one edge of a table of two pieces.

    ``beyond`` is by how many of its standard deviations the mean of a side lies beyond the edge on the other side,
    negative where it is on its own; ``height`` is that of the log density at the mode on the side.
    """

    beyond0: float
    height0: float
    beyond1: float
    height1: float


@inlined
def _locate(m, v, t, kappa, piece, half_precision):
    """Locate the Gaussian that the distribution is on one piece.

    Parameters
    ----------
    m, v : float
        Prior mean and variance of z.
    t, kappa : float
        Linear term and precision of the likelihood in σ(z).
    piece : Piece
        The piece.
    half_precision : float
        1/(2v).

    Returns
    -------
    mean : float
        Mean of the Gaussian, which may lie outside the piece.
    height : float
        The log density, not normalised, at its greatest value on the piece.
    """
    mean = (m + v * piece.slope * (t - kappa * piece.intercept)) * piece.shrink
    mode = min(max(mean, piece.low), piece.high)
    s = piece.slope * mode + piece.intercept
    return mean, s * (t - 0.5 * kappa * s) - (mode - m) ** 2 * half_precision


@inlined
def _sides(m, v, t, kappa, left, right):
    """Locate the Gaussians on both sides of an edge.

    Parameters
    ----------
    m, v, t, kappa : float
        As in ``_locate``.
    left, right : Piece
        The two pieces.
    """
    mean0, height0 = _locate(m, v, t, kappa, left, 0.5 / v)
    mean1, height1 = _locate(m, v, t, kappa, right, 0.5 / v)
    return Sides((mean0 - left.high) / left.sd, height0, (right.low - mean1) / right.sd, height1)


@inlined
def _is_left(u, sides, sd0, sd1):
    """Decide between the two sides by their masses, and return whether the draw lies on the left.

    Parameters
    ----------
    u : float
        A uniform number in [0, 1).
    sides : Sides
        What ``_sides`` returned.
    sd0, sd1 : float
        Standard deviations on the two pieces.
    """
    ratio = exp(-abs(sides.height0 - sides.height1))  # that of the densities at the lower and the higher mode
    mass0 = sd0 * relative_mass(sides.beyond0) * (ratio if sides.height0 < sides.height1 else 1.0)
    mass1 = sd1 * relative_mass(sides.beyond1) * (ratio if sides.height1 < sides.height0 else 1.0)
    return u * (mass0 + mass1) < mass0


@inlined
def _two_pieces(v, kappa, table):
    """Read the pieces of a table of two, for this prior variance and precision of the likelihood in σ(z)."""
    a0, a1 = table.slopes[0], table.slopes[1]
    shrink0, shrink1 = 1.0 / (1.0 + v * kappa * a0 * a0), 1.0 / (1.0 + v * kappa * a1 * a1)
    left = Piece(-np.inf, table.edges[1], a0, table.intercepts[0], shrink0, math.sqrt(v * shrink0))
    return left, Piece(table.edges[1], np.inf, a1, table.intercepts[1], shrink1, math.sqrt(v * shrink1))


@vectorisable
def _choose_higher(m, v, t, kappa, table, beyond, sd, gap):
    """Choose for each sample the one of two pieces with the higher mode.

    Parameters
    ----------
    m, t : array of shape (n,)
        Prior means, and linear terms of the likelihood in σ(z), of n samples.
    v, kappa : float
        Prior variance, and precision of the likelihood in σ(z).
    table : Table
        That of σ, of two pieces.
    beyond : array of shape (n,)
        Receives where the normal of the chosen piece is cut off, in its standard deviations from its mean.
    sd : array of shape (n,)
        Receives its standard deviation, negative on the left.
    gap : array of shape (n,)
        Receives by how much the log density at the mode on the left exceeds that on the right.
    """
    left, right = _two_pieces(v, kappa, table)
    for i in range(len(m)):
        sides = _sides(m[i], v, t[i], kappa, left, right)
        gap[i] = sides.height0 - sides.height1
        beyond[i] = sides.beyond0 if sides.height0 > sides.height1 else sides.beyond1
        sd[i] = -left.sd if sides.height0 > sides.height1 else right.sd


@vectorisable
def _choose_side(m, v, t, kappa, table, u, beyond, sd):
    """Choose for each sample one of two pieces at random, by their masses.

    Parameters
    ----------
    m, v, t, kappa, table, beyond, sd
        As in ``_choose_higher``.
    u : array of shape (n,)
        Uniform numbers in [0, 1).
    """
    left, right = _two_pieces(v, kappa, table)
    for i in range(len(m)):
        sides = _sides(m[i], v, t[i], kappa, left, right)
        is_left = _is_left(u[i], sides, left.sd, right.sd)
        beyond[i] = sides.beyond0 if is_left else sides.beyond1
        sd[i] = -left.sd if is_left else right.sd


@numba_njit
def _draw_unit_of_two(stream, m, v, t, kappa, table, z, work):
    """Draw one unit for all samples of a block, for a table of two pieces.

    Parameters
    ----------
    stream, m, v, t, kappa, table, z, work
        As :func:`unit_sampler` says.
    """
    x, beyond, sd, gap = work[0], work[1], work[2], work[3]
    _choose_higher(m, v, t, kappa, table, beyond, sd, gap)
    doubtful = 0
    for i in range(len(m)):
        if abs(gap[i]) < NEGLIGIBLE:
            work[4, doubtful], work[5, doubtful], gap[doubtful] = m[i], t[i], i
            doubtful += 1
    if doubtful > 0:
        m_few, t_few, u = work[4, :doubtful], work[5, :doubtful], work[6, :doubtful]
        beyond_few, sd_few = work[7, :doubtful], work[8, :doubtful]
        uniforms(stream, u)
        _choose_side(m_few, v, t_few, kappa, table, u, beyond_few, sd_few)
        for k in range(doubtful):
            beyond[int(gap[k])], sd[int(gap[k])] = beyond_few[k], sd_few[k]
    normals(stream, x)
    for i in range(len(m)):
        z[i] = table.edges[1] + sd[i] * excess(stream, x[i], beyond[i])


@inlined
def _piece(p, table, shrink, sd):
    """Read one piece of a table of any number of pieces.

    Parameters
    ----------
    p : int
        The number of the piece.
    table : Table
        That of σ.
    shrink, sd : array of shape (pieces,)
        As in :class:`Piece`.
    """
    return Piece(table.edges[p], table.edges[p + 1], table.slopes[p], table.intercepts[p], shrink[p], sd[p])


@numba_njit
def _draw_from_mixture(stream, m, v, t, kappa, table, shrink, sd, highest):
    """Draw one number of a distribution of which several pieces matter, by rejection from a mixture of envelopes.

    Parameters
    ----------
    stream : array
        The random stream.
    m, v, t, kappa : float
        Prior mean and variance; linear term and precision of the likelihood in σ(z).
    table : Table
        That of σ.
    shrink, sd : array of shape (pieces,)
        1/g and the standard deviation on each piece.
    highest : float
        The greatest of the heights of the pieces.

    Returns
    -------
    float
    """
    while True:
        # Choose a piece in one pass: each replaces the one chosen so far with probability weight/(sum of weights).
        chosen, chosen_mean, total = 0, 0.0, 0.0
        for p in range(len(sd)):
            piece = _piece(p, table, shrink, sd)
            mean, height = _locate(m, v, t, kappa, piece, 0.5 / v)
            if height > highest - NEGLIGIBLE:
                weight = envelope(mean, piece.sd, piece.low, piece.high)[2] * math.exp(height - highest)
                total += weight
                if total == weight or uniform(stream) * total < weight:
                    chosen, chosen_mean = p, mean
        low, high = table.edges[chosen], table.edges[chosen + 1]
        kind, mode, factor = envelope(chosen_mean, sd[chosen], low, high)
        z, accepted = propose(stream, kind, mode, factor, chosen_mean, sd[chosen], low, high)
        if accepted:
            return z


@numba_njit
def _draw_unit_of_many(stream, m, v, t, kappa, table, z, work):
    """Draw one unit for all samples of a block, for a table of any number of pieces.

    Parameters
    ----------
    stream, m, v, t, kappa, table, z, work
        As :func:`unit_sampler` says.
    """
    n, half_precision = len(m), 0.5 / v
    shrink = 1.0 / (1.0 + v * kappa * table.slopes**2)
    sd = np.sqrt(v * shrink)
    best_mean, best_sd, low, high, highest, second = work[0], work[1], work[2], work[3], work[4], work[5]
    # The numbers of a piece are read before the loop: the compiler cannot know that no store below changes them.
    piece = _piece(0, table, shrink, sd)
    for i in range(n):
        best_mean[i], highest[i] = _locate(m[i], v, t[i], kappa, piece, half_precision)
        best_sd[i], low[i], high[i], second[i] = piece.sd, piece.low, piece.high, -math.inf
    for p in range(1, len(sd)):
        piece = _piece(p, table, shrink, sd)
        for i in range(n):
            mean, height = _locate(m[i], v, t[i], kappa, piece, half_precision)
            best = height > highest[i]
            second[i] = max(second[i], min(height, highest[i]))
            highest[i] = max(height, highest[i])
            best_mean[i] = mean if best else best_mean[i]
            best_sd[i] = piece.sd if best else best_sd[i]
            low[i] = piece.low if best else low[i]
            high[i] = piece.high if best else high[i]
    normals(stream, work[6])
    for i in range(n):
        if second[i] > highest[i] - NEGLIGIBLE:
            x = _draw_from_mixture(stream, m[i], v, t[i], kappa, table, shrink, sd, highest[i])
        else:
            # Most often the mean lies well inside the piece and so does x. If not, x is dropped for an exact draw: in
            # either case the distribution is the truncated normal.
            x = best_mean[i] + best_sd[i] * work[6, i]
            if not low[i] < x < high[i]:
                x = draw_truncated_normal(stream, best_mean[i], best_sd[i], low[i], high[i])
        z[i] = x


def unit_sampler(node: Apply) -> Callable:
    """Choose the kernel that draws one unit, by the number of pieces of the table that a node was given.

    Parameters
    ----------
    node : Apply
        The application of a RandomVariable whose last three inputs are the edges, slopes and intercepts of σ.

    Returns
    -------
    callable
        ``draw(stream, m, v, t, kappa, table, z, work)``, which draws one unit for all n samples of a block. It moves
        the random ``stream`` on, reads the prior means ``m`` (n,) and variance ``v``, the linear terms ``t`` (n,) and
        the precision ``kappa`` of the likelihood in σ(z), and the ``Table`` of σ; it writes the draws to ``z`` (n,),
        and overwrites ``work`` (9, n).
    """
    slopes = node.inputs[-2]
    return _draw_unit_of_two if slopes.type.shape == (2,) else _draw_unit_of_many


@numba_njit
def activate_unit(z, table, s):
    """Write σ(z) of one unit into s.

    Parameters
    ----------
    z : array of shape (n,)
        Pre-activations of n samples.
    table : Table
        That of σ.
    s : array of shape (n,)
        Receives σ(z).
    """
    for p in range(len(table.slopes)):
        edge, a, c = table.edges[p], table.slopes[p], table.intercepts[p]
        for i in range(len(z)):
            s[i] = a * z[i] + c if z[i] > edge else s[i]


@numba_njit
def _rows(x, start):
    """Copy the samples of x (n, h) in the block that begins at row ``start``, as an array (h, samples of the block)."""
    copy = np.empty((x.shape[1], min(BLOCK, len(x) - start)))
    for i in range(copy.shape[1]):
        for j in range(len(copy)):
            copy[j, i] = x[start + i, j]
    return copy


@numba_njit
def _write_rows(rows, start, out):
    """Write what ``_rows`` returned to the same place of another matrix."""
    for i in range(rows.shape[1]):
        for j in range(len(rows)):
            out[start + i, j] = rows[j, i]


def independent_sampler(draw_unit: Callable) -> Callable:
    """Make Numba's sampler of :class:`~pymc_gibbsnn.random.piecewise_normal.PiecewiseNormalRV`.

    Parameters
    ----------
    draw_unit : callable
        What :func:`unit_sampler` returned.

    Returns
    -------
    callable
        ``sample(rng, *parameters)``, with a ``Generator`` and the parameters of the RandomVariable.
    """

    @numba_njit
    def sample_block(b, streams, m, v, t, kappa, table, z):
        # Draws block b of samples, with its stream, into the same rows of z.
        start, stream = b * BLOCK, streams[b]
        m, t = _rows(m, start), _rows(t, start)
        drawn, work = np.empty_like(m), np.empty((9, m.shape[1]))
        for j in range(len(m)):
            draw_unit(stream, m[j], v[j], t[j], kappa[j], table, drawn[j], work)
        _write_rows(drawn, start, z)

    @numba_njit
    def sample(rng, m, v, t, kappa, edges, slopes, intercepts):
        z, streams = np.empty_like(m), streams_of_blocks(rng, len(m))
        share(sample_block, len(streams), (streams, m, v, t, kappa, Table(edges, slopes, intercepts), z))
        return z

    return sample


def coupled_sampler(activate: Callable, move: Callable) -> Callable:
    """Make Numba's sampler of one pass over the units of a layer, given y | z ~ N(σ(z) Wᵀ, P⁻¹).

    The residual y − σ(z) Wᵀ is kept up to date while the units move in turn; the density stands at
    :class:`~pymc_gibbsnn.random.piecewise_normal.CoupledPiecewiseNormalRV`.

    Parameters
    ----------
    activate : callable
        ``activate(z, table, s)`` writes σ(z) of one unit into s.
    move : callable
        ``move(stream, z, s, m, v, t, kappa, table, work)`` moves z of one unit given the others, and leaves the change
        of s = σ(z) in t; work is (13, n), of which a unit sampler takes nine.
    """

    @numba_njit
    def sample_block(b, streams, z, m, v, y, w, g, kappa, table, new):
        # Moves block b of samples, with its stream, and writes it to the same rows of ``new``.
        start, stream = b * BLOCK, streams[b]
        z, m, r = _rows(z, start), _rows(m, start), _rows(y, start)
        h, c = len(z), len(r)
        s, t, work = np.empty_like(z), np.empty_like(z[0]), np.empty((13, z.shape[1]))
        for j in range(h):
            activate(z[j], table, s[j])
            for k in range(c):
                add_multiple(s[j], -w[k, j], r[k])
        for j in range(h):
            for i in range(len(t)):
                t[i] = kappa[j] * s[j, i]
            for k in range(c):
                add_multiple(r[k], g[k, j], t)
            move(stream, z[j], s[j], m[j], v, t, kappa[j], table, work)
            for k in range(c):
                add_multiple(t, -w[k, j], r[k])
        _write_rows(z, start, new)

    @numba_njit
    def sample(rng, z, m, v, y, w, g, edges, slopes, intercepts):
        new, kappa, streams = np.empty_like(m), np.zeros_like(w[0]), streams_of_blocks(rng, len(m))
        for k in range(len(w)):
            for j in range(len(kappa)):
                kappa[j] += w[k, j] * g[k, j]
        shared = streams, z, m, v.item(), y, w, g, kappa, Table(edges, slopes, intercepts), new
        share(sample_block, len(streams), shared)
        return new

    return sample

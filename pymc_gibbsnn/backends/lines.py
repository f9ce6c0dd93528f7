"""Piecewise-linear functions, each given by a table of edges, slopes and intercepts."""

from __future__ import annotations

__all__ = ["on_lines"]


def on_lines(z, edges, slopes, intercepts, xp):
    """Evaluate a piecewise-linear function σ and its slope, with NumPy or JAX.

    A breakpoint belongs to the piece on its left.

    Parameters
    ----------
    z : array
        Where to evaluate it.
    edges : array, (k + 1,)
        Ends of the k pieces, from −inf to inf.
    slopes, intercepts : array, (k,)
        Slope and intercept on each piece.
    xp : module
        ``numpy`` or ``jax.numpy``.

    Returns
    -------
    s, a : array
        σ(z) and the slope at z, in the shape of z.
    """
    s, a = slopes[0] * z + intercepts[0], xp.full_like(z, slopes[0])
    for p in range(1, len(slopes)):  # a loop over the few pieces is faster than a search for the piece of each element
        beyond = z > edges[p]
        s, a = xp.where(beyond, slopes[p] * z + intercepts[p], s), xp.where(beyond, slopes[p], a)
    return s, a

"""Piecewise-linear functions, given by a table of edges, slopes and intercepts."""

from __future__ import annotations

__all__ = ["on_lines"]


def on_lines(z, edges, slopes, intercepts, xp):
    """(σ(z), slope at z) by a table, a breakpoint belonging to the piece on its left, for NumPy and JAX."""
    s, a = slopes[0] * z + intercepts[0], xp.full_like(z, slopes[0])
    for p in range(1, len(slopes)):  # faster than to look pieces up
        beyond = z > edges[p]
        s, a = xp.where(beyond, slopes[p] * z + intercepts[p], s), xp.where(beyond, slopes[p], a)
    return s, a

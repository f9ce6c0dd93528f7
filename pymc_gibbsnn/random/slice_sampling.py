r"""Slice sampling along curves: the part that an ellipse and a straight line have in common.

A curve z(t) passes through the present point at t = 0. Given a level below the log density there, points t are drawn
from an interval around 0, which shrinks towards 0 after each refusal, until the log density at z(t) is above the level
[1]_. Many curves, each with a level of its own, are searched at once with the same number of tries; a curve on which
nothing has been found by then keeps its point.

To stop early leaves the distribution invariant, too. Given the curve, the level and the points that were refused, a
move from z to z' after k tries has the probability density of the move back after k tries with the same refused points:
none of them lies between z and z', so that both see the same intervals. Each k is thus reversible by itself, and what
is left, to stay, is reversible in any case.

References
----------
.. [1] R. M. Neal. Slice sampling. Annals of Statistics 31 (2003).
"""

from __future__ import annotations

from collections.abc import Callable

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import uniform

from pymc_gibbsnn.backends.draw import draw

__all__ = ["search_slice"]


def search_slice(
    rng: Variable,
    now: Variable,
    t: Variable,
    interval: tuple[Variable, Variable],
    curve: Callable[[Variable], Variable],
    log_density: Callable[[Variable], Variable],
    tries: int,
) -> tuple[Variable, Variable, Variable]:
    """Search curves for a point above a level that is drawn for each.

    Parameters
    ----------
    rng : Variable
        The random generator.
    now : Variable, any shape
        The log densities at t = 0, one for each curve.
    t : Variable, same shape
        The first point of each curve to be tried.
    interval : tuple of Variable, same shape
        The ends of the interval from which t was drawn, below and above 0.
    curve : callable
        The function z(t).
    log_density : callable
        A function from z(t) to the log densities.
    tries : int
        How many points are tried.

    Returns
    -------
    rng : Variable
    is_found : Variable, same shape
        Whether there is a point.
    t : Variable, same shape
        The point, where there is one; elsewhere 0.
    """
    (low, high), dtype = interval, now.dtype
    rng, u = draw(uniform, rng, 0.0, 1.0, size=now.shape)
    level = now + pt.cast(pt.log(u), dtype)
    found, is_open = pt.zeros_like(now), pt.ones_like(now, dtype="bool")
    for left in reversed(range(tries)):
        is_above = is_open & (log_density(curve(t)) > level)
        found, is_open = pt.switch(is_above, t, found), is_open & ~is_above
        if left:
            low, high = pt.switch(t < 0, t, low), pt.switch(t < 0, high, t)
            rng, share = draw(uniform, rng, 0.0, 1.0, size=now.shape)
            t = low + (high - low) * pt.cast(share, dtype)
    return rng, ~is_open, found

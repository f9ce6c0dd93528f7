"""Step sizes that follow the acceptance while a chain tunes."""

from __future__ import annotations

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

__all__ = ["robbins_monro"]


def robbins_monro(
    log_step: Variable,
    count: Variable,
    acceptance: Variable,
    target: float,
    tuning: Variable,
    largest: float = 0.0,
) -> Variable:
    """Log step + 2 (acceptance − target)/sqrt(count), at most ``largest``, while ``tuning`` > 0; after that, as it is.

    ``count`` is the number of tuning steps so far, this one included.

    References
    ----------
    .. [1] H. Robbins, S. Monro. A stochastic approximation method. Ann. Math. Stat. 22 (1951).
    """
    moved = pt.minimum(log_step + 2 * (acceptance - target) / pt.sqrt(count), largest)
    return pt.cast(pt.switch(tuning > 0, moved, log_step), log_step.dtype)

"""How a step size follows the acceptance while a chain tunes."""

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
    """Move the logarithm of a step size so that the acceptance approaches a target.

    While the chain tunes, the result is log_step + 2 (acceptance − target)/sqrt(count), but at most ``largest`` [1]_;
    after that, the step size stays as it is.

    Parameters
    ----------
    log_step : Variable
        Logarithm of the step size.
    count : Variable
        The number of tuning steps so far, this one included.
    acceptance : Variable
        The acceptance probability of this step, between 0 and 1.
    target : float
        The acceptance probability that is wanted.
    tuning : Variable
        The share of the tuning that is still to come; 0 after tuning.
    largest : float
        The largest logarithm that is allowed.

    Returns
    -------
    Variable
        The new logarithm, in the dtype of ``log_step``.

    References
    ----------
    .. [1] H. Robbins, S. Monro. A stochastic approximation method. Ann. Math. Stat. 22 (1951).
    """
    moved = pt.minimum(log_step + 2 * (acceptance - target) / pt.sqrt(count), largest)
    return pt.cast(pt.switch(tuning > 0, moved, log_step), log_step.dtype)

r"""How the step size of a stochastic-gradient sampler changes after tuning: constant, decaying [1]_ or cyclical [2]_.

    constant    ε_k = ε
    decaying    ε_k = ε (1 + k/a)^(−γ)
    cyclical    ε_k = ε/2 [cos(π r) + 1],   r = (k mod K)/K;   no noise is injected while r < 1/2

where k is the number of steps since the tuning ended. A cycle explores in its first half, as an optimiser does, and
samples in its second half.

References
----------
.. [1] M. Welling, Y. W. Teh. Bayesian learning via stochastic gradient Langevin dynamics. ICML (2011).
.. [2] R. Zhang, C. Li, J. Zhang, C. Chen, A. G. Wilson. Cyclical stochastic gradient MCMC for Bayesian deep learning.
   ICLR (2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import describe, number, positive, whole

__all__ = ["step_sizes"]

EXPLORE = 0.5  # the share of a cycle in which no noise is injected

Schedule = Callable[[Variable], tuple[Variable, Variable | None]]


def step_sizes(decay: Sequence[float] | None, cycle: int | None) -> Schedule | None:
    """Make the schedule of step sizes.

    Parameters
    ----------
    decay : (float, float), optional
        a, positive, and γ, in [0, 1].
    cycle : int, optional
        K, at least 2.

    Returns
    -------
    callable or None
        A function from k to ε_k/ε and whether noise is left out, None for never; None for a constant step size.

    Raises
    ------
    TypeError, ValueError
        If they are not such numbers, or both are given.
    """
    if decay is not None and cycle is not None:
        raise ValueError(f"decay and cycle exclude each other; found decay={describe(decay)} and cycle={cycle}.")
    if decay is not None:
        if not isinstance(decay, Sequence) or isinstance(decay, str) or len(decay) != 2:
            raise TypeError(f"decay must be two numbers (a, γ) of ε (1 + k/a)^(−γ); found {describe(decay)}.")
        a = positive("decay[0]", decay[0])
        power = number("decay[1]", decay[1], "a power between 0 and 1", lambda x: 0 <= x <= 1)
        return lambda k: ((1 + k / a) ** -power, None)
    if cycle is not None:
        length = whole("cycle", cycle, least=2)

        def cyclical(k: Variable) -> tuple[Variable, Variable]:
            r = pt.mod(k, length) / length
            return (pt.cos(math.pi * r) + 1) / 2, pt.lt(r, EXPLORE)

        return cyclical
    return None

r"""The last pre-activations given class labels.

Model

    Z = M + N(0, ΔZ),   M = Ã W̃ᵀ (n, k),   y = argmax_α Z_α (multinomial probit) or y = 1[Z > 0] (binary, elementwise)

Conditional (Piccioli, Troiani, Zdeborová, arXiv 2306.02729, appendix E, whose eq. 24 lacks the sum over classes):

    p(Z | y, M) ∝ exp(−Σ_α (Z_α − M_α)²/2ΔZ) Π_{α≠y} 1[Z_y > Z_α].

One pass over two blocks, Z_y and the others (:mod:`pymc_gibbsnn.random.argmax_normal`). Binary labels truncate each Z
at 0.
"""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn._compat import draw
from pymc_gibbsnn.random.argmax_normal import argmax_normal
from pymc_gibbsnn.random.truncated_normal import truncated_normal

__all__ = ["draw_given_argmax", "draw_given_sign"]


def draw_given_argmax(
    rng: Variable, z: Variable, m: Variable, y: Variable, noise: Variable
) -> tuple[Variable, Variable]:
    """Z (n, k) given M (n, k) and labels y (n,), by one pass over both blocks from the current Z."""
    return draw(argmax_normal, rng, z, m, noise, y)


def draw_given_sign(rng: Variable, m: Variable, y: Variable, noise: Variable) -> tuple[Variable, Variable]:
    """Z given M and labels y of 0 and 1, all of one shape."""
    infinity = pt.constant(np.asarray(np.inf, m.dtype))
    positive = pt.eq(y, 1).ravel()
    lower, upper = pt.switch(positive, 0, -infinity), pt.switch(positive, infinity, 0)
    rng, z = draw(truncated_normal, rng, m.ravel(), pt.sqrt(noise), lower, upper)
    return rng, z.reshape(m.shape)

r"""What stochastic-gradient samplers learn of their gradients while they tune.

A gradient on a batch is g = ∇f + noise, with covariance 2B of the noise. Where draws come from the posterior,
E ∇f ∇fᵀ is the mean curvature H, so that E g gᵀ = H + 2B. Differences of consecutive gradients, whose batches are
independent, tell 2B alone: E (g' − g)(g' − g)ᵀ = 4B as long as θ moves little between them.
"""

from __future__ import annotations

import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

__all__ = ["grown", "learn_top", "preconditioner", "running_mean", "start_top", "zeros"]

MEMORY = 200  # gradients over which means run
GROWTH = 1.1  # the most by which a rate grows from one step to the next
LEAST_SHARE = 1e-5  # of the mean second moment, added to all: what is never seen to move stays finite

Arrays = list[Variable]


def running_mean(old: Variable, new: Variable, count: Variable) -> Variable:
    """A mean of ``count`` numbers, the new one included: weights grow linearly, so that the start is forgotten, up to
    the 400th, and then over a window of 200 or so.
    """
    return old + (new - old) / pt.clip((count + 1) / 2, 1, MEMORY)


def zeros(prefix: str, coordinates: dict[str, Variable]) -> dict[str, Variable]:
    """Zeros in the shapes of coordinates, under names of their own."""
    return {f"{prefix}_{name}": pt.zeros_like(x) for name, x in coordinates.items()}


def preconditioner(moments: Arrays) -> Arrays:
    """P = sqrt(mean V / V) of second moments V = E g², as of RMSprop: 1 where V has its mean."""
    mean = sum(v.sum() for v in moments) / sum(v.size for v in moments)
    return [pt.sqrt(mean / (v + LEAST_SHARE * mean)) for v in moments]


def length(x: Arrays) -> Variable:
    """|x|, not quite 0. PyTensor takes the square root of the square of a negative number alone for NaN."""
    return pt.sqrt(sum((y**2).sum() for y in x) + 1e-36)


def grown(rate: Variable, before: Variable, count: Variable, first: float) -> Variable:
    """The rate, which begins at most at ``first`` and grows by at most a tenth a step.

    At a fitted point an exact gradient is zero, from which alone any rate would follow: noise must come first.
    """
    return pt.minimum(rate, pt.switch(count <= 1, first, GROWTH * before))


def start_top(name: str, coordinates: dict[str, Variable]) -> dict[str, Variable]:
    """What :func:`learn_top` needs."""
    return {f"top_{name}": pt.zeros((), dtype=pytensor.config.floatX)} | zeros(f"direction_{name}", coordinates)


def learn_top(
    name: str, coordinates: list[str], g: Arrays, kept: dict[str, Variable], count: Variable
) -> dict[str, Variable]:
    """The largest eigenvalue of E g gᵀ, and its eigenvector q by Oja's rule.

        p = qᵀg,   top ← mean of p²,   q ← (q + κ p (g − p q)/top) / norm

    It begins at |g|², the sum of all eigenvalues, and falls.
    """
    names, least = [f"direction_{name}_{x}" for x in coordinates], 1e-30
    is_first = pt.le(count, 1)
    norm = length(g)
    q = [pt.switch(is_first, x / norm, kept[one]) for x, one in zip(g, names, strict=True)]
    p = sum((x * y).sum() for x, y in zip(q, g, strict=True))
    top = running_mean(kept[f"top_{name}"], p**2, count)
    step = p / (top + least) / pt.clip(count, 1, MEMORY / 2)
    q = [x + step * (y - p * x) for x, y in zip(q, g, strict=True)]
    norm = length(q)
    return {f"top_{name}": top} | {one: x / norm for one, x in zip(names, q, strict=True)}

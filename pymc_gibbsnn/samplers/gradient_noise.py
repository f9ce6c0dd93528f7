r"""What stochastic-gradient samplers learn about the noise of their gradients while they tune.

A gradient on a batch is g = ∇f + noise, where f = −log π and the covariance of the noise is 2B. If draws come from the
posterior, E ∇f ∇fᵀ is the mean curvature H, so that E g gᵀ = H + 2B. Differences of consecutive gradients, whose
batches are independent, depend on 2B alone: E (g' − g)(g' − g)ᵀ = 4B, as long as θ moves little between them.
"""

from __future__ import annotations

import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

__all__ = ["grown", "learn_noise", "learn_preconditioner", "learn_top", "preconditioner", "start_top", "zeros"]

MEMORY = 200  # over how many gradients means are taken
GROWTH = 1.1  # the largest factor by which a rate grows from one step to the next
LEAST_SHARE = 1e-5  # the share of the mean second moment that is added to each, so that none is 0

Arrays = list[Variable]


def running_mean(old: Variable, new: Variable, count: Variable) -> Variable:
    """Bring the mean of ``count`` numbers, the new one included, up to date.

    Weights grow linearly up to the 400th number, so that the start is forgotten; after that, the mean is over a window
    of about 200 numbers.
    """
    return old + (new - old) / pt.clip((count + 1) / 2, 1, MEMORY)


def zeros(prefix: str, coordinates: dict[str, Variable]) -> dict[str, Variable]:
    """Make zeros in the shapes of coordinates, whose names get a prefix."""
    return {f"{prefix}_{name}": pt.zeros_like(x) for name, x in coordinates.items()}


def preconditioner(moments: Arrays) -> Arrays:
    """Compute the preconditioner P = sqrt(mean V / V) from second moments V = E g²; it is 1 where all V are 0.

    The square root is that of the optimiser RMSprop.
    """
    mean = sum(v.sum() for v in moments) / sum(v.size for v in moments)
    return [pt.sqrt(pt.switch(mean > 0, mean / (v + LEAST_SHARE * mean), 1)) for v in moments]


def learn_preconditioner(
    names: list[str], g: Arrays, kept: dict[str, Variable], count: Variable
) -> tuple[dict[str, Variable], Arrays]:
    """Learn second moments V and the preconditioner P, one gradient after the other.

    Parameters
    ----------
    names : list of str
        The names of the coordinates.
    g : list of Variable
        The gradient, an array for each coordinate.
    kept : dict of str to Variable
        The carry.
    count : Variable
        The number of gradients so far, this one included.

    Returns
    -------
    changed : dict of str to Variable
        The entries of the carry that have changed, ``second_moment_`` and ``preconditioner_`` of each coordinate.
    scaled : list of Variable
        The gradient in the coordinates in which P is the identity, sqrt(P) g.
    """
    moments = [running_mean(kept[f"second_moment_{name}"], x**2, count) for name, x in zip(names, g, strict=True)]
    P = preconditioner(moments)
    changed = {f"second_moment_{name}": v for name, v in zip(names, moments, strict=True)}
    changed |= {f"preconditioner_{name}": x for name, x in zip(names, P, strict=True)}
    return changed, [pt.sqrt(p) * x for p, x in zip(P, g, strict=True)]


def learn_noise(names: list[str], g: Arrays, kept: dict[str, Variable], count: Variable) -> dict[str, Variable]:
    """Learn b, the diagonal of B, from differences of consecutive gradients; it is 0 as long as there is none.

    Parameters
    ----------
    names : list of str
        The names of the coordinates.
    g : list of Variable
        The gradient, an array for each coordinate.
    kept : dict of str to Variable
        The carry.
    count : Variable
        The number of gradients so far, this one included.

    Returns
    -------
    dict of str to Variable
        The entries of the carry that have changed, ``before_`` (the gradient) and ``noise_`` (b) of each coordinate.
    """
    changed = {}
    for name, x in zip(names, g, strict=True):
        b = running_mean(kept[f"noise_{name}"], (x - kept[f"before_{name}"]) ** 2 / 4, count - 1)
        changed |= {f"before_{name}": x, f"noise_{name}": pt.switch(count > 1, b, 0)}
    return changed


def length(x: Arrays) -> Variable:
    """Compute the Euclidean length of x, kept above 0.

    Without a number added, PyTensor simplifies the square root of the square of a single number, which gives NaN.
    """
    return pt.sqrt(sum((y**2).sum() for y in x) + 1e-36)


def grown(rate: Variable, before: Variable, count: Variable, first: float) -> Variable:
    """Limit the growth of a rate to a tenth for each step.

    At a fitted point the exact gradient is 0, from which any rate would follow; so the rate begins small.

    Parameters
    ----------
    rate : Variable
        The rate that follows from the gradients so far.
    before : Variable
        The rate of the last step.
    count : Variable
        The number of gradients so far.
    first : float
        The largest rate with which a chain may begin.

    Returns
    -------
    Variable
    """
    return pt.minimum(rate, pt.switch(count <= 1, first, GROWTH * before))


def start_top(name: str, coordinates: dict[str, Variable]) -> dict[str, Variable]:
    """Return the entries of the carry that :func:`learn_top` needs, with their values to begin with."""
    return {f"top_{name}": pt.zeros((), dtype=pytensor.config.floatX)} | zeros(f"direction_{name}", coordinates)


def learn_top(
    name: str, coordinates: list[str], g: Arrays, kept: dict[str, Variable], count: Variable
) -> dict[str, Variable]:
    """Learn the largest eigenvalue of E g gᵀ, and its eigenvector q by Oja's rule, one gradient after the other.

        p = qᵀg,   top ← mean of p²,   q ← (q + κ p (g − p q)/top) / norm

    The estimate begins with the first gradient other than 0, at |g|², the sum of all eigenvalues, and falls. A chain
    that starts at the mode may begin with a gradient of 0, from which no direction can be learned.

    Parameters
    ----------
    name : str
        A name for the entries of the carry.
    coordinates : list of str
        The names of the coordinates.
    g : list of Variable
        The gradient, an array for each coordinate.
    kept : dict of str to Variable
        The carry.
    count : Variable
        The number of gradients so far, this one included.

    Returns
    -------
    dict of str to Variable
        The entries of the carry that have changed, among them ``top_`` with the name, the eigenvalue.
    """
    names, least = [f"direction_{name}_{x}" for x in coordinates], 1e-30
    before = kept[f"top_{name}"]
    is_first = pt.eq(before, 0)
    norm = length(g)
    q = [pt.switch(is_first, x / norm, kept[one]) for x, one in zip(g, names, strict=True)]
    p = sum((x * y).sum() for x, y in zip(q, g, strict=True))
    top = pt.switch(is_first, p**2, running_mean(before, p**2, count))
    step = p / (top + least) / pt.clip(count, 1, MEMORY / 2)
    q = [x + step * (y - p * x) for x, y in zip(q, g, strict=True)]
    norm = length(q)
    return {f"top_{name}": top} | {one: x / norm for one, x in zip(names, q, strict=True)}

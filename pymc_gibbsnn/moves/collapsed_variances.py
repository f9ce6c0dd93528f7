r"""Variances of the noise on both sides of a layer, drawn together with the post-activations between integrated out.

Model, in the letters of :mod:`pymc_gibbsnn.moves`,

    A = σ(Z) + N(0, ΔA),   Y = A Wᵀ + N(0, ΔZ'),   ΔA ~ InverseGamma(α, β),   ΔZ' ~ InverseGamma(α', β').

Given A, the residuals of each variance fix it to within sqrt(2/N) of itself, however little the data say of which of
the two the noise is. With A integrated out, the rows of R = Y − σ(Z) Wᵀ are independent draws of N(0, S) with
S = ΔZ' I + ΔA W Wᵀ. Let W Wᵀ = U diag(e) Uᵀ, and let q_k be the sum over samples of the squares of R U. Then, up to a
constant, the logarithms of the variances have the density

    log p = −½ Σ_k [n log s_k + q_k/s_k] − α log ΔA − β/ΔA − α' log ΔZ' − β'/ΔZ',     s_k = ΔZ' + ΔA e_k.

Once e and q are known, a further pair of variances costs c numbers, not n. So many are tried at once [1]_: with normal
numbers ξ_0, ..., ξ_K and a step size h, the logarithms x become one of

    x_i = x + h (ξ_i − ξ_0),   i = 0, ..., K,

drawn with probabilities in proportion to their densities. These are the present x = x_0 and K points around the centre
x − h ξ_0. Given the centre all of them have the same distribution, whichever of them is the present one, so that the
draw leaves the density invariant. Each variance has a step size of its own.

A draw of A given Z and the new variances must follow before anything reads A.

References
----------
.. [1] H. Tjelmeland. Using all Metropolis-Hastings proposals to estimate mean values. Preprint Statistics 4/2004,
   Norwegian University of Science and Technology (2004).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal, uniform

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.site import Site

__all__ = ["collapsed_variances", "draw_variances", "in_eigenvectors", "step_sizes", "squares_of_residuals"]

POINTS = 64  # how many pairs of variances are tried, the present one among them
SMALLEST, LARGEST = 0.01, 3.0  # step sizes h


def in_eigenvectors(site: Site) -> tuple[Variable, Variable, Variable]:
    """Compute the eigenvalues e (c,) of W Wᵀ, and Y (n, c) and W (c, h) in its eigenvectors."""
    if site.above.shape[0] == 1:
        return (site.v**2).sum(axis=1), site.y, site.v
    eigenvalues, u = pt.linalg.eigh(site.v @ site.v.T)
    return pt.maximum(eigenvalues, 0), site.y @ u, u.T @ site.v


def squares_of_residuals(y: Variable, v: Variable, s: Variable) -> Variable:
    """Compute q (c,) from Y and W in eigenvectors and σ(Z) (n, h)."""
    return ((y - s @ v.T) ** 2).sum(axis=0)


def step_sizes(uniforms: Variable, smallest: float = SMALLEST, largest: float = LARGEST) -> Variable:
    """Turn uniform numbers into step sizes whose logarithms are uniform: nobody knows which size is right."""
    return smallest * pt.exp(math.log(largest / smallest) * uniforms)


def draw_variances(
    rng: Variable,
    noises: Sequence[Variable],
    priors: Sequence[tuple[Variable, Variable] | None],
    n: Variable,
    squares: Variable,
    eigenvalues: Variable,
) -> tuple[Variable, list[Variable]]:
    """Draw ΔA and ΔZ', of which one may be fixed, by one choice among several points.

    Parameters
    ----------
    rng : Variable
        The random generator.
    noises : sequence of Variable, () each
        The variances ΔA and ΔZ'.
    priors : sequence of tuple of Variable, () each
        The parameters of the inverse gamma prior of each; None for one that is fixed.
    n : Variable, ()
        The number of samples.
    squares, eigenvalues : Variable, (c,)
        q and e.

    Returns
    -------
    rng : Variable
    noises : list of Variable, () each
    """
    zero, one = pt.constant(np.array([0, 1], squares.dtype))
    rng, xi = draw(normal, rng, zero, one, size=(POINTS, 2))
    rng, uniforms = draw(uniform, rng, zero, one, size=(3,))
    steps = step_sizes(uniforms[1:]) * (xi - xi[0])  # the first one is 0
    log_density, tried = 0, []
    for noise, prior, step in zip(noises, priors, (steps[:, 0], steps[:, 1]), strict=True):
        if prior is None:
            tried.append(noise)
            continue
        alpha, rate = prior
        tried.append(noise * pt.exp(step))
        log_density -= alpha * step + rate / tried[-1]
    of_posts, of_above = (x[..., None] for x in tried)
    variances = of_above + of_posts * eigenvalues  # s
    log_density -= (n * pt.log(variances) + squares / variances).sum(axis=-1) / 2
    sums = pt.cumsum(pt.exp(log_density - log_density.max()))
    chosen = (sums < uniforms[0] * sums[-1]).sum()
    return rng, [x[chosen] if x.ndim else x for x in tried]


def collapsed_variances(rng: Variable, site: Site) -> tuple[Variable, Site]:
    """Draw the noise of the post-activations of a layer, and of the layer above, with the former integrated out.

    At least one of them must be a learned variance of its own; the other one is then held fixed.
    """
    eigenvalues, y, v = in_eigenvectors(site)
    squares = squares_of_residuals(y, v, site.activation.function(site.z))
    noises = {part.name: part.noise for part in (site.activation, site.above)}
    priors = [site.variances[name].of_noise if name in site.variances else None for name in noises]
    n = pt.cast(site.samples, squares.dtype)
    rng, drawn = draw_variances(rng, list(noises.values()), priors, n, squares, eigenvalues)
    new = {name: x for name, x in zip(noises, drawn, strict=True) if name in site.variances}
    return rng, replace(site.with_noise(new), post=None)

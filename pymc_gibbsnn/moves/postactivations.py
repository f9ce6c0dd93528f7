r"""Post-activations of a layer given its pre-activations and the layer above.

Model

    A = σ(Z) + N(0, ΔA),   Y = A Wᵀ + N(0, ΔZ'),   A (n, h), W (c, h),

with Y (n, c) the output of the layer above less its bias and offset, and ΔZ' its noise variance. For a convolution or
an average pool W is the matrix that it is for one image, which is never formed.

Conditional (Piccioli, Troiani, Zdeborová, arXiv 2306.02729, eq. 8, where the 1/ΔZ before the identity in the covariance
should read 1/ΔA): the rows of A, one for each sample, are independent Gaussians with one covariance for all. Matheron's
rule draws them without computing that covariance: draw (A₀, Y₀) from the model, then correct A₀ by what Y₀ misses of Y,

    A = A₀ + ΔA (Y − Y₀) G,    G = S⁻¹ W,    S = ΔZ' I + ΔA W Wᵀ.

This takes O(n h c) operations for a dense layer. Layers of the same shape are drawn together as one batch, with one
more axis, of the layers, in front of all arrays. If c = 1, the variance ΔZ', and with it G, may differ from row to row.

Where the layer above takes Z as it is, without an activation, Z has the same conditional, with its mean M in place of
σ(Z) and ΔZ in place of ΔA.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import normal

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.site import Site
from pymc_gibbsnn.random.isotropic_normal import isotropic_normal

__all__ = ["direct_latents", "draw_postactivations", "postactivations"]


def draw_postactivations(
    rng: Variable,
    s: Variable,
    noise_below: Variable,
    y: Variable,
    forward: Callable[[Variable], Variable],
    correct: Callable[[Variable], Variable],
    noise_above: Variable,
) -> tuple[Variable, Variable]:
    """Draw A given σ(Z) and the layer above, for one layer or, with one more axis in front, for a batch of layers.

    Parameters
    ----------
    rng : Variable
        The random generator.
    s : Variable, (n, h)
        σ(Z).
    noise_below : Variable, ()
        The variance ΔA; of shape (layers, 1, 1) for a batch.
    y : Variable, (n, c)
        Output of the layer above.
    forward : callable
        The layer above, a function from A to the mean of Y.
    correct : callable
        A function from a residual R of Y to ΔA R G.
    noise_above : Variable, ()
        The variance ΔZ', like ΔA; or (n, 1), one for each row, for one layer.

    Returns
    -------
    rng : Variable
    a : Variable, (n, h)
    """
    rng, a = draw(isotropic_normal, rng, s, _of_layers(noise_below))
    if noise_above.ndim == 2:
        rng, y_model = draw(normal, rng, forward(a), pt.sqrt(noise_above))
    else:
        rng, y_model = draw(isotropic_normal, rng, forward(a), _of_layers(noise_above))
    return rng, a + correct(y - y_model)


def _of_layers(noise: Variable) -> Variable:
    """Return the variance of one layer, or those of a batch, (layers,)."""
    return noise.squeeze(tuple(range(1, noise.ndim)))


def postactivations(rng: Variable, site: Site) -> tuple[Variable, Site]:
    """Draw the post-activations A of a layer, given its pre-activations Z and the layer above."""
    prior = site.activation.function(site.z), site.activation.noise
    rng, a = draw_postactivations(rng, *prior, *_above(site, prior[1]))
    return rng, replace(site, post=a)


def direct_latents(rng: Variable, site: Site) -> tuple[Variable, Site]:
    """Draw the output Z of a layer, given its mean, where the layer above takes it without an activation."""
    rng, z = draw_postactivations(rng, site.mean, site.layer.noise, *_above(site, site.layer.noise))
    return rng, replace(site, z=z, post=z)


def _above(site: Site, noise: Variable) -> tuple[Variable, Callable, Callable, Variable]:
    """Return what :func:`draw_postactivations` takes of the layer above, for an input whose noise has this variance."""
    operator, w, above = site.above.operator, site.w_above, site.above.noise

    def forward(a: Variable) -> Variable:
        return operator.forward(a, w)

    def correct(r: Variable) -> Variable:
        return operator.correction(r, w, noise, above)

    return site.above.centred(site.z_above), forward, correct, above

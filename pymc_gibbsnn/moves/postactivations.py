r"""Post-activations of a layer given its pre-activations and the layer above.

Model

    A = σ(Z) + N(0, ΔA),   Y = A Wᵀ + N(0, ΔZ'),   A (n, h), W (c, h),

with Y (n, c) the output of the layer above less its bias and offset, and ΔZ' its noise variance.

Conditional (Piccioli, Troiani, Zdeborová, arXiv 2306.02729, eq. 8, where the 1/ΔZ before the identity in the covariance
should read 1/ΔA): the rows of A, one for each sample, are independent Gaussians with one covariance for all. Matheron's
rule draws them without computing that covariance: draw (A₀, Y₀) from the model, then correct A₀ by what Y₀ misses of Y,

    A = A₀ + ΔA (Y − Y₀) G,    G = S⁻¹ W,    S = ΔZ' I + ΔA W Wᵀ.

This takes O(n h c) operations. Layers of the same shape are drawn together as one batch, with one more axis, of the
layers, in front of all arrays.
"""

from __future__ import annotations

from dataclasses import replace

from pytensor.graph.basic import Variable

from pymc_gibbsnn._compat import draw
from pymc_gibbsnn.moves.site import Move, Site
from pymc_gibbsnn.networks.layers.dense import transpose
from pymc_gibbsnn.random.isotropic_normal import isotropic_normal

__all__ = ["draw_postactivations", "postactivations"]


def draw_postactivations(
    rng: Variable, s: Variable, y: Variable, w: Variable, g: Variable, noise_below: Variable, noise_above: Variable
) -> tuple[Variable, Variable]:
    """Draw A given σ(Z) and the layer above, for one layer or, with one more axis in front, for a batch of layers.

    Parameters
    ----------
    rng : Variable
        The random generator.
    s : Variable, (n, h)
        σ(Z).
    y : Variable, (n, c)
        Output of the layer above, less its bias and offset.
    w, g : Variable, (c, h)
        Its weights W, without bias, and its gain G.
    noise_below, noise_above : Variable, ()
        The variances ΔA and ΔZ'; of shape (layers, 1, 1) for a batch.

    Returns
    -------
    rng : Variable
    a : Variable, (n, h)
    """
    v_below, v_above = (v.squeeze(tuple(range(1, v.ndim))) for v in (noise_below, noise_above))  # one for each layer
    rng, a = draw(isotropic_normal, rng, s, v_below)
    rng, y_model = draw(isotropic_normal, rng, a @ transpose(w), v_above)
    return rng, a + (y - y_model) @ (noise_below * g)


@Move
def postactivations(rng: Variable, site: Site, carry: dict) -> tuple[Variable, Site, dict, dict]:
    """Draw the post-activations A of a layer, given its pre-activations Z and the layer above."""
    s, below, above = site.activation.function(site.z), site.activation.noise, site.above.noise
    rng, a = draw_postactivations(rng, s, site.y, site.v, site.gain, below, above)
    return rng, replace(site, post=a), carry, {}

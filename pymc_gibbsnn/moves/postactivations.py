r"""Post-activations of a layer given its pre-activations and the layer above.

Model

    A = σ(Z) + N(0, ΔA),   Y = A Wᵀ + N(0, ΔZ),   A (n, h), W (c, h), Y (n, c) the output above less its bias

Conditional (Piccioli, Troiani, Zdeborová, arXiv 2306.02729, eq. 8, whose 1/ΔZ in the covariance should read 1/ΔA): all
rows share one covariance. Matheron's rule draws them without it: draw (A, Y) from the model, then correct A by what
Y is off,

    A = A₀ + ΔA (Y − Y₀) G,    G = S⁻¹ W,    S = ΔZ I + ΔA W Wᵀ,

in O(n h c), for a scalar output by one division. Layers of one shape are drawn together, where all arrays have an axis
before these.
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
    """A (n, h) given s = σ(Z) (n, h), Y (n, c), W (c, h) and G, the gain."""
    v_below, v_above = (v.squeeze(tuple(range(1, v.ndim))) for v in (noise_below, noise_above))  # one a layer
    rng, a = draw(isotropic_normal, rng, s, v_below)
    rng, y_model = draw(isotropic_normal, rng, a @ transpose(w), v_above)
    return rng, a + (y - y_model) @ (noise_below * g)


@Move
def postactivations(rng: Variable, site: Site, carry: dict) -> tuple[Variable, Site, dict, dict]:
    """A given Z and the layer above."""
    s, below, above = site.activation.function(site.z), site.activation.noise, site.above.noise
    rng, a = draw_postactivations(rng, s, site.y, site.v, site.gain, below, above)
    return rng, replace(site, post=a), carry, {}

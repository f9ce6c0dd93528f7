r"""The scale of a layer with its variances, drawn exactly along the orbit that leaves the network's function unchanged.

Where σ(cz) = c σ(z) for c > 0, the map that multiplies W̃, Z and A of all units of a layer by one c, their variances ΔZ
and ΔA by c², and divides the weights above by c leaves the network's function as it is, and the squares of all noises
over their variances. The moves of single units (:mod:`pymc_gibbsnn.moves.centred_scale`) do not change the variances,
which hold the noises where they are; here only the priors change. It is a generalised Gibbs step [1]_. With priors
InverseGamma(α, β) of the variances and u = log c, exactly

    log p(u) = p u − ½ Q1 e^{2u} − ½ Q2 e^{−2u} + const,      p = h d − h c_out − 2 (α_Z + α_A),
    Q1 = Σ Λ W̃²,      Q2 = Σ Λ' W² + 2 β_Z/ΔZ + 2 β_A/ΔA,

where h d counts the weights that come into the layer, biases included, and h c_out those that go out. The powers of c
that Z and A contribute to the Jacobian are those by which the densities of their noises fall. So c² is generalised
inverse Gaussian with the parameters (p/2, Q1, Q2).

References
----------
.. [1] J. S. Liu, C. Sabatti. Generalised Gibbs sampler and multigrid Monte Carlo for Bayesian computation.
   Biometrika 87 (2000).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.moves.centred_scale import draw_scales
from pymc_gibbsnn.moves.site import Site
from pymc_gibbsnn.networks.given import given

__all__ = ["layer_scale", "layer_scale_conditional"]


def layer_scale(rng: Variable, site: Site) -> tuple[Variable, Site]:
    """Draw one scale for all units of a layer, and apply it to weights, latents, variances and the weights above.

    The activation must be homogeneous, σ(cz) = c σ(z), the layer without offset, and both variances learned, each of
    them of its own.
    """
    rng, c = draw_scales(rng, *layer_scale_conditional(site))
    noises = {part.name: part.noise * c**2 for part in (site.layer, site.activation)}
    columns = c * pt.ones_like(site.z[0])
    scaled = {"w": site.w * c, "w_above": site.above.operator.relieved(site.w_above, columns)}
    scaled |= {"z": site.z * c, "mean": site.mean * c, "post": site.post * c}
    squares = tuple(square * c**2 for square in site.noise)
    return rng, replace(site, **scaled, squares=squares).with_noise(noises)


def layer_scale_conditional(site: Site) -> tuple[Variable, Variable, Variable]:
    """Compute p, Q1 and Q2 of the conditional distribution of the scale, () each."""
    operator, above = site.layer.operator, site.above.operator
    incoming, outgoing = operator.incoming(site.w).sum(), above.outgoing(site.w_above).sum()
    units, fan_in = operator.augmented_shape
    exponent = given(np.asarray(units * (fan_in - round(operator.places * above.fan_out)), incoming.dtype))
    for part in (site.layer, site.activation):
        alpha, rate = site.variances[part.name].of_noise
        exponent, outgoing = exponent - 2 * alpha, outgoing + 2 * rate / part.noise
    return exponent, incoming, outgoing

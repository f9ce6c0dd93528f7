r"""The variance of the noise of pre-activations, drawn with this noise in units of its deviation held fixed.

Model, in the letters of :mod:`pymc_gibbsnn.moves`,

    Z = M + sqrt(ΔZ) E,   E ~ N(0, I),   Y | Z ~ N(σ(Z) Wᵀ, S),   ΔZ ~ InverseGamma(α, β).

Given Z, its n h residuals fix ΔZ to within sqrt(2/nh) of itself, and Z changes by about its noise a sweep. Given E in
place of Z (this is the other parametrisation of interweaving [1]_), only the data above hold ΔZ. With A integrated out,
x = log ΔZ has the density

    log p(x) = −½ Σ_k [n log s_k + q_k(Z)/s_k] − α x − β e^{−x} + const,   Z = M + sqrt(ΔZ) E,

in the letters of :mod:`pymc_gibbsnn.moves.collapsed_variances`. One Metropolis-Hastings step proposes x + h ξ, with a
normal number ξ and a step size h whose logarithm is uniform.

References
----------
.. [1] Y. Yu, X.-L. Meng. To center or not to center: that is not the question. J. Comput. Graph. Stat. 20 (2011).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal, uniform

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.collapsed_variances import in_eigenvectors, squares_of_residuals, step_sizes
from pymc_gibbsnn.moves.site import Site

__all__ = ["noncentred_variance"]


def noncentred_variance(rng: Variable, site: Site) -> tuple[Variable, Site]:
    """Move the noise of the pre-activations of a layer, and Z with it, by one Metropolis-Hastings step.

    This noise must be a learned variance of its own.
    """
    name, noise, function = site.layer.name, site.layer.noise, site.activation.function
    alpha, rate = site.variances[name].of_noise
    eigenvalues, y, v = in_eigenvectors(site)
    zero, one = pt.constant(np.array([0, 1], noise.dtype))
    rng, xi = draw(normal, rng, zero, one)
    rng, uniforms = draw(uniform, rng, zero, one, size=(2,))
    step = step_sizes(uniforms[0]) * xi

    def moved(step: Variable) -> Variable:
        return site.mean + pt.exp(step / 2) * (site.z - site.mean)

    old, new = (squares_of_residuals(y, v, function(z)) for z in (site.z, moved(step)))
    change = ((old - new) / (site.above.noise + site.activation.noise * eigenvalues)).sum() / 2
    log_ratio = change - alpha * step - rate / noise * pt.expm1(-step)
    step = pt.switch(pt.log1p(-uniforms[1]) < log_ratio, step, 0)
    return rng, replace(site, z=moved(step), post=None).with_noise({name: noise * pt.exp(step)})

r"""The scale of each unit of a layer, drawn exactly along the orbit that leaves the network's function unchanged.

Where σ(cz) = c σ(z) for c > 0, as for the ReLU, the map that multiplies W̃_j, Z_j and A_j of unit j by c and divides its
outgoing weights w_j by c leaves A Wᵀ as it is. The values that it reaches from one point, for all c, are the orbit of
that point; along it only the priors and the noise change. Plain Gibbs moves along this narrow ridge of the posterior in
small steps; a draw of c from its conditional distribution on the orbit crosses it at once. It is a generalised Gibbs
step [1]_. With u = log c, exactly

    log p(u) = p u − ½ Q1 e^{2u} − ½ Q2 e^{−2u} + const,      p = d + 2n − c_out,
    Q1 = Σ (Z_j − M_j)²/ΔZ + Σ (A_j − σ(Z_j))²/ΔA + Σ Λ_j W̃_j²,      Q2 = Σ Λ' w_j²,

where M = Ã W̃ᵀ, d counts the weights that come in, the bias included, c_out those that go out, and Λ' are the prior
precisions of the layer above. So c² is generalised inverse Gaussian with the parameters (p/2, Q1, Q2).

Where σ(cz) = σ(z), as for the sign function, A and the outgoing weights stay as they are: p = d + n, Q2 = 0, and Q1 has
no term in A.

Far from equilibrium these exact draws can lead away from it. While weights and latents are still near 0, the data are
best explained by the noise of a few units, amplified by large outgoing weights, which a scale far below 1 gives them
at once: against the 2n numbers of a unit's noise the prior of its c_out outgoing weights counts for little. Measured
from zero at n = 2084, 50-10-1, Δ = 1e-4, without the interweaving move: after two sweeps three units have outgoing
weights of 4 to 9, whose standard deviation a priori is 0.3, and their noise alone makes the residuals small. The
other units are not needed any more and go to outgoing weights below 0.01 at the scale of their prior, where their
weights move by sqrt(Δ/n) a sweep and never learn. The interweaving move, which moves weights and pre-activations
together, leads out, and so does more noise while the chain tunes: keep one of them where scales are drawn. The default
call does not get there, because a chain that tunes starts from a fitted network.

References
----------
.. [1] J. S. Liu, C. Sabatti. Generalised Gibbs sampler and multigrid Monte Carlo for Bayesian computation.
   Biometrika 87 (2000).
"""

from __future__ import annotations

from dataclasses import replace

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.site import Site
from pymc_gibbsnn.networks.given import given
from pymc_gibbsnn.random.generalised_inverse_gaussian import generalised_inverse_gaussian

__all__ = ["centred_scales", "draw_scales", "scale_conditional"]


def draw_scales(rng: Variable, exponent: Variable, incoming: Variable, outgoing: Variable) -> tuple[Variable, Variable]:
    """Draw a scale for each of the h units of a layer, from the conditional distribution of this module.

    Parameters
    ----------
    rng : Variable
        The random generator.
    exponent : Variable, ()
        p.
    incoming : Variable, (h,)
        Q1 of each unit.
    outgoing : Variable, (h,)
        Q2 of each unit.

    Returns
    -------
    rng : Variable
    c : Variable, (h,)
        Positive scales.
    """
    rng, squared = draw(generalised_inverse_gaussian, rng, exponent / 2, incoming, outgoing)
    return rng, pt.sqrt(squared)


def centred_scales(rng: Variable, site: Site) -> tuple[Variable, Site]:
    """Draw a scale for each unit of a layer and apply it to the weights, latents and outgoing weights of the unit.

    The activation must be homogeneous, σ(cz) = c σ(z), or scale-free, σ(cz) = σ(z), and the layer without offset.
    """
    operator, homogeneous = site.layer.operator, site.activation.function.is_homogeneous
    noise_z, noise_a = site.noise
    rng, c = draw_scales(rng, *scale_conditional(site))
    columns = operator.spread(c)
    scaled = {"w": operator.scaled(site.w, c), "z": site.z * columns, "mean": site.mean * columns}
    if homogeneous:
        noise_a = noise_a * c**2
        scaled |= {"post": site.post * columns, "w_above": site.above.operator.relieved(site.w_above, columns)}
    return rng, replace(site, **scaled, squares=(noise_z * c**2, noise_a))


def scale_conditional(site: Site) -> tuple[Variable, Variable, Variable]:
    """Compute p (), Q1 (h,) and Q2 (h,) of the conditional distribution of the scales of the units of a layer."""
    operator, above = site.layer.operator, site.above.operator
    noise_z, noise_a = site.noise
    incoming = operator.incoming(site.w) + noise_z / site.layer.noise
    d, n = given(operator.fan_in), site.samples * operator.places
    if not site.activation.function.is_homogeneous:  # but scale-free, with which A and the weights above stay
        return pt.cast(d + n, incoming.dtype), incoming, pt.zeros_like(incoming)
    exponent = pt.cast(d + 2 * n - given(round(operator.places * above.fan_out)), incoming.dtype)
    outgoing = operator.by_unit(above.outgoing(site.w_above)[None])
    return exponent, incoming + noise_a / site.activation.noise, outgoing

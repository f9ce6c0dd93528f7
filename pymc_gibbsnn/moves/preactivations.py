r"""Pre-activations of a layer given its weights, and what they see above them.

Model

    Z = M + N(0, ΔZ),   A = σ(Z) + N(0, ΔA),   Y = A Wᵀ + N(0, ΔZ'),   M = Ã W̃ᵀ (n, h), W (c, h), Y (n, c)

Given A (plain; Piccioli, Troiani, Zdeborová, arXiv 2306.02729, eq. 10), each element is a normal seen through σ, with

    κ = 1/ΔA,   t = A/ΔA.

With A integrated out (collapsed), Y | Z ~ N(σ(Z) Wᵀ, S), S = ΔZ' I + ΔA W Wᵀ, the units of a sample in turn have

    κ_j = w_jᵀ S⁻¹ w_j,   t = (Y − σ(Z) Wᵀ) S⁻¹ w_j + κ_j σ(z_j).

Where σ has no linear pieces, the draw is one Metropolis-Hastings step of each element, which proposes from these laws
for a table of lines close to σ (:mod:`pymc_gibbsnn.random.smooth_normal`).

A collapsed draw leaves A out of date: A given Z must follow before anything reads A (van Dyk & Park 2008).

References
----------
.. [1] D. A. van Dyk, T. Park. Partially collapsed Gibbs samplers. JASA 103 (2008).
"""

from __future__ import annotations

from dataclasses import replace

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import uniform

from pymc_gibbsnn._compat import draw
from pymc_gibbsnn.moves.site import Move, Site
from pymc_gibbsnn.moves.weights import ONE
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.likelihoods.likelihood import LabelLikelihood
from pymc_gibbsnn.networks.smooth import Smooth
from pymc_gibbsnn.random.piecewise_normal import coupled_piecewise_normal, piecewise_normal
from pymc_gibbsnn.random.smooth_normal import CoupledSmoothNormalRV, log_correction

__all__ = [
    "draw_preactivations",
    "draw_preactivations_collapsed",
    "label_latents",
    "preactivations",
    "preactivations_collapsed",
]


def draw_preactivations(
    rng: Variable,
    z: Variable,
    m: Variable,
    a: Variable,
    noise: Variable,
    noise_above: Variable,
    function: PiecewiseLinear | Smooth,
) -> tuple[Variable, Variable]:
    """Z (n, h) given M and A (n, h), from the current Z; ``noise`` is ΔZ and ``noise_above`` is ΔA, () or (h,)."""
    ones = pt.ones_like(z[0])
    kappa, t, noise = ones / noise_above, a / noise_above, ones * noise
    if isinstance(function, PiecewiseLinear):
        return draw(piecewise_normal, rng, m, noise, t, kappa, *_table(function, m.dtype))
    rng, new = draw(piecewise_normal, rng, m, noise, t, kappa, *_table(function.table, m.dtype))
    rng, u = draw(uniform, rng, pt.zeros_like(z), ONE)
    old, log_ratio = (log_correction(function(x), function.table(x), t, kappa) for x in (z, new))
    return rng, pt.switch(pt.log1p(-u) < log_ratio - old, new, z)


def draw_preactivations_collapsed(
    rng: Variable,
    z: Variable,
    m: Variable,
    y: Variable,
    w: Variable,
    g: Variable,
    noise: Variable,
    function: PiecewiseLinear | Smooth,
) -> tuple[Variable, Variable]:
    """Z (n, h) with A integrated out, from the current Z, M, Y, W and G = S⁻¹ W."""
    if isinstance(function, PiecewiseLinear):
        return draw(coupled_piecewise_normal, rng, z, m, noise, y, w, g, *_table(function, m.dtype))
    return draw(CoupledSmoothNormalRV(function), rng, z, m, noise, y, w, g, *_table(function.table, m.dtype))


@Move
def preactivations(rng: Variable, site: Site, carry: dict) -> tuple[Variable, Site, dict, dict]:
    """Z given A."""
    noises = site.layer.noise, site.activation.noise
    rng, z = draw_preactivations(rng, site.z, site.mean, site.post, *noises, site.activation.function)
    return rng, replace(site, z=z), carry, {}


@Move
def preactivations_collapsed(rng: Variable, site: Site, carry: dict) -> tuple[Variable, Site, dict, dict]:
    """Z with A integrated out."""
    surroundings = site.mean, site.y, site.v, site.gain
    rng, z = draw_preactivations_collapsed(rng, site.z, *surroundings, site.layer.noise, site.activation.function)
    return rng, replace(site, z=z), carry, {}


def label_latents(labels: LabelLikelihood) -> Move:
    """Z of the last layer given its mean and these labels."""

    def step(rng: Variable, site: Site, carry: dict) -> tuple[Variable, Site, dict, dict]:
        rng, z = labels.draw_latent(rng, site.z, site.mean, site.layer.noise)
        return rng, replace(site, z=z), carry, {}

    return Move(step)


def _table(function: PiecewiseLinear, dtype: str) -> list[Variable]:
    return [pt.constant(x.astype(dtype)) for x in (function.edges, function.slopes, function.intercepts)]

r"""Pre-activations of a layer given its weights below and its post-activations, or the layer, above.

Model

    Z = M + N(0, ΔZ),   A = σ(Z) + N(0, ΔA),   Y = A Wᵀ + N(0, ΔZ'),   M = Ã W̃ᵀ (n, h), W (c, h), Y (n, c)

Plain draw, given A (Piccioli, Troiani, Zdeborová, arXiv 2306.02729, eq. 10): the elements of Z are independent, with
the prior N(M, ΔZ) and the likelihood exp(t σ(z) − κ σ(z)²/2), where

    κ = 1/ΔA,   t = A/ΔA.

Collapsed draw, with A integrated out: Y | Z ~ N(σ(Z) Wᵀ, S), S = ΔZ' I + ΔA W Wᵀ. The units of a sample are drawn in
turn, each given the others, with the same form of likelihood and

    κ_j = w_jᵀ S⁻¹ w_j,   t = (Y − σ(Z) Wᵀ) S⁻¹ w_j + κ_j σ(z_j).

For a piecewise-linear σ these draws are exact (:mod:`pymc_gibbsnn.random.piecewise_normal`). For another σ each element
makes one Metropolis-Hastings step instead, which proposes from the conditional distribution for a piecewise-linear
function close to σ (:mod:`pymc_gibbsnn.random.smooth_normal`).

A collapsed draw leaves no A: a draw of A given Z must follow before anything reads A, so that the sampler is a valid
partially collapsed one [1]_.

References
----------
.. [1] D. A. van Dyk, T. Park. Partially collapsed Gibbs samplers. JASA 103 (2008).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import uniform

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.site import Site
from pymc_gibbsnn.moves.weights import ONE
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.smooth import Smooth
from pymc_gibbsnn.random.piecewise_normal import coupled_piecewise_normal, piecewise_normal
from pymc_gibbsnn.random.smooth_normal import CoupledSmoothNormalRV, log_correction

__all__ = [
    "draw_preactivations",
    "draw_preactivations_collapsed",
    "last_latents",
    "preactivations",
    "preactivations_collapsed",
    "preactivations_collapsed_in_windows",
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
    """Draw Z given its mean M and the post-activations A: exactly, or by one Metropolis-Hastings step for a smooth σ.

    Parameters
    ----------
    rng : Variable
        The random generator.
    z : Variable, (n, h)
        Current values of Z, which only the step for a smooth σ needs.
    m : Variable, (n, h)
        The mean M.
    a : Variable, (n, h)
        Post-activations A.
    noise, noise_above : Variable, () or (h,)
        The variances ΔZ and ΔA, of all units or of each.
    function : PiecewiseLinear or Smooth
        The activation σ.

    Returns
    -------
    rng : Variable
    z : Variable, (n, h)
    """
    noise, kappa = (x if x.ndim else x * pt.ones_like(z[0]) for x in (noise, 1 / noise_above))
    t = a / noise_above
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
    """Draw Z, one unit after the other, with A integrated out.

    Parameters
    ----------
    rng : Variable
        The random generator.
    z : Variable, (n, h)
        Current values of Z.
    m : Variable, (n, h)
        The mean M.
    y : Variable, (n, c)
        Output of the layer above, less its bias and offset.
    w, g : Variable, (c, h)
        Its weights W, without bias, and its gain G = S⁻¹ W.
    noise : Variable, ()
        The variance ΔZ.
    function : PiecewiseLinear or Smooth
        The activation σ.

    Returns
    -------
    rng : Variable
    z : Variable, (n, h)
    """
    if isinstance(function, PiecewiseLinear):
        return draw(coupled_piecewise_normal, rng, z, m, noise, y, w, g, *_table(function, m.dtype))
    return draw(CoupledSmoothNormalRV(function), rng, z, m, noise, y, w, g, *_table(function.table, m.dtype))


def preactivations(rng: Variable, site: Site) -> tuple[Variable, Site]:
    """Draw the pre-activations Z of a layer, given its mean from below and its post-activations A."""
    # The number of units is asked of the model's variable: PyTensor writes that of what is computed in varying ways.
    ones = pt.ones_like(site.layer.operator.rows(site.layer.output)[0])
    noises = site.layer.noise * ones, site.activation.noise * ones
    rng, z = draw_preactivations(rng, site.z, site.mean, site.post, *noises, site.activation.function)
    return rng, replace(site, z=z)


def preactivations_collapsed(rng: Variable, site: Site) -> tuple[Variable, Site]:
    """Draw the pre-activations Z of a layer with its post-activations A integrated out, given the layer above."""
    surroundings = site.mean, site.y, site.v, site.gain
    rng, z = draw_preactivations_collapsed(rng, site.z, *surroundings, site.layer.noise, site.activation.function)
    return rng, replace(site, z=z, post=None)


def preactivations_collapsed_in_windows(rng: Variable, site: Site) -> tuple[Variable, Site]:
    """Draw Z with A integrated out, below an average pool whose windows tile the images.

    Windows do not depend on each other, so each counts as a sample of its own, and its P pixels as units: Y, one number
    for each window, has the mean Σ A/P and the variance ΔZ' + ΔA/P.
    """
    operator, noise_above = site.above.operator, site.above.noise
    size = math.prod(operator.windows.size)
    w = pt.constant(np.full((1, size), 1 / size, site.z.dtype))
    gain = w / (noise_above + site.activation.noise * w[0, 0])
    y = site.above.centred(site.z_above).reshape((-1, 1))
    surroundings = operator.by_window(site.mean), y, w, gain
    z = operator.by_window(site.z)
    rng, z = draw_preactivations_collapsed(rng, z, *surroundings, site.layer.noise, site.activation.function)
    return rng, replace(site, z=operator.from_windows(z), post=None)


def last_latents(rng: Variable, site: Site) -> tuple[Variable, Site]:
    """Draw the pre-activations Z of the last layer, given their mean and the data, such as labels, that Z gives."""
    rng, z, squares = site.observation.draw_latent(rng, site.z, site.mean, site.layer.noise)
    return rng, replace(site, z=z, data_squares=squares)


def _table(function: PiecewiseLinear, dtype: str) -> list[Variable]:
    """Return edges, slopes and intercepts of a piecewise-linear function as constants of a dtype."""
    return [pt.constant(x.astype(dtype)) for x in (function.edges, function.slopes, function.intercepts)]

r"""The interweaving move by one Langevin step of all units of a layer together, for layers with many inputs.

What interweaving means, and the target, stand in :mod:`pymc_gibbsnn.moves.interweave_pieces`; here the target is taken
for all units at once. With the noise Z − Ã W̃ᵀ held fixed and A integrated out,

    log π(W̃) = −½ Σ_μ (y_μ − W σ(z_μ))ᵀ S⁻¹ (y_μ − W σ(z_μ)) − ½ Σ_j W̃_jᵀ Λ_j W̃_j,
    ∇_j = Ãᵀ(σ'(z_j) ∘ pull_j) − Λ_j W̃_j,     pull = (Y − σ(Z) Wᵀ) S⁻¹ W,

where μ runs over samples and j over units. The preconditioner C approximates the covariance of π. It is computed as if
the slopes σ'(z) at different samples were independent, with z ~ N(0, 1):

    C = (K ⊗ ÃᵀÃ + I ⊗ Λ)⁻¹,     K = Wᵀ S⁻¹ W ∘ F,   F = E[σ'(z)²] on the diagonal and E[σ'(z)]² off it,

with Λ the mean over units. The proposal is an autoregressive step of persistence 0 ≤ ρ < 1,

    W̃' = W̃ + (1 − ρ) C ∇ + sqrt(1 − ρ²) C^{1/2} ξ,     ξ ~ N(0, I),

which leaves π invariant by itself where π is Gaussian with covariance C; the Metropolis-Hastings rule accepts or
rejects it, which makes it exact. It is a Langevin step [1]_, whose step size h is about 2(1 − ρ).

With Λ^{-1/2} ÃᵀÃ Λ^{-1/2} = U diag(e) Uᵀ and K = R diag(k) Rᵀ, C^{1/2} x = Λ^{-1/2} B x, where B multiplies the
coordinate of x along R_i and U_j by (k_i e_j + 1)^{-1/2}, and leaves directions outside the span of U as they are. A
move costs three products with Ã.

References
----------
.. [1] G. O. Roberts, J. S. Rosenthal. Optimal scaling of discrete approximations to Langevin diffusions. JRSSB 60
   (1998).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal, uniform
from scipy.special import ndtri

from pymc_gibbsnn._robbins_monro import robbins_monro
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.site import NOTHING, Move, Nothing, Site
from pymc_gibbsnn.moves.weights import Spectrum, data_spectrum, spectrum
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.given import is_given
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.networks.smooth import Smooth

__all__ = ["TARGET_ACCEPTANCE", "interweave_langevin", "langevin_step"]

TARGET_ACCEPTANCE = 0.574
"""The acceptance probability at which a Langevin step in many dimensions moves farthest (Roberts & Rosenthal 1998)."""
TUNE_STEPS = 1000  # how many tuning steps the move needs


class StepSize(NamedTuple):
    """What the move remembers."""

    spectrum: Spectrum | Nothing  # that of the data, in the data layer
    log_step: Variable  # log(1 − ρ)
    tuned: Variable  # how many steps the chain has made


class Report(NamedTuple):
    """What the move reports: the acceptance probability of its proposal, and 1 − ρ."""

    acceptance: Variable
    step_size: Variable


def interweave_langevin(network: Network, l: int) -> Move:
    """Make the move of W̃ and Z of layer l, which tunes its step size."""
    a, operator = network.inputs, network.layers[l].operator
    is_learned = not is_given(operator.precision)
    first = min(0.0, math.log(2 / math.prod(operator.augmented_shape) ** (1 / 3)))
    log_step = pt.constant(np.asarray(first, a.dtype))
    is_kept = l == 0 and (network.random_inputs is None or network.changing_rows is not None)
    memory = StepSize(data_spectrum(network) if is_kept else NOTHING, log_step, pt.zeros((), dtype=a.dtype))

    def step(rng: Variable, site: Site, memory: StepSize) -> tuple[Variable, Site, StepSize, Report]:
        operator = site.layer.operator
        if not is_kept:
            mean_precision = operator.precision.mean(axis=0, keepdims=True)
            basis = spectrum(operator, site.a, site.samples, mean_precision, thin=False)
        else:
            u, eigenvalues = memory.spectrum
            # A preconditioner need not be exact, and a few rows that change are left out of it
            if is_learned:
                eigenvalues = eigenvalues / operator.precision.mean()
            if operator.ones is not None:
                eigenvalues = eigenvalues * (operator.ones**2).mean()
            basis = Spectrum(u, eigenvalues)
        rng, w, z, acceptance = langevin_step(rng, site, basis, memory.log_step)
        count = memory.tuned + 1
        log_step = robbins_monro(memory.log_step, count, acceptance, TARGET_ACCEPTANCE, site.tuning)
        report = Report(acceptance, pt.exp(memory.log_step))
        return rng, site.with_weights(w, z), memory._replace(log_step=log_step, tuned=count), report

    return Move.of(operator.name, step, memory, Report, TUNE_STEPS, {"log_step": "step_size"})


def langevin_step(
    rng: Variable, site: Site, basis: Spectrum, log_step: Variable
) -> tuple[Variable, Variable, Variable, Variable]:
    """Make one Langevin step of all weights W̃ of a layer; Z moves with them.

    Parameters
    ----------
    rng : Variable
        The random generator.
    site : Site
        The layer.
    basis : Spectrum
        U (d, r) and e (r,) of the layer's input.
    log_step : Variable, ()
        log(1 − ρ).

    Returns
    -------
    rng : Variable
    w, z : Variable
        W̃ and Z after the step.
    acceptance : Variable, ()
        The probability with which the proposal was accepted.
    """
    operator, function, a, w, z = site.layer.operator, site.activation.function, site.a, site.w, site.z
    y, v, g, precision, shape = site.y, site.v, site.gain, operator.precision, operator.size
    zero, one = pt.constant(np.array([0, 1], w.dtype))
    rng, xi = draw(normal, rng, zero, one, size=shape)
    rng, uniform_ = draw(uniform, rng, zero, one, size=(1,))

    scale = 1 / pt.sqrt(precision.mean(axis=0))
    couplings = v.T @ g  # Wᵀ S⁻¹ W, which has κ on its diagonal
    cross, own = _mean_slopes(function)
    curvatures, r = pt.linalg.eigh(couplings * (cross + (own - cross) * pt.eye(shape[0])))
    shrink = 1 / pt.sqrt(1 + pt.maximum(curvatures, 0)[:, None] * basis.eigenvalues)

    def precondition(x):
        """Compute B x, for a row x of each unit."""
        return x + r @ ((shrink - 1) * (r.T @ x @ basis.u)) @ basis.u.T

    def drift(w, z, pull):
        """Compute B Λ^{-1/2} ∇, a row for each unit."""
        return precondition((operator.moments(a, function.derivative(z) * pull).T - precision * w) * scale)

    s = function(z)
    pull = (y - s @ v.T) @ g
    step_size = pt.exp(log_step)
    noise = pt.sqrt(step_size * (2 - step_size))
    forth = drift(w, z, pull)
    step = precondition(step_size * forth + noise * xi) * scale
    w_new, z_new = w + step, z + operator.forward(a, step)
    change = function(z_new) - s
    response = change @ couplings
    back = drift(w_new, z_new, pull - response)
    xi_back = -xi - step_size / noise * (forth + back)
    log_ratio = (
        (change * (pull - response / 2)).sum()
        - (precision * step * (w + w_new)).sum() / 2
        + ((xi**2).sum() - (xi_back**2).sum()) / 2
    )
    log_ratio = pt.switch(pt.isnan(log_ratio), -np.inf, log_ratio)
    accept = pt.log1p(-uniform_[0]) < log_ratio
    acceptance = pt.exp(pt.minimum(log_ratio, 0))
    return rng, pt.switch(accept, w_new, w), pt.switch(accept, z_new, z), acceptance


def _mean_slopes(function: PiecewiseLinear | Smooth) -> tuple[float, float]:
    """Compute E[σ'(z)]² and E[σ'(z)²] for z ~ N(0, 1): the entries of F between two units, and within one.

    By Stein's identity E[σ'(z)] = E[z σ(z)], which also holds for an activation that jumps, such as sign.
    """
    z = ndtri((np.arange(1000) + 0.5) / 1000)
    cross = np.mean(z * function(z)) ** 2
    # Python's floats leave an expression in single precision as it is; NumPy's would make it double.
    return float(cross), float(max(cross, np.mean(function.derivative(z) ** 2)))

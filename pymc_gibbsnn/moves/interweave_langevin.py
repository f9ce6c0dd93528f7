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

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal, uniform
from scipy.special import ndtri

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.layers.weighted import Weighted
from pymc_gibbsnn.networks.smooth import Smooth

__all__ = ["TARGET_ACCEPTANCE", "interweave_langevin"]

TARGET_ACCEPTANCE = 0.574
"""The acceptance probability at which a Langevin step in many dimensions moves farthest (Roberts & Rosenthal 1998)."""


def interweave_langevin(
    rng: Variable,
    operator: Weighted,
    a: Variable,
    w: Variable,
    z: Variable,
    y: Variable,
    v: Variable,
    g: Variable,
    u: Variable,
    eigenvalues: Variable,
    log_step: Variable,
    function: PiecewiseLinear | Smooth,
    shape: tuple[Variable | int, Variable | int],
) -> tuple[Variable, ...]:
    """Make one Langevin step of all weights W̃ of a layer; Z moves with them.

    Parameters
    ----------
    rng : Variable
        The random generator.
    operator : Weighted
        The layer's operator, which knows its prior precisions Λ.
    a : Variable, (n, inputs)
        The layer's input A, without the column of ones for a bias.
    w : Variable, (h, d)
        Its weights W̃, with the bias.
    z : Variable, (n, h)
        Its output Z.
    y : Variable, (n, c)
        Output of the layer above, less its bias and offset.
    v, g : Variable, (c, h)
        Weights W of the layer above, without bias, and its gain S⁻¹ W.
    u : Variable, (d, r)
        Eigenvectors U of the input's scaled Gram matrix, for the mean of Λ over units.
    eigenvalues : Variable, (r,)
        Its eigenvalues e.
    log_step : Variable, ()
        log(1 − ρ).
    function : PiecewiseLinear or Smooth
        The activation σ.
    shape : tuple
        (h, d).

    Returns
    -------
    rng : Variable
    w, z : Variable
        W̃ and Z after the step.
    acceptance : Variable, ()
        The probability with which the proposal was accepted.
    """
    precision = operator.precision
    zero, one = pt.constant(np.array([0, 1], w.dtype))
    rng, xi = draw(normal, rng, zero, one, size=shape)
    rng, uniform_ = draw(uniform, rng, zero, one, size=(1,))

    scale = 1 / pt.sqrt(precision.mean(axis=0))
    couplings = v.T @ g  # Wᵀ S⁻¹ W, which has κ on its diagonal
    cross, own = _mean_slopes(function)
    curvatures, r = pt.linalg.eigh(couplings * (cross + (own - cross) * pt.eye(shape[0])))
    shrink = 1 / pt.sqrt(1 + pt.maximum(curvatures, 0)[:, None] * eigenvalues)

    def precondition(x):
        """Compute B x, for a row x of each unit."""
        return x + r @ ((shrink - 1) * (r.T @ x @ u)) @ u.T

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

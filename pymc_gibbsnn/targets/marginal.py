r"""The linear readout of a network with a Gaussian likelihood: its conditional, and the marginal likelihood.

The readout θ is the last layer, its weights and bias together. Model, with k outputs, features Ψ (n, h) and an offset o
(n, k), both any functions of other variables, and with prior means m and scales s of θ (h, k):

    y = Ψ θ + o + N(0, σ²),     θ = m + s φ_out,  φ_out ~ N(0, I).

The scales are the same for all outputs. From here on Ψ stands for Ψ s; let r = y − o − Ψ m (n, k), with the unscaled Ψ.
With the readout integrated out, the log likelihood of all other variables is [1]_ [2]_

    ℓ = −½ tr(rᵀ K⁻¹ r) − (k/2) log det K − (nk/2) log 2π,     K = σ² I + Ψ Ψᵀ (n, n).

Where h < n it is computed from G = ΨᵀΨ + σ² I = L Lᵀ (h, h),

    φ̂ = L⁻ᵀ L⁻¹ Ψᵀ r,     φ_out = φ̂ + σ L⁻ᵀ ξ,     ξ ~ N(0, I),
    tr(rᵀ K⁻¹ r) = ‖r − Ψ φ̂‖²/σ² + ‖φ̂‖²,     log det K = log det G + (n − h) log σ²,

since (‖r‖² − ‖L⁻¹ Ψᵀ r‖²)/σ², which is the same, is a difference in which small noise loses its digits. Otherwise it is
computed from K, with φ_out = ξ + Ψᵀ K⁻¹ (r − Ψ ξ − σ ε), ξ and ε standard normal. Both are exact draws of φ_out given
all else. The gradients of ℓ are, with α = K⁻¹ r,

    ∂ℓ/∂Ψ = α αᵀ Ψ − k K⁻¹ Ψ,     ∂ℓ/∂r = −α,     ∂ℓ/∂σ² = ½ ‖α‖² − (k/2) tr K⁻¹.

References
----------
.. [1] J. Hron, R. Novak, J. Pennington, J. Sohl-Dickstein. Wide Bayesian neural networks have a simple weight
   posterior: theory and accelerated sampling. ICML (2022).
.. [2] L. Pezzetti, S. Favaro, S. Peluchetti. Function-space MCMC for Bayesian wide neural networks. arXiv 2408.14325
   (2024), theorem 3.1; appendices A and B have signs the other way round.
"""

from __future__ import annotations

import math

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.given import given, sizes

__all__ = ["Marginal"]


class Marginal:
    """The distribution of y with the readout integrated out, as this module describes it.

    Parameters
    ----------
    features : list of Variable
        The features Ψ (n, h), in parts: groups of columns, one for each variable of the readout.
    widths : list of int
        The numbers of columns of the parts.
    residual : Variable, (n, k)
        r.
    noise : Variable, ()
        σ², in the squared units of y.
    shape : tuple of Variable
        n and k, taken from the shape of the data: taken from computed arrays they would be written differently in every
        process, and compiled code would not be found again.
    wide : bool
        Whether to factorise the n x n matrix K in place of the h x h matrix G.

    Attributes
    ----------
    log_likelihood : Variable, ()
        ℓ.
    """

    def __init__(
        self,
        features: list[Variable],
        widths: list[int],
        residual: Variable,
        noise: Variable,
        shape: tuple[Variable, Variable],
        wide: bool,
    ):
        self.features, self.residual, self.noise, self.shape, self.wide = features, residual, noise, shape, wide
        self.widths, ends = sizes(widths), np.cumsum(widths)
        self.places = [slice(given(end - width), given(end)) for end, width in zip(ends, widths, strict=True)]
        n, k = (pt.cast(size, residual.dtype) for size in shape)
        if wide:
            gram = sum(psi @ psi.T for psi in features)
            target = residual
        else:
            self.psi = psi = pt.concatenate(features, axis=1)
            gram, target = psi.T @ psi, psi.T @ residual
        self.size = shape[0] if wide else given(ends[-1])
        self.identity = pt.eye(self.size, dtype=residual.dtype)
        self.factor = pt.linalg.cholesky(gram + noise * self.identity)
        whitened, log_det = _solve(self.factor, target), 2 * pt.log(pt.diag(self.factor)).sum()
        self.solution = _solve_back(self.factor, whitened)  # K⁻¹ r, or φ̂
        if wide:
            squares = (whitened**2).sum()
        else:
            self.unexplained = residual - psi @ self.solution
            squares = (self.unexplained**2).sum() / noise + (self.solution**2).sum()
            log_det += (n - pt.cast(self.size, n.dtype)) * pt.log(noise)
        self.log_likelihood = -(squares + k * log_det + n * k * math.log(2 * math.pi)) / 2

    def gradient(self) -> tuple[list[Variable], Variable, Variable]:
        """Compute ∂ℓ/∂Ψ (in parts, as the features), ∂ℓ/∂r (n, k) and ∂ℓ/∂σ² ()."""
        n, k = (pt.cast(size, self.residual.dtype) for size in self.shape)
        inverse = _solve_back(self.factor, _solve(self.factor, self.identity))
        if self.wide:
            alpha = self.solution
            slope = alpha @ alpha.T - k * inverse
            return [slope @ psi for psi in self.features], -alpha, pt.trace(slope) / 2
        alpha = self.unexplained / self.noise
        trace = (n - pt.cast(self.size, n.dtype)) / self.noise + pt.trace(inverse)
        slope = alpha @ (alpha.T @ self.psi) - k * self.psi @ inverse
        return [slope[:, place] for place in self.places], -alpha, ((alpha**2).sum() - k * trace) / 2

    def draw(self, rng: Variable) -> tuple[Variable, list[Variable]]:
        """Draw φ_out (h, k) given y and all else; return the next generator and φ_out in parts, as the features."""
        zero, one = pt.constant(np.array([0, 1], self.residual.dtype))
        k, noises = self.shape[1], []
        if not self.wide:
            rng, xi = draw(normal, rng, zero, one, size=(self.size, k))
            phi = self.solution + _solve_back(self.factor, pt.sqrt(self.noise) * xi)
            return rng, [phi[place] for place in self.places]
        for width in self.widths:
            rng, xi = draw(normal, rng, zero, one, size=(width, k))
            noises.append(xi)
        rng, epsilon = draw(normal, rng, zero, one, size=self.shape)
        missing = self.residual - pt.sqrt(self.noise) * epsilon
        missing -= sum(psi @ xi for psi, xi in zip(self.features, noises, strict=True))
        alpha = _solve_back(self.factor, _solve(self.factor, missing))
        return rng, [xi + psi.T @ alpha for psi, xi in zip(self.features, noises, strict=True)]


def _solve(factor: Variable, x: Variable) -> Variable:
    """Compute L⁻¹ x for a lower triangular L."""
    return pt.linalg.solve_triangular(factor, x, lower=True, b_ndim=2)


def _solve_back(factor: Variable, x: Variable) -> Variable:
    """Compute L⁻ᵀ x for a lower triangular L."""
    return pt.linalg.solve_triangular(factor.T, x, lower=False, b_ndim=2)

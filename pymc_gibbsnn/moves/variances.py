r"""Variances and precisions of noises and priors.

Model

    r_i ~ N(0, c_i² v),   v ~ InverseGamma(α, β);      or   r_i ~ N(0, c_i²/τ),   τ ~ Gamma(α, rate β)

Conditional: with the precision τ = 1/v, both are

    τ | r ~ Gamma(α + N/2, rate β + Σ_i r_i²/2c_i²),     N the number of r_i.
"""

from __future__ import annotations

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import _gamma

from pymc_gibbsnn._compat import draw

__all__ = ["draw_precision", "log_density"]


def draw_precision(
    rng: Variable, alpha: Variable, rate: Variable, counts: Variable, squares: Variable
) -> tuple[Variable, Variable]:
    """τ given α, β, N and Σ r²/c², elementwise."""
    return draw(_gamma, rng, alpha + counts / 2, 1 / (rate + squares / 2))


def log_density(log_scale: Variable, alpha: Variable, rate: Variable, is_precision: bool, is_log: bool) -> Variable:
    """Log density of a precision or a variance, or of its logarithm where ``is_log``, elementwise."""
    log_precision = log_scale if is_precision else -log_scale
    of_log = alpha * (pt.log(rate) + log_precision) - rate * pt.exp(log_precision) - pt.gammaln(alpha)
    return of_log if is_log else of_log - log_scale

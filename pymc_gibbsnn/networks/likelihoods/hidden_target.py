r"""Data that tell of a target y* only that it lies in an interval: censored numbers, and ordered grades.

Model, elementwise, with M the mean that the layers below give Z,

    Z = M + N(0, ΔZ),   y* = Z + N(0, σ²),   and what is observed says that  l < y* < u.

The ends l and u may differ from datum to datum, and be infinite. A datum may also tell y* itself.

Conditionals. The target is no variable of the model. Given M it is drawn with Z integrated out, and then Z given y*,

    y* | M ~ N(M, ΔZ + σ²) truncated to (l, u),   Z | y*, M ~ N((M/ΔZ + y*/σ²)/P, 1/P),   P = 1/ΔZ + 1/σ²,

which is one draw of (y*, Z) from its distribution given M and the data. It does not depend on the Z before, as draws of
y* given Z and of Z given y* in turn would [1]_. A learned variance of the noise is drawn after it, from y* − Z.

References
----------
.. [1] J. H. Albert, S. Chib. Bayesian analysis of binary and polychotomous response data. Journal of the American
   Statistical Association 88 (1993).
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from scipy.special import log_ndtr

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.likelihoods.around_latent import AroundLatent
from pymc_gibbsnn.random.log_normal_cdf import log_normal_cdf
from pymc_gibbsnn.random.truncated_normal import Interval, truncated_normal

__all__ = ["HiddenTarget", "log_mass", "log_mass_in_numpy"]


class HiddenTarget(AroundLatent):
    """A likelihood of data that say in which interval y* ~ N(Z, σ) lies, with one σ or one for each datum."""

    label = None

    @abstractmethod
    def interval(self, z: Variable) -> tuple[Variable, Variable]:
        """Return the ends of the interval of each target, in the shape and the precision of Z."""

    def draw_targets(self, rng: Variable, m: Variable, noise: Variable) -> tuple[Variable, Variable]:
        """Draw y* | M ~ N(M, ΔZ + σ²) truncated to (l, u)."""
        sd = pt.sqrt(noise + self._squared(m))
        ends = (((end - m) / sd).ravel() for end in self.interval(m))
        rng, x = draw(truncated_normal, rng, pt.zeros_like(m).ravel(), pt.constant(np.asarray(1, m.dtype)), *ends)
        return rng, m + sd * x.reshape(m.shape)

    def log_densities(self, z: Variable) -> Variable:
        """Compute log P(l < y* < u | Z) for the rows of Z (n, units)."""
        return self._log_masses(z, pt.sqrt(self._squared(z)))

    def log_densities_of_parameters(self, z: Variable, m: Variable, noise: Variable) -> Variable:
        """Compute log P(l < y* < u | M).

        Parameters
        ----------
        z, m, noise
            As in :meth:`LatentLikelihood.log_densities_of_parameters`.
        """
        return self._log_masses(m, pt.sqrt(noise + self._squared(m)))

    def _log_masses(self, mean: Variable, sd: Variable) -> Variable:
        """Compute log P(l < y* < u) with y* ~ N(mean, sd)."""
        lower, upper = self.interval(mean)
        return log_mass((lower - mean) / sd, (upper - mean) / sd)


def log_mass(alpha: Variable, beta: Variable) -> Variable:
    """Compute log [Φ(β) − Φ(α)] elementwise, with α < β, which may be infinite."""
    return Interval.between(alpha, beta, pt, log_normal_cdf).log_mass(pt)


def log_mass_in_numpy(alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Compute log [Φ(β) − Φ(α)] as :func:`log_mass` does, by NumPy."""
    return Interval.between(alpha, beta, np, log_ndtr).log_mass(np)

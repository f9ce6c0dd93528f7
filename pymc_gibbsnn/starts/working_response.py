r"""A working response: what data of any distribution tell of the last latent, as real targets with normal errors.

For data with the log densities ℓ_i(Z_i), Newton's method finds where, for each datum, ℓ_i(z) − (z − c)²/2 is largest;
the center c is the number at which Σ ℓ_i(c) is. There ℓ_i is replaced by the parabola with its slope and curvature,

    t_i ~ N(Z_i, 1/p_i),   p_i = −ℓ_i''(z_i),   t_i = z_i + ℓ_i'(z_i)/p_i,

as in iteratively reweighted least squares [1]_. Where ℓ_i is flat or turns upwards the datum tells little: p_i is at
least a hundredth.

References
----------
.. [1] P. McCullagh, J. A. Nelder. Generalized Linear Models. Chapman and Hall, second edition (1989).
"""

from __future__ import annotations

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.traversal import explicit_graph_inputs

from pymc_gibbsnn.networks.forms import AS_WRITTEN
from pymc_gibbsnn.networks.likelihoods.latent_likelihood import LatentLikelihood

__all__ = ["working_response"]

STEPS = 20  # of Newton's method
LEAST = 0.01  # the smallest precision p


def working_response(
    likelihood: LatentLikelihood, point: dict[str, np.ndarray], shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Compute t and 1/p (n, units).

    Parameters
    ----------
    likelihood : LatentLikelihood
        The likelihood, whose log densities are one for each number of Z.
    point : dict of str to array
        Values of the model's variables.
    shape : tuple of int
        The shape (n, units) of Z.

    Returns
    -------
    targets, variances : array, (n, units)
    """
    z = pt.matrix("z", dtype="float64")
    density = likelihood.log_densities(z)
    slope = pytensor.grad(pt.switch(pt.isinf(density), 0, density).sum(), z)
    curvature = pytensor.grad(slope.sum(), z, disconnected_inputs="ignore")
    inputs = [v for v in explicit_graph_inputs([density]) if v is not z]
    density, derivatives = (
        pytensor.function([z, *inputs], outputs, mode=AS_WRITTEN, on_unused_input="ignore")
        for outputs in (density, [slope, curvature])
    )
    values = [point[v.name] for v in inputs]
    candidates = np.linspace(-12, 12, 97)
    sums = [np.nan_to_num(density(np.full(shape, c), *values).sum(), nan=-np.inf) for c in candidates]
    center = candidates[int(np.argmax(sums))]
    at = np.full(shape, center)
    for _ in range(STEPS):
        first, second = map(np.nan_to_num, derivatives(at, *values))
        step = (first - (at - center)) / (1 + np.maximum(-second, 0))
        at = at + np.clip(step, -1, 1)
    first, second = map(np.nan_to_num, derivatives(at, *values))
    precisions = np.maximum(-second, LEAST)
    return at + first / precisions, 1 / precisions

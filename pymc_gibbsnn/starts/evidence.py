r"""Learned scales of a network that is being fitted: the variances of its noise and the precisions of its priors.

A fit W̃ of :mod:`pymc_gibbsnn.starts.least_squares` minimises errors plus prior for known scales. Learned scales
have a density given the data alone, with weights and noise integrated out: the evidence, times the prior of the scales.
It is found as if the network were linear in weights and noise, as it nearly is close to the fit. It is stationary, for
every precision τ ~ Gamma(α, β) and every variance 1/τ ~ InverseGamma(α, β), where [1]_

    τ = (α + Σ_i γ_i/2) / (β + Σ_i r_i²/2c_i²),     residuals r_i ~ N(0, c_i²/τ).

Here γ_i says how far the data determine the residual r_i, from 0 to 1. With H the matrix of Gauss and Newton, v the
variance that all noise together gives a target, J the derivatives of the n targets by all noise that has one variance
Δ, and γ the sum of all γ_i of weights,

    weights:   r = W̃,                               γ_i = 1 − Λ_i (H⁻¹)_ii,
    noises:    Σ r² = (Δ/v)² ‖J‖² Σ (y − f)²/n,      Σ γ_i = (Δ/v) ‖J‖² (1 − γ/n).

Under Student's t distribution each squared error counts by its importance, as in the fit. Where the noise of the data
differs between them, all count as if theirs were that of a typical one. A call of :func:`learned_scales` makes one step
of this fixed point. Variances of hidden noise alone stay as they are, because near a fit the data hardly tell hidden
noise from that of the targets.

References
----------
.. [1] D. J. C. MacKay. A practical Bayesian framework for backpropagation networks. Neural Computation 4 (1992).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import explicit_graph_inputs

from pymc_gibbsnn.networks.forms import evaluate
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.starts.least_squares import Fit, LeastSquares

__all__ = ["at_point", "learned_scales"]


def learned_scales(
    network: Network, point: dict[str, np.ndarray], problem: LeastSquares, fit: Fit
) -> dict[str, np.ndarray]:
    """Move the learned scales of a network towards where the evidence is stationary.

    Parameters
    ----------
    network : Network
        A network of dense layers.
    point : dict of str to array
        Values of its value variables; those of weights and latents do not matter.
    problem : LeastSquares
        The fit of the network with the scales of this point.
    fit : Fit
        Its weights.

    Returns
    -------
    dict of str to array
        New values of the value variables of learned scales.
    """
    now, n = problem.linearised(fit), problem.targets.size
    variances = np.split(now.covariance.diagonal(), np.cumsum([w.size for w in fit.weights])[:-1])
    determined = [np.clip(1 - p * x.reshape(p.shape), 0, 1) for p, x in zip(fit.precisions, variances, strict=True)]
    left = 1 - sum(x.sum() for x in determined) / n  # the share of the targets that weights do not use up
    weights, shares = {}, {}
    for layer, w, share in zip(network.layers, fit.weights, determined, strict=True):
        weights |= layer.operator.values(w)
        units = layer.operator.values(np.ones_like(w))  # W̃ holds factors of the weights; γ does not
        shares |= {v: x / units[v] for v, x in layer.operator.values(share).items()}
    parts, reach = network.noisy, list(now.reach)
    reach += reach[-1:] * (len(parts) - len(reach))  # noise of data around the last latent reaches as far as its own
    noises = at_point([part.noise for part in parts], point)
    typical = np.ones(len(parts))  # by what the variance of a typical residual differs from the part's noise
    if network.observation is not None and np.ndim(problem.spread):
        typical[-1] = (problem.noises[-1] - noises[-2]) / noises[-1]
    explained = {
        part.name: (x * c / now.variance * r * left, (x / now.variance) ** 2 * c * r * now.squares / n)
        for part, x, c, r in zip(parts, noises, typical, reach, strict=True)
    }
    of_targets, new = {network.layers[-1].name, parts[-1].name}, {}
    for scale in network.variances:
        known = [scale.alpha, scale.rate, *(use.coefficient for use in scale.uses)]
        alpha, rate, *coefficients = at_point(known, point | new)
        counts, squares = (np.zeros(math.prod(scale.shape)) for _ in range(2))
        moves = np.zeros(counts.shape, bool)
        for use, c in zip(scale.uses, coefficients, strict=True):
            share, square = explained[use.part] if use.value is None else (shares[use.value], weights[use.value] ** 2)
            np.add.at(counts, use.which, share)
            np.add.at(squares, use.which, square / c**2)
            moves[use.which] |= use.value is not None or use.part in of_targets
        counts, squares, moves = (x.reshape(scale.shape) for x in (counts, squares, moves))
        precision = (alpha + counts / 2) / (rate + squares / 2)
        if moves.any():
            new[scale.value.name] = np.where(moves, scale.value_of(np.log(precision)), point[scale.value.name])
    return new


def at_point(expressions: Sequence[Variable], point: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Evaluate expressions of value variables at a point, in double precision."""
    values = {v: point[v.name] for v in explicit_graph_inputs(expressions)}
    return [np.asarray(evaluate(x, values), "float64") for x in expressions]

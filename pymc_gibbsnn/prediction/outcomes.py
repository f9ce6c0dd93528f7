"""What predictions and scores need to know of an observed variable: whether it is a class label, and log densities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.moments import mean
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.tensor.random.basic import (
    BetaBinomialRV,
    BetaRV,
    BinomialRV,
    ExponentialRV,
    GammaRV,
    LaplaceRV,
    LogisticRV,
    LogNormalRV,
    MvNormalRV,
    NegBinomialRV,
    NormalRV,
    PoissonRV,
    StudentTRV,
)
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn.networks.likelihoods import find_likelihood
from pymc_gibbsnn.networks.likelihoods.factorised import without_checks
from pymc_gibbsnn.prediction.conditionals import Conditional, FrozenDistribution, distribution_node, in_numpy
from pymc_gibbsnn.prediction.distributions import IN_NUMPY, stand_ins, variable_of

__all__ = [
    "class_names",
    "count_classes",
    "has_classes",
    "is_smooth",
    "log_density",
    "log_normal",
    "moments_of",
    "probabilities",
]

# The distributions of which PyMC's mean serves (some others, such as Wald's, have parameters that it leaves out), with
# their variances as functions of the parameters that NumPy draws with
VARIANCES: dict[type[RandomVariable], Callable[..., np.ndarray]] = {
    NormalRV: lambda mu, sigma: sigma**2,
    StudentTRV: lambda nu, mu, sigma: sigma**2 * np.where(nu > 2, nu / np.where(nu > 2, nu - 2, 1), np.inf),
    LaplaceRV: lambda mu, b: 2 * b**2,
    LogisticRV: lambda mu, s: (np.pi * s) ** 2 / 3,
    LogNormalRV: lambda mu, sigma: np.expm1(sigma**2) * np.exp(2 * mu + sigma**2),
    GammaRV: lambda shape, scale: shape * scale**2,
    ExponentialRV: lambda scale: scale**2,
    BetaRV: lambda a, b: a * b / ((a + b) ** 2 * (a + b + 1)),
    PoissonRV: lambda mu: mu,
    NegBinomialRV: lambda n, p: n * (1 - p) / p**2,
    BinomialRV: lambda n, p: n * p * (1 - p),
    BetaBinomialRV: lambda n, a, b: n * a * b * (a + b + n) / ((a + b) ** 2 * (a + b + 1)),
    MvNormalRV: lambda mu, covariance: np.diagonal(covariance, axis1=-2, axis2=-1),
}

# The distributions whose log densities are analytic, and log-concave in the usual parameters
SMOOTH = (PoissonRV, NegBinomialRV, BinomialRV, BetaBinomialRV, GammaRV, ExponentialRV, BetaRV, NormalRV, LogisticRV)


def is_smooth(observed: Conditional) -> bool:
    """Whether the log density of an observed variable should be smooth in what its parameters depend on."""
    return isinstance(observed.op, SMOOTH)


def has_classes(observed: Variable) -> bool:
    """Whether an observed variable is a class label."""
    kind = find_likelihood(distribution_node(observed).op)
    return kind is not None and kind.has_classes


def count_classes(distribution: FrozenDistribution) -> int | None:
    """Count the classes among which a label may be; None if the distribution is not that of a label."""
    kind = find_likelihood(distribution.op)
    return kind.classes(*distribution.parameters) if kind is not None and kind.has_classes else None


def class_names(model: pm.Model, count: int) -> np.ndarray:
    """Return the model's names of so many classes, or else their numbers from 0 up."""
    names = model.coords.get("class")
    return np.arange(count) if names is None or len(names) != count else np.asarray(names)


def probabilities(
    distribution: FrozenDistribution, y: np.ndarray, noisy: FrozenDistribution | None = None
) -> np.ndarray:
    """Compute the probabilities of classes for each draw (draw, row, ..., class); 0 and 1 where y is known exactly.

    If y is a function of a normal variable, of which ``noisy`` is the distribution, that variable is integrated out.
    """
    kind = find_likelihood(distribution.op)
    if noisy is None or not kind.is_deterministic:
        return kind.probabilities(y, *distribution.parameters)
    mean, sigma = noisy.parameters
    return kind.integrated_probabilities(np.broadcast_to(mean, noisy.shape), sigma)


def log_normal(residual: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Compute log N(residual; 0, covariance) (draw, row), of residuals (draw, row, k), covariances (draw, k, k)."""
    k = residual.shape[-1]
    root = np.linalg.cholesky(covariance)
    scaled = np.linalg.solve(root, np.swapaxes(residual, -1, -2))  # (draw, k, row)
    log_determinant = 2 * np.log(np.diagonal(root, axis1=-2, axis2=-1)).sum(-1)
    return -0.5 * ((scaled**2).sum(-2) + log_determinant[:, None] + k * np.log(2 * np.pi))


def log_density(
    observed: Conditional, has_checks: bool = True
) -> Callable[[FrozenDistribution, np.ndarray], np.ndarray]:
    """Make PyMC's log density of an observed variable a function of its distribution and of y (draw, row, ...).

    Without checks, elements with parameters outside of their range have the density 0; PyMC raises an error.
    """
    value = pt.tensor(dtype=observed.rv.dtype, shape=(None,) * (observed.rv.ndim + 1))

    def expression(rv: Variable) -> Variable:
        density = pm.logp(rv, value)
        parameters = [v for v in explicit_graph_inputs([density]) if v is not value]
        return density if has_checks else without_checks(density, parameters, observed.rv.name)

    function = _as_function(observed, expression, value)
    return lambda distribution, y: function(distribution, np.broadcast_to(y, distribution.shape))


def moments_of(observed: Conditional) -> Callable[[FrozenDistribution], tuple[np.ndarray, np.ndarray]] | None:
    """Make the mean and the variance of an observed variable functions of its distribution; None if not known.

    The variance, of each number by itself, broadcasts to the mean.
    """
    variance = next((x for kind, x in VARIANCES.items() if isinstance(observed.op, kind)), None)
    if variance is None:
        return None
    mean_of = _as_function(observed, mean)
    return lambda distribution: (mean_of(distribution), variance(*distribution.parameters))


def _as_function(observed: Conditional, expression: Callable[[Variable], Variable], *inputs: Variable) -> Callable:
    """Make an expression of an observed random variable a function of its distribution and of further inputs."""
    op, cores = observed.op, observed.op.ndims_params
    axes = observed.rv.ndim + 1 - op.ndim_supp
    parameters = stand_ins(op, observed.dtypes, axes)
    outputs = in_numpy([expression(variable_of(op, parameters))])
    function = pytensor.function([*inputs, *parameters], outputs, mode=IN_NUMPY, on_unused_input="ignore")

    def evaluate(distribution: FrozenDistribution, *values: np.ndarray) -> np.ndarray:
        batch = distribution.shape[:axes]
        broadcast = (
            np.broadcast_to(x, (*batch, *x.shape[x.ndim - core :]))
            for x, core in zip(distribution.parameters, cores, strict=True)
        )
        return function(*values, *broadcast)[0]

    return evaluate

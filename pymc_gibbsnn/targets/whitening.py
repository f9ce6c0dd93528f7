r"""Whitened targets: the Gaussian variables of a PyMC model in coordinates φ that are standard normal a priori.

    x ~ Normal(μ, σ):      x = μ + σ φ,         x ~ MvNormal(μ, L Lᵀ):   x = μ + L φ,         φ ~ N(0, I)

μ, σ and L may depend on other variables, even on variables that are whitened themselves: since parents are computed
before children, all φ together are standard normal. Weights on data with more columns than rows are moved in the row
space of the data (:mod:`pymc_gibbsnn.targets.row_space`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import MvNormalRV, NormalRV

from pymc_gibbsnn.networks.given import given, sizes
from pymc_gibbsnn.networks.substitution import canonical, substitute
from pymc_gibbsnn.targets.row_space import Chart, row_space_chart
from pymc_gibbsnn.targets.target import Data, Target, free_variables

__all__ = ["WhitenedTarget", "gaussian_prior", "log_density_of_others"]


class WhitenedTarget(Target):
    """The posterior of Gaussian variables in whitened coordinates; ℓ is the log density of all other variables.

    Parameters
    ----------
    model : pm.Model
        The model.
    vars : sequence of Variable, optional
        Random or value variables to move; by default all free ones. The others are held where they are.
    reduce : bool
        Whether to use the row space of data that have more columns than rows.

    Raises
    ------
    ValueError
        If a prior is not Gaussian, or a minibatch is one that :class:`~pymc_gibbsnn.targets.target.Target` refuses; the
        message names the variable.
    """

    def __init__(self, model: pm.Model, vars: Sequence[Variable] | None = None, *, reduce: bool = True):
        rvs = free_variables(model, vars)
        super().__init__(model, [log_density_of_others(model, rvs)])
        self.expressions = canonical(self.expressions)
        self.whiten(model, rvs, reduce)

    def whiten(self, model: pm.Model, rvs: list[Variable], reduce: bool) -> None:
        """Choose the coordinates of some variables, by how these enter the expressions."""
        priors = {rv: gaussian_prior(model, rv) for rv in rvs}
        # Priors that depend on weights count as well: they may need more of the weights than their product with data.
        uses = [*self.expressions, *(part for prior in priors.values() for part in prior)]
        shapes, self.charts = model.eval_rv_shapes(), []
        for rv, (mean, scale) in priors.items():
            value, chart = model.rvs_to_values[rv], None
            shape = shapes[value.name]
            if reduce and isinstance(rv.owner.op, NormalRV):
                chart = row_space_chart(value, mean, scale, shape, uses)
            self.charts.append(chart or _chart(rv, value, mean, scale, shape))
        self.variables = [chart.value for chart in self.charts]
        self.coordinates = {f"whitened_{chart.value.name}": chart.start for chart in self.charts}
        self.constants = {name: x for chart in self.charts for name, x in chart.constants.items()}

    def locate(self, state: dict[Variable, Variable], data: Data) -> list[Variable]:
        """Compute the coordinates φ from the values of the variables in ``state``."""
        return substitute([chart.whiten(data) for chart in self.charts], state)

    def replacements(self, position: list[Variable], data: Data) -> dict[Variable, Variable]:
        """Map each variable, or its product with the data, to that function of φ by which it is replaced."""
        replacements = {}
        for chart, phi in zip(self.charts, position, strict=True):
            [replacements[chart.node]] = substitute([chart.colour(phi, data)], replacements)
        return replacements

    def log_prior(self, position: list[Variable], data: Data) -> Variable:
        """Compute the log density of the Gaussian variables; for those in a row space, of their part within it."""
        scales = [chart.log_scale(phi) for chart, phi in zip(self.charts, position, strict=True)]
        scales = substitute(scales, self.replacements(position, data))
        total = pt.zeros((), dtype=pytensor.config.floatX)
        for phi, scale in zip(position, scales, strict=True):
            total -= ((phi**2).sum() + phi.size * math.log(2 * math.pi)) / 2 + scale
        return total

    def draw(self, rng: Variable, position: list[Variable], data: Data) -> tuple[Variable, dict[Variable, Variable]]:
        """Compute the variables from φ, and draw what lies outside the row space of the data from its prior."""
        replacements, state = self.replacements(position, data), {}
        for chart, phi in zip(self.charts, position, strict=True):
            rng, value = chart.draw(rng, phi, data)
            [state[chart.value]] = substitute([value], replacements)
        return rng, state


def log_density_of_others(model: pm.Model, rvs: Sequence[Variable]) -> Variable:
    """Compute the log density of all variables and potentials of a model except ``rvs``, in value variables."""
    others = [rv for rv in [*model.basic_RVs, *model.potentials] if rv not in rvs]
    return model.logp(others) if others else pt.zeros((), dtype=pytensor.config.floatX)


def gaussian_prior(model: pm.Model, rv: Variable) -> tuple[Variable, Variable]:
    """Read the mean, and the standard deviation σ or the Cholesky factor L, of a Gaussian prior, in value variables.

    Raises
    ------
    ValueError
        If the prior is not Normal or MvNormal, the variable is transformed, or an MvNormal has several covariances.
    """
    if not isinstance(rv.owner.op, NormalRV | MvNormalRV):
        prior = getattr(rv.owner.op, "name", None) or rv.owner.op
        raise ValueError(
            f"The prior of '{rv.name}' is no Normal or MvNormal but {prior}: name the Gaussian variables in vars= and "
            f"leave '{rv.name}' to another step."
        )
    if model.rvs_to_transforms.get(rv) is not None:
        raise ValueError(f"'{rv.name}' is transformed, so that its value is not Gaussian: drop the transform.")
    mean, scale = model.replace_rvs_by_values(rv.owner.op.dist_params(rv.owner))
    if isinstance(rv.owner.op, MvNormalRV):
        leading = tuple(range(scale.ndim - 2))
        if not all(scale.type.broadcastable[axis] for axis in leading):
            raise ValueError(
                f"'{rv.name}' has a covariance for each row: give rows a variable each, or one covariance."
            )
        scale = pt.linalg.cholesky(scale.squeeze(leading) if leading else scale)
    floatx = pytensor.config.floatX
    return pt.cast(mean, floatx), pt.cast(scale, floatx)


def _chart(rv: Variable, x: Variable, mean: Variable, scale: Variable, shape: tuple[int, ...]) -> Chart:
    """Make the coordinates of a Gaussian variable by its mean and scale, without a reduction.

    Parameters
    ----------
    rv, x : Variable
        The random variable and its value variable.
    mean, scale : Variable
        What :func:`gaussian_prior` returned.
    shape : tuple of int
        The shape of the variable.

    Returns
    -------
    Chart
    """
    start = pt.zeros(shape, dtype=pytensor.config.floatX)
    if isinstance(rv.owner.op, NormalRV):

        def whiten(constants):
            return (x - mean) / scale

        def colour(phi, constants):
            return mean + scale * phi

        def log_scale(phi):
            return (pt.log(scale) + pt.zeros_like(phi)).sum()

    else:
        *rows, d = sizes(shape)
        copies = given(np.asarray(math.prod(shape[:-1]), pytensor.config.floatX))

        def whiten(constants):
            centred = (x - mean).reshape((-1, d))
            return pt.linalg.solve_triangular(scale, centred.T, lower=True, b_ndim=2).T.reshape((*rows, d))

        def colour(phi, constants):
            return mean + (phi.reshape((-1, d)) @ scale.T).reshape((*rows, d))

        def log_scale(phi):
            return copies * pt.log(pt.diag(scale)).sum()

    return Chart(x, x, start, whiten, colour, lambda rng, phi, constants: (rng, colour(phi, constants)), log_scale)

r"""Gaussian priors of a PyMC model as standard normal coordinates.

    x ~ Normal(μ, σ):      x = μ + σ φ,         x ~ MvNormal(μ, L Lᵀ):   x = μ + L φ,         φ ~ N(0, I)

μ, σ and L may depend on other variables, among them variables that are whitened too: taken in order, their φ are
standard normal together.

Weights on wide data are moved in the row space of the data (:mod:`pymc_gibbsnn.targets.row_space`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.random.basic import MvNormalRV, NormalRV

from pymc_gibbsnn.networks.substitution import substitute
from pymc_gibbsnn.targets.row_space import Chart, row_space_chart
from pymc_gibbsnn.targets.target import Data, Target, free_variables

__all__ = ["WhitenedTarget", "canonical", "gaussian_prior", "log_density_of_others"]


class WhitenedTarget(Target):
    """The posterior of Gaussian variables in whitened coordinates; ℓ is the log density of all else.

    Parameters
    ----------
    model : pm.Model
    vars : sequence of Variable, optional
        Random or value variables; all free ones by default. The others are held where they are.
    reduce : bool
        Use the row space of data that have more columns than rows.

    Raises
    ------
    ValueError
        If a prior is not Gaussian, with its name, or for a minibatch as
        :class:`~pymc_gibbsnn.targets.target.Target` says.
    """

    def __init__(self, model: pm.Model, vars: Sequence[Variable] | None = None, *, reduce: bool = True):
        rvs = free_variables(model, vars)
        super().__init__(model, [log_density_of_others(model, rvs)])
        self.expressions = canonical(self.expressions)
        self.whiten(model, rvs, reduce)

    def whiten(self, model: pm.Model, rvs: list[Variable], reduce: bool) -> None:
        """Choose the coordinates of some variables, by how they enter the expressions."""
        priors = {rv: gaussian_prior(model, rv) for rv in rvs}
        # A prior that depends on weights knows more of them than their product with the data.
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
        """φ of the variables as they are."""
        return substitute([chart.whiten(data) for chart in self.charts], state)

    def replacements(self, position: list[Variable], data: Data) -> dict[Variable, Variable]:
        """The variables, or their products with the data, made of φ."""
        found = {}
        for chart, phi in zip(self.charts, position, strict=True):
            [found[chart.node]] = substitute([chart.colour(phi, data)], found)
        return found

    def log_prior(self, position: list[Variable], data: Data) -> Variable:
        """Log density of the Gaussian variables, of those in a row space within it."""
        scales = [chart.log_scale(phi) for chart, phi in zip(self.charts, position, strict=True)]
        scales = substitute(scales, self.replacements(position, data))
        total = pt.zeros((), dtype=pytensor.config.floatX)
        for phi, scale in zip(position, scales, strict=True):
            total -= ((phi**2).sum() + phi.size * math.log(2 * math.pi)) / 2 + scale
        return total

    def draw(self, rng: Variable, position: list[Variable], data: Data) -> tuple[Variable, dict[Variable, Variable]]:
        """The variables given φ; what lies outside the row space of the data, from its prior."""
        replacements, state = self.replacements(position, data), {}
        for chart, phi in zip(self.charts, position, strict=True):
            rng, value = chart.draw(rng, phi, data)
            [state[chart.value]] = substitute([value], replacements)
        return rng, state


def log_density_of_others(model: pm.Model, rvs: Sequence[Variable]) -> Variable:
    """Log density of all variables and potentials but some, in value variables."""
    others = [rv for rv in [*model.basic_RVs, *model.potentials] if rv not in rvs]
    return model.logp(others) if others else pt.zeros((), dtype=pytensor.config.floatX)


def canonical(expressions: list[Variable]) -> list[Variable]:
    """Expressions in which there is one form of the many ways to write a product."""
    copies = clone_replace(expressions, {}, rebuild_strict=False)
    return rewrite_graph(copies, include=("canonicalize",), exclude=("local_dot_to_mul",), clone=False)


def gaussian_prior(model: pm.Model, rv: Variable) -> tuple[Variable, Variable]:
    """(mean, σ or Cholesky factor L) of a prior, in value variables."""
    if not isinstance(rv.owner.op, NormalRV | MvNormalRV):
        found = getattr(rv.owner.op, "name", None) or rv.owner.op
        raise ValueError(
            f"The prior of '{rv.name}' is no Normal or MvNormal but {found}: name the Gaussian variables in vars= and "
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
    start = pt.zeros(shape, dtype=pytensor.config.floatX)
    if isinstance(rv.owner.op, NormalRV):

        def whiten(constants):
            return (x - mean) / scale

        def colour(phi, constants):
            return mean + scale * phi

        def log_scale(phi):
            return (pt.log(scale) + pt.zeros_like(phi)).sum()

    else:
        d = shape[-1]

        def whiten(constants):
            centred = (x - mean).reshape((-1, d))
            return pt.linalg.solve_triangular(scale, centred.T, lower=True, b_ndim=2).T.reshape(shape)

        def colour(phi, constants):
            return mean + (phi.reshape((-1, d)) @ scale.T).reshape(shape)

        def log_scale(phi):
            return math.prod(shape[:-1]) * pt.log(pt.diag(scale)).sum()

    return Chart(x, x, start, whiten, colour, lambda rng, phi, constants: (rng, colour(phi, constants)), log_scale)

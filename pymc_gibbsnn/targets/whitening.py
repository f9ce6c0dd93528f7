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

from pymc_gibbsnn._arguments import named_variables
from pymc_gibbsnn.targets.row_space import Chart, row_space_chart
from pymc_gibbsnn.targets.target import Target

__all__ = [
    "Whitening",
    "canonical",
    "free_variables",
    "gaussian_prior",
    "log_density_of_others",
    "plain_target",
    "whitened_target",
]


class Whitening:
    """The coordinates of some Gaussian variables, in expressions of the model's value variables.

    Parameters
    ----------
    model : pm.Model
    rvs : list of Variable
        Free variables with Gaussian priors.
    expressions : list of Variable
        Canonical expressions through which the variables enter the target.
    reduce : bool
        Use the row space of data that have more columns than rows.

    Raises
    ------
    ValueError
        If a prior is not Gaussian; the message names it.
    """

    def __init__(self, model: pm.Model, rvs: list[Variable], expressions: Sequence[Variable], reduce: bool = True):
        priors = {rv: gaussian_prior(model, rv) for rv in rvs}
        # A prior that depends on weights knows more of them than their product with the data.
        uses = [*expressions, *(part for prior in priors.values() for part in prior)]
        shapes, self.charts = model.eval_rv_shapes(), []
        for rv, (mean, scale) in priors.items():
            value, chart = model.rvs_to_values[rv], None
            shape = shapes[value.name]
            if reduce and isinstance(rv.owner.op, NormalRV):
                chart = row_space_chart(value, mean, scale, shape, uses)
            self.charts.append(chart or _chart(rv, value, mean, scale, shape))

    @property
    def variables(self) -> list[Variable]:
        """Value variables."""
        return [chart.value for chart in self.charts]

    @property
    def coordinates(self) -> dict[str, Variable]:
        """Coordinates at the start of a chain, by name."""
        return {f"whitened_{chart.value.name}": chart.start for chart in self.charts}

    @property
    def constants(self) -> dict[str, Variable]:
        """What of the data is computed once a chain."""
        return {name: x for chart in self.charts for name, x in chart.constants.items()}

    def locate(self, state: dict[Variable, Variable], constants: dict[str, Variable]) -> list[Variable]:
        """φ of the variables as they are."""
        return clone_replace([chart.whiten(constants) for chart in self.charts], state, rebuild_strict=False)

    def replacements(self, position: list[Variable], constants: dict[str, Variable]) -> dict[Variable, Variable]:
        """What stands for the nodes of the model's graph."""
        found = {}
        for chart, phi in zip(self.charts, position, strict=True):
            [found[chart.node]] = clone_replace([chart.colour(phi, constants)], found, rebuild_strict=False)
        return found

    def at(self, position: list[Variable], constants: dict[str, Variable], expressions: list[Variable]):
        """Expressions of value variables as expressions of φ."""
        return clone_replace(expressions, self.replacements(position, constants), rebuild_strict=False)

    def log_prior(self, position: list[Variable], constants: dict[str, Variable]) -> Variable:
        """Log density of the Gaussian variables, of those in a row space within it."""
        scales = [chart.log_scale(phi) for chart, phi in zip(self.charts, position, strict=True)]
        total = pt.zeros((), dtype=pytensor.config.floatX)
        for phi, scale in zip(position, self.at(position, constants, scales), strict=True):
            total -= ((phi**2).sum() + phi.size * math.log(2 * math.pi)) / 2 + scale
        return total

    def draw(self, rng: Variable, position: list[Variable], constants: dict[str, Variable]) -> tuple[Variable, dict]:
        """The variables given φ."""
        replacements, state = self.replacements(position, constants), {}
        for chart, phi in zip(self.charts, position, strict=True):
            rng, value = chart.draw(rng, phi, constants)
            [state[chart.value]] = clone_replace([value], replacements, rebuild_strict=False)
        return rng, state


def whitened_target(model: pm.Model, vars: Sequence[Variable] | None = None, *, reduce: bool = True) -> Target:
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
        If a prior is not Gaussian; the message names it.
    """
    rvs = free_variables(model, vars)
    [log_likelihood] = canonical([log_density_of_others(model, rvs)])
    whitening = Whitening(model, rvs, [log_likelihood], reduce)

    def value(position: list[Variable], constants: dict[str, Variable]) -> Variable:
        return whitening.at(position, constants, [log_likelihood])[0]

    def gradient(position: list[Variable], constants: dict[str, Variable]) -> tuple[Variable, list[Variable]]:
        found = value(position, constants)
        return found, pt.grad(found, position, disconnected_inputs="ignore")

    return Target(
        whitening.variables,
        whitening.coordinates,
        whitening.constants,
        whitening.locate,
        value,
        gradient,
        whitening.log_prior,
        whitening.draw,
    )


def plain_target(model: pm.Model, vars: Sequence[Variable] | None = None) -> Target:
    """The posterior of continuous variables in the coordinates that PyMC gives them.

    Raises
    ------
    ValueError
        If a variable is discrete.
    """
    variables = [model.rvs_to_values[rv] for rv in free_variables(model, vars)]
    for variable in variables:
        if variable.dtype.startswith(("int", "uint", "bool")):
            raise ValueError(f"'{variable.name}' is discrete and has no gradient: leave it to another step.")
    log_density = model.logp()
    shapes = model.eval_rv_shapes()

    def value(position: list[Variable], constants: dict) -> Variable:
        return clone_replace([log_density], dict(zip(variables, position, strict=True)), rebuild_strict=False)[0]

    def gradient(position: list[Variable], constants: dict) -> tuple[Variable, list[Variable]]:
        found = value(position, constants)
        return found, pt.grad(found, position, disconnected_inputs="ignore")

    return Target(
        variables,
        {f"now_{v.name}": pt.zeros(shapes[v.name], dtype=pytensor.config.floatX) for v in variables},
        {},
        lambda state, constants: [state[v] for v in variables],
        value,
        gradient,
        lambda position, constants: pt.zeros((), dtype=pytensor.config.floatX),
        lambda rng, position, constants: (rng, dict(zip(variables, position, strict=True))),
        whitened=False,
    )


def free_variables(model: pm.Model, vars: Sequence[Variable] | None) -> list[Variable]:
    """The free random variables that a user names, parents before children."""
    return named_variables(model, vars) or list(model.free_RVs)


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

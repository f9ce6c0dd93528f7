"""The reader of inputs that are variables of a PyMC model: with missing entries, or measured with error.

Of ``x = pm.Normal("X", mu, tau, observed=X)`` with missing entries PyMC makes the free variable "X_unobserved", the
observed one "X_observed", and x, which puts them together; x is what enters the network. Inputs are measured where a
free variable x is the mean of an observed Normal variable, and enters something else as well. Rows are drawn from a
mixture where the means or standard deviations of x are picked by a Categorical variable c, as in ``mu[c]``. They have
factors where a term of their means is the product ``f @ V.T`` of a Normal variable f and loadings V.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.logprob.transforms import SimplexTransform
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import CategoricalRV, DirichletRV, NormalRV
from pytensor.tensor.type_other import NoneTypeT

from pymc_gibbsnn._compat import SUBTENSORS, observed_variables
from pymc_gibbsnn.networks.forms import NetworkError, evaluate, is_normal, match_scaled_product, summands, undimshuffle
from pymc_gibbsnn.networks.given import folded, given, real
from pymc_gibbsnn.networks.learned_variances import VarianceReader
from pymc_gibbsnn.networks.random_inputs import (
    FactorModel,
    Holes,
    LearnedLoadings,
    LearnedMean,
    LearnedWeights,
    Measurement,
    Mixture,
    RandomInputs,
)
from pymc_gibbsnn.networks.substitution import canonical, substitute

__all__ = [
    "VariableFactors",
    "VariableInputs",
    "line_of_columns",
    "read_random_inputs",
    "variable_inputs",
    "with_known_places",
]


@dataclass(frozen=True, eq=False)
class VariableFactors:
    """The factors of inputs x (n, d) of a model, in its random variables: the mean of x is center + f Vᵀ.

    Attributes
    ----------
    f : Variable, (n, k)
        The Normal variable of the factors, whose mean is 0.
    number : int
        How many factors k there are.
    variance : Variable, (k,)
        Its variances, which are known.
    written : Variable
        The loadings V as they are written, (d, k) or (k, d).
    is_transposed : bool
        Whether this is Vᵀ.
    center : Variable
        The rest of the mean, with two axes.
    """

    f: Variable
    number: int
    variance: Variable
    written: Variable
    is_transposed: bool
    center: Variable

    @property
    def loadings(self) -> Variable:
        """V (d, k)."""
        return self.written.T if self.is_transposed else self.written


@dataclass(frozen=True, eq=False)
class VariableInputs:
    """Inputs x (n, d) of a model that are Normal, and known in part or by a measurement, in its random variables.

    Attributes
    ----------
    x : Variable
        What enters the network.
    unknown : Variable
        The free variable of its entries that are not known; x itself where none is.
    known : Variable, optional
        The observed variable of the others.
    measured : Variable, optional
        The observed variable of the measurement, where none is known.
    mean, sigma : Variable
        The parameters of the distribution of x, with two axes that broadcast to those of x.
    component : Variable, optional
        The Categorical variable of the components of rows, if these are drawn from a mixture.
    means, sigmas : Variable, optional
        The parameters of all components, (components, d), or (1, d) where these have the same, or where there is no
        mixture; None where rows differ otherwise. What factors add to means is left out.
    factors : VariableFactors, optional
        The factors of rows, if they have some.
    """

    x: Variable
    unknown: Variable
    known: Variable | None
    measured: Variable | None
    mean: Variable
    sigma: Variable
    component: Variable | None = None
    means: Variable | None = None
    sigmas: Variable | None = None
    factors: VariableFactors | None = None

    @property
    def is_alike_in_rows(self) -> bool:
        """Whether all rows have the same distribution, and the same error of measurement."""
        error = self.of_measurement
        is_alike = error is None or error.type.broadcastable[0]
        if self.weights is not None:
            is_alike &= self.weights.ndim == 1 or self.weights.type.broadcastable[0]
        return is_alike and self.means is not None and self.sigmas is not None

    @property
    def of_measurement(self) -> Variable | None:
        """The standard deviation of the measurement, with two axes; None if there is none."""
        return None if self.measured is None else _in_two_axes(_parameters(self.measured)[1])

    @property
    def weights(self) -> Variable | None:
        """The probabilities of the components, of all rows or of each; None where there is no mixture."""
        return None if self.component is None else _parameters(self.component)[0]

    @property
    def number_of_components(self) -> int:
        """How many components the mixture has; 1 where there is none."""
        return 1 if self.weights is None else evaluate(self.weights).shape[-1]

    @property
    def members(self) -> list[Variable]:
        """The variables of the model of which x is made."""
        return [rv for rv in (self.unknown, self.known) if rv is not None]

    def entries(self, model: pm.Model) -> np.ndarray:
        """Return the entries of x (n, d) that are known, and NaN for the others."""
        known, size = evaluate(model.rvs_to_values[self.known]), evaluate(self.unknown.owner.inputs[1])
        return evaluate(self.x, {self.known: known, self.unknown: np.full(size, np.nan, known.dtype)})


def variable_inputs(model: pm.Model) -> list[VariableInputs]:
    """List the inputs of a model that are variables, and known in part or by a measurement."""
    found = []
    for rv in observed_variables(model):
        name = rv.name.removesuffix("_observed")
        if f"{name}_unobserved" in model.named_vars and name in model.named_vars:
            one = _with_holes(model, name)
        else:
            one = _measured(model, rv)
        if one is not None and one.x.ndim == 2:
            found.append(one)
    return found


def with_known_places(model: pm.Model, expressions: Sequence[Variable]) -> list[Variable]:
    """Return expressions in which inputs with missing entries are put together by numbers of rows and columns.

    PyMC does so by an array of truth values, which JAX cannot.
    """
    found = [one for one in variable_inputs(model) if one.known is not None]
    return substitute(expressions, {one.x: Holes.of(one.entries(model)).filled(one.unknown) for one in found})


def _with_holes(model: pm.Model, name: str) -> VariableInputs | None:
    """Read a variable that is observed in part, if anything depends on it."""
    x, unknown, known = (model[f"{name}{end}"] for end in ("", "_unobserved", "_observed"))
    if not any(x in ancestors([rv]) for rv in model.basic_RVs):
        return None
    if not all(isinstance(rv.owner.op, NormalRV) for rv in (unknown, known)):
        return None
    of_all = [[_of_all_entries(p) for p in _parameters(rv)] for rv in (unknown, known)]
    if any(one is not other for one, other in zip(*of_all, strict=True)):
        return None
    mean, sigma = of_all[0]
    return _with_prior(model, VariableInputs(x, unknown, known, None, mean, sigma))


def _measured(model: pm.Model, measured: Variable) -> VariableInputs | None:
    """Read the variable of which an observed one is a measurement, if something else depends on it, too."""
    if not isinstance(measured.owner.op, NormalRV):
        return None
    x, error = _parameters(measured)
    if x in ancestors([error]):
        return None
    if x not in model.free_RVs or not isinstance(x.owner.op, NormalRV):
        return None
    blockers = [rv for rv in model.basic_RVs if rv is not x]
    users = [
        rv
        for rv in model.basic_RVs
        if rv not in (x, measured) and x in ancestors(rv.owner.inputs, blockers=[*blockers, x])
    ]
    if not any(rv in model.free_RVs or _parameters(rv)[0] is not x for rv in users):
        return None
    mean, sigma = _parameters(x)
    return _with_prior(model, VariableInputs(x, x, None, measured, mean, sigma))


def _with_prior(model: pm.Model, found: VariableInputs) -> VariableInputs:
    """Return inputs with the factors and the components of a mixture that are read from their mean and deviation."""
    found = replace(found, mean=_in_two_axes(found.mean), sigma=_in_two_axes(found.sigma))
    factors = _factors(model, found)
    parameters = [found.mean if factors is None else factors.center, found.sigma]
    component, means, sigmas = _components(model, found.members, parameters)
    if factors is not None and component in ancestors([factors.written]):
        component, means, sigmas = None, None, None  # the distribution of rows is none of those that are drawn
    return replace(found, component=component, means=means, sigmas=sigmas, factors=factors)


def _factors(model: pm.Model, found: VariableInputs) -> VariableFactors | None:
    """Read the factors of inputs from their mean, if it is a sum with one product of factors and loadings."""
    rvs, parts = model.basic_RVs, summands(found.mean)
    products = {}
    for i, part in enumerate(parts):
        product = _product(part, rvs)
        if product is not None and product[1] in model.free_RVs and is_normal(product[1]):
            products[i] = product
    if len(products) != 1:
        return None
    [(place, (factor, f, written, layout))] = products.items()
    others = parts[:place] + parts[place + 1 :]
    center = _in_two_axes(sum(others[1:], start=others[0])) if others else pt.zeros((1, 1), found.mean.dtype)
    of_f, sigma_f = (_in_two_axes(p) for p in _parameters(f))
    using = {rv for rv in rvs if f in ancestors(rv.owner.inputs, blockers=rvs)}
    using |= {p for p in model.potentials if f in ancestors([p], blockers=rvs)}
    is_own = using == set(found.members) and f not in ancestors([found.sigma, center, written], blockers=rvs)
    is_known = all(v.owner is not None or isinstance(v, Constant) for v in ancestors([of_f, sigma_f]))
    if layout == "vector" or not is_own or not is_known or model.rvs_to_transforms[f] is not None:
        return None
    (rows, number), (inner, columns) = evaluate(f).shape, evaluate(written).shape[:: 1 if layout == "columns" else -1]
    if evaluate(found.x).shape != (rows, columns) or inner != number or evaluate(of_f).any():
        return None  # one row of factors for all rows, say, or one row of loadings for all columns
    sigma_f = evaluate(sigma_f)
    if len(sigma_f) != 1 or not np.all(sigma_f > 0):
        return None
    variance = np.broadcast_to(sigma_f[0] ** 2, number).astype(pytensor.config.floatX)
    written = written if factor == 1 else pt.constant(np.asarray(factor, written.dtype)) * written
    return VariableFactors(f, number, given(variance), written, layout == "columns", center)


def _product(part: Variable, rvs: list[Variable]) -> tuple[float, Variable, Variable, str] | None:
    """Match a product, however it is written, as :func:`~pymc_gibbsnn.networks.forms.match_scaled_product` does."""
    leaves = {rv: rv.type(name=rv.name) for rv in ancestors([part], blockers=rvs) if rv in rvs}
    [form] = canonical([part], leaves)
    if (product := match_scaled_product(form)) is None:
        return None
    factor, source, weights, layout = product
    source, weights = substitute([source, weights], {leaf: rv for rv, leaf in leaves.items()})
    return factor, source, weights, layout


def _components(
    model: pm.Model, members: list[Variable], parameters: list[Variable]
) -> tuple[Variable | None, Variable | None, Variable | None]:
    """Read the components of a mixture from which rows are drawn.

    Parameters
    ----------
    model : pm.Model
        The model.
    members : list of Variable
        The variables of which the inputs are made.
    parameters : list of Variable
        Their means, without what factors add, and standard deviations.

    Returns
    -------
    component, means, sigmas : Variable or None
        As in :class:`VariableInputs`.
    """
    rvs, above = model.basic_RVs, set(ancestors(parameters, blockers=model.basic_RVs))
    picked = [rv for rv in model.free_RVs if rv in above and isinstance(rv.owner.op, CategoricalRV)]
    if len(picked) == 1 and picked[0].type.broadcastable == (False,):  # one for each row, not one for all
        [component] = picked
        depending = {rv for rv in rvs if component in ancestors(rv.owner.inputs, blockers=rvs)}
        depending |= {p for p in model.potentials if component in ancestors([p], blockers=rvs)}
        of_components = [_of_components(p, component) for p in parameters]
        if depending == set(members) and None not in of_components:
            return component, *of_components
    means, sigmas = (p if p.type.broadcastable[0] else None for p in parameters)
    return None, means, sigmas


def _of_components(parameter: Variable, component: Variable) -> Variable | None:
    """Return a parameter of rows (n, d), picked by their components, for all components; None if it is not picked so.

    Sums, products and other functions of what is picked are understood if they act on each element by itself.
    """
    if component not in ancestors([parameter]):
        return parameter if parameter.type.broadcastable[0] else None
    if parameter.owner is None:
        return None
    op, inputs = parameter.owner.op, parameter.owner.inputs
    if isinstance(op, SUBTENSORS):
        [array, *index] = inputs
        added = [i for i in index if isinstance(i.type, NoneTypeT)]  # as in mu[c, None], of some PyTensors
        is_pick = index == [component, *added] and parameter.ndim == array.ndim + len(added)
        axes = getattr(op, "idx_list", (0,))  # where PyTensor has it, to tell mu[c] from mu[:, c] and mu[c, 1:]
        picks_rows = axes[0] == 0 and all(axis == slice(None) for axis in axes[1:])
        if not (is_pick and picks_rows) or component in ancestors([array]):
            return None
        return pt.expand_dims(array, tuple(range(1, 1 + len(added)))) if added else array
    if isinstance(op, DimShuffle) and op.new_order[:1] == (0,):
        inner = _of_components(inputs[0], component)
        return None if inner is None else op(inner)
    if isinstance(op, Elemwise):
        parts = [_of_components(x, component) for x in inputs]
        return None if None in parts else op(*parts)
    return None


def _parameters(rv: Variable) -> list[Variable]:
    """Return the parameters of the distribution of a variable."""
    return rv.owner.op.dist_params(rv.owner)


def _of_all_entries(parameter: Variable) -> Variable:
    """Return the parameter of all entries, of which PyMC took those of the entries that are known, or of the others."""
    inner = undimshuffle(parameter)
    picks = inner.owner is not None and isinstance(inner.owner.op, SUBTENSORS)
    return inner.owner.inputs[0] if picks else parameter


def _in_two_axes(parameter: Variable) -> Variable:
    """Add axes of length one in front of a parameter, up to two."""
    return pt.shape_padleft(parameter, 2 - parameter.ndim) if parameter.ndim < 2 else parameter


def read_random_inputs(
    found: VariableInputs,
    model: pm.Model,
    variances: VarianceReader,
    wanted: set[Variable] | None,
) -> RandomInputs:
    """Read the distribution of the inputs of a network, and what is learned of it.

    Parameters
    ----------
    found : VariableInputs
        The inputs.
    model : pm.Model
        The model.
    variances : VarianceReader
        The reader of variances of this model.
    wanted : set of Variable, optional
        If given, only these value variables may be means and variances that are drawn with the inputs.

    Raises
    ------
    NetworkError
        If a known standard deviation is not positive, or the prior of a learned one is improper, or if a mixture has
        more or fewer means or standard deviations than weights.
    """
    holes, measurement, name = None, None, found.x.name
    value = model.rvs_to_values[found.unknown]
    factor_model = _factor_model(found, model, variances, wanted)
    # Of inputs whose factors others move, others move components and what is learned of columns, too
    is_read = found.factors is None or factor_model is not None
    mixture = _mixture(found, model, variances, wanted) if is_read else None
    is_drawn = is_read and (found.component is None or mixture is not None)  # rows have the parameters of columns
    parts = []
    if found.sigmas is not None and is_drawn:
        parts.append((name, {rv.name for rv in found.members}, found.sigmas, found.mean))
    if found.known is not None:
        x = found.entries(model)
        holes = Holes.of(x)
    else:
        measured = model.rvs_to_values[found.measured]
        x = evaluate(measured)
        if x.shape != variances.shapes[value.name]:
            raise NetworkError(
                f"'{name}' has the shape {variances.shapes[value.name]}, but its measurement '{found.measured.name}' "
                f"has {x.shape}: measure each entry once."
            )
        deviation = found.of_measurement
        if deviation.type.broadcastable[0]:
            parts.append((found.measured.name, {found.measured.name}, deviation, None))
        measurement = Measurement(
            found.measured.name, real(measured), folded(variances.deviation(deviation, found.measured) ** 2)
        )
    [mean] = model.replace_rvs_by_values([found.mean])
    shape = (1 if mixture is None else mixture.number, x.shape[1])
    if found.component is not None:
        _check_components(found)
    means = _learned_means(found, model, variances, shape) if is_drawn else []
    learned = variances.conjugate_in_columns(parts, shape)
    return RandomInputs(
        name=name,
        value=value,
        holes=holes,
        mean=real(mean),
        variance=folded(variances.deviation(found.sigma, found.unknown) ** 2),
        measurement=measurement,
        means=tuple(one for one in means if _is(one.value, wanted)),
        variances=tuple(one for one in learned if _is(one.value, wanted)),
        mixture=mixture,
        factor_model=factor_model,
    )


def _check_components(found: VariableInputs) -> None:
    """Raise NetworkError if a mixture has more or fewer means or standard deviations than weights."""
    number = found.number_of_components
    for name, parameter in {"means": found.means, "standard deviations": found.sigmas}.items():
        rows = evaluate(parameter).shape[0]
        if rows not in (1, number):
            raise NetworkError(
                f"'{found.component.name}' has the probabilities of {number} components, but '{found.x.name}' has the "
                f"{name} of {rows}: give one row for each component."
            )


def _mixture(
    found: VariableInputs, model: pm.Model, variances: VarianceReader, wanted: set[Variable] | None
) -> Mixture | None:
    """Read the mixture from which rows of the inputs are drawn, if there is one.

    Parameters
    ----------
    found, model, variances, wanted
        As for :func:`read_random_inputs`.
    """
    rv = found.component
    if rv is None or not _is(model.rvs_to_values[rv], wanted):
        return None
    weights = found.weights
    mean, probabilities = model.replace_rvs_by_values([found.means, weights])
    return Mixture(
        name=rv.name,
        value=model.rvs_to_values[rv],
        number=found.number_of_components,
        probabilities=real(probabilities),
        mean=real(mean),
        variance=folded(variances.deviation(found.sigmas, found.unknown) ** 2),
        learned_weights=_learned_weights(undimshuffle(weights), rv, model, variances, wanted),
    )


def _factor_model(
    found: VariableInputs, model: pm.Model, variances: VarianceReader, wanted: set[Variable] | None
) -> FactorModel | None:
    """Read the factors of the inputs, if there are some, and their loadings, if they are Normal and serve nothing else.

    Parameters
    ----------
    found, model, variances, wanted
        As for :func:`read_random_inputs`.
    """
    factors = found.factors
    if factors is None or not _is(value := model.rvs_to_values[factors.f], wanted):
        return None
    rv, learned = factors.written, None
    if rv in model.free_RVs and is_normal(rv) and _is(model.rvs_to_values[rv], wanted):
        is_own = variances.users(rv) == sorted(one.name for one in found.members)
        is_plain = model.rvs_to_transforms[rv] is None and rv not in ancestors([found.sigma, factors.center])
        if is_own and is_plain:
            mean, sigma = (_in_two_axes(p) for p in _parameters(rv))
            [mean] = model.replace_rvs_by_values([mean])
            variance = folded(variances.deviation(sigma, rv) ** 2)
            turned = [p.T if factors.is_transposed else p for p in (real(mean), variance)]
            learned = LearnedLoadings(rv.name, model.rvs_to_values[rv], factors.is_transposed, *turned)
    loadings, center = model.replace_rvs_by_values([factors.loadings, factors.center])
    return FactorModel(
        name=factors.f.name,
        value=value,
        number=factors.number,
        variance=factors.variance,
        loadings=real(loadings),
        center=real(center),
        learned_loadings=learned,
    )


def _learned_weights(
    weights: Variable, component: Variable, model: pm.Model, variances: VarianceReader, wanted: set[Variable] | None
) -> LearnedWeights | None:
    """Read the weights of a mixture, if they have a Dirichlet prior and no other variable depends on them.

    Parameters
    ----------
    weights : Variable
        The weights.
    component : Variable
        The Categorical variable of which they are the probabilities.
    model, variances, wanted
        As for :func:`read_random_inputs`.
    """
    if weights not in model.free_RVs or not isinstance(weights.owner.op, DirichletRV) or weights.ndim > 1:
        return None
    transform, value = model.rvs_to_transforms[weights], model.rvs_to_values[weights]
    is_known = transform is None or isinstance(transform, SimplexTransform)
    if not is_known or not _is(value, wanted) or variances.users(weights) != [component.name]:
        return None
    [alpha] = model.replace_rvs_by_values(_parameters(weights))
    return LearnedWeights(weights.name, value, transform is not None, real(alpha))


def line_of_columns(seen: Variable, x: Variable) -> tuple[Variable, Variable] | None:
    """Return the slopes t and the shifts o (1, d) with which an expression is t x + o; None if it is none of these."""

    def line(v: Variable) -> tuple[Variable, Variable] | None:
        one, zero = np.ones((1, 1), v.dtype), np.zeros((1, 1), v.dtype)
        if v is x:
            return pt.constant(one), pt.constant(zero)
        if x not in ancestors([v]):
            return pt.constant(zero), v
        lines = [line(part) for part in v.owner.inputs]
        if not isinstance(v.owner.op, Elemwise) or None in lines:
            return None
        slopes, shifts = zip(*lines, strict=True)
        depends = [x in ancestors([part]) for part in v.owner.inputs]
        match v.owner.op.scalar_op:
            case ps.Add():
                return sum(slopes[1:], slopes[0]), sum(shifts[1:], shifts[0])
            case ps.Sub():
                return slopes[0] - slopes[1], shifts[0] - shifts[1]
            case ps.Neg():
                return -slopes[0], -shifts[0]
            case ps.Cast() | ps.Identity():
                return lines[0]
            case ps.TrueDiv() if depends == [True, False]:
                return slopes[0] / shifts[1], shifts[0] / shifts[1]
            case ps.Mul() if sum(depends) == 1:
                i = depends.index(True)
                factor = math.prod((*shifts[:i], *shifts[i + 1 :]))
                return slopes[i] * factor, shifts[i] * factor
        return None

    found = line(seen)
    if found is None or not all(part.type.broadcastable[0] for part in found):
        return None
    return found


def _is(value: Variable, wanted: set[Variable] | None) -> bool:
    """Whether a value variable is among those that are wanted."""
    return wanted is None or value in wanted


def _learned_means(
    found: VariableInputs, model: pm.Model, variances: VarianceReader, shape: tuple[int, int]
) -> list[LearnedMean]:
    """Find the variable that holds the means of columns, if it is Normal and no other variable depends on it.

    Parameters
    ----------
    found : VariableInputs
        The inputs.
    model : pm.Model
        The model.
    variances : VarianceReader
        The reader of variances of this model.
    shape : tuple of int
        The numbers of components and columns.
    """
    if found.means is None:
        return []
    rv = undimshuffle(found.means)
    if (
        rv not in model.free_RVs
        or not isinstance(rv.owner.op, NormalRV)
        or rv in ancestors([found.sigma, *([] if found.factors is None else [found.factors.written])])
        or model.rvs_to_transforms[rv] is not None
        or variances.users(rv) != sorted(one.name for one in found.members)
    ):
        return []
    value = model.rvs_to_values[rv]
    own_shape = variances.shapes[value.name]
    numbers = evaluate(found.means, {rv: np.arange(np.prod(own_shape, dtype=int), dtype=rv.dtype).reshape(own_shape)})
    which = np.broadcast_to(numbers, shape).astype(int)
    mean, sigma = _parameters(rv)
    [mean] = model.replace_rvs_by_values([mean])
    deviation = variances.deviation(sigma, rv)
    return [LearnedMean(rv.name, value, own_shape, which, real(mean), folded(deviation**2))]

r"""A model with inputs that are missing or measured with error, written so that new rows of these are data.

Nothing but its own inputs is known of a new row. Its true inputs x are drawn anew given these, by

    x_j ~ N(μ_j, τ_j²) where x_j is missing,     x_j ~ N(v (μ_j/τ_j² + x̃_j/s_j²), v), 1/v = 1/τ_j² + 1/s_j², where x̃_j
    was measured;

an x_j that is known is a number. Where rows are drawn from a mixture, the component of a new row is drawn first,
given all that is known of it,

    p(k | x) ∝ π_k Π_j N(x_j; μ_kj, τ_kj²) over known entries j, or π_k Π_j N(x̃_j; μ_kj, τ_kj² + s_j²) over measured
    ones.

Where rows have factors f with loadings V, this density is that of x with f integrated out; f of a new row is drawn
next, given the component and what is known (:mod:`pymc_gibbsnn.moves.factors_of_inputs`), and μ_j + V_j f stands for
μ_j above.

Means and variances, weights of a mixture and loadings come from the posterior.
"""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import categorical, normal

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.factors_of_inputs import added_by_factors, factors_of_rows
from pymc_gibbsnn.moves.mixture_of_inputs import log_densities_of_rows
from pymc_gibbsnn.networks.forms import NetworkError, evaluate
from pymc_gibbsnn.networks.input_reader import VariableInputs, variable_inputs
from pymc_gibbsnn.networks.substitution import substitute

__all__ = ["with_inputs_as_data"]


def with_inputs_as_data(model: pm.Model) -> pm.Model:
    """Return a model in which inputs that were variables are drawn given data, which may be missing (NaN).

    A model without such inputs is returned as it is, and so are inputs whose prior depends on other data, of which new
    rows can be given.

    Raises
    ------
    NetworkError
        If the prior of the inputs, or their measurement, differs from row to row, so that it is not known at new rows.
    """
    replaced: dict[Variable, Variable] = {}
    drawn: dict[Variable, Variable] = {}
    data, gone = {}, []
    for found in variable_inputs(model):
        if not found.is_alike_in_rows:
            if any(v in model.data_vars for v in ancestors([found.mean, found.sigma], blockers=model.basic_RVs)):
                continue
            raise NetworkError(
                f"The prior of '{found.x.name}' or its measurement differs from row to row, so that it is not known at "
                f"new rows: give means and standard deviations of columns."
            )
        leaf = _data_of(model, found)
        x, new = _given_data(found, leaf)
        for rv, counterpart in new.items():
            counterpart.name = rv.name
        replaced[found.x], data[leaf.name] = x, leaf
        drawn |= new
        gone += [rv for rv in (found.known, found.measured) if rv is not None]
    if not replaced:
        return model
    terms = [v for v in (*model.basic_RVs, *model.potentials) if v not in gone and v not in drawn]
    new = drawn | dict(zip(terms, substitute(terms, replaced), strict=True))
    for old, counterpart in new.items():
        counterpart.name = old.name
    values = {new[rv]: value for rv, value in model.rvs_to_values.items() if rv in new}
    for rv in drawn.values():  # of all entries, where the value was one of the missing ones
        values[rv] = rv.type(name=values[rv].name)
    names = {name: new.get(v, v) for name, v in model.named_vars.items() if v not in gone}
    counterpart = object.__new__(pm.Model)  # a copy by PyMC has other value variables
    counterpart.__dict__ |= model.__dict__ | {
        "named_vars": names | data,
        "rvs_to_values": values,
        "values_to_rvs": {value: rv for rv, value in values.items()},
        "rvs_to_transforms": {new[rv]: how for rv, how in model.rvs_to_transforms.items() if rv in new},
        "data_vars": [*(v for v in model.data_vars if v.name not in data), *data.values()],
    }
    for name in ("free_RVs", "observed_RVs", "potentials"):
        setattr(counterpart, name, [new[v] for v in getattr(model, name) if v in new])
    return counterpart


def _data_of(model: pm.Model, found: VariableInputs) -> Variable:
    """Return the data of inputs as a shared variable: the ``pm.Data`` of a measurement, or a new one named like x."""
    if found.measured is not None:
        value = model.rvs_to_values[found.measured]
        if isinstance(value, SharedVariable) and value in model.data_vars:
            return value
        name, x = found.measured.name, evaluate(value)
    else:
        name, x = found.x.name, found.entries(model)
    return pytensor.shared(np.asarray(x), name=name, shape=(None, None))


def _given_data(found: VariableInputs, leaf: Variable) -> tuple[Variable, dict[Variable, Variable]]:
    """Return the inputs x (m, d) of rows given their data, and new random variables in place of those of the model."""
    mean, sigma, error, is_missing = found.mean, found.sigma, found.of_measurement, pt.isnan(leaf)
    rng, new = pytensor.shared(np.random.default_rng(0)), {}
    known = pt.switch(is_missing, 0, leaf)
    if found.component is not None:
        [rng, component] = draw(categorical, rng, _probabilities(found, known, ~is_missing))
        mean, sigma = substitute([mean, sigma], {found.component: component})
        new[found.component] = component
    if (factors := found.factors) is not None:
        [center] = substitute([factors.center], new)
        certainty = pt.switch(is_missing, 0, 1 / (sigma**2 if error is None else sigma**2 + error**2))
        [rng, xi] = draw(normal, rng, 0.0, 1.0, size=(leaf.shape[0], factors.number))
        f = factors_of_rows(known - center, certainty, factors, xi)
        mean = center + added_by_factors(factors, f)
        new[factors.f] = xi  # of which the factors are a function
    if error is None:
        [_, drawn] = draw(normal, rng, mean, sigma, size=tuple(leaf.shape))
        return pt.switch(is_missing, drawn, leaf), {**new, found.unknown: drawn}
    certainty = pt.switch(is_missing, 0, 1 / error**2)
    variance = 1 / (1 / sigma**2 + certainty)
    centre = variance * (mean / sigma**2 + certainty * known)
    [_, drawn] = draw(normal, rng, centre, pt.sqrt(variance))
    return drawn, {**new, found.unknown: drawn}


def _probabilities(found: VariableInputs, known: Variable, is_known: Variable) -> Variable:
    """Compute the probabilities (m, components) of the components of rows given their known or measured values."""
    weights, error, means, sigmas = found.weights, found.of_measurement, found.means, found.sigmas
    variance = sigmas**2 if error is None else sigmas**2 + error**2
    zeros = pt.zeros((weights.shape[-1], known.shape[1]), known.dtype)
    is_known = pt.cast(is_known, known.dtype)
    of_rows = log_densities_of_rows(known, means + zeros, variance + zeros, is_known, found.factors)
    return pt.special.softmax(pt.log(weights) + of_rows, axis=-1)

r"""Inputs that are missing or measured with error, drawn given the first layer, with the parameters of their prior.

Model. A row x of the inputs, with the entries M not known and the others O known, its pre-activations z of the first
layer, and measured values x̃ if there are some:

    x_j ~ N(μ_j, τ_j²),     z ~ N(W x + b, Δ I),     x̃_j ~ N(x_j, s_j²).

Conditional. x_M is Gaussian with

    precision  W_Mᵀ W_M/Δ + diag(1/τ_M²) + diag(1/s_M²),
    mean       precision⁻¹ [W_Mᵀ (z − b − W_O x_O)/Δ + μ_M/τ_M² + x̃_M/s_M²].

Where the network sees t x + o in place of x, such as standardised inputs, W t and z − W o take the places of W and z.

Rows with the same M share one Cholesky factor (:mod:`pymc_gibbsnn.moves.gaussian_rows`). Where no entry of x is known,
and all rows have the same τ and s, prior and measurement together are N(m, D) with D diagonal, and x is drawn as
post-activations are (:mod:`pymc_gibbsnn.moves.postactivations`): u = D^{-1/2} (x − m) ~ N(0, I) is the input of a layer
with the weights W D^{1/2}. Where rows have scales c of their own, x/c, μ/c and τ/c take the places of x, μ and τ.

Learned means and variances of columns are conjugate. With the entries x_e of the columns that share a mean,

    μ | x ~ N(v (m₀/v₀ + Σ_e x_e/τ_e²), v),     1/v = 1/v₀ + Σ_e 1/τ_e²,     where μ ~ N(m₀, v₀),

and variances follow from the residuals x − μ and x̃ − x (:mod:`pymc_gibbsnn.moves.variances`). Where rows are drawn from
a mixture, these are sums over the rows of one component; the weights of components are drawn before them, and the
components of rows after them (:mod:`pymc_gibbsnn.moves.mixture_of_inputs`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import normal

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.gaussian_rows import gaussian_rows
from pymc_gibbsnn.moves.mixture_of_inputs import by_component, draw_components, draw_weights, log_density_of_components
from pymc_gibbsnn.moves.postactivations import draw_postactivations
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.moves.variances import draw_variance, log_density_of_variance, moments
from pymc_gibbsnn.networks.given import given, sizes
from pymc_gibbsnn.networks.random_inputs import LearnedMean, RandomInputs

__all__ = ["log_densities_of_inputs", "random_inputs"]


def random_inputs(rng: Variable, state: NetworkState) -> tuple[Variable, NetworkState]:
    """Draw learned weights, means and variances, the components of rows, and then the inputs that are not known."""
    values, mixture = state.values, state.network.random_inputs.mixture
    if mixture is not None and mixture.learned_weights is not None:
        weights = state.read(values).random_inputs.mixture.learned_weights
        counts = by_component(mixture, pt.ones_like(state.network.inputs[:, :1]), values)[:, 0]
        rng, value = draw_weights(rng, weights, counts, mixture.number)
        values = values | {weights.value: value}
    for number, mean in enumerate(state.network.random_inputs.means):
        inputs = state.read(values).random_inputs
        rng, value = _draw_mean(rng, inputs.means[number], inputs, values)
        values = values | {mean.value: value}
    for number in range(len(state.network.random_inputs.variances)):
        inputs = state.read(values).random_inputs
        scale, squares = inputs.variances[number], _squares(inputs, values)
        rng, value = draw_variance(rng, scale, *moments(scale, values, squares))
        values = values | {scale.value: value}
    if mixture is not None:
        inputs = state.read(values).random_inputs
        rng, component = draw_components(rng, inputs.mixture, inputs.at(values))
        values = values | {mixture.value: component}
    state = replace(state, values=values, network=state.read(values))
    inputs = state.network.random_inputs
    rng, value = _draw_unknown(rng, state, inputs)
    values = values | {inputs.value: pt.cast(value, inputs.value.dtype)}
    return rng, replace(state, values=values, network=state.read(values))


def _draw_mean(
    rng: Variable, mean: LearnedMean, inputs: RandomInputs, values: dict[Variable, Variable]
) -> tuple[Variable, Variable]:
    """Draw learned means of columns, as the value of their value variable.

    Parameters
    ----------
    rng : Variable
        The random generator.
    mean : LearnedMean
        The means.
    inputs : RandomInputs
        The inputs of which they are the means.
    values : dict of Variable to Variable
        Values of all variables of the model.

    Returns
    -------
    rng, value : Variable
    """
    x = inputs.at(values)
    precision = 1 / inputs.variance + pt.zeros_like(x)
    which, zeros = given(mean.which.ravel()), given(np.zeros(math.prod(mean.shape), x.dtype))
    of_entries, weighted = (
        pt.inc_subtensor(zeros[which], by_component(inputs.mixture, entries, values).ravel()).reshape(sizes(mean.shape))
        for entries in (precision, precision * x)
    )
    variance = 1 / (1 / mean.variance + of_entries)
    centre = variance * (mean.mean / mean.variance + weighted)
    rng, value = draw(normal, rng, centre, pt.sqrt(variance))
    return rng, pt.cast(value, mean.value.dtype)


def _squares(inputs: RandomInputs, values: dict[Variable, Variable]) -> dict[str, tuple[Variable, Variable]]:
    """Return Σ (x − μ)² and, where x is measured, Σ (x̃ − x)², and how many residuals there are.

    Sums are those of each column in each component, (components, d).
    """
    x = inputs.at(values)
    residuals = {inputs.name: x - inputs.mean}
    if inputs.measurement is not None:
        residuals[inputs.measurement.name] = inputs.measurement.measured - x
    sums = partial(by_component, inputs.mixture, values=values)
    return {name: (sums(r**2), sums(pt.ones_like(r))) for name, r in residuals.items()}


def _draw_unknown(rng: Variable, state: NetworkState, inputs: RandomInputs) -> tuple[Variable, Variable]:
    """Draw the entries that are not known given the first layer; return the value of their value variable."""
    layer, w, holes, c = state.network.layers[0], state.weights[0], inputs.holes, state.network.row_scale
    v, x = layer.operator.linear(w), state.network.inputs
    y = layer.centred(state.outputs[0]) - layer.operator.intercept(w)  # W x and noise
    if inputs.slope is not None:
        y = y - (inputs.shift if c is None else inputs.shift / c) @ v.T
        v = v * inputs.slope
    precision, linear = inputs.given_measurement()
    if c is not None:
        precision, linear = precision * c**2, linear * c
    linear = linear + pt.zeros_like(x)
    one = pt.constant(np.asarray(1, x.dtype))
    share_precision = precision.type.broadcastable[0]
    if holes is None and share_precision:
        root = pt.sqrt(1 / precision)
        centre, of_u = linear / precision, v * root

        def correct(r: Variable) -> Variable:
            return r @ layer.operator.gain(of_u, one, layer.noise)

        rng, u = draw_postactivations(
            rng, pt.zeros_like(x), one, y - centre @ v.T, lambda u: u @ of_u.T, correct, layer.noise
        )
        return rng, centre + root * u
    if holes is None:
        rows, drawn, group = pt.arange(state.samples), pt.ones_like(x, dtype="bool"), pt.arange(state.samples)
    else:
        known = holes.known if c is None else holes.known / c
        y, rows, drawn, group = (y - known @ v.T)[holes.rows], holes.rows, holes.missing, holes.group
        linear = linear[rows]
        if not share_precision:
            precision, drawn, group = precision[rows], drawn[group], pt.arange(rows.shape[0])
    linear = linear + y @ v / layer.noise
    rng, xi = draw(normal, rng, pt.zeros_like(linear), one)
    precision = precision + pt.zeros_like(drawn, dtype=x.dtype)
    new = gaussian_rows(v.T @ v / layer.noise, precision, drawn, group, linear, xi)
    if c is not None:
        new = new * c[rows]
    return rng, new if holes is None else new.ravel()[holes.places]


def log_densities_of_inputs(state: NetworkState) -> dict[str, Variable]:
    """Compute the log densities of inputs, known entries included, of measurements, and of what is learned of them."""
    inputs = state.network.random_inputs
    x = inputs.at(state.values)
    densities = {inputs.name: _log_normal(x - inputs.mean, inputs.variance)}
    if (measurement := inputs.measurement) is not None:
        densities[measurement.name] = _log_normal(measurement.measured - x, measurement.variance)
    if inputs.mixture is not None:
        densities |= log_density_of_components(inputs.mixture, state.values)
    for mean in inputs.means:
        densities[mean.name] = _log_normal(state.values[mean.value] - mean.mean, mean.variance)
    for scale in inputs.variances:
        densities[scale.name] = log_density_of_variance(scale, scale.log_precision(state.values[scale.value]))
    return densities


def _log_normal(residuals: Variable, variance: Variable) -> Variable:
    """Compute the sum of the log densities of residuals under normal distributions."""
    return -0.5 * (residuals**2 / variance + pt.log(2 * math.pi * variance)).sum()

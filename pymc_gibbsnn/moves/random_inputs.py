r"""Inputs that are missing or measured with error, drawn given the first layer, with the parameters of their prior.

Model. A row x of the inputs, with the entries M not known and the others O known, its pre-activations z of the first
layer, with the scale c of the noise of the row, and measured values x̃ if there are some:

    x_j ~ N(μ_j, τ_j²),     z ~ N(W x + b, c² Δ I),     x̃_j ~ N(x_j, s_j²).

Conditional. x_M is Gaussian with

    precision  W_Mᵀ W_M/(c² Δ) + diag(1/τ_M²) + diag(1/s_M²),
    mean       precision⁻¹ [W_Mᵀ (z − b − W_O x_O)/(c² Δ) + μ_M/τ_M² + x̃_M/s_M²].

Where the network sees t x + o in place of x, such as standardised inputs, W t and z − W o take the places of W and z.
Where two networks take x, one of which sets the noise of the other, there is such a z of each, and their terms add up.

Where all rows have the same c, τ and s, those with the same M share one Cholesky factor
(:mod:`pymc_gibbsnn.moves.gaussian_rows`). If, besides, no entry of x is known, prior and measurement together are
N(m, D) with D diagonal, and x is drawn as post-activations are (:mod:`pymc_gibbsnn.moves.postactivations`):
u = D^{-1/2} (x − m) ~ N(0, I) is the input of a layer with the weights W D^{1/2}.

Learned means and variances of columns are conjugate. With the entries x_e of the columns that share a mean,

    μ | x ~ N(v (m₀/v₀ + Σ_e x_e/τ_e²), v),     1/v = 1/v₀ + Σ_e 1/τ_e²,     where μ ~ N(m₀, v₀),

and variances follow from the residuals x − μ and x̃ − x (:mod:`pymc_gibbsnn.moves.variances`). Where rows are drawn from
a mixture, these are sums over the rows of one component; the weights of components are drawn before them, and the
components of rows after them (:mod:`pymc_gibbsnn.moves.mixture_of_inputs`).

Where rows have factors f with loadings V, so that μ_j + V_j f stands for μ_j, the f of a row and its x_M are drawn at
once: together they are Gaussian, with the terms

    −½ Σ_j (x_j − V_j f − μ_j)²/τ_j² − ½ Σ_a f_a²/s_a²

for the prior. Learned loadings are drawn first of all (:mod:`pymc_gibbsnn.moves.factors_of_inputs`), and the components
of a mixture with f integrated out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import normal

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.factors_of_inputs import added_by_factors, draw_loadings
from pymc_gibbsnn.moves.gaussian_rows import gaussian_rows
from pymc_gibbsnn.moves.mixture_of_inputs import by_component, draw_components, draw_weights, log_density_of_components
from pymc_gibbsnn.moves.postactivations import draw_postactivations
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.moves.variances import draw_variance, log_density_of_variance, moments
from pymc_gibbsnn.networks.given import given, sizes
from pymc_gibbsnn.networks.random_inputs import LearnedMean, RandomInputs

__all__ = ["log_densities_of_inputs", "random_inputs"]


def random_inputs(rng: Variable, state: NetworkState) -> tuple[Variable, NetworkState]:
    """Draw what is learned of the inputs, the components of rows, and then factors and inputs that are not known."""
    values, mixture = state.values, state.network.random_inputs.mixture
    factors = state.network.random_inputs.factor_model
    if factors is not None and (loadings := factors.learned_loadings) is not None:
        inputs, f = state.read(values).random_inputs, values[factors.value]
        x = inputs.at(values)
        centred, precision = x - inputs.factor_model.center, 1 / inputs.variance + pt.zeros_like(x)
        rng, value = draw_loadings(rng, inputs.factor_model, centred, pt.cast(f, x.dtype), precision)
        values = values | {loadings.value: value}
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
        rng, component = draw_components(rng, inputs.mixture, inputs.at(values), factors=inputs.factor_model)
        values = values | {mixture.value: component}
    state = replace(state, values=values, network=state.read(values))
    rng, drawn = (_draw_unknown if factors is None else _draw_with_factors)(rng, state)
    values = values | {value: pt.cast(new, value.dtype) for value, new in drawn.items()}
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
    if (factors := inputs.factor_model) is not None:
        x = x - added_by_factors(factors, values[factors.value])
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


class Regression(NamedTuple):
    """What the first layer of a network tells of inputs x: e ~ N(V x, c² Δ I) in each row."""

    v: Variable  # V (h, d)
    rest: Variable  # e/c (n, h)
    noise: Variable  # Δ ()
    scale: Variable | None  # c (n, 1); None if it is 1

    @classmethod
    def of(cls, state: NetworkState) -> Regression:
        """Find it for the inputs of a network."""
        layer, w = state.network.layers[0], state.weights[0]
        inputs, c = state.network.random_inputs, state.network.row_scale
        v = layer.operator.linear(w)
        rest = layer.centred(state.outputs[0]) - layer.operator.intercept(w)
        if inputs.slope is not None:
            rest = rest - (inputs.shift if c is None else inputs.shift / c) @ v.T
            v = v * inputs.slope
        return cls(v, rest, layer.noise, c)

    def at(self, rows: Variable) -> Regression:
        """Return what is told of some rows, by their numbers."""
        return self._replace(rest=self.rest[rows], scale=None if self.scale is None else self.scale[rows])

    def given(self, known: Variable) -> Regression:
        """Return what is told of the other entries, where some are ``known`` and 0 stands for the others."""
        return self._replace(rest=self.rest - (known if self.scale is None else known / self.scale) @ self.v.T)

    @property
    def linear(self) -> Variable:
        """Vᵀ e/(c² Δ) for each row, (n, d)."""
        return (self.rest if self.scale is None else self.rest / self.scale) @ self.v / self.noise


def _regressions(state: NetworkState) -> list[Regression]:
    """List what networks tell of the inputs: this one and, if it takes them, too, that whose noise this one sets."""
    found, other = [Regression.of(state)], state.network.sets_noise_of
    if other is not None and other.random_inputs is not None and not other.draws_inputs:
        equal = other.of_equal_rows()
        found.append(Regression.of(NetworkState.begin(lambda values: equal, state.values, state.tuning)))
    return found


def _draw_unknown(rng: Variable, state: NetworkState) -> tuple[Variable, dict[Variable, Variable]]:
    """Draw the entries that are not known given the first layer; return values by their value variable."""
    inputs, regressions = state.network.random_inputs, _regressions(state)
    x, holes = inputs.at(state.values), inputs.holes
    precision, linear = inputs.given_measurement()
    linear = linear + pt.zeros_like(x)
    one = pt.constant(np.asarray(1, x.dtype))
    are_equal = precision.type.broadcastable[0] and all(regression.scale is None for regression in regressions)
    if holes is None and are_equal:
        [regression] = regressions  # a second network would have scales of rows
        root = pt.sqrt(1 / precision)
        centre, of_u, operator = linear / precision, regression.v * root, state.network.layers[0].operator

        def correct(r: Variable) -> Variable:
            return r @ operator.gain(of_u, one, regression.noise)

        rest = regression.rest - centre @ regression.v.T
        rng, u = draw_postactivations(rng, pt.zeros_like(x), one, rest, lambda u: u @ of_u.T, correct, regression.noise)
        return rng, {inputs.value: centre + root * u}
    if holes is None:
        rows, drawn, group = pt.arange(x.shape[0]), pt.ones_like(x, dtype="bool"), pt.arange(x.shape[0])
    else:
        rows, drawn, group = holes.rows, holes.missing, holes.group
        regressions = [regression.at(rows).given(holes.known[rows]) for regression in regressions]
        if not are_equal:
            drawn, group = drawn[group], pt.arange(rows.shape[0])
    linear = sum((regression.linear for regression in regressions), start=linear[rows])
    precision = precision if precision.type.broadcastable[0] else precision[rows]
    precision = precision + pt.zeros_like(drawn, dtype=x.dtype)
    ones = pt.ones_like(precision[:, 0])[:, None]
    scales = [ones if regression.scale is None else regression.scale for regression in regressions]
    grams = pt.stack([regression.v.T @ regression.v / regression.noise for regression in regressions])
    rng, xi = draw(normal, rng, pt.zeros_like(linear), one)
    new = gaussian_rows(grams, 1 / pt.concatenate(scales, axis=1) ** 2, precision, drawn, group, linear, xi)
    return rng, {inputs.value: new if holes is None else new.ravel()[holes.places]}


def _draw_with_factors(rng: Variable, state: NetworkState) -> tuple[Variable, dict[Variable, Variable]]:
    """Draw the entries that are not known, and the factors of all rows, at once given the first layer."""
    inputs, regressions = state.network.random_inputs, _regressions(state)
    factors, holes, x = inputs.factor_model, inputs.holes, inputs.at(state.values)
    f = pt.cast(state.values[factors.value], x.dtype)
    (n, d), k = (x.shape[0], state.network.layers[0].operator.shape[1]), factors.number
    # Zeros of these shapes are asked of the state: the shape of what is computed is one that JAX would have to check
    one, zeros, no_factors = pt.constant(np.asarray(1, x.dtype)), pt.zeros_like(x), pt.zeros_like(f)
    known, missing = zeros, pt.ones_like(x)
    if holes is not None:
        known, missing = holes.known, holes.indicators
        regressions = [regression.given(known) for regression in regressions]

    certainty = 1 / inputs.variance + zeros
    linear, of_measurement = factors.center * certainty, zeros
    of_factors = (certainty * (known - factors.center)) @ factors.loadings
    if (measurement := inputs.measurement) is not None:
        of_measurement = 1 / measurement.variance + zeros
        linear = linear + measurement.measured * of_measurement
    linear = sum((regression.linear for regression in regressions), start=linear)

    # Of each column the matrix with which (x_j − V_j f)² is a form of (x, f), and of each network that of x
    u = pt.concatenate([pt.eye(d, dtype=x.dtype), -factors.loadings], axis=1)
    empty = pt.zeros((len(regressions), d + k, d + k), x.dtype)
    grams = pt.stack([regression.v.T @ regression.v / regression.noise for regression in regressions])
    grams = pt.concatenate([u[:, :, None] * u[:, None, :], pt.set_subtensor(empty[:, :d, :d], grams)])
    ones = pt.ones_like(certainty[:, 0])[:, None]
    scales = [ones if regression.scale is None else regression.scale for regression in regressions]
    weights = pt.concatenate([certainty, *(1 / scale**2 for scale in scales)], axis=1)
    precision = pt.concatenate([of_measurement, 1 / factors.variance + no_factors], axis=1)
    drawn = pt.concatenate([missing, no_factors + 1], axis=1) > 0
    linear = pt.concatenate([linear, of_factors], axis=1)
    rng, xi = draw(normal, rng, pt.concatenate([zeros, no_factors], axis=1), one)
    new = gaussian_rows(grams, weights, precision, drawn, pt.arange(n), linear, xi)
    entries = new[:, :d] if holes is None else new[holes.row, holes.column]
    return rng, {inputs.value: entries, factors.value: new[:, d:]}


def log_densities_of_inputs(state: NetworkState) -> dict[str, Variable]:
    """Compute the log densities of inputs, known entries included, of measurements, and of what is learned of them."""
    inputs = state.network.random_inputs
    x = inputs.at(state.values)
    densities = {inputs.name: _log_normal(x - inputs.mean, inputs.variance)}
    if (measurement := inputs.measurement) is not None:
        densities[measurement.name] = _log_normal(measurement.measured - x, measurement.variance)
    if inputs.mixture is not None:
        densities |= log_density_of_components(inputs.mixture, state.values)
    if (factors := inputs.factor_model) is not None:
        densities[factors.name] = _log_normal(state.values[factors.value], factors.variance)
        if (loadings := factors.learned_loadings) is not None:
            densities[loadings.name] = _log_normal(factors.loadings - loadings.mean, loadings.variance)
    for mean in inputs.means:
        densities[mean.name] = _log_normal(state.values[mean.value] - mean.mean, mean.variance)
    for scale in inputs.variances:
        densities[scale.name] = log_density_of_variance(scale, scale.log_precision(state.values[scale.value]))
    return densities


def _log_normal(residuals: Variable, variance: Variable) -> Variable:
    """Compute the sum of the log densities of residuals under normal distributions."""
    return -0.5 * (residuals**2 / variance + pt.log(2 * math.pi * variance)).sum()

r"""A target that finds the linear readout of a network in a PyMC model and integrates it out.

    y ~ Normal(Ψ θ + o, σ),     θ ~ Normal(m, s)

The features Ψ and the offset o may be any expressions of other variables. The readout θ are weights and biases with
Normal priors, whose scale is the same for all outputs, and which enter the model in no other way. The formulas are in
:mod:`pymc_gibbsnn.targets.marginal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.given import is_given
from pymc_gibbsnn.networks.minibatch import variables_on_minibatches
from pymc_gibbsnn.networks.network import NetworkError, evaluate
from pymc_gibbsnn.networks.substitution import canonical, substitute
from pymc_gibbsnn.targets.marginal import Marginal
from pymc_gibbsnn.targets.readout_reader import read_readout
from pymc_gibbsnn.targets.target import Data, Target, free_variables
from pymc_gibbsnn.targets.whitening import WhitenedTarget, gaussian_prior, log_density_of_others

__all__ = ["ReadoutTarget"]


class ReadoutTarget(WhitenedTarget):
    """The posterior of a network's inner weights, whitened, with its linear readout integrated out.

    ``draw`` also draws the readout, from its exact conditional given the inner weights and y (Pezzetti, Favaro,
    Peluchetti, arXiv 2408.14325, theorem 3.1).

    Parameters
    ----------
    model : pm.Model
        The model.
    vars : sequence of Variable, optional
        Random or value variables to move, the readout among them; by default all free ones.
    reduce : bool
        Whether to use the row space of data that have more columns than rows
        (:mod:`pymc_gibbsnn.targets.row_space`).

    Raises
    ------
    ValueError
        If a prior is not Gaussian; the message names it.
    NetworkError
        If no likelihood with a linear readout is found, or it observes minibatches; the message names what was found
        instead.
    """

    def __init__(self, model: pm.Model, vars: Sequence[Variable] | None = None, *, reduce: bool = True):
        rvs = free_variables(model, vars)
        for rv in rvs:
            gaussian_prior(model, rv)
        on_batches = variables_on_minibatches(model)
        if on_batches:
            raise NetworkError(
                f"reparametrise=True integrates the readout out given all rows of the data, but {on_batches} hold "
                f"minibatches: observe all rows, or leave reparametrise out."
            )
        observed, parts, residual, noise = read_readout(model, rvs)
        outs = [model.values_to_rvs[part.value] for part in parts]
        inner = [rv for rv in rvs if rv not in outs]
        rest = log_density_of_others(model, [*rvs, observed])
        expressions = [residual, noise, rest]
        for part in parts:
            expressions += [part.features, part.mean, part.scale]
        residual, noise, rest, *read = canonical(expressions)
        self.parts = parts = [
            replace(part, features=features, mean=mean, scale=scale)
            for part, features, mean, scale in zip(parts, read[::3], read[1::3], read[2::3], strict=True)
        ]
        features = [part.features * part.matrix(part.scale).T for part in parts]
        for part in parts:
            if not _is_zero(part.mean):
                mean = part.matrix(part.mean) + pt.zeros((part.features.shape[1], 1), dtype=residual.dtype)
                residual = residual - part.features @ mean
        Target.__init__(self, model, [*features, residual, noise, rest])
        self.whiten(model, inner, reduce)
        self.variables = [*self.variables, *(part.value for part in parts)]
        self.widths = [part.inputs for part in parts]
        y = model.rvs_to_values[observed]
        self.shape = y.shape[0], y.shape[1] if y.ndim == 2 else pt.constant(1)
        self.wide = sum(self.widths) >= len(evaluate(y))

    def marginal(self, position: list[Variable], data: Data) -> tuple[Marginal, Variable]:
        """Compute at φ the likelihood with the readout integrated out, and the log density of all else observed."""
        *psi, residual, variance, rest = self.at(position, data)
        return Marginal(psi, self.widths, residual, variance, self.shape, self.wide), rest

    def log_likelihood(self, position: list[Variable], data: Data) -> Variable:
        """Compute ℓ at φ: the log density of all that is observed, with the readout integrated out."""
        marginal, rest = self.marginal(position, data)
        return marginal.log_likelihood + rest

    def gradient(self, position: list[Variable], data: Data) -> tuple[Variable, list[Variable]]:
        """Compute ℓ and ∇ℓ at φ, with the derivatives of the marginal in closed form.

        φ must be variables that are not computed from others, so that they can be differentiated by.
        """
        marginal, rest = self.marginal(position, data)
        psi_slopes, r_slope, noise_slope = marginal.gradient()
        slopes = [*psi_slopes, r_slope, noise_slope]
        functions = [*marginal.features, marginal.residual, marginal.noise]
        surrogate = rest + sum((slope * x).sum() for slope, x in zip(slopes, functions, strict=True))
        slopes = (
            pt.grad(surrogate, position, consider_constant=slopes, disconnected_inputs="ignore") if position else []
        )
        return marginal.log_likelihood + rest, slopes

    def draw(self, rng: Variable, position: list[Variable], data: Data) -> tuple[Variable, dict[Variable, Variable]]:
        """Draw the inner weights given φ, and then the readout given them and y."""
        marginal, _ = self.marginal(position, data)
        rng, state = super().draw(rng, position, data)
        rng, phis = marginal.draw(rng)
        thetas = [part.theta(phi) for part, phi in zip(self.parts, phis, strict=True)]
        thetas = substitute(thetas, self.replacements(position, data))
        return rng, state | {part.value: theta for part, theta in zip(self.parts, thetas, strict=True)}


def _is_zero(x: Variable) -> bool:
    """Whether a variable is known to be 0."""
    return is_given(x) and not np.any(evaluate(x))

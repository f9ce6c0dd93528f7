r"""Data with noise of their own around the last pre-activation Z of a noisy network.

Model, elementwise, with M the mean that the layers below give Z,

    Z = M + N(0, ΔZ),   M = Ã W̃ᵀ + offset,   y | Z, τ ~ N(t Z, σ²/τ),   σ = c s,

where s is one number, and the factors c may differ from datum to datum: known errors of measurement, say. The
precisions τ are 1 for a normal distribution; where they are random, y has another distribution, such as Student's t.
The slopes t are 1 unless a subclass says otherwise.

Conditionals. Precisions that are random are the auxiliary variables of
:mod:`pymc_gibbsnn.networks.likelihoods.conditionally_gaussian`, drawn given the errors y − t Z, with h = τ t y/σ² and
p = τ t²/σ²:

    Z | τ, y ~ N((M/ΔZ + τ t y/σ²)/P, 1/P),   P = 1/ΔZ + τ t²/σ².

A learned variance s² is drawn after Z with the same τ, from the noises √τ (y − t Z)/c ~ N(0, s²).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs

from pymc_gibbsnn._data import finite
from pymc_gibbsnn.networks.forms import NetworkError, evaluate, in_rows
from pymc_gibbsnn.networks.layers import Operator
from pymc_gibbsnn.networks.likelihoods.conditionally_gaussian import ConditionallyGaussian, GaussianTerm
from pymc_gibbsnn.networks.likelihoods.latent_likelihood import Errors, units_of_numbers
from pymc_gibbsnn.networks.likelihoods.likelihood import Likelihood, Parameters

__all__ = ["AroundLatent", "check_factors", "fits", "like_latent"]


@dataclass(frozen=True, eq=False)
class AroundLatent(ConditionallyGaussian):
    """A likelihood of data y around Z with the scale σ = c s; a normal distribution unless a subclass has another.

    Attributes
    ----------
    noise : Variable, ()
        The squared scale s².
    factors : Variable, (n, units), optional
        The factors c, which may have axes of length 1; None if all are 1. What has units of y is c s.
    """

    is_discrete = False
    has_noise = True

    noise: Variable
    factors: Variable | None = None

    @classmethod
    def read_scale(
        cls, sigma: Variable, z: Variable, observed: Variable, parameters: Parameters
    ) -> dict[str, Variable]:
        """Read the fields ``noise`` and ``factors``.

        Parameters
        ----------
        sigma : Variable
            The parameter σ of the random variable.
        z : Variable
            Its location Z.
        observed, parameters
            As in :meth:`Likelihood.read`.
        """
        if z in ancestors([sigma]):
            raise NetworkError(f"sigma of '{observed.name}' must not depend on its location '{z.name}'.")
        noise, factors = parameters.noise_of_data(sigma, observed)
        return {"noise": noise} if factors is None else {"noise": noise, "factors": like_latent(factors, observed)}

    def check(self, x: np.ndarray, layer: Operator) -> None:
        """Refuse data as :meth:`Likelihood.check` does, and factors that do not fit them.

        Parameters
        ----------
        x, layer
            As there.
        """
        super().check(x, layer)
        if self.factors is not None:
            check_factors(self, self.factors, (len(x), layer.shape[0]))

    def draw_term(self, rng: Variable, z: Variable, m: Variable, noise: Variable) -> tuple[Variable, GaussianTerm]:
        """Draw the precisions τ given Z; with them, h = τ t y/σ² and p = τ t²/σ².

        Parameters
        ----------
        rng, z, m, noise
            As in :meth:`LatentLikelihood.draw_latent`.
        """
        rng, y = self.draw_targets(rng, m, noise)
        squared, t = self._squared(z), self._slope(z)
        rng, tau = self.draw_precisions(rng, (y - t * z) ** 2 / squared)
        return rng, GaussianTerm(tau * t * y / squared, tau * t**2 / squared, y, tau)

    def squares(self, z: Variable, term: GaussianTerm) -> Variable:
        """Compute Σ τ (y − t Z)²/c²."""
        squares = term.weights * (term.targets - self._slope(z) * z) ** 2
        return (squares if self.factors is None else squares / pt.cast(self.factors, z.dtype) ** 2).sum()

    def draw_targets(self, rng: Variable, m: Variable, noise: Variable) -> tuple[Variable, Variable]:
        """Draw y with Z integrated out, if only a part of it is known; else return y.

        Parameters
        ----------
        rng : Variable
            The random generator.
        m : Variable, (n, units)
            The mean of Z.
        noise : Variable, ()
            The variance ΔZ of its noise.

        Returns
        -------
        rng, y : Variable
        """
        return rng, self._targets(m)

    def draw_precisions(self, rng: Variable, squares: Variable) -> tuple[Variable, Variable]:
        """Draw the precisions τ given (y − t Z)²/σ², if they are random; else return 1.

        Parameters
        ----------
        rng : Variable
            The random generator.
        squares : Variable, (n, units)
            (y − t Z)²/σ².

        Returns
        -------
        rng, tau : Variable
        """
        return rng, pt.ones_like(squares)

    def log_densities(self, z: Variable) -> Variable:
        """Compute log p(y | Z) for the rows of Z (n, units)."""
        squared = self._squared(z)
        return self.log_density_of_squares((self._targets(z) - self._slope(z) * z) ** 2 / squared, squared)

    def of_scaled_rows(self, ones: Variable) -> AroundLatent:
        """Return the likelihood of y ``ones``, as :meth:`LatentLikelihood.of_scaled_rows` does."""
        return replace(self, value=pt.cast(in_rows(self.value), ones.dtype) * ones)

    @property
    def errors(self) -> Errors | None:
        """Errors with the standard deviation σ."""
        return Errors(self.factors)

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Check that the data are finite numbers."""
        return finite("y", y), None

    @classmethod
    def units(cls, y: np.ndarray, parameters: Mapping[str, Any]) -> tuple[np.ndarray | float, float]:
        """Return the mean of the data and their standard deviation."""
        return units_of_numbers(cls.on_scale_of_latent(y))

    def log_density_of_squares(self, squares: Variable, squared: Variable) -> Variable:
        """Compute log p(y | Z) of each datum from (y − t Z)²/σ² and σ².

        Parameters
        ----------
        squares : Variable, (n, units)
            (y − t Z)²/σ².
        squared : Variable
            σ², which broadcasts to the same shape.

        Returns
        -------
        Variable, (n, units)
        """
        return -0.5 * (squares + pt.log(2 * math.pi * squared))

    @staticmethod
    def label(z: np.ndarray) -> np.ndarray:
        """Return the data without noise, which are Z."""
        return z

    def _targets(self, z: Variable) -> Variable:
        """Return y in the shape of Z."""
        return pt.cast(in_rows(self.value), z.dtype)

    def _slope(self, z: Variable) -> Variable:
        """Return t in the precision of Z: a number, or one for each datum."""
        return pt.constant(np.asarray(1, z.dtype))

    def _squared(self, z: Variable) -> Variable:
        """Return σ² in the precision of Z: a number, or one for each datum."""
        return self.noise if self.factors is None else self.noise * pt.cast(self.factors, z.dtype) ** 2


def like_latent(x: Variable, observed: Variable) -> Variable:
    """Give an array that broadcasts to data the axes (n, units) of Z, or more where the model has more.

    Parameters
    ----------
    x : Variable
        The array, or a number.
    observed : Variable
        The data.
    """
    x = pt.shape_padleft(x, observed.ndim - x.ndim)
    return x[:, None] if observed.ndim == 1 else x


def fits(part: Variable, shape: tuple[int, ...]) -> bool:
    """Whether an array as it is now broadcasts to the shape of Z; only axes that are known to be 1 are repeated."""
    axes = zip(evaluate(part).shape, shape, part.broadcastable, strict=True)
    return all(a == b or is_one for a, b, is_one in axes)


def check_factors(likelihood: Likelihood, factors: Variable, shape: tuple[int, ...]) -> None:
    """Refuse factors of σ that do not broadcast to the shape of Z; those that other variables change pass.

    Raises
    ------
    NetworkError
        Names the variable and the shapes.
    """
    if not list(explicit_graph_inputs([factors])) and not fits(factors, shape):
        own, is_vector = evaluate(factors).shape, likelihood.value.ndim == 1
        raise NetworkError(
            f"sigma of '{likelihood.name}' must be one number, or an array that gives one to each number of the data, "
            f"of shape {evaluate(likelihood.value).shape}, to each row or to each output; found the shape "
            f"{own[:1] if is_vector else own}. What changes later, such as a pm.Data, is not repeated where it has "
            f"length 1."
        )

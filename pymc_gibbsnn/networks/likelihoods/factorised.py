r"""Any likelihood of the last pre-activation Z of a noisy network that is a product over its elements, or its rows.

Model, with M the mean that the layers below give Z,

    Z = M + N(0, ΔZ),   M = Ã W̃ᵀ + offset (n, units),   p(y | Z) = Π_i p(y_i | Z_i),

where p is whatever PyMC knows: counts with mean exp Z, shares with mean sigmoid Z, waiting times, mixtures, truncated
data, or a ``pm.CustomDist``. Its log density is that of PyMC, in which other variables of the model, such as a
dispersion, may stand (:mod:`pymc_gibbsnn.moves.likelihood_parameters`). That a datum depends on one element of Z alone,
or on one row of Z, is seen from the graph (:mod:`pymc_gibbsnn.networks.dependence`).

Transition. Z moves by elliptical slice sampling (:mod:`pymc_gibbsnn.networks.likelihoods.elliptical_slice`).

PyMC refuses parameters outside of their range, such as a mean of counts below 0, once for all data. Here each element
of Z has its own log density, which is −∞ where that element gives such a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.gradient import DisconnectedInputError, NullTypeGradError
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs, toposort
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import All
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn.networks.dependence import NOTHING, dependence
from pymc_gibbsnn.networks.forms import NetworkError, NotElementwiseError, evaluate, in_rows
from pymc_gibbsnn.networks.given import folded, given, is_given, loose
from pymc_gibbsnn.networks.layers import Operator
from pymc_gibbsnn.networks.likelihoods.latent_likelihood import LatentLikelihood
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters
from pymc_gibbsnn.networks.notation import distribution_name
from pymc_gibbsnn.networks.substitution import substitute

__all__ = ["FactorisedLikelihood", "read_factorised", "without_checks"]


@dataclass(frozen=True, eq=False)
class FactorisedLikelihood(LatentLikelihood):
    """A likelihood of data of which each depends on one element of Z, or on one row.

    Attributes
    ----------
    latent : Variable
        A variable that stands for Z in its shape in the model.
    density : Variable
        The log densities of the data, in their shape, as an expression of ``latent`` and of other variables.
    is_by_row : bool
        Whether data depend on rows of Z, not on its elements.
    """

    rv_type: ClassVar[type[RandomVariable]] = RandomVariable
    form = "a distribution of each number given the same number of Z, as pm.Poisson('{name}', pm.math.exp(Z))"
    is_discrete = False

    latent: Variable = field(kw_only=True)
    density: Variable = field(kw_only=True)
    is_by_row: bool = field(kw_only=True)

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Refuse to read: which latent the data depend on is for the whole model to say (:func:`read_factorised`)."""
        raise NotImplementedError

    @property
    def has_working_response(self) -> bool:
        """Whether there is one log density for each number of Z."""
        return not self.is_by_row

    @cached_property
    def has_slopes(self) -> bool:
        """Whether PyTensor knows the derivative of the density."""
        z = pt.zeros_like(self.latent)
        try:
            pt.grad(substitute([self.density], {self.latent: z})[0].sum(), z)
        except (NotImplementedError, NullTypeGradError, DisconnectedInputError):
            return False
        return True

    @cached_property
    def ignores_shifts(self) -> bool:
        """Whether a number that is added to a row of Z changes no density, as below a softmax: seen at a random Z."""
        units = self.latent.type.shape[1:]
        if not self.is_by_row or None in units or set(explicit_graph_inputs([self.density])) - {self.latent}:
            return False
        rng, n = np.random.default_rng(0), len(evaluate(self.value))
        z, shifts = rng.normal(size=(n, math.prod(units))), rng.normal(size=(n, 1))
        here, there = (evaluate(self._rows(pt.constant(x))) for x in (z, z + shifts))
        return bool(np.allclose(here, there))

    def row_shapes(self, layer: Operator) -> list[tuple[int, ...]]:
        """Return the shapes that a row of y may have: any, where it depends on a whole row of Z."""
        return [evaluate(self.value).shape[1:]] if self.is_by_row else super().row_shapes(layer)

    def check(self, x: np.ndarray, layer: Operator) -> None:
        """Refuse data as :meth:`Likelihood.check` does, and data that have no density wherever Z is.

        Parameters
        ----------
        x, layer
            As there.
        """
        super().check(x, layer)
        if set(explicit_graph_inputs([self.density])) - {self.latent}:
            return  # other variables of the model, whose values are not known here
        n = len(x)
        with np.errstate(all="ignore"):
            tried = [evaluate(self._rows(pt.constant(np.full((n, layer.shape[0]), z)))) for z in np.linspace(-5, 5, 21)]
        impossible = np.all([np.isneginf(density) for density in tried], axis=0)
        if impossible.any():
            y = evaluate(self.value)
            found = np.unique(y[impossible] if y.shape == impossible.shape else y[impossible.reshape(n, -1).any(1)])
            raise NetworkError(
                f"the data of '{self.name}' must be possible for its distribution; found {found[:5]}, of density 0."
            )

    def _rows(self, z: Variable) -> Variable:
        """Compute the log densities of all data, in their shape, given Z (n, units)."""
        shape = self.latent.type.shape[1:]
        if len(shape) != 1:
            z = z.reshape((z.shape[0], *shape)) if shape else z[:, 0]
        [density] = substitute([self.density], {self.latent: z})
        return density

    def log_densities(self, z: Variable) -> Variable:
        """Compute log p(y | Z) for the elements of Z (n, units), or for its rows (n, 1)."""
        density = pt.cast(self._rows(z), z.dtype)
        density = pt.switch(pt.isnan(density), -np.inf, density)
        density = in_rows(density)
        return density.sum(axis=1, keepdims=True) if self.is_by_row else density


def read_factorised(
    model: pm.Model, observed: Variable, z: Variable, shapes: Mapping[str, tuple[int, ...]]
) -> FactorisedLikelihood:
    """Read a likelihood of data whose distribution depends on a latent Z, element by element or row by row.

    Parameters
    ----------
    model : pm.Model
        The model.
    observed : Variable
        The observed variable.
    z : Variable
        The random variable Z.
    shapes : mapping of str to tuple of int
        The shapes of the model's value variables, by name.

    Raises
    ------
    NetworkError
        If a datum depends on several rows of Z, or may do so, or a parameter is out of its range whatever Z is; the
        message names the operation that mixes rows, or what PyMC says of the parameter.
    """
    value, old = model.rvs_to_values[observed], model.rvs_to_values[z]
    [density] = model.logp(vars=[observed], sum=False, jacobian=False)
    density = without_checks(density, [old], observed.name)
    if old not in ancestors([density]):
        raise NetworkError(f"The density of '{observed.name}' does not depend on '{z.name}'.")
    n, *row = shapes[old.name]
    latent = loose(old.type).clone(shape=(None, *row))(name=z.name)
    new = {v: given(v.data) for v in ancestors([density]) if isinstance(v, Constant) and _is_data(v, n)}
    data = new[value] = folded(value)
    [density] = substitute([density], new | {old: latent})
    kind = f"'{observed.name}', which is {distribution_name(observed.owner.op)},"
    values = {v: np.zeros(shapes[v.name], v.dtype) for v in explicit_graph_inputs([density]) if v is not latent}
    values[latent] = np.zeros((n, *row), latent.dtype)
    places = np.arange(n * int(np.prod(row))).reshape(n, *row)
    rows = np.broadcast_to(np.arange(n).reshape(n, *[1] * len(row)), (n, *row))
    try:
        [found] = dependence([density], {latent: places}, values)
        is_by_row = found.shape[:1] != (n,) or found.size != places.size
        is_by_row = is_by_row or np.any((found.ravel() != places.ravel()) & (found.ravel() != NOTHING))
    except NotElementwiseError:
        is_by_row = True
    if is_by_row:
        try:
            [found] = dependence([density], {latent: rows}, values)
        except NotElementwiseError as error:
            raise NetworkError(
                f"{kind} must depend, in each row, on the same row of '{z.name}' alone; its density holds {error}, "
                f"which takes rows together."
            ) from None
        expected = np.arange(n).reshape(n, *[1] * (found.ndim - 1))
        if found.shape[:1] != (n,) or np.any((found != expected) & (found != NOTHING)):
            raise NetworkError(
                f"{kind} must depend, in each row, on the same row of '{z.name}', which has {n} rows; rows of its "
                f"density, which has shape {found.shape}, depend on others."
            )
    return FactorisedLikelihood(observed.name, data, latent=latent, density=density, is_by_row=bool(is_by_row))


def _is_data(x: Constant, n: int) -> bool:
    """Whether a constant is an array with a row for each of n rows."""
    return getattr(x, "ndim", 0) > 0 and x.data.shape[0] == n > 1


def without_checks(density: Variable, moving: Collection[Variable], name: str) -> Variable:
    """Take PyMC's checks of parameters out of a log density, which is −∞ for elements that would not pass them.

    Parameters
    ----------
    density : Variable
        The log density.
    moving : collection of Variable
        The variables on which checked parameters depend that are to have such a density.
    name : str
        The name of the observed variable, for error messages.

    Raises
    ------
    NetworkError
        If known numbers do not pass a check; others are left to PyMC.
    """
    new: dict[Variable, Variable] = {}
    for node in toposort([density]):
        if not isinstance(node.op, CheckParameterValue):
            continue
        checked, *conditions = node.inputs
        parts = [part for condition in conditions for part in _parts(condition)]
        holding = [part for part in parts if any(v in moving for v in ancestors([part]))]
        if any(part not in holding and is_given(part) and not evaluate(part).all() for part in parts):
            raise NetworkError(f"A parameter of '{name}' is out of its range, which is {node.op.msg}.")
        [result, *holding] = substitute([checked, *holding], new)
        if holding:
            of_event = [c.all(axis=tuple(range(result.ndim, c.ndim))) if c.ndim > result.ndim else c for c in holding]
            result = pt.switch(reduce(pt.and_, of_event), result, -np.inf)
        new[node.outputs[0]] = result
    return substitute([density], new)[0]


def _parts(condition: Variable) -> list[Variable]:
    """List the arrays all of whose elements must be true if a condition is."""
    node = condition.owner
    if node is not None and isinstance(node.op, All | MakeVector | Join | ScalarFromTensor | TensorFromScalar):
        return [part for x in node.inputs for part in _parts(x) if not isinstance(x, Constant)]
    if node is not None and isinstance(node.op, DimShuffle) and node.inputs[0].ndim == 0:
        return _parts(node.inputs[0])
    return [condition]

"""The reader of the linear readout of a network in a PyMC model: the weights and biases in which the mean is linear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import NormalRV

from pymc_gibbsnn._compat import observed_variables
from pymc_gibbsnn.networks.forms import is_elemwise, match_product, spans_columns, undimshuffle
from pymc_gibbsnn.networks.given import sizes
from pymc_gibbsnn.networks.layers.layout import broadcast_as, shape_of, written_as
from pymc_gibbsnn.networks.network import NetworkError, evaluate
from pymc_gibbsnn.networks.notation import distribution_name, show
from pymc_gibbsnn.networks.substitution import canonical
from pymc_gibbsnn.targets.whitening import gaussian_prior, log_density_of_others

__all__ = ["Part", "read_readout"]


@dataclass(frozen=True, eq=False)
class Part:
    """One variable of the readout: weights θ with their features, or a bias with a column of ones as its feature.

    Attributes
    ----------
    value : Variable
        Its value variable.
    features : Variable, (n, h)
        The features that it multiplies.
    inputs : int
        The number h of its features.
    layout : str
        How the user wrote it, as in :mod:`pymc_gibbsnn.networks.layers.layout`; a bias, (k,) or (), is a row.
    mean, scale : Variable
        Mean and standard deviation of its prior, in a shape that broadcasts to that of θ.
    shape : tuple of int
        The shape of θ.
    """

    value: Variable
    features: Variable
    inputs: int
    layout: str
    mean: Variable
    scale: Variable
    shape: tuple[int, ...]

    def matrix(self, x: Variable) -> Variable:
        """Turn an array that broadcasts to the shape of θ into one that broadcasts to (h, k)."""
        return broadcast_as(self.layout, x).T

    def theta(self, phi: Variable) -> Variable:
        """Compute θ from φ_out (h, k), in the shape that the user gave it."""
        matrix = self.matrix(self.mean) + self.matrix(self.scale) * phi
        return written_as(self.layout, matrix.T).reshape(sizes(self.shape))


def read_readout(model: pm.Model, rvs: list[Variable]) -> tuple[Variable, list[Part], Variable, Variable]:
    """Find the one likelihood with a linear readout.

    Returns
    -------
    y : Variable
        The observed random variable.
    parts : list of Part
        The variables of the readout.
    residual : Variable, (n, k)
        y less its offset.
    noise : Variable, ()
        σ².

    Raises
    ------
    NetworkError
        If there is none, or more than one.
    """
    readouts, refusals, shapes = [], [], model.eval_rv_shapes()
    for observed in observed_variables(model):
        try:
            readouts.append((observed, *_Reader(model, rvs, observed, shapes).read()))
        except NetworkError as refusal:
            refusals.append(str(refusal))
    if len(readouts) == 1:
        return readouts[0]
    if readouts:
        names = ", ".join(f"'{observed.name}'" for observed, *_ in readouts)
        raise NetworkError(
            f"The likelihoods {names} each have a linear readout; one can be integrated out: name the rest "
            f"of the variables in vars= of another step."
        )
    reason = " ".join(refusals) or "The model observes nothing."
    raise NetworkError(
        f"No linear readout to integrate out. {reason} Known form: y ~ Normal(features @ W + b, sigma), "
        f"W and b ~ Normal; otherwise use reparametrise=False."
    )


class _Reader:
    """Reads the readout of one observed variable.

    Parameters
    ----------
    model : pm.Model
        The model.
    rvs : list of Variable
        Random variables that are to be moved, among which the readout may be.
    observed : Variable
        The observed random variable.
    shapes : dict of str to tuple of int
        Shapes of the variables of the model.
    """

    def __init__(self, model: pm.Model, rvs: list[Variable], observed: Variable, shapes: dict[str, tuple[int, ...]]):
        self.model, self.observed, self.members = model, observed, rvs
        self.candidates = {model.rvs_to_values[rv]: rv for rv in rvs if isinstance(rv.owner.op, NormalRV)}
        self.shapes = {v: shapes[v.name] for v in self.candidates}
        # Of each term that belongs to the readout: its value variable, features, layout, and the term itself
        self.found: list[tuple[Variable, Variable, str, Variable]] = []
        self.offsets: list[Variable] = []

    def read(self) -> tuple[list[Part], Variable, Variable]:
        """Return the readout, y less its offset (n, k), and σ²; raise NetworkError if there is no linear readout."""
        name, op = self.observed.name, self.observed.owner.op
        if not isinstance(op, NormalRV):
            raise NetworkError(f"The likelihood '{name}' must be pm.Normal; found {distribution_name(op)}.")
        mean, sigma = canonical(self.model.replace_rvs_by_values(op.dist_params(self.observed.owner)))
        if not all(sigma.type.broadcastable):
            raise NetworkError(f"sigma of '{name}' has shape {sigma.type.shape}; the noise must be one number.")
        y = pt.as_tensor(self.model.rvs_to_values[self.observed])
        if y.ndim not in (1, 2):
            raise NetworkError(f"'{name}' has {y.ndim} dimensions; a network's output has shape (n,) or (n, k).")
        self.outputs = 1 if y.ndim == 1 else int(evaluate(y).shape[1])
        self._collect(mean, pt.constant(np.asarray(1, pytensor.config.floatX)))
        reasons = self._drop_what_serves_elsewhere(sigma)
        if all(layout == "bias" for _, _, layout, _ in self.found):
            raise NetworkError(
                f"The mean of '{name}' is not linear in weights with a Normal prior: {show(mean)}. {' '.join(reasons)}"
            )
        residual = self._as_matrix(pt.cast(y, pytensor.config.floatX))
        for offset in self.offsets:
            residual = residual - self._as_matrix(offset)
        noise = pt.cast(sigma.dimshuffle(), pytensor.config.floatX) ** 2
        return [self._part(*part[:3]) for part in self.found], residual, noise

    def _collect(self, term: Variable, factor: Variable) -> None:
        """Sort the terms of a sum, multiplied by a factor, into those of the readout and those of the offset."""
        inputs = term.owner.inputs if term.owner is not None else []
        if is_elemwise(term, ps.Add):
            for x in inputs:
                self._collect(x, factor)
            return
        if is_elemwise(term, ps.Sub):
            self._collect(inputs[0], factor)
            self._collect(inputs[1], -factor)
            return
        if is_elemwise(term, ps.Neg):
            self._collect(inputs[0], -factor)
            return
        if is_elemwise(term, ps.Mul):
            rest = [x for x in inputs if not all(x.type.broadcastable)]
            rest = rest or [x for x in inputs if undimshuffle(x) in self.candidates]
            if len(rest) == 1 and len(inputs) > 1:
                for x in inputs:
                    factor = factor * x.dimshuffle() if x is not rest[0] else factor
                self._collect(rest[0], factor)
                return
        if (
            is_elemwise(term, ps.TrueDiv)
            and all(inputs[1].type.broadcastable)
            and not all(inputs[0].type.broadcastable)
        ):
            self._collect(inputs[0], factor / inputs[1].dimshuffle())
            return
        value, features, layout = self._readout(term)
        if value is not None:
            self.found.append((value, factor * features, layout, factor * term))
        elif isinstance(getattr(term.owner, "op", None), DimShuffle) and inputs[0].type.broadcastable[1:] == (True,):
            self._collect(inputs[0], factor)  # the term is a matrix of one column, made a vector
        else:
            self.offsets.append(factor * term)

    def _readout(self, term: Variable) -> tuple[Variable | None, Variable | None, str]:
        """Return θ, features and layout of a term that belongs to the readout; (None, None, "") for any other."""
        product = match_product(term)
        if product is not None:
            source, value, layout = product
            if value in self.candidates and source.ndim == 2 and value.ndim in (1, 2):
                outputs, _ = shape_of(layout, self.shapes[value])
                if outputs == self.outputs:
                    return value, source, layout
        value = undimshuffle(term)
        if value in self.candidates and spans_columns(term) and np.prod(self.shapes[value]) == self.outputs:
            n = self.model.rvs_to_values[self.observed].shape[0]
            return value, pt.ones((n, 1), dtype=pytensor.config.floatX), "bias"
        return None, None, ""

    def _drop_what_serves_elsewhere(self, sigma: Variable) -> list[str]:
        """Count as offset each variable that also enters the model in another way; say in words which these are."""
        elsewhere = [log_density_of_others(self.model, [*self.members, self.observed]), sigma]
        for rv in self.members:
            elsewhere += self.model.replace_rvs_by_values(rv.owner.op.dist_params(rv.owner))
        reasons = []
        while True:
            values = [value for value, *_ in self.found]
            used = set(ancestors([*elsewhere, *self.offsets, *(features for _, features, *_ in self.found)]))
            wrong = [part for part in self.found if part[0] in used or values.count(part[0]) > 1]
            if not wrong:
                return reasons
            self.found = [part for part in self.found if part not in wrong]
            self.offsets += [term for *_, term in wrong]
            reasons += [f"'{value.name}' enters the model in another way too." for value, *_ in wrong]

    def _as_matrix(self, x: Variable) -> Variable:
        """Turn an expression that broadcasts to the shape of y into one that broadcasts to (n, k)."""
        ndim = self.model.rvs_to_values[self.observed].ndim
        if ndim == 2 or x.ndim == 2:
            return pt.shape_padleft(x, 2 - x.ndim)
        return pt.shape_padleft(x, 1 - x.ndim)[:, None]

    def _part(self, value: Variable, features: Variable, layout: str) -> Part:
        """Make the part of a variable with its prior, whose scale must be the same for all outputs."""
        rv = self.candidates[value]
        mean, scale = gaussian_prior(self.model, rv)
        shape = self.shapes[value]
        inputs = 1
        if layout == "bias":
            layout = "columns"
        else:
            _, inputs = shape_of(layout, shape)
        if self.outputs > 1 and not broadcast_as(layout, scale).type.broadcastable[0]:
            raise NetworkError(f"The prior scale of '{rv.name}' differs between outputs; the readout has one for all.")
        return Part(value, pt.cast(features, pytensor.config.floatX), inputs, layout, mean, scale, shape)

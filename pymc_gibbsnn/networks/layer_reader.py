"""The reader of one layer of a network in the graph of a PyMC model, with its weights and bias, of whatever kind.

A network is read layer by layer, from the mean of one random variable to the next, by
:class:`pymc_gibbsnn.networks.reader.Reader`.
"""

from __future__ import annotations

import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape

from pymc_gibbsnn.networks import refusals
from pymc_gibbsnn.networks.forms import (
    NetworkError,
    evaluate,
    split_number,
    summands,
    terms,
    undimshuffle,
)
from pymc_gibbsnn.networks.given import real
from pymc_gibbsnn.networks.input_reader import variable_inputs
from pymc_gibbsnn.networks.layers import KINDS, Operator
from pymc_gibbsnn.networks.layers.operator import Linear
from pymc_gibbsnn.networks.layers.weighted import Weighted, times
from pymc_gibbsnn.networks.learned_variances import VarianceReader
from pymc_gibbsnn.networks.substitution import canonical, substitute

__all__ = ["LayerReader", "match_linear"]


def match_linear(term: Variable) -> Linear | None:
    """Recognise a term of a mean as a layer of some kind; return None for another term."""
    return next((linear for kind in reversed(KINDS.values()) if (linear := kind.match(term))), None)


class LayerReader:
    """Reads layers.

    Parameters
    ----------
    model : pm.Model
        The model.
    shapes : dict of str to tuple of int
        The shapes of its value variables, by name.
    wanted : set of Variable, optional
        If given, only these value variables may be biases of a layer.

    Attributes
    ----------
    taken : set of Variable
        Random variables that are no bias of this layer, because they belong to another network.
    parents : dict of Variable to set of Variable
        The random variables on which each random variable of the model depends directly.
    inputs : dict of Variable to VariableInputs
        The inputs of the model that are variables, by what enters a network.
    variances : VarianceReader
        The reader of variances of noise and priors.
    """

    def __init__(self, model: pm.Model, shapes: dict[str, tuple[int, ...]], wanted: set[Variable] | None = None):
        self.model = model
        self.shapes = shapes
        self.wanted = wanted
        self.taken: set[Variable] = set()
        self.inputs = {found.x: found for found in variable_inputs(model)}
        self.parents = {rv: self._parents(rv.owner.inputs) for rv in model.basic_RVs}
        self.variances = VarianceReader(model, self.parents, shapes)
        self._canonical: dict[Variable, tuple[Variable, dict[Variable, Variable]]] = {}

    def _affine(
        self, mean: Variable, leaves: dict[Variable, Variable], z: Variable, number: int | None = None
    ) -> tuple[Operator, Variable | None, Variable, list]:
        """Read an affine function of the input of a layer from the mean of Z, or from a part of it.

        Parameters
        ----------
        mean : Variable
            The mean, in canonical form.
        leaves : dict of Variable to Variable
            The leaves that stand for random variables in it, with these variables.
        z : Variable
            The random variable of which it is the mean, for error messages.
        number : int, optional
            Which of several products is the layer.

        Returns
        -------
        operator : Operator
            The linear map with its weights and bias.
        offset : Variable or None
            The sum of all other terms.
        source : Variable
            The input of the layer, in whatever shape; one of ``leaves`` if it is a random variable.
        members : list of Variable
            The random variables of the weights and, if there is one, of the bias.
        """
        products = self._products(mean, leaves)
        if not products:
            observed = z in self.model.observed_RVs
            raise NetworkError(refusals.no_product(mean, z.name, observed, self._centre(mean, leaves, z)))
        if len(products) > 1 and number is None:
            raise NetworkError(refusals.two_products(products, z.name))
        others = list(terms(mean))
        linear = match_linear(others.pop(others.index(products[number or 0])))
        source = _reshaped(linear.source, leaves)
        if linear.weights is None:
            operator, members = linear.kind.read(linear, z.name), []
        else:
            weights = self._weights(linear.weights, leaves, z)
            if len(products) > 1 and not self._is_wanted(weights):
                raise NetworkError(f"'{weights.name}' is not among vars=.")
            bias, bias_factor = self._take_bias(others, linear, weights, leaves, z)
            members = [weights] if bias is None else [weights, bias]
            operator = self._weighted(linear, weights, bias, bias_factor, z)
        of_source = {leaves.get(source), *self._leaves_of([source], leaves)}
        offset = self._offset(others, leaves, z, {*members, *of_source}, operator)
        return operator, offset, source, members

    def _products(self, mean: Variable, leaves: dict[Variable, Variable]) -> list[Variable]:
        """List the terms of a mean that are linear in an input; a product of numbers with numbers is an offset."""
        return [term for term in terms(mean) if match_linear(term) and self._leaves_of([term], leaves)]

    def _weighted(
        self, linear: Linear, weights: Variable, bias: Variable | None, bias_factor: float, z: Variable
    ) -> Weighted:
        """Make the operator of a layer with weights.

        Parameters
        ----------
        linear : Linear
            The term of the layer.
        weights, bias : Variable
            The random variables of its weights and of its bias, if there is one.
        bias_factor : float
            The number by which the model multiplies the bias.
        z : Variable
            The random variable in whose mean it stands.
        """
        for rv, number in ((weights, linear.factor), (bias, bias_factor)):
            if number == 0 or not math.isfinite(number):
                raise NetworkError(refusals.impossible_factor(f"'{rv.name}'", number, z.name))
        sigma, bias_sigma = self.variances.sigmas([weights, bias])
        return linear.kind.read(
            linear,
            z.name,
            shape=self._shape(weights),
            sigma=times(sigma, abs(linear.factor)),
            bias_sigma=None if bias is None else times(bias_sigma, abs(bias_factor)),
            weights=self.model.rvs_to_values[weights],
            bias=None if bias is None else self.model.rvs_to_values[bias],
            factor=linear.factor,
            bias_factor=bias_factor,
        )

    # How the parts of a layer are read

    def _normal(self, rv: Variable) -> tuple[Variable, Variable]:
        """Return mean and standard deviation of a variable, which must be Normal and without a transform."""
        if not isinstance(rv.owner.op, NormalRV):
            raise NetworkError(refusals.no_normal(rv.name, rv.owner.op, rv in self.model.observed_RVs))
        if rv in self.model.free_RVs and self.model.rvs_to_transforms.get(rv) is not None:
            raise NetworkError(f"'{rv.name}' has a transform, but the variables of a network are plain: leave it out.")
        return tuple(rv.owner.op.dist_params(rv.owner))

    def _weights(self, term: Variable, leaves: dict[Variable, Variable], z: Variable) -> Variable:
        """Return the random variable that a term is, which must have a Normal prior of mean 0."""
        rv = leaves.get(term)
        if rv not in self.model.free_RVs:
            raise NetworkError(refusals.no_weights(term, z.name))
        mean, _ = self._normal(rv)
        if self._parents([mean]) or np.any(evaluate(mean) != 0):
            raise NetworkError(refusals.prior_mean(rv.name, mean))
        return rv

    def _take_bias(
        self, others: list[Variable], linear: Linear, weights: Variable, leaves: dict[Variable, Variable], z: Variable
    ) -> tuple[Variable | None, float]:
        """Take the bias of a layer, if there is one, out of a list of terms; return it and the number before it.

        Parameters
        ----------
        others : list of Variable
            The terms of the mean of Z beside that of the layer, of which the bias is taken out.
        linear : Linear
            The term of the layer.
        weights : Variable
            The random variable of its weights.
        leaves : dict of Variable to Variable
            The leaves that stand for random variables in the terms, with these variables.
        z : Variable
            The random variable of which they are terms of the mean.
        """
        shapes = linear.kind.bias_shapes(linear.how, self._shape(weights))
        for i, other in enumerate(others):
            factor, term = split_number(other)
            bias = self._bias(term, leaves, shapes, z) if linear.kind.is_along_units(term) else None
            if bias is not None:
                others.pop(i)
                return bias, factor
        return None, 1.0

    def _bias(
        self, term: Variable, leaves: dict[Variable, Variable], shapes: list[tuple[int, ...]], z: Variable
    ) -> Variable | None:
        """Return the bias that a term is: one number for each unit, with a Normal prior of mean 0 and no other use.

        Parameters
        ----------
        term : Variable
            A term of the mean of Z, in canonical form, that is the same but for one axis, that of the units.
        leaves : dict of Variable to Variable
            The leaves that stand for random variables in it, with these variables.
        shapes : list of tuple of int
            The shapes that a bias may have.
        z : Variable
            The random variable of which it is a term of the mean.

        Returns
        -------
        Variable or None
            The random variable; None if the term is no bias.
        """
        rv = leaves.get(undimshuffle(term))
        if rv not in self.model.free_RVs or rv in self.taken:
            return None
        if tuple(self._shape(rv)) not in shapes or self.variances.users(rv) != [z.name]:
            return None
        if not self._is_wanted(rv):
            return None
        try:
            return self._weights(undimshuffle(term), leaves, z)
        except NetworkError:
            return None

    def _is_wanted(self, rv: Variable) -> bool:
        """Whether a variable is among those to which the networks are restricted."""
        return self.wanted is None or self.model.rvs_to_values[rv] in self.wanted

    def _offset(
        self,
        others: list[Variable],
        leaves: dict[Variable, Variable],
        z: Variable,
        members: set[Variable],
        operator: Operator | None = None,
    ) -> Variable | None:
        """Add up the other terms of the mean of Z, in value variables, as a matrix that broadcasts to (n, d_out).

        Parameters
        ----------
        others : list of Variable
            The terms.
        leaves : dict of Variable to Variable
            The leaves that stand for random variables in them, with these variables.
        z : Variable
            The random variable of which they are terms of the mean.
        members : set of Variable
            The random variables of the layer, which may not enter them.
        operator : Operator, optional
            The layer; it is needed where Z are images.

        Returns
        -------
        Variable or None
            None if there are no other terms.
        """
        if not others:
            return None
        for rv in self._leaves_of(others, leaves):
            if rv in members:
                raise NetworkError(f"'{rv.name}' enters the mean of '{z.name}' twice, where each part may enter once.")
        others = [pt.cast(term, pytensor.config.floatX) for term in others]  # a sum of small integers could overflow
        offset = pt.add(*others) if len(others) > 1 else others[0]
        [offset] = substitute([offset], leaves)
        [offset] = self.model.replace_rvs_by_values([offset])
        if offset.ndim == z.ndim == 1:
            offset = offset[:, None]
        if operator is not None and z.ndim == 4:
            offset = operator.rows(pt.shape_padleft(offset, 4 - offset.ndim) + np.zeros((1, *operator.row_shapes[0])))
        return real(pt.shape_padleft(offset, 2 - offset.ndim))

    def _centre(self, mean: Variable, leaves: dict[Variable, Variable], z: Variable) -> str | None:
        """Find the latent of a layer around which data z lie, by its name, for an error message."""
        for rv in self._leaves_of([mean], leaves) if z in self.model.observed_RVs else ():
            if isinstance(rv.owner.op, NormalRV):
                inner, _ = self._simplified(self._normal(rv)[0])
                if any(match_linear(term) for term in terms(inner)):
                    return rv.name
        return None

    # How the graph is followed

    def _parents(self, expressions: list[Variable]) -> set[Variable]:
        """Find the random variables on which expressions depend directly, not through other random variables.

        Inputs with missing entries, which PyMC puts together of two variables, count as one.
        """
        rvs = {*self.model.basic_RVs, *self.inputs}
        return {node for node in ancestors(expressions, blockers=rvs) if node in rvs}

    def _leaves_of(self, expressions: list[Variable], leaves: dict[Variable, Variable]) -> list[Variable]:
        """List the random variables for which leaves in these expressions stand."""
        return [leaves[node] for node in ancestors(expressions) if node in leaves]

    def _simplified(self, mean: Variable) -> tuple[Variable, dict[Variable, Variable]]:
        """Return the canonical form of a mean, with its random variables replaced by leaves, and these leaves.

        Of a mean that holds the product of a layer, this is a sum. It is computed once, for all that ask.
        """
        if mean in self._canonical:
            return self._canonical[mean]
        leaves = {parent: parent.type(name=parent.name) for parent in self._parents([mean])}
        [form] = canonical([mean], leaves)
        parts = summands(form)
        if len(parts) > 1 and any(match_linear(part) for part in parts):
            form = pt.add(*parts)
        self._canonical[mean] = form, {leaf: parent for parent, leaf in leaves.items()}
        return self._canonical[mean]

    def _shape(self, rv: Variable) -> tuple[int, ...]:
        """Return the shape of a random variable of the model."""
        return self.shapes[self.model.rvs_to_values[rv].name]


def _reshaped(source: Variable, leaves: dict[Variable, Variable]) -> Variable:
    """Return the leaf of which the input of a layer is a reshaped copy, such as flattened images; else the input."""
    leaf = source
    while leaf.owner is not None and _keeps_order(leaf.owner.op):
        leaf = leaf.owner.inputs[0]
    return leaf if leaf in leaves else source


def _keeps_order(op: Op) -> bool:
    """Whether an operation changes nothing but the shape of an array, so that its numbers stay in their order."""
    if isinstance(op, DimShuffle):
        kept = [axis for axis in op.new_order if axis != "x"]
        return kept == sorted(kept)
    return isinstance(op, Reshape | JoinDims | SplitDims)

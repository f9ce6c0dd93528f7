r"""Reads a classical network off a plain PyMC model: dense layers and activations inside one likelihood.

    f = W̃_L σ(··· σ(W̃_1 x) ···),     y ~ Categorical(softmax f), Bernoulli(sigmoid f) or Normal(f, sqrt(Δ))

W̃ = [W, b], all with Normal priors of mean 0. The inputs and targets are data, or minibatches of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.variational.minibatch_rv import MinibatchRandomVariable, get_scaling
from pytensor.graph.basic import Variable, equal_computations
from pytensor.graph.replace import clone_replace
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, NormalRV
from pytensor.tensor.special import Softmax

from pymc_gibbsnn._arguments import check_finite
from pymc_gibbsnn._compat import observed_variables
from pymc_gibbsnn.networks.forms import NotElementwiseError, is_elemwise, match_product, rebuild, show, terms
from pymc_gibbsnn.networks.layers.dense import Dense
from pymc_gibbsnn.networks.learned_scales import folded
from pymc_gibbsnn.networks.minibatch import Batches, read_minibatches
from pymc_gibbsnn.networks.network import NetworkError, evaluate
from pymc_gibbsnn.networks.reader import Reader

__all__ = ["ClassicalNetwork", "Elementwise", "read_classical"]

KNOWN_FORMS = (
    "Known forms: y ~ Categorical(logit_p=f), Bernoulli(logit_p=f) or Normal(f, sigma) with f = A @ W.T + b, A data or "
    "an elementwise activation of such a term, and W, b ~ Normal(0, scale)."
)


@dataclass(frozen=True, eq=False)
class Elementwise:
    """An activation: the expression ``output`` of a matrix ``z``, and the same as an operation on numbers."""

    z: Variable
    output: Variable
    scalar_op: ps.ScalarOp

    @property
    def name(self) -> str | None:
        """The operation, if it is a single one: "sigmoid", "tanh", ..."""
        node = self.output.owner
        single = node is not None and node.inputs == [self.z] and isinstance(node.op, Elemwise)
        return type(node.op.scalar_op).__name__.lower() if single else None


@dataclass(frozen=True, eq=False)
class ClassicalNetwork:
    """A classical network in the value variables of a PyMC model.

    Attributes
    ----------
    name : str
        Name of the observed variable.
    inputs : Variable
        Data or a batch, (n, d).
    targets : Variable
        Integer labels (n,); for a normal likelihood in the shape of the output, (n, k) or (n,).
    layers : tuple of Dense
    activations : tuple of Elementwise
        One fewer.
    likelihood : {"categorical", "bernoulli", "normal"}
    scale : Variable
        Variance Δ of a normal likelihood, 1 for the others.
    weight : Variable
        Power of the likelihood: 1, or what ``total_size`` makes of it.
    batches : Batches, optional
        The minibatches, whose row numbers inputs, targets and weight may hold as a free variable.
    """

    name: str
    inputs: Variable
    targets: Variable
    layers: tuple[Dense, ...]
    activations: tuple[Elementwise, ...]
    likelihood: str
    scale: Variable
    weight: Variable
    batches: Batches | None = None

    @property
    def variables(self) -> list[Variable]:
        """Value variables of weights and biases."""
        return [value for layer in self.layers for value in layer.variables]

    def on(self, rows: Variable | None) -> tuple[Variable, ...]:
        """Inputs, targets, scale and weight for the rows of a batch; None without minibatches."""
        parts = [self.inputs, self.targets, self.scale, self.weight]
        if self.batches is None:
            return tuple(parts)
        return tuple(clone_replace(parts, {self.batches.index: rows}, rebuild_strict=False))

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """All inputs and targets as they are now."""
        parts = self.on(None if self.batches is None else pt.arange(self.batches.rows))[:2]
        return tuple(evaluate(part) for part in parts)

    def check_data(self) -> None:
        """Refuse numbers that are not finite, labels that are no integers or out of range, and shapes that do not fit.

        Raises
        ------
        NetworkError
            Names the variable and what was found in it.
        """
        if self.batches is not None:
            self.batches.check()
        labels = self.targets
        while is_elemwise(labels, ps.Cast):  # PyMC casts labels, silently
            labels = labels.owner.inputs[0]
        if self.likelihood != "normal" and labels.dtype.startswith("float"):
            raise NetworkError(f"The labels of '{self.name}' are of dtype {labels.dtype}: give integers.")
        x, y = self.data()
        for name, values in (("the input data", x), (f"the data of '{self.name}'", y)):
            check_finite(name, values, NetworkError)
        width = self.layers[-1].shape[0]
        allowed = [()] if self.likelihood == "categorical" else self.layers[-1].row_shapes
        if len(x) != len(y) or y.shape[1:] not in allowed:
            raise NetworkError(
                f"The data of '{self.name}' have shape {y.shape}, which do not fit an output of {width} units "
                f"from inputs of shape {x.shape}."
            )
        classes = {"categorical": width, "bernoulli": 2}.get(self.likelihood)
        if classes and ((y < 0) | (y >= classes)).any():
            wrong = np.unique(y[(y < 0) | (y >= classes)])[:5]
            raise NetworkError(f"'{self.name}' must hold labels from 0 to {classes - 1}; found {wrong}.")


def read_classical(model: pm.Model) -> ClassicalNetwork:
    """Read the classical network of a PyMC model.

    Parameters
    ----------
    model : pm.Model

    Returns
    -------
    ClassicalNetwork

    Raises
    ------
    NetworkError
        If there is no classical network in the model, or more than one, or one with a part that is not known; the
        message names the variable, what was found, and the forms that are known.
    ValueError
        If inputs and targets are minibatches of different rows.
    """
    networks, refusals = [], []
    for rv in observed_variables(model):
        try:
            networks.append(_ClassicalReader(model).read(rv))
        except NetworkError as refusal:
            refusals.append(str(refusal))
    if not networks:
        reason = " ".join(refusals) or "The model observes nothing."
        raise NetworkError(f"No classical network found. {reason} {KNOWN_FORMS}")
    if len(networks) > 1:
        raise NetworkError(f"The model holds several networks, with outputs {[network.name for network in networks]}.")
    return networks[0]


class _ClassicalReader(Reader):
    """Reads one network downwards from its likelihood."""

    def read(self, observed: Variable) -> ClassicalNetwork:
        """Read the network that ends in this variable."""
        node = observed.owner
        wrapped = isinstance(node.op, MinibatchRandomVariable)
        base = node.inputs[0].owner if wrapped else node
        likelihood, f, sigma = self._likelihood(base, observed.name)
        value = self.model.rvs_to_values[observed]
        weight = get_scaling(node.inputs[1:], value.shape) if wrapped else pt.constant(1.0, dtype=value.dtype)
        weight = pt.cast(weight, pytensor.config.floatX)
        one = pt.constant(np.asarray(1.0, pytensor.config.floatX))
        scale = one if sigma is None else self.scales.noise(sigma, observed)
        part, leaves = self._simplified(f)
        [part, value, weight], batches = read_minibatches([part, value, weight])

        layers, activations, members = [], [], []
        while True:
            layer, offset, source, found = self._affine(part, leaves, observed)
            if offset is not None:
                raise NetworkError(f"A layer of '{observed.name}' holds more than a product and a bias: {show(part)}.")
            layers.append(layer)
            members += found
            if not self._leaves_of([source], leaves):
                break
            activation, part = self._split(source, leaves, observed)
            activations.append(activation)
        self._check_use([(observed, members)])
        if sigma is not None and self._parents([sigma]) & set(members):
            raise NetworkError(f"sigma of '{observed.name}' depends on the network's weights.")
        inputs = pt.cast(source, pytensor.config.floatX)
        network = ClassicalNetwork(
            observed.name,
            inputs if batches else folded(inputs),
            value,
            tuple(reversed(layers)),
            tuple(reversed(activations)),
            likelihood,
            scale,
            weight,
            batches,
        )
        self._check_widths(network)
        return network

    def _likelihood(self, node, name: str) -> tuple[str, Variable, Variable | None]:
        """(kind, output f of the network, sigma of a normal likelihood)."""
        op = node.op
        if isinstance(op, NormalRV):
            return "normal", *op.dist_params(node)
        if isinstance(op, CategoricalRV):
            [p] = op.dist_params(node)
            softmax = p.owner is not None and isinstance(p.owner.op, Softmax)
            if softmax and np.ravel(p.owner.op.axis).tolist() in ([-1], [p.ndim - 1]) and p.ndim == 2:
                return "categorical", p.owner.inputs[0], None
            raise NetworkError(f"The probabilities of '{name}' are no softmax of (n, classes): {show(p)}.")
        if isinstance(op, BernoulliRV):
            [p] = op.dist_params(node)
            if is_elemwise(p, ps.Sigmoid):
                return "bernoulli", p.owner.inputs[0], None
            raise NetworkError(f"The probability of '{name}' is no sigmoid: {show(p)}.")
        raise NetworkError(f"'{name}' is {getattr(op, 'name', None) or op}, no Categorical, Bernoulli or Normal.")

    def _split(
        self, source: Variable, leaves: dict[Variable, Variable], observed: Variable
    ) -> tuple[Elementwise, Variable]:
        """The activation and the affine term of which the input of a layer consists."""
        inner = list(_affine_terms(source))
        if not inner or not all(equal_computations([term], [inner[0]]) for term in inner[1:]):
            raise NetworkError(
                f"A layer of '{observed.name}' takes {show(source)}, where one activation of one affine term "
                f"is understood."
            )
        z = pt.matrix("z", dtype=source.dtype)
        [output] = clone_replace([source], dict.fromkeys(inner, z), rebuild_strict=False)
        x = ps.get_scalar_type(source.dtype)()
        try:
            scalar = rebuild(output, z, x)
        except NotElementwiseError as refusal:
            raise NetworkError(
                f"A layer of '{observed.name}' takes {show(source)}, which is no elementwise function with constant "
                f"coefficients of one affine term: it holds {refusal}."
            ) from None
        return Elementwise(z, output, ps.Composite([x], [scalar if scalar is not x else ps.identity(x)])), inner[0]

    def _check_widths(self, network: ClassicalNetwork) -> None:
        width, source = network.data()[0].shape[1], "the input data"
        for layer in network.layers:
            if layer.shape[1] != width:
                raise NetworkError(f"'{layer.name}' takes {layer.shape[1]} inputs, but {source} has {width} columns.")
            width, source = layer.shape[0], f"the layer of '{layer.name}'"


def _affine_terms(expression: Variable) -> Iterator[Variable]:
    """The nearest sums with a matrix product from which an expression is made by elementwise operations."""
    if any(match_product(term) for term in terms(expression)):
        yield expression
    elif expression.owner is not None and isinstance(expression.owner.op, Elemwise | DimShuffle):
        for operand in dict.fromkeys(expression.owner.inputs):
            yield from _affine_terms(operand)

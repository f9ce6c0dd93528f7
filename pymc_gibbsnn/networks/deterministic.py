r"""The reader of classical networks, dense layers and activations inside one likelihood of a plain PyMC model.

    f = W̃_L σ(··· σ(W̃_1 x) ···),     y ~ p(y | f)

Here W̃ = [W, b] are the weights and the bias of a layer, with Normal priors of mean 0, and p(y | f) is one of
:data:`pymc_gibbsnn.networks.likelihoods.CLASSICAL`. The inputs x and the targets y are data, or minibatches of them.
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
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.type import TensorType

from pymc_gibbsnn._compat import observed_variables
from pymc_gibbsnn._data import check_finite
from pymc_gibbsnn.networks.forms import (
    NetworkError,
    NotElementwiseError,
    evaluate,
    is_elemwise,
    match_product,
    rebuild,
    terms,
)
from pymc_gibbsnn.networks.given import folded
from pymc_gibbsnn.networks.layers.weighted import Weighted
from pymc_gibbsnn.networks.likelihoods import CLASSICAL, ClassicalLikelihood, find_likelihood
from pymc_gibbsnn.networks.minibatch import Batches, read_minibatches
from pymc_gibbsnn.networks.notation import show
from pymc_gibbsnn.networks.reader import Reader
from pymc_gibbsnn.networks.substitution import substitute

__all__ = ["ClassicalNetwork", "Elementwise", "read_classical"]


@dataclass(frozen=True, eq=False)
class Elementwise:
    """An activation, as an expression ``output`` of a matrix ``z`` and as an operation ``scalar_op`` on numbers."""

    z: Variable
    output: Variable
    scalar_op: ps.ScalarOp

    @property
    def name(self) -> str | None:
        """The name of the operation if it is a single one, such as "sigmoid" or "tanh"; None otherwise."""
        node = self.output.owner
        single = node is not None and node.inputs == [self.z] and isinstance(node.op, Elemwise)
        return type(node.op.scalar_op).__name__.lower() if single else None


@dataclass(frozen=True, eq=False)
class ClassicalNetwork:
    """A classical network in the value variables of a PyMC model.

    Attributes
    ----------
    inputs : Variable, (n, d)
        The data, or a batch of them.
    layers : tuple of Weighted
        The L layers, from the inputs to the output.
    activations : tuple of Elementwise
        The L − 1 activations between them.
    likelihood : ClassicalLikelihood
        The likelihood of the data y given the output of the last layer; y may be a batch.
    weight : Variable, ()
        The power of the likelihood: 1, or total_size divided by the size of a batch.
    batches : Batches, optional
        The minibatches of the model. Inputs, likelihood and weight then hold the row numbers of a batch as a free
        variable.
    """

    inputs: Variable
    layers: tuple[Weighted, ...]
    activations: tuple[Elementwise, ...]
    likelihood: ClassicalLikelihood
    weight: Variable
    batches: Batches | None = None

    @property
    def variables(self) -> list[Variable]:
        """The value variables of weights and biases."""
        return [value for layer in self.layers for value in layer.variables]

    def on(self, rows: Variable | None) -> tuple[Variable, ClassicalLikelihood, Variable]:
        """Return inputs, likelihood and weight for the rows of a batch; ``rows`` is None without minibatches."""
        if self.batches is None:
            return self.inputs, self.likelihood, self.weight

        def of_batch(parts: list[Variable]) -> list[Variable]:
            return substitute(parts, {self.batches.index: rows})

        inputs, weight = of_batch([self.inputs, self.weight])
        return inputs, self.likelihood.with_parts(of_batch), weight

    def on_all(self) -> tuple[Variable, ClassicalLikelihood, Variable]:
        """Return inputs, likelihood and weight for all rows of the data."""
        return self.on(None if self.batches is None else pt.arange(self.batches.rows))

    def data(self) -> np.ndarray:
        """Return all rows of the inputs as they are now, (n, d)."""
        return evaluate(self.on_all()[0])

    def check_data(self) -> None:
        """Refuse numbers that are not finite, labels that are no integers or out of range, and shapes that do not fit.

        Raises
        ------
        NetworkError
            Names the variable and what was found in it.
        """
        if self.batches is not None:
            self.batches.check()
        labels = self.likelihood.value
        while is_elemwise(labels, ps.Cast):  # PyMC casts labels to integers without saying so
            labels = labels.owner.inputs[0]
        if self.likelihood.is_discrete and labels.dtype.startswith("float"):
            raise NetworkError(f"The data of '{self.likelihood.name}' are of dtype {labels.dtype}: give integers.")
        x, likelihood, _ = self.on_all()
        x = evaluate(x)
        check_finite("the input data", x, NetworkError)
        likelihood.check(x, self.layers[-1])


def read_classical(model: pm.Model) -> ClassicalNetwork:
    """Read the classical network of a PyMC model.

    Parameters
    ----------
    model : pm.Model
        The model.

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
        raise NetworkError(f"No classical network found. {reason}")
    if len(networks) > 1:
        raise NetworkError(
            f"The model holds several networks, with outputs {[network.likelihood.name for network in networks]}."
        )
    return networks[0]


class _ClassicalReader(Reader):
    """Reads one network, from its likelihood down to its inputs."""

    def read(self, observed: Variable) -> ClassicalNetwork:
        """Read the network whose output this observed variable depends on."""
        node = observed.owner
        wrapped = isinstance(node.op, MinibatchRandomVariable)
        base = node.inputs[0].owner if wrapped else node
        kind = find_likelihood(base.op)
        if kind not in CLASSICAL.values():
            op_name = getattr(base.op, "name", None) or base.op
            raise NetworkError(f"'{observed.name}' is {op_name}, which is no known likelihood of a classical network.")
        f, parameters = kind.read(base, observed, self.variances)
        value = self.model.rvs_to_values[observed]
        totals = [folded(x) if isinstance(x.type, TensorType) else x for x in node.inputs[1:]]
        weight = get_scaling(totals, value.shape) if wrapped else pt.constant(1.0, dtype=value.dtype)
        weight = pt.cast(weight, pytensor.config.floatX)
        part, leaves = self._simplified(f)
        [part, value, weight, *arguments], batches = read_minibatches([part, value, weight, *parameters.values()])
        value = folded(value) if isinstance(value, Constant) else value
        likelihood = kind(observed.name, value, **dict(zip(parameters, arguments, strict=True)))

        layers, activations, members = [], [], []
        while True:
            layer, offset, source, used = self._affine(part, leaves, observed)
            if offset is not None or not layer.is_product:
                raise NetworkError(
                    f"A layer of '{observed.name}' must be A @ W.T + b, with one bias and no other term; found "
                    f"{show(part)}."
                )
            if layer.factor != 1 or layer.bias_factor != 1:
                raise NetworkError(
                    f"A layer of '{observed.name}' must be A @ W.T + b; found {show(part)}: put the factors of "
                    f"'{layer.name}' and of its bias into their priors, which gives the same model."
                )
            layers.append(layer)
            members += used
            if not self._leaves_of([source], leaves):
                break
            activation, part = self._split(source, leaves, observed)
            activations.append(activation)
        self._check_use([(observed, members)])
        for name, parameter in parameters.items():
            if {self.model.rvs_to_values[rv] for rv in members} & set(ancestors([parameter])):
                raise NetworkError(f"The {name} of '{observed.name}' depends on the network's weights.")
        inputs = pt.cast(source, pytensor.config.floatX)
        network = ClassicalNetwork(
            inputs if batches else folded(inputs),
            tuple(reversed(layers)),
            tuple(reversed(activations)),
            likelihood,
            weight,
            batches,
        )
        self._check_widths(network)
        return network

    def _split(
        self, source: Variable, leaves: dict[Variable, Variable], observed: Variable
    ) -> tuple[Elementwise, Variable]:
        """Split the input of a layer into an activation and the affine term, the output of the layer below, in it."""
        inner = list(_affine_terms(source))
        if not inner or not all(equal_computations([term], [inner[0]]) for term in inner[1:]):
            raise NetworkError(
                f"The input of a layer of '{observed.name}' must be one activation of the output of one other layer; "
                f"found {show(source)}."
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
        """Refuse a network whose layers do not fit together."""
        width, source = network.data().shape[1], "the input data"
        for layer in network.layers:
            if layer.shape[1] != width:
                raise NetworkError(f"'{layer.name}' takes {layer.shape[1]} inputs, but {source} has {width} columns.")
            width, source = layer.shape[0], f"the layer of '{layer.name}'"


def _affine_terms(expression: Variable) -> Iterator[Variable]:
    """Find the sums with a matrix product from which an expression is made by elementwise operations."""
    if any(match_product(term) for term in terms(expression)):
        yield expression
    elif expression.owner is not None and isinstance(expression.owner.op, Elemwise | DimShuffle):
        for operand in dict.fromkeys(expression.owner.inputs):
            yield from _affine_terms(operand)

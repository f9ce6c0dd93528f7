"""Reads a noisy network off a plain PyMC model.

The reader walks PyMC's own graph from the observed variable down, after PyTensor's canonicalisation has made one form
of the many ways to write a product. What it does not recognise it refuses, by name: it never guesses.
"""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import NormalRV

from pymc_gibbsnn._forms import match_product, show, spans_columns, terms, undimshuffle
from pymc_gibbsnn.activations import NotPiecewiseLinearError, read_piecewise_linear
from pymc_gibbsnn.labels import ArgmaxLabelRV, SignLabelRV
from pymc_gibbsnn.network import Activation, Dense, Labels, Network, NetworkError, evaluate

__all__ = ["Reader", "read_network"]

LABELS = {ArgmaxLabelRV: "argmax", SignLabelRV: "sign"}
KNOWN_FORMS = (
    "Known forms: Z ~ Normal(A @ W.T + b, sigma) with A data or a noisy post-activation and W, b ~ Normal(0, scale); "
    "A ~ Normal(activation(Z), sigma); y ~ ArgmaxLabel(Z) or SignLabel(Z)."
)


def read_network(model: pm.Model, vars: list[Variable] | None = None) -> Network:
    """Read the noisy network of a PyMC model.

    Parameters
    ----------
    model : pm.Model
    vars : list of Variable, optional
        Random or value variables. If given, they must be the free variables of the network, all of them.

    Returns
    -------
    Network

    Raises
    ------
    NetworkError
        If there is no noisy network in the model, or more than one, or one with a part that is not known; the message
        names the variable, what was found, and the forms that are known.
    """
    networks, refusals = [], []
    for rv in model.observed_RVs:
        try:
            networks.append(Reader(model).read(rv))
        except NetworkError as refusal:
            refusals.append(str(refusal))
    if vars is not None:
        wanted = {model.rvs_to_values.get(var, var) for var in vars}
        networks = [network for network in networks if wanted & set(network.variables)] or networks
    if not networks:
        reason = " ".join(refusals) or "The model observes nothing: give the last layer observed=y."
        raise NetworkError(f"No noisy network found. {reason} {KNOWN_FORMS}")
    if len(networks) > 1:
        names = ", ".join(f"'{network.layers[-1].name}'" for network in networks)
        raise NetworkError(
            f"The model holds several networks, with outputs {names}: name the variables of one in vars=."
        )
    [network] = networks
    if vars is not None and wanted != set(network.variables):
        missing = sorted(v.name for v in set(network.variables) - wanted)
        foreign = sorted(v.name for v in wanted - set(network.variables))
        raise NetworkError(
            f"vars= must be the free variables of the network; missing {missing}, not of the network {foreign}."
        )
    network.check_data()
    return network


class Reader:
    """Reads one network downwards from its observed variable."""

    def __init__(self, model: pm.Model):
        self.model = model
        self.shapes = {name: np.shape(value) for name, value in model.initial_point(random_seed=0).items()}
        self.parents = {rv: self._parents(rv.owner.inputs) for rv in model.basic_RVs}

    def read(self, observed: Variable) -> Network:
        """Read the network that ends in this variable."""
        layers, activations, used = [], [], []
        labels, z = self._labels(observed)
        if labels is not None:
            used.append((observed, [z]))
        while True:
            layer, source, members = self._dense(z)
            layers.append(layer)
            used.append((z, members))
            if source not in self.model.free_RVs:
                break
            activation, z_below = self._activation(source)
            activations.append(activation)
            used.append((source, [z_below]))
            z = z_below
        self._check_use(used)
        inputs = pt.cast(self._folded(source), pytensor.config.floatX)
        network = Network(inputs, tuple(reversed(layers)), tuple(reversed(activations)), labels)
        self._check_shapes(network)
        return network

    # One layer

    def _labels(self, observed: Variable) -> tuple[Labels | None, Variable]:
        """The labels, if any, and the last pre-activation."""
        kind = LABELS.get(type(observed.owner.op))
        if kind is None:
            return None, observed
        [z] = observed.owner.op.dist_params(observed.owner)
        if z not in self.model.free_RVs:
            raise NetworkError(
                f"The labels '{observed.name}' are of {show(z)}, which carries no noise: give it a latent of its own, "
                f"Z = pm.Normal('Z', A @ W.T + b, sigma), and {observed.owner.op} of Z."
            )
        if kind == "argmax" and z.ndim != 2:
            raise NetworkError(f"'{z.name}', of which '{observed.name}' is the argmax, must have shape (n, classes).")
        return Labels(observed.name, self.model.rvs_to_values[observed], kind), z

    def _dense(self, z: Variable) -> tuple[Dense, Variable, list[Variable]]:
        mean, sigma = self._normal(z)
        mean, leaves = self._simplified(mean)
        parts, source, members = self._affine(mean, leaves, z)
        dense = Dense(
            **parts,
            name=z.name,
            output=pt.cast(self.model.rvs_to_values[z], pytensor.config.floatX),
            noise=self._noise(sigma, z),
        )
        if source in leaves:
            source = leaves[source]
            members.append(source)
        elif self._leaves_of(source, leaves):
            [inner, *_] = self._leaves_of(source, leaves)
            raise NetworkError(
                f"'{inner.name}' enters '{z.name}' through {show(source)}, which carries no noise: "
                f"give it a latent of its own, A = pm.Normal('A', <activation of {inner.name}>, sigma)."
            )
        return dense, source, members

    def _affine(self, mean: Variable, leaves: dict[Variable, Variable], z: Variable) -> tuple[dict, Variable, list]:
        """(fields of an Affine, its input, its weights and bias) of a mean A @ W.T + b, or a part of the mean of z."""
        product, biases = None, []
        for term in terms(mean):
            found = match_product(term)
            if found is None:
                biases.append(term)
            elif product is not None:
                raise NetworkError(f"The mean of '{z.name}' holds two products; a layer has one: {show(mean)}.")
            else:
                product = found
        if product is None:
            raise NetworkError(f"The mean of '{z.name}' is not a product with a matrix of weights: {show(mean)}.")
        source, weights, layout = product
        weights = self._weights(weights, leaves, z)
        if len(biases) > 1:
            raise NetworkError(
                f"The mean of '{z.name}' has {len(biases)} terms beside the product; a layer has one bias."
            )
        bias = self._weights(undimshuffle(biases[0]), leaves, z) if biases else None
        shape = self._shape(weights)
        d_out, d_in = {"rows": shape, "columns": shape[::-1], "vector": (1, *shape)}[layout]
        if bias is not None and (int(np.prod(self._shape(bias))) != d_out or not spans_columns(biases[0])):
            raise NetworkError(
                f"'{bias.name}' of shape {self._shape(bias)} is no bias of the {d_out} units of '{z.name}': "
                f"a bias is one number a unit, the same for all rows."
            )
        parts = {
            "weights": self.model.rvs_to_values[weights],
            "bias": None if bias is None else self.model.rvs_to_values[bias],
            "layout": layout,
            "shape": (d_out, d_in),
            "precision": self._precision(weights, bias, layout, (d_out, d_in)),
        }
        return parts, source, [weights] if bias is None else [weights, bias]

    def _activation(self, a: Variable) -> tuple[Activation, Variable]:
        mean, sigma = self._normal(a)
        mean, leaves = self._simplified(mean)
        if any(match_product(term) for term in terms(mean)):
            raise NetworkError(
                f"'{a.name}' enters the next layer without a noisy post-activation: give it one, "
                f"A = pm.Normal('A', <activation of {a.name}>, sigma), be it of the identity."
            )
        inner = self._leaves_of(mean, leaves)
        if len(inner) != 1:
            names = [rv.name for rv in inner]
            raise NetworkError(
                f"'{a.name}' enters a layer, so its mean must be an activation of one pre-activation; "
                f"it depends on {names}."
            )
        [(leaf, z)] = [(leaf, rv) for leaf, rv in leaves.items() if rv in inner]
        try:
            function = read_piecewise_linear(mean, leaf)
        except NotPiecewiseLinearError as error:
            raise NetworkError(
                f"The activation {show(mean)} of '{a.name}' is not piecewise linear with constant pieces: "
                f"it holds {error}."
            ) from None
        if self._shape(a) != self._shape(z):
            raise NetworkError(
                f"'{a.name}' has shape {self._shape(a)} and '{z.name}', its pre-activation, {self._shape(z)}."
            )
        return Activation(a.name, self.model.rvs_to_values[a], function, self._noise(sigma, a)), z

    # The parts of a layer

    def _normal(self, rv: Variable) -> tuple[Variable, Variable]:
        if not isinstance(rv.owner.op, NormalRV):
            raise NetworkError(f"'{rv.name}' is no Normal but {getattr(rv.owner.op, 'name', None) or rv.owner.op}.")
        if rv in self.model.free_RVs and self.model.rvs_to_transforms.get(rv) is not None:
            raise NetworkError(f"'{rv.name}' is transformed; a variable of a network is a plain Normal.")
        return tuple(rv.owner.op.dist_params(rv.owner))

    def _weights(self, term: Variable, leaves: dict[Variable, Variable], z: Variable) -> Variable:
        rv = leaves.get(term)
        if rv not in self.model.free_RVs:
            raise NetworkError(
                f"The mean of '{z.name}' holds {show(term)}, where weights or a bias with a Normal prior "
                f"are understood."
            )
        mean, _ = self._normal(rv)
        if self._parents([mean]) or np.any(evaluate(mean) != 0):
            raise NetworkError(f"The prior of '{rv.name}' has a mean other than 0.")
        return rv

    def _precision(self, weights: Variable, bias: Variable | None, layout: str, shape: tuple[int, int]) -> Variable:
        """(1 or d_out, d_in (+ 1)): one row where all units have the same prior."""
        d_out, d_in = shape
        sigma = self._scale(self._normal(weights)[1], weights)
        if layout == "columns":
            sigma = pt.shape_padleft(sigma, 2 - sigma.ndim).T
        sigma = pt.shape_padleft(sigma, 2 - sigma.ndim)
        sigmas = [pt.broadcast_to(sigma, (1 if sigma.type.broadcastable[0] else d_out, d_in))]
        if bias is not None:
            sigma = self._scale(self._normal(bias)[1], bias)
            sigmas.append(sigma.reshape((1 if all(sigma.type.broadcastable) else d_out, 1)))
        if len({sigma.type.broadcastable[0] for sigma in sigmas}) > 1:
            sigmas = [pt.broadcast_to(sigma, (d_out, sigma.shape[1])) for sigma in sigmas]
        precision = 1 / pt.concatenate(sigmas, axis=1) ** 2
        return pt.cast(self._folded(precision), pytensor.config.floatX)

    def _folded(self, scale: Variable) -> Variable:
        """A constant where a scale depends on no variable: every graph that uses it is smaller."""
        free = any(not isinstance(node, Constant) and node.owner is None for node in ancestors([scale]))
        return scale if free else pt.as_tensor(evaluate(scale))

    def _noise(self, sigma: Variable, rv: Variable) -> Variable:
        if not all(sigma.type.broadcastable):
            raise NetworkError(
                f"sigma of '{rv.name}' has shape {sigma.type.shape}; the noise of a layer is one number."
            )
        sigma = self._scale(sigma, rv)
        return pt.cast(self._folded(sigma.reshape(()) ** 2), pytensor.config.floatX)

    def _scale(self, sigma: Variable, rv: Variable) -> Variable:
        if not self._parents([sigma]):
            value = evaluate(sigma)
            if not np.all((value > 0) & np.isfinite(value)):
                raise NetworkError(
                    f"sigma of '{rv.name}' must be positive and finite; found {value.min() if value.size else value}."
                )
        [sigma] = self.model.replace_rvs_by_values([sigma])
        return sigma

    # The graph

    def _parents(self, expressions: list[Variable]) -> set[Variable]:
        """The random variables on which expressions depend, without going through others."""
        rvs = set(self.model.basic_RVs)
        return {node for node in ancestors(expressions, blockers=rvs) if node in rvs}

    def _leaves_of(self, expression: Variable, leaves: dict[Variable, Variable]) -> list[Variable]:
        return [leaves[node] for node in ancestors([expression]) if node in leaves]

    def _simplified(self, mean: Variable) -> tuple[Variable, dict[Variable, Variable]]:
        """The canonical form of a mean, its random variables replaced by leaves."""
        leaves = {parent: parent.type(name=parent.name) for parent in self._parents([mean])}
        [mean] = clone_replace([mean], leaves, rebuild_strict=False)
        mean = rewrite_graph(mean, include=("canonicalize",), exclude=("local_dot_to_mul",), clone=False)
        return mean, {leaf: parent for parent, leaf in leaves.items()}

    def _shape(self, rv: Variable) -> tuple[int, ...]:
        return self.shapes[self.model.rvs_to_values[rv].name]

    # The network as a whole

    def _check_use(self, used: list[tuple[Variable, list[Variable]]]) -> None:
        members = [member for _, below in used for member in below]
        for child, below in used:
            for member in below:
                if members.count(member) > 1:
                    raise NetworkError(
                        f"'{member.name}' serves twice in the network: shared weights and latents are not known."
                    )
                users = [rv.name for rv, parents in self.parents.items() if member in parents]
                users += [p.name for p in self.model.potentials if member in self._parents([p])]
                if users != [child.name]:
                    raise NetworkError(
                        f"'{member.name}' must enter '{child.name}' and nothing else; it is used by {sorted(users)}."
                    )
            if not isinstance(child.owner.op, NormalRV):
                continue
            sigma = self._parents([self._normal(child)[1]])
            if sigma & set(members):
                raise NetworkError(
                    f"sigma of '{child.name}' depends on the network's "
                    f"{sorted(rv.name for rv in sigma & set(members))}."
                )

    def _check_shapes(self, network: Network) -> None:
        n, width = network.data().shape
        source = "the input data"
        for layer in network.layers:
            if layer.shape[1] != width:
                raise NetworkError(
                    f"'{layer.weights.name}' of '{layer.name}' takes {layer.shape[1]} inputs, "
                    f"but {source} has {width} columns."
                )
            width, source = layer.shape[0], f"'{layer.name}'"
            if layer.output is not network.observed:
                found = self.shapes[layer.output.name]
            else:
                found = evaluate(layer.output).shape
            if found not in ((n, width), (n,) if width == 1 else (n, width)):
                raise NetworkError(f"'{layer.name}' has shape {found}, but its mean has shape {(n, width)}.")

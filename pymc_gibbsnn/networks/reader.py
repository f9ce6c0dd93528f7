"""The reader of noisy networks, which finds them in the graph of a plain PyMC model.

It follows PyMC's own graph from an observed variable down to the inputs, after PyTensor's canonicalisation has made one
form of the many ways to write a product. It never guesses: what it does not recognise it refuses, with an error that
names the variable.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.initial_point import make_initial_point_expression
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import NormalRV

from pymc_gibbsnn._arguments import named_variables
from pymc_gibbsnn._compat import SUBTENSORS, observed_variables
from pymc_gibbsnn.backends.modes import without_traces
from pymc_gibbsnn.networks import refusals
from pymc_gibbsnn.networks.forms import (
    AS_WRITTEN,
    NetworkError,
    evaluate,
    match_scaled_product,
    match_slope,
    summands,
    terms,
    value_shapes,
)
from pymc_gibbsnn.networks.given import folded, given, real
from pymc_gibbsnn.networks.input_reader import line_of_columns, read_random_inputs
from pymc_gibbsnn.networks.layer_reader import LayerReader, match_linear
from pymc_gibbsnn.networks.likelihoods import NOISY, LatentLikelihood, find_noisy
from pymc_gibbsnn.networks.likelihoods.around_latent import AroundLatent
from pymc_gibbsnn.networks.likelihoods.effect import EffectLikelihood
from pymc_gibbsnn.networks.likelihoods.factorised import FactorisedLikelihood, read_factorised
from pymc_gibbsnn.networks.likelihoods.row_noise import RowNoise
from pymc_gibbsnn.networks.network import Activation, Layer, Network, Parameter
from pymc_gibbsnn.networks.notation import show
from pymc_gibbsnn.networks.random_inputs import RandomInputs
from pymc_gibbsnn.networks.scales_of_rows import common_scale, numbers_of_scale
from pymc_gibbsnn.networks.smooth import NotElementwiseError, read_activation

__all__ = ["Reader", "only_network", "read_network", "read_networks", "starting_point"]

MOST = 10  # numbers in a parameter of the likelihood that is drawn with a network; for more of them NUTS is better


def read_network(model: pm.Model, vars: list[Variable] | None = None, check_data: bool = True) -> Network:
    """Read the one noisy network of a model, as :func:`read_networks` does; raise NetworkError if there are several.

    Networks on which nothing but the noise of another one depends do not count; one that is a term of a mean is none.
    """
    return only_network(read_networks(model, vars, check_data))


def only_network(networks: list[Network]) -> Network:
    """Return the one network that gives the data, alone or but for their noise; raise NetworkError if there is none."""
    networks = [network for network in networks if network.sets_noise_of is None]
    if len(networks) > 1:
        names = ", ".join(f"'{network.layers[0].operator.name}'" for network in networks)
        raise NetworkError(
            f"The model holds several networks, with first weights {names}: name the variables of one in vars=."
        )
    [network] = networks
    if network.observation is not None and network.observation.is_term:
        latent, name = network.layers[-1].name, network.observation.name
        raise NetworkError(f"The network of '{latent}' is one term of the mean of '{name}', beside others.")
    return network


def read_networks(model: pm.Model, vars: list[Variable] | None = None, check_data: bool = True) -> list[Network]:
    """Read the noisy networks of a PyMC model: one for each product in the mean of data or of labelled latents.

    Latents of such a network may be terms of this mean, too, with slopes: t * Z.

    Before a network whose noise differs between rows stands the one on which that depends, if there is one.

    Parameters
    ----------
    model : pm.Model
        The model.
    vars : list of Variable, optional
        Random or value variables. If given, they must be all free variables of some of the networks; biases, and
        learned variances and precisions, may be left out for other steps to sample.
    check_data : bool
        Whether the data must be such that the network can be sampled. The function of a network can be read whatever
        the data are now, also between ``pm.set_data`` of new inputs and of their targets.

    Returns
    -------
    list of Network

    Raises
    ------
    NetworkError
        If there is no noisy network in the model, or none of these variables, or one with a part that is not known; the
        message names the variable, what was found, and the known form that is nearest to it.
    """
    named = named_variables(model, vars)
    wanted = None if named is None else {model.rvs_to_values[rv] for rv in named}
    reader = Reader(model, wanted, check_data)
    networks, reasons = [], []
    for rv in observed_variables(model):
        name = rv.name.removesuffix("_observed")
        if any(rv in (found.known, found.measured) for found in reader.inputs.values()):
            continue
        if f"{name}_unobserved" in model.named_vars:
            reasons.append(refusals.missing_values(name))
            continue
        try:
            ends = reader.ends(rv)
        except NetworkError as refusal:
            reasons.append(str(refusal))
            continue
        for z, number in ends:
            try:
                networks += reader.read(rv, z, number)
            except NetworkError as refusal:
                reasons.append(str(refusal))
    if not networks:
        reason = " ".join(dict.fromkeys(reasons)) or "The model observes nothing: give the last layer observed=y."
        raise NetworkError(f"No noisy network found. {reason}")
    if wanted is not None:
        networks = [network for network in networks if wanted & set(network.variables)] or networks
        for network in networks:
            other = network.sets_noise_of
            if other is not None and not wanted & set(other.variables):
                raise NetworkError(
                    f"'{network.layers[-1].name}' moves with the latents of the network whose noise it scales: name "
                    f"{[v.name for v in other.variables]} in vars=, too."
                )
        members = {v for network in networks for v in network.variables}
        if wanted != members:
            missing, foreign = (sorted(v.name for v in part) for part in (members - wanted, wanted - members))
            problems = [f"missing {missing}"] * bool(missing) + [f"not of the network {foreign}"] * bool(foreign)
            raise NetworkError(
                f"vars must name all weights and latents of a network, and nothing else; {', '.join(problems)}."
            )
    elif check_data:
        reader.warn_of_latents({v for network in networks for v in network.variables}, reasons)
    for network in networks if check_data else ():
        network.check_data()
        network.warn_of_offsets()
    return networks


class Reader(LayerReader):
    """Reads networks, from observed variables down to inputs.

    Parameters
    ----------
    model : pm.Model
        The model.
    wanted : set of Variable, optional
        If given, only these value variables may be biases, and learned variances or precisions, of a network.
    check_data : bool
        Whether latents and targets must have a row for each row of the inputs.

    Attributes
    ----------
    scales : dict of Variable to Variable or None
        The scales of the rows of each noisy variable of the network that was read last, in random variables.
    """

    @without_traces()
    def __init__(self, model: pm.Model, wanted: set[Variable] | None = None, check_data: bool = True):
        super().__init__(model, _shapes_at_a_point(model) if check_data else _shapes_that_fit(model), wanted)
        self.check_data = check_data
        self.scales: dict[Variable, Variable | None] = {}
        self._read: dict[Variable, list[tuple[LatentLikelihood | None, Variable]]] = {}

    @without_traces()
    def ends(self, observed: Variable) -> list[tuple[Variable, int]]:
        """List the last pre-activations by which networks give an observed variable, with products in their means.

        They are the variable itself or, if it is a label, its latent, and latents that are terms of the mean of that.
        A pre-activation stands there with the number of each product in its mean.
        """
        lasts = [last for _, last in self._observations(observed)]
        zs = dict.fromkeys(z for last in lasts for z in (last, *self._effects(last)))
        return [(z, i) for z in zs for i in range(self._count(z))] or [(lasts[0], 0)]

    @without_traces()
    def read(self, observed: Variable, z: Variable, number: int = 0) -> list[Network]:
        """Read the network whose last layer is product ``number`` in the mean of a last pre-activation Z.

        Before it stands the network on which the scales of its rows depend, if there is one.
        """
        observation, last = next(
            (likelihood, last)
            for likelihood, last in self._observations(observed)
            if z is last or z in self._effects(last)
        )
        around = [] if observation is None else [observed]
        if z is not last:
            observation, around = self._effect(last, z), [last]
        network = self._read_from(z, number, observation, around)
        network = self._with_scaled_data(network, observed)
        scale = common_scale(network, self.scales)
        if len(self.ends(observed)) == 1:
            of_scale = set() if scale is None else self._parents([scale])
            network = replace(network, parameters=self._parameters_of(observed, network, of_scale))
        latent = None if scale is None else self._latent_of_scale(scale, len(network.data()))
        if latent is None:
            self._check_inputs([network], scale)
            if scale is None:
                return [network]
            return [replace(network, row_scale=real(self.model.replace_rvs_by_values([scale])[0]))]
        if self._count(z) > 1:
            raise NetworkError(
                f"The mean of '{observed.name}' holds two products, which are two networks, but only one can have "
                f"noise with scales that depend on the latent '{latent.name}': leave one out."
            )
        value = folded(self.model.rvs_to_values[observed])
        numbers = [given(np.asarray(x, pytensor.config.floatX)) for x in numbers_of_scale(scale, latent)]
        likelihood = RowNoise(observed.name, value, network, *numbers)
        g = real(self.model.rvs_to_values[latent])
        network = replace(network, row_scale=pt.sqrt(likelihood.squared_scale(g[:, None] if g.ndim == 1 else g)))
        of_noise = self._read_from(latent, None, replace(likelihood, network=network), [])
        self._check_inputs([of_noise, network], scale)
        inputs, of_both = network.random_inputs, of_noise.random_inputs
        if inputs is not None and of_both is not None and inputs.value is of_both.value:
            network = replace(network, random_inputs=replace(inputs, is_drawn=False))
            of_noise = replace(of_noise, observation=replace(likelihood, network=network))
        return [of_noise, network]

    def _with_scaled_data(self, network: Network, observed: Variable) -> Network:
        """Count data around a last latent among what has scales of rows, if the latents of the network have some."""
        observation = network.observation
        has_scales = any(scale is not None for scale in self.scales.values())
        if observation is None or not observation.scales_with_rows or not has_scales:
            return network
        *_, sigma = observed.owner.op.dist_params(observed.owner)
        _, self.scales[observed] = self.variances.noise_of_rows(sigma, observed)
        return replace(network, observation=replace(cast(AroundLatent, observation), factors=None))

    def _check_inputs(self, networks: list[Network], scale: Variable | None) -> None:
        """Refuse inputs that are variables and enter anything but the first layers of these networks.

        Parameters
        ----------
        networks : list of Network
            A network, perhaps after the one that sets its noise.
        scale : Variable, optional
            The scale of the rows of the former.
        """
        in_scale = set() if scale is None else set(ancestors([scale], blockers=self.model.basic_RVs))
        for found in self.inputs.values():
            value = self.model.rvs_to_values[found.unknown]
            with_inputs = [one for one in networks if one.random_inputs is not None]
            layers = [one.layers[0].name for one in with_inputs if one.random_inputs.value is value]
            measurement = set() if found.measured is None else {found.measured.name}
            users = {name for rv in {found.x, *found.members} for name in self.variances.users(rv)}
            if layers and users != measurement.union(layers):
                others = sorted(users - measurement.union(layers))
                raise NetworkError(refusals.shared_inputs(found.x.name, layers, others))
            if layers and found.x in in_scale:
                raise NetworkError(refusals.scale_of_inputs(found.x.name, layers[-1]))

    def warn_of_latents(self, taken: set[Variable], reasons: list[str]) -> None:
        """Warn of latents of hidden layers that no network has, which other steps move slowly.

        Parameters
        ----------
        taken : set of Variable
            The value variables of all networks.
        reasons : list of str
            Why parts of the model are no network.
        """
        left = [rv for rv in self.model.free_RVs if self.model.rvs_to_values[rv] not in taken]
        around = {rv: self._parents([mean_of(rv)]) for rv in left if isinstance(rv.owner.op, NormalRV)}
        outputs = {rv for rv in around if self._is_output(rv)}
        hidden = {rv for rv in around if rv not in outputs and around[rv] & outputs}
        below = {z for a in hidden for z in around[a] & outputs}
        latents = [rv for rv in around if rv in hidden | below or (rv in outputs and around[rv] & hidden)]
        if not latents:
            return
        for rv in self.model.basic_RVs:
            if isinstance(rv.owner.op, NormalRV):
                mean, leaves = self._simplified(mean_of(rv))
                entered = (term for term in terms(mean) if set(self._leaves_of([term], leaves)) & set(latents))
                is_observed = rv in self.model.observed_RVs
                problems = filter(None, (refusals.unread_term(term, is_observed) for term in entered))
                reasons = [*reasons, *(f"The mean of '{rv.name}' is {show(mean)}, {problem}" for problem in problems)]
        numbers = sum(math.prod(self._shape(rv)) for rv in latents)
        message = refusals.left_to_others([rv.name for rv in latents], numbers, reasons)
        warnings.warn(message, UserWarning, stacklevel=3)

    def _latent_of_scale(self, scale: Variable, rows: int) -> Variable | None:
        """Return the last latent of a second network on which scales of so many rows depend, if there is one.

        Other variables, and data, are left to other steps.
        """
        parents = sorted(self._parents([scale]), key=lambda rv: rv.name)
        latents = [rv for rv in parents if self._is_output(rv)]
        if not latents:
            return None
        [latent, *_] = latents
        if len(parents) > 1:
            raise NetworkError(
                f"Scales of rows depend on {[rv.name for rv in parents]}, but where the latent '{latent.name}' of a "
                f"network enters, nothing else may: put numbers that are learned before the scale, as in "
                f"s * pmg.row_scale({latent.name})."
            )
        for rv in self.scales:
            if isinstance(rv.owner.op, NormalRV) and latent in self._parents([mean_of(rv)]):
                raise NetworkError(
                    f"'{latent.name}', on which scales of rows depend, must enter nothing else; it enters the mean of "
                    f"'{rv.name}', too."
                )
        users, noisy = self.variances.users(latent), sorted(rv.name for rv in self.scales)
        if users != noisy:
            raise NetworkError(
                f"'{latent.name}', on which scales of rows depend, must enter sigma of {noisy} and nothing else; it "
                f"enters {users}."
            )
        if self.check_data and self._shape(latent) not in ((rows,), (rows, 1)):
            raise NetworkError(
                f"'{latent.name}', on which scales of rows depend, must have a number for each of {rows} rows; its "
                f"shape is {self._shape(latent)}."
            )
        return latent

    def _parameters_of(self, observed: Variable, network: Network, others: set[Variable]) -> tuple[Parameter, ...]:
        """Find the variables, of a few numbers, on which only the data of a network and one another depend.

        Those that are added to the output of the network are none of its likelihood, and left to other steps, as are
        ``others``, on which scales of rows depend.
        """
        model, values, offset = self.model, self.model.rvs_to_values, network.layers[-1].offset
        added = set() if offset is None else set(explicit_graph_inputs([offset]))
        left = [
            rv
            for rv in model.free_RVs
            if rv.dtype.startswith("float")
            and not isinstance(rv.owner.op, FlatRV | HalfFlatRV)
            and math.prod(self.shapes.get(values[rv].name, (MOST + 1,))) <= MOST
            and rv not in others
            and values[rv] not in added.union(network.variables)
            and (self.wanted is None or values[rv] in self.wanted)
        ]
        found: list[Variable] = []
        while len(found) != len(left):
            found, names = left, {observed.name, *(rv.name for rv in left)}
            left = [rv for rv in found if (users := set(self.variances.users(rv))) and users <= names]
        log_priors = model.logp(vars=found, sum=False) if found else []
        return tuple(
            Parameter(rv.name, values[rv], self.shapes[values[rv].name], real(log_prior.sum()))
            for rv, log_prior in zip(found, log_priors, strict=True)
        )

    def _is_output(self, rv: Variable) -> bool:
        """Whether a variable is Normal with a product of a layer in its mean."""
        if rv not in self.model.free_RVs or not isinstance(rv.owner.op, NormalRV):
            return False
        return any(match_linear(term) for term in terms(self._simplified(mean_of(rv))[0]))

    def _noise(self, sigma: Variable, rv: Variable) -> Variable:
        """Return the variance of the noise of a part of a network, and remember the scales of its rows."""
        noise, self.scales[rv] = self.variances.noise_of_rows(sigma, rv)
        return noise

    def _read_from(
        self, z: Variable, number: int | None, observation: LatentLikelihood | None, around: list[Variable]
    ) -> Network:
        """Read the network from its last pre-activation Z downwards, but for the scales of its rows.

        Parameters
        ----------
        z : Variable
            The last pre-activation.
        number : int, optional
            Which of several products in its mean is the last layer.
        observation : LatentLikelihood, optional
            The likelihood of data that are drawn given it.
        around : list of Variable
            The observed variable of that likelihood, if there is one that depends on nothing but Z.
        """
        layers, activations, used = [], [], [(observed, [z]) for observed in around]
        weights, noisy = [], [observed for observed in around if observation.noise is not None]
        self.scales = {}
        while True:
            layer, source, members, line = self._layer(z, None if layers else number)
            random_inputs = self._random_inputs(source, layer, z, line)
            if random_inputs is not None:
                members.remove(source)
            layers.append(layer)
            used.append((z, members))
            weights += [rv for rv in members if rv is not source]
            noisy.append(z)
            if source not in self.model.free_RVs or random_inputs is not None:
                break
            if self._is_root(source):
                op = source.owner.op
                around = self._simplified(self._normal(source)[0])[0] if isinstance(op, NormalRV) else op
                raise NetworkError(refusals.input_is_variable(source.name, around))
            if self._is_direct(layer, source):
                activations.append(None)
                z = source
                continue
            activation, z_below = self._activation(source)
            activations.append(activation)
            used.append((source, [z_below]))
            noisy.append(source)
            z = z_below
        self._check_use(used, around if isinstance(observation, FactorisedLikelihood) else [])
        learned = self.variances.conjugate(noisy, weights)
        learned = tuple(one for one in learned if self.wanted is None or one.value in self.wanted)
        if random_inputs is None:
            inputs = pt.cast(source, pytensor.config.floatX)
            if inputs.ndim == 4:
                inputs = inputs.reshape((-1, layer.shape[1]))
            inputs = folded(inputs)
        else:
            inputs = random_inputs.seen(random_inputs.at({random_inputs.value: random_inputs.value}))
        network = Network(
            inputs,
            tuple(reversed(layers)),
            tuple(reversed(activations)),
            observation,
            learned,
            random_inputs=random_inputs,
        )
        network.check_widths()
        if self.check_data:
            network.check_rows(self.shapes)
        self.taken.update(weights)
        if network.sets_noise_of is not None:
            common_scale(network, self.scales)  # which refuses any
        return network

    # How a layer is read

    def _observations(self, observed: Variable) -> list[tuple[LatentLikelihood | None, Variable]]:
        """Read the likelihood of data given each last pre-activation on which they depend; return it with the latter.

        Data that are the output of a last layer stand for themselves, without a likelihood.
        """
        if observed not in self._read:
            self._read[observed] = self._read_observations(observed)
        return self._read[observed]

    def _read_observations(self, observed: Variable) -> list[tuple[LatentLikelihood | None, Variable]]:
        """Read what :meth:`_observations` returns, which takes a while."""
        kind = find_noisy(observed.owner)
        if kind is None:
            inside = self._outputs_inside(observed)
            return [(self._factorised(observed, z), z) for z in inside] or [(None, observed)]
        z, parameters = kind.read(observed.owner, observed, self.variances)
        if z not in self.model.free_RVs:
            if inside := [] if kind.is_deterministic else self._outputs_inside(observed):
                return [(self._factorised(observed, z), z) for z in inside]
            what = "labels" if kind.has_classes else "data"
            raise NetworkError(
                f"The {what} '{observed.name}' are of {show(z)}, which carries no noise: give it a latent of its own, "
                f"Z = pm.Normal('Z', {show(z)}, sigma), and observe {kind.form.format(name=observed.name)}."
            )
        if z.ndim < kind.least_ndim:
            shape = "(n, classes)" if kind.has_classes else "(n,) or (n, outputs)"
            raise NetworkError(f"'{z.name}', which gives the data '{observed.name}', must have shape {shape}.")
        return [(kind(observed.name, folded(self.model.rvs_to_values[observed]), **parameters), z)]

    def _factorised(self, observed: Variable, z: Variable) -> FactorisedLikelihood:
        """Read the likelihood of data whose density PyMC gives, given a last pre-activation."""
        return read_factorised(self.model, observed, z, self.shapes)

    def _outputs_inside(self, observed: Variable) -> list[Variable]:
        """List the last pre-activations on which the distribution of data depends in a way that no other class knows.

        Those are left out that stand, times numbers, in the mean or the location of the data: such a model has a
        closed form if it is written in another way.
        """
        op = observed.owner.op
        if isinstance(op, MinibatchRandomVariable):
            return []
        around = [kind for kinds in NOISY.values() for kind in kinds if kind.has_noise and isinstance(op, kind.rv_type)]
        for kind in around:
            centre, leaves = self._simplified(kind.centre(observed.owner))
            outputs = [leaf for leaf, rv in leaves.items() if self._is_output(rv)]
            parts = [_unindexed(part) for part in summands(centre)]
            if self._products(centre, leaves) or any(
                match_slope(part, z) is not None for part in parts for z in outputs
            ):
                return []
        return [rv for rv in sorted(self.parents[observed], key=lambda rv: rv.name) if self._is_output(rv)]

    def _count(self, z: Variable) -> int:
        """Count the products in the mean of a pre-activation."""
        return len(self._products(*self._simplified(self._normal(z)[0])))

    def _effects(self, z: Variable) -> dict[Variable, tuple[Variable, list[Variable]]]:
        """Find the last latents of other networks that are terms t U of the mean of Z.

        Returns
        -------
        dict of Variable to tuple
            For each latent U the slope t, and the other terms.
        """
        mean, leaves = self._simplified(self._normal(z)[0])
        parts, effects = summands(mean), {}
        for i, part in enumerate(parts):
            for leaf, rv in leaves.items():
                slope = match_slope(part, leaf)
                if slope is not None and z.ndim <= 2 and self._is_output(rv) and self._are_alike(rv, z):
                    effects[rv] = slope, parts[:i] + parts[i + 1 :]
        return effects

    def _are_alike(self, rv: Variable, z: Variable) -> bool:
        """Whether two variables have the same shape, as far as data now tell."""
        value = self.model.rvs_to_values[z]
        shape = evaluate(value).shape if z in self.model.observed_RVs else self.shapes.get(value.name)
        return rv.ndim == z.ndim and (not self.check_data or self._shape(rv) == shape)

    def _effect(self, z: Variable, latent: Variable) -> EffectLikelihood:
        """Read the distribution of Z given the last latent of a network that is a term of its mean."""
        mean, sigma = self._normal(z)
        (slope, others), (_, leaves) = self._effects(z)[latent], self._simplified(mean)
        slope, offset = (self._offset(part, leaves, z, {latent}) for part in ([slope], others))
        value = folded(self.model.rvs_to_values[z])
        rest = value[:, None] if z.ndim == 1 else value
        rest = rest if offset is None else rest - offset
        scale = EffectLikelihood.read_scale(sigma, latent, z, self.variances)
        return EffectLikelihood(z.name, value, slope=slope, rest=rest, **scale)

    def _layer(
        self, z: Variable, number: int | None
    ) -> tuple[Layer, Variable, list[Variable], tuple[Variable, Variable] | None]:
        """Read the layer below Z, and return it with its input x and its variables.

        Of several products in the mean of Z, ``number`` says which one is the layer; all others count as an offset. If
        x are variables of which the layer sees t x + o, the numbers t and o come last; else None.
        """
        mean, sigma = self._normal(z)
        mean, leaves = self._simplified(mean)
        operator, offset, source, members = self._affine(mean, leaves, z, number)
        output = real(self.model.rvs_to_values[z])
        layer = Layer(z.name, operator, output, self._noise(sigma, z), offset)
        if source in leaves:
            source = leaves[source]
            members.append(source)
        elif self._leaves_of([source], leaves):
            [inner, *_] = self._leaves_of([source], leaves)
            if inner in self.inputs:
                [leaf] = (leaf for leaf, rv in leaves.items() if rv is inner)
                if (line := line_of_columns(source, leaf)) is not None:
                    line = tuple(real(part) for part in self.model.replace_rvs_by_values(line))
                    return layer, inner, [*members, inner], line
                raise NetworkError(refusals.changed_inputs(source, inner.name, z.name))
            raise NetworkError(refusals.noiseless_input(source, inner.name, z.name, not self._is_root(inner)))
        return layer, source, members, None

    def _random_inputs(
        self, source: Variable, layer: Layer, z: Variable, line: tuple[Variable, Variable] | None
    ) -> RandomInputs | None:
        """Read the inputs of the first layer, below Z, where they are variables; None where they are anything else.

        Parameters
        ----------
        source, layer, line
            What :meth:`_layer` returned.
        z : Variable
            The pre-activation.
        """
        found = self.inputs.get(source)
        if found is None or (found.measured is not None and self._depends_on_output(found.x)):
            return None
        if not layer.operator.is_product:
            raise NetworkError(refusals.random_inputs_of_images(found.x.name, z.name))
        inputs = read_random_inputs(found, self.model, self.variances, self.wanted)
        return inputs if line is None else replace(inputs, slope=line[0], shift=line[1])

    def _depends_on_output(self, rv: Variable) -> bool:
        """Whether a variable depends on the output of a layer, itself left out."""
        return any(
            self._is_output(parent) or (parent in self.parents and self._depends_on_output(parent))
            for parent in self.parents[rv]
        )

    def _is_root(self, rv: Variable) -> bool:
        """Whether the place of a variable depends on no other one."""
        return not self._parents([self._normal(rv)[0]] if isinstance(rv.owner.op, NormalRV) else rv.owner.inputs)

    def _is_direct(self, layer: Layer, source: Variable) -> bool:
        """Whether a layer takes the output of one below as it is; between two products an activation was forgotten."""
        mean, _ = self._simplified(self._normal(source)[0])
        linear_terms = [linear for term in terms(mean) if (linear := match_linear(term))]
        return bool(linear_terms) and not (layer.operator.is_product and linear_terms[0].kind.is_product)

    def _activation(self, a: Variable) -> tuple[Activation, Variable]:
        """Read the activation of which the noisy post-activation A is the output; return it with Z, its input."""
        mean, sigma = self._normal(a)
        mean, leaves = self._simplified(mean)
        if any(match_scaled_product(term) for term in terms(mean)):
            raise NetworkError(
                f"'{a.name}' enters the next layer without a noisy post-activation: give it one, such as "
                f"A = pm.Normal('A', pm.math.maximum({a.name}, 0), sigma), or, for a linear network, "
                f"A = pm.Normal('A', {a.name}, sigma)."
            )
        inner = self._leaves_of([mean], leaves)
        if len(inner) != 1:
            raise NetworkError(refusals.no_activation(mean, a.name, [rv.name for rv in inner]))
        [(leaf, z)] = [(leaf, rv) for leaf, rv in leaves.items() if rv in inner]
        if z in self.inputs:
            raise NetworkError(refusals.changed_inputs(mean, z.name, a.name))
        if self._is_root(z):
            raise NetworkError(refusals.input_is_variable(a.name, mean))
        try:
            function = read_activation(mean, leaf)
        except NotElementwiseError as error:
            raise NetworkError(
                f"The activation {show(mean)} of '{a.name}' is no elementwise function of '{z.name}' with numbers as "
                f"its coefficients: it holds {error}."
            ) from None
        if self.check_data and self._shape(a) != self._shape(z):
            raise NetworkError(
                f"'{a.name}' must have the shape of '{z.name}', its pre-activation, {self._shape(z)}; found "
                f"{self._shape(a)}."
            )
        return Activation(a.name, self.model.rvs_to_values[a], function, self._noise(sigma, a)), z

    # How the network as a whole is checked

    def _check_use(self, used: list[tuple[Variable, list[Variable]]], free: Sequence[Variable] = ()) -> None:
        """Refuse a network whose parts are used twice or elsewhere, or set its own noise.

        Parameters
        ----------
        used : list of pairs
            Each part with those below it.
        free : sequence of Variable
            Parts whose distribution may depend on those below them in any way.
        """
        members = [member for _, below in used for member in below]
        for child, below in used:
            for member in below:
                if members.count(member) > 1:
                    raise NetworkError(
                        f"'{member.name}' serves twice in the network: give each layer weights and latents of its own."
                    )
                users = self.variances.users(member)
                if users != [child.name]:
                    observed = {rv.name for rv in self.model.observed_RVs}
                    raise NetworkError(refusals.shared(member.name, child.name, users, observed))
            if child in free or not isinstance(child.owner.op, NormalRV):
                continue
            sigma = self._parents([self._normal(child)[1]])
            if sigma & set(members):
                raise NetworkError(
                    f"sigma of '{child.name}' must not depend on the network itself; it depends on "
                    f"{sorted(rv.name for rv in sigma & set(members))}."
                )


def mean_of(rv: Variable) -> Variable:
    """Return the mean of a Normal variable, which may have a transform, as cutpoints in rising order do."""
    return rv.owner.op.dist_params(rv.owner)[0]


def _unindexed(x: Variable) -> Variable:
    """Take away the picking of elements and the reordering of axes around an expression."""
    while x.owner is not None and isinstance(x.owner.op, (DimShuffle, *SUBTENSORS)):
        x = x.owner.inputs[0]
    return x


def starting_point(model: pm.Model) -> dict[str, np.ndarray]:
    """Compute the initial point of a model, by name of the value variables, in a third of the time that PyMC takes.

    PyMC compiles a function for it.
    """
    variables = model.free_RVs
    points = make_initial_point_expression(
        free_rvs=variables,
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies=model.rvs_to_initial_values,
        return_transformed=True,
    )
    values = pytensor.function([], points, mode=AS_WRITTEN)()
    return {model.rvs_to_values[rv].name: np.asarray(x) for rv, x in zip(variables, values, strict=True)}


def _shapes_at_a_point(model: pm.Model) -> dict[str, tuple[int, ...]]:
    """Find the shapes of the value variables by name, from the model's initial point."""
    return {name: value.shape for name, value in starting_point(model).items()}


def _shapes_that_fit(model: pm.Model) -> dict[str, tuple[int, ...]]:
    """Find the shapes of the value variables by name, but for those whose data do not fit together now.

    The shape of a weight is known even then.
    """
    with suppress(ValueError, AssertionError):
        return value_shapes(model, [*model.rvs_to_values])
    shapes = {}
    for rv in model.rvs_to_values:
        with suppress(ValueError, AssertionError):
            shapes |= value_shapes(model, [rv])
    return shapes

r"""Where moves act: on one layer and what lies above it, or on a whole network, in the middle of a sweep.

Most moves are functions

    (rng, site) -> (rng, site),

where ``rng`` is the variable of a random generator and ``site`` is what the move acts on: a :class:`Site` for one
layer, or a :class:`NetworkState` for the whole network. A function takes these and returns them as they are after the
move. :meth:`Move.of` makes a move that also remembers something from sweep to sweep, or reports something: named tuples
of its own. A sweep is a list of moves; :func:`at` lets moves of one layer act on the whole network, and :func:`in_turn`
makes one move of several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.likelihoods import LatentLikelihood
from pymc_gibbsnn.networks.network import Activation, Layer, LearnedVariance, Network

__all__ = ["NOTHING", "Acceptance", "Move", "NetworkState", "Nothing", "Site", "at", "in_turn"]


class Nothing(NamedTuple):
    """What a move remembers, or reports, that remembers or reports nothing."""


NOTHING = Nothing()


class Acceptance(NamedTuple):
    """What a move reports that accepts or rejects: the share of its proposals, or the probability, that it accepted."""

    acceptance: Variable


@dataclass(frozen=True, eq=False)
class Move:
    """A part of a sweep, with what it declares to the sampler that runs it, by the names that a program has for this.

    Attributes
    ----------
    step : callable
        ``step(rng, site, carry) -> (rng, site, carry, stats)``, where ``carry`` and ``stats``, dicts of variables by
        name, are what all moves of the sampler remember, and what this one reports.
    start : dict of str to Variable
        Those entries of the carry that the move reads and writes, with their values at the start of a chain.
    statistics : tuple of str
        Names of the scalars that the move reports.
    tune_steps : int
        How many tuning steps are enough for the move; 0 where nothing is tuned.
    tuned : dict of str to str
        Those entries of the carry that are tuned, with the statistics whose logarithms they are.
    """

    step: Callable
    start: Mapping[str, Variable] = field(default_factory=dict)
    statistics: tuple[str, ...] = ()
    tune_steps: int = 0
    tuned: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        name: str,
        step: Callable,
        memory: tuple = NOTHING,
        report: Any = Nothing,
        tune_steps: int = 0,
        tuned: Mapping[str, str] | None = None,
    ) -> Move:
        """Make a move that remembers something from sweep to sweep, or reports something.

        Parameters
        ----------
        name : str
            The name of the variable that moves. For a program what the field ``x`` holds is called ``x_name``.
        step : callable
            ``step(rng, site, memory) -> (rng, site, memory, report)``.
        memory : NamedTuple
            What the move remembers, as it is at the start of a chain: variables, or named tuples of them. Moves of one
            variable share what has the same name, such as what is computed of data once; they must not change it.
        report : type of NamedTuple
            The class of what the move reports, in which all fields are scalars.
        tune_steps : int
            How many tuning steps are enough for the move; 0 where nothing is tuned.
        tuned : dict of str to str, optional
            The fields of the memory that are tuned, with the fields of the report whose logarithms they are.
        """

        def by_name(rng: Variable, site: Site | NetworkState, carry: dict) -> tuple:
            rng, site, kept, stats = step(rng, site, _filled(memory, name, carry))
            return rng, site, carry | _named(kept, name), _named(stats, name)

        pairs = {f"{entry}_{name}": f"{statistic}_{name}" for entry, statistic in (tuned or {}).items()}
        statistics = tuple(f"{statistic}_{name}" for statistic in report._fields)
        return cls(by_name, _named(memory, name), statistics, tune_steps, pairs)


def _named(record: Any, name: str) -> dict[str, Variable]:
    """Return the variables of a named tuple by the names that a program has for them."""
    variables = {}
    for key, value in record._asdict().items():
        variables |= _named(value, name) if isinstance(value, tuple) else {f"{key}_{name}": value}
    return variables


def _filled(record: Any, name: str, carry: Mapping[str, Variable]) -> Any:
    """Return a named tuple like this one, of variables that have these names in the carry."""
    return record._replace(
        **{
            key: _filled(value, name, carry) if isinstance(value, tuple) else carry[f"{key}_{name}"]
            for key, value in record._asdict().items()
        }
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Site:
    """A layer with its input and output and, unless it is the last, its activation and the layer above it.

    The letters are those of :mod:`pymc_gibbsnn.moves`. Where the layer above takes Z as it is, there is no activation,
    and A' is Z.

    Attributes
    ----------
    layer : Layer
        The layer, with Z = M + N(0, ΔZ) and M = Ã W̃ᵀ + offset.
    a : Variable, (n, inputs)
        Its input A.
    w : Variable, (h, d)
        Its weights W̃, the bias included.
    mean, z : Variable, (n, h)
        M and its output Z.
    activation : Activation, optional
        The activation, with A' = σ(Z) + N(0, ΔA).
    post : Variable, (n, h), optional
        Post-activations A', the input of the layer above. Whoever integrates A' out leaves None, so that no move can
        read what is out of date: A' is drawn first.
    above : Layer, optional
        The layer above.
    w_above : Variable, optional
        Its weights, the bias included.
    z_above : Variable, (n, c), optional
        Its output, or the data.
    samples : Variable, ()
        The number n of samples, taken from the shape of the data.
    tuning : Variable, ()
        The share of the tuning that is still to come; 0 after tuning.
    squares : tuple of Variable, (h,) each, optional
        The sums of ``noise``, where a move has computed them already.
    observation : LatentLikelihood, optional
        The likelihood of data that are drawn given Z, if the layer is the last one and Z is not observed itself.
    data_squares : Variable, (), optional
        The sum of the squared noises that the data have beside that of Z, as the move that drew Z left it.
    variances : dict of str to LearnedVariance
        The learned variances that are the noise of one variable alone, by the names of these variables.
    drawn : dict of Variable to Variable
        Values of those that moves of the site have changed.
    """

    layer: Layer
    a: Variable
    w: Variable
    mean: Variable
    z: Variable
    activation: Activation | None
    post: Variable | None
    above: Layer | None
    w_above: Variable | None
    z_above: Variable | None
    samples: Variable
    tuning: Variable
    squares: tuple[Variable, Variable] | None = None
    observation: LatentLikelihood | None = None
    data_squares: Variable | None = None
    variances: Mapping[str, LearnedVariance] = field(default_factory=dict)
    drawn: Mapping[Variable, Variable] = field(default_factory=dict)

    @cached_property
    def v(self) -> Variable:
        """W (c, h): the matrix by which A' enters the layer above."""
        return self.above.operator.linear(self.w_above)

    @cached_property
    def y(self) -> Variable:
        """Y (n, c): the output of the layer above less its offset and bias, so that Y = A' Wᵀ + noise."""
        return self.above.centred(self.z_above) - self.above.operator.intercept(self.w_above)

    @cached_property
    def gain(self) -> Variable:
        """G = S⁻¹ W (c, h), where S = ΔZ' I + ΔA W Wᵀ is the covariance of Y given Z, and ΔZ' the noise above."""
        return self.above.operator.gain(self.v, self.activation.noise, self.above.noise)

    def with_weights(self, w: Variable, z: Variable) -> Site:
        """Return the site with other W̃ and Z, the noise of Z as it was, and A' integrated out."""
        return replace(self, w=w, mean=self.mean + (z - self.z), z=z, post=None)

    @property
    def noise(self) -> tuple[Variable, Variable]:
        """The sums over samples Σ (Z − M)² and Σ (A' − σ(Z))² of each unit, (h,) each."""
        if self.squares is not None:
            return self.squares
        by_unit, function = self.layer.operator.by_unit, self.activation.function
        return by_unit((self.z - self.mean) ** 2), by_unit((self.post - function(self.z)) ** 2)

    def with_noise(self, noises: Mapping[str, Variable]) -> Site:
        """Return the site with other variances of noise, by the names of the variables that have it."""
        parts: tuple[Any, ...] = self.layer, self.activation, self.above
        layer, activation, above = (replace(part, noise=noises.get(part.name, part.noise)) for part in parts)
        drawn = {self.variances[name].value: self.variances[name].value_at(noise) for name, noise in noises.items()}
        return replace(self, layer=layer, activation=activation, above=above, drawn={**self.drawn, **drawn})


@dataclass(frozen=True, eq=False, kw_only=True)
class NetworkState:
    """A network in the middle of a sweep, with its weights and latents as matrices.

    Where rows have scales of their own, inputs, latents and data are those of a network of equal rows, divided by them.

    Attributes
    ----------
    read : callable
        A function from the values of the model's variables to the network whose noise variances, prior precisions and
        offsets are those at these values.
    values : dict of Variable to Variable
        Values of all variables of the model; those of this network are the ones from before the sweep.
    network : Network
        What ``read`` returned for these values.
    weights : tuple of Variable
        W̃ of every layer, with the bias.
    outputs : tuple of Variable
        Z of every layer, (n, h) each; the data for the last one of a regression.
    posts : tuple of Variable
        Post-activations A of every hidden layer, (n, h) each; its output Z where there is no activation. None where A
        was integrated out and has not been drawn since.
    tuning : Variable, ()
        The share of the tuning that is still to come; 0 after tuning.
    squares : dict of str to Variable
        The sum of the squared noise of each latent and of the data, by their names, as the moves left it.
    densities : dict of str to Variable
        Log densities of the variances and precisions that were drawn in this sweep, by their names.
    """

    read: Callable[[dict[Variable, Variable]], Network]
    values: dict[Variable, Variable]
    network: Network
    weights: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    posts: tuple[Variable, ...]
    tuning: Variable
    squares: dict[str, Variable] = field(default_factory=dict)
    densities: dict[str, Variable] = field(default_factory=dict)

    @classmethod
    def begin(cls, read: Callable, values: dict[Variable, Variable], tuning: Variable) -> NetworkState:
        """Make the state before a sweep, from ``read``, ``values`` and ``tuning``, which the class describes."""
        network = read(values)

        def in_rows(layer: Layer, z: Variable) -> Variable:
            z = layer.operator.rows(z)
            return z if network.row_scale is None else z / network.row_scale

        outputs = [in_rows(layer, pt.as_tensor(values.get(layer.output, layer.output))) for layer in network.layers]
        posts = [
            in_rows(layer, values[activation.output]) if activation else z
            for layer, activation, z in zip(network.layers, network.activations, outputs, strict=False)
        ]
        return cls(
            read=read,
            values=values,
            network=network,
            weights=tuple(layer.operator.matrix(values) for layer in network.layers),
            outputs=tuple(outputs),
            posts=tuple(posts),
            tuning=tuning,
        )

    @property
    def samples(self) -> Variable:
        """The number n of samples, taken from the shape of the data."""
        return self.network.inputs.shape[0]

    def input(self, l: int) -> Variable:
        """The input A of layer l: the data for the first layer, l = 0, and post-activations for the others."""
        return self.posts[l - 1] if l else self.network.inputs

    def site(self, l: int) -> Site:
        """Layer l with what lies above it, as a site for moves of one layer."""
        layers, hidden = self.network.layers, l < len(self.network.activations)
        a, w = self.input(l), self.weights[l]
        return Site(
            layer=layers[l],
            a=a,
            w=w,
            mean=layers[l].mean(a, w),
            z=self.outputs[l],
            activation=self.network.activations[l] if hidden else None,
            post=self.posts[l] if hidden else None,
            above=layers[l + 1] if hidden else None,
            w_above=self.weights[l + 1] if hidden else None,
            z_above=self.outputs[l + 1] if hidden else None,
            samples=self.samples,
            tuning=self.tuning,
            observation=None if hidden else self.network.observation,
            variances=self.network.own_variances,
        )

    def put(self, l: int, site: Site) -> NetworkState:
        """Return the state in which the values of layer l are those of a site that moves have changed."""
        weights, outputs, posts = list(self.weights), list(self.outputs), list(self.posts)
        weights[l], outputs[l] = site.w, site.z
        if site.above is not None:
            posts[l], weights[l + 1] = site.post, site.w_above
        if site.activation is None:
            squares = {site.layer.name: ((site.z - site.mean) ** 2).sum()}
            if site.data_squares is not None:
                squares[site.observation.name] = site.data_squares
        elif site.post is None:
            squares = {}
        else:
            of_z, of_a = site.noise
            squares = {site.layer.name: of_z.sum(), site.activation.name: of_a.sum()}
        values, network = self.values, self.network
        if site.drawn:
            values = values | site.drawn
            network = self.read(values)
        return replace(
            self,
            values=values,
            network=network,
            weights=tuple(weights),
            outputs=tuple(outputs),
            posts=tuple(posts),
            squares=self.squares | squares,
        )

    @property
    def noise(self) -> dict[str, tuple[Variable, Variable]]:
        """For each latent and the data, by name: the sum of their squared noises, and how many noises these are."""
        return {part.name: (self.squares[part.name], self._count(part)) for part in self.network.noisy}

    def _count(self, part: Layer | Activation | LatentLikelihood) -> Variable:
        """Count the numbers that a latent holds, or data around the last one, which are as many."""
        output = self.network.layers[-1].output if isinstance(part, LatentLikelihood) else part.output
        return pt.cast(math.prod(tuple(output.shape)), self.network.inputs.dtype)

    @property
    def new_values(self) -> dict[Variable, Variable]:
        """Values of all variables of the model after the moves, in the shapes that the user gave them."""
        new, layers, scale = {}, self.network.layers, self.network.row_scale

        def written(layer: Layer, z: Variable, ndim: int) -> Variable:
            return layer.operator.written(z if scale is None else z * scale, ndim)

        for layer, activation, a in zip(layers, self.network.activations, self.posts, strict=False):
            if activation:
                new[activation.output] = written(layer, a, activation.output.ndim)
        for layer, w, z in zip(layers, self.weights, self.outputs, strict=True):
            new |= layer.operator.values(w)
            if layer.output in self.values:
                new[layer.output] = written(layer, z, layer.output.ndim)
        return self.values | new


def in_turn(*moves: Move | Callable) -> Move:
    """Make one move out of several that act on the same kind of site; they are made one after the other."""
    parts = [move if isinstance(move, Move) else _of_function(move) for move in moves]

    def step(rng: Variable, site: Site | NetworkState, carry: dict) -> tuple:
        stats = {}
        for part in parts:
            rng, site, carry, of_part = part.step(rng, site, carry)
            stats |= of_part
        return rng, site, carry, stats

    start = {name: value for part in parts for name, value in part.start.items()}
    statistics = tuple(name for part in parts for name in part.statistics)
    tuned = {name: statistic for part in parts for name, statistic in part.tuned.items()}
    return Move(step, start, statistics, max((part.tune_steps for part in parts), default=0), tuned)


def _of_function(function: Callable) -> Move:
    """Make a move that remembers and reports nothing."""
    return Move(lambda rng, site, carry: (*function(rng, site), carry, {}))


def at(l: int, *moves: Move | Callable) -> Move:
    """Make a move of a network that makes the given moves of its layer l, one after the other."""
    inner = in_turn(*moves)

    def step(rng: Variable, state: NetworkState, carry: dict) -> tuple:
        rng, site, carry, stats = inner.step(rng, state.site(l), carry)
        return rng, state.put(l, site), carry, stats

    return replace(inner, step=step)

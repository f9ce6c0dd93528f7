r"""Where moves act: on one layer and what lies above it, or on a whole network, in the middle of a sweep.

A move of the sweep is a map

    (rng, site, carry) -> (rng, site, carry, stats)

of a random generator, what it moves, what moves remember from sweep to sweep, and what it reports. A sweep is a list of
moves; :func:`at` brings a move of one layer to the whole network, :func:`in_turn` makes one move of several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.network import Activation, Layer, Network

__all__ = ["Move", "NetworkState", "Site", "at", "in_turn"]


@dataclass(frozen=True, eq=False)
class Move:
    """A part of a sweep, with what it declares to whoever runs it.

    Attributes
    ----------
    step : callable
        ``step(rng, site, carry) -> (rng, site, carry, stats)``; the site is a :class:`Site` or a
        :class:`NetworkState`, carry and stats map names to expressions.
    start : dict of str to Variable
        Its entries of the carry at the start of a chain, by names that hold the weights' name. Moves may share one.
    statistics : tuple of str
        Names of what it reports, each a scalar.
    tune_steps : int
        How many tuning steps are enough; 0 where nothing is tuned.
    """

    step: Callable
    start: Mapping[str, Variable] = field(default_factory=dict)
    statistics: tuple[str, ...] = ()
    tune_steps: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Site:
    """A layer with its input and output and, unless it is the last, the activation and the layer above it.

    Attributes
    ----------
    layer : Layer
        Z = M + N(0, ΔZ), M = Ã W̃ᵀ + offset.
    a, w, mean, z : Variable
        A (n, d), W̃, M and Z (n, h).
    activation : Activation, optional
        A' = σ(Z) + N(0, ΔA).
    post : Variable, optional
        A' (n, h), the input of the layer above; out of date after Z was drawn with A' integrated out.
    above : Layer, optional
    w_above, z_above : Variable, optional
        W̃' and Z' (n, c) of the layer above, or the data.
    samples : Variable
        n, asked of the data.
    tuning : Variable
        Share of the tuning still to come.
    squares : tuple of Variable, optional
        Squared noise of each unit's Z and A' where a move knows it: see ``noise``.
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

    @cached_property
    def v(self) -> Variable:
        """W' (c, h): the matrix by which A' enters the layer above."""
        return self.above.operator.linear(self.w_above)

    @cached_property
    def y(self) -> Variable:
        """Y (n, c), what A' is to explain: Z' less offset and bias."""
        return self.above.centred(self.z_above) - self.above.operator.intercept(self.w_above)

    @cached_property
    def gain(self) -> Variable:
        """G = S⁻¹ W' (c, h), S = ΔZ' I + ΔA W' W'ᵀ the covariance of Y given Z."""
        return self.above.operator.gain(self.v, self.activation.noise, self.above.noise)

    @property
    def noise(self) -> tuple[Variable, Variable]:
        """Σ (Z − M)² and Σ (A' − σ(Z))² of each unit, (h,)."""
        if self.squares is not None:
            return self.squares
        by_unit, function = self.layer.operator.by_unit, self.activation.function
        return by_unit((self.z - self.mean) ** 2), by_unit((self.post - function(self.z)) ** 2)


@dataclass(frozen=True, eq=False, kw_only=True)
class NetworkState:
    """A network with its weights and latents as matrices.

    Attributes
    ----------
    read : callable
        From values of the model's variables to the network with its noises, precisions and offsets there.
    values : dict of Variable to Variable
        Values of all variables of the model, this network's as they were before the sweep.
    network : Network
        ``read`` at the values.
    weights, outputs, posts : tuple of Variable
        W̃ and Z (or the data) of every layer, A of every hidden layer.
    tuning : Variable
        Share of the tuning still to come.
    squares : dict of str to Variable
        Σ squared noise by the names of latents and data, as moves leave it.
    densities : dict of str to Variable
        Log densities of variances and precisions that were drawn, by their names.
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
        """The state before a sweep; see the attributes."""
        network = read(values)
        return cls(
            read=read,
            values=values,
            network=network,
            weights=tuple(layer.operator.matrix(values) for layer in network.layers),
            outputs=tuple(
                layer.operator.rows(pt.as_tensor(values.get(layer.output, layer.output))) for layer in network.layers
            ),
            posts=tuple(values[activation.output] for activation in network.activations),
            tuning=tuning,
        )

    @property
    def samples(self) -> Variable:
        """Their number, asked of the data."""
        return self.network.inputs.shape[0]

    def input(self, l: int) -> Variable:
        """A of layer l."""
        return self.posts[l - 1] if l else self.network.inputs

    def site(self, l: int) -> Site:
        """Layer l and what lies above it."""
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
        )

    def put(self, l: int, site: Site) -> NetworkState:
        """The state with what moves have made of layer l."""
        weights, outputs, posts = list(self.weights), list(self.outputs), list(self.posts)
        weights[l], outputs[l] = site.w, site.z
        if site.activation is None:
            squares = {site.layer.name: ((site.z - site.mean) ** 2).sum()}
        else:
            posts[l], weights[l + 1] = site.post, site.w_above
            squares = {part.name: x.sum() for part, x in zip((site.layer, site.activation), site.noise, strict=True)}
        return replace(
            self, weights=tuple(weights), outputs=tuple(outputs), posts=tuple(posts), squares=self.squares | squares
        )

    @property
    def noise(self) -> dict[str, tuple[Variable, Variable]]:
        """The sum and the number of squared noises by the names of latents and data."""
        n = pt.cast(self.samples, self.network.inputs.dtype)
        return {name: (self.squares[name], n * width) for name, width in self.network.noisy}

    @property
    def new_values(self) -> dict[Variable, Variable]:
        """Values of all variables of the model after the moves, in the shapes the user gave them."""
        new = {activation.output: a for activation, a in zip(self.network.activations, self.posts, strict=True)}
        for layer, w, z in zip(self.network.layers, self.weights, self.outputs, strict=True):
            new |= layer.operator.values(w)
            if layer.output in self.values:
                new[layer.output] = layer.operator.written(z, layer.output.ndim)
        return self.values | new


def in_turn(*moves: Move) -> Move:
    """One move of several of the same kind, which are made one after the other."""

    def step(rng: Variable, site: Site | NetworkState, carry: dict) -> tuple:
        stats = {}
        for move in moves:
            rng, site, carry, found = move.step(rng, site, carry)
            stats |= found
        return rng, site, carry, stats

    start = {name: value for move in moves for name, value in move.start.items()}
    statistics = tuple(name for move in moves for name in move.statistics)
    return Move(step, start, statistics, max((move.tune_steps for move in moves), default=0))


def at(l: int, *moves: Move) -> Move:
    """A move of a network that makes these moves of its layer l in turn."""
    inner = in_turn(*moves)

    def step(rng: Variable, state: NetworkState, carry: dict) -> tuple:
        rng, site, carry, stats = inner.step(rng, state.site(l), carry)
        return rng, state.put(l, site), carry, stats

    return replace(inner, step=step)

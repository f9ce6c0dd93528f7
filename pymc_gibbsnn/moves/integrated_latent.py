r"""Moves with the last latent integrated out, where data are Gaussian in it given auxiliary variables.

Model, elementwise, in the letters of :mod:`pymc_gibbsnn.moves` and of
:mod:`pymc_gibbsnn.networks.likelihoods.conditionally_gaussian`, for the last layer

    Z = M + N(0, ΔZ),   p(y | Z, ω) ∝ exp(h Z − p Z²/2).

With Z integrated out, t = h/p is an observation of M with the variance V = ΔZ + 1/p, which differs from datum to datum.
Weights and activations then move by larger steps than given Z, which is known to within ΔZ.

Moves that ask for one variance for all data get it in this way. The noise of each datum is taken as the sum of two
parts, of which the first has the smallest of the variances, Δ* = min V:

    U = M + N(0, Δ*),   t = U + N(0, V − Δ*).

This fills in the data in another way than Z does, and leaves the distribution of everything else as it is. Δ* is larger
than ΔZ. U is drawn given M, and those moves read U and Δ* in place of Z and ΔZ:

    U | M, ω ~ N(M + k (t − M), Δ* (1 − k)),   k = Δ*/V.

Whatever reads U is done when the other moves begin, and Z is drawn given M after them [1]_.

References
----------
.. [1] D. A. van Dyk, T. Park. Partially collapsed Gibbs samplers. JASA 103 (2008).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import normal

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.row_scales import other_network
from pymc_gibbsnn.moves.site import Move, NetworkState, in_turn
from pymc_gibbsnn.networks.likelihoods.conditionally_gaussian import ConditionallyGaussian
from pymc_gibbsnn.networks.likelihoods.row_noise import RowNoise
from pymc_gibbsnn.networks.network import Network

__all__ = ["draw_shared", "last_latent_integrated", "other_last_latent_integrated"]

LEAST = 1e-12  # of ΔZ p: what a datum tells below that is lost to rounding


def last_latent_integrated(shared: Sequence[Move | Callable], by_row: Sequence[Move | Callable]) -> Move:
    """Make moves of a network with its last latent integrated out, and then draw this latent.

    Parameters
    ----------
    shared : sequence of Move or callable
        Moves that read U and Δ* in place of Z and ΔZ.
    by_row : sequence of Move or callable
        Moves after these, which read t and V (n, 1); the network must have a single output.
    """
    first, second = in_turn(*shared), in_turn(*by_row)
    whole = in_turn(first, second)

    def step(rng: Variable, state: NetworkState, carry: dict) -> tuple:
        read, observation = state.read, cast(ConditionallyGaussian, state.network.observation)
        noise = state.network.layers[-1].noise
        mean = _mean(state)
        rng, term = observation.draw_term(rng, state.outputs[-1], mean, noise)
        precision = pt.maximum(term.precision, LEAST / noise)
        data, variance = term.linear / precision, noise + 1 / precision

        rng, u, least = draw_shared(rng, mean, data, variance)
        rng, state, carry, stats = first.step(rng, _observed_as(state, read, u, least), carry)
        if by_row:
            rng, state, carry, more = second.step(rng, _observed_as(state, read, data, variance), carry)
            stats |= more

        state = replace(state, read=read, network=read(state.values))
        mean, layer = _mean(state), state.network.layers[-1]
        rng, z, squares = observation.draw_given_term(rng, mean, layer.noise, term)
        known = {layer.name: ((z - mean) ** 2).sum()}
        if squares is not None:
            known[observation.name] = squares
        state = replace(state, outputs=(*state.outputs[:-1], z), squares=state.squares | known)
        return rng, state, carry, stats

    return replace(whole, step=step)


def other_last_latent_integrated(*moves: Move | Callable) -> Move:
    """Make moves of a network that sets the noise of another, whose last latent is integrated out, and then drawn.

    Divided by the scale c of each row, the other network is that of the model above. With its Z integrated out, c t is
    an observation of c M with the variance c² V, so that these moves see a network whose last layer is observed.

    Parameters
    ----------
    *moves : Move or callable
        Moves that read c t and V in place of data and their variance. They may change the variance of the other data.
    """
    whole = in_turn(*moves)

    def step(rng: Variable, state: NetworkState, carry: dict) -> tuple:
        read, network = state.read, state.network.sets_noise_of
        scale = pt.sqrt(cast(RowNoise, state.network.observation).squared_scale(state.outputs[-1]))
        equal = replace(network, row_scale=scale).of_equal_rows()
        rows = NetworkState.begin(lambda values: equal, state.values, state.tuning)
        observation, noise = cast(ConditionallyGaussian, equal.observation), equal.layers[-1].noise
        rng, term = observation.draw_term(rng, rows.outputs[-1], _mean(rows), noise)
        precision = pt.maximum(term.precision, LEAST / noise)
        data = scale * term.linear / precision

        def variance_and_precision(network: Network) -> tuple[Variable, Variable]:
            """Return ΔZ and p, which falls as the variance of the noise of y rises."""
            return network.layers[-1].noise, precision * observation.noise / network.observation.noise

        def read_so(values: dict[Variable, Variable]) -> Network:
            new = read(values)
            other = new.sets_noise_of
            noise, p = variance_and_precision(other)
            last = replace(other.layers[-1], output=data, noise=noise + 1 / p)
            other = replace(other, layers=(*other.layers[:-1], last), observation=None)
            return replace(new, observation=replace(cast(RowNoise, new.observation), network=other))

        state = replace(state, read=read_so, network=read_so(state.values))
        rng, state, carry, stats = whole.step(rng, state, carry)

        state = replace(state, read=read, network=read(state.values))
        other = other_network(state)
        squared = cast(RowNoise, state.network.observation).squared_scale(state.outputs[-1])
        noise, p = variance_and_precision(other.network)
        mean, total = _mean(other), 1 / noise + p
        rng, xi = draw(normal, rng, 0.0, 1.0, size=mean.shape)
        z = (mean / noise + p * data) / total + pt.sqrt(squared / total) * pt.cast(xi, mean.dtype)
        other = replace(other, outputs=(*other.outputs[:-1], z))
        return rng, replace(state, values=other.new_values), carry, stats

    return replace(whole, step=step)


def draw_shared(
    rng: Variable, mean: Variable, data: Variable, variance: Variable
) -> tuple[Variable, Variable, Variable]:
    """Draw U given the observations t of its mean M.

    Parameters
    ----------
    rng : Variable
        The random generator.
    mean : Variable, (n, units)
        M.
    data, variance : Variable, (n, units)
        t and the variances V of t around M.

    Returns
    -------
    rng : Variable
    u : Variable, (n, units)
    least : Variable, ()
        Δ*, the variance of U around M.
    """
    least = variance.min()
    k = pt.minimum(least / variance, 1)  # which rounding may exceed
    rng, xi = draw(normal, rng, 0.0, 1.0, size=mean.shape)
    return rng, mean + k * (data - mean) + pt.sqrt(least * (1 - k)) * pt.cast(xi, mean.dtype), least


def _observed_as(state: NetworkState, read: Callable, output: Variable, noise: Variable) -> NetworkState:
    """Return the state of a network whose last layer has another output and noise, whatever moves change.

    Parameters
    ----------
    state : NetworkState
        The state.
    read : callable
        A function from the values of the model's variables to the network.
    output : Variable, (n, units)
        What stands in the place of Z.
    noise : Variable, () or (n, 1)
        What stands in the place of ΔZ.
    """

    def read_so(values: dict[Variable, Variable]) -> Network:
        network = read(values)
        *layers, last = network.layers
        # A learned ΔZ is no longer the noise of the last layer, and not to be drawn as such
        others = tuple(one for one in network.variances if all(use.part != last.name for use in one.uses))
        return replace(network, layers=(*layers, replace(last, noise=noise)), variances=others)

    return replace(state, read=read_so, network=read_so(state.values), outputs=(*state.outputs[:-1], output))


def _mean(state: NetworkState) -> Variable:
    """Compute M of the last layer."""
    return state.network.layers[-1].mean(state.input(len(state.posts)), state.weights[-1])

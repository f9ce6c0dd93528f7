r"""Heat: more noise while a chain tunes, so that it finds its way to equilibrium from a start that says nothing.

A chain that starts from weights of zero at a small noise Δ falls into the first valley that it meets, where one hidden
unit does the work of two, say, and stays there. With more noise valleys are shallow. Let r be the hottest variance and
u, from 1 to 0, the share of a fall that is still to come; then a variance is

    Δ(u) = max(Δ, f r u⁶),

which falls from f r, where f is the factor of the fall, to its own value: fast where noise is larger than what there is
to learn, slowly between a tenth and a thousandth of r, where hidden units take their places, and fast again where they
have them. Noise that is drawn itself is
left alone. One fall may end in the wrong valley. So the tuning steps are divided into several falls: the first one from
r, and further ones from less, which is enough for units to change places and too little to forget all. At the end of
each fall the noise keeps its own value for a while, in which the log density of the network is averaged; the weights
of the best fall so far go on, and at last those of the best one of all. Each chain compares its own states alone, so
that chains stay independent of one another, and nothing of this happens after tuning.

References
----------
.. [1] S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi. Optimization by simulated annealing. Science 220 (1983).
.. [2] A. Möbius, A. Neklioudov, A. Díaz-Sánchez, K. H. Hoffmann, A. Fachat, M. Schreiber. Optimization by thermal
   cycling. Phys. Rev. Lett. 79 (1997).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.given import given
from pymc_gibbsnn.networks.network import Activation, Layer, Network

__all__ = ["FALLS", "ONE_FALL", "TWICE_ABOVE", "Fall", "Heat", "heated"]


@dataclass(frozen=True)
class Fall:
    """One fall of the noise: its share of the tuning steps, its factor f, and the part of them that comes after it."""

    share: float
    factor: float
    rest: float


# Entries of the carry: the log density; the number of the fall; sum and count of the log densities at rest after it;
# whether the chain is heated, -1 before that is known; and the mean log density after the best fall
NUMBERS = dict.fromkeys(["heat_lp", "heat_fall", "heat_sum", "heat_count"], 0.0)
NUMBERS |= {"heat_is_on": -1.0, "heat_best": -np.inf}

FALLS = (Fall(0.45, 0.3, 0.05), Fall(0.45, 0.1, 0.1), Fall(0.1, 0.0, 1.0))
POWER = 6  # of u in the law of a fall
TWICE_ABOVE = 0.55  # the first fall, on which most depends, makes two sweeps a tuning step
ONE_FALL = (Fall(1.0, 1.0, 0.0),)


TUNE_STEPS, ANNEAL_STEPS = 1000, 2000  # how many tuning steps the falls need, and a single one


@dataclass(frozen=True, eq=False)
class Moment:
    """What the schedule says at one sweep: the number of the fall, its factor f, u, and whether it is at rest."""

    number: Variable
    factor: Variable
    to_come: Variable
    rests: Variable


@dataclass(frozen=True, eq=False)
class Heat:
    """The heat of the networks of a model.

    Parameters
    ----------
    networks : sequence of Network
        The networks.
    hottest : float, optional
        The variance r. By default it is the larger of the mean squares of the inputs and, for a regression, of the
        targets, which is about the prior variance of pre-activations; and only chains that start with all weights at 0
        are heated, because any other start was chosen by the user.
    falls : sequence of Fall
        The falls.
    """

    networks: Sequence[Network]
    hottest: float | None
    falls: Sequence[Fall]

    @property
    def tune_steps(self) -> int:
        """How many tuning steps are enough."""
        return TUNE_STEPS if self.hottest is None else ANNEAL_STEPS

    @property
    def start(self) -> dict[str, Variable]:
        """The entries of the carry, with their values at the start of a chain."""
        dtype = self.networks[0].inputs.dtype
        number = {name: pt.constant(np.asarray(x, dtype)) for name, x in NUMBERS.items()}
        states = {f"{when}_{v.name}": x for when in ("last", "best") for v, x in self._zeros().items()}
        hottest = pt.minimum(pt.cast(self._hottest(), dtype), np.finfo(dtype).max)  # squares may overflow
        return number | {"heat_hottest": hottest} | (states if len(self.falls) > 1 else {})

    def _hottest(self) -> Variable:
        """Compute r, or write what the user gave."""
        if self.hottest is not None:
            return pt.constant(self.hottest)
        squares = [(network.inputs**2).mean() for network in self.networks]
        squares += [
            (pt.as_tensor(network.observed) ** 2).mean() for network in self.networks if not network.observation
        ]
        return pt.stack(squares).max()

    def _zeros(self) -> dict[Variable, Variable]:
        """Return zeros for all that is kept of a state: weights, and variances that are drawn."""
        found = {}
        for network in self.networks:
            for operator in (layer.operator for layer in network.layers):
                if operator.variables:
                    found |= operator.values(pt.zeros(operator.size, dtype=network.inputs.dtype))
            found |= {scale.value: given(np.zeros(scale.shape, network.inputs.dtype)) for scale in network.variances}
        return found

    def at(self, tuning: Variable) -> Moment:
        """Read the schedule at the share of the tuning that is still to come."""
        ends = np.cumsum([fall.share for fall in self.falls])
        starts, done = ends - [fall.share for fall in self.falls], 1 - tuning
        number = pt.ge(done, pt.constant(ends[:-1])).sum()

        def of_fall(values: Sequence[float]) -> Variable:
            return pt.constant(np.asarray(values, "float64"))[number]

        span = of_fall([fall.share * (1 - fall.rest) or 1.0 for fall in self.falls])
        to_come = 1 - (done - of_fall(starts)) / span
        factor = of_fall([fall.factor for fall in self.falls])
        return Moment(number, factor, pt.clip(to_come, 0, 1) * pt.gt(tuning, 0), pt.le(to_come, 0) | pt.eq(factor, 0))

    def is_on(self, values: dict[Variable, Variable], carry: dict[str, Variable]) -> Variable:
        """Whether this chain is heated, 1 or 0: if the user gave a variance, or if it starts with all weights 0."""
        if self.hottest is not None:
            return pt.ones_like(carry["heat_is_on"])
        weights = [values[v] for network in self.networks for v in network.weights]
        is_zero = pt.all(pt.stack([pt.eq(w, 0).all() for w in weights]))
        return pt.switch(carry["heat_is_on"] < 0, pt.cast(is_zero, carry["heat_is_on"].dtype), carry["heat_is_on"])

    def tune(self, rng: Variable, values: dict, carry: dict, tuning: Variable) -> tuple[None, dict, dict]:
        """After a sweep of a tuning step: average the log density of a fall at rest, and go on from the best one.

        Parameters
        ----------
        rng : Variable
            The random generator, which is not used.
        values : dict of Variable to Variable
            The values of the model's variables.
        carry : dict of str to Variable
            The carry.
        tuning : Variable, ()
            The share of the tuning that is still to come.

        Returns
        -------
        rng : None
        values, carry : dict
            What changes.
        """
        now, dtype = self.at(tuning), carry["heat_lp"].dtype
        kept = list(self._zeros())
        last, best = ({v: carry[f"{when}_{v.name}"] for v in kept} for when in ("last", "best"))
        ends = pt.gt(now.number, carry["heat_fall"]) & (carry["heat_count"] > 0) & (carry["heat_is_on"] > 0)
        score = carry["heat_sum"] / pt.maximum(carry["heat_count"], 1)
        is_better = ends & (score > carry["heat_best"])
        is_worse = ends & ~is_better & pt.gt(carry["heat_best"], -np.inf)
        best = {v: pt.switch(is_better, last[v], best[v]) for v in kept}
        changed = {v: pt.switch(is_worse, best[v], values[v]) for v in kept}
        for network in self.networks:
            for latent, x in _without_noise(network, values | changed).items():
                changed[latent] = pt.switch(is_worse, x, values[latent])
        begins, rests = pt.gt(now.number, carry["heat_fall"]), pt.cast(now.rests, dtype)
        numbers = {
            "heat_fall": pt.cast(now.number, dtype),
            "heat_sum": pt.switch(begins, 0, carry["heat_sum"]) + rests * carry["heat_lp"],
            "heat_count": pt.switch(begins, 0, carry["heat_count"]) + rests,
            "heat_best": pt.switch(is_better, score, carry["heat_best"]),
        }
        last = {v: pt.switch(now.rests, changed[v], last[v]) for v in kept}
        states = {f"last_{v.name}": x for v, x in last.items()} | {f"best_{v.name}": x for v, x in best.items()}
        return None, changed, {name: pt.cast(x, dtype) for name, x in numbers.items()} | states


def _without_noise(network: Network, values: dict[Variable, Variable]) -> dict[Variable, Variable]:
    """Compute latents that have no noise at all, given the weights; a last one that data depend on is left out."""
    network, found = network.at(values), {}
    a = network.inputs
    for layer, activation in zip(network.layers, network.activations, strict=False):
        operator = layer.operator
        z = a = layer.mean(a, operator.matrix(values))
        found[layer.output] = operator.written(z, layer.output.ndim)
        if activation is not None:
            a = activation.function(z)
            found[activation.output] = operator.written(a, activation.output.ndim)
    return found


def heated(network: Network, hottest: Variable, share: Variable) -> Network:
    """Return the network with every Δ that is not drawn itself replaced by max(Δ, r u⁶), where u is the share."""
    drawn = {use.part for variance in network.variances for use in variance.uses}

    def hotter(part: Layer | Activation | None) -> Layer | Activation | None:
        if part is None or part.name in drawn:
            return part
        noise = pt.maximum(part.noise, hottest * share**POWER)
        return replace(part, noise=pt.cast(noise, part.noise.dtype))

    return replace(
        network, layers=tuple(map(hotter, network.layers)), activations=tuple(map(hotter, network.activations))
    )

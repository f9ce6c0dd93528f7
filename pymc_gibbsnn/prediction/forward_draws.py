r"""Draws of what a model observes at new rows, forwards through its latents, for each draw of a posterior.

Given weights and variances θ, latents are drawn in their order: pre-activations Z ~ N(A Wᵀ + b, ΔZ), post-activations
A ~ N(σ(Z), ΔA), and at last y. Three things make this quick for millions of rows and draws; none is an approximation.

Last post-activations, which enter the mean of what comes next linearly, are integrated out. Their noise adds to it

    sqrt(ΔA) ε Wᵀ ~ N(0, ΔA W Wᵀ),   which is   sqrt(ΔA) ε′ R   with   Wᵀ = Q R,

and needs one number ε′ for each output in place of one for each unit.

Where y is Normal, StudentT or Laplace around a last latent Z, the noise of Z is a normal error that is added to y, and
Z itself is not drawn. So E[y | Z, θ] is replaced by the mean over Z.

Normal numbers cost more than all else, so that rows share them. Within a part of the rows, row i at draw s of the
posterior has the noises e_{s+i} of one sequence e_1, e_2, ... of independent vectors. What a row has at different draws
is independent, and so is what different rows have at one draw. Hence the draws of a row have the distribution that they
would have otherwise, and so do all rows together at any draw. Only different rows at different draws may have the same
noise, which makes Monte Carlo errors of neighboring rows dependent, as common draws of θ do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import DTypeLike
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BernoulliRV, LaplaceRV, NormalRV, StudentTRV

from pymc_gibbsnn.networks.likelihoods import find_likelihood
from pymc_gibbsnn.networks.network import Network, NetworkError
from pymc_gibbsnn.networks.reader import read_networks
from pymc_gibbsnn.prediction.conditionals import Conditional, FrozenDistribution, distribution_node
from pymc_gibbsnn.prediction.dense_units import DenseUnits, read_dense_units
from pymc_gibbsnn.prediction.mean_activation import NODES, WEIGHTS
from pymc_gibbsnn.prediction.new_rows import AT_ONCE, NewRows
from pymc_gibbsnn.prediction.outcomes import has_classes, moments_of, probabilities

__all__ = ["Batch", "ForwardDraws", "Outcome", "SharedNoise"]

EVERY = 4  # latents are drawn twice for every fourth draw of the posterior
# Of distributions that are shifted by their location, the place of the location among their parameters
LOCATIONS = {NormalRV: 0, StudentTRV: 1, LaplaceRV: 0}


class Outcome(NamedTuple):
    """What is observed, given one draw of the latents for each draw of the posterior.

    Attributes
    ----------
    y : array, (draw, row, ...), or None
        Draws, if they were asked for or are needed.
    centre : array, (draw, row, ...) or, for classes, (draw, row, ..., class)
        The mean of y, or the probabilities of classes; y itself where its mean and variance have no closed form.
    variance : array or float
        The variance of y around the centre, which broadcasts to it; 0 for classes, and where y is its own centre.
    """

    y: np.ndarray | None
    centre: np.ndarray
    variance: np.ndarray | float


class Batch(NamedTuple):
    """What is observed for some draws of the posterior.

    Attributes
    ----------
    draws : slice
        The draws.
    first : Outcome
        What is observed.
    second : Outcome or None
        The same for every fourth of these draws, with latents drawn independently; None if there are no latents.
    """

    draws: slice
    first: Outcome
    second: Outcome | None

    @property
    def pair(self) -> tuple[np.ndarray, np.ndarray]:
        """Two centres of y given the same parameters and latents that are independent."""
        if self.second is None:
            return self.first.centre, self.first.centre
        return self.first.centre[::EVERY], self.second.centre

    def of_pair(self, x: np.ndarray) -> np.ndarray:
        """Return what belongs to the draws of the pair, of an array (draw, ...) for all draws of the posterior."""
        return x[self.draws] if self.second is None else x[self.draws][::EVERY]


@dataclass(frozen=True, eq=False)
class Path:
    """One draw of the latents at some rows, for some draws of the posterior.

    Attributes
    ----------
    copy : {0, 1}
        Whether this is the first or the second draw of latents.
    draws : slice
        The draws of the posterior.
    values : dict of Variable to array, (draw, ...)
        Parameters and latents; for post-activations that are integrated out, their means.
    added : dict of Variable to list of tuple
        For each variable whose mean post-activations enter that are integrated out, the standard deviations sqrt(ΔA)
        (draw, row) and R (draw, k, outputs) of each, which broadcast to all draws and rows.
    sums : dict of Variable to tuple
        For each variable into which a dense network leads, its hidden units, and what they add to the mean (draw, row,
        output); they themselves are not kept.
    """

    copy: int
    draws: slice
    values: dict[Variable, np.ndarray]
    added: dict[Variable, list[tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict)
    sums: dict[Variable, tuple[DenseUnits, np.ndarray]] = field(default_factory=dict)

    def added_variance(self, target: FrozenDistribution, rv: Variable) -> np.ndarray | float:
        """Compute the variance that noise of post-activations adds to each number of a variable."""
        variance: np.ndarray | float = 0.0
        for sd, root in self.added.get(rv, []):
            x = sd[..., None] ** 2 * (root**2).sum(-2)[:, None]
            variance = variance + x.reshape(*x.shape[:2], *target.shape[2:])
        return variance


class ForwardDraws:
    """Draws of what is observed at new rows.

    Parameters
    ----------
    rows : NewRows
        The rows, with the parameters of a posterior.

    Attributes
    ----------
    has_pairs : bool
        Whether latents, or y itself, must be drawn twice to tell their noise from the uncertainty of parameters.
    is_split : bool
        Whether this can be told; not of labels that are a function of latents which cannot be integrated out.
    """

    def __init__(self, rows: NewRows):
        self.rows, self.has_classes, self._total = rows, has_classes(rows.observed), rows.chains * rows.draws
        node, z = distribution_node(rows.observed), rows.noisy_output
        self._moments = None if self.has_classes else moments_of(rows.last)
        is_label = self.has_classes and find_likelihood(node.op).is_deterministic
        place = LOCATIONS.get(type(node.op))
        is_around = z is not None and place is not None and node.op.dist_params(node)[place] is z.rv
        # The last latent, if a label is a function of it or y is shifted by it
        self._last_latent = z if z is not None and (is_label or is_around) else None
        # What the mean of y is a linear function of, and may be the output of a network
        self._linear = {rows.observed} | ({z.rv} if is_around else set())
        self._entering: dict[Variable, tuple[Variable, Network]] = {}
        with suppress(NetworkError):
            self._entering = dict(self._find(read_networks(rows.model, check_data=False)))
        targets = [target for target, _ in self._entering.values()]
        self._dense = {
            rv: units
            for rv, (target, network) in self._entering.items()
            if targets.count(target) == 1 and (units := read_dense_units(rows, network))
        }
        self._inside = {rv for units in self._dense.values() for rv in units.latents}
        drawn = [c for c in rows.latents if c.rv not in self._entering and c is not self._last_latent]
        is_unknown = self._moments is None and not self.has_classes
        self.has_pairs = bool(drawn) or is_unknown or self._has_joint_noise()
        self.is_split = not is_label or z is not None

    @cached_property
    def _integrated(self) -> Conditional | None:
        """The latent over whose noise :meth:`means` takes the mean of y, by its mean or by a Gauss-Hermite sum."""
        return self._last_latent or self.rows.factor

    @property
    def has_means(self) -> bool:
        """Whether the mean of y given latents, or the probability of 1 for a Bernoulli y, is known."""
        is_bernoulli = isinstance(self.rows.last.op, BernoulliRV)
        return self._moments is not None or (is_bernoulli and self.rows.factor is not None)

    def _find(self, networks: list[Network]) -> Iterator[tuple[Variable, tuple[Variable, Network]]]:
        """Find post-activations that enter the mean of one Normal alone, linearly, with the network that holds both."""
        conditionals = {c.rv.name: c for c in (*self.rows.latents, self.rows.last)}
        for network in networks:
            layer, below = network.layers[-1], network.activations[-1:]
            if not any(below) or not layer.operator.has_gain:
                continue
            a, target = conditionals.get(below[0].name), conditionals.get(layer.name)
            if a is None or target is None or not isinstance(distribution_node(target.rv).op, NormalRV):
                continue
            if [c for c in conditionals.values() if a.rv in c.parents] == [target]:
                yield a.rv, (target.rv, network)

    def _has_joint_noise(self) -> bool:
        """Whether noise of post-activations makes the numbers of a label's latent depend on each other."""
        last = self._last_latent
        outputs = [network.layers[-1].shape[0] for rv, network in self._entering.values() if last and rv is last.rv]
        return self.has_classes and max(outputs, default=0) > 1

    def batches(self, rng: np.random.Generator, these: slice, has_draws: bool) -> Iterator[Batch]:
        """Yield some draws of all chains at a time, with what is observed at some rows.

        Parameters
        ----------
        rng : numpy.random.Generator
        these : slice
            The rows.
        has_draws : bool
            Whether draws y are asked for.
        """
        noise = SharedNoise(rng, self._total)
        outcome = self._classes if self.has_classes else self._numbers
        for draws, parameters in self.rows.batches(these, elsewhere=self._inside):
            path = Path(0, draws, dict(parameters))
            first = outcome(these, self._with_latents(these, path, noise), noise, has_draws)
            second = None
            if self.has_pairs:
                some = slice(draws.start, draws.stop, EVERY)
                path = Path(1, some, {rv: x[::EVERY] for rv, x in parameters.items()})
                second = outcome(these, self._with_latents(these, path, noise), noise, False)
            yield Batch(draws, first, second)

    def means(self, rng: np.random.Generator, these: slice, repeats: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield some draws of all chains at a time, with E[y | x, θ] (draw, row, ...) at some rows.

        Of a Bernoulli y this is the probability of 1. Where some latents cannot be integrated out, it is an average
        over draws of these.

        Parameters
        ----------
        rng : numpy.random.Generator
        these : slice
            The rows.
        repeats : int
            How often such latents are drawn for each draw of the posterior.
        """
        noise = SharedNoise(rng, self._total)
        left = [c for c in self.rows.latents if c is not self._integrated and c.rv not in self._entering]
        linear = {rv for rv, (target, _) in self._entering.items() if target in self._linear}
        of_units = {rv for key in linear & set(self._dense) for rv in self._dense[key].latents[-2:]}
        repeats = repeats if any(c.rv not in of_units for c in left) else 1
        for draws, parameters in self.rows.batches(these, elsewhere=self._inside):
            total: np.ndarray | float = 0.0
            for copy in range(repeats):
                path = self._with_latents(these, Path(copy, draws, dict(parameters)), noise, has_means=True)
                total = total + self._mean(these, path)
            yield draws, total / repeats

    def _mean(self, these: slice, path: Path) -> np.ndarray:
        """Compute the mean of y given latents, over the noise of the last one where that is integrated out.

        Parameters
        ----------
        these, path
            As of the other methods.
        """

        def mean_of_y() -> np.ndarray:
            distribution = self._distribution(self.rows.last, these, path)
            mean = distribution.parameters[0] if self._moments is None else self._moments(distribution)[0]
            return np.broadcast_to(mean, distribution.shape)

        if self._integrated is None:
            return mean_of_y()
        z, total = self._integrated.rv, np.zeros(1)
        around = self._distribution(self._integrated, these, path)
        mean = np.broadcast_to(around.parameters[0], around.shape)
        sigma = np.sqrt(around.parameters[1] ** 2 + path.added_variance(around, z))
        for x, weight in [(0.0, 1.0)] if z in self._linear else zip(NODES, WEIGHTS, strict=True):
            path.values[z] = mean + sigma * x
            total = total + weight * mean_of_y()
        return total

    def _with_latents(self, these: slice, path: Path, noise: SharedNoise, has_means: bool = False) -> Path:
        """Draw all latents but the last one, if y is shifted by it or a function of it.

        Parameters
        ----------
        these : slice
            Some rows.
        path : Path
            Parameters of some draws, to which the latents are added.
        noise : SharedNoise
            Normal numbers for these rows.
        has_means : bool
            Whether latents on which the mean of y depends linearly are replaced by their means.
        """
        weights = {rv.name: x for rv, x in path.values.items()}
        last = self._integrated if has_means else self._last_latent
        for latent in self.rows.latents:
            if latent.rv in self._dense:
                self._sum_up(latent.rv, these, path, weights, noise, has_means)
            if latent is last or latent.rv in self._inside:
                continue
            is_integrated = latent.rv in self._entering
            distribution = self._distribution(latent, these, path, has_check=not is_integrated)
            if is_integrated:
                (target, network), (mean, sd) = self._entering[latent.rv], distribution.parameters
                path.values[latent.rv] = np.broadcast_to(mean, distribution.shape)
                terms = path.added.setdefault(target, [])
                terms.append((sd.reshape(*sd.shape[:2], -1)[..., 0], _root(network, weights)))
            else:
                path.values[latent.rv] = self._drawn(latent.rv, distribution, path, noise)
        return path

    def _sum_up(
        self,
        a: Variable,
        these: slice,
        path: Path,
        weights: Mapping[str, np.ndarray],
        noise: SharedNoise,
        has_means: bool,
    ) -> None:
        """Draw the hidden units of a dense network, and keep what they add to the mean of the variable above.

        Parameters
        ----------
        a : Variable
            The last post-activations.
        these, path, noise, has_means
            As of the other methods.
        weights : mapping of str to array, (draw, ...)
            Weights and biases.
        """
        units, (target, network), data = self._dense[a], self._entering[a], self.rows.data(these)
        deviations = units.deviations(data, path.values, len(range(self._total)[path.draws]))

        def normals(rv: Variable, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
            return noise.normals((path.copy, rv), path.draws, shape, dtype)

        sums = units.sums(data, weights, deviations, normals, has_means and target in self._linear)
        path.sums[target] = units, sums
        path.added.setdefault(target, []).append((deviations[-1][..., 0], _root(network, weights)))

    def _distribution(
        self, conditional: Conditional, these: slice, path: Path, has_check: bool = True
    ) -> FrozenDistribution:
        """Compute the distribution of a variable given those before it.

        Parameters
        ----------
        conditional : Conditional
            The variable.
        these, path
            As of the other methods.
        has_check : bool
            Whether parameters may be NaN although all before them are numbers; those of post-activations are not.
        """
        rv, data, draws = conditional.rv, self.rows.data(these), len(range(self._total)[path.draws])
        if rv in path.sums:
            units, sums = path.sums[rv]
            return units.output(sums, data, path.values)
        compute = conditional.distribution if has_check else conditional.unchecked_distribution
        return compute(data, path.values, draws)

    def _drawn(self, rv: Variable, distribution: FrozenDistribution, path: Path, noise: SharedNoise) -> np.ndarray:
        """Draw a latent; a Normal with the noise of the post-activations that enter its mean.

        Parameters
        ----------
        rv : Variable
            The latent.
        distribution : FrozenDistribution
            Its distribution given those before it, without that noise.
        path, noise
            As of the other methods.
        """
        if not isinstance(distribution.op, NormalRV):
            return distribution.draw(noise.rng)
        mean, sigma = distribution.parameters
        x = sigma * noise.normals(
            (path.copy, rv), path.draws, distribution.shape, np.result_type(mean, sigma, np.float32)
        )
        x += mean
        return x + self._added(rv, distribution, path, noise) if rv in path.added else x

    def _added(
        self, rv: Variable, distribution: FrozenDistribution, path: Path, noise: SharedNoise
    ) -> np.ndarray | float:
        """Draw the noise that post-activations add to a variable.

        Parameters
        ----------
        rv, distribution, path, noise
            As of :meth:`_drawn`.
        """
        total: np.ndarray | float = 0.0
        for i, (sd, root) in enumerate(path.added.get(rv, [])):
            shape = (*distribution.shape[:2], root.shape[1])
            x = sd[..., None] * (noise.normals((path.copy, rv, i), path.draws, shape, root.dtype) @ root)
            total = total + x.reshape(distribution.shape)
        return total

    def _numbers(self, these: slice, path: Path, noise: SharedNoise, has_draws: bool) -> Outcome:
        """Compute the mean and the variance of real numbers and counts given latents, and draw them.

        Parameters
        ----------
        these, path, noise
            As of the other methods.
        has_draws : bool
            Whether draws are asked for.
        """
        shift: np.ndarray | float = 0.0
        variance: np.ndarray | float = 0.0
        if self._last_latent is not None:  # y = y(mean of Z) + the noise of Z
            z = self._last_latent.rv
            around = self._distribution(self._last_latent, these, path)
            path.values[z] = np.broadcast_to(around.parameters[0], around.shape)
            variance = around.parameters[1] ** 2 + path.added_variance(around, z)
            if has_draws:
                shift = self._drawn(z, around, path, noise) - around.parameters[0]
        distribution = self._distribution(self.rows.last, these, path)
        y = distribution.draw(noise.rng) if has_draws or self._moments is None else None
        if y is not None and isinstance(distribution.op, tuple(LOCATIONS)):
            y = y + (shift + self._added(self.rows.observed, distribution, path, noise))
        if self._moments is None:
            return Outcome(y, y.astype(float), 0.0)
        mean, own = self._moments(distribution)
        variance = own + variance + path.added_variance(distribution, self.rows.observed)
        return Outcome(y, mean.astype(float), np.asarray(variance, float))

    def _classes(self, these: slice, path: Path, noise: SharedNoise, has_draws: bool) -> Outcome:
        """Compute the probabilities of classes given latents, and draw labels.

        Parameters
        ----------
        these, path, noise, has_draws
            As of :meth:`_numbers`.
        """
        around = None
        if self._last_latent is not None:
            z = self._last_latent.rv
            around = self._distribution(self._last_latent, these, path)
            mean, sigma = around.parameters
            path.values[z] = self._drawn(z, around, path, noise)
            if self._has_joint_noise():  # then only the noise of Z itself is integrated out
                mean = mean + self._added(z, around, path, noise)
            else:
                sigma = np.sqrt(sigma**2 + path.added_variance(around, z))
            around = FrozenDistribution(around.op, [mean, sigma], around.shape)
        distribution = self._distribution(self.rows.last, these, path)
        is_label = find_likelihood(distribution.op).is_deterministic
        needed = has_draws or is_label
        y = (
            distribution.draw(noise.rng) if needed else np.broadcast_to(0, distribution.shape)
        )  # of which the shape counts
        return Outcome(y, probabilities(distribution, y, around), 0.0)


class SharedNoise:
    """Normal numbers for some rows, of which row i at draw s has those that row i + 1 has at draw s − 1.

    Parameters
    ----------
    rng : numpy.random.Generator
    total : int
        How many draws of the posterior there are.
    """

    def __init__(self, rng: np.random.Generator, total: int):
        self.rng, self._total = rng, total
        self._sequences: dict[tuple, tuple[int, np.ndarray]] = {}

    def normals(self, key: tuple, draws: slice, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Return independent normal numbers for all rows at some draws.

        Parameters
        ----------
        key : tuple
            What the numbers are for. It is asked for at later draws each time.
        draws : slice
            Some draws of the posterior.
        shape : tuple of int
            The shape (draw, row, ...) of the numbers.
        dtype : dtype_like
            In which precision they are used; they are the same in both.
        """
        count, rows, *event = shape
        first, sequence = self._sequences.get(key, (0, np.empty((0, *event), dtype)))
        if draws.start + count + rows - 1 > first + len(sequence):
            ahead = min(self._total - draws.start, max(count, AT_ONCE // max(1, math.prod(event))))
            numbers = self.rng.standard_normal((ahead + rows - 1, *event), np.float32)
            self._sequences[key] = first, sequence = draws.start, numbers.astype(dtype, copy=False)
        start = draws.start - first
        windows = sliding_window_view(sequence[start : start + count + rows - 1], rows, axis=0)
        return np.moveaxis(windows, -1, 1)


def _root(network: Network, weights: Mapping[str, np.ndarray]) -> np.ndarray:
    """Compute R (draw, k, outputs) with RᵀR = W Wᵀ, for the last weights W (outputs, units) of a network."""
    operator = network.layers[-1].operator
    w = operator.linear(operator.named_matrix(weights))
    return np.linalg.qr(np.swapaxes(w, -1, -2), mode="r")

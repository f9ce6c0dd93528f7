r"""Fits of small networks of dense layers: steps of Gauss and Newton, and a search over wider networks.

A fit of a narrow network often ends at a mode where one hidden unit does the work of two, say; that of a wider one
seldom does. One round of the search is therefore: draw a network that is half as wide again from the prior, fit it, and
take units away until it has the right widths. The unit that goes is the one without which the quadratic approximation
of the objective grows least while all other weights make up for it, which also joins units that do the same [1]_; then
comes a short fit. Every other round widens the best network so far instead, by units that do nothing yet. Rounds end
when their budget is spent, or nothing is left to explain; the best network goes on. Where all noise is known, a small
network is looked for longer, until the second half of the rounds so far has found no better one: a chain there hardly
leaves the mode in which it starts. A step of a fit is one of Gauss, Newton, Levenberg and Marquardt [2]_, on all
weights at once. The objective is that of :mod:`pymc_gibbsnn.starts.fitted_start`.

References
----------
.. [1] B. Hassibi, D. G. Stork. Second order derivatives for network pruning: optimal brain surgeon. NeurIPS 5.
.. [2] D. W. Marquardt. An algorithm for least-squares estimation of nonlinear parameters. J. SIAM 11 (1963).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg import cho_factor, cho_solve

from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.networks.smooth import Smooth

__all__ = ["Fit", "LeastSquares", "learns_noise", "suits_least_squares"]

WIDER = 1.5  # how much wider than the network a fit begins
FIRST, BETWEEN, LAST = 15, 4, 10  # steps of the fit of a round: at first, after each unit that goes, and at the end
LARGEST, LARGEST_LEARNED = 3_200, 1_500  # weights of a network that is fitted in this way, or with learned noise
WORK, MOST = 120_000, 400  # the budget of a search: steps times weights, and at most so many steps
LONGEST = 50_000_000_000, 2_400  # multiplications and steps of a longer search, at most
BETTER = 1.0  # by how much the objective of a better network is lower, at least
NUMBERS = 2**23  # how many numbers of a Jacobian are held in memory at a time


@dataclass(frozen=True, eq=False)
class Fit:
    """Weights W̃ (c, d) of each layer, and the precisions Λ of their priors, of the same shapes."""

    weights: list[np.ndarray]
    precisions: list[np.ndarray]

    @property
    def prior(self) -> float:
        """Minus the log density of the prior, up to a constant."""
        return sum((p * w**2).sum() for w, p in zip(self.weights, self.precisions, strict=True)) / 2

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(w.size for w in self.weights)

    def moved(self, step: np.ndarray) -> Fit:
        """Add a step, one vector for all weights."""
        parts = np.split(step, np.cumsum([w.size for w in self.weights])[:-1])
        return Fit([w + x.reshape(w.shape) for w, x in zip(self.weights, parts, strict=True)], self.precisions)

    def without(self, l: int, j: int) -> Fit:
        """Take unit j of hidden layer l away."""

        def cut(arrays: list[np.ndarray]) -> list[np.ndarray]:
            above = {l: np.delete(arrays[l], j, 0), l + 1: np.delete(arrays[l + 1], j, 1)}
            return [above.get(i, x) for i, x in enumerate(arrays)]

        return Fit(cut(self.weights), cut(self.precisions))

    def wider(self, more: Sequence[int], rng: np.random.Generator) -> Fit:
        """Give each hidden layer so many units more, with weights from the prior below and weights of 0 above."""
        weights, precisions = list(self.weights), list(self.precisions)
        for l, extra in enumerate(more):
            units = np.arange(extra) % len(weights[l])  # new units have the priors of these
            rows, columns = precisions[l][units], precisions[l + 1][:, units]
            at = len(weights[l])
            precisions[l] = np.vstack([precisions[l], rows])
            weights[l] = np.vstack([weights[l], rng.normal(size=rows.shape) / np.sqrt(rows)])
            precisions[l + 1] = np.insert(precisions[l + 1], [at] * extra, columns, axis=1)
            weights[l + 1] = np.insert(weights[l + 1], [at] * extra, 0, axis=1)
        return Fit(weights, precisions)

    def drawn(self, rng: np.random.Generator) -> Fit:
        """Draw all weights from the prior."""
        return Fit([rng.normal(size=p.shape) / np.sqrt(p) for p in self.precisions], self.precisions)


@dataclass(frozen=True, eq=False)
class Linearised:
    """A network near some weights, and near no noise.

    Attributes
    ----------
    matrix : array, (p, p)
        The matrix of Gauss and Newton for all p weights, with v held.
    gradient : array, (p,)
        The gradient of the objective, with v held.
    matrix_of_v, gradient_of_v : array, (p, p) and (p,)
        What is added to both since v changes; 0 where errors are larger than v.
    reach : array, (noises,)
        For each noise in turn, the sum over all targets of the squared derivatives of f by it.
    variance : float
        The variance v that all noise together gives a target.
    squares : float
        The sum of the squared errors, each times its importance.
    excess : float
        The derivative of the objective by the sum of the variances that noise gives all targets, or 0 if it is less.
    objective : float
        What is minimised, with v held.
    """

    matrix: np.ndarray
    gradient: np.ndarray
    matrix_of_v: np.ndarray
    gradient_of_v: np.ndarray
    reach: np.ndarray
    variance: float
    squares: float
    excess: float
    objective: float

    @property
    def covariance(self) -> np.ndarray:
        """The inverse of the matrix: the covariance of the weights given the data, near these weights."""
        return np.linalg.inv(self.matrix)  # Cholesky fails sooner, for data of very different scales


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """The fit of a network of dense layers to real targets.

    Attributes
    ----------
    inputs : array, (n, d_1)
        The data X.
    targets : array, (n, d_{L+1})
        The targets y.
    functions : list of PiecewiseLinear or Smooth
        The activations σ, one fewer than layers.
    noises : sequence of float
        ΔZ and ΔA of each layer in turn, the last of which is that of the targets.
    degrees : float
        The degrees of freedom ν of the distribution of the errors y − f, Student's t of scale √v; infinite for the
        normal distribution.
    spread : array, (n, d_{L+1}) or (n, 1), or 1
        By what each error is divided first, where the scale of the noise of the targets differs between them.
    """

    inputs: np.ndarray
    targets: np.ndarray
    functions: list[PiecewiseLinear | Smooth]
    noises: Sequence[float]
    degrees: float = np.inf
    spread: np.ndarray | float = 1.0

    def forward(self, fit: Fit, x: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Compute the inputs Ã and the pre-activations Z of all layers; the last Z is f."""
        inputs, outputs = [], []
        for l, w in enumerate(fit.weights):
            a = self.functions[l - 1](outputs[-1]) if l else x
            inputs.append(a if a.shape[1] == w.shape[1] else np.column_stack([a, np.ones(len(a))]))
            outputs.append(inputs[-1] @ w.T)
        return inputs, outputs

    def backward(self, fit: Fit, outputs: list[np.ndarray]) -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
        """For each output of the network yield its derivatives by the Z of all layers, and by the A of hidden ones."""
        for k in range(outputs[-1].shape[1]):
            by_z, by_a = [np.zeros_like(outputs[-1])], []
            by_z[0][:, k] = 1
            for w, z, function in zip(fit.weights[:0:-1], outputs[-2::-1], self.functions[::-1], strict=True):
                by_a.insert(0, by_z[0] @ w[:, : z.shape[1]])
                by_z.insert(0, by_a[0] * function.derivative(z))
            yield by_z, by_a

    def reach(self, fit: Fit) -> np.ndarray:
        """For each noise in turn, sum the squared derivatives of f by it over all targets."""
        reach = np.zeros(2 * len(fit.weights) - 1)
        for by_z, by_a in self.backward(fit, self.forward(fit, self.inputs)[1]):
            reach[::2] += [(x**2).sum() for x in by_z]
            reach[1::2] += [(x**2).sum() for x in by_a]
        return reach

    def loss(self, errors: np.ndarray, v: float) -> float:
        """Minus the log density of errors, up to a number that depends on their variance v alone."""
        if np.isinf(self.degrees):
            return (errors**2).sum() / (2 * v)
        return (self.degrees + 1) / 2 * np.log1p(errors**2 / (self.degrees * v)).sum()

    def importances(self, errors: np.ndarray, v: float) -> np.ndarray:
        """How much each error counts in weighted least squares with the gradient of the loss: 1 for normal errors."""
        if np.isinf(self.degrees):
            return np.ones_like(errors)
        return (self.degrees + 1) / (self.degrees + errors**2 / v)

    def objective(self, fit: Fit, v: float, excess: float = 0.0) -> float:
        """Compute what is minimised near weights with this variance v, and with this excess."""
        errors = (self.targets - self.forward(fit, self.inputs)[1][-1]) / self.spread
        of_noise = excess * (self.reach(fit) @ self.noises) if excess else 0.0
        return self.loss(errors, v) + fit.prior + of_noise

    def amplification(self, fit: Fit) -> tuple[np.ndarray, np.ndarray]:
        """Differentiate the variance that noise gives all targets together by the weights.

        Returns
        -------
        gradient : array, (p,)
        matrix : array, (p, p)
            The second derivatives, only those between the weights that go out of one unit, and only of the part that
            noise just below these weights has.
        """
        gradient, matrix = np.zeros(fit.size), np.zeros((fit.size, fit.size))
        of_z, of_a, starts = self.noises[::2], self.noises[1::2], np.cumsum([w.size for w in fit.weights])
        _, outputs = self.forward(fit, self.inputs)
        slopes = [function.derivative(z) for function, z in zip(self.functions, outputs, strict=False)]
        for by_z, by_a in self.backward(fit, outputs):
            passed = 0.0
            for l, (first, w) in enumerate(zip(starts, fit.weights[1:], strict=False)):
                (c, d), h, above = w.shape, slopes[l].shape[1], by_z[l + 1]
                here, units = slice(first, first + w.size), np.arange(h)
                by_input = (2 * of_z[l] * by_z[l] + passed) * slopes[l] + 2 * of_a[l] * by_a[l]
                passed = by_input @ w[:, :h].T
                by_weights, twice = np.zeros((c, d)), np.zeros((c, d, c, d))
                by_weights[:, :h] = above.T @ by_input
                share = 2 * (of_a[l] + of_z[l] * (slopes[l] ** 2).mean(axis=0))
                twice[:, units, :, units] = share[:, None, None] * (above.T @ above)
                gradient[here] += by_weights.ravel()
                matrix[here, here] += twice.reshape(w.size, w.size)
        return gradient, matrix

    def linearised(self, fit: Fit) -> Linearised:
        """Linearise the network in its weights and its noise."""
        matrix, gradient = np.zeros((fit.size, fit.size)), np.zeros(fit.size)
        reach = self.reach(fit)
        v = reach @ self.noises / self.targets.size
        squares, loss, blocks = 0.0, 0.0, -(-len(self.inputs) * fit.size // NUMBERS)
        spreads = np.broadcast_to(self.spread, self.targets.shape)
        for rows in np.array_split(np.arange(len(self.inputs)), blocks):
            inputs, outputs = self.forward(fit, self.inputs[rows])
            errors = (outputs[-1] - self.targets[rows]) / spreads[rows]
            importance = self.importances(errors, v)
            loss += self.loss(errors, v)
            squares += (importance * errors**2).sum()
            for k, (by_z, _) in enumerate(self.backward(fit, outputs)):
                root = np.sqrt(importance[:, k])
                scale = root / spreads[rows, k]
                parts = [
                    ((scale[:, None] * z)[:, :, None] * a[:, None]).reshape(len(rows), -1)
                    for z, a in zip(by_z, inputs, strict=True)
                ]
                jacobian = np.concatenate(parts, axis=1)
                matrix += jacobian.T @ jacobian
                gradient += jacobian.T @ (root * errors[:, k])
        slope = np.concatenate([(p * w).ravel() for w, p in zip(fit.weights, fit.precisions, strict=True)])
        matrix /= v
        matrix[np.diag_indices(fit.size)] += np.concatenate([p.ravel() for p in fit.precisions])
        excess = max(0.0, 1 - squares / (self.targets.size * v)) / (2 * v)
        gradient_of_v, matrix_of_v = np.zeros_like(gradient), np.zeros_like(matrix)
        if excess:
            gradient_of_v, matrix_of_v = (excess * x for x in self.amplification(fit))
        of_v = matrix_of_v, gradient_of_v
        return Linearised(matrix, gradient / v + slope, *of_v, reach, v, squares, excess, loss + fit.prior)

    def fitted(self, fit: Fit, steps: int) -> Fit:
        """Make at most so many steps of Levenberg and Marquardt."""
        damping, diagonal = 1e-2, np.arange(fit.size)
        for _ in range(steps):
            now = self.linearised(fit)
            matrix, gradient = now.matrix + now.matrix_of_v, now.gradient + now.gradient_of_v
            objective = now.objective + now.excess * (now.reach @ self.noises)
            size, gain = matrix.diagonal().mean(), 0.0
            while gain <= 0 and damping < 1e8:
                damped = matrix.copy()
                damped[diagonal, diagonal] += damping * size
                new = fit.moved(-cho_solve(cho_factor(damped, overwrite_a=True), gradient))
                gain = objective - self.objective(new, now.variance, now.excess)
                damping *= 5 if gain <= 0 else 0.25
            if gain > 0:
                fit = new
            if gain < min(1, 1e-3 * now.objective):
                break
        return fit

    def pruned(self, fit: Fit, widths: Sequence[int]) -> Fit:
        """Take away the unit that is missed least, of a hidden layer that is wider than it should be."""
        now = self.linearised(fit)
        inverse, starts = np.linalg.inv(now.matrix + now.matrix_of_v), np.cumsum([0] + [w.size for w in fit.weights])
        units = []
        for l, (below, above) in enumerate(pairwise(fit.weights)):
            for j in range(len(below) if len(below) > widths[l] else 0):
                outgoing = starts[l + 1] + np.arange(len(above)) * above.shape[1] + j
                force = np.linalg.solve(inverse[np.ix_(outgoing, outgoing)], above[:, j])
                units.append((above[:, j] @ force, l, j, -inverse[:, outgoing] @ force))
        units.sort(key=lambda unit: unit[0])
        fits = [fit.moved(share * step).without(l, j) for _, l, j, step in units[:4] for share in (1, 0.3, 0)]
        return min(fits, key=lambda one: self.objective(one, now.variance, now.excess))

    def judged(self, fit: Fit) -> tuple[float, float]:
        """Compute minus the log density of targets and weights, noise to first order, and the mean squared error."""
        now = self.linearised(fit)
        score = now.objective + self.targets.size * np.log(now.variance) / 2
        return score, now.squares / self.targets.size

    def search(self, fit: Fit, rng: np.random.Generator, is_long: bool = False) -> Fit | None:
        """Make rounds as above, and return the best network; None if none has a finite error.

        A round that ends where a covariance is singular counts as one without a better network.

        Parameters
        ----------
        fit : Fit
            A network of the right widths; its weights do not matter.
        rng : numpy.random.Generator
            The generator of the chain.
        is_long : bool
            Whether rounds go on until the second half of them has found no better network.

        Raises
        ------
        LinAlgError, ValueError
            If the first round ends where a covariance is singular.
        """
        widths = [len(w) for w in fit.weights[:-1]]
        more = [int(np.ceil(width * (WIDER - 1))) for width in widths]
        if FIRST + BETWEEN * sum(more) + LAST > WORK // fit.wider(more, rng).size:
            more = [0] * len(more)  # too large to be made larger still
        size, one_round = fit.wider(more, rng).size, FIRST + BETWEEN * sum(more) + LAST
        steps = min(MOST, WORK // size)
        most = min(LONGEST[0] // (size**2 * (self.targets.size + size)), LONGEST[1]) if is_long else 0
        rounds, most = steps // one_round, max(steps, most) // one_round
        best: Fit | None = None
        lowest, i = np.inf, 0
        while i < rounds:
            new = best.wider(more, rng) if i % 2 else fit.wider(more, rng).drawn(rng)
            i += 1
            try:
                new = self.fitted(new, FIRST)
                while [len(w) for w in new.weights[:-1]] != widths:
                    new = self.fitted(self.pruned(new, widths), BETWEEN)
                new = self.fitted(new, LAST)
            except (LinAlgError, ValueError):  # where a covariance is close to singular
                if best is None:
                    raise
                continue
            score, error = self.judged(new)
            if error < self.noises[-1] / 10:
                return new
            if score < lowest - BETTER:
                rounds = min(max(rounds, 2 * i), most)
            if score < lowest:
                best, lowest = new, score
            if best is None:
                break
        return best


def suits_least_squares(network: Network) -> bool:
    """Whether all layers are dense, with activations between them, and have few enough weights for a fit to be quick.

    With learned noise it takes longer, and chains need it less.
    """
    layers = network.layers
    if not all(layer.operator.is_product for layer in layers) or not all(network.activations):
        return False
    weights = sum(np.prod(layer.operator.augmented_shape) for layer in layers)
    return weights <= (LARGEST_LEARNED if learns_noise(network) else LARGEST)


def learns_noise(network: Network) -> bool:
    """Whether a variance of noise is learned."""
    return any(use.value is None for scale in network.variances for use in scale.uses)

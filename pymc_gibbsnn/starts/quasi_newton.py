r"""Fits of networks with convolutions, by a quasi-Newton method that needs gradients only.

A fit ends at a bad mode more often than not, and shows it early. So sixteen networks are drawn from the prior and
fitted by a few steps of L-BFGS [1]_; the better half is fitted by twice as many more, and so on, until one is left
[2]_. The search ends as soon as the errors of a network are about as large as its noise. Networks for which a step is a
lot of work begin with fewer draws. Where even a single fit would be too much work, a random part of the data is fitted.

The objective is that of :mod:`pymc_gibbsnn.starts.fitted_start`. Its variance v is computed anew twice a round, from
the gradient of Σ_k r_k f_k by each latent, for random signs r: the square of that has the mean Σ_k ‖∂f_k/∂z‖².
For class labels, −log P(y | f) takes the place of the squared errors, as if the noise of variance v were logistic. One
network is fitted to them: what they say of f is too coarse for one mode to be much better than another.

References
----------
.. [1] D. C. Liu, J. Nocedal. On the limited memory BFGS method for large scale optimization. Math. Programming 45.
.. [2] K. Jamieson, A. Talwalkar. Non-stochastic best arm identification and hyperparameter optimization. AISTATS 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import pytensor
import pytensor.tensor as pt
from scipy.optimize import minimize

from pymc_gibbsnn.backends.one_thread import ONE_THREAD
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.starts.least_squares import Fit

__all__ = ["Found", "QuasiNewton", "suits_quasi_newton"]

STARTS, STEPS = 16, 320  # networks drawn at most, and steps of all networks in a round
WORK = 2e10  # multiplications in all evaluations of a network, about
FEWEST = 1000  # rows of larger data that must be few enough for that
ENOUGH = 1.1  # mean squared error, in units of the variance that noise explains, at which a search ends
MEMORY = 20  # pairs of points and gradients that L-BFGS remembers


@dataclass(frozen=True, eq=False)
class Found:
    """A fit: all weights W̃ as one vector, minus the log density up to a constant, and the error in units of v.

    Fits to labels have an infinite error, because nothing says how many of them can be learned.
    """

    weights: np.ndarray
    score: float
    error: float


class QuasiNewton:
    """The fit of a network to real targets.

    Parameters
    ----------
    network : Network
        The network.
    inputs : array, (n, d_1)
        The data X.
    targets : array, (n, d_{L+1}) or the shape of labels
        The targets y: real numbers, or the class labels of a network that has them.
    noises : list of float
        The variances of the network's noise, in the order of its layers and activations; the last is that of targets.
    precisions : list of array, (c, d)
        The precisions Λ of W̃ of each layer that has weights.
    rng : numpy.random.Generator
        The generator of the chain.
    """

    def __init__(
        self,
        network: Network,
        inputs: np.ndarray,
        targets: np.ndarray,
        noises: Sequence[float],
        precisions: Sequence[np.ndarray],
        rng: np.random.Generator,
    ):
        self.zero, self.rng = Fit([np.zeros(p.shape) for p in precisions], list(precisions)), rng
        rows = np.sort(rng.permutation(len(inputs))[: int(WORK / (STEPS * _work(network)))])
        self.inputs, targets, self.work = inputs[rows], targets[rows], len(rows) * _work(network)
        X, W = pt.dmatrix("X"), [pt.dmatrix() for _ in precisions]
        v, a, parts = pt.dscalar("v"), X, []
        weights = iter(W)
        for layer, activation in zip_longest(network.layers, network.activations):
            a = layer.operator.forward(a, next(weights) if layer.operator.variables else None)
            parts.append(a)
            if activation:
                a = activation.function(a)
                parts.append(a)
        prior = sum((p * w**2).sum() for p, w in zip(precisions, W, strict=True)) / 2
        if network.observation is not None:
            misfit, self.reals = -network.observation.logistic_log_probability(a, v, targets), 0
        else:
            misfit, self.reals = ((targets - a) ** 2).sum() / (2 * v), targets.size
        objective = misfit + prior
        signs = rng.choice([-1.0, 1.0], size=(len(rows), network.layers[-1].shape[0]))
        self.outputs = signs.size
        by_parts = pt.grad((signs * a).sum(), parts)
        noise = sum(x * (g**2).sum() for x, g in zip(noises, by_parts, strict=True))
        gradients = pt.grad(objective, W)
        with ONE_THREAD:
            self._objective = pytensor.function([X, v, *W], [objective, *gradients], mode="FAST_COMPILE")
            self._noise = pytensor.function([X, *W], noise, mode="FAST_COMPILE")

    def matrices(self, weights: np.ndarray) -> list[np.ndarray]:
        """Take the vector of all weights apart into W̃ of each layer that has weights."""
        return self.zero.moved(weights).weights

    def variance(self, weights: np.ndarray) -> float:
        """Compute v."""
        return float(self._noise(self.inputs, *self.matrices(weights))) / self.outputs

    def objective(self, weights: np.ndarray, v: float) -> tuple[float, np.ndarray]:
        """Compute what is minimised, and its gradient."""
        value, *gradients = self._objective(self.inputs, v, *self.matrices(weights))
        return float(value), np.concatenate([g.ravel() for g in gradients])

    def drawn(self) -> np.ndarray:
        """Draw all weights from the prior."""
        return np.concatenate([w.ravel() for w in self.zero.drawn(self.rng).weights])

    def fitted(self, weights: np.ndarray, steps: int) -> Found:
        """Make at most so many steps from these weights."""
        options = {"maxiter": steps // 2, "maxcor": MEMORY}
        for _ in range(2):
            v = self.variance(weights)
            weights = minimize(self.objective, weights, args=(v,), jac=True, method="L-BFGS-B", options=options).x
        v = self.variance(weights)
        value, _ = self.objective(weights, v)
        error = 2 * (value - self.zero.moved(weights).prior) / self.reals if self.reals else np.inf
        return Found(weights, value + self.reals * np.log(v) / 2, error)

    def search(self) -> list[np.ndarray] | None:
        """Return the matrices W̃ of the best network; None if none has a finite error."""
        count = STARTS if self.reals else 1
        while count > 1 and STEPS * count.bit_length() * self.work > WORK:
            count //= 2
        starts = [self.drawn() for _ in range(count)]
        while True:
            fits = []
            for weights in starts:
                fits.append(self.fitted(weights, STEPS // len(starts)))
                if fits[-1].error < ENOUGH:
                    return self.matrices(fits[-1].weights)
            fits = sorted((one for one in fits if np.isfinite(one.score)), key=lambda one: one.score)
            if len(starts) == 1 or not fits:
                return self.matrices(fits[0].weights) if fits else None
            starts = [one.weights for one in fits[: len(starts) // 2]]


def suits_quasi_newton(network: Network) -> bool:
    """Whether it has convolutions, say, and a single fit to all data, or to a large part, is not too much work."""
    are_products = all(layer.operator.is_product for layer in network.layers)
    return not are_products and STEPS * _work(network) * min(len(network.data()), FEWEST) <= WORK


def _work(network: Network) -> int:
    """Count the multiplications that compute the function of a network for one row of its data."""
    return sum(layer.shape[0] * layer.operator.fan_in for layer in network.layers if layer.operator.variables)

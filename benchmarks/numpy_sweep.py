"""The collapsed Gibbs sweep with the scale move in NumPy and SciPy: what the benchmarks compare with.

For a ReLU network with noise of variance Δ everywhere and W_l, b_l ~ N(0, 1/d_l), vectorised over samples. The formulas
are those of the package, see its ``conditionals``.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import expit, log_ndtr, ndtri_exp


class NumpySweep:
    """Calling it makes one sweep and returns the log density. Weights are kept as [W, b], (c, d + 1)."""

    def __init__(self, X: np.ndarray, y: np.ndarray, point: dict[str, np.ndarray], delta: float, seed: int):
        self.rng, self.delta, self.X = np.random.default_rng(seed), delta, augment(X)
        depth = sum(name.startswith("W") for name in point)
        self.weights = [
            np.column_stack([np.atleast_2d(point[f"W{l}"]), np.atleast_1d(point[f"b{l}"])]) for l in range(1, depth + 1)
        ]
        self.outputs = [*(point[f"Z{l}"] for l in range(2, depth + 1)), y[:, None]]
        self.factor = self._factor(self.X)
        self.noise = float("nan")  # mean squared noise over Δ, after a sweep

    def __call__(self) -> float:
        rng, delta, n = self.rng, self.delta, len(self.X)
        inputs, squares = self.X, 0.0
        self.weights[0] = self._draw_weights(self.X, self.outputs[0], self.factor)
        for l in range(len(self.outputs) - 1):
            W, z = self.weights[l + 1][:, :-1], self.outputs[l]
            y = self.outputs[l + 1] - self.weights[l + 1][:, -1]
            c, h = W.shape
            m = inputs @ self.weights[l].T
            G = np.linalg.solve(delta * (np.eye(c) + W @ W.T), W)
            kappa = (W * G).sum(0)

            # Z, A integrated out, unit by unit
            z, s = z.copy(), np.maximum(z, 0)
            r = y - s @ W.T
            for j in range(h):
                z[:, j] = draw_relu(rng, m[:, j], delta, r @ G[:, j] + kappa[j] * s[:, j], kappa[j])
                new = np.maximum(z[:, j], 0)
                r -= np.outer(new - s[:, j], W[:, j])
                s[:, j] = new

            # A given Z: a draw from the model, corrected by what y is off
            a = s + rng.normal(0, delta**0.5, size=s.shape)
            a += delta * (y - a @ W.T - rng.normal(0, delta**0.5, size=y.shape)) @ G

            # the scale of each unit
            noise = ((z - m) ** 2).sum(0) + ((a - s) ** 2).sum(0)
            Q1 = noise / delta + (inputs.shape[1] - 1) * (self.weights[l] ** 2).sum(1)
            scale = draw_gig(rng, (inputs.shape[1] + 2 * n - c) / 2, Q1, h * (W**2).sum(0)) ** 0.5
            self.weights[l] *= scale[:, None]
            self.outputs[l], inputs = z * scale, augment(a * scale)
            squares += (noise * scale**2).sum()
            self.weights[l + 1] = self._draw_weights(inputs, self.outputs[l + 1], self._factor(inputs))

        squares += ((self.outputs[-1] - inputs @ self.weights[-1].T) ** 2).sum()
        count = n * (1 + 2 * sum(z.shape[1] for z in self.outputs[:-1]))
        self.noise = squares / (delta * count)
        lp = -0.5 * (squares / delta + count * np.log(2 * np.pi * delta))
        for w in self.weights:
            precision = w.shape[1] - 1
            lp -= 0.5 * (precision * (w**2).sum() - w.size * np.log(precision / (2 * np.pi)))
        return lp

    def point(self) -> dict[str, np.ndarray]:
        """The weights, by the names that pmg.mlp gives them."""
        *below, last = self.weights
        point = {"W": last[0, :-1], "b": last[0, -1]}
        point = {f"{name}{len(self.weights)}": value for name, value in point.items()}
        for l, w in enumerate(below, start=1):
            point |= {f"W{l}": w[:, :-1], f"b{l}": w[:, -1]}
        return point

    def _factor(self, a: np.ndarray) -> np.ndarray:
        d = a.shape[1]
        return cholesky(a.T @ a / self.delta + (d - 1) * np.eye(d), lower=True)

    def _draw_weights(self, a: np.ndarray, z: np.ndarray, factor: np.ndarray) -> np.ndarray:
        whitened = solve_triangular(factor, a.T @ z / self.delta, lower=True)
        whitened += self.rng.normal(size=whitened.shape)
        return solve_triangular(factor, whitened, lower=True, trans=1).T


def augment(a: np.ndarray) -> np.ndarray:
    return np.column_stack([a, np.ones(len(a))])


def draw_relu(rng: np.random.Generator, m: np.ndarray, v: float, t: np.ndarray, kappa: float) -> np.ndarray:
    """z with density ∝ exp(−(z − m)²/2v + t s − κ s²/2), s = max(z, 0): a side of 0, then a truncated normal."""
    g = 1 + v * kappa
    mean, sd = (m + v * t) / g, (v / g) ** 0.5
    height = (t * (2 * m + v * t) - kappa * m**2) / (2 * g) - np.log(g) / 2
    positive = rng.random(len(m)) < expit(height + log_ndtr(mean / sd) - log_ndtr(-m / v**0.5))
    side, mean, sd = np.where(positive, 1, -1), np.where(positive, mean, m), np.where(positive, sd, v**0.5)
    return mean - side * sd * ndtri_exp(log_ndtr(side * mean / sd) + np.log(1 - rng.random(len(m))))


def draw_gig(rng: np.random.Generator, p: float, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x with density ∝ x^{p−1} exp(−(a x + b/x)/2), p > 1: rejection from the gamma distribution with the same mode x₀.

    1/x lies above its tangent at x₀, 2/x₀ − x/x₀², by (1 − x/x₀)²/x.
    """
    mode = (p - 1 + np.sqrt((p - 1) ** 2 + a * b)) / a
    x, pending = np.empty_like(a), np.arange(len(a))
    while len(pending):
        x0, proposal = mode[pending], rng.gamma(p, mode[pending] / (p - 1))
        x[pending] = proposal
        pending = pending[rng.random(len(pending)) > np.exp(-b[pending] / (2 * proposal) * (1 - proposal / x0) ** 2)]
    return x

"""Conjugate models on minibatches, and the exact distributions of stochastic-gradient chains there."""

import numpy as np
import pymc as pm


class Means:
    """Means θ_k ~ N(0, 1) of columns of N numbers with variance 1: posterior N(m_k, 1/H), B the same everywhere."""

    def __init__(self, rows=100, columns=50, size=20, seed=0):
        rng = np.random.default_rng(seed)
        y = rng.normal(size=(rows, columns))
        self.y = (y - y.mean(0)) / y.std(0) + rng.normal(size=columns)
        self.rows, self.size = rows, size
        self.curvature = 1 + rows
        self.b = rows**2 / size / 2
        self.mean = self.y.sum(0) / self.curvature
        # The largest eigenvalue of E g gᵀ: columns of few rows are correlated
        self.top = self.curvature + 2 * self.b * np.linalg.eigvalsh(np.cov(self.y.T, bias=True))[-1]

    def model(self, names=("theta",)):
        """The same regression under several names, on the same batches."""
        with pm.Model() as model:
            _, *batches = pm.Minibatch(self.y, *[self.y] * len(names), batch_size=self.size)
            for name, batch in zip(names, batches, strict=True):
                theta = pm.Normal(name, 0, 1, shape=self.y.shape[1])
                pm.Normal(f"y_{name}", theta, 1, observed=batch, total_size=self.rows)
        return model

    def variance_of_langevin(self, h, temperature=1.0, injected=None):
        """Of θ' = θ − h (g + w), w of variance 2T/h by default."""
        injected = 2 * temperature / h if injected is None else injected
        return h**2 * (injected + 2 * self.b) / (1 - (1 - h * self.curvature) ** 2)

    def variance_of_hamiltonian(self, eta, friction, noise_estimate, temperature=1.0):
        """Of v' = (1 − α) v − η g + w, θ' = θ + v'."""
        a, h = 1 - friction, eta * self.curvature
        F, noise = np.array([[1 - h, a], [-h, a]]), 2 * eta * (friction * temperature - eta * noise_estimate)
        Q = (noise + eta**2 * 2 * self.b) * np.ones((2, 2))
        return np.linalg.solve(np.eye(4) - np.kron(F, F), Q.ravel())[0]


class Toy:
    """y = wᵀ cos(ω x − π/4) + noise of variance .1, w ~ N(0, I): posterior in closed form.

    With whole frequencies and x spread evenly over a period the features are orthogonal; ``span`` < 1 is a part of it.
    """

    def __init__(self, rows=200, features=4, size=10, span=1.0, seed=0):
        rng = np.random.default_rng(seed)
        x = 2 * np.pi * span * np.arange(rows) / rows
        self.phi = np.cos(np.outer(x, np.arange(1, features + 1)) - np.pi / 4)
        self.y = self.phi @ rng.normal(size=features) + 0.1**0.5 * rng.normal(size=rows)
        self.rows, self.size, self.features = rows, size, features
        self.curvature = np.eye(features) + self.phi.T @ self.phi / 0.1
        self.covariance = np.linalg.inv(self.curvature)
        self.mean = self.covariance @ self.phi.T @ self.y / 0.1

    def model(self):
        with pm.Model() as model:
            phi, y = pm.Minibatch(self.phi, self.y, batch_size=self.size)
            w = pm.Normal("w", 0, 1, shape=self.features)
            pm.Normal("y", (phi * w).sum(-1), 0.1**0.5, observed=y, total_size=self.rows)
        return model

    def noise_covariance(self, spread):
        """2B of g, averaged over w ~ N(mean, spread): linear in the spread."""
        residual = self.phi @ self.mean - self.y
        weights = residual**2 + ((self.phi @ spread) * self.phi).sum(1)
        data = self.phi.T @ self.phi / 0.1
        slopes = self.rows * (self.phi.T * weights) @ self.phi / 0.01
        return (slopes - np.outer(self.mean, self.mean) - data @ spread @ data) / self.size

    def covariance_of_langevin(self, rates, injected):
        """Of w' = w − R (g + noise), the diagonal of R and the variances of the noise given: the fixed point."""
        d, R = self.features, np.diag(rates)
        F = np.eye(d) - R @ self.curvature

        def after(spread):
            return F @ spread @ F.T + R @ (np.diag(injected) + self.noise_covariance(spread)) @ R

        constant = after(np.zeros((d, d)))
        units = np.eye(d * d).reshape(d * d, d, d)
        linear = np.array([(after(unit) - constant).ravel() for unit in units]).T
        return np.linalg.solve(np.eye(d * d) - linear, constant.ravel()).reshape(d, d)


def logistic(x, y, size, columns):
    """Independent slopes θ_k ~ N(0, 1) of the same labels, y ~ Bernoulli(sigmoid(θ x)): a skewed posterior."""
    with pm.Model() as model:
        x_batch, labels = pm.Minibatch(
            pm.Data("x", x), pm.Data("labels", np.repeat(y[:, None], columns, axis=1)), batch_size=size
        )
        theta = pm.Normal("theta", 0, 1, shape=columns)
        pm.Bernoulli("y", logit_p=x_batch[:, None] * theta, observed=labels, total_size=len(x))
    return model

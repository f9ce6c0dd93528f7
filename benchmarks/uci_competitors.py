"""What a user might take instead of a Gibbs sampler, for ``uci.py``: each fits (X, y) and predicts y at X_test.

Inputs and targets are standardised. Every method returns its predictive distribution at each test point as a mixture of
normals: means and standard deviations, (component, point) each. All networks but MILE's have the layers of the Gibbs
sampler's and are trained by Adam (Kingma, Ba, 2015), here in JAX; nothing is tuned by data set but what a method tunes
itself, on a part of its training data.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict

Mixture = tuple[np.ndarray, np.ndarray]
BATCH, LEAST = 100, 1e-6  # the size of a batch, and the smallest variance
STEPS = (2000, 10_000, 50_000)  # of Adam


def ridge(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: Sequence[int], seed: int) -> Mixture:
    """Bayesian ridge regression of scikit-learn, with learned scales."""
    mean, sd = BayesianRidge().fit(X, y).predict(X_test, return_std=True)
    return mean[None], sd[None]


def boosting(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: Sequence[int], seed: int) -> Mixture:
    """Boosted trees of scikit-learn with cross-validated settings, and the spread of its cross-validated residuals."""
    folds = KFold(5, shuffle=True, random_state=seed)
    grid = {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [7, 31], "max_iter": [200, 600]}
    trees = HistGradientBoostingRegressor(min_samples_leaf=5, random_state=seed)
    best = GridSearchCV(trees, grid, cv=folds, scoring="neg_mean_squared_error").fit(X, y).best_estimator_
    residuals = y - cross_val_predict(best, X, y, cv=folds)
    mean = best.predict(X_test)
    return mean[None], np.full((1, len(mean)), residuals.std())


def ensemble(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: Sequence[int], seed: int) -> Mixture:
    """Five networks that predict a mean and a variance (Lakshminarayanan, Pritzel, Blundell, arXiv 1612.01474)."""
    keys = jax.random.split(jax.random.key(seed), 5)
    train = partial(_train, keys=keys, rates=jnp.zeros(5), hidden=tuple(hidden), outputs=2, draws=1)
    held_out, kept = _split(y, seed)

    def mixture(f):
        return np.asarray(f[:, 0, :, 0]), np.sqrt(np.logaddexp(0, np.asarray(f[:, 0, :, 1])) + LEAST)

    scores = [_log_density(*mixture(train(X[kept], y[kept], X[held_out], steps=steps)), y[held_out]) for steps in STEPS]
    return mixture(train(X, y, X_test, steps=STEPS[np.argmax(scores)]))


def dropout(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: Sequence[int], seed: int) -> Mixture:
    """MC dropout, trained for long (Gal, Ghahramani, arXiv 1506.02142)."""
    rates = jnp.array([0.005, 0.01, 0.05, 0.1])
    keys = jax.random.split(jax.random.key(seed), len(rates))
    held_out, kept = _split(y, seed)
    train = partial(_train, steps=STEPS[-1], hidden=tuple(hidden), outputs=1, draws=200)
    f = np.asarray(train(X[kept], y[kept], X[held_out], keys=keys, rates=rates))[..., 0]  # (rate, draw, point)
    noises = np.geomspace(0.01, 1, 41)
    scores = [[_log_density(g, noise, y[held_out]) for noise in noises] for g in f]
    rate, noise = np.unravel_index(np.argmax(scores), np.shape(scores))
    mean = np.asarray(train(X, y, X_test, keys=keys[:1], rates=rates[rate : rate + 1]))[0, ..., 0]
    return mean, np.full_like(mean, noises[noise])


def mile(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: Sequence[int], seed: int) -> Mixture:
    """Microcanonical Langevin ensembles (Sommer and others, arXiv 2502.06335), set as in their documentation.

    This one needs ``pip install sklearn-contrib-bde``.
    """
    from bde import BdeRegressor

    networks = BdeRegressor(
        n_members=8, hidden_layers=list(hidden), seed=seed, epochs=200, patience=10, warmup_steps=5000, n_samples=2000
    ).fit(X, y)
    mean, scale = np.moveaxis(np.asarray(networks.predict(X_test, raw=True), float), -1, 0)
    return mean.reshape(-1, len(X_test)), np.logaddexp(0, scale).reshape(-1, len(X_test)) + LEAST


def _split(y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A fifth of the rows, on which a method chooses its settings, and the others."""
    shuffled = np.random.default_rng(seed).permutation(len(y))
    return shuffled[: len(y) // 5], shuffled[len(y) // 5 :]


def _log_density(means: np.ndarray, sds: np.ndarray | float, y: np.ndarray) -> float:
    return float(np.mean(logsumexp(norm.logpdf(y, means, sds), axis=0) - np.log(len(means))))


@partial(jax.jit, static_argnames=("hidden", "outputs", "draws"))
def _train(X, y, X_test, *, keys, rates, steps, hidden, outputs, draws):
    """Train one network for each key, with its rate of dropout; return its outputs, (network, draw, point, output)."""
    batch = min(BATCH, len(y))
    sizes = (X.shape[1], *hidden, outputs)
    X, y, X_test = (jnp.asarray(x, jnp.float32) for x in (X, y, X_test))

    def network(weights, x, key, rate):
        for l, (W, b) in enumerate(weights):
            key, own = jax.random.split(key)
            x = x * jax.random.bernoulli(own, 1 - rate, x.shape) / (1 - rate)
            x = x @ W + b
            x = jax.nn.relu(x) if l < len(hidden) else x
        return x

    def loss(weights, x, y, key, rate):
        f = network(weights, x, key, rate)
        decay = 1e-6 * sum((W**2).sum() for W, _ in weights)
        if outputs == 1:
            return ((y - f[:, 0]) ** 2).mean() + decay
        variance = jax.nn.softplus(f[:, 1]) + LEAST
        return (jnp.log(variance) + (y - f[:, 0]) ** 2 / variance).mean() / 2 + decay

    def train(key, rate):
        key, *own = jax.random.split(key, len(sizes))
        weights = [
            (jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, jnp.zeros(b))
            for k, a, b in zip(own, sizes, sizes[1:], strict=False)
        ]
        first = jax.tree.map(jnp.zeros_like, weights)

        def step(t, state):
            weights, m, v = state
            k1, k2 = jax.random.split(jax.random.fold_in(key, t))
            rows = jax.random.randint(k1, (batch,), 0, len(y))
            g = jax.grad(loss)(weights, X[rows], y[rows], k2, rate)
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
            v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, v, g)
            size = 0.01 * (1 - t / steps) * jnp.sqrt(1 - 0.999 ** (t + 1)) / (1 - 0.9 ** (t + 1))
            weights = jax.tree.map(lambda w, m, v: w - size * m / (jnp.sqrt(v) + 1e-8), weights, m, v)
            return weights, m, v

        weights, _, _ = jax.lax.fori_loop(0, steps, step, (weights, first, first))
        return jax.vmap(lambda k: network(weights, X_test, k, rate))(jax.random.split(key, draws))

    return jax.vmap(train)(keys, rates)

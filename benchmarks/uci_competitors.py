"""What a user might take instead of a Gibbs sampler, for ``uci.py``: each fits (X, y) and predicts y at X_test.

Inputs and targets are standardised. Every method but conformal intervals returns its predictive distribution at each
test point as a mixture of normals: means and standard deviations, (component, point) each. A method is set as its
authors set it where they compare it with others, or else by a part of its training data; the docstrings say which. The
networks of the deep ensemble and of dropout have the layers of the Gibbs sampler's and are trained by Adam (Kingma, Ba,
2015), here in JAX. What the methods need beside scikit-learn and JAX is in ``requirements.txt``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from common import QUICK_MILE
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict

Mixture = tuple[np.ndarray, np.ndarray]
BATCH, LEAST = 100, 1e-6  # the size of a batch, and the smallest variance
STEPS = (2000, 10_000, 50_000)  # of Adam
MOST_ROWS = 2500  # of a Gaussian process, whose cost grows with their cube


class Intervals(NamedTuple):
    """The ends (2, point) of 90% predictive intervals."""

    interval: np.ndarray


def ridge(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: Sequence[int], seed: int) -> Mixture:
    """Bayesian ridge regression of scikit-learn, with learned scales."""
    mean, sd = BayesianRidge().fit(X, y).predict(X_test, return_std=True)
    return mean[None], sd[None]


def gaussian_process(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: Sequence[int], seed: int
) -> Mixture | None:
    """A Gaussian process of scikit-learn with a length scale for each input; None where rows are too many.

    Of a squared exponential and a Matérn kernel (ν = 5/2) the one with the higher marginal likelihood is taken.
    """
    if len(y) > MOST_ROWS:
        return None
    lengths, bounds = np.full(X.shape[1], 2.0), (1e-2, 1e4)
    processes = [
        GaussianProcessRegressor(
            ConstantKernel(1.0, (1e-3, 1e4)) * kernel + WhiteKernel(0.1, (1e-6, 10)),
            n_restarts_optimizer=1,
            random_state=seed,
        ).fit(X, y)
        for kernel in (RBF(lengths, bounds), Matern(lengths, bounds, nu=2.5))
    ]
    best = max(processes, key=lambda process: process.log_marginal_likelihood_value_)
    mean, sd = best.predict(X_test, return_std=True)
    return mean[None], sd[None]


def boosting(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: Sequence[int], seed: int) -> Mixture:
    """Boosted trees of scikit-learn with cross-validated settings, and the spread of its cross-validated residuals."""
    folds = KFold(5, shuffle=True, random_state=seed)
    best = _best_trees(
        HistGradientBoostingRegressor(min_samples_leaf=5, random_state=seed), X, y, folds, "neg_mean_squared_error"
    )
    residuals = y - cross_val_predict(best, X, y, cv=folds)
    mean = best.predict(X_test)
    return mean[None], np.full((1, len(mean)), residuals.std())


def conformal(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: Sequence[int], seed: int) -> Intervals:
    """Quantiles of boosted trees, made into 90% intervals by conformal prediction with cross-validation.

    Conformalized quantile regression (Romano, Patterson, Candès, arXiv 1905.03222) by MAPIE; the settings of the trees
    are those of cross-validated medians.
    """
    from mapie.regression import CrossConformalizedQuantileRegressor

    folds = KFold(5, shuffle=True, random_state=seed)
    trees = HistGradientBoostingRegressor(loss="quantile", quantile=0.5, min_samples_leaf=5, random_state=seed)
    best = _best_trees(trees, X, y, folds, "neg_mean_absolute_error")
    intervals = CrossConformalizedQuantileRegressor(best, confidence_level=0.9, cv=folds)
    _, ends = intervals.fit_conformalize(X, y).predict_interval(X_test)
    return Intervals(ends[:, :, 0].T)


def ngboost(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: Sequence[int], seed: int) -> Mixture:
    """Natural gradient boosting of a mean and a scale (Duan and others, arXiv 1910.03225), set as in their comparison.

    Up to 2,000 trees of depth 3 at a learning rate of 0.01; how many is chosen on a fifth of the rows, by log density,
    where their script takes squared errors, and then all are fitted.
    """
    from ngboost import NGBRegressor

    held_out, kept = _split(y, seed)
    trees = partial(NGBRegressor, learning_rate=0.01, random_state=seed, verbose=False)
    stages = trees(n_estimators=2000).fit(X[kept], y[kept]).staged_pred_dist(X[held_out])
    densities = [stage.logpdf(y[held_out]).mean() for stage in stages]
    found = trees(n_estimators=int(np.argmax(densities)) + 1).fit(X, y).pred_dist(X_test)
    return found.loc[None], found.scale[None]


def catboost(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: Sequence[int], seed: int) -> Mixture:
    """Ten boosted models of a mean and a variance (Malinin, Prokhorenkova, Ustimenko, arXiv 2006.10562).

    Depth, learning rate and the share of rows that a tree sees are chosen on a fifth of the rows from the grid of the
    authors, the number of trees is 1,000.
    """
    from catboost import CatBoostRegressor

    held_out, kept = _split(y, seed)
    model = partial(
        CatBoostRegressor,
        loss_function="RMSEWithUncertainty",
        bootstrap_type="Bernoulli",
        allow_writing_files=False,
        verbose=False,
    )

    def fit(rows: np.ndarray, at: np.ndarray, setting: tuple, seed: int) -> Mixture:
        depth, rate, share = setting
        trees = model(depth=depth, learning_rate=rate, subsample=share, random_seed=seed).fit(X[rows], y[rows])
        mean, variance = trees.predict(at).T
        return mean[None], np.sqrt(variance)[None]

    grid = list(product((3, 4, 5, 6), (0.001, 0.01, 0.1), (0.25, 0.5, 0.75)))
    scores = [_log_density(*fit(kept, X[held_out], setting, seed), y[held_out]) for setting in grid]
    best, everything = grid[int(np.argmax(scores))], np.arange(len(y))
    means, sds = zip(*(fit(everything, X_test, best, 10 * seed + i) for i in range(10)), strict=True)
    return np.concatenate(means), np.concatenate(sds)


def xgboost(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: Sequence[int], seed: int) -> Mixture:
    """XGBoost for a mean and a scale, by ``xgboost-distribution``, set as in the comparison of its documentation.

    Natural gradients and trees of depth 3, whose number, up to 500, is chosen by early stopping on a tenth of the rows.
    """
    from xgboost_distribution import XGBDistribution

    held_out, kept = _split(y, seed, share=10)
    trees = XGBDistribution(max_depth=3, n_estimators=500, early_stopping_rounds=10, random_state=seed)
    found = trees.fit(X[kept], y[kept], eval_set=[(X[held_out], y[held_out])], verbose=False).predict(X_test)
    return np.asarray(found.loc, float)[None], np.asarray(found.scale, float)[None]


def bart(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: Sequence[int], seed: int) -> Mixture:
    """Bayesian additive regression trees (Chipman, George, McCulloch, arXiv 0806.3286) by ``bartz``.

    200 trees and the priors are its defaults, which are those of the authors. Each of four chains makes 1,000 steps of
    burn-in and 1,000 draws, where the default is 100 steps, and 1,000 draws of all chains together.
    """
    from bartz.BART import mc_gbart

    varying = np.ptp(X, axis=0) > 0
    trees = mc_gbart(X[:, varying], y, ndpost=4000, nskip=1000, mc_cores=4, seed=seed, printevery=None)
    means = np.asarray(trees.predict(X_test[:, varying]), float)
    return means, np.broadcast_to(np.asarray(trees.sigma_, float)[:, None], means.shape)


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
    """Microcanonical Langevin ensembles (Sommer and others, arXiv 2502.06335) by ``sklearn-contrib-bde``.

    Set as in the comparison of the package's authors (paper/scripts/benchmark.py of its repository): ten networks of
    four layers of 16 units, up to 1,200 epochs, 50,000 steps of warm-up and 100 draws kept of 1,000.
    """
    return _mile(
        X, y, X_test, hidden, seed, n_members=10, epochs=1200, patience=20, warmup_steps=50_000, n_samples=1000,
        n_thinning=10,
    )  # fmt: skip


def quick_mile(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, hidden: Sequence[int], seed: int) -> Mixture:
    """The same as the documentation of the package sets it: eight networks of two layers, a tenth of the warm-up."""
    return _mile(X, y, X_test, hidden, seed, **QUICK_MILE)


def _mile(X, y, X_test, hidden, seed, **settings) -> Mixture:
    from bde import BdeRegressor

    networks = BdeRegressor(hidden_layers=list(hidden), seed=seed, **settings).fit(X, y)
    mean, scale = np.moveaxis(np.asarray(networks.predict(X_test, raw=True), float), -1, 0)
    return mean.reshape(-1, len(X_test)), np.logaddexp(0, scale).reshape(-1, len(X_test)) + LEAST


def _best_trees(trees, X, y, folds: KFold, scoring: str):
    """Return these boosted trees with cross-validated settings."""
    grid = {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [7, 31], "max_iter": [200, 600]}
    return GridSearchCV(trees, grid, cv=folds, scoring=scoring).fit(X, y).best_estimator_


def _split(y: np.ndarray, seed: int, share: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """A fifth of the rows, or another share, on which a method chooses its settings, and the others."""
    shuffled = np.random.default_rng(seed).permutation(len(y))
    return shuffled[: len(y) // share], shuffled[len(y) // share :]


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

"""Counts, grades and censored targets: how good predictions by these likelihoods are, beside what is usual for each.

A noisy network of 50 ReLU units in its default call, but for the likelihood, with four chains of 500 tuning and 500
further draws, and the regressions and trees that one would take instead, with settings that five-fold cross-validation
on the training rows chooses.

- Counts: ``simulated`` (500 rows of five inputs, negative binomial counts around a smooth function, 2,000 test rows)
  and ``bikesharing`` (rentals in an hour; 2,000 of the training rows of each split, drawn at random, and all its test
  rows). Regression sees months, hours and the like as indicators, all others see numbers. "Dispersed" methods have
  negative binomial counts around the same means, of which the dispersion is fitted to cross-validated predictions.
- Grades: ``wine_red``, of 3 to 8, also as real numbers with errors of Student's t distribution, where the probability
  of a grade is the mass within a half of it (that beyond 3 and 8 belongs to these). RPS is the sum of the squared
  errors of the predictive distribution function over grades. Probabilities of trees are mixed with 1 % of how often
  each grade occurs, since they may be 0.
- Censored targets: ``diabetes`` of scikit-learn, of which three quarters are for training, with a detection limit at
  the quantile 0.3 of their targets. Scores are those of the true targets of test rows. One fit takes the limit for the
  target where it is below, another one sees the true targets; Tobit regression is linear.

What is there already is not computed again, so a run can be broken off and resumed.

::

    OMP_NUM_THREADS=1 python benchmarks/targets.py FOLDER [--sets simulated ...] [--splits 3] [--methods ...]
    python benchmarks/targets.py FOLDER --table

FOLDER holds the sets as ``data_sets.py tables`` and ``data_sets.py uci`` write them. R-hat and ESS are those of the
network's output at 50 test rows, for grades less the mean of the cutpoints, since grades do not tell a number that is
added to both: the median and the largest, and the median ESS of all draws. NLL is the mean negative log probability, or
log density, of test targets in their units. ``less`` is the NLL less that of the best other method on the same rows,
chosen with hindsight among those that see the same data and are no network in a default call, and ``error`` its
standard error over test rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
from common import RESULTS, mixing, print_table, score_splits
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_ndtr
from scipy.stats import nbinom, norm, poisson
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import PoissonRegressor
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import pymc_gibbsnn as pmg

ROWS, UNITS, JUDGED = 2000, 50, 50
TUNE, DRAWS, THIN = 500, 500, 5  # every THIN-th draw predicts
DISPERSION = 3.0  # of the simulated counts
INDICATORS = [2, 3, 5, 7]  # columns of bikesharing: month, hour, weekday, weather
SHARE = 0.01  # of how often each grade occurs, in the probabilities of trees
BOOSTING = {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [7, 31], "max_iter": [100, 300]}


class Split(NamedTuple):
    """Standardised inputs, targets in their units, and what only some methods see."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    columns: list[int]  # inputs that are numbers of kinds
    truth: np.ndarray | None = None  # the means of test targets, or the training targets without limit
    limit: float = -np.inf


class Predicted(NamedTuple):
    """Of test rows: the log density of the target, its mean, and probabilities of grades; R-hat and ESS of chains."""

    density: np.ndarray
    mean: np.ndarray
    probability: np.ndarray | None = None
    chains: dict[str, float] | None = None


@lru_cache(maxsize=1)
def load(folder: Path, name: str, split: int) -> Split | None:
    """Read or simulate a split of a set; None if there is no such split."""
    rng = np.random.default_rng(split)
    columns, truth, limit = [], None, -np.inf
    if name == "simulated":
        X, X_test = rng.uniform(-1, 1, size=(500, 5)), rng.uniform(-1, 1, size=(2000, 5))
        mean, truth = (np.exp(1.5 + np.sin(3 * x[:, 0]) + 2 * x[:, 1] * x[:, 2] - x[:, 3] ** 2) for x in (X, X_test))
        y, y_test = (rng.negative_binomial(DISPERSION, DISPERSION / (DISPERSION + m)) for m in (mean, truth))
    elif name == "diabetes":
        X, X_test, truth, y_test = train_test_split(
            *load_diabetes(return_X_y=True, scaled=False), test_size=0.25, random_state=split
        )
        limit = float(np.quantile(truth, 0.3))
        y = np.maximum(truth, limit)
    else:
        file = np.load(folder / f"uci_{name}.npz")
        if f"split_{split}_test" not in file:
            return None
        test = file[f"split_{split}_test"]
        rows = np.setdiff1d(np.arange(len(file["y"])), test)
        rows = rng.choice(rows, ROWS, replace=False) if len(rows) > ROWS else rows
        X, y, X_test, y_test = (file[key][which] for which in (rows, test) for key in ("X", "y"))
        y, y_test = y.astype(int), y_test.astype(int)
        columns = INDICATORS if name == "bikesharing" else []
    centre, scale = X.mean(0), X.std(0)
    return Split((X - centre) / scale, y, (X_test - centre) / scale, y_test, columns, truth, limit)


# The network


def sample(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int, **of_model):
    """Sample the network; return the posterior, the model, and R-hat and ESS of its outputs."""
    with pmg.mlp(X, y, UNITS, **of_model) as model:
        idata = pm.sample(
            DRAWS, tune=TUNE, chains=4, cores=1, step=pmg.GibbsNN(), var_names=pmg.without_latents(),
            random_seed=seed, progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    new = {"X": X_test[:JUDGED]}
    if np.ndim(of_model.get("lower", 0)):
        new["lower"] = np.full(JUDGED, -np.inf)
    outputs = pmg.function_space(idata, model, new)["output"].values
    if "cutpoints_y" in idata["posterior"]:
        outputs = outputs - idata["posterior"]["cutpoints_y"].values.mean(-1, keepdims=True)
    return idata, model, mixing(outputs)


def of_counts(data: Split, seed: int, likelihood: str) -> Predicted:
    idata, model, chains = sample(data.X, data.y, data.X_test, seed, likelihood=likelihood)
    mean = pmg.predict(idata, model, data.X_test, thin=THIN, random_seed=seed)["mean"].values
    density = pmg.log_predictive(idata, model, data.X_test, data.y_test, thin=THIN, random_seed=seed)
    return Predicted(density["log_density"].values, mean, None, chains)


def of_grades(data: Split, seed: int) -> Predicted:
    """The ordered likelihood."""
    grades, y = np.unique(data.y, return_inverse=True)
    idata, model, chains = sample(data.X, y, data.X_test, seed, likelihood="ordered")
    p = pmg.predict(idata, model, data.X_test, thin=THIN, random_seed=seed)["probability"].values
    return of_probabilities(p, grades, data.y_test, chains)


def of_real_grades(data: Split, seed: int) -> Predicted:
    """Grades as real numbers: the probability of each is an integral of the predictive density."""
    grades = np.unique(data.y)
    location, spread = data.y.mean(), data.y.std()
    idata, model, chains = sample(data.X, (data.y - location) / spread, data.X_test, seed)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    steps = np.arange(grades[0] - 3, grades[-1] + 4)  # beyond these there is next to nothing
    places = ((steps[:, None] + nodes / 2).ravel() - location) / spread
    X = np.repeat(data.X_test, len(places), axis=0)
    found = pmg.log_predictive(idata, model, X, np.tile(places, len(data.X_test)), thin=2 * THIN, random_seed=seed)
    density = np.exp(found["log_density"].values).reshape(len(data.X_test), len(steps), len(nodes))
    mass = density @ weights / 2 / spread
    inside = np.clip(steps, grades[0], grades[-1]) == grades[:, None]
    p = mass @ inside.T
    return of_probabilities(p / p.sum(1, keepdims=True), grades, data.y_test, chains)


def of_censored(data: Split, seed: int, sees: str) -> Predicted:
    """Targets below the limit are censored, or the limit is taken for them, or they are seen."""
    location, spread = data.y.mean(), data.y.std()
    y = ((data.truth if sees == "truth" else data.y) - location) / spread
    of_model, new = {}, {"X": data.X_test}
    if sees == "limit":
        of_model["lower"] = np.full(len(y), (data.limit - location) / spread)
        new["lower"] = np.full(len(data.X_test), -np.inf)
        y = np.maximum(y, of_model["lower"])
    idata, model, chains = sample(data.X, y, data.X_test, seed, likelihood="normal", **of_model)
    y_test = (data.y_test - location) / spread
    density = pmg.log_predictive(idata, model, new, y_test, random_seed=seed)["log_density"].values
    mean = pmg.predict(idata, model, new, random_seed=seed)["mean"].values
    return Predicted(density - np.log(spread), location + spread * mean, None, chains)


# Other methods


def of_means(data: Split, mean: np.ndarray, held_out: np.ndarray | None) -> Predicted:
    """Counts around given means: Poisson's or, with means of training rows that were held out, with a dispersion."""
    if held_out is None:
        return Predicted(poisson.logpmf(data.y_test, mean), mean)

    def nll(log_alpha: float) -> float:
        alpha = np.exp(log_alpha)
        return -nbinom.logpmf(data.y, alpha, alpha / (alpha + held_out)).sum()

    alpha = np.exp(minimize_scalar(nll, bounds=(-3, 8), method="bounded").x)
    return Predicted(nbinom.logpmf(data.y_test, alpha, alpha / (alpha + mean)), mean)


def of_true_means(data: Split, seed: int) -> Predicted | None:
    if data.truth is None:
        return None
    p = DISPERSION / (DISPERSION + data.truth)
    return Predicted(nbinom.logpmf(data.y_test, DISPERSION, p), data.truth)


def counts(data: Split, seed: int, dispersed: bool, model: Callable) -> Predicted:
    folds = KFold(5, shuffle=True, random_state=seed)
    estimator, grid = model(data, seed)
    best = GridSearchCV(estimator, grid, cv=folds, scoring="neg_mean_poisson_deviance").fit(data.X, data.y)
    held_out = cross_val_predict(best.best_estimator_, data.X, data.y, cv=folds) if dispersed else None
    return of_means(data, best.predict(data.X_test), held_out)


def regression_of_counts(data: Split, seed: int):
    encoder = OneHotEncoder(handle_unknown="ignore")
    inputs = make_column_transformer((encoder, data.columns), remainder="passthrough")
    return make_pipeline(inputs, PoissonRegressor(solver="newton-cholesky")), {
        "poissonregressor__alpha": [1e-4, 1e-3, 1e-2, 0.1, 1.0]
    }


def boosting_of_counts(data: Split, seed: int):
    return HistGradientBoostingRegressor(loss="poisson", random_state=seed), BOOSTING


def of_probabilities(p: np.ndarray, grades: np.ndarray, y: np.ndarray, chains: dict | None = None) -> Predicted:
    """Predictions by probabilities (row, grade)."""
    return Predicted(np.log(p[np.arange(len(y)), np.searchsorted(grades, y)]), p @ grades, p, chains)


def classifier(data: Split, seed: int, estimator: Callable, grid: dict) -> Predicted:
    """Trees, with settings of the least cross-validated NLL."""
    grades, y = np.unique(data.y, return_inverse=True)
    frequency = np.bincount(y) / len(y)

    def score_of(fitted, X: np.ndarray, y: np.ndarray) -> float:
        return np.log(mixed(fitted.predict_proba(X))[np.arange(len(y)), y]).mean()

    def mixed(p: np.ndarray) -> np.ndarray:
        return (1 - SHARE) * p + SHARE * frequency

    best = GridSearchCV(estimator(random_state=seed), grid, cv=5, scoring=score_of).fit(data.X, y)
    return of_probabilities(mixed(best.predict_proba(data.X_test)), grades, data.y_test)


def proportional_odds(data: Split, seed: int) -> Predicted:
    """Logistic regression of ordered grades, by maximum likelihood."""
    grades, y = np.unique(data.y, return_inverse=True)
    k = len(grades) - 1

    def probabilities(parameters: np.ndarray, X: np.ndarray) -> np.ndarray:
        cutpoints = np.cumsum(np.concatenate([parameters[:1], np.exp(parameters[1:k])]))
        below = expit(cutpoints - (X @ parameters[k:])[:, None])
        return np.diff(below, axis=1, prepend=0, append=1)

    def nll(parameters: np.ndarray) -> float:
        return -np.log(np.maximum(probabilities(parameters, data.X)[np.arange(len(y)), y], 1e-300)).sum()

    start = np.concatenate([[-4], np.zeros(k - 1), np.zeros(data.X.shape[1])])
    return of_probabilities(probabilities(minimize(nll, start).x, data.X_test), grades, data.y_test)


def tobit(data: Split, seed: int) -> Predicted:
    """Linear regression with censored targets, by maximum likelihood."""
    location, spread = data.y.mean(), data.y.std()
    y, limit = (data.y - location) / spread, (data.limit - location) / spread
    X, X_test = (np.column_stack([np.ones(len(x)), x]) for x in (data.X, data.X_test))

    def nll(parameters: np.ndarray) -> float:
        mean, sd = X @ parameters[1:], np.exp(parameters[0])
        return -np.where(y <= limit, log_ndtr((limit - mean) / sd), norm.logpdf(y, mean, sd)).sum()

    found = minimize(nll, np.zeros(1 + X.shape[1])).x
    mean, sd = location + spread * X_test @ found[1:], spread * np.exp(found[0])
    return Predicted(norm.logpdf(data.y_test, mean, sd), mean)


COUNTS: dict[str, Callable] = {
    "true means": of_true_means,
    "regression": partial(counts, dispersed=False, model=regression_of_counts),
    "regression, dispersed": partial(counts, dispersed=True, model=regression_of_counts),
    "boosting": partial(counts, dispersed=False, model=boosting_of_counts),
    "boosting, dispersed": partial(counts, dispersed=True, model=boosting_of_counts),
    "negative_binomial": partial(of_counts, likelihood="negative_binomial"),
    "poisson": partial(of_counts, likelihood="poisson"),
}
GRADES: dict[str, Callable] = {
    "proportional odds": proportional_odds,
    "random forest": partial(
        classifier, estimator=partial(RandomForestClassifier, 500), grid={"min_samples_leaf": [1, 2, 4, 8, 16]}
    ),
    "boosted classes": partial(classifier, estimator=HistGradientBoostingClassifier, grid=BOOSTING),
    "ordered": of_grades,
    "student": of_real_grades,
}
CENSORED: dict[str, Callable] = {
    "Tobit regression": tobit,
    "limit for target": partial(of_censored, sees="y"),
    "censored": partial(of_censored, sees="limit"),
    "true targets": partial(of_censored, sees="truth"),
}
SETS = {"simulated": COUNTS, "bikesharing": COUNTS, "wine_red": GRADES, "diabetes": CENSORED}
METHODS = {**COUNTS, **GRADES, **CENSORED}
OTHERS = {  # with the best of which each method is compared
    "regression", "regression, dispersed", "boosting", "boosting, dispersed",
    "proportional odds", "random forest", "boosted classes", "Tobit regression", "limit for target",
}  # fmt: skip


@lru_cache(maxsize=len(METHODS))
def predicted(folder: Path, name: str, split: int, method: str) -> tuple[Predicted, float] | None:
    """Fit a method to the training part of a split; return its predictions of the test part, and seconds."""
    data, start = load(folder, name, split), time.perf_counter()
    if data is None or (found := METHODS[method](data, split)) is None:
        return None
    return found, time.perf_counter() - start


def score(folder: Path, name: str, split: int, method: str) -> dict[str, float] | None:
    """Score what a method predicts of the test part of a split, beside the best of the others."""
    if method not in SETS[name] or (fit := predicted(folder, name, split, method)) is None:
        return None
    (density, mean, p, chains), seconds = fit
    y = load(folder, name, split).y_test
    others = [predicted(folder, name, split, other)[0].density for other in SETS[name] if other in OTHERS]
    less = max(others, key=np.mean) - density
    found = {"NLL": float(-density.mean()), "RMSE": float(np.sqrt(np.mean((mean - y) ** 2)))}
    if p is not None:
        grades = np.unique(load(folder, name, split).y)
        found["RPS"] = float(((p.cumsum(1) - (y[:, None] <= grades)) ** 2).sum(1).mean())
    comparison = {"less": float(less.mean()), "error": float(less.std() / len(less) ** 0.5)}
    return (chains or {}) | found | comparison | {"seconds": seconds}


def table(results: dict[str, dict[str, float]], name: str) -> list[dict[str, object]]:
    """Means over splits; the error of ``less`` is that of its mean, from the errors of splits."""
    rows = []
    for method in SETS[name]:
        splits = [values for key, values in results.items() if key.startswith(f"{name}/{method}/")]
        if not splits:
            continue
        means = {key: float(np.mean([values[key] for values in splits])) for key in splits[0]}
        means["seconds"] = float(np.median([values["seconds"] for values in splits]))
        means["error"] = float(np.sqrt(np.sum([values["error"] ** 2 for values in splits]))) / len(splits)
        rows.append({"method": method, "splits": len(splits), "R-hat": "-", "largest": "-", "ESS": "-"} | means)
    return rows


if __name__ == "__main__":
    found, _ = score_splits(__doc__, score, [*SETS], [*METHODS], [*METHODS], 3, RESULTS / "targets.json")
    for name in SETS:
        if rows := table(found, name):
            print_table(name, rows)

"""Inputs of which 30 % are missing: drawn with the network, or filled in before.

From each set, 30 % of all entries of the inputs are removed at random, in training and in test rows. The network has 50
ReLU units in its default form, with ``standardise=True``, and four chains of 500 tuning and 500 further draws.

- ``drawn with the network``: missing entries are variables of the model (``missing="model"``).
- ``mean``, ``iterative``: they are filled in by scikit-learn's SimpleImputer or IterativeImputer, and the same network
  is fitted to the completed inputs.
- ``boosting``: HistGradientBoostingRegressor, which takes missing entries as they are, with settings chosen by
  five-fold cross-validation, and normal errors of the deviation that cross-validated predictions have.

The sets are scikit-learn's diabetes (a quarter of the rows is the test set, drawn anew for each split), and concrete
and energy of the UCI repository (their own splits). What is there already is not computed again, so a run can be broken
off and resumed.

::

    OMP_NUM_THREADS=1 python benchmarks/missing_inputs.py FOLDER [--sets diabetes ...] [--splits 3] [--methods ...]
    python benchmarks/missing_inputs.py FOLDER --table

FOLDER holds the sets as ``data_sets.py uci`` writes them. NLL is the mean negative log density of test targets in
their units, ``RMSE`` the root mean squared error, and ``coverage`` the share of test targets inside 90 % predictive
intervals.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pymc as pm
from common import RESULTS, print_table, score_splits, scores_by_method
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_predict, train_test_split

import pymc_gibbsnn as pmg

SETS = ("diabetes", "concrete", "energy")
MISSING, UNITS, DRAWS, THIN = 0.3, 50, 500, 5
SCORES = ("NLL", "RMSE", "coverage")
BOOSTING = {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [7, 31], "max_iter": [100, 300]}
Predicted = tuple[np.ndarray, np.ndarray, np.ndarray]  # log densities of the targets, means, and 90 % intervals


def load(folder: Path, name: str, split: int) -> tuple[np.ndarray, ...] | None:
    """X, X_test, y, y_test, with holes in X and X_test; None if there is no such split."""
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True, scaled=False)
        _, test = train_test_split(np.arange(len(y)), test_size=0.25, random_state=split)
    else:
        file = np.load(folder / f"uci_{name}.npz")
        if f"split_{split}_test" not in file:
            return None
        X, y, test = file["X"], file["y"], file[f"split_{split}_test"]
    holes = np.random.default_rng(split).random(X.shape) < MISSING
    X = np.where(holes, np.nan, X)
    train = np.setdiff1d(np.arange(len(y)), test)
    return X[train], X[test], y[train], y[test]


def network(X: np.ndarray, X_test: np.ndarray, y: np.ndarray, y_test: np.ndarray, seed: int) -> Predicted:
    """The network, with what is missing drawn with it."""
    with pmg.mlp(X, y, UNITS, standardise=True) as model:
        idata = pm.sample(
            DRAWS, tune=DRAWS, chains=4, cores=1, step=pmg.GibbsNN(), var_names=pmg.without_latents(),
            random_seed=seed, progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    density = pmg.log_predictive(idata, model, X_test, y_test, thin=THIN, random_seed=seed)["log_density"].values
    found = pmg.predict(idata, model, X_test, quantiles=(0.05, 0.95), random_seed=seed)
    return density, found["mean"].values, found["quantiles"].values


def filled_in(imputer, X: np.ndarray, X_test: np.ndarray, y: np.ndarray, y_test: np.ndarray, seed: int) -> Predicted:
    """The network, on inputs that an imputer completes."""
    return network(imputer.fit_transform(X), imputer.transform(X_test), y, y_test, seed)


def boosting(X: np.ndarray, X_test: np.ndarray, y: np.ndarray, y_test: np.ndarray, seed: int) -> Predicted:
    """Boosted trees with normal errors."""
    search = GridSearchCV(HistGradientBoostingRegressor(random_state=seed), BOOSTING, cv=5).fit(X, y)
    sd = (y - cross_val_predict(search.best_estimator_, X, y, cv=5)).std()
    mean = search.predict(X_test)
    return norm.logpdf(y_test, mean, sd), mean, np.stack([mean - 1.645 * sd, mean + 1.645 * sd])


METHODS = {
    "drawn with the network": network,
    "mean": lambda *data: filled_in(SimpleImputer(), *data),
    "iterative": lambda *data: filled_in(IterativeImputer(max_iter=30, random_state=0), *data),
    "boosting": boosting,
}


def score(folder: Path, name: str, split: int, method: str) -> dict[str, float] | None:
    """Fit a method to the training part of a split, and score its predictions of the test targets."""
    if (data := load(folder, name, split)) is None:
        return None
    start, y_test = time.perf_counter(), data[-1]
    density, mean, (low, high) = METHODS[method](*data, split)
    return {
        "NLL": float(-density.mean()),
        "RMSE": float(((mean - y_test) ** 2).mean() ** 0.5),
        "coverage": float(((low <= y_test) & (y_test <= high)).mean()),
        "seconds": time.perf_counter() - start,
    }


if __name__ == "__main__":
    methods = list(METHODS)
    found, _ = score_splits(__doc__, score, SETS, methods, methods, 3, RESULTS / "missing_inputs.json")
    print_table("Missing inputs", [row for name in SETS for row in scores_by_method(found, name, methods, SCORES)])

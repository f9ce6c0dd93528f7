"""The estimators of scikit-learn's interface beside others, by five-fold cross-validation.

Each estimator is scored by ``cross_validate`` on five shuffled folds, the same for all, in a pipeline with a
``StandardScaler`` where it needs one. The networks have their default settings but for the number of draws: 50 ReLU
units and one chain after the other. The sets are red wine (quality as a number) and airfoil noise of the UCI
repository, and scikit-learn's breast cancer (two classes).

- ``NetworkRegressor``, ``NetworkClassifier``: as they come.
- ``ridge``, ``logistic regression``: with the penalty chosen by cross-validation.
- ``boosting``: HistGradientBoosting with its default settings.
- ``Gaussian process``: radial basis functions with a length scale for each input, and white noise; for classes one
  length scale and a Laplace approximation. Of more than 500 training rows, 500 are drawn.

The log score is the mean log predictive density, or log probability, of a test target. Ridge and boosting predict no
density: theirs is normal, with the deviation of residuals that five-fold cross-validation of the training rows gives.

::

    OMP_NUM_THREADS=1 python benchmarks/estimators.py FOLDER [--sets wine_red ...] [--methods ...] [--draws 200]
    python benchmarks/estimators.py FOLDER --table

FOLDER holds ``uci_wine_red.npz`` as ``data_sets.py uci`` writes it, and ``uci_airfoil.npz`` with ``X`` and ``y``, the
set "Airfoil Self-Noise" of the UCI repository. What is there already is not computed again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import RESULTS, Results, print_table, standard_error
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.metrics import accuracy_score, log_loss, root_mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pymc_gibbsnn as pmg

SETS = ("wine_red", "airfoil", "breast_cancer")
CLASSES = ("breast_cancer",)
MOST = 500  # training rows of a Gaussian process
PENALTIES = np.logspace(-3, 3, 13)


class WithResiduals(RegressorMixin, BaseEstimator):
    """A regressor with normal errors, whose deviation is that of its cross-validated residuals."""

    def __init__(self, regressor):
        self.regressor = regressor

    def fit(self, X, y):
        folds = KFold(5, shuffle=True, random_state=0)
        self.sd_ = np.std(y - cross_val_predict(self.regressor, X, y, cv=folds))
        self.regressor_ = clone(self.regressor).fit(X, y)
        return self

    def predict(self, X, return_std=False):
        mean = self.regressor_.predict(X)
        return (mean, np.full(len(mean), self.sd_)) if return_std else mean


class OnSomeRows(BaseEstimator):
    """An estimator that is fitted to at most so many rows, drawn at random."""

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y):
        rows = np.random.default_rng(0).permutation(len(y))[:MOST]
        self.estimator_ = clone(self.estimator).fit(X[rows], y[rows])
        return self

    def predict(self, X, **kwargs):
        return self.estimator_.predict(X, **kwargs)


def methods(name: str, inputs: int, draws: int) -> dict[str, BaseEstimator]:
    """The estimators for a set, which has so many inputs."""
    chains = {"draws": draws, "tune": draws, "random_state": 0}
    if name in CLASSES:
        process = GaussianProcessClassifier(ConstantKernel() * RBF(inputs**0.5), random_state=0)
        linear = LogisticRegressionCV(Cs=PENALTIES, scoring="neg_log_loss", max_iter=1000, cv=5)
        return {
            "NetworkClassifier": pmg.NetworkClassifier(**chains),
            "logistic regression": make_pipeline(StandardScaler(), linear),
            "boosting": HistGradientBoostingClassifier(random_state=0),
            "Gaussian process": make_pipeline(StandardScaler(), process),
        }
    kernel = ConstantKernel() * RBF(np.full(inputs, inputs**0.5)) + WhiteKernel(0.1)
    process = OnSomeRows(GaussianProcessRegressor(kernel, normalize_y=True, random_state=0))
    return {
        "NetworkRegressor": pmg.NetworkRegressor(**chains),
        "ridge": make_pipeline(StandardScaler(), WithResiduals(RidgeCV(PENALTIES))),
        "boosting": WithResiduals(HistGradientBoostingRegressor(random_state=0)),
        "Gaussian process": make_pipeline(StandardScaler(), process),
    }


def load(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """X and y of a set."""
    if name == "breast_cancer":
        return load_breast_cancer(return_X_y=True)
    file = np.load(folder / f"uci_{name}.npz")
    return file["X"], file["y"]


def of_numbers(estimator, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The error of the predicted mean, and the log score."""
    if hasattr(estimator, "log_score"):
        return {"error": root_mean_squared_error(y, estimator.predict(X)), "log score": estimator.log_score(X, y)}
    mean, sd = estimator.predict(X, return_std=True)
    return {"error": root_mean_squared_error(y, mean), "log score": float(norm.logpdf(y, mean, sd).mean())}


def of_classes(estimator, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The accuracy, and the log score."""
    p = estimator.predict_proba(X)
    return {"accuracy": accuracy_score(y, p.argmax(axis=1)), "log score": -log_loss(y, p)}


def score(folder: Path, name: str, method: str, draws: int) -> dict[str, list[float]]:
    """Scores and seconds of each fold."""
    X, y = load(folder, name)
    folds: KFold | StratifiedKFold
    scoring: Callable
    if name in CLASSES:
        folds, scoring = StratifiedKFold(5, shuffle=True, random_state=0), of_classes
    else:
        folds, scoring = KFold(5, shuffle=True, random_state=0), of_numbers
    found = cross_validate(
        methods(name, X.shape[1], draws)[method], X, y, cv=folds, scoring=scoring, error_score="raise"
    )
    scores = {key.removeprefix("test_"): values.tolist() for key, values in found.items() if key.startswith("test_")}
    return scores | {"seconds": (found["fit_time"] + found["score_time"]).tolist()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--draws", type=int, default=200, help="of each chain, after as many that tune")
    parser.add_argument("--table", action="store_true", help="only print what has been computed")
    parser.add_argument("--output", type=Path, default=RESULTS / "estimators.json")
    arguments = parser.parse_args()
    results = Results(arguments.output)
    for name in () if arguments.table else arguments.sets:
        for method in methods(name, 1, arguments.draws):
            key = f"{name}/{method}"
            if key not in results and (arguments.methods is None or method in arguments.methods):
                results[key] = score(arguments.data, name, method, arguments.draws) | {"draws": arguments.draws}
                print(key, {k: np.mean(x).round(4) for k, x in results[key].items()}, flush=True)
    for name in SETS:
        rows = []
        for key, found in results.items():
            if key.startswith(f"{name}/"):
                measured = {k: x for k, x in found.items() if k not in ("seconds", "draws")}
                row = {k: f"{np.mean(x):.3f} ± {standard_error(x):.3f}" for k, x in measured.items()}
                rows.append({"method": key.partition("/")[2]} | row | {"seconds": float(np.sum(found["seconds"]))})
        if rows:
            print_table(name, rows)

"""Classification of small sets of data: how good predicted probabilities are, and how long they take.

GibbsNN is called as one calls it with nothing but data: a noisy network of 50 ReLU units with a probit likelihood.
Beside it stand the classical Bayesian network of the same size, by MALA, and logistic regression, an ordinary network
of this size, a random forest and gradient boosting, with regularisation chosen by cross-validation on the training
part. With the packages of ``requirements.txt`` there are also XGBoost, CatBoost with its defaults, and MILE as the
documentation of its package (bde) sets it for regression; and a Gaussian process where the training part has at most
1,000 rows. The sets are scikit-learn's digits, breast cancer, iris and wine (a quarter of the rows is the test set,
drawn anew for each split), ionosphere, sonar and australian of the UCI repository (their own splits), and 2,000 images
of MNIST and of Fashion-MNIST (drawn anew for each split; tested on the first 5,000 test images). What is there already
is not computed again, so a run can be broken off and resumed.

::

    OMP_NUM_THREADS=1 python benchmarks/classification.py FOLDER [--sets digits ...] [--splits 5] [--methods ...]
    python benchmarks/classification.py FOLDER --table

FOLDER holds the sets as ``data_sets.py tables`` and ``data_sets.py images`` write them. Scores: accuracy, mean negative
log probability of the test labels (NLL), Brier score, and expected calibration error (ECE); and the median and the
largest R-hat and the median ESS of the outputs of GibbsNN at 50 test rows, less their mean over classes, which labels
do not tell.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np
import pymc as pm
from common import QUICK_MILE, RESULTS, mixing, print_table, score_splits, scores_by_method, some_images
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neural_network import MLPClassifier

import pymc_gibbsnn as pmg

IMAGES = ("mnist", "fashion_mnist")
OF_SKLEARN = {"cancer": load_breast_cancer, "digits": load_digits, "iris": load_iris, "wine": load_wine}
SETS = ("iris", "wine", "cancer", "ionosphere", "sonar", "australian", "digits", *IMAGES)
SCORES = ("accuracy", "NLL", "Brier", "ECE", "R-hat", "largest", "ESS")
UNITS, JUDGED = 50, 50
MANY = 100  # features; where there are more, chains have 200 draws in place of 500
MOST_ROWS = 1000  # of a Gaussian process, whose cost grows with their cube
Fit = np.ndarray | tuple[np.ndarray, dict[str, float]] | None


def gibbs(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int, draws: int | None = None) -> Fit:
    """Probabilities of the classes, (point, class), and how outputs mix."""
    draws = draws or (200 if X.shape[1] > MANY else 500)
    with pmg.mlp(X, y, UNITS, likelihood="probit") as model:
        idata = pm.sample(
            draws, tune=draws, chains=4, cores=1, step=pmg.GibbsNN(sweeps_per_draw=1),
            var_names=pmg.without_latents(), random_seed=seed, progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
        outputs = pmg.function_space(idata, model, X_test[:JUDGED])["output"].values
        if outputs.ndim == 4:
            outputs = outputs - outputs.mean(axis=-1, keepdims=True)
        p = pmg.predict(idata, model, X_test, random_seed=seed)["probability"].values
    return p, mixing(outputs)


def mala(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> np.ndarray:
    """Without noise inside, by Langevin steps that keep most of their momentum; four chains."""
    with pmg.classical_mlp(X, y, UNITS, activation="relu", prior_variance=[3 / X.shape[1], 1]) as model:
        step = pmg.MALA(momentum_refresh=0.03, sweeps_per_draw=20)
        idata = pmg.sample(500, tune=500, step=step, random_seed=seed, progressbar=False)
        return pmg.predict(idata, model, X_test, random_seed=seed)["probability"].values


def logistic(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> np.ndarray:
    model = LogisticRegressionCV(Cs=8, cv=5, scoring="neg_log_loss", max_iter=2000)
    return model.fit(X, y).predict_proba(X_test)


def network(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> np.ndarray:
    """An ordinary network, trained by Adam."""
    ordinary = MLPClassifier(UNITS, max_iter=1000, random_state=seed)
    grid = {"alpha": [1e-4, 1e-2, 1e-1, 1.0, 10.0]}
    return GridSearchCV(ordinary, grid, cv=5, scoring="neg_log_loss").fit(X, y).predict_proba(X_test)


def forest(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> np.ndarray:
    trees = RandomForestClassifier(500, random_state=seed)
    grid = {"min_samples_leaf": [1, 3, 10]}
    return GridSearchCV(trees, grid, cv=5, scoring="neg_log_loss").fit(X, y).predict_proba(X_test)


def boosting(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> np.ndarray:
    trees = HistGradientBoostingClassifier(early_stopping=True, max_iter=300, random_state=seed)
    grid = {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [4, 16]}
    return GridSearchCV(trees, grid, cv=3, scoring="neg_log_loss").fit(X, y).predict_proba(X_test)


def gaussian_process(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> np.ndarray | None:
    """With a length scale for each feature, which the marginal likelihood sets; None where rows are too many."""
    if len(y) > MOST_ROWS:
        return None
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * RBF(np.full(X.shape[1], X.shape[1] ** 0.5), (1e-2, 1e4))
    return GaussianProcessClassifier(kernel, random_state=seed).fit(X, y).predict_proba(X_test)


def xgboost(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> np.ndarray:
    from xgboost import XGBClassifier

    trees = XGBClassifier(learning_rate=0.1, random_state=seed)
    grid = {"max_depth": [2, 4, 6], "n_estimators": [30, 100, 300]}
    return GridSearchCV(trees, grid, cv=5, scoring="neg_log_loss").fit(X, y).predict_proba(X_test)


def catboost(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> np.ndarray:
    from catboost import CatBoostClassifier

    trees = CatBoostClassifier(random_seed=seed, thread_count=1, allow_writing_files=False, verbose=False)
    return trees.fit(X, y).predict_proba(X_test)


def mile(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> np.ndarray:
    from bde import BdeClassifier

    networks = BdeClassifier(hidden_layers=[16, 16], seed=seed, **QUICK_MILE)
    return np.asarray(networks.fit(X, y).predict_proba(X_test), float)


METHODS = {
    "GibbsNN": gibbs,
    "GibbsNN, 1,000 draws": partial(gibbs, draws=1000),
    "MALA": mala,
    "logistic regression": logistic,
    "network": network,
    "random forest": forest,
    "boosting": boosting,
    "Gaussian process": gaussian_process,
    "XGBoost": xgboost,
    "CatBoost": catboost,
    "MILE": mile,
}
OTHER_PACKAGES = ("XGBoost", "CatBoost", "MILE")


def load(folder: Path, name: str, split: int) -> tuple[np.ndarray, ...] | None:
    """X, X_test, y, y_test, or None where there is no such split.

    Features of one kind, such as pixels, have one scale: what hardly varies stays small.
    """
    if name in OF_SKLEARN:
        X, y = OF_SKLEARN[name](return_X_y=True)
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=split, stratify=y)
    elif name not in IMAGES:
        file = np.load(folder / f"uci_{name}.npz")
        if f"split_{split}_test" not in file:
            return None
        test = np.isin(np.arange(len(file["y"])), file[f"split_{split}_test"])
        X, X_test, y, y_test = file["X"][~test], file["X"][test], file["y"][~test], file["y"][test]
        y, y_test = y.astype(int), y_test.astype(int)
    else:
        X, X_test, y, y_test = some_images(folder, name, 2000, split)
    centre = X.mean(axis=0)
    scale = (X - centre).std() if name in ("digits", *IMAGES) else np.maximum(X.std(axis=0), 1e-9)
    return (X - centre) / scale, (X_test - centre) / scale, y, y_test


def score(folder: Path, name: str, split: int, method: str) -> dict[str, float] | None:
    """Fit a method to the training part of a split, and score its probabilities of the test labels."""
    if (data := load(folder, name, split)) is None:
        return None
    X, X_test, y, y_test = data
    start, of_chains = time.perf_counter(), {}
    p: Fit = METHODS[method](X, y, X_test, split)
    if p is None:
        return None
    if isinstance(p, tuple):
        p, of_chains = p
    seconds = time.perf_counter() - start
    p = p if p.ndim == 2 else np.stack([1 - p, p], axis=1)
    return {
        "accuracy": float((p.argmax(1) == y_test).mean()),
        "NLL": float(-np.log(np.maximum(p[np.arange(len(y_test)), y_test], 1e-12)).mean()),
        "Brier": float(pmg.scoring.brier(p, y_test)),
        "ECE": float(pmg.scoring.expected_calibration_error(p, y_test)),
        "seconds": seconds,
    } | of_chains


if __name__ == "__main__":
    by_default = [method for method in METHODS if "draws" not in method and method not in OTHER_PACKAGES]
    found, _ = score_splits(__doc__, score, SETS, list(METHODS), by_default, 5, RESULTS / "classification.json")
    print_table(
        "Classification", [row for name in SETS for row in scores_by_method(found, name, list(METHODS), SCORES)]
    )

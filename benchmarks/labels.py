"""Chains on class labels: how well what labels identify mixes, and how good predictions are, by configuration.

A noisy network of 30 ReLU units with four chains, in its default call and with one thing changed at a time: known noise
of hidden latents or less of the last one, other priors of weights, and GibbsNN without its moves that hold noise fixed,
among them the joint one of all weights. The sets are scikit-learn's digits and wine (a quarter of the rows is the test
set, drawn anew for each split), and images of MNIST and of Fashion-MNIST (drawn anew for each split; tested on the
first 5,000 test images), of all of which at most 1,000 rows are used. Logistic regression, with its strength
cross-validated, stands beside them. What is there already is not computed again, so a run can be broken off and
resumed.

::

    OMP_NUM_THREADS=1 python benchmarks/labels.py FOLDER [--sets digits ...] [--splits 1] [--methods default ...]
    python benchmarks/labels.py FOLDER --table

FOLDER holds ``mnist.npz`` and ``fashion_mnist.npz`` with x_train, y_train, x_test and y_test. Labels do not tell a
number that is added to all outputs of a row, so that R-hat and ESS are those of outputs less their mean over classes,
at 50 test rows: the median and the largest of 50 k numbers for k classes, and the median ESS of all draws. Accuracy and
NLL are of the mean probabilities of all chains, and so is ``confidence``, the mean probability of the most probable
class; ``less`` is the number of test rows that logistic regression has right and the network wrong, less the number of
those where it is the other way round, and ``error`` the standard error of that number.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pymc as pm
from common import RESULTS, mixing, print_table, score_splits, some_images
from sklearn.datasets import load_digits, load_wine
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import train_test_split

import pymc_gibbsnn as pmg

SETS = ("digits", "wine", "mnist", "fashion_mnist")
ROWS, UNITS, JUDGED = 1000, 30, 50
TUNE, DRAWS = 150, 150
METHODS: dict[str, tuple[dict, dict]] = {  # arguments of mlp and of GibbsNN
    "default": ({}, {}),
    "noise 0.1": ({"noise": [0.1, 0.1, 1.0]}, {}),
    "noise 0.3": ({"noise": [0.3, 0.3, 1.0]}, {}),
    "noise 1": ({"noise": 1.0}, {}),
    "noise 0.1 of the last latent": ({"noise": ["learned", "learned", 0.1]}, {}),
    "known priors": ({"prior": None}, {}),
    "relevance of units": ({"prior": ["relevance", "relevance"]}, {}),
    "noise not held": ({}, {"interweave": False}),
}
REGRESSION = "logistic regression"


def load(folder: Path, name: str, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """X, X_test, y, y_test. Pixels have one scale: what hardly varies stays small."""
    if name in ("digits", "wine"):
        X, y = (load_digits if name == "digits" else load_wine)(return_X_y=True)
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=split, stratify=y)
        X, y = X[:ROWS], y[:ROWS]
    else:
        X, X_test, y, y_test = some_images(folder, name, ROWS, split)
    centre = X.mean(axis=0)
    scale = X.std(axis=0) if name == "wine" else (X - centre).std()
    return (X - centre) / scale, (X_test - centre) / scale, y, y_test


def score(folder: Path, name: str, split: int, method: str) -> dict[str, float]:
    """Fit a method to the training part of a split, and score its chains and its probabilities of the test labels."""
    X, X_test, y, y_test = load(folder, name, split)
    regression = LogisticRegressionCV(Cs=8, cv=5, scoring="neg_log_loss", max_iter=2000).fit(X, y)
    start, p, of_chains = time.perf_counter(), regression.predict_proba(X_test), {}
    right = p.argmax(1) == y_test
    if method != REGRESSION:
        of_model, of_step = METHODS[method]
        with pmg.mlp(X, y, UNITS, likelihood="probit", **of_model) as model:
            idata = pm.sample(
                DRAWS, tune=TUNE, chains=4, cores=1, step=pmg.GibbsNN(sweeps_per_draw=1, **of_step),
                var_names=pmg.without_latents(), random_seed=split, progressbar=False, compute_convergence_checks=False,
            )  # fmt: skip
            outputs = pmg.function_space(idata, model, X_test[:JUDGED])["output"].values
            of_chains = mixing(outputs - outputs.mean(axis=-1, keepdims=True))
            p = pmg.predict(idata, model, X_test, random_seed=split)["probability"].values
    seconds, of_rows = time.perf_counter() - start, right.astype(int) - (p.argmax(1) == y_test)
    return of_chains | {
        "accuracy": float((p.argmax(1) == y_test).mean()),
        "NLL": float(-np.log(np.maximum(p[np.arange(len(y_test)), y_test], 1e-12)).mean()),
        "confidence": float(p.max(1).mean()),
        "less": float(of_rows.sum()),
        "error": float(of_rows.std() * len(of_rows) ** 0.5),
        "seconds": seconds,
    }


if __name__ == "__main__":
    methods = [*METHODS, REGRESSION]
    found, _ = score_splits(
        __doc__, score, SETS, methods, ["default", "noise not held", REGRESSION], 1, RESULTS / "labels.json"
    )
    rows = []
    for key, values in found.items():
        name, method, split = key.split("/")
        rows.append({"set": name, "method": method, "split": split, "R-hat": "-", "largest": "-", "ESS": "-"} | values)
    print_table("Labels", rows)

"""Classify scikit-learn's digits by a noisy network, compare it with logistic regression and draw its doubts.

Run by ``make demo-digits``. Figures are written to figures/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pymc as pm
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from wine import save

import pymc_gibbsnn as pmg
from pymc_gibbsnn.diagnostics.scoring import brier, expected_calibration_error
from pymc_gibbsnn.plots import plot_class_probabilities

SHOWN = 4
NOISE = [0.5, 0.5, 2.0]  # of Z2, A2 and Z3: what decides between classes is the last
WIDER = 3  # as if the first weights had three times the prior's standard deviation


def main(draws: int, chains: int, figures: Path) -> None:
    """Fit, compare, draw."""
    X, y = load_digits(return_X_y=True)
    images, test_images, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=1, stratify=y)
    # One scale for all pixels: those that are nearly always white stay small.
    centre = images.mean(axis=0)
    scale = (images - centre).std()
    X_train, X_test = (images - centre) / scale, (test_images - centre) / scale
    with pmg.mlp(WIDER * X_train, y_train, hidden=16, noise=NOISE, prior=None, likelihood="probit"):
        idata = pm.sample(
            draws,
            tune=draws,
            chains=chains,
            step=pmg.GibbsNN(anneal=16.0, interweave="langevin", sweeps_per_draw=1),
            var_names=["W1", "b1", "W2", "b2"],
            random_seed=1,
            compute_convergence_checks=False,
        )
        p = pmg.class_probabilities(idata, X_new=WIDER * X_test, random_seed=1).mean("chain").values
    regression = LogisticRegression(max_iter=5000).fit(X_train, y_train)
    print(f"{'test data':20} accuracy  Brier  calibration error")
    for name, q in (("logistic regression", regression.predict_proba(X_test)), ("noisy network", p)):
        accuracy = (q.argmax(1) == y_test).mean()
        print(f"{name:20} {accuracy:8.3f} {brier(q, y_test):6.3f} {expected_calibration_error(q, y_test):10.3f}")

    order = np.argsort(p.max(axis=1))
    show = np.r_[order[-SHOWN:], order[:SHOWN]]  # clear images, then doubtful ones

    axes = plot_class_probabilities(p[show], test_images[show].reshape(-1, 8, 8), y_test[show])
    save(axes.ravel(), figures / "digits.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--figures", type=Path, default=Path("figures"))
    main(**vars(parser.parse_args()))

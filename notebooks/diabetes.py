"""Fit a noisy network to scikit-learn's diabetes data, compare it with ridge regression and draw two figures.

Run by ``make demo``. Figures are written to figures/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import pymc_gibbsnn as pmg
from pymc_gibbsnn.plots import plot_log_density, plot_predictive_band

WEIGHTS = ["W1", "b1", "W2", "b2"]


def main(draws: int, chains: int, figures: Path) -> None:
    """Fit, summarise, compare, draw."""
    X, y = load_diabetes(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=1)
    inputs, outputs = StandardScaler().fit(X_train), StandardScaler().fit(y_train[:, None])
    X_train, X_test = inputs.transform(X_train), inputs.transform(X_test)
    targets = outputs.transform(y_train[:, None])[:, 0]

    # Noise of the data about 0.7 of their spread; that of the latents smaller.
    model = pmg.mlp(X_train, targets, hidden=10, activation="relu", noise=[0.3, 0.3, 0.65])
    with model:
        idata = pm.sample(
            draws,
            tune=draws // 4,
            chains=chains,
            step=pmg.GibbsNN(sweeps_per_draw=5),
            var_names=WEIGHTS,
            random_seed=1,
            compute_convergence_checks=False,  # of weights, whose R-hat means nothing: units can be permuted
        )
        # R-hat and ESS are asked of functions instead.
        space = pmg.function_space(idata, X_new=X_test[:5])
        space["log_density"] = idata["sample_stats"]["lp"]
        print(az.summary(space).to_string(), "\n")

        pm.set_data({"X": X_test})
        predictive = pm.sample_posterior_predictive(idata, var_names=["y"], random_seed=1, progressbar=False)

    samples = outputs.scale_ * predictive["posterior_predictive"]["y"].values + outputs.mean_
    low, high = np.quantile(samples, [0.05, 0.95], axis=(0, 1))
    ridge = RidgeCV(np.logspace(-3, 3, 25)).fit(X_train, y_train)
    print(f"test RMSE          ridge regression {rmse(ridge.predict(X_test), y_test):6.2f}")
    print(f"                   noisy network    {rmse(samples.mean((0, 1)), y_test):6.2f}")
    print(f"90% band holds {np.mean((low < y_test) & (y_test < high)):.0%} of the test data")

    figures.mkdir(exist_ok=True)
    save(plot_predictive_band(samples, y_test), figures / "predictions.png")
    save(plot_log_density(idata), figures / "log_density.png")


def rmse(prediction: np.ndarray, truth: np.ndarray) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((prediction - truth) ** 2)))


def save(axes: np.ndarray, path: Path) -> None:
    """Write the figure of some axes."""
    axes = np.atleast_1d(axes)
    axes[0].figure.savefig(path, dpi=150, bbox_inches="tight")
    print(f"wrote {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1500)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--figures", type=Path, default=Path("figures"))
    main(**vars(parser.parse_args()))

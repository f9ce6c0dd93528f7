"""Predict the colour of wine by a noisy network, compare it with ridge regression and boosted trees, draw the result.

Run by ``make demo``. The figure is written to figures/.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from sklearn.datasets import load_wine
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import pymc_gibbsnn as pmg

COLOUR = 9  # the column "color_intensity"; the other twelve are the inputs
UNITS = 20
UNITS_OF_NOISE = 5  # of a second network, which learns how noisy each wine is


def main(draws: int, chains: int, seed: int, figures: Path) -> None:
    """Fit, predict, compare, draw."""
    start = time.perf_counter()
    wines = load_wine().data
    X, y = np.delete(wines, COLOUR, axis=1), wines[:, COLOUR]
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
    inputs, outputs = StandardScaler().fit(X_train), StandardScaler().fit(y_train[:, None])
    X_train, X_test = inputs.transform(X_train), inputs.transform(X_test)
    ridge = RidgeCV(np.logspace(-4, 3, 30)).fit(X_train, y_train).predict(X_test)
    trees = GradientBoostingRegressor(random_state=0).fit(X_train, y_train).predict(X_test)

    print("compiling the sampler: half a minute or so the first time, seconds from then on", flush=True)
    targets = outputs.transform(y_train[:, None])[:, 0]
    with pmg.mlp(X_train, targets, UNITS, noise_hidden=UNITS_OF_NOISE):
        step = pmg.GibbsNN()
        step.step(step.model.initial_point())  # the first draw compiles
        compiled = time.perf_counter()
        idata = pm.sample(
            draws,
            tune=draws,
            chains=chains,
            cores=1,
            step=step,
            var_names=pmg.without_latents(),
            random_seed=1,
            compute_convergence_checks=False,  # of weights, whose R-hat means nothing: units can change places
            progressbar=False,
        )
        sampled = time.perf_counter()
        found = pmg.predict(idata, X_new=X_test, quantiles=[0.05, 0.95], random_seed=1)
    mean = outputs.scale_ * found["mean"].values + outputs.mean_
    low, high = outputs.scale_ * found["quantiles"].values + outputs.mean_

    print(f"\ncolour intensity of {len(y_test)} wines that no model has seen, from twelve other measurements")
    for name, prediction in (("ridge regression", ridge), ("boosted trees", trees), ("noisy network", mean)):
        print(f"  {name:17} RMSE {rmse(prediction, y_test):.2f}")
    gain = 1 - rmse(mean, y_test) / rmse(ridge, y_test)
    print(f"the network's error is {gain:.0%} smaller than that of ridge regression;")
    print(f"its 90% predictive intervals contain {np.mean((low < y_test) & (y_test < high)):.0%} of the test wines")
    print(
        f"seconds: {compiled - start:.0f} compiling, {sampled - compiled:.0f} sampling, "
        f"{time.perf_counter() - sampled:.0f} predicting"
    )

    _, axes = plt.subplots(1, 2, figsize=(9, 4.5), sharex=True, sharey=True, layout="constrained")
    ends = [min(y.min(), ridge.min(), low.min()), max(y.max(), ridge.max(), high.max())]
    titles = (f"ridge regression, RMSE {rmse(ridge, y_test):.2f}", f"noisy network, RMSE {rmse(mean, y_test):.2f}")
    for axis, prediction, title in zip(axes, (ridge, mean), titles, strict=True):
        axis.plot(ends, ends, color="0.6", lw=1, zorder=0)
        axis.plot(y_test, prediction, "o", ms=5, color="C0" if prediction is mean else "C1")
        axis.set(title=title, xlabel="measured colour intensity")
    axes[1].vlines(y_test, low, high, color="C0", alpha=0.3, lw=2, label="holds 90% of its probability")
    axes[1].legend(frameon=False, loc="upper left")
    axes[0].set_ylabel("predicted colour intensity")
    axes[0].annotate(
        "a perfect prediction", ends[1:] * 2, (-8, -4), textcoords="offset points", ha="right", color="0.4"
    )
    save(axes, figures / "wine.png")


def rmse(prediction: np.ndarray, truth: np.ndarray) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((prediction - truth) ** 2)))


def save(axes: np.ndarray, path: Path) -> None:
    """Write the figure of some axes."""
    path.parent.mkdir(exist_ok=True)
    np.ravel(axes)[0].figure.savefig(path, dpi=150, bbox_inches="tight")
    print(f"wrote {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="of the split into training and test data")
    parser.add_argument("--figures", type=Path, default=Path("figures"))
    main(**vars(parser.parse_args()))

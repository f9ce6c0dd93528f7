"""Regression on UCI sets and their standard splits: how good predictions are, and how long they take.

One setting serves all sets: 50 ReLU units, data noise with heavy tails, learned noise and prior scales, standardised
inputs and targets, four chains of 1,000 tuning and 1,000 further sweeps. It was chosen on splits 10 to 15 of four sets.
With "noise by row" the noise is heteroscedastic: a second network of 10 units learns how noisy each row is, in place of
heavy tails or, by one of the methods, beside them; how small and how large the noise of a row can become was chosen on
splits 10 and 11 of five sets. "Two models" averages the predictions of both. Each row of the results is one split by
one method. What is there already is not computed again, so a run can be broken off and resumed. The repository holds
results of some methods; name another file by ``--output`` to compute them anew.

::

    OMP_NUM_THREADS=1 python benchmarks/uci.py FOLDER [--sets yacht boston ...] [--splits 20] [--methods ...]
    python benchmarks/uci.py FOLDER --table [--splits 5]

If ``--methods`` is left out, GibbsNN with one noise and with noise by row runs, and those competitors that need only
scikit-learn and JAX, but for the slow Gaussian process. The others need ``pip install -r benchmarks/requirements.txt``.
METHODS and MIXTURES below have all names. The figure of NLLs less that of GibbsNN with noise by row is written beside
the results, where there are both.

FOLDER holds what ``data_sets.py uci`` writes: nine sets, of which eight have 20 splits and protein has five. If it also
holds ``uci_airfoil.npz`` and ``uci_bikesharing.npz`` with the test rows ``split_bde_test``, ``--sets airfoil_bde
bikesharing_bde`` runs on the two sets on which the authors of MILE compare their package (bde), with their only split
and their inputs. A split is just a seed there, and targets are standardised.

Scores are in the units of the targets. RMSE is that of predictive means; NLL is the mean negative log density of test
points, "normal NLL" that by a normal distribution with the predictive means and standard deviations; then the CRPS. Of
90% intervals there are the share of test points inside (coverage), from all chains together and as a mean over
intervals from single chains; the mean width; and the interval score (Gneiting, Raftery, 2007), which adds to the width
twenty times the distance of points outside. Seconds are those of the clock, on the given number of cores.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import uci_competitors as competitors
from common import RESULTS, nll_differences, print_table, score_splits, scores_by_method, standard_error
from scipy.special import logsumexp
from scipy.stats import norm

import pymc_gibbsnn as pmg

NINE = ("yacht", "boston", "energy", "concrete", "wine_red", "kin8nm", "power", "naval", "protein")
OF_AUTHORS = "_bde"  # the sets and the split on which the authors of MILE compare it
SETS = (*NINE, "airfoil_bde", "bikesharing_bde")
DROPOUT = {  # RMSE and NLL that Mukhoti, Stenetorp, Gal (arXiv 1811.09385) report for MC dropout trained to convergence
    "boston": (2.90, 2.40), "concrete": (4.83, 2.94), "energy": (0.54, 1.21), "kin8nm": (0.079, -1.14),
    "naval": (0.0007, -4.45), "power": (4.01, 2.81), "protein": (4.27, 2.87), "wine_red": (0.62, 0.93),
    "yacht": (0.67, 1.25),
}  # fmt: skip
SCORES = (
    "RMSE", "NLL", "normal NLL", "CRPS", "coverage", "coverage, one chain", "width", "interval score",
)  # fmt: skip


class Predicted(NamedTuple):
    """Predictions of test points: means and deviations, draws of targets (chain, draw, point), and log densities."""

    mean: np.ndarray
    sd: np.ndarray
    samples: np.ndarray
    density: np.ndarray

    @property
    def interval(self) -> np.ndarray:
        """The ends (2, point) of 90% intervals."""
        return np.quantile(self.samples, [0.05, 0.95], axis=(0, 1))


def gibbs(
    X,
    y,
    X_test,
    y_test,
    hidden,
    seed,
    likelihood="student",
    noise_hidden=None,
    chains=4,
    draws=1000,
    anneal="auto",
    sweeps=1,
    in_jax=False,
) -> Predicted:
    """Networks as ``pmg.mlp`` writes them, with this likelihood and network of the noise, by GibbsNN."""
    sample = pmg.sample if in_jax else partial(pm.sample, cores=1, compute_convergence_checks=False)
    with pmg.mlp(X, y, hidden, likelihood=likelihood, noise_hidden=noise_hidden) as model:
        idata = sample(
            draws, tune=1000, chains=chains, step=pmg.GibbsNN(anneal=anneal, sweeps_per_draw=sweeps),
            var_names=pmg.without_latents(),
            random_seed=seed, progressbar=False,
        )  # fmt: skip
    thinned = idata.isel(draw=slice(None, None, draws // 200))
    found = pmg.predict(thinned, model, X_test, samples=True, random_seed=seed)
    density = pmg.log_predictive(thinned, model, X_test, y_test, random_seed=seed)["log_density"].values
    return Predicted(found["mean"].values, found["sd"].values, found["samples"].values, density)


def nuts(X, y, X_test, y_test, hidden, seed) -> Predicted:
    """The classical network with learned noise, by PyMC's default sampler."""
    with pm.Model():
        noise = pm.InverseGamma("variance", 1, 0.001)
        weights, a, d = [], X, X.shape[1]
        for l, h in enumerate((*hidden, None), start=1):
            tau = pm.Gamma(f"precision_{l}", 2, 2 / d)
            W = pm.Normal(f"W{l}", 0, tau=tau, shape=(d,) if h is None else (d, h))
            b = pm.Normal(f"b{l}", 0, 1, shape=() if h is None else h)
            weights.append((f"W{l}", f"b{l}"))
            a, d = a @ W + b, h
            a = a if h is None else pm.math.maximum(a, 0)
        pm.Normal("y", a, noise**0.5, observed=y)
        idata = pm.sample(
            1000, tune=1000, chains=1, cores=1, random_seed=seed, progressbar=False, compute_convergence_checks=False
        )
    draws = {name: x.values[0, ::5] for name, x in idata["posterior"].items()}
    a = np.broadcast_to(X_test, (len(draws["variance"]), *X_test.shape))
    for l, (W, b) in enumerate(weights, start=1):
        W, b = draws[W], draws[b]
        a = np.einsum("snd,sd...->sn...", a, W) + (b[:, None] if W.ndim == 2 else b[:, None, :])
        a = a if l == len(weights) else np.maximum(a, 0)
    return of_mixture((a, np.sqrt(draws["variance"])[:, None] + 0 * a), y_test, seed)


def of_mixture(mixture, y_test, seed) -> Predicted:
    """Predictions by a mixture of normals, given by means and standard deviations (component, point)."""
    means, sds = mixture
    repeats = -(-1000 // len(means))
    noise = np.random.default_rng(seed).normal(size=(repeats, *means.shape))
    samples = (means + sds * noise).reshape(1, -1, means.shape[1])
    return mixed(means, sds, samples, norm.logpdf(y_test, means, sds))


def mixed(means, sds, samples, densities) -> Predicted:
    """Predictions by a mixture with equal weights, given moments and log densities (component, point)."""
    sd = np.sqrt((sds**2).mean(0) + means.var(0))
    return Predicted(means.mean(0), sd, samples, logsumexp(densities, axis=0) - np.log(len(means)))


def of_competitor(function):
    def fit(X, y, X_test, y_test, hidden, seed) -> Predicted | competitors.Intervals | None:
        found = function(X, y, X_test, hidden, seed)
        return found if found is None or isinstance(found, competitors.Intervals) else of_mixture(found, y_test, seed)

    return fit


by_row = partial(gibbs, likelihood="normal", noise_hidden=10)

METHODS = {  # the method and its hidden layers
    "GibbsNN": (gibbs, [50]),
    "GibbsNN in JAX": (partial(gibbs, in_jax=True), [50]),
    "GibbsNN, one chain": (partial(gibbs, chains=1), [50]),
    "GibbsNN, 8,000 draws": (partial(gibbs, draws=8000), [50]),
    "GibbsNN, from zero": (partial(gibbs, anneal=None), [50]),
    "GibbsNN, as called": (partial(gibbs, sweeps="auto"), [50]),
    "GibbsNN, 100 units": (gibbs, [100]),
    "GibbsNN, two layers": (gibbs, [30, 30]),
    "GibbsNN, Gaussian noise": (partial(gibbs, likelihood="normal"), [50]),
    "GibbsNN, noise by row": (by_row, [50]),
    "GibbsNN, noise by row, 100 units": (by_row, [100]),
    "GibbsNN, noise by row, two layers": (by_row, [50, 50]),
    "GibbsNN, noise by row, heavy tails": (partial(by_row, likelihood="student"), [50]),
    "NUTS": (nuts, [50]),
    "ridge": (of_competitor(competitors.ridge), []),
    "Gaussian process": (of_competitor(competitors.gaussian_process), []),
    "boosting": (of_competitor(competitors.boosting), []),
    "conformal boosting": (of_competitor(competitors.conformal), []),
    "NGBoost": (of_competitor(competitors.ngboost), []),
    "CatBoost": (of_competitor(competitors.catboost), []),
    "XGBoost": (of_competitor(competitors.xgboost), []),
    "BART": (of_competitor(competitors.bart), []),
    "deep ensemble": (of_competitor(competitors.ensemble), [50]),
    "MC dropout": (of_competitor(competitors.dropout), [50]),
    "MILE": (of_competitor(competitors.quick_mile), [16, 16]),
    "MILE, as its authors": (of_competitor(competitors.mile), [16, 16, 16, 16]),
}
MIXTURES = {  # with equal weights
    "GibbsNN, two models": ("GibbsNN", "GibbsNN, noise by row"),
    "GibbsNN, two models, 100 units": ("GibbsNN, 100 units", "GibbsNN, noise by row, 100 units"),
}
NAMES = [*METHODS, *MIXTURES]
RECOMMENDED = "GibbsNN, noise by row"  # with 100 units on the large sets, where these were run


class Split(NamedTuple):
    """Standardised training and test data, and the standard deviation of the training targets."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    spread: float


def read_split(folder: Path, name: str, split: int) -> Split | None:
    """Read a split of a set; None if there is no such split."""
    file = np.load(folder / f"uci_{name.removesuffix(OF_AUTHORS)}.npz")
    rows = "split_bde_test" if name.endswith(OF_AUTHORS) else f"split_{split}_test"
    if rows not in file:
        return None
    test = np.zeros(len(file["y"]), bool)
    test[file[rows]] = True
    X, y = file["X"], file["y"]
    X = with_season(X) if name == f"bikesharing{OF_AUTHORS}" else X
    scale = X[~test].std(0)
    X = (X - X[~test].mean(0)) / np.where(scale > 0, scale, 1)
    location, spread = y[~test].mean(), y[~test].std()
    y = (y - location) / spread
    return Split(X[~test], y[~test], X[test], y[test], 1.0 if name.endswith(OF_AUTHORS) else spread)


def with_season(X: np.ndarray) -> np.ndarray:
    """Return the inputs of bikesharing with the season in place of the number of the row, as the authors of MILE do.

    Rows follow each other in time from the first of January 2011, and each day has another weekday, column 5, than the
    one before.
    """
    days = np.datetime64("2011-01-01") + np.r_[0, np.diff(X[:, 5]) != 0].cumsum()
    months = days.astype("datetime64[M]")
    in_year = 100 * (months.astype(int) % 12 + 1) + (days - months).astype(int) + 1  # 321 is the 21st of March
    return np.column_stack([1 + np.searchsorted([321, 621, 923, 1221], in_year, side="right") % 4, X[:, 1:]])


@lru_cache(maxsize=len(NAMES))
def predicted(
    folder: Path, name: str, split: int, method: str
) -> tuple[Predicted | competitors.Intervals | None, float]:
    """Fit a method to the training part of a split; return its predictions of the test part, and seconds."""
    if method in MIXTURES:
        parts = [predicted(folder, name, split, part) for part in MIXTURES[method]]
        means, sds, samples, densities = map(np.asarray, zip(*(found for found, _ in parts), strict=True))
        return mixed(means, sds, np.concatenate(samples), densities), sum(s for _, s in parts)
    function, hidden = METHODS[method]
    start = time.perf_counter()
    found = function(*read_split(folder, name, split)[:4], hidden, split)
    return found, time.perf_counter() - start


def score(folder: Path, name: str, split: int, method: str) -> dict[str, float] | None:
    """Score what a method predicts of the test part of a split; None if it cannot, or there is no such split."""
    data = read_split(folder, name, split)
    found, seconds = (None, 0.0) if data is None else predicted(folder, name, split, method)
    if found is None:
        return None
    y, (low, high) = data.y_test, found.interval
    outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    scores = {
        "coverage": float(np.mean(outside == 0)),
        "width": data.spread * float(np.mean(high - low)),
        "interval score": data.spread * float(np.mean(high - low + 20 * outside)),
        "seconds": seconds,
        "cores": len(os.sched_getaffinity(0)),
    }
    if isinstance(found, competitors.Intervals):
        return scores
    covered = [pmg.scoring.coverage(chain[None], y) for chain in found.samples]
    return scores | {
        "RMSE": data.spread * float(np.sqrt(np.mean((found.mean - y) ** 2))),
        "NLL": float(np.log(data.spread) - found.density.mean()),
        "normal NLL": float(np.log(data.spread) - norm.logpdf(y, found.mean, found.sd).mean()),
        "coverage, one chain": float(np.mean(covered)),
        "CRPS": data.spread * float(pmg.scoring.crps(found.samples, y)),
    }


def table(results: dict[str, dict[str, float]]) -> list[dict[str, object]]:
    """What was computed, and beside it what is published."""
    rows = []
    for name in SETS:
        rows += (found := scores_by_method(results, name, NAMES, SCORES))
        if found and name in DROPOUT:
            rmse, nll = DROPOUT[name]
            published = {"set": name, "method": "dropout, published", "RMSE": f"{rmse}", "NLL": f"{nll}"}
            rows.append({key: published.get(key, "-") for key in found[-1]})
    return rows


def figure(results: dict[str, dict[str, float]], path: Path) -> None:
    """Draw how much higher the NLL of others is than that of the recommended setting, on the splits that both have."""

    def recommended(name: str) -> str:
        larger = f"{RECOMMENDED}, 100 units"
        return larger if f"{name}/{larger}/0" in results else RECOMMENDED

    low, high = -0.7, 2.0
    others = [method for method in NAMES if not method.startswith("GibbsNN")]
    higher = {
        (name, method): nll_differences(results, name, method, recommended(name)) for name in SETS for method in others
    }
    shown = [method for method in others if any(higher[name, method] for name in SETS)]
    sets = [name for name in SETS if any(higher[name, method] for method in shown)]
    if not shown:
        return
    colors = plt.colormaps["tab10" if len(shown) <= 10 else "tab20"].colors
    drawn, axes = plt.subplots(figsize=(7, 0.6 * len(sets) + 1.5), layout="constrained")
    for k, method in enumerate(shown):
        for row, name in enumerate(sets):
            if not (more := higher[name, method]):
                continue
            mean, height = np.mean(more), row + 0.8 * ((k + 0.5) / len(shown) - 0.5)
            error = standard_error(more) if low < mean < high and len(more) > 1 else None
            marker = "<" if mean < low else ">" if mean > high else "o"  # beyond the figure
            axes.errorbar(np.clip(mean, low, high), height, xerr=error, fmt=marker, color=colors[k], markersize=5)
        axes.plot([], [], "o", color=colors[k], markersize=5, label=method)
    axes.axvline(0, color="0.3", lw=1)
    axes.set(xlim=(low - 0.05, high + 0.05), yticks=range(len(sets)), yticklabels=sets)
    axes.set_xlabel("negative log predictive density per test point, less that of GibbsNN with noise by row")
    axes.invert_yaxis()
    drawn.legend(loc="outside upper center", ncols=4, frameon=False)
    plt.savefig(path, dpi=150)


if __name__ == "__main__":
    by_default = ["GibbsNN", RECOMMENDED, "ridge", "boosting", "deep ensemble", "MC dropout"]
    found, output = score_splits(__doc__, score, SETS, NAMES, by_default, 20, RESULTS / "uci.json", NINE)
    print_table("UCI regression", table(found))
    figure(found, output.with_suffix(".png"))

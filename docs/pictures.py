"""Draw the figures of "How it works in five pictures" and of the page on sample statistics.

It writes them to ``docs/images``, and takes a minute or two::

    PYTHONPATH=. python docs/pictures.py
"""

from __future__ import annotations

from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import scipy.stats as st
import xarray as xr

import pymc_gibbsnn as pmg

IMAGES = Path(__file__).parent / "images"
NOISE = 0.1  # standard deviation
ALGORITHM_1 = {"collapse": False, "scale_move": False, "interweave": False}  # the Gibbs sampler of the first paper
QUIET = {"progressbar": False, "compute_convergence_checks": False, "cores": 1}
BLUE, GRAY = "tab:blue", "0.6"


def save(figure: plt.Figure, name: str) -> None:
    """Write a figure to the images of the documentation."""
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(IMAGES / f"{name}.png", dpi=130)
    plt.close(figure)


def curve() -> tuple[np.ndarray, np.ndarray]:
    """A hundred noisy points of a sine."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(-3, 3, size=100))[:, None]
    return x, np.sin(x[:, 0]) + NOISE * rng.normal(size=100)


def chains_on_curve(grid: np.ndarray, draws: int, chains: int = 4, tune: int = 0, **options):
    """Chains of a network of ten units on the curve, and its outputs on a grid, (chain, draw, point)."""
    with pmg.mlp(*curve(), 10, noise=NOISE, prior=None) as model:
        step = pmg.GibbsNN(anneal=None, sweeps_per_draw=1, **options)
        names = pmg.without_latents()
        idata = pm.sample(draws, tune=tune, chains=chains, step=step, var_names=names, random_seed=1, **QUIET)
    return idata, pmg.function_space(idata, model, grid[:, None])["output"].values


def noisy_units() -> None:
    """A unit's pre-activation and post-activation, without noise and with it."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=400)
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True, layout="constrained")
    for axis, noise in zip(axes, (0, 0.1, 0.3), strict=True):
        axis.plot(z, np.maximum(z, 0) + noise * rng.normal(size=z.size), ".", ms=3, color=BLUE)
        axis.plot([-3, 0, 3], [0, 0, 3], color="k", lw=0.8)
        axis.set_title(f"standard deviation {noise}" if noise else "no noise")
        axis.set_xlabel("pre-activation z")
    axes[0].set_ylabel("post-activation a")
    save(figure, "how_1_noise")


def conditional() -> None:
    """The density of a pre-activation given what surrounds it, and its two truncated normals."""
    m, a, sd = 0.15, 0.35, 0.3  # the mean from below, the post-activation above, the noise of both
    grid = np.linspace(-1.2, 1.4, 500)
    below, above = grid < 0, grid >= 0
    density = st.norm.pdf(grid, m, sd) * st.norm.pdf(a, np.maximum(grid, 0), sd)
    density /= density.sum() * (grid[1] - grid[0])
    figure, axis = plt.subplots(figsize=(6, 2.8), layout="constrained")
    axis.fill_between(grid[below], density[below], color=GRAY, label="z < 0, the unit is off: depends on m")
    axis.fill_between(grid[above], density[above], color=BLUE, label="z ≥ 0, it is on: depends on m and a")
    for name, x in {"m": m, "a": a}.items():
        axis.axvline(x, color="k", lw=0.8, ls="--")
        axis.text(x, 1.02 * density.max(), name, ha="center", va="bottom")
    axis.set(xlabel="pre-activation z", ylabel="density given m and a", xlim=(-2.2, 1.4), ylim=(0, 1.2 * density.max()))
    axis.legend(frameon=False, loc="upper left")
    save(figure, "how_2_conditional")


def interweaving() -> None:
    """The function at one point along two chains: of conditionals alone, and of all moves."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), sharey=True, layout="constrained")
    sweeps = 2000
    for axis, (title, options) in zip(axes, {"conditionals alone": ALGORITHM_1, "all moves": {}}.items(), strict=True):
        _, outputs = chains_on_curve(np.array([1.5]), sweeps, chains=2, **options)
        axis.plot(outputs[..., 0].T, lw=0.6)
        axis.set(title=title, xlabel="sweep")
    axes[0].set_ylabel("network at x = 1.5")
    save(figure, "how_3_interweaving")


def label_switching() -> None:
    """The weight of one unit, and the function, of the same four chains."""
    grid = np.linspace(-3, 3, 61)
    idata, outputs = chains_on_curve(grid, 1000, tune=1000)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.8), layout="constrained")
    left.plot(idata["posterior"]["W1"].values[:, :200, 0, 0].T, lw=0.8)
    for mean, style in zip(outputs.mean(1), ("-", "--", "-.", ":"), strict=True):
        right.plot(grid, mean, style, lw=1.5)
    left.set(title="weight of the first hidden unit, 200 draws", xlabel="draw")
    right.plot(*curve(), ".", ms=3, color=GRAY, zorder=0)
    right.set(title="means of the function, which coincide", xlabel="x")
    save(figure, "how_4_labels")


def unseen_mode() -> None:
    """One ReLU unit on data of the form |x|: chains in the same mode agree, whatever the others do."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(40, 1))
    y = np.abs(x[:, 0]) + NOISE * rng.normal(size=40)
    grid = np.linspace(-2, 2, 41)
    with pmg.mlp(x, y, 1, noise=NOISE, prior=None) as model:
        step = pmg.GibbsNN(anneal=None, sweeps_per_draw=1)
        how = {"tune": 500, "chains": 4, "var_names": pmg.without_latents()}
        idata = pm.sample(3000, step=step, random_seed=1, **how, **QUIET)
    found = pmg.function_space(idata, model, grid[:, None])["output"].values
    rises_on_the_right = found[..., -1].mean(1) > 1.5
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), sharey=True, layout="constrained")
    for axis, some in zip(axes, (found[rises_on_the_right], found), strict=True):
        rhat = az.rhat(xr.Dataset({"f": (("chain", "draw", "x"), some)}))["f"].max().item()
        axis.plot(x[:, 0], y, ".", ms=4, color=GRAY)
        for mean, style in zip(some.mean(1), ("-", "--", "-.", ":"), strict=False):
            axis.plot(grid, mean, style, lw=1.5)
        axis.set(title=f"{len(some)} of the 4 chains: largest R-hat {rhat:.2f}", xlabel="x")
    save(figure, "how_5_modes")


def sample_statistics() -> None:
    """Four statistics of a network with learned noise and priors on the curve, the tuning included."""
    with pmg.mlp(*curve(), 10):
        how = {"tune": 500, "chains": 4, "discard_tuned_samples": False, "var_names": pmg.without_latents()}
        idata = pm.sample(500, step=pmg.GibbsNN(sweeps_per_draw=1), random_seed=1, **how, **QUIET)
    tuned, kept = idata["warmup_sample_stats"], idata["sample_stats"]
    figure, axes = plt.subplots(2, 2, figsize=(9, 4.5), sharex=True, layout="constrained")
    for axis, name in zip(axes.flat, ("lp", "noise_y", "norm_W1", "marginal_acceptance_W1"), strict=True):
        values = np.concatenate([tuned[name].values, kept[name].values], axis=1)
        axis.plot(values.T, lw=0.5)
        axis.axvspan(0, tuned.sizes["draw"], color="0.93", zorder=0)
        axis.set_title(name, family="monospace")
    axes[0, 0].set_ylim(np.percentile(kept["lp"].values, 0.5) - 300, None)
    for axis in axes[1]:
        axis.set_xlabel("draw; the shaded ones tune")
    save(figure, "statistics")


if __name__ == "__main__":
    for draw in (noisy_units, conditional, interweaving, label_switching, unseen_mode, sample_statistics):
        draw()

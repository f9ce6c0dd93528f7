"""I-SGD, SGLD, SGHMC and constant SGD as they are called: the toy of the paper, UCI regression, and their speed.

After Franzese, Candela, Milios, Filippone, Michiardi (arXiv 2006.05087)::

    OMP_NUM_THREADS=2 python benchmarks/stochastic_gradients.py --part toy [--figure FILE]
    OMP_NUM_THREADS=2 python benchmarks/stochastic_gradients.py --part uci --data FOLDER [--splits 10]
    OMP_NUM_THREADS=2 python benchmarks/stochastic_gradients.py --part speed

FOLDER holds ``uci_*.npz``. ``--samplers`` and ``--sets`` name some of them. What ``--part uci`` has computed
is not computed again, so that it can be broken off and resumed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from common import RESULTS, Results, print_table
from stochastic_images import mlp

import pymc_gibbsnn as pmg

SAMPLERS = {"I-SGD": pmg.ISGD, "SGLD": pmg.SGLD, "SGHMC": pmg.SGHMC, "constant SGD": pmg.ConstantSGD}
PAPER = {  # RMSE, MNLL of I-SGD, table 1
    "boston": ("3.26 ± 1.14", "3.46 ± 1.83"),
    "concrete": ("5.47 ± 0.38", "12.33 ± 4.38"),
    "wine_red": ("0.63 ± 0.04", "1.03 ± 0.11"),
    "yacht": ("0.69 ± 0.33", "4.19 ± 7.24"),
    "protein": ("4.77 ± 0.05", "4.20 ± 0.05"),
}


def toy(samplers: list[str], results: Results, figure: Path | None) -> None:
    """Standard deviation of the predictive mean beside that of the exact posterior, by the size of the batch.

    The figure, like figure 2 of the paper, has the means and 90 % bands of the function on batches of 50.
    """
    rng = np.random.default_rng(1)
    features, variance, n = 10, 0.1, 1000
    x = rng.uniform(-2, 2, size=n)
    omega = rng.normal(0, 1.5, size=features)

    def basis(x):
        return np.cos(np.multiply.outer(x, omega) - np.pi / 4)

    y = basis(x) @ rng.normal(size=features) + variance**0.5 * rng.normal(size=n)
    covariance = np.linalg.inv(np.eye(features) + basis(x).T @ basis(x) / variance)
    eigenvalues, directions = np.linalg.eigh(covariance)
    places = np.linspace(-6, 6, 61)
    at, inside = basis(places), np.abs(places) <= 2
    exact = np.sqrt(np.einsum("ni,ij,nj->n", at, covariance, at))
    rows, functions = [], {}
    for name in samplers:
        for size in (10, 50, 200):
            with pm.Model():
                phi, targets = pm.Minibatch(basis(x), y, batch_size=size)
                w = pm.Normal("w", 0, 1, shape=features)
                pm.Normal("y", (phi * w).sum(-1), variance**0.5, observed=targets, total_size=n)
                idata = pmg.sample(
                    2000, tune=2000, step=SAMPLERS[name](sweeps_per_draw=50), chains=4, random_seed=1, progressbar=False
                )
            draws = idata["posterior"]["w"].values.reshape(-1, features)
            if size == 50:
                functions[name] = draws @ at.T
            spread = (draws @ at.T).std(0) / exact
            variances = ((draws @ directions).var(0) / eigenvalues).tolist()
            rows.append({
                "sampler": name, "batch": size, "sd inside": float(np.median(spread[inside])),
                "sd outside": float(np.median(spread[~inside])), "softest variance": variances[-1],
                "stiffest variance": variances[0],
            })  # fmt: skip
    results["toy"] = rows
    print_table("Ratios to the exact posterior", rows)
    results["toy in the long run"] = long_run = [
        {"batch": size, **stationary(basis(x), y, variance, size)} for size in (10, 50, 200)
    ]
    print_table("I-SGD in the long run: variance in the narrowest and in the widest direction, as ratios", long_run)
    if figure:
        mean = at @ covariance @ basis(x).T @ y / variance
        draw_bands(places, mean, 1.645 * exact, functions, (x, y), figure)


def stationary(phi, y, variance: float, size: int) -> dict[str, float]:
    """Variances of I-SGD in an endless run with B known, computed without sampling, as ratios to the posterior's.

    The noise that is added makes up for the diagonal of B, as called; for the same with each coordinate measured in
    units in which the diagonal is constant; or for the whole of B.
    """
    rows, d = phi.shape
    data = phi.T @ phi / variance
    posterior = np.linalg.inv(np.eye(d) + data)
    mean = posterior @ phi.T @ y / variance
    eigenvalues, directions = np.linalg.eigh(posterior)

    def noise(spread):
        """The covariance 2B of the gradient's noise, averaged over w ~ N(mean, spread)."""
        squares = (phi @ mean - y) ** 2 + ((phi @ spread) * phi).sum(1)
        slopes = rows * (phi.T * squares) @ phi / variance**2
        return (slopes - np.outer(mean, mean) - data @ spread @ data) / size

    def ratios(rates, injected):
        F = np.eye(d) - rates @ (np.eye(d) + data)

        def after(spread):
            return F @ spread @ F.T + rates @ (injected + noise(spread)) @ rates

        constant = after(np.zeros((d, d)))
        linear = np.array([(after(unit) - constant).ravel() for unit in np.eye(d * d).reshape(-1, d, d)]).T
        found = np.linalg.solve(np.eye(d * d) - linear, constant.ravel()).reshape(d, d)
        found = np.einsum("ij,ik,kj->j", directions, found, directions) / eigenvalues
        return float(found[0]), float(found[-1])

    B = noise(posterior) / 2
    b, top = np.diag(B), np.linalg.eigvalsh(B)[-1]
    scaled = np.linalg.eigvalsh(B / np.sqrt(np.outer(b, b)))[-1]
    found = {
        "as called": ratios(np.eye(d) / top, 2 * (top * np.eye(d) - np.diag(b))),
        "scaled": ratios(np.diag(1 / b) / scaled, 2 * (scaled - 1) * np.diag(b)),
        "whole B": ratios(np.eye(d) / top, 2 * (top * np.eye(d) - B)),
    }
    return {
        f"{name}, {end}": x for name, pair in found.items() for end, x in zip(("narrow", "wide"), pair, strict=True)
    }


def draw_bands(places, mean, half, functions, data, file: Path) -> None:
    """The mean and the 90 % band of each sampler, over those of the exact posterior."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(functions), figsize=(3.4 * len(functions), 3.2), sharey=True,
                                layout="constrained", squeeze=False)  # fmt: skip
    for ax, (name, draws) in zip(axes[0], functions.items(), strict=True):
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        ax.plot(*data, ".", color="0.6", ms=1, zorder=0)
        ax.fill_between(places, mean - half, mean + half, color="C0", alpha=0.3, lw=0, label="exact")
        ax.plot(places, mean, "C0", lw=1)
        ax.plot(places, draws.mean(0), "C1", lw=1, label=name)
        ax.plot(places, low, "C1--", places, high, "C1--", lw=1)
        ax.set(title=name, xlabel="input")
    axes[0, 0].set_ylabel("function")
    axes[0, 0].legend(frameon=False)
    figure.savefig(file, dpi=120)


def uci(samplers: list[str], data: Path, splits: int, sets: list[str], results: Results) -> None:
    """RMSE and mean negative log likelihood, split by split; what is there already is not computed again."""
    for split in range(splits):
        for name in sets:
            file = np.load(data / f"uci_{name}.npz")
            for sampler in samplers:
                key = f"uci/{name}/{sampler}/{split}"
                if key not in results and f"split_{split}_test" in file:
                    results[key] = uci_split(file, split, SAMPLERS[sampler])
                    print(key, results[key], flush=True)
    rows = []
    for name in sets:
        rmse, mnll = PAPER[name]
        rows.append({"set": name, "sampler": "I-SGD, paper", "splits": 10, "RMSE": rmse, "MNLL": mnll})
        for sampler in samplers:
            found = [x for key, x in results.items() if key.startswith(f"uci/{name}/{sampler}/")]
            scores = {"RMSE": "-", "MNLL": "-", "seconds": "-"}
            for score in scores if found else ():
                values = [x[score] for x in found]
                scores[score] = f"{np.mean(values):.3g} ± {np.std(values):.1g}"  # standard deviations, as in the paper
            rows.append({"set": name, "sampler": sampler, "splits": len(found), **scores})
    print_table("UCI regression", rows)


def uci_split(file, split: int, sampler) -> dict[str, float]:
    """The scores of one sampler on one split: 20,000 steps while it tunes, and as in the paper 2,000 for each draw."""
    start = time.process_time()
    test = np.zeros(len(file["y"]), bool)
    test[file[f"split_{split}_test"]] = True
    X, y = file["X"], file["y"]
    mean, scale = X[~test].mean(0), X[~test].std(0)
    X = (X - mean) / np.where(scale > 0, scale, 1)
    location, spread = y[~test].mean(), y[~test].std()
    n, d = X[~test].shape
    with pm.Model():
        x_batch, y_batch = pm.Minibatch(X[~test], (y[~test] - location) / spread, batch_size=min(128, n // 2))
        W1, b1 = pm.Normal("W1", 0, 1, shape=(50, d)), pm.Normal("b1", 0, 1, shape=50)
        W2, b2 = pm.Normal("W2", 0, 50**-0.5, shape=50), pm.Normal("b2", 0, 1)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", pm.math.maximum(x_batch @ W1.T + b1, 0) @ W2 + b2, sigma, observed=y_batch, total_size=n)
        idata = pmg.sample(
            100, tune=10, step=sampler(sweeps_per_draw=2000), chains=1, random_seed=split, progressbar=False
        )
    draws = {name: x.values[0] for name, x in idata["posterior"].items()}
    a = np.maximum(np.einsum("nd,shd->snh", X[test], draws["W1"]) + draws["b1"][:, None], 0)
    f = location + spread * (np.einsum("snh,sh->sn", a, draws["W2"]) + draws["b2"][:, None])
    return {
        "RMSE": float(pmg.scoring.rmse(f[None], y[test])),
        "MNLL": -float(np.mean(log_density(f, spread * draws["sigma"][:, None], y[test]))),
        "seconds": time.process_time() - start,
    }


def log_density(f, sigma, y):
    """Of each row under the mean of Gaussians over draws."""
    terms = -0.5 * ((y - f) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    return np.logaddexp.reduce(terms, axis=0) - np.log(len(terms))


def negative_log_density(point, x, y, rows):
    """−log joint of the same model on a batch, in plain JAX."""
    z = jnp.maximum(x @ point["W1"].T + point["b1"], 0) @ point["W2"].T + point["b2"]
    fit = jax.nn.log_softmax(z)[jnp.arange(len(y)), y].sum()
    prior = sum((v**2).sum() for v in point.values()) / 2
    return prior - rows / len(y) * fit


def start_point(key):
    keys = jax.random.split(key)
    return {
        "W1": 0.05 * jax.random.normal(keys[0], (100, 784)), "b1": jnp.zeros(100),
        "W2": 0.1 * jax.random.normal(keys[1], (10, 100)), "b2": jnp.zeros(10),
    }  # fmt: skip


def speed(samplers: list[str], results: Results, steps: int = 500, repeats: int = 5) -> None:
    """Milliseconds a step after tuning, and of a plain JAX SGD step on the same model, with and without its noise."""
    rng = np.random.default_rng(0)
    X, labels = rng.uniform(size=(60_000, 784)), rng.integers(10, size=60_000)
    with jax.enable_x64(False):
        data, targets = jnp.asarray(X, jnp.float32), jnp.asarray(labels)

    def sgd(noisy):
        def step(i, loop):
            key, point = loop
            key, sub, *subs = jax.random.split(key, 6)
            index = jax.random.randint(sub, (128,), 0, len(X))
            g = jax.grad(negative_log_density)(point, data[index], targets[index], len(X))
            point = jax.tree.map(lambda x, s: x - 1e-7 * s, point, g)
            if noisy:
                point = {
                    k: x + 1e-3 * jax.random.normal(one, x.shape)
                    for one, (k, x) in zip(subs, point.items(), strict=True)
                }
            return key, point

        run = jax.jit(lambda loop: jax.lax.fori_loop(0, steps, step, loop))
        with jax.enable_x64(False):
            state = [(jax.random.key(1), start_point(jax.random.key(0)))]

        def call():
            with jax.enable_x64(False):
                state[0] = jax.block_until_ready(run(state[0]))

        return call

    from common import time_in_turn

    from pymc_gibbsnn.drivers.placement import Placement
    from pymc_gibbsnn.drivers.program import Program

    runs = {"SGD": sgd(False), "SGD with noise": sgd(True)}
    with mlp(X, labels, noise=0.1, prior=None) as model, jax.enable_x64(False):
        for name in samplers:
            step = SAMPLERS[name]()
            mesh = jax.sharding.Mesh(np.array(jax.devices()[:1], object).reshape(1, 1), ("chain", "row"))
            point = {v.name: 0.05 * rng.normal(size=np.shape(x)) for v, x in
                     zip(model.value_vars, model.initial_point().values(), strict=True)}  # fmt: skip
            bias = model.replace_rvs_by_values([model["b2"]])[0]
            program = Program(
                [step.transition], variables=model.value_vars, recorded={"b2": bias}, points=[point],
                keys=np.array([[0, 1]], np.uint32), placement=Placement(mesh, frozenset()), dtype="float32",
                constants=step.constants,
            )  # fmt: skip
            program.run(10, sweeps=10, first=0, tune=10)
            runs[name] = lambda program=program: program.run(1, sweeps=steps, first=0, tune=0)
    seconds = time_in_turn(runs, repeats)
    plain = seconds["SGD"]
    rows = [
        {"": name, "ms": float(1000 * np.median(x) / steps), "ratio": float(np.median(x / plain)),
         "ratio to SGD with noise": float(np.median(x / seconds["SGD with noise"]))}
        for name, x in seconds.items()
    ]  # fmt: skip
    results["speed"] = rows
    print_table("A step of a 784-100-10 network, batches of 128", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["toy", "uci", "speed"], required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--figure", type=Path, help="where to draw the toy: means and 90 %% bands")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--sets", nargs="+", choices=PAPER, default=list(PAPER))
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--output", type=Path, default=RESULTS / "stochastic_gradients.json")
    arguments = parser.parse_args()
    found = Results(arguments.output)
    if arguments.part == "toy":
        toy(arguments.samplers, found, arguments.figure)
    elif arguments.part == "uci":
        uci(arguments.samplers, arguments.data, arguments.splits, arguments.sets, found)
    else:
        speed(arguments.samplers, found)

"""Stochastic gradients on images of digits, and what the networks say to letters, which they have never seen.

A point that Adam fits stands beside SGLD, SGHMC and I-SGD as they are called, on all of MNIST. The table has the test
accuracy and negative log likelihood (NLL); the mean entropy of the predicted labels for the digits of the test set and
for the letters of notMNIST; and how well that entropy tells the two apart, as the area under the ROC curve: the
probability that a letter has a larger entropy than a digit. The histograms are those of figure 1 of Franzese, Candela,
Milios, Filippone, Michiardi (arXiv 2006.05087)::

    OMP_NUM_THREADS=2 python benchmarks/stochastic_images.py FOLDER [--network cnn] [--seed 1] [--figure FILE]

FOLDER holds ``mnist.npz``, which ``data_sets.py images`` writes, and ``notmnist_small.npz`` with the images of letters,
``x`` (n, 28, 28), of notMNIST. The network "mlp" is 784-100-10. The network "cnn" has 8 filters
of 5x5 with stride 2, ReLU, an average over windows of 2x2, and a dense layer. Adam makes 20,000 steps; a sampler makes
10,000 while it tunes and 20,000 for 200 draws, in each of four chains, the number that ``pmg.sample`` makes by default.
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
from scipy.special import entr
from scipy.stats import rankdata

import pymc_gibbsnn as pmg

SAMPLERS = {"SGLD": pmg.SGLD, "SGHMC": pmg.SGHMC, "I-SGD": pmg.ISGD}
SIZE = 128  # of a batch
DRAWS = 200


def mlp(X, labels) -> pm.Model:
    return pmg.classical_mlp(X, labels, 100, activation="relu", batch_size=SIZE, total_size=len(X))


def cnn(X, labels) -> pm.Model:
    """A convolutional network as a user writes it."""
    with pm.Model() as model:
        images, targets = pm.Minibatch(X.reshape(-1, 1, 28, 28), labels, batch_size=SIZE)
        W1, b1 = pm.Normal("W1", 0, 1, shape=(8, 1, 5, 5)), pm.Normal("b1", 0, 1, shape=8)
        W2, b2 = pm.Normal("W2", 0, 1, shape=(10, 288)), pm.Normal("b2", 0, 1, shape=10)
        a = pm.math.maximum(pmg.conv2d(images, W1, stride=2) + b1[:, None, None], 0)
        a = pmg.average_pool2d(a, 2).reshape((SIZE, 288))
        pm.Categorical("y", logit_p=a @ W2.T + b2, observed=targets, total_size=len(X))
    return model


def mlp_scores(point, x):
    """The logits of labels, as the models have them."""
    return jnp.maximum(x @ point["W1"].T + point["b1"], 0) @ point["W2"].T + point["b2"]


def cnn_scores(point, x):
    z = jax.lax.conv_general_dilated(x.reshape(-1, 1, 28, 28), point["W1"], (2, 2), "VALID")
    a = jnp.maximum(z + point["b1"][:, None, None], 0)
    a = a.reshape(-1, 8, 6, 2, 6, 2).mean((3, 5)).reshape(-1, 288)
    return a @ point["W2"].T + point["b2"]


NETWORKS = {"mlp": (mlp, mlp_scores), "cnn": (cnn, cnn_scores)}


def adam(
    model: pm.Model, scores, X, labels, seed: int, steps: int = 20_000, rate: float = 1e-3
) -> dict[str, np.ndarray]:
    """The point of largest joint density that Adam finds, in plain JAX."""
    rows, rng = len(X), np.random.default_rng(seed)
    X, labels = jnp.asarray(X, jnp.float32), jnp.asarray(labels)
    # fan-in scaling: weights of variance 2 over the number of inputs, and biases of 0
    shapes = {v.name: x.shape for v, x in zip(model.free_RVs, model.initial_point().values(), strict=True)}
    point = {
        k: jnp.asarray(rng.normal(size=s) * (2 / np.prod(s[1:])) ** 0.5 * (len(s) > 1), jnp.float32)
        for k, s in shapes.items()
    }

    def loss(point, x, y):
        fit = jax.nn.log_softmax(scores(point, x))[jnp.arange(SIZE), y].sum()
        return sum((v**2).sum() for v in point.values()) / 2 - rows / SIZE * fit

    def step(i, loop):
        key, point, m, v = loop
        key, sub = jax.random.split(key)
        index = jax.random.randint(sub, (SIZE,), 0, rows)
        g = jax.grad(loss)(point, X[index], labels[index])
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b**2, v, g)
        t = i + 1.0
        point = jax.tree.map(
            lambda x, a, b: x - rate * a / (1 - 0.9**t) / (jnp.sqrt(b / (1 - 0.999**t)) + 1e-8), point, m, v
        )
        return key, point, m, v

    zeros = jax.tree.map(jnp.zeros_like, point)
    run = jax.jit(lambda loop: jax.lax.fori_loop(0, steps, step, loop))
    return {k: np.asarray(x) for k, x in run((jax.random.key(seed), point, zeros, zeros))[1].items()}


def sampled(model: pm.Model, sampler, seed: int, steps: int, chains: int) -> dict[str, np.ndarray]:
    with model:
        idata = pmg.sample(
            DRAWS, tune=DRAWS // 2, step=sampler(sweeps_per_draw=steps), chains=chains, precision="float32",
            random_seed=seed, progressbar=False,
        )  # fmt: skip
    return {k: np.asarray(x.values.reshape(-1, *x.shape[2:]), np.float32) for k, x in idata["posterior"].items()}


def scored(each, others, labels) -> dict[str, float]:
    """The scores of probabilities (draw, image, label) of digits and of letters."""
    p, letters = each.mean(0), others.mean(0)
    right = np.arange(len(labels)), labels
    entropies = entr(p).sum(-1), entr(letters).sum(-1)
    ranks = rankdata(np.concatenate(entropies))[len(p) :]
    area = (ranks.mean() - (len(letters) + 1) / 2) / len(p)
    return {
        "accuracy": float((p.argmax(-1) == labels).mean()),
        "NLL": float(-np.log(np.maximum(p[right], 1e-12)).mean()),
        "NLL of one draw": float(-np.log(np.maximum(each[:, *right], 1e-12)).mean()),
        "entropy of digits": float(entropies[0].mean()),
        "of letters": float(entropies[1].mean()),
        "area under ROC": float(area),
    }


def draw_histograms(entropies: dict[str, tuple[np.ndarray, np.ndarray]], file: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(entropies), figsize=(3.2 * len(entropies), 2.8), sharey=True,
                                layout="constrained", squeeze=False)  # fmt: skip
    bins = np.linspace(0, np.log(10), 41)
    for ax, (name, (digits, letters)) in zip(axes[0], entropies.items(), strict=True):
        for values, label in ((digits, "digits"), (letters, "letters")):
            ax.hist(values, bins, density=True, alpha=0.6, label=label)
        ax.set(title=name, xlabel="entropy", yscale="log")
    axes[0, 0].set_ylabel("density")
    axes[0, 0].legend(frameon=False)
    figure.savefig(file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--network", choices=NETWORKS, default="mlp")
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--steps", type=int, default=100, help="gradients for each of 200 draws")
    parser.add_argument("--chains", type=int, default=4, help="of each sampler; their draws are put together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--figure", type=Path, help="where to draw the histograms of entropies")
    parser.add_argument("--output", type=Path, default=RESULTS / "stochastic_images.json")
    arguments = parser.parse_args()
    file, letters = np.load(arguments.data / "mnist.npz"), np.load(arguments.data / "notmnist_small.npz")["x"]
    X, X_test, letters = (
        (x.reshape(len(x), -1) / 255).astype(np.float32) for x in (file["x_train"], file["x_test"], letters)
    )
    labels, labels_test = file["y_train"].astype("int32"), file["y_test"]  # PyMC wants minibatches of this type
    make, scores = NETWORKS[arguments.network]
    results, rows, entropies = Results(arguments.output), [], {}
    probabilities = jax.jit(lambda points, x: jax.lax.map(lambda point: jax.nn.softmax(scores(point, x)), points))
    for name in ["Adam", *arguments.samplers]:
        model, start = make(X, labels), time.perf_counter()
        if name == "Adam":
            point = adam(model, scores, X, labels, arguments.seed, 200 * arguments.steps)
            points = {k: x[None] for k, x in point.items()}
        else:
            points = sampled(model, SAMPLERS[name], arguments.seed, arguments.steps, arguments.chains)
        seconds = time.perf_counter() - start
        each, others = np.asarray(probabilities(points, X_test)), np.asarray(probabilities(points, letters))
        entropies[name] = entr(each.mean(0)).sum(-1), entr(others.mean(0)).sum(-1)
        rows.append({"sampler": name, **scored(each, others, labels_test), "seconds": seconds})
        results[f"{arguments.network} {name} {arguments.seed}"] = rows[-1]
        print(rows[-1], flush=True)
    print_table(f"MNIST, {arguments.network}", rows)
    if arguments.figure:
        draw_histograms(entropies, arguments.figure)


if __name__ == "__main__":
    main()

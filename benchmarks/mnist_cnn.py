"""Noisy convolutional network on MNIST: test accuracy against sweeps, time of a sweep, peak memory.

The experiment of Piccioli, Troiani, Zdeborová (arXiv 2306.02729, fig. 3 and 5): a convolution with 2 filters of 4x4 at
stride 2 and a bias, an average pool of 2x2, ReLU, 10 dense outputs; noise of variance 100 after each; multinomial
probit, priors of precision 16 and 72, pixels standardised by their common mean and standard deviation, started from
zero. They report a test accuracy of .874. With ``--tune`` the chain starts as ``pm.sample`` starts it by default, with
so many tuning sweeps before those that count. Other filters, strides, pools and noises can be asked for.

Run::

    PYMC_GIBBSNN_DATA=FOLDER OMP_NUM_THREADS=2 python benchmarks/mnist_cnn.py [--images 60000] [--moves all]
    PYMC_GIBBSNN_DATA=FOLDER python benchmarks/mnist_cnn.py --compare

FOLDER holds ``mnist.npz`` with x_train (60000, 28, 28), y_train, x_test and y_test. With --compare, the time of a sweep
over 2,000 images is compared with that of the same sweep in NumPy, where the convolution and the pool are dense
matrices for an image, and every conditional distribution a dense Gaussian.
"""

from __future__ import annotations

import argparse
import os
import resource
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
from common import RESULTS, Results, print_table, time_in_turn
from numpy_sweep import draw_relu
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import log_ndtr, ndtri_exp

import pymc_gibbsnn as pmg

WEIGHTS = ["W1", "b1", "W2", "b2"]
MOVES = {
    "Algorithm 1": {"collapse": False, "scale_move": False, "interweave": False},
    "collapsed": {"scale_move": False, "interweave": False},
    "scales": {"interweave": False},
    "interweaved": {"scale_move": False},
    "all": {},
}


def load(images: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    data = np.load(Path(os.environ["PYMC_GIBBSNN_DATA"]) / "mnist.npz")
    pixels = data["x_train"] / 255
    mean, sd = pixels.mean(), pixels.std()
    X, X_test = (pixels[:images] - mean) / sd, (data["x_test"][:5000] / 255 - mean) / sd
    return X, data["y_train"][:images].astype(int), X_test, data["y_test"][:5000]


def write(
    X: np.ndarray, y: np.ndarray, delta: float, filters: int, size: int = 4, stride: int = 2, pool: int | None = 2
) -> pm.Model:
    return pmg.cnn(
        X, y, filters, size=size, stride=stride, pool=pool, noise=delta**0.5, likelihood="probit", prior=None
    )


def run(
    images: int,
    sweeps: int,
    tune: int,
    every: int,
    delta: float,
    filters: int,
    size: int,
    stride: int,
    pool: int,
    precision: str,
    moves: str,
    output: Path,
) -> None:
    pytensor.config.floatX = precision
    X, y, X_test, labels = load(images)
    with write(X, y, delta, filters, size, stride, pool or None):
        idata = pm.sample(
            sweeps // every,
            tune=tune // every,
            chains=1,
            step=pmg.GibbsNN(sweeps_per_draw=every, **MOVES[moves]),
            initvals=None if tune else pmg.initial_values(kind="zero"),
            var_names=WEIGHTS,
            random_seed=1,
            compute_convergence_checks=False,
        )
        logits = pmg.function_space(idata, X_new=X_test)["output"].values[0]
    single = (logits.argmax(-1) == labels).mean(1)
    shares = np.cumsum(logits.argmax(-1)[..., None] == np.arange(10), axis=0)
    together = (shares.argmax(-1) == labels).mean(1)
    at = every * np.arange(1, len(single) + 1)
    milliseconds = 1000 * float(idata["posterior"].attrs["sampling_time"]) / (tune + at[-1])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # GiB; KiB on Linux
    rows = [
        {"sweeps": int(at[i]), "one state": float(single[i]), "majority": float(together[i])}
        for i in np.unique(np.linspace(0, len(at) - 1, 8).astype(int))
    ]
    print_table("Test accuracy", rows)
    print(f"\n{milliseconds:.0f} ms a sweep of {images} images in {precision}, peak memory {memory:.1f} GiB")
    shape = f"{filters} filters of {size}x{size} at stride {stride}, pool {pool}"
    Results(output)[f"{images} images, {shape}, Δ={delta:g}, {moves}, {precision}"] = {
        "ms": milliseconds, "GiB": memory, "sweeps": at.tolist(), "one": single.tolist(), "mean": together.tolist()
    }  # fmt: skip


class DenseSweep:
    """Algorithm 1 of the paper in NumPy and SciPy, with convolution and pool as dense matrices."""

    def __init__(self, X: np.ndarray, y: np.ndarray, delta: float, seed: int = 0):
        self.rng, self.delta, self.y = np.random.default_rng(seed), delta, y
        n = len(X)
        view = np.lib.stride_tricks.sliding_window_view(X, (4, 4), axis=(1, 2))[:, ::2, ::2]
        self.windows = np.concatenate([view.reshape(-1, 16), np.ones((n * 169, 1))], axis=1)
        self.pool = np.zeros((72, 338))
        for c, i, j, r, s in np.ndindex(2, 6, 6, 2, 2):
            self.pool[c * 36 + i * 6 + j, c * 169 + (2 * i + r) * 13 + 2 * j + s] = 1 / 4
        self.z2, self.p, self.a, self.z3 = np.zeros((n, 338)), np.zeros((n, 72)), np.zeros((n, 72)), np.zeros((n, 10))
        self.w2 = np.zeros((10, 73))
        self.gram = self.windows.T @ self.windows

    def __call__(self) -> None:
        n, delta = len(self.y), self.delta
        images = self.z2.reshape(n, 2, 169).transpose(0, 2, 1).reshape(-1, 2)
        w1 = self._weights(self.gram, self.windows.T @ images, 16)
        mean = (self.windows @ w1.T).reshape(n, 169, 2).transpose(0, 2, 1).reshape(n, 338)
        self.z2 = self._gaussian(mean, self.pool, self.p)
        self.a = self._gaussian(np.maximum(self.p, 0), self.w2[:, :-1], self.z3 - self.w2[:, -1])
        self.p = draw_relu(self.rng, (self.z2 @ self.pool.T).ravel(), delta, self.a.ravel() / delta, 1 / delta).reshape(
            n, 72
        )
        augmented = np.concatenate([self.a, np.ones((n, 1))], axis=1)
        self.w2 = self._weights(augmented.T @ augmented, augmented.T @ self.z3, 72)
        self._labels(augmented @ self.w2.T)

    def _weights(self, gram: np.ndarray, products: np.ndarray, precision: float) -> np.ndarray:
        factor = cholesky(gram / self.delta + precision * np.eye(len(gram)), lower=True)
        whitened = solve_triangular(factor, products / self.delta, lower=True)
        whitened += self.rng.normal(size=whitened.shape)
        return solve_triangular(factor, whitened, lower=True, trans=1).T

    def _gaussian(self, s: np.ndarray, v: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Rows of precision (I + VᵀV)/Δ and linear term (s + y V)/Δ."""
        factor = cholesky((np.eye(v.shape[1]) + v.T @ v) / self.delta, lower=True)
        mean = cho_solve((factor, True), ((s + y @ v) / self.delta).T)
        return (mean + solve_triangular(factor, self.rng.normal(size=mean.shape), lower=True, trans=1)).T

    def _labels(self, m: np.ndarray) -> None:
        rows, sd = np.arange(len(m)), self.delta**0.5
        others = self.z3.copy()
        others[rows, self.y] = -np.inf
        low = (others.max(1) - m[rows, self.y]) / sd
        u = np.log(self.rng.random(len(m)))
        top = m[rows, self.y] - sd * ndtri_exp(log_ndtr(-low) + u)
        z = m + sd * ndtri_exp(log_ndtr((top[:, None] - m) / sd) + np.log(self.rng.random(m.shape)))
        z[rows, self.y] = top
        self.z3 = z


def compare(images: int, delta: float) -> None:
    X, y, *_ = load(images)
    model = write(X, y, delta, 2)
    steps = {}
    for name in ("Algorithm 1", "collapsed", "all"):
        step = pmg.GibbsNN(model=model, rng=1, sweeps_per_draw=1, **MOVES[name])
        point = [model.initial_point() | pmg.initial_values(model, "zero")]

        def sweep(step=step, point=point):
            point[0], _ = step.step(point[0])

        steps[name] = sweep
    steps["NumPy, dense"] = DenseSweep(X, y, delta)
    seconds = time_in_turn(steps, 15)
    reference = np.median(seconds["NumPy, dense"])
    rows = [
        {"sweep": name, "ms": 1000 * float(np.median(s)), "of NumPy": float(np.median(s) / reference)}
        for name, s in seconds.items()
    ]
    print_table(f"{images} images, Δ={delta:g}", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--sweeps", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=0, help="tuning sweeps before these")
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--delta", type=float, default=100.0)
    parser.add_argument("--filters", type=int, default=2)
    parser.add_argument("--size", type=int, default=4, help="height and width of the filters")
    parser.add_argument("--stride", type=int, default=2)
    parser.add_argument("--pool", type=int, default=2, help="height and width of the pool, 0 for none")
    parser.add_argument("--precision", choices=["float32", "float64"], default="float32")
    parser.add_argument("--moves", choices=MOVES, default="all", help="which moves a sweep makes")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS / "mnist_cnn.json")
    arguments = vars(parser.parse_args())
    if arguments.pop("compare"):
        compare(min(arguments["images"], 2000), arguments["delta"])
    else:
        run(**arguments)

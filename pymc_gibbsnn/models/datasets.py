"""Data sets that are drawn at random."""

from __future__ import annotations

import numpy as np

from pymc_gibbsnn._arguments import number

__all__ = ["noisy_xor"]


def noisy_xor(
    n_train: int = 5000, n_test: int = 1200, random_seed: int | np.random.Generator | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw points around the corners of the unit square, labelled by the exclusive or of the corner's two bits.

    Each coordinate of a point is uniform on (−0.55, 0.45) where the bit of the corner is 0 and on (0.55, 1.55) where it
    is 1, so that a gap of 0.1 lies between the classes [1]_. Each corner has the same number of points; the points come
    in random order.

    Parameters
    ----------
    n_train, n_test : int
        Numbers of points to train and to test with, multiples of four.
    random_seed : int or numpy.random.Generator, optional
        The seed of the draws.

    Returns
    -------
    X_train, y_train, X_test, y_test : arrays of shapes (n_train, 2), (n_train,), (n_test, 2), (n_test,)
        Points, and their labels, which are integers 0 and 1.

    Raises
    ------
    TypeError
        If a number of points is no number.
    ValueError
        If a number of points is not a positive multiple of four.

    References
    ----------
    .. [1] T. Papamarkou, J. Hinkle, M. T. Young, D. Womble. Challenges in Markov chain Monte Carlo for Bayesian neural
       networks. Statistical Science 37 (2022).

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> X_train, y_train, X_test, y_test = pmg.noisy_xor(20, 8, random_seed=0)
    >>> X_train.shape, int(y_train.sum()), int(y_test.sum())
    ((20, 2), 10, 4)
    """
    rng = np.random.default_rng(random_seed)
    arrays = []
    for name, n in (("n_train", n_train), ("n_test", n_test)):
        number(name, n, "a positive multiple of 4, to share among the corners", lambda x: x >= 4 and x % 4 == 0)
        corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])[rng.permutation(int(n)) % 4]
        arrays += [rng.random((int(n), 2)) + np.where(corners == 1, 0.55, -0.55), corners[:, 0] ^ corners[:, 1]]
    return tuple(arrays)

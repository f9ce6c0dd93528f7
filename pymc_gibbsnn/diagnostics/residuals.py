r"""Quantile residuals: where an observation lies in its predictive distribution, as a number that should be normal.

With F_i the predictive distribution function of row i, the residual is r_i = Φ⁻¹(u_i) with u_i = F_i(y_i), which is
uniform for a calibrated prediction. Where y is discrete, u_i is drawn uniformly between F_i(y_i − 1) and F_i(y_i) [1]_.

Of S draws of y_i, let a be less than y_i and b be equal to it. Then u_i = (a + V (b + 1))/(S + 1), with V uniform, is
exactly uniform if y_i and the draws come from one distribution, and never 0 or 1.

A class label has no order of its own but where there are two classes. Of more, classes are sorted by their probability
in each row, the least probable one first, so that a low residual says that something improbable happened.

References
----------
.. [1] P. K. Dunn, G. K. Smyth. Randomized quantile residuals. Journal of Computational and Graphical Statistics 5
   (1996).
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

__all__ = ["local_mean", "quantile_residuals", "quantile_residuals_of_labels"]


def quantile_residuals(samples: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return randomised quantile residuals of data (point, ...), given draws of them (draw, point, ...)."""
    below, equal = (samples < y).sum(axis=0), (samples == y).sum(axis=0)
    return ndtri((below + rng.uniform(size=y.shape) * (equal + 1)) / (len(samples) + 1))


def quantile_residuals_of_labels(probabilities: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return randomised quantile residuals of labels (point,), given probabilities of the classes (point, class)."""
    own = np.take_along_axis(probabilities, labels[:, None], axis=1)
    if probabilities.shape[1] == 2:
        below = np.where(labels == 1, probabilities[:, 0], 0)
    else:
        below = np.where(probabilities < own, probabilities, 0).sum(axis=1)
    u = below + rng.uniform(size=len(labels)) * own[:, 0]
    return ndtri(np.clip(u, 1e-9, 1 - 1e-9))  # probabilities may be 0 or 1


def local_mean(x: np.ndarray, y: np.ndarray, at: np.ndarray, *, degree: int = 1, span: float = 0.5) -> np.ndarray:
    r"""Smooth y by local regression with tricube weights, at some points.

    This is LOWESS [1]_ without its robust steps. The weights of a point are (1 − (d_i/h)³)³, with d_i the distance of
    x_i and h that of the nearest share ``span`` of the data. With S_k = Σ w_i d_i^k and T_k = Σ w_i d_i^k y_i, for
    signed d_i, the regression line has at d = 0 the height (S_2 T_0 − S_1 T_1)/(S_2 S_0 − S_1²).

    Parameters
    ----------
    x, y : array, (n,)
        The data.
    at : array, (m,)
        The points.
    degree : {0, 1}
        Whether to take the weighted mean T_0/S_0, which is never negative if y is not, or the height of the line.
    span : float
        Which share of the data has weights above 0.

    Returns
    -------
    array, (m,)

    References
    ----------
    .. [1] W. S. Cleveland. Robust locally weighted regression and smoothing scatterplots. Journal of the American
       Statistical Association 74 (1979).
    """
    distance = x - at[:, None]
    nearest = min(len(x) - 1, int(np.ceil(span * len(x))))
    width = np.sort(np.abs(distance), axis=1)[:, [nearest]]
    d = distance / np.where(width > 0, width, 1)
    w = np.clip(1 - np.abs(d) ** 3, 0, None) ** 3
    s0, s1, s2 = ((w * d**k).sum(axis=1) for k in range(3))
    t0, t1 = ((w * d**k * y).sum(axis=1) for k in range(2))
    determinant = s2 * s0 - s1**2
    is_line = (degree == 1) & (determinant > 1e-9 * s0**2)  # else all weights are at one place
    return np.where(is_line, (s2 * t0 - s1 * t1) / np.where(is_line, determinant, 1), t0 / s0)

"""Scores of predictions.

Each takes what a posterior gives for every draw and averages over draws first: it is the predictive mixture that is
scored, not its components.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from pymc_gibbsnn._arguments import whole

__all__ = ["brier", "expected_calibration_error", "log_predictive_density", "reliability", "rmse"]


def rmse(samples: ArrayLike, y: ArrayLike) -> float:
    """Root mean squared error of the posterior mean.

    Parameters
    ----------
    samples : array_like, shape (chain, draw, ...)
        Predictions for every draw.
    y : array_like, shape (...)
        What was seen.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    samples, y = np.asarray(samples, float), np.asarray(y, float)
    if samples.ndim < 3 or samples.shape[2:] != y.shape:
        raise ValueError(f"samples must be (chain, draw, *y.shape); found {samples.shape} and y of shape {y.shape}.")
    return float(np.sqrt(np.mean((samples.mean((0, 1)) - y) ** 2)))


def log_predictive_density(log_likelihood: ArrayLike) -> float:
    r"""Mean over points of the log of the predictive density, :math:`\log \frac1S \sum_s p(y_i \mid \theta_s)`.

    Parameters
    ----------
    log_likelihood : array_like, shape (chain, draw, point, ...)
        Of test data, for every draw: as ``pm.compute_log_likelihood`` gives it with the test data set.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If there is no axis of points.
    """
    values = np.asarray(log_likelihood, float)
    if values.ndim < 3:
        raise ValueError(f"log_likelihood must be (chain, draw, point, ...); found shape {values.shape}.")
    return float(np.mean(logsumexp(values, axis=(0, 1)) - np.log(values.shape[0] * values.shape[1])))


def brier(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Mean over points of the squared distance between the predictive probabilities and the label, from 0 to 2.

    Parameters
    ----------
    probabilities : array_like, shape (point, class) or (point,)
        Of the classes, or of class 1 of two.
    labels : array_like of int, shape (point,)

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the shapes do not fit or the rows are no probabilities.
    """
    p, labels = _checked(probabilities, labels)
    return float(np.mean(((p - np.eye(p.shape[1])[labels]) ** 2).sum(axis=1)))


def expected_calibration_error(probabilities: ArrayLike, labels: ArrayLike, bins: int = 10) -> float:
    """Mean over points of the distance between accuracy and confidence of the bin in which a point lies.

    Parameters
    ----------
    probabilities : array_like, shape (point, class) or (point,)
        Of the classes, or of class 1 of two.
    labels : array_like of int, shape (point,)
    bins : int
        Of equal width, over the probability of the predicted class (Guo et al., ICML 2017, eq. 3).

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the shapes do not fit or the rows are no probabilities.
    """
    share, confidence, accuracy = reliability(probabilities, labels, bins)
    return float(np.sum(share * np.abs(np.nan_to_num(accuracy - confidence))))


def reliability(
    probabilities: ArrayLike, labels: ArrayLike, bins: int = 10
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(share of points, mean confidence, accuracy) of bins of the probability of the predicted class.

    Parameters
    ----------
    probabilities : array_like, shape (point, class) or (point,)
        Of the classes, or of class 1 of two.
    labels : array_like of int, shape (point,)
    bins : int
        Of equal width.

    Returns
    -------
    tuple of array, shape (bins,)
        Confidence and accuracy of an empty bin are NaN.

    Raises
    ------
    ValueError
        If the shapes do not fit or the rows are no probabilities.
    """
    p, labels = _checked(probabilities, labels)
    bins = whole("bins", bins)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels
    index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)  # bins (a, b]
    count = np.bincount(index, minlength=bins)
    sums = [np.bincount(index, weights=x, minlength=bins) for x in (confidence, right)]
    with np.errstate(invalid="ignore"):
        return count / len(p), sums[0] / count, sums[1] / count


def _checked(probabilities: ArrayLike, labels: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    p, labels = np.asarray(probabilities, float), np.asarray(labels)
    p = np.stack([1 - p, p], axis=1) if p.ndim == 1 else p
    if p.ndim != 2 or labels.shape != p.shape[:1]:
        raise ValueError(f"probabilities must be (point, class), labels (point,); found {p.shape} and {labels.shape}.")
    if labels.dtype.kind not in "biu" or labels.min() < 0 or labels.max() >= p.shape[1]:
        raise ValueError(f"labels must be integers from 0 to {p.shape[1] - 1}; found {np.unique(labels)[:5]}.")
    if (p < 0).any() or not np.allclose(p.sum(axis=1), 1, atol=1e-6):
        raise ValueError("Each row of probabilities must be positive and sum to 1.")
    return p, labels.astype(int)

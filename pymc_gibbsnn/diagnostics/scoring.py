"""Scores of predictions against what was then observed.

Predictions given for every draw of a posterior are averaged over draws before they are scored: the score is that of the
predictive mixture, not a mean over the scores of single draws.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from pymc_gibbsnn._arguments import number, whole
from pymc_gibbsnn._data import numbers_in
from pymc_gibbsnn.diagnostics.predicted import checked_classes, samples_and_data

__all__ = [
    "brier",
    "coverage",
    "crps",
    "expected_calibration_error",
    "log_predictive_density",
    "pit",
    "reliability",
    "rmse",
    "sharpness",
]


def rmse(samples: ArrayLike, y: ArrayLike) -> float:
    """Compute the root mean squared error of the posterior mean, in the units of y.

    Parameters
    ----------
    samples : array_like, shape (chain, draw, ...)
        Predictions for every draw.
    y : array_like, shape (...)
        What was observed.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the shapes do not fit, there are no draws, or an entry is NaN or no number.

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> pmg.scoring.rmse([[[1.0, 2.0], [3.0, 2.0]]], [5.0, 5.0])
    3.0
    """
    samples, y = samples_and_data(samples, y)
    return float(np.sqrt(np.mean((samples.mean(0) - y) ** 2)))


def crps(samples: ArrayLike, y: ArrayLike) -> float:
    r"""Compute the continuous ranked probability score, the mean over points of

    .. math:: E|Y_i - y_i| - \tfrac12 E|Y_i - Y_i'|,

    where Y_i and Y_i' are two independent draws of the prediction of point i [1]_ (eq. 21). Lower is better; the score
    of a prediction without spread is its absolute error. Both means are estimated without bias.

    Parameters
    ----------
    samples : array_like, shape (chain, draw, ...)
        Draws of new data, noise included, two at least, as ``predict(..., samples=True)["samples"]`` holds them.
    y : array_like, shape (...)
        What was observed.

    Returns
    -------
    float
        In the units of y.

    Raises
    ------
    ValueError
        If the shapes do not fit, an entry is NaN or no number, or there are fewer than two draws.

    References
    ----------
    .. [1] T. Gneiting, A. E. Raftery. Strictly proper scoring rules, prediction, and estimation. Journal of the
       American Statistical Association 102 (2007).

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> pmg.scoring.crps([[[0.0], [2.0]]], [1.0])
    0.0
    """
    samples, y = samples_and_data(samples, y)
    draws = len(samples)
    if draws < 2:
        raise ValueError("samples must hold two draws or more; found one.")
    # In order, the k-th of S draws is the larger one of k - 1 pairs and the smaller one of S - k.
    weights = 2 * np.arange(1, draws + 1) - draws - 1
    spread = np.tensordot(weights, np.sort(samples, axis=0), axes=1) / (draws * (draws - 1))
    return float(np.mean(np.abs(samples - y).mean(0) - spread))


def pit(samples: ArrayLike, y: ArrayLike) -> np.ndarray:
    """Compute the probability integral transform: the share of draws of a point that lie below its observation.

    Over the points of a calibrated prediction these values are spread evenly between 0 and 1. A heap in the middle
    means that predictions are too wide, heaps at the ends that they are too narrow [1]_.

    Parameters
    ----------
    samples : array_like, shape (chain, draw, ...)
        Draws of new data, noise included, as ``predict(..., samples=True)["samples"]`` holds them.
    y : array_like, shape (...)
        What was observed. A draw equal to it counts as half below.

    Returns
    -------
    array, shape (...)

    Raises
    ------
    ValueError
        If the shapes do not fit, there are no draws, or an entry is NaN or no number.

    References
    ----------
    .. [1] T. Gneiting, F. Balabdaoui, A. E. Raftery. Probabilistic forecasts, calibration and sharpness. Journal of the
       Royal Statistical Society B 69 (2007).

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> pmg.scoring.pit([[[0.0], [1.0], [2.0], [3.0]]], [0.5])
    array([0.25])
    """
    samples, y = samples_and_data(samples, y)
    return (samples < y).mean(0) + (samples == y).mean(0) / 2


def coverage(samples: ArrayLike, y: ArrayLike, level: float = 0.9) -> float:
    """Compute the coverage: the share of points whose observation lies in its central predictive interval.

    Of a calibrated prediction that share is the level of the interval, up to chance.

    Parameters
    ----------
    samples : array_like, shape (chain, draw, ...)
        Draws of new data, noise included, as ``predict(..., samples=True)["samples"]`` holds them.
    y : array_like, shape (...)
        What was observed.
    level : float
        Probability of the interval, which leaves out as much below as above.

    Returns
    -------
    float
        From 0 to 1.

    Raises
    ------
    ValueError
        If the shapes do not fit, there are no draws, an entry is NaN or no number, or the level does not lie between 0
        and 1.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> pmg.scoring.coverage(np.linspace(0, 1, 101)[None, :, None] + [0.0, 5.0], [0.5, 0.5])
    0.5
    """
    samples, y = samples_and_data(samples, y)
    low, high = _interval(samples, level)
    return float(np.mean((low <= y) & (y <= high)))


def sharpness(samples: ArrayLike, level: float = 0.9) -> float:
    """Compute the mean width of central predictive intervals: of two calibrated ones the narrower is better.

    Parameters
    ----------
    samples : array_like, shape (chain, draw, ...)
        Draws of new data, noise included, as ``predict(..., samples=True)["samples"]`` holds them.
    level : float
        Probability of the interval.

    Returns
    -------
    float
        In the units of the samples.

    Raises
    ------
    ValueError
        If the samples have no axis of points or no draws, an entry is NaN or no number, or the level does not lie
        between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> round(pmg.scoring.sharpness(np.linspace(0, 1, 101)[None, :, None]), 3)
    0.9
    """
    samples, _ = samples_and_data(samples, np.zeros(np.shape(samples)[2:]))
    low, high = _interval(samples, level)
    return float(np.mean(high - low))


def log_predictive_density(log_likelihood: ArrayLike) -> float:
    r"""Compute the mean over points i of the log predictive density :math:`\log \frac1S \sum_s p(y_i \mid \theta_s)`.

    Parameters
    ----------
    log_likelihood : array_like, shape (chain, draw, point, ...)
        Natural logarithms of p(y_i | θ_s) for each of the S draws: ``log_predictive(...)["log_likelihood"]``, in which
        latents are integrated out; for a model without latents also what ``pm.compute_log_likelihood`` computes once
        the test data are set in the model.

    Returns
    -------
    float
        In natural units of information (nats) per point; its negative is the NLL that tables of benchmarks report.

    Raises
    ------
    ValueError
        If there is no axis of points, there are no draws, or an entry is no number.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> round(pmg.scoring.log_predictive_density(np.log([[[0.2], [0.4]]])), 3)
    -1.204
    """
    values = numbers_in("log_likelihood", log_likelihood)
    if values.ndim < 3 or not values.size:
        raise ValueError(f"log_likelihood must be (chain, draw, point, ...), none empty; found shape {values.shape}.")
    return float(np.mean(logsumexp(values, axis=(0, 1)) - np.log(values.shape[0] * values.shape[1])))


def brier(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Compute the Brier score: the mean squared distance between predictive probabilities and labels, from 0 to 2.

    A label counts as the vector that is 1 for its class and 0 for the others [1]_.

    Parameters
    ----------
    probabilities : array_like, shape (point, class) or (point,)
        Predictive probabilities of the classes, such as ``predict(...)["probability"]``, or of class 1 of two.
    labels : array_like, shape (point,)
        True classes: numbers from 0 up or, for probabilities (point, class) as ``predict`` gives them, the names that
        classes have there; these alone if the names are numbers other than 0, 1, ...

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the shapes do not fit or are empty, the rows are no probabilities, or labels are of no class.

    References
    ----------
    .. [1] G. W. Brier. Verification of forecasts expressed in terms of probability. Monthly Weather Review 78 (1950).

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> pmg.scoring.brier([[0.5, 0.5], [0.0, 1.0]], [0, 1])
    0.25
    """
    p, labels = checked_classes(probabilities, labels)
    return float(np.mean(((p - np.eye(p.shape[1])[labels]) ** 2).sum(axis=1)))


def expected_calibration_error(probabilities: ArrayLike, labels: ArrayLike, bins: int = 10) -> float:
    """Compute the expected calibration error: how far accuracy and confidence differ, on average over points.

    Points are sorted into bins by their confidence, the probability of the predicted class; accuracy is the share of
    points in a bin whose predicted class is right. The error is the mean over points of the distance between the two in
    the bin of the point [1]_ (eq. 3).

    Parameters
    ----------
    probabilities : array_like, shape (point, class) or (point,)
        Predictive probabilities of the classes, such as ``predict(...)["probability"]``, or of class 1 of two.
    labels : array_like, shape (point,)
        True classes: numbers from 0 up or, for probabilities (point, class) as ``predict`` gives them, the names that
        classes have there; these alone if the names are numbers other than 0, 1, ...
    bins : int
        How many bins of equal width divide the confidences.

    Returns
    -------
    float
        Between 0 and 1.

    Raises
    ------
    TypeError
        If ``bins`` is no number.
    ValueError
        If the shapes do not fit or are empty, the rows are no probabilities, labels are of no class, or ``bins`` is no
        positive integer.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger. On calibration of modern neural networks. ICML (2017).

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> pmg.scoring.expected_calibration_error([0.75, 0.75, 0.75, 0.75], [1, 1, 1, 0])
    0.0
    """
    share, confidence, accuracy = reliability(probabilities, labels, bins)
    return float(np.sum(share * np.abs(np.nan_to_num(accuracy - confidence))))


def reliability(
    probabilities: ArrayLike, labels: ArrayLike, bins: int = 10
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort points into bins by the probability of their predicted class, and compare it with how often it is right.

    Parameters
    ----------
    probabilities : array_like, shape (point, class) or (point,)
        Predictive probabilities of the classes, such as ``predict(...)["probability"]``, or of class 1 of two.
    labels : array_like, shape (point,)
        True classes: numbers from 0 up or, for probabilities (point, class) as ``predict`` gives them, the names that
        classes have there; these alone if the names are numbers other than 0, 1, ...
    bins : int
        How many bins of equal width divide the probabilities of the predicted class.

    Returns
    -------
    share, confidence, accuracy : array, shape (bins,)
        Of each bin, the share of all points, the mean probability of the predicted class, and the share of points whose
        predicted class is right. The latter two are NaN for an empty bin.

    Raises
    ------
    TypeError
        If ``bins`` is no number.
    ValueError
        If the shapes do not fit or are empty, the rows are no probabilities, labels are of no class, or ``bins`` is no
        positive integer.

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> found = pmg.scoring.reliability([0.75, 0.75, 0.75, 0.75], [1, 1, 1, 0], bins=2)
    >>> share, confidence, accuracy = found
    >>> share.tolist(), accuracy[1].item()
    ([0.0, 1.0], 0.75)
    """
    p, labels = checked_classes(probabilities, labels)
    bins = whole("bins", bins)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels
    index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)  # a bin holds its right end
    count = np.bincount(index, minlength=bins)
    sums = [np.bincount(index, weights=x, minlength=bins) for x in (confidence, right)]
    with np.errstate(invalid="ignore"):
        return count / len(p), sums[0] / count, sums[1] / count


def _interval(samples: np.ndarray, level: float) -> np.ndarray:
    """Return the ends (2, ...) of the central interval of samples (draw, ...)."""
    number("level", level, "a probability between 0 and 1", lambda p: 0 < p < 1)
    return np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=0)

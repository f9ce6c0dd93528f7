"""Summaries of the draws of what is observed, for some rows at a time, so that no more draws are kept than fit."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from pymc_gibbsnn.prediction.forward_draws import ForwardDraws
from pymc_gibbsnn.prediction.new_rows import NewRows
from pymc_gibbsnn.prediction.uncertainty import entropy, entropy_given_latents, split_variance

__all__ = ["chain_probabilities", "means_and_draws_alone", "summaries_of_classes", "summaries_of_numbers"]

Summaries = Iterator[tuple[dict[str, np.ndarray], np.ndarray]]


def summaries_of_numbers(rows: NewRows, rng: np.random.Generator, levels: np.ndarray, weights: np.ndarray) -> Summaries:
    """Yield, for some rows at a time, summaries of real numbers or counts, and draws of them (draw, row, ...).

    Parameters
    ----------
    rows : NewRows
        The rows.
    rng : numpy.random.Generator
        The generator of the draws.
    levels : array, (level,)
        Probabilities of the quantiles.
    weights : array, (draw,)
        How much each draw of the posterior counts; they add up to 1.

    Warns
    -----
    UserWarning
        If an estimate of the variance of E[y | x, θ] is negative.
    """
    forward, negative = ForwardDraws(rows), 0
    for these in rows.chunks():
        drawn, centres, noise, squares, paired = [], [], 0.0, 0.0, 0.0
        for batch in forward.batches(rng, these, has_draws=True):
            y, centre, variance = batch.first
            drawn.append(y)
            centres.append(centre)
            noise = noise + _mean(np.broadcast_to(variance, centre.shape), weights[batch.draws])
            if batch.second is not None:
                m, other = batch.pair
                of_pairs = batch.of_pair(weights)
                squares, paired = squares + _mean((m - other) ** 2, of_pairs), paired + of_pairs.sum()
        y, centre = np.concatenate(drawn), np.concatenate(centres)
        mean, of_latents = _mean(centre, weights), squares / (2 * (paired or 1))
        total, epistemic, aleatoric = split_variance(_mean((centre - mean) ** 2, weights), of_latents, noise)
        is_negative = epistemic < 0
        negative += int(is_negative.reshape(len(is_negative), -1).any(axis=1).sum())
        yield (
            {
                "mean": mean,
                "sd": np.sqrt(total),
                "sd_epistemic": np.sqrt(np.where(is_negative, 0, epistemic)),
                "sd_aleatoric": np.sqrt(np.where(is_negative, total, aleatoric)),
                "quantiles": _quantiles(y, levels, weights),
            },
            y,
        )
    if negative:
        warnings.warn(
            f"sd_epistemic is 0 in {negative} of {rows.rows} rows, where the estimate of its square is negative: it is "
            f"small beside sd_aleatoric there, and more draws of the posterior are needed to tell how small.",
            UserWarning,
            stacklevel=3,
        )


def _mean(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sum draws (draw, ...) times their weights."""
    return np.tensordot(weights, x, 1)


def _quantiles(y: np.ndarray, levels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute quantiles (level, row, ...) of draws (draw, row, ...) with weights, by linear interpolation.

    With S draws in rising order, and w_k and W_k the weight of number k and that of all up to it, number k is the
    quantile of probability (W_k − w_k/2 − w_1/2)/(1 − w_1/2 − w_S/2): (k − 1)/(S − 1) where weights are equal.
    """
    y, weights = y[weights > 0], weights[weights > 0]
    x = y.reshape(len(y), -1).T.copy()  # rows of draws in memory are sorted several times as fast as columns
    if np.ptp(weights) == 0:
        place = np.broadcast_to(levels * (x.shape[1] - 1), (len(x), len(levels)))
        x.sort(axis=1)
    else:
        order = x.argsort(axis=1)
        x, w = np.take_along_axis(x, order, 1), weights[order]
        middle = w.cumsum(axis=1) - w / 2
        first, last = middle[:, :1], middle[:, -1:]
        reached = (middle - first) / np.maximum(last - first, np.finfo(float).tiny)
        numbers = np.arange(x.shape[1])
        place = np.stack([np.interp(levels, one, numbers) for one in reached])
    return np.moveaxis(_at(x, place).reshape(*y.shape[1:], len(levels)), -1, 0)


def _at(x: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Interpolate numbers (row, draw) at places (row, level) between draws."""
    below = np.floor(place).astype(int)
    low, high = np.take_along_axis(x, below, 1), np.take_along_axis(x, np.ceil(place).astype(int), 1)
    with np.errstate(invalid="ignore"):  # where both are infinite
        return np.where(low == high, low, low + (high - low) * (place - below))


def summaries_of_classes(rows: NewRows, rng: np.random.Generator, has_draws: bool, weights: np.ndarray) -> Summaries:
    """Yield, for some rows at a time, summaries of class labels, and draws of them (draw, row, ...) if asked for.

    Parameters
    ----------
    rows : NewRows
        The rows.
    rng : numpy.random.Generator
        The generator of the draws.
    has_draws : bool
        Whether labels are to be drawn.
    weights : array, (draw,)
        How much each draw of the posterior counts; they add up to 1.
    """
    forward = ForwardDraws(rows)
    for these in rows.chunks():
        drawn, p, expected, paired = [], 0.0, 0.0, 0.0
        for batch in forward.batches(rng, these, has_draws):
            drawn.append(batch.first.y)
            p = p + _mean(batch.first.centre, weights[batch.draws])
            if forward.is_split:
                one, other = batch.pair
                of_pairs = batch.of_pair(weights)
                expected = expected + _mean(entropy_given_latents(one, other), of_pairs)
                paired = paired + of_pairs.sum()
        summaries = {"probability": p, "entropy": entropy(p)}
        if forward.is_split:
            summaries["expected_entropy"] = expected / (paired or 1)
            summaries["mutual_information"] = summaries["entropy"] - summaries["expected_entropy"]
        yield summaries, np.concatenate(drawn) if has_draws else np.empty(0)


def chain_probabilities(rows: NewRows, rng: np.random.Generator) -> np.ndarray:
    """Compute probabilities of classes (chain, row, ..., class), averaged over the draws of each chain."""
    forward, parts = ForwardDraws(rows), []
    for these in rows.chunks():
        sums = [0.0] * rows.chains
        for draws, (_, p, _), _ in forward.batches(rng, these, has_draws=False):
            chain = np.arange(draws.start, draws.stop) // rows.draws
            for c in np.unique(chain):
                sums[c] = sums[c] + p[chain == c].sum(axis=0)
        parts.append(np.stack(sums) / rows.draws)
    return np.concatenate(parts, axis=1)


@contextmanager
def means_and_draws_alone() -> Iterator[None]:
    """Leave out the warning of an epistemic part that is 0, where nothing is made of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "sd_epistemic is 0", UserWarning)
        yield

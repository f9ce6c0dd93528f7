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
        How much each draw of the posterior counts, 1 on average and never 0.

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
            noise = noise + _sum(np.broadcast_to(variance, centre.shape), weights[batch.draws])
            if batch.second is not None:
                m, other = batch.pair
                of_pairs = batch.of_pair(weights)
                squares, paired = squares + _sum((m - other) ** 2, of_pairs), paired + of_pairs.sum()
        y, centre = np.concatenate(drawn), np.concatenate(centres)
        mean, of_latents = _sum(centre, weights) / len(y), squares / (2 * (paired or 1))
        spread = _sum((centre - mean) ** 2, weights) / len(y)
        total, epistemic, aleatoric = split_variance(spread, of_latents, noise / len(y))
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


def _sum(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sum draws (draw, ...) times their weights."""
    return np.tensordot(weights, x, 1)


def _quantiles(y: np.ndarray, levels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute quantiles (level, row, ...) of draws (draw, row, ...).

    Where all draws count alike, those between two draws are interpolated. Else a quantile is the first draw up to which
    draws have this share of all weight: the next one may be that of a chain far away.
    """
    x = y.reshape(len(y), -1).T
    if np.ptp(weights) == 0:
        found = _of_sorted(np.sort(x, axis=1), levels)  # rows of draws in memory are sorted several times as fast
    else:
        order = np.ascontiguousarray(x).argsort(axis=1)
        share = weights[order].cumsum(axis=1) / weights.sum()
        first = np.stack([(share < level).sum(axis=1) for level in levels], axis=1)
        found = np.take_along_axis(x, np.take_along_axis(order, first.clip(max=len(y) - 1), 1), 1)
    return np.moveaxis(found.reshape(*y.shape[1:], len(levels)), -1, 0)


def _of_sorted(x: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Compute quantiles (row, level) of numbers (row, draw) in rising order."""
    place = levels * (x.shape[1] - 1)
    below = np.floor(place).astype(int)
    low, high = x[:, below], x[:, np.ceil(place).astype(int)]
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
        How much each draw of the posterior counts, 1 on average and never 0.
    """
    forward = ForwardDraws(rows)
    for these in rows.chunks():
        drawn, p, expected, paired = [], 0.0, 0.0, 0.0
        for batch in forward.batches(rng, these, has_draws):
            drawn.append(batch.first.y)
            p = p + _sum(batch.first.centre, weights[batch.draws])
            if forward.is_split:
                one, other = batch.pair
                of_pairs = batch.of_pair(weights)
                expected = expected + _sum(entropy_given_latents(one, other), of_pairs)
                paired = paired + of_pairs.sum()
        p = p / (rows.chains * rows.draws)
        summaries = {"probability": p, "entropy": entropy(p)}
        if forward.is_split:
            summaries["expected_entropy"] = expected / paired
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

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


def summaries_of_numbers(rows: NewRows, rng: np.random.Generator, levels: np.ndarray) -> Summaries:
    """Yield, for some rows at a time, summaries of real numbers or counts, and draws of them (draw, row, ...).

    Warns
    -----
    UserWarning
        If an estimate of the variance of E[y | x, θ] is negative.
    """
    forward, negative = ForwardDraws(rows), 0
    for these in rows.chunks():
        drawn, centres, noise, squares, pairs = [], [], 0.0, 0.0, 0
        for batch in forward.batches(rng, these, has_draws=True):
            y, centre, variance = batch.first
            drawn.append(y)
            centres.append(centre)
            noise = noise + np.broadcast_to(variance, centre.shape).sum(axis=0)
            if batch.second is not None:
                m, other = batch.pair
                squares, pairs = squares + ((m - other) ** 2).sum(axis=0), pairs + len(m)
        y, centre = np.concatenate(drawn), np.concatenate(centres)
        of_latents = squares / (2 * max(pairs, 1))
        total, epistemic, aleatoric = split_variance(centre.var(axis=0), of_latents, noise / len(y))
        is_negative = epistemic < 0
        negative += int(is_negative.reshape(len(is_negative), -1).any(axis=1).sum())
        yield (
            {
                "mean": centre.mean(axis=0),
                "sd": np.sqrt(total),
                "sd_epistemic": np.sqrt(np.where(is_negative, 0, epistemic)),
                "sd_aleatoric": np.sqrt(np.where(is_negative, total, aleatoric)),
                "quantiles": _quantiles(y, levels),
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


def _quantiles(y: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Compute quantiles (level, row, ...) of draws (draw, row, ...), between two draws by linear interpolation."""
    x = np.sort(y.reshape(len(y), -1).T, axis=1)  # rows of draws in memory are sorted several times as fast as columns
    return np.moveaxis(_of_sorted(x, levels).reshape(*y.shape[1:], len(levels)), -1, 0)


def _of_sorted(x: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Compute quantiles (row, level) of numbers (row, draw) in rising order."""
    place = levels * (x.shape[1] - 1)
    below = np.floor(place).astype(int)
    low, high = x[:, below], x[:, np.ceil(place).astype(int)]
    with np.errstate(invalid="ignore"):  # where both are infinite
        return np.where(low == high, low, low + (high - low) * (place - below))


def summaries_of_classes(rows: NewRows, rng: np.random.Generator, has_draws: bool) -> Summaries:
    """Yield, for some rows at a time, summaries of class labels, and draws of them (draw, row, ...) if asked for."""
    forward = ForwardDraws(rows)
    for these in rows.chunks():
        drawn, p, expected, pairs = [], 0.0, 0.0, 0
        for batch in forward.batches(rng, these, has_draws):
            drawn.append(batch.first.y)
            p = p + batch.first.centre.sum(axis=0)
            if forward.is_split:
                one, other = batch.pair
                expected, pairs = expected + entropy_given_latents(one, other).sum(axis=0), pairs + len(one)
        p = p / (rows.chains * rows.draws)
        summaries = {"probability": p, "entropy": entropy(p)}
        if forward.is_split:
            summaries["expected_entropy"] = expected / pairs
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

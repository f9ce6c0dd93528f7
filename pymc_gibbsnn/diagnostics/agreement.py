"""Whether chains agree, in one or two short sentences.

The first is about what is judged (:mod:`pymc_gibbsnn.drivers.mixing`), the second about what else is in the table. The
bound of the bulk effective sample size is that of Vehtari et al. (arXiv 1903.08008), 400; that of R-hat is 1.05, where
they ask 1.01 of a single quantity. R-hat of M chains in equilibrium is about sqrt(1 + 2M/ESS). So it is about 1.01
for a single output of four chains with an ESS of 400, but of 50 outputs, simulated by autoregressions of order 1, the
largest is then 1.014 on average, and below 1.01 in one run of ten.

Numbers are rounded to the worse side, R-hat up and ESS down, so that none looks better than it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

__all__ = ["agree", "at_least", "at_most", "in_words"]

ENOUGH_ESS, CLOSE_RHAT = 400, 1.05
FAR_RHAT = 1.1  # above it, draws alone may not help
WORDS = {"output": "the outputs", "probability": "the probabilities", "log_noise": "the noise of rows"}
NAMED = 3  # how many rows of the table a sentence names at most


def at_most(r_hat: float) -> str:
    """Write R-hat, rounded up."""
    return f"{math.ceil(1000 * r_hat) / 1000:,.3f}" if np.isfinite(r_hat) else str(r_hat)


def at_least(ess: float) -> str:
    """Write an effective sample size, rounded down."""
    return f"{math.floor(ess):,}" if np.isfinite(ess) else str(ess)


def agree(rows: pd.DataFrame, groups: np.ndarray) -> bool:
    """Say whether nothing speaks against the agreement of chains, however many draws there are.

    Parameters
    ----------
    rows : pandas.DataFrame
        The rows that are judged of the table of :func:`pymc_gibbsnn.summary`.
    groups : array of int
        The group to which each chain belongs, by these rows.
    """
    return len(set(groups)) == 1 and not rows["r_hat"].max() > CLOSE_RHAT


def in_words(
    table: pd.DataFrame, judged: Sequence[str], chains: Sequence[str], groups: np.ndarray, lp: np.ndarray | None
) -> list[str]:
    """Say whether chains agree on what is judged and, unless they do not, which other rows need more draws.

    Parameters
    ----------
    table : pandas.DataFrame
        The table of :func:`pymc_gibbsnn.summary`.
    judged : sequence of str
        The names of the rows that are judged.
    chains : sequence of str
        The numbers of the chains.
    groups : array of int
        The group to which each chain belongs, by the rows that are judged.
    lp : array, (chain, draw), optional
        The log densities of the chains, if they are apart in these.

    Returns
    -------
    list of str
        Sentences.
    """
    rows, others = table.loc[list(judged)], table.drop(index=list(judged))
    largest, least = rows["r_hat"].max(), rows["ess_bulk"].min()
    r_hat, ess = f"R-hat goes up to {at_most(largest)}", f"the smallest ESS is {at_least(least)}"
    if len(set(groups)) > 1:
        details = [r_hat] * bool(largest > CLOSE_RHAT) + _log_density(chains, groups, lp)
        where = _what(rows[rows["apart"] != ""])
        return [
            f"{_who(chains, groups)} on {where}{': ' * bool(details)}{', and '.join(details)}.",
            'Try twice as many tuning steps; the guide\'s page "Chains that disagree" says what else helps.',
        ]
    if largest > CLOSE_RHAT:
        details = [f"{r_hat} (it should be {CLOSE_RHAT} at most)"]
        details += [f"{ess} ({ENOUGH_ESS} at least)"] * bool(not least >= ENOUGH_ESS)
        advice = f"; if R-hat stays above {FAR_RHAT}, try twice as many tuning steps" if largest > FAR_RHAT else ""
        return [f"The chains do not agree yet on {_what(rows)}: {' and '.join(details)}.", f"Draw more{advice}."]
    if len(chains) == 1:
        words = f"A single chain has none to agree with; the smallest ESS of {_what(rows)} is {at_least(least)}."
    elif not least >= ENOUGH_ESS:
        words = f"Draw more: {ess} for {_what(rows)}, and it should be {ENOUGH_ESS} at least."
    else:
        words = f"All chains agree on {_what(rows)}: R-hat is at most {at_most(largest)}, and {ess}."
    return [words, *_others(others, least)]


def _what(rows: pd.DataFrame) -> str:
    """Say in words what some of the rows are about that are judged."""
    return " and ".join(WORDS[name] for name in rows.index)


def _who(chains: Sequence[str], groups: np.ndarray) -> str:
    """Say which chains disagree."""
    counts = np.bincount(groups)
    if len(chains) == 2:
        return "The two chains disagree"
    if 2 * counts.max() <= len(chains):
        return f"The {len(chains)} chains fall into {len(counts)} groups that disagree"
    few = [chain for chain, group in zip(chains, groups, strict=True) if group != counts.argmax()]
    return (
        f"Chain {few[0]} disagrees with the others"
        if len(few) == 1
        else f"Chains {', '.join(few)} disagree with the others"
    )


def _log_density(chains: Sequence[str], groups: np.ndarray, lp: np.ndarray | None) -> list[str]:
    """Compare the log density of a chain that is alone with that of the others, if they differ."""
    few = np.flatnonzero(groups != np.bincount(groups).argmax())
    if lp is None or len(few) > 1:
        return []
    means = lp.mean(axis=1)
    difference = means[few[0]] - np.median(np.delete(means, few[0]))
    size, side = f"{abs(difference):,.0f}", "above" if difference > 0 else "below"
    others = "that of the other" if len(chains) == 2 else "those of the others"
    return [] if size == "0" else [f"the log density of chain {chains[few[0]]} is {size} {side} {others}"]


def _others(table: pd.DataFrame, least: float) -> list[str]:
    """Say in which other rows chains disagree, or which mix more slowly than what is judged and has this ESS."""
    if len(apart := table[table["apart"] != ""]):
        r_hat = apart["r_hat"].max()
        number = f" (R-hat up to {at_most(r_hat)})" if r_hat > CLOSE_RHAT else ""
        return [f"The chains disagree in {_names(apart)}{number}: do not interpret {_these(apart)}."]
    slow = table[(table["ess_bulk"] < min(least, ENOUGH_ESS)) | (table["r_hat"] > CLOSE_RHAT)]
    if len(slow):
        r_hat = slow["r_hat"].max()
        numbers = [f"the smallest ESS is {at_least(slow['ess_bulk'].min())}"]
        numbers += [f"R-hat goes up to {at_most(r_hat)}"] * bool(r_hat > CLOSE_RHAT)
        more = "more" if least >= ENOUGH_ESS else "still more"
        return [f"Draw {more} before you interpret {_names(slow)}: {' and '.join(numbers)}."]
    return []


def _names(table: pd.DataFrame) -> str:
    """Name the rows of a table."""
    more = len(table) - NAMED
    return ", ".join(table.index[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _these(table: pd.DataFrame) -> str:
    """Return the pronoun for the rows of a table."""
    return "it" if len(table) == 1 else "these"

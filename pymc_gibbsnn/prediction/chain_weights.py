"""How much the chains of a posterior count, and each of its draws, by weights that a user gives."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import describe

__all__ = ["weights_of_chains", "weights_of_draws", "without_negligible"]

ROUNDING = 0.005  # how far from its value a weight may be that was printed and typed in
NEGLIGIBLE = 1e-6  # a smaller weight is 0: it comes from the end of an optimization


def without_negligible(weights: np.ndarray) -> np.ndarray:
    """Set negligible weights to 0, and let the others add up to 1."""
    weights = np.where(weights < NEGLIGIBLE, 0, weights)
    return weights / weights.sum()


def weights_of_chains(weights: ArrayLike | xr.DataArray | None, posterior: xr.Dataset) -> np.ndarray | None:
    """Return the weights of the chains of a posterior as an array (chain,) that adds up to 1; None if there are none.

    A DataArray with the numbers of chains is aligned by them.

    Raises
    ------
    ValueError
        If there is not one for each chain, they are of other chains, one is negative or not finite, or they do not add
        up to 1.
    """
    if weights is None:
        return None
    chains, given = posterior["chain"].values, weights
    if isinstance(weights, xr.DataArray) and weights.dims == ("chain",) and "chain" in weights.coords:
        found = weights["chain"].values
        if sorted(found) != sorted(chains):
            raise ValueError(f"weights must be of chains {chains.tolist()}; found {found.tolist()}.")
        weights = weights.values[[found.tolist().index(chain) for chain in chains]]
    has_labels = hasattr(weights, "iloc") or isinstance(weights, xr.DataArray)  # which may be those of other things
    try:
        numbers = np.full(0, np.nan) if has_labels else np.asarray(weights, float)
    except (TypeError, ValueError):
        numbers = np.full(0, np.nan)
    is_sum = numbers.shape == chains.shape and abs(numbers.sum() - 1) <= ROUNDING * len(chains)
    if not (is_sum and (numbers >= 0).all()):
        raise ValueError(
            f"weights must be {len(chains)} numbers, one for each chain in their order, that are not negative and add "
            f"up to 1; found {describe(given)}."
        )
    return without_negligible(numbers)


def weights_of_draws(weights: np.ndarray | None, posterior: xr.Dataset) -> np.ndarray:
    """Return how much each draw of a posterior counts (chain times draw,), 1 on average, by the weights of chains."""
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    return np.repeat(np.ones(chains) if weights is None else weights * chains, draws)

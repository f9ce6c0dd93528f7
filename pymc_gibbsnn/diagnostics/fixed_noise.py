r"""Is a noise that was fixed far from what the data have? By the residuals of the mean prediction at rows of the data.

Let r_i = y_i − E[f_i], with f the function of the network without noise, V_i the posterior variance of f_i, and N_i the
variance that y_i has around f_i by the model: σ² of its fixed noise and, in a noisy network, what hidden noise adds.
In a linear model with Gaussian prior, V_i/N_i is the leverage h_i of the row, by which a fit makes its residuals
smaller than the noise. The noise that the residuals tell of is then the usual estimate

    s² = Σ r_i² / Σ (1 − h_i),   h_i = V_i/N_i.

It is compared with σ, and may be somewhat larger in a noisy network. Hidden noise is no excuse for far more: weights
grow in order to make noise of it that was not given to y. Where the h_i are so large, or rows so few, that next
to no residuals are left, nothing is said.
"""

from __future__ import annotations

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph.basic import Apply
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import NormalRV

from pymc_gibbsnn.networks.network import Network, NetworkError, evaluate
from pymc_gibbsnn.prediction.conditionals import distribution_node
from pymc_gibbsnn.prediction.inputs import find_observed
from pymc_gibbsnn.prediction.new_rows import NewRows

__all__ = ["noise_in_words"]

ABOVE, BELOW = 3.0, 2.0  # by what factor the residuals must have more or less than the fixed noise
LEAST_FREE = 0.2  # the smallest mean of 1 − h_i with which anything is said
FEWEST = 10  # the smallest sum of 1 − h_i: of fewer independent residuals the standard deviation is too uncertain
DRAWS = 200  # how many draws of the posterior tell what hidden noise adds


def noise_in_words(
    model: pm.Model,
    networks: list[Network],
    posterior: xr.Dataset,
    output: np.ndarray,
    points: int,
    name: str | None = None,
) -> list[str]:
    """Say in a sentence if the noise of a normal likelihood is fixed, and the residuals say that it is far off.

    Parameters
    ----------
    model : pm.Model
        The model.
    networks : list of Network
        Its noisy networks, if its function is that of one of them.
    posterior : xarray.Dataset
        Its posterior.
    output : array, (chain, draw, row, ...)
        The function of the network without noise at some rows of the data.
    points : int
        How many rows these are at most, evenly spaced.
    name : str, optional
        The name of the observed variable, if there are several.

    Returns
    -------
    list of str
        The sentence, or nothing.
    """
    if any(layer.offset is not None for network in networks for layer in network.layers):  # no part of the function
        return []
    try:
        observed = find_observed(model, name)
        node, value = distribution_node(observed), model.rvs_to_values.get(observed)
        if value is None or not isinstance(node.op, NormalRV) or _is_learned(model, node):
            return []
        every = int(np.ceil(posterior.sizes["chain"] * posterior.sizes["draw"] / DRAWS))
        new = NewRows(model, posterior.isel(draw=slice(None, None, every)), None, name, points=points)
        fixed, noise = _noise(new, output[:, ::every])
    except (NetworkError, ValueError):  # the likelihood at new rows is not known, or the posterior lacks a variance
        return []
    y, rows = evaluate(value), new.chosen
    if len(y) != rows[-1] + 1 or y[rows].shape != output.shape[2:]:  # other data have been set since
        return []
    residual = y[rows] - output.mean(axis=(0, 1))
    free = 1 - output.var(axis=(0, 1)) / noise
    if free.mean() < LEAST_FREE or free.sum() < FEWEST:
        return []
    sd = np.sqrt((residual**2).mean() / free.mean())
    if np.ptp(fixed) > 0 or fixed.min() / BELOW <= sd <= fixed.min() * ABOVE:
        return []
    return [
        f"The noise of '{observed.name}' is fixed at a standard deviation of {fixed.min():.2g}, but the residuals have "
        f"one of {sd:.2g}: let it be learned, or choose another."
    ]


def _is_learned(model: pm.Model, node: Apply) -> bool:
    """Whether the standard deviation of a normal variable depends on free variables of the model."""
    return bool(set(model.free_RVs) & set(ancestors([node.op.dist_params(node)[1]])))


def _noise(new: NewRows, output: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute σ, and the variance of y around the function by the model, a mean over draws.

    Parameters
    ----------
    new : NewRows
        The rows, given some draws of the posterior.
    output : array, (chain, draw, row, ...)
        The function of the network without noise, for these draws.

    Returns
    -------
    sigma : array
        σ, which broadcasts to (draw, row, ...).
    variance : array, (row, ...)
    """
    rng = np.random.default_rng(0)
    output, variance = output.reshape(-1, *output.shape[2:]), np.zeros(output.shape[2:])
    for rows in new.chunks():
        for draws, parameters in new.batches(rows):
            distribution = new.distribution(rows, new.draw_latents(rng, rows, parameters))
            mean, sigma = distribution.parameters
            variance[rows] += ((mean - output[draws, rows]) ** 2 + sigma**2).sum(axis=0)
    return sigma, variance / len(output)

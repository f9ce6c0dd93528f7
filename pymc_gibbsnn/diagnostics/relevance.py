r"""Which inputs matter: by the learned scales of their weights, or by what is lost when one is permuted.

*Precision.* With automatic relevance determination [1]_ the weights of input j in the first layer have the prior
N(0, 1/λ_j), with λ_j learned. The standard deviation 1/√λ_j is small for an input that does not matter.

*Permutation.* With L_s = (1/n) Σ_i (y_i − E[y | x_i, θ_s])², the squared error of draw s, and L_s^(j) the same after
input j was permuted among the rows, the importance of input j is the increase L_s^(j) − L_s [2]_, averaged over
permutations. All indicator columns of a category are one input and permuted alike. Squares are summed over several
outputs and over classes; a label counts as the vector that is 1 for its class and 0 for the others, so that L_s is the
Brier score.

References
----------
.. [1] R. M. Neal. Bayesian Learning for Neural Networks. Springer, 1996.
.. [2] L. Breiman. Random forests. Machine Learning 45 (2001), section 10.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pymc as pm
import xarray as xr

from pymc_gibbsnn._frames import Feature
from pymc_gibbsnn.networks.layers.dense import Dense
from pymc_gibbsnn.networks.network import NetworkError, evaluate
from pymc_gibbsnn.networks.reader import only_network, read_networks
from pymc_gibbsnn.prediction.draws_of import draws_of
from pymc_gibbsnn.prediction.expected import expected_values
from pymc_gibbsnn.prediction.table import Table

__all__ = ["permutation_importance", "weight_deviations"]


def weight_deviations(model: pm.Model, posterior: xr.Dataset, name: str | None = None) -> np.ndarray:
    """Return the prior standard deviations of the weights of each input of the first layer, (draw, input).

    Raises
    ------
    NetworkError
        If the model is no noisy network, or its first layer has no learned scale for each input.
    ValueError
        If the posterior lacks the precisions.
    """
    networks = read_networks(model, check_data=False)
    network = only_network(networks if name is None else [one for one in networks if one.likelihood.name == name])
    layer = network.layers[0].operator
    uses = [(learned, use) for learned in network.variances for use in learned.uses]
    for learned, use in uses:
        if not isinstance(layer, Dense) or use.value is not layer.weights:
            continue
        which = _by_unit(layer, use.which)
        coefficient = _by_unit(layer, np.broadcast_to(evaluate(use.coefficient), np.shape(use.which)))
        is_same = (which == which[0]).all() and (coefficient == coefficient[0]).all()  # for all units
        if learned.shape == () or not is_same:
            continue
        x = draws_of(posterior, model, learned.name, learned.shape).reshape(-1, int(np.prod(learned.shape)))
        return coefficient[0] * (1 / np.sqrt(x) if learned.is_precision else np.sqrt(x))[:, which[0]]
    raise NetworkError(
        f"The weights of '{network.layers[0].name}' have no learned precision for each input, as those of "
        f"pmg.mlp(prior='relevance') have: give method='permutation'."
    )


def _by_unit(layer: Dense, x: np.ndarray) -> np.ndarray:
    """Return an array in the shape that the user gave the weights of a layer as a matrix (unit, input)."""
    return x.T if layer.layout == "columns" else np.atleast_2d(x)


def permutation_importance(
    model: pm.Model,
    posterior: xr.Dataset,
    table: Table,
    y: np.ndarray,
    features: Sequence[Feature],
    *,
    repeats: int,
    name: str | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> np.ndarray:
    """Compute by how much the squared error of each draw increases when each feature is permuted.

    Parameters
    ----------
    model : pm.Model
        The model.
    posterior : xarray.Dataset
        Draws of it.
    table : Table
        The rows.
    y : array, (n, ...)
        What was observed there, for class labels (n, class).
    features : sequence of Feature
        The features, each of which is permuted with all its columns.
    repeats : int
        How many permutations of each to average.
    name : str, optional
        The name of the observed variable, if there are several.
    random_seed : int or numpy.random.Generator, optional
        The seed of permutations and of latents.

    Returns
    -------
    array, (draw, feature)
    """
    rng, n = np.random.default_rng(random_seed), len(table.X)
    same = int(rng.integers(2**31))  # latents of all tables have the same random numbers, so that differences have less
    rows = np.tile(np.arange(n), repeats)
    X, truth = table.X[rows], y[rows]

    def loss(X: np.ndarray) -> np.ndarray:
        f = expected_values(model, posterior, table.with_matrix(X, rows), name=name, random_seed=same)
        return ((f - truth) ** 2).reshape(*f.shape[:2], -1).sum(-1).mean(-1)

    before, increases = loss(X), []
    for feature in features:
        permuted, others = X.copy(), np.concatenate([rng.permutation(n) for _ in range(repeats)])
        permuted[:, feature.columns] = table.X[others][:, feature.columns]
        increases.append(loss(permuted) - before)
    return np.stack(increases, axis=1)

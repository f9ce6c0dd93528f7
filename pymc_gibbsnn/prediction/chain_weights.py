r"""Weights of the chains of a posterior, for predictions by chains that sit in different modes.

Chains that do not leave the mode in which each of them is tell nothing of the posterior probability of these modes, so
that the mean over all draws is no better than one over any other mixture of the chains. Stacking [1]_ takes the mixture
with the highest leave-one-out log predictive density: with p(y_i | y_{−i}, c) the density that chain c gives row i if
this row is left out,

    w = argmax Σ_i log Σ_c w_c p(y_i | y_{−i}, c),     w_c ≥ 0,  Σ_c w_c = 1.

ArviZ estimates these densities from the draws of all rows, by Pareto smoothed importance sampling [2]_, and finds the
maximum.

References
----------
.. [1] Y. Yao, A. Vehtari, A. Gelman. Stacking for non-mixing Bayesian computations: the curse and blessing of
   multimodal posteriors. JMLR 23 (2022), arXiv 2006.12335, section 2.
.. [2] A. Vehtari, A. Gelman, J. Gabry. Practical Bayesian model evaluation using leave-one-out cross-validation and
   WAIC. Statistics and Computing 27 (2017).
"""

from __future__ import annotations

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import describe
from pymc_gibbsnn._compat import inference_data, stacked

__all__ = ["stacking_weights", "weights_of_chains", "weights_of_draws"]

ROUNDING = 0.005  # how far from its value a weight may be that was printed and typed in
NEGLIGIBLE = 1e-6  # a smaller weight is 0: it comes from the end of an optimization


def stacking_weights(
    idata,
    model: pm.Model | None = None,
    *,
    latent_draws: int | None = None,
    name: str | None = None,
    thin: int = 1,
    random_seed: int | np.random.Generator | None = None,
) -> xr.DataArray:
    r"""Compute weights of the chains of a posterior by stacking, for predictions where they sit in different modes.

    .. math:: w = \operatorname{argmax}_{w \ge 0, \sum w = 1} \; \sum_i \log \sum_c w_c \, p(y_i \mid y_{-i}, c)

    with :math:`p(y_i \mid y_{-i}, c)` the leave-one-out density of row i by chain c [1]_, as ``az.loo`` estimates it
    from :func:`log_predictive` of the data that were fitted. Where chains agree their weights are not informative,
    since any mixture of them predicts alike.

    The weights improve predictions only: chains that disagree have not drawn from the whole posterior, and weights do
    not change that.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned.
    model : pm.Model, optional
        The model; by default that of the context.
    latent_draws, name, thin, random_seed
        As of :func:`log_predictive`, whose ``latent_mcse`` says whether ``latent_draws`` is large enough.

    Returns
    -------
    xarray.DataArray, (chain,)
        Weights that add up to 1, which :func:`predict`, :func:`log_predictive` and :func:`summary` take as
        ``weights``. A single chain has the weight 1.

    Raises
    ------
    TypeError, ValueError, NetworkError
        As :func:`log_predictive`.

    Warns
    -----
    UserWarning
        By ArviZ, if a leave-one-out density is not reliable.

    References
    ----------
    .. [1] Y. Yao, A. Vehtari, A. Gelman. Stacking for non-mixing Bayesian computations: the curse and blessing of
       multimodal posteriors. JMLR 23 (2022), arXiv 2006.12335.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> with pmg.mlp(np.random.normal(size=(20, 3)), np.arange(20.0), hidden=5):
    ...     idata = pm.sample(1000, step=pmg.GibbsNN())  # doctest: +SKIP
    ...     weights = pmg.stacking_weights(idata)  # doctest: +SKIP
    ...     found = pmg.predict(idata, X_new=np.zeros((4, 3)), weights=weights)  # doctest: +SKIP
    """
    from pymc_gibbsnn.prediction.log_predictive import log_predictive

    density = log_predictive(
        idata, model, latent_draws=latent_draws, extend_inferencedata=False, name=name, thin=thin,
        random_seed=random_seed,
    )["log_likelihood"]  # fmt: skip
    chains = density["chain"].values
    if len(chains) == 1:
        return xr.DataArray(np.ones(1), {"chain": chains}, name="weight")
    # A factor for each row changes no weights, and keeps its densities from being 0 in all chains
    density = density - density.max(("chain", "draw"))
    # az.loo wants a posterior, though it reads none of a single chain
    parts = [density.isel(chain=[c]).drop_vars("chain").to_dataset(name="y") for c in range(len(chains))]
    fits = {str(c): inference_data({"posterior": y.mean("point"), "log_likelihood": y}) for c, y in enumerate(parts)}
    return xr.DataArray(_without_negligible(stacked(fits)), {"chain": chains}, name="weight")


def _without_negligible(weights: np.ndarray) -> np.ndarray:
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
    return _without_negligible(numbers)


def weights_of_draws(weights: np.ndarray | None, posterior: xr.Dataset) -> np.ndarray:
    """Return how much each draw of a posterior counts (chain times draw,), 1 on average, by the weights of chains."""
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    return np.repeat(np.ones(chains) if weights is None else weights * chains, draws)

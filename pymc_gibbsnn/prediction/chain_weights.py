r"""Weights of the chains of a posterior, for predictions by chains that sit in different modes.

Chains that found modes of different weight and do not leave them say nothing of these weights, so that the mean over
all draws is no better than one over any other mixture of the chains. Stacking [1]_ takes that mixture which predicts
best what was left out: with p(y_i | y_{−i}, c) the density that chain c gives row i if this row is left out,

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

ROUNDING = 1e-3  # how far from 1 the sum of weights may be that were printed and typed in


def stacking_weights(
    idata,
    model: pm.Model | None = None,
    *,
    latent_draws: int | None = None,
    name: str | None = None,
    thin: int = 1,
    random_seed: int | np.random.Generator | None = None,
) -> xr.DataArray:
    r"""Weigh the chains of a posterior by stacking, for predictions where they sit in different modes.

    .. math:: w = \operatorname{argmax}_{w \ge 0, \sum w = 1} \; \sum_i \log \sum_c w_c \, p(y_i \mid y_{-i}, c)

    with :math:`p(y_i \mid y_{-i}, c)` the leave-one-out density of row i by chain c [1]_, as ``az.loo`` estimates it
    from :func:`log_predictive` of the data that were fitted. Chains that agree need no weights, and those that they get
    tell nothing: any mixture of them predicts alike.

    Weights of chains correct predictions, and nothing else: chains that disagree have not drawn from the whole
    posterior, and weighing them does not make it so.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned.
    model : pm.Model, optional
        The model; by default that of the context.
    latent_draws, name, thin, random_seed
        As of :func:`log_predictive`.

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
    # az.loo wants a posterior, though it reads none of a single chain
    parts = [density.isel(chain=[c]).drop_vars("chain").to_dataset(name="y") for c in range(len(chains))]
    fits = {str(c): inference_data({"posterior": y.mean("point"), "log_likelihood": y}) for c, y in enumerate(parts)}
    return xr.DataArray(stacked(fits), {"chain": chains}, name="weight")


def weights_of_chains(weights: ArrayLike | xr.DataArray | None, posterior: xr.Dataset) -> np.ndarray | None:
    """Return the weights of the chains of a posterior as an array (chain,) that adds up to 1; None if there are none.

    Raises
    ------
    ValueError
        If there is not one for each chain, they are of other chains, one is negative or not finite, or they do not add
        up to 1.
    """
    if weights is None:
        return None
    chains = posterior["chain"].values
    if isinstance(weights, xr.DataArray) and weights.dims == ("chain",) and "chain" in weights.coords:
        if sorted(weights["chain"].values) != sorted(chains):
            found = weights["chain"].values.tolist()
            raise ValueError(f"weights must be of chains {chains.tolist()}; found {found}.")
        weights = weights.sel(chain=chains)
    try:
        numbers = np.asarray(weights, float)
    except (TypeError, ValueError):
        numbers = np.full(0, np.nan)
    is_right = numbers.shape == chains.shape and (numbers >= 0).all() and abs(numbers.sum() - 1) <= ROUNDING
    if not is_right:
        raise ValueError(
            f"weights must be {len(chains)} numbers, one for each chain, that are not negative and add up to 1; found "
            f"{describe(weights)}."
        )
    return numbers / numbers.sum()


def weights_of_draws(weights: ArrayLike | xr.DataArray | None, posterior: xr.Dataset) -> np.ndarray:
    """Return how much each draw of a posterior counts (chain times draw,), by the weights of chains; equally if None.

    Raises
    ------
    ValueError
        As :func:`weights_of_chains`.
    """
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    by_chain = weights_of_chains(weights, posterior)
    return np.repeat(np.full(chains, 1 / chains) if by_chain is None else by_chain, draws) / draws

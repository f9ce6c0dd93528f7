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

from pymc_gibbsnn._compat import inference_data, stacked
from pymc_gibbsnn.prediction.chain_weights import without_negligible
from pymc_gibbsnn.prediction.log_predictive import log_predictive

__all__ = ["stacking_weights"]


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
    return xr.DataArray(without_negligible(stacked(fits)), {"chain": chains}, name="weight")

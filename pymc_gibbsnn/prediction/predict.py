"""What a posterior predicts at new inputs.

The latents of a noisy network belong to the rows of data for which they were drawn. A prediction at new rows draws
latents anew, by running the noisy network forwards with the weights, biases and learned variances of each draw of the
posterior. It takes nothing from the prior.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import describe, model_of
from pymc_gibbsnn._data import storable_names
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.prediction.chain_weights import weights_of_chains, weights_of_draws
from pymc_gibbsnn.prediction.inputs import find_observed
from pymc_gibbsnn.prediction.new_rows import NewRows
from pymc_gibbsnn.prediction.outcomes import class_names, has_classes
from pymc_gibbsnn.prediction.provenance import posterior_for
from pymc_gibbsnn.prediction.summaries import chain_probabilities, summaries_of_classes, summaries_of_numbers

__all__ = ["class_probabilities", "predict"]


def predict(
    idata,
    model: pm.Model | None = None,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
    *,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    samples: bool = False,
    name: str | None = None,
    thin: int = 1,
    weights: ArrayLike | xr.DataArray | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> xr.Dataset:
    r"""Summarise the posterior predictive distribution of what a model observes, at new inputs.

    .. math:: p(y \mid x, D) = \int p(y \mid x, \theta) \, p(\theta \mid D) \, d\theta

    For each draw of the posterior one y is drawn for each row of the inputs [1]_. Variables that have a row for each
    row of the inputs, such as the latents of a noisy network, are drawn anew, whether or not the posterior holds them.
    All others (weights, biases, learned variances, effects of groups) are taken from the posterior, and it is an error
    if one is missing. The model's own data are neither changed nor, if new ones are given, used.

    This works for noisy, classical and wide networks, alone or as parts of larger models, and for any other PyMC model
    whose rows are independent given the variables that all rows share, which is checked first.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned, or such a result read from a file.
    model : pm.Model, optional
        The model; by default that of the context.
    X_new : array_like, shape (m, d), or mapping of str to array_like, optional
        New rows of the model's inputs; those of images have the shape (m, ...) that they have in the model's data.
        Where rows depend on several ``pm.Data`` (inputs and groups, say), give new rows of each by its name:
        ``{"X": ..., "groups": ...}``. By default these are the rows that the model holds now; all rows of its data
        where it observes minibatches.
    quantiles : sequence of float
        Probabilities of the quantiles, from 0 to 1.
    samples : bool
        Whether to return the draws of y as well.
    name : str, optional
        The name of the observed variable, where the model has several.
    thin : int
        Every thin-th draw of each chain is used; by default all. Draws that follow each other tell nearly the same, so
        that a tenth of them is often enough, in a tenth of the time.
    weights : array_like, (chain,), optional
        How much each chain counts, numbers that add up to 1, such as :func:`stacking_weights` gives; by default all
        chains count alike. Quantiles are then draws, not interpolated between two.
    random_seed : int or numpy.random.Generator, optional
        The seed of the draws.

    Returns
    -------
    xarray.Dataset
        Summaries in the units of y. The coordinate ``point`` numbers the rows of ``X_new``, or holds the index of a
        data frame, as texts if it has several levels; the coordinates of further axes of y, and of classes, are those
        of the model.

        - For real numbers and counts, ``mean``, ``sd``, ``sd_epistemic`` and ``sd_aleatoric`` (point, ...) and
          ``quantiles`` (quantile, point, ...). By the law of total variance [2]_, sd² = sd_epistemic² + sd_aleatoric²:
          ``sd_epistemic`` is the standard deviation over draws θ of the posterior of E[y | x, θ], which more data would
          reduce, and ``sd_aleatoric`` the root of the mean of Var[y | x, θ], the noise inside a network included.
          To tell them apart latents are drawn a second time for every fourth draw of the posterior. With w the part of
          sd_aleatoric² that comes from latents that are drawn, the standard error of sd_epistemic² is about
          sqrt((2 (sd_epistemic² + w)² + 8 w²)/S) for S independent draws. Where this estimate of a variance is
          negative, sd_epistemic is 0, sd_aleatoric is sd, and a warning says so.
          For Normal, StudentT, Laplace, Logistic, LogNormal, Gamma, Exponential, Beta, Poisson, NegativeBinomial,
          Binomial, BetaBinomial and MvNormal likelihoods the mean and the variance that the likelihood has given θ and
          latents are averaged, which has less Monte Carlo error than moments of drawn y; sd and sd_aleatoric are
          infinite if a draw of StudentT has 2 degrees of freedom or fewer. For any other, such as a mixture, a censored
          one or a CustomDist, all are estimated from drawn y, and w is sd_aleatoric². Quantiles are those of drawn y.
        - For class labels, ``probability`` (point, ..., class), ``label`` (point, ...), the most probable class, and
          ``entropy``, ``expected_entropy`` and ``mutual_information`` (point, ...) in nats [3]_: the entropy of the
          probabilities, the mean over draws of the entropy of p(y | x, θ), which is aleatoric, and their difference,
          which is epistemic and at least 0 but for Monte Carlo error. For a Categorical or Bernoulli likelihood the
          probability is the mean over draws of the probability that the likelihood gives. For the labels of a noisy
          network the noise of the last pre-activations is integrated out as well. Where other latents are drawn, the
          entropy of p(y | x, θ) is estimated by a jackknife from two draws of them
          (:mod:`pymc_gibbsnn.prediction.uncertainty`). The last two are left out for labels that are a function of a
          latent on which something else depends, too.
        - ``samples`` (chain, draw, point, ...), if asked for; of all chains alike, but for those of weight 0.

    Raises
    ------
    TypeError
        If ``idata``, ``model`` or ``thin`` is of another type than asked for.
    ValueError
        If the posterior lacks a variable, or holds it in another shape or with other coordinates than the model; if a
        step of this package drew it from a model with another activation, likelihood, noise or prior; if X_new has a
        wrong shape, is not finite or holds negative numbers of groups, a name in it is no ``pm.Data`` on which y
        depends, its arrays differ in rows, the columns of a data frame are not those of the data in their order, a
        quantile is no probability, ``thin`` is no positive integer, or ``weights`` are not one number for each chain
        that is not negative, with a sum of 1.
    NetworkError
        If the distribution of y at new inputs cannot be known, because its rows depend on each other, or on data with a
        row for each row of the model's inputs of which no new rows are given; or if the model observes nothing, several
        variables and ``name`` is not given, or none of that name. The message names the variable.

    Warns
    -----
    UserWarning
        If new rows are on average more than three times as far from the mean of the model's data as any of these, as
        numbers in other units are, or else if single rows are in one of their columns, and more than 20 standard
        deviations; or if sd_epistemic is 0 because the estimate of its square is negative.

    References
    ----------
    .. [1] A. Gelman, J. B. Carlin, H. S. Stern, D. B. Dunson, A. Vehtari, D. B. Rubin. Bayesian data analysis, section
       1.3, third edition (2013).
    .. [2] S. Depeweg, J. M. Hernández-Lobato, F. Doshi-Velez, S. Udluft. Decomposition of uncertainty in Bayesian deep
       learning for efficient and risk-sensitive learning. ICML (2018).
    .. [3] N. Houlsby, F. Huszár, Z. Ghahramani, M. Lengyel. Bayesian active learning for classification and preference
       learning. arXiv 1112.5745.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> with pmg.mlp(np.random.normal(size=(20, 3)), np.arange(20.0), hidden=5):
    ...     idata = pm.sample(1000, step=pmg.GibbsNN())  # doctest: +SKIP
    ...     found = pmg.predict(idata, X_new=np.zeros((4, 3)), quantiles=(0.1, 0.9))  # doctest: +SKIP
    """
    try:
        levels = np.atleast_1d(np.asarray(quantiles, float))
    except (TypeError, ValueError):
        levels = np.array([np.nan])
    if levels.ndim != 1 or not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError(f"quantiles must be numbers from 0 to 1; found {describe(quantiles)}.")
    model, rng = model_of(model), np.random.default_rng(random_seed)
    posterior = posterior_for(model, idata, thin=thin)
    if (of_chains := weights_of_chains(weights, posterior)) is not None:
        posterior, of_chains = posterior.isel(chain=of_chains > 0), of_chains[of_chains > 0]
    of_draws = weights_of_draws(of_chains, posterior)
    rows = NewRows(model, posterior, X_new, name)
    classes = has_classes(rows.observed)
    if classes:
        found = summaries_of_classes(rows, rng, samples, of_draws)
    else:
        found = summaries_of_numbers(rows, rng, levels, of_draws)
    parts, kept = [], []
    for part, y in found:
        parts.append(part)
        if samples:
            kept.append(y.reshape(rows.chains, rows.draws, *y.shape[1:]))
    summaries = {key: np.concatenate([p[key] for p in parts], axis=int(key == "quantiles")) for key in parts[0]}
    axes, coords = name_axes(rows, X_new)
    if classes:
        coords["class"] = class_names(rows.model, summaries["probability"].shape[-1])
        summaries["label"] = coords["class"][summaries["probability"].argmax(-1)]
    else:
        coords["quantile"] = levels
    if samples:
        summaries["samples"] = np.concatenate(kept, axis=2)
        coords |= {dim: posterior[dim].values for dim in ("chain", "draw")}
    dims = {
        "quantiles": ("quantile", *axes),
        "probability": (*axes, "class"),
        "samples": ("chain", "draw", *axes),
    }
    return xr.Dataset({key: (dims.get(key, axes), x) for key, x in summaries.items()}, coords)


def class_probabilities(
    idata,
    model: pm.Model | None = None,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
    random_seed: int | np.random.Generator | None = None,
    *,
    name: str | None = None,
    thin: int = 1,
) -> xr.DataArray:
    r"""Compute predictive probabilities of classes, averaged over the draws of each chain.

    .. math:: p(y \mid x, D) \approx \frac{1}{v} \sum_{t=1}^v p(y \mid x, \theta_t)

    for the v draws of a chain [1]_. These are the probabilities of :func:`predict`, but for each chain, so that chains
    can be compared. For the labels of a noisy network p(y | x, θ) is estimated by p(y | a), for last post-activations a
    that are drawn once for each draw of the posterior.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned; its posterior must hold all weights and biases.
    model : pm.Model, optional
        A model that observes class labels by Categorical, Bernoulli, ArgmaxLabel or SignLabel; by default that of the
        context.
    X_new : array_like, shape (m, d), or mapping of str to array_like, optional
        Inputs at which to predict, as :func:`predict` takes them; by default those of the model, with all rows where it
        observes minibatches.
    random_seed : int or numpy.random.Generator, optional
        The seed of the noise.
    name : str, optional
        The name of the observed variable, where the model has several.
    thin : int
        Every thin-th draw of each chain is used; by default all.

    Returns
    -------
    xarray.DataArray, (chain, point, class)
        Probabilities. For those of all chains together take ``.mean("chain")``.

    Raises
    ------
    TypeError, ValueError
        As :func:`predict`.
    NetworkError
        As :func:`predict`, and if what the model observes is no class label of shape (n,).

    References
    ----------
    .. [1] T. Papamarkou. The premise of approximate MCMC in Bayesian deep learning. arXiv 2208.11389, eq. 3.6, which
       lacks the factor 1/v.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> X, y, X_test, y_test = pmg.noisy_xor(200, 40)
    >>> with pmg.classical_mlp(X, y, hidden=3):
    ...     idata = pm.sample(1000, step=pmg.FNBG())  # doctest: +SKIP
    ...     p = pmg.class_probabilities(idata, X_new=X_test).mean("chain")  # doctest: +SKIP
    """
    model = model_of(model)
    observed = find_observed(model, name)
    if not has_classes(observed) or observed.ndim != 1:
        raise NetworkError(
            f"'{observed.name}' has no classes: observe labels of shape (n,) by a Categorical or Bernoulli likelihood, "
            f"or an ArgmaxLabel or SignLabel of a noisy network."
        )
    posterior = posterior_for(model, idata, thin=thin)
    rows = NewRows(model, posterior, X_new, name)
    p = chain_probabilities(rows, np.random.default_rng(random_seed))
    coords = {"chain": posterior["chain"].values}
    return xr.DataArray(p, dims=("chain", "point", "class"), coords=coords, name="probability")


# Names of the axes


def name_axes(rows: NewRows, X_new) -> tuple[tuple[str, ...], dict]:
    """Return the names of the axes of y at new rows, and their coordinates."""
    extra = rows.observed.ndim - 1
    named = (rows.model.named_vars_to_dims.get(rows.observed.name) or ())[1:]
    generic = ["output"] if extra == 1 else [f"output_{i}" for i in range(extra)]
    taken = {None, "point", "quantile", "class"}  # the last three are the names of other axes
    names = [other if name in taken else name for name, other in zip(named or generic, generic, strict=True)]
    coords = {dim: np.asarray(rows.model.coords[dim]) for dim in names if rows.model.coords.get(dim) is not None}
    index = getattr(X_new, "index", None)
    coords["point"] = np.arange(rows.rows) if index is None or callable(index) else storable_names(index)
    return ("point", *names), coords

"""What a posterior predicts at new inputs.

Latents belong to the rows for which they were drawn. A prediction draws those of new rows anew, by the noisy network
with the weights, biases and scales of each draw of the posterior, and takes nothing from the prior.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import model_of, posterior_of
from pymc_gibbsnn.diagnostics.outcomes import has_classes, probabilities
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.networks.new_inputs import find_observed
from pymc_gibbsnn.networks.new_rows import NewRows

__all__ = ["class_probabilities", "predict"]


def predict(
    idata,
    model: pm.Model | None = None,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
    *,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    samples: bool = False,
    name: str | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> xr.Dataset:
    r"""The posterior predictive law of what a model observes, at new inputs.

    .. math:: p(y \mid x, D) = \int p(y \mid x, \theta) \, p(\theta \mid D) \, d\theta

    For each draw of the posterior one y is drawn for each row of the inputs. Every variable with a row for each row of
    the inputs (the latents of a noisy network) is drawn anew, whether or not the posterior holds it; all others
    (weights, biases, learned scales, effects) are taken from the posterior, and a missing one is an error. The model's
    own data are neither changed nor, where new ones are given, used.

    It serves noisy networks, classical and wide ones, alone or as parts of larger models, and any other PyMC model
    whose rows are independent given what serves all of them, which is checked first.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned, or a file of it, opened.
    model : pm.Model, optional
        Taken from the context by default.
    X_new : array_like, shape (m, d), or mapping of str to array_like, optional
        New rows of the model's inputs. Where rows depend on several ``pm.Data`` (inputs and groups, say), new rows of
        each by its name: ``{"X": ..., "groups": ...}``. By default what the model holds now; all rows where it sees
        minibatches.
    quantiles : sequence of float
        Probabilities of the quantiles, from 0 to 1.
    samples : bool
        Whether to return the draws of y as well.
    name : str, optional
        Of the observed variable, where the model has several.
    random_seed : int or Generator, optional

    Returns
    -------
    xarray.Dataset
        In the units of y. ``point`` numbers the rows of ``X_new``, or holds the index of a data frame; the coordinates
        of further axes of y and of classes are the model's.

        - Of real numbers ``mean``, ``sd`` (point, ...) and ``quantiles`` (quantile, point, ...).
        - Of class labels ``probability`` (point, ..., class) and ``label`` (point, ...), the most probable class. A
          probability is the mean over draws of that of a Categorical or Bernoulli law; of the labels of a noisy network
          it is the share of a label among the draws.
        - ``samples`` (chain, draw, point, ...), if asked for.

    Raises
    ------
    ValueError
        If the posterior lacks a variable or holds it in another shape than the model, X_new has a wrong shape or is not
        finite, or a quantile is no probability.
    NetworkError
        If the law of y at new inputs cannot be known: its rows depend on each other or on data with a row for each row
        of the model's, of which no new rows are given. The message names the variable.
    """
    levels = np.atleast_1d(np.asarray(quantiles, float))
    if levels.ndim != 1 or not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError(f"quantiles must be numbers from 0 to 1; found {quantiles!r}.")
    model, rng = model_of(model), np.random.default_rng(random_seed)
    posterior = posterior_of("idata", idata)
    rows = NewRows(model, posterior, X_new, name)
    classes = has_classes(rows.observed)
    parts, kept = [], []
    for y, p in _draws(rows, rng):
        if classes:
            parts.append({"probability": p.mean(axis=0)})
        else:
            flat = y.reshape(-1, *y.shape[2:])
            parts.append({"mean": flat.mean(0), "sd": flat.std(0), "quantiles": np.quantile(flat, levels, axis=0)})
        if samples:
            kept.append(y)
    found = {key: np.concatenate([p[key] for p in parts], axis=int(key == "quantiles")) for key in parts[0]}
    axes, coords = name_axes(rows, X_new)
    if classes:
        coords["class"] = _classes(rows.model, found["probability"].shape[-1])
        found["label"] = coords["class"][found["probability"].argmax(-1)]
    else:
        coords["quantile"] = levels
    if samples:
        found["samples"] = np.concatenate(kept, axis=2)
        coords |= {dim: posterior[dim].values for dim in ("chain", "draw")}
    dims = {
        "quantiles": ("quantile", *axes),
        "probability": (*axes, "class"),
        "samples": ("chain", "draw", *axes),
    }
    return xr.Dataset({key: (dims.get(key, axes), x) for key, x in found.items()}, coords)


def class_probabilities(
    idata,
    model: pm.Model | None = None,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> xr.DataArray:
    r"""Predictive probabilities of classes, averaged over the draws of each chain.

    .. math:: p(y \mid x, D) \approx \frac{1}{v} \sum_{t=1}^v p(y \mid x, \theta_t)

    As :func:`predict`, but for each chain, so that chains can be compared. For the labels of a noisy network
    p(y | x, θ) is estimated by one label drawn for each draw, noise included.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned; its posterior must hold all weights and biases.
    model : pm.Model, optional
        With class labels: Categorical, Bernoulli, ArgmaxLabel or SignLabel; taken from the context by default.
    X_new : array_like, shape (m, d), or mapping of str to array_like, optional
        Inputs at which to predict; by default those of the model, all rows where it sees minibatches.
    random_seed : int or Generator, optional
        Of the noise.

    Returns
    -------
    xarray.DataArray, (chain, point, class)
        Over chains, take ``.mean("chain")``.

    Raises
    ------
    ValueError, NetworkError
        As :func:`predict`, and if the model observes one variable that is no class label of shape (n,).

    References
    ----------
    .. [1] T. Papamarkou. The premise of approximate MCMC in Bayesian deep learning. arXiv 2208.11389, eq. 3.6, which
       lacks the factor 1/v.
    """
    model = model_of(model)
    observed = find_observed(model)
    if not has_classes(observed) or observed.ndim != 1:
        raise NetworkError(
            f"'{observed.name}' has no classes: observe labels of shape (n,) by a Categorical or Bernoulli likelihood, "
            f"or an ArgmaxLabel or SignLabel of a noisy network."
        )
    posterior = posterior_of("idata", idata)
    rows = NewRows(model, posterior, X_new)
    p = np.concatenate([p for _, p in _draws(rows, np.random.default_rng(random_seed))], axis=1)
    coords = {"chain": posterior["chain"].values}
    return xr.DataArray(p, dims=("chain", "point", "class"), coords=coords, name="probability")


def _draws(rows: NewRows, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """For some rows at a time: y (chain, draw, row, ...), and probabilities of classes (chain, row, ..., class)."""
    classes = has_classes(rows.observed)
    for these in rows.chunks():
        drawn, sums = [], 0.0
        for draws, parameters in rows.batches(these):
            law = rows.law(these, rows.draw_latents(rng, these, parameters))
            drawn.append(law.draw(rng))
            if classes:
                p = probabilities(law, drawn[-1])
                chain = np.arange(rows.chains * rows.draws)[draws] // rows.draws
                by_chain = [p[chain == c].sum(axis=0) for c in range(rows.chains)]
                sums = sums + np.stack(by_chain)
        y = np.concatenate(drawn)
        yield y.reshape(rows.chains, rows.draws, *y.shape[1:]), sums / rows.draws if classes else None


# Names of the axes


def name_axes(rows: NewRows, X_new) -> tuple[tuple[str, ...], dict]:
    """Names of the axes of y at new rows, and their coordinates."""
    extra = rows.observed.ndim - 1
    named = (rows.model.named_vars_to_dims.get(rows.observed.name) or ())[1:]
    generic = ["output"] if extra == 1 else [f"output_{i}" for i in range(extra)]
    names = [name or other for name, other in zip(named or generic, generic, strict=True)]
    coords = {dim: np.asarray(rows.model.coords[dim]) for dim in names if rows.model.coords.get(dim) is not None}
    index = getattr(X_new, "index", None)
    coords["point"] = np.arange(rows.rows) if index is None or callable(index) else np.asarray(index)
    return ("point", *names), coords


def _classes(model: pm.Model, count: int) -> np.ndarray:
    """The model's names of classes, or numbers from 0 up."""
    names = model.coords.get("class")
    return np.arange(count) if names is None or len(names) != count else np.asarray(names)

r"""What a model expects of y at new rows, for every draw of a posterior: the function whose shape plots show.

.. math:: E[y \mid x, \theta_s], \quad \text{or for class labels} \quad P(y = k \mid x, \theta_s).

The mean over draws is the mean that ``predict`` gives; the spread over draws is epistemic uncertainty alone, as
``predict`` defines it. So y is averaged over its own noise and that of latents, which is drawn anew for each row
(:meth:`~pymc_gibbsnn.prediction.forward_draws.ForwardDraws.means`):

- Where the mean of y is the last latent itself, as with Normal or Student's t errors, this latent takes its mean. In a
  dense network that of the last post-activations is E σ(Z), which has a closed form
  (:mod:`pymc_gibbsnn.prediction.mean_activation`). With one hidden layer nothing is drawn.
- Where the mean, or the probability of class 1 of a Bernoulli, is another function g of one number Z of the last
  latent, E g(Z) with Z ~ N(m, s²) is a Gauss-Hermite sum, given draws of the latents below it.
- Probabilities of other classes are those of :func:`~pymc_gibbsnn.class_probabilities`.

Latents that are drawn are drawn several times for each draw of the posterior, and averaged over. Where the mean of y
given latents is not known, as for a mixture or censored data, all latents take their means.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from pytensor.tensor.random.basic import BernoulliRV

from pymc_gibbsnn.networks.likelihoods import find_noisy
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.prediction.conditionals import distribution_node
from pymc_gibbsnn.prediction.forward_draws import ForwardDraws
from pymc_gibbsnn.prediction.inputs import find_observed
from pymc_gibbsnn.prediction.new_rows import NewRows
from pymc_gibbsnn.prediction.outcomes import class_names, has_classes
from pymc_gibbsnn.prediction.predict import class_probabilities
from pymc_gibbsnn.prediction.table import Table

__all__ = ["expected_values", "output_names"]


def expected_values(
    model: pm.Model,
    posterior: xr.Dataset,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
    *,
    name: str | None = None,
    latent_draws: int = 1,
    random_seed: int | np.random.Generator | None = None,
) -> np.ndarray:
    """Compute what a model expects of y at new rows for every draw of a posterior.

    Parameters
    ----------
    model : pm.Model
        The model.
    posterior : xarray.Dataset
        Draws (chain, draw, ...), which are known to be of the model.
    X_new : array_like or mapping of str to array_like, optional
        New rows, as ``predict`` takes them; by default those that the model holds now.
    name : str, optional
        The name of the observed variable, if there are several.
    latent_draws : int
        How often latents that cannot be integrated out are drawn for each draw of the posterior.
    random_seed : int or numpy.random.Generator, optional
        The seed of these draws.

    Returns
    -------
    array, (draw, point, ...) or, for class labels, (draw, point, class)
        Draws of all chains, one chain after another.

    Raises
    ------
    NetworkError, ValueError
        As :func:`~pymc_gibbsnn.predict`.
    """
    observed = find_observed(model, name)
    if isinstance(distribution_node(observed).op, BernoulliRV) or not has_classes(observed):
        rows = NewRows(model, posterior, X_new, name)
        forward, rng = ForwardDraws(rows), np.random.default_rng(random_seed)
        if forward.has_means:
            values = np.empty((rows.chains * rows.draws, *rows.shape))
            for these in rows.chunks():
                for draws, means in forward.means(rng, these, latent_draws):
                    values[draws, these] = means
            return np.stack([1 - values, values], axis=-1) if has_classes(observed) else values
    if has_classes(observed):
        kind = find_noisy(distribution_node(observed))
        if kind is not None and kind.is_deterministic:  # the noise of the last latent is integrated out
            latent_draws = 1
        each = {"posterior": _draws_as_chains(posterior, latent_draws)}
        return class_probabilities(each, model, X_new, random_seed, name=name).values
    return _without_noise(NewRows(model, posterior, X_new, name, noiseless=True))


def output_names(model: pm.Model, posterior: xr.Dataset, table: Table, name: str | None = None) -> list[str]:
    """Return the names of the classes, or of the outputs, of what a model observes: one row and draw show how many.

    Parameters
    ----------
    model : pm.Model
        The model.
    posterior : xarray.Dataset
        Draws of it.
    table : Table
        Rows of its inputs.
    name : str, optional
        The name of the observed variable, if there are several.

    Raises
    ------
    NetworkError
        If it has more axes than (row, output).
    """
    observed = find_observed(model, name)
    first = expected_values(model, posterior.isel(chain=[0], draw=[0]), table.at(np.array([0])), name=name)
    if first.ndim > 3:
        raise NetworkError(f"'{observed.name}' has {first.ndim - 1} axes; the figure needs (row,) or (row, output).")
    if first.ndim == 2:
        return [observed.name]
    count, dims = first.shape[2], model.named_vars_to_dims.get(observed.name) or ()
    names = model.coords.get(dims[1]) if len(dims) == 2 else None
    if has_classes(observed):
        names = class_names(model, count)
    listed = np.asarray(range(count) if names is None else names).tolist()
    return [
        one if isinstance(one, str) else f"{'class' if has_classes(observed) else 'output'} {one}" for one in listed
    ]


def _draws_as_chains(posterior: xr.Dataset, repeats: int) -> xr.Dataset:
    """Make each draw a chain of its own that holds it so many times, since probabilities are averaged over chains."""
    variables = {}
    for key, x in posterior.items():
        x = x.transpose("chain", "draw", ...)
        values = x.values.reshape(-1, 1, *x.shape[2:])
        variables[key] = x.dims, np.repeat(values, repeats, axis=1)
    return xr.Dataset(variables, posterior.drop_vars(["chain", "draw"], errors="ignore").coords)


def _without_noise(rows: NewRows) -> np.ndarray:
    """Compute the centre of what is observed, with all latents at their means."""
    values = np.empty((rows.chains * rows.draws, *rows.shape))
    for these in rows.chunks():
        for draws, parameters in rows.batches(these):
            latents = rows.draw_latents(None, these, parameters)
            values[draws, these] = rows.distribution(these, latents).draw(None)
    return values

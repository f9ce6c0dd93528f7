"""The function of a network for every draw of a posterior: quantities of which R-hat and ESS make sense.

Hidden units can be permuted, and the units of a homogeneous activation such as the ReLU can be scaled, without changing
the function of the network. So R-hat of single weights means nothing. Outputs at fixed points do not change under these
symmetries; norms of layers and sorted norms of units do not change when units are permuted.
"""

from __future__ import annotations

from contextlib import suppress

import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import model_of
from pymc_gibbsnn._data import finite, warn_of_units
from pymc_gibbsnn.networks.forms import NetworkError
from pymc_gibbsnn.networks.function import function_evaluator
from pymc_gibbsnn.networks.new_inputs import Inputs, find_observed
from pymc_gibbsnn.networks.provenance import posterior_for

__all__ = ["function_space"]


def function_space(idata, model: pm.Model | None = None, X_new: ArrayLike | None = None) -> xr.Dataset:
    r"""Compute the outputs of a network without its noise, and norms of its weights, for every draw of a posterior.

    The outputs are f(x) = W_L σ(⋯ σ(W_1 x + b_1) ⋯) + b_L at the weights of each draw. In contrast to single weights,
    outputs do not change when hidden units are permuted or scaled [1]_, and norms do not when units are permuted, so
    that R-hat and ESS of them make sense.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned; its posterior must hold all weights and biases.
    model : pm.Model, optional
        The model; by default that of the context.
    X_new : array_like, shape (m, d), optional
        Inputs at which to evaluate; those of images have the shape (m, ...) that they have in the model's data. By
        default those of the model.

    Returns
    -------
    xarray.Dataset
        Quantities to give to ``az.summary``, ``az.rhat`` and ``az.ess``:

        - ``output`` (chain, draw, point), or (chain, draw, point, component) for more than one output. For a noisy
          network this is f(x): the activation is applied to pre-activations without any noise, labels are not taken,
          and what other parts of the model add to the means of its layers is left out. For any other model it is the
          mean of what the model observes, with latents that depend on the inputs replaced by their means; for classes,
          their probabilities; for a Bernoulli, that of class 1. It has the units of y.
        - ``log_noise`` (chain, draw, point), or (chain, draw, point, component): where a second network learns how
          noisy each row is (``pmg.mlp(noise_hidden=...)``), the natural logarithm of the standard deviation of y around
          its mean given the last post-activations, without the noise of the second network. It is left out if the
          posterior lacks weights of that network or the variance of y, if this variance is neither learned by GibbsNN
          nor known, or if the second network has other inputs than the first, of which X_new has no rows.
        - ``norm`` (chain, draw, layer): Σ W² + Σ b² of each layer. Where the network cannot be read, ``norm`` is
          (chain, draw, parameter): Σ θ² of each free variable on which the function depends.
        - ``unit_norm_W1`` (chain, draw, unit_W1) and so on: Σ W² + b² of each unit of a layer, sorted; left out for a
          layer with a single output.

    Raises
    ------
    TypeError
        If ``idata`` or ``model`` is of another type than asked for.
    ValueError
        If the posterior lacks weights or is that of another model (with another activation, likelihood, noise or prior,
        say, where a step of this package made the draws), or X_new has a wrong shape, is not finite, or is a
        data frame whose columns are not those of the data in their order.
    NetworkError
        If the model has no network that can be read and no likelihood whose mean is a function of one ``pm.Data``.

    Warns
    -----
    UserWarning
        If new rows are far from the data, as :func:`predict` warns.

    References
    ----------
    .. [1] T. Papamarkou, J. Hinkle, M. T. Young, D. Womble. Challenges in Markov chain Monte Carlo for Bayesian neural
       networks. Statistical Science 37 (2022).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> with pmg.mlp(np.random.normal(size=(20, 3)), np.arange(20.0), hidden=5):
    ...     idata = pm.sample(1000, step=pmg.GibbsNN())  # doctest: +SKIP
    ...     space = pmg.function_space(idata)  # doctest: +SKIP
    """
    model = model_of(model)
    posterior = posterior_for(model, idata)
    if X_new is not None:
        given, X_new = X_new, finite("X_new", X_new)
        with suppress(NetworkError):  # several observed variables, or none whose inputs are one array
            data = Inputs(model, find_observed(model)).checked_columns(given)
            if X_new.shape[1:] == data.shape[1:]:
                warn_of_units("X_new", X_new, data, given, stacklevel=3)
    return function_evaluator(model)(posterior, X_new)

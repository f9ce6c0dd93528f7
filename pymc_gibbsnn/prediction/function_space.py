"""The function of a network for every draw of a posterior: quantities of which R-hat and ESS make sense.

Hidden units can be permuted (label switching), and the units of a homogeneous activation such as the ReLU can be
scaled, without changing the function of the network. So R-hat of single weights means nothing. Outputs at fixed points
do not change under these symmetries; norms of layers and sorted norms of units do not change when units are permuted.
"""

from __future__ import annotations

from collections.abc import Mapping

import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import model_of
from pymc_gibbsnn.prediction.function import function_evaluator
from pymc_gibbsnn.prediction.observed_shapes import check_observed_shapes
from pymc_gibbsnn.prediction.provenance import posterior_for

__all__ = ["function_space"]


def function_space(
    idata,
    model: pm.Model | None = None,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
    *,
    name: str | None = None,
    thin: int = 1,
) -> xr.Dataset:
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
    X_new : array_like, shape (m, d), or mapping of str to array_like, optional
        Inputs at which to evaluate, as :func:`predict` takes them: those of images have the shape (m, ...) that they
        have in the model's data, and where rows depend on several ``pm.Data``, new rows of each are given by its name.
        By default those of the model; all rows of its data where it observes minibatches.
    name : str, optional
        The name of the observed variable, where the model has several.
    thin : int
        Every thin-th draw of each chain is used; by default all.

    Returns
    -------
    xarray.Dataset
        Quantities to give to ``az.summary``, ``az.rhat`` and ``az.ess``:

        - ``output`` (chain, draw, point), or (chain, draw, point, component) for more than one output. For a noisy
          network this is f(x): the activation is applied to pre-activations without any noise, labels are not taken,
          and what other parts of the model add to the means of its layers is left out. For any other model it is the
          mean of what the model observes (where PyMC does not know that of a censored or truncated distribution, the
          mean without its bounds), with latents that have a row for each row of the inputs replaced by their
          means; for a StudentT its location; for classes, their probabilities; for a Bernoulli, that of class 1. It has
          the units of y.
        - ``log_noise`` (chain, draw, point), or (chain, draw, point, component): where a second network learns how
          noisy each row is (``pmg.mlp(noise_hidden=...)``), the natural logarithm of the standard deviation of y around
          its mean given the last post-activations, without the noise of the second network; where y is StudentT,
          Laplace or Normal around a last latent, that of its scale around this latent. It is left out if the posterior
          lacks weights of that network or the variance of y, if this variance is neither learned by GibbsNN nor known,
          or if the second network has other inputs than the first, of which X_new has no rows.
        - ``norm`` (chain, draw, layer): Σ W² + Σ b² of each layer. Where the network cannot be read, ``norm`` is
          (chain, draw, parameter): Σ θ² of each free variable on which the function depends.
        - ``unit_norm_W1`` (chain, draw, unit_W1) and so on: Σ W² + b² of each unit of a layer, sorted; left out for a
          layer with a single output.

    Raises
    ------
    TypeError
        If ``idata``, ``model`` or ``thin`` is of another type than asked for.
    ValueError
        If the posterior lacks weights or is that of another model (with another activation, likelihood, noise or prior,
        say, where a step of this package made the draws), X_new has a wrong shape or no rows, is not finite, is a data
        frame whose columns are not those of the data in their order, or names other data than those on which y depends,
        observed data have another shape than their mean, or ``thin`` is no positive integer.
    NetworkError
        If the model has no network that can be read and the mean of what it observes is not known; if its rows at X_new
        depend on each other; or if it observes nothing, several variables and ``name`` is not given, or none of that
        name.

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
    check_observed_shapes(model)
    return function_evaluator(model, X_new, name)(posterior_for(model, idata, thin=thin))

"""What a posterior says of the network's function: the quantities that R-hat and ESS can be asked of.

Hidden units can be permuted, and the units of a homogeneous activation scaled, without changing the function: R-hat on
weights means nothing. Outputs at fixed points, norms of layers and sorted norms of units are free of that.
"""

from __future__ import annotations

import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import finite, model_of, posterior_of
from pymc_gibbsnn.networks.function import function_evaluator

__all__ = ["function_space"]


def function_space(idata, model: pm.Model | None = None, X_new: ArrayLike | None = None) -> xr.Dataset:
    r"""Outputs of the network without its noise, and norms of its weights, for every draw of a posterior.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` returned; its posterior must hold all weights and biases.
    model : pm.Model, optional
        Taken from the context by default.
    X_new : array_like, shape (m, d), optional
        Inputs at which to evaluate; by default those of the model.

    Returns
    -------
    xarray.Dataset
        To be given to ``az.summary``, ``az.rhat``, ``az.ess``:

        - ``output`` (chain, draw, point), or (chain, draw, point, component) for more than one output. Of a noisy
          network f(x), with σ applied to pre-activations and no noise, before labels are taken, and without what other
          parts of the model add to the means of its layers. Of any other model the mean of what it observes, latents
          that depend on the inputs replaced by their means; probabilities for classes.
        - ``norm`` (chain, draw, layer): Σ W² + Σ b² of each layer. Where the network cannot be read (chain, draw,
          parameter): Σ θ² of each free variable that the function depends on.
        - ``unit_norm_W1``, ... (chain, draw, unit): Σ W² + b² of each unit of a layer, sorted; not of a single output.

    Raises
    ------
    ValueError
        If the posterior lacks weights or X_new has a wrong shape.
    NetworkError
        If the model has no network that can be read and no likelihood whose mean is a function of one ``pm.Data``.
    """
    X_new = None if X_new is None else finite("X_new", X_new)
    return function_evaluator(model_of(model))(posterior_of("idata", idata), X_new)

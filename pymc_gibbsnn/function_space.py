"""What a posterior says of the network's function: the quantities that R-hat and ESS can be asked of.

Hidden units can be permuted, and the units of a homogeneous activation scaled, without changing the function: R-hat on
weights means nothing. Outputs at fixed points, and norms of layers, are free of that.
"""

from __future__ import annotations

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_gibbsnn.network import Dense
from pymc_gibbsnn.reader import read_network

__all__ = ["function_space"]


def function_space(idata, model: pm.Model | None = None, X_new: ArrayLike | None = None) -> xr.Dataset:
    r"""Outputs of the network without its noise, and norms of its layers, for every draw of a posterior.

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
        ``output`` (chain, draw, point), or (chain, draw, point, output) for more than one output: f(x) with σ applied
        to pre-activations and no noise; ``norm`` (chain, draw, layer): Σ W² + Σ b² of each layer. To be given to
        ``az.summary``, ``az.rhat``, ``az.ess``.

    Raises
    ------
    ValueError
        If the posterior lacks weights or X_new has a wrong shape.
    NetworkError
        If the model holds no network that can be read.
    """
    network = read_network(pm.modelcontext(model))
    posterior = idata["posterior"]
    posterior = posterior.to_dataset() if hasattr(posterior, "to_dataset") else posterior
    a = np.asarray(network.data() if X_new is None else X_new, dtype=float)
    if a.ndim != 2 or a.shape[1] != network.layers[0].shape[1]:
        raise ValueError(f"X_new must have shape (m, {network.layers[0].shape[1]}); found {a.shape}.")
    norms = []
    for l, layer in enumerate(network.layers):
        w, b = _weights(layer, posterior)
        norms.append((w**2).sum((-2, -1)) + (b**2).sum((-2, -1)))
        z = a @ np.swapaxes(w, -1, -2) + b
        a = network.activations[l].function(z) if l < len(network.activations) else z
    coords = {dim: posterior[dim].values for dim in ("chain", "draw")}
    single = network.layers[-1].layout == "vector"
    return xr.Dataset(
        {
            "output": (("chain", "draw", "point", "output")[: 3 + (not single)], a[..., 0] if single else a),
            "norm": (("chain", "draw", "layer"), np.stack(norms, -1)),
        },
        coords={**coords, "layer": np.arange(1, len(network.layers) + 1)},
    )


def _weights(layer: Dense, posterior: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """W (chain, draw, d_out, d_in) and b (chain, draw, 1, d_out)."""
    values = []
    for variable in (layer.weights, layer.bias):
        if variable is None:
            continue
        if variable.name not in posterior:
            raise ValueError(
                f"The posterior lacks '{variable.name}': record it by naming it in var_names of pm.sample."
            )
        values.append(posterior[variable.name].transpose("chain", "draw", ...).values)
    w = values[0]
    w = w[..., None, :] if layer.layout == "vector" else np.swapaxes(w, -1, -2) if layer.layout == "columns" else w
    b = values[1].reshape(*w.shape[:2], 1, -1) if layer.has_bias else np.zeros((*w.shape[:2], 1, 1))
    return w, b

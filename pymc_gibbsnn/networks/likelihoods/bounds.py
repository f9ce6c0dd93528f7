"""The bounds between which data of a noisy network lie, of pm.Censored and of pm.Truncated."""

from __future__ import annotations

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs

from pymc_gibbsnn.networks.forms import NetworkError, evaluate
from pymc_gibbsnn.networks.layers import Operator
from pymc_gibbsnn.networks.likelihoods.around_latent import fits, like_latent
from pymc_gibbsnn.networks.likelihoods.likelihood import Likelihood, Parameters

__all__ = ["check_bounds", "read_bounds"]


def read_bounds(
    bounds: tuple[Variable, Variable], z: Variable, observed: Variable, parameters: Parameters
) -> dict[str, Variable]:
    """Read the fields ``lower`` and ``upper`` of a likelihood, in axes that broadcast to those of Z.

    Parameters
    ----------
    bounds : tuple of Variable
        The lower and the upper bound, as PyMC keeps them: infinite where the user gave None.
    z : Variable
        The latent Z.
    observed, parameters
        As in :meth:`Likelihood.read`.
    """
    if z in ancestors(bounds):
        raise NetworkError(f"The bounds of '{observed.name}' must not depend on its location '{z.name}'.")
    values = [parameters.value(bound) for bound in bounds]
    read = [x.reshape(()) if all(x.type.broadcastable) else like_latent(x, observed) for x in values]
    return dict(zip(("lower", "upper"), read, strict=True))


def check_bounds(likelihood: Likelihood, lower: Variable, upper: Variable, layer: Operator) -> None:
    """Refuse bounds that do not fit the data, or data beyond them; bounds that depend on other variables pass.

    Parameters
    ----------
    likelihood : Likelihood
        The likelihood of the data.
    lower, upper : Variable
        The bounds.
    layer : Operator
        The last layer.

    Raises
    ------
    NetworkError
        Names the variable and what was found.
    """
    if list(explicit_graph_inputs([lower, upper])):
        return
    name, data = likelihood.name, evaluate(likelihood.value)
    y = data.reshape(len(data), layer.shape[0])
    values = {"lower": evaluate(lower), "upper": evaluate(upper)}
    for which, bound in (("lower", lower), ("upper", upper)):
        shape = values[which].shape
        if shape and not fits(bound, y.shape):
            raise NetworkError(
                f"{which} of '{name}' must be one number, or an array with one for each number of the data, of shape "
                f"{data.shape}; found the shape {shape[:1] if data.ndim == 1 else shape}."
            )
        if np.isnan(values[which]).any():
            raise NetworkError(f"{which} of '{name}' must hold numbers, or infinite ones for no bound; found NaN.")
    if not np.all(values["lower"] < values["upper"]):
        raise NetworkError(f"lower of '{name}' must be less than upper, for each datum.")
    beyond = np.argwhere((y < values["lower"]) | (y > values["upper"]))
    if len(beyond):
        place = tuple(beyond[0])
        low, high = (np.broadcast_to(bound, y.shape)[place] for bound in values.values())
        raise NetworkError(
            f"the data of '{name}' must lie between its bounds; found {y[place]:g} in row {place[0]}, whose bounds are "
            f"{low:g} and {high:g}."
        )

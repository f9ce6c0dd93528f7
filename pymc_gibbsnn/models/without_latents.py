"""What to record of a model with a network: everything but the latents."""

from __future__ import annotations

import pymc as pm

from pymc_gibbsnn._arguments import model_of
from pymc_gibbsnn.networks.forms import NetworkError
from pymc_gibbsnn.networks.reader import read_networks

__all__ = ["without_latents"]


def without_latents(model: pm.Model | None = None) -> list[str]:
    """Return the names of all free variables of a model except the latents of its noisy networks, for ``var_names=``.

    Latents, the noisy values of units, are as many numbers as rows times units. Predictions draw them anew, so
    that they need not be recorded. Where the model has no noisy network that :class:`GibbsNN` can read, no variable
    counts as a latent, and all names are returned.

    Parameters
    ----------
    model : pm.Model, optional
        By default the model on the context stack.

    Returns
    -------
    list of str
        The names of weights, biases, learned variances and precisions, and of all other variables that are sampled, in
        the order in which the model has them.

    Raises
    ------
    TypeError
        If there is no model.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> rng = np.random.default_rng(0)
    >>> with pmg.mlp(rng.normal(size=(20, 3)), rng.normal(size=20), 5, prior=None):
    ...     pmg.without_latents()
    ['variance_Z2', 'variance_A2', 'variance_y', 'W1', 'b1', 'W2', 'b2']
    """
    model = model_of(model)
    try:
        latents = {value for network in read_networks(model, check_data=False) for value in network.latents}
    except NetworkError:
        latents = set()
    return [rv.name for rv in model.free_RVs if model.rvs_to_values[rv] not in latents]

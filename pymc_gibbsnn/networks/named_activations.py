"""The activations that a user may give by name."""

from __future__ import annotations

from collections.abc import Callable

import pytensor.tensor as pt

from pymc_gibbsnn.networks.activations import ACTIVATIONS, PiecewiseLinear

__all__ = ["SMOOTH", "named_activation"]

SMOOTH: dict[str, Callable] = {
    "tanh": pt.tanh,
    "sigmoid": pt.sigmoid,
    "gelu": lambda z: z * (1 + pt.erf(z / 2**0.5)) / 2,
    "softplus": pt.softplus,
    "silu": lambda z: z * pt.sigmoid(z),
    "erf": pt.erf,
}
NAMED = ACTIVATIONS | SMOOTH


def named_activation(activation: str | PiecewiseLinear | Callable) -> Callable:
    """Return the function for which a name, a table or a function of PyTensor variables stands.

    Raises
    ------
    ValueError
        If it is none of these, or the name is not known.
    """
    if isinstance(activation, str):
        if activation not in NAMED:
            raise ValueError(f"activation must be one of {sorted(NAMED)}, a table or a function; found {activation!r}.")
        return NAMED[activation]
    if not callable(activation):
        raise ValueError(f"activation must be a name, a PiecewiseLinear table or a function; found {activation!r}.")
    return activation

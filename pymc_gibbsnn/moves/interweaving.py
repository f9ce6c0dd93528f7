"""Which interweaving move each layer makes, and what it keeps from sweep to sweep.

The moves themselves are in :mod:`pymc_gibbsnn.moves.interweave_pieces` and
:mod:`pymc_gibbsnn.moves.interweave_langevin`.
"""

from __future__ import annotations

import math

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable

from pymc_gibbsnn._arguments import one_of
from pymc_gibbsnn.moves.interweave_langevin import TARGET_ACCEPTANCE, interweave_langevin
from pymc_gibbsnn.moves.interweave_pieces import interweave_pieces, no_gram
from pymc_gibbsnn.moves.tuning import robbins_monro
from pymc_gibbsnn.moves.weights import spectrum
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.networks.smooth import Smooth

__all__ = ["TUNE_STEPS", "interweave_layer", "kinds_of_interweaving", "start_of_interweaving"]

# Most inputs, bias included, for which moves on pieces keep a sweep within about five times the time of a plain one.
# The Gram matrices of the data layer are kept; above it they are formed at every sweep.
WIDEST_DATA, WIDEST_HIDDEN = 128, 24
TUNE_STEPS = 1000  # of the Langevin steps


def kinds_of_interweaving(network: Network, interweave: str | bool) -> list[str | bool]:
    """Return "pieces", "langevin" or False for the weights below each hidden layer."""
    one_of("interweave", interweave, ("auto", "pieces", "langevin", False))
    smooth = [activation.name for activation in network.activations if isinstance(activation.function, Smooth)]
    if interweave == "pieces" and smooth:
        raise ValueError(f"interweave='pieces' needs activations of linear pieces; {smooth} have none: use 'langevin'.")
    if interweave != "auto":
        return [interweave] * len(network.activations)
    kinds = []
    for l, activation in enumerate(network.activations):
        widest = WIDEST_HIDDEN if l else WIDEST_DATA
        narrow = network.layers[l].operator.fan_in <= widest
        sloped = isinstance(activation.function, PiecewiseLinear) and activation.function.slopes.any()
        kinds.append("pieces" if narrow and sloped else "langevin")
    return kinds


def start_of_interweaving(network: Network, kinds: list[str | bool]) -> dict[str, Variable]:
    """What the move keeps: Gram matrices of the data layer's units, or step sizes."""
    carry = {}
    if not kinds or not kinds[0]:
        return carry
    first, a = network.layers[0].operator, network.inputs
    if kinds[0] == "pieces":
        carry["input"] = first.design(a, a.shape[0])
        z = pt.zeros((a.shape[0], first.shape[0]), dtype=a.dtype)
        carry["unit_gram"], carry["unit_squares"] = no_gram(z, first.augmented_shape)
    else:
        carry["u"], carry["eigenvalues"] = _spectrum(network, 0, a, fixed=not isinstance(first.precision, Constant))
    if "langevin" in kinds:
        carry["tuned"] = pt.zeros((), dtype=a.dtype)
    for layer, kind in zip(network.layers, kinds, strict=False):
        if kind == "langevin":
            start = min(0.0, math.log(2 / math.prod(layer.operator.augmented_shape) ** (1 / 3)))
            carry[f"log_step_{layer.operator.name}"] = pt.constant(np.asarray(start, a.dtype))
    return carry


def _spectrum(network: Network, l: int, a: Variable, fixed: bool = False) -> tuple[Variable, Variable]:
    """The spectrum of a layer's input A for the mean of its precisions over units, or for 1 if it is to stay."""
    operator = network.layers[l].operator
    mean_precision = operator.precision.mean(axis=0, keepdims=True)
    if fixed:
        mean_precision = pt.ones((1, operator.fan_in), dtype=a.dtype)
    return spectrum(operator, a, network.inputs.shape[0], mean_precision, thin=l == 0 and network.is_thin)


def interweave_layer(
    rng: Variable,
    network: Network,
    l: int,
    kind: str,
    a: Variable,
    weights: Variable,
    z: Variable,
    y: Variable,
    w: Variable,
    g: Variable,
    carry: dict[str, Variable],
    tuning: Variable,
) -> tuple[Variable, Variable, Variable, Variable, dict[str, Variable]]:
    """(rng, W̃, Z, acceptance, what changes of the carry) for W̃ and Z between the input A of layer l and its Y above.

    ``w`` is W of the layer above and ``g`` its gain.
    """
    operator, function = network.layers[l].operator, network.activations[l].function
    shape, precision = operator.augmented_shape, operator.precision
    if kind == "pieces":
        rows = operator.design(a, network.inputs.shape[0]) if l else carry["input"]
        kept = None if l else (carry["unit_gram"], carry["unit_squares"])
        rng, weights, z, gram, squares, accepted = interweave_pieces(
            rng, rows, weights, z, y, w, g, precision, kept, shape, function
        )
        return rng, weights, z, accepted.mean(), {"unit_gram": gram, "unit_squares": squares} if l == 0 else {}
    u, eigenvalues = _spectrum(network, l, a) if l else (carry["u"], carry["eigenvalues"])
    if l == 0 and not isinstance(precision, Constant):
        eigenvalues = eigenvalues / precision.mean()  # of a preconditioner, which need not be exact
    name, count = f"log_step_{operator.name}", carry["tuned"] + 1
    rng, weights, z, acceptance = interweave_langevin(
        rng, operator, a, weights, z, y, w, g, u, eigenvalues, carry[name], function
    )
    log_step = robbins_monro(carry[name], count, acceptance, TARGET_ACCEPTANCE, tuning)
    return rng, weights, z, acceptance, {name: log_step, "tuned": count}

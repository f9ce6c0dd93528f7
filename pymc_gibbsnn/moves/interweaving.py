"""The choice of the interweaving move that each layer makes, and what the move keeps from sweep to sweep.

An interweaving move changes the weights of a unit with the noise of its pre-activations held fixed. The moves
themselves are in :mod:`pymc_gibbsnn.moves.interweave_pieces` and :mod:`pymc_gibbsnn.moves.interweave_langevin`, and
that of filters is in :mod:`pymc_gibbsnn.moves.interweave_filters`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import one_of
from pymc_gibbsnn._robbins_monro import robbins_monro
from pymc_gibbsnn.moves.interweave_filters import WIDEST, makes_filter_move
from pymc_gibbsnn.moves.interweave_langevin import TARGET_ACCEPTANCE, interweave_langevin
from pymc_gibbsnn.moves.interweave_pieces import interweave_pieces, no_gram
from pymc_gibbsnn.moves.site import Move, Site
from pymc_gibbsnn.moves.weights import data_spectrum, spectrum
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.given import is_given
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.networks.smooth import Smooth

__all__ = ["interweaving", "kinds_of_interweaving"]

# The largest numbers of inputs, bias included, for which a sweep with moves on pieces takes at most about five times as
# long as a plain one. The Gram matrices of the data layer are kept; above it, and where rows have scales, they are
# formed anew at every sweep.
WIDEST_DATA, WIDEST_HIDDEN = 128, 24
TUNE_STEPS = 1000  # how many tuning steps the Langevin moves need


def kinds_of_interweaving(network: Network, interweave: str | bool) -> list[str | bool]:
    """Choose the move, "pieces", "langevin" or False for none, for the weights below each hidden layer.

    The filters of a convolution have a move of their own (:mod:`pymc_gibbsnn.moves.interweave_filters`): True or False.

    Raises
    ------
    ValueError
        If there is no such choice, or "pieces" are asked of an activation that has none.
    """
    one_of("interweave", interweave, ("auto", "pieces", "langevin", False))
    kinds, scaled = [], network.row_scale is not None
    for l, activation in enumerate(network.activations):
        operator = network.layers[l].operator
        if operator.has_filters:
            widest = {"auto": WIDEST, False: 0}.get(interweave, math.inf)
            kinds.append(makes_filter_move(network, l, widest))
        elif activation is None or not operator.variables:
            kinds.append(False)
        elif interweave == "auto":
            function, narrow = activation.function, operator.fan_in <= (WIDEST_HIDDEN if l or scaled else WIDEST_DATA)
            sloped = isinstance(function, PiecewiseLinear) and function.slopes.any()
            kinds.append("pieces" if narrow and sloped else "langevin")
        elif interweave == "pieces" and isinstance(activation.function, Smooth):
            raise ValueError(
                f"interweave='pieces' needs activations of linear pieces; that of '{activation.name}' has none: use "
                f"'langevin'."
            )
        else:
            kinds.append(interweave)
    return kinds


def interweaving(network: Network, l: int, kind: str) -> Move:
    """Make the move of W̃ and Z of layer l of this kind, with the post-activations above integrated out."""
    return (_on_pieces if kind == "pieces" else _by_langevin)(network, l)


def _on_pieces(network: Network, l: int) -> Move:
    """Make the move on pieces, which in the data layer keeps Ã and the Gram matrices of the units in the carry."""
    layer, a, start = network.layers[l], network.inputs, {}
    operator, acceptance = layer.operator, f"acceptance_{layer.operator.name}"
    if l == 0 and network.row_scale is None:
        names = [f"{name}_{operator.name}" for name in ("input", "unit_gram", "unit_squares")]
        z = pt.zeros((a.shape[0], operator.shape[0]), dtype=a.dtype)
        start = dict(zip(names, (operator.design(a, a.shape[0]), *no_gram(z, operator.augmented_shape)), strict=True))

    def step(rng: Variable, site: Site, carry: dict) -> tuple[Variable, Site, dict, dict]:
        operator = site.layer.operator
        rows, *kept = (carry[name] for name in start) if start else (operator.design(site.a, site.samples),)
        arguments = rows, site.w, site.z, site.y, site.v, site.gain, operator.precision
        rng, w, z, *kept, accepted = interweave_pieces(
            rng, *arguments, kept or None, operator.size, site.activation.function
        )
        changed = dict(zip(list(start)[1:], kept, strict=False))
        return rng, _moved(site, w, z), carry | changed, {acceptance: accepted.mean()}

    return Move(step, start, (acceptance,))


def _by_langevin(network: Network, l: int) -> Move:
    """Make the Langevin move, which keeps its step size and, in the data layer, the spectrum of the data."""
    a, operator = network.inputs, network.layers[l].operator
    name, is_learned = operator.name, not is_given(operator.precision)
    acceptance, log_step, tuned = f"acceptance_{name}", f"log_step_{name}", f"tuned_{name}"
    step_size = f"step_size_{name}"
    of_data = {} if l else data_spectrum(network)
    first = min(0.0, math.log(2 / math.prod(operator.augmented_shape) ** (1 / 3)))
    start = {log_step: pt.constant(np.asarray(first, a.dtype)), tuned: pt.zeros((), dtype=a.dtype)}

    def step(rng: Variable, site: Site, carry: dict) -> tuple[Variable, Site, dict, dict]:
        operator = site.layer.operator
        if l:
            mean_precision = operator.precision.mean(axis=0, keepdims=True)
            u, eigenvalues = spectrum(operator, site.a, site.samples, mean_precision, thin=False)
        else:
            u, eigenvalues = (carry[name] for name in of_data)
            # A preconditioner need not be exact
            if is_learned:
                eigenvalues = eigenvalues / operator.precision.mean()
            if operator.ones is not None:
                eigenvalues = eigenvalues * (operator.ones**2).mean()
        rng, w, z, accepted = interweave_langevin(
            rng,
            operator,
            site.a,
            site.w,
            site.z,
            site.y,
            site.v,
            site.gain,
            u,
            eigenvalues,
            carry[log_step],
            site.activation.function,
            operator.size,
        )
        count = carry[tuned] + 1
        new = robbins_monro(carry[log_step], count, accepted, TARGET_ACCEPTANCE, site.tuning)
        stats = {acceptance: accepted, step_size: pt.exp(carry[log_step])}
        return rng, _moved(site, w, z), carry | {log_step: new, tuned: count}, stats

    return Move(step, of_data | start, (acceptance, step_size), TUNE_STEPS, {log_step: step_size})


def _moved(site: Site, w: Variable, z: Variable) -> Site:
    """Return the site with new W̃ and Z, whose difference from its mean is as it was."""
    return replace(site, w=w, mean=site.mean + (z - site.z), z=z, post=None)

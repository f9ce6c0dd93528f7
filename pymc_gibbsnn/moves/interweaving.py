"""The choice of the interweaving move that each layer makes.

An interweaving move changes the weights of a unit with the noise of its pre-activations held fixed. The moves
themselves are in :mod:`pymc_gibbsnn.moves.interweave_pieces`, :mod:`pymc_gibbsnn.moves.interweave_langevin`,
:mod:`pymc_gibbsnn.moves.interweave_marginal` and :mod:`pymc_gibbsnn.moves.interweave_deep`, and that of filters is in
:mod:`pymc_gibbsnn.moves.interweave_filters`.
"""

from __future__ import annotations

import math

from pymc_gibbsnn._arguments import one_of
from pymc_gibbsnn.moves.interweave_filters import WIDEST, makes_filter_move
from pymc_gibbsnn.moves.interweave_langevin import interweave_langevin
from pymc_gibbsnn.moves.interweave_pieces import interweave_pieces
from pymc_gibbsnn.moves.site import Move
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.layers.dense import Dense
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.networks.smooth import Smooth

__all__ = [
    "WIDEST_ABOVE",
    "WIDEST_BELOW",
    "interweaves_deep",
    "interweaves_marginal",
    "interweaving",
    "kinds_of_interweaving",
]

# The largest numbers of inputs, bias included, for which a sweep with moves on pieces takes at most about five times as
# long as a plain one. The Gram matrices of the data layer are kept; above it, and where rows have scales or
# inputs of more than a few rows are drawn, they are formed anew at every sweep.
WIDEST_DATA, WIDEST_HIDDEN = 128, 24
# The largest numbers of inputs below and above, bias included, for which moves of units that know more than the layer
# above make a sweep at most some three times as long. Between hidden layers of 50 units, that with the weights above
# integrated out makes it 1.6 times as long, and outputs mix much better.
WIDEST_BELOW, WIDEST_BETWEEN, WIDEST_ABOVE = 24, 65, 128


def kinds_of_interweaving(network: Network, interweave: str | bool) -> list[str | bool]:
    """Choose the move, "pieces", "langevin" or False for none, for the weights below each hidden layer.

    The filters of a convolution have a move of their own (:mod:`pymc_gibbsnn.moves.interweave_filters`): True or False.

    Raises
    ------
    ValueError
        If there is no such choice, or "pieces" are asked of an activation that has none.
    """
    one_of("interweave", interweave, ("auto", "pieces", "langevin", False))
    kinds, is_kept = [], network.lasting_inputs is not None
    for l, activation in enumerate(network.activations):
        operator = network.layers[l].operator
        if operator.has_filters:
            most = {"auto": WIDEST, False: 0}.get(interweave, math.inf)
            kinds.append(makes_filter_move(network, l, most))
        elif activation is None or not operator.variables:
            kinds.append(False)
        elif interweave == "auto":
            function, widest = activation.function, WIDEST_DATA if is_kept and not l else WIDEST_HIDDEN
            kinds.append("pieces" if operator.fan_in <= widest and _has_slopes(function) else "langevin")
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
    return (interweave_pieces if kind == "pieces" else interweave_langevin)(network, l)


def interweaves_marginal(network: Network, l: int, interweave: str | bool) -> bool:
    """Whether layer l also makes the move on pieces in which the weights above are integrated out."""
    widest, above = WIDEST_BETWEEN if l else WIDEST_BELOW, network.layers[l + 1].operator
    return _moves_on_pieces(network, l, l + 1, interweave, widest) and above.shares_prior


def interweaves_deep(network: Network, l: int, interweave: str | bool) -> bool:
    """Whether layer l, which is not the last hidden one, also makes the move in which all latents above move along."""
    return _moves_on_pieces(network, l, len(network.layers) - 1, interweave, WIDEST_BELOW)


def _moves_on_pieces(network: Network, l: int, last: int, interweave: str | bool, widest: int) -> bool:
    """Whether a move on pieces that knows several layers can be made, and is not too slow.

    Parameters
    ----------
    network : Network
        The network.
    l, last : int
        The layer whose units move, and the last one that the move knows.
    interweave : {"auto", "pieces", "langevin", False}
        What the user chose.
    widest : int
        How many inputs layer l may have.
    """
    below, *above = operators = [layer.operator for layer in network.layers[l : last + 1]]
    if interweave not in ("auto", "pieces") or not all(isinstance(operator, Dense) for operator in operators):
        return False
    is_narrow = below.fan_in <= widest and all(operator.fan_in <= WIDEST_ABOVE for operator in above)
    return is_narrow and all(a is not None and _has_slopes(a.function) for a in network.activations[l:last])


def _has_slopes(function: object) -> bool:
    """Whether an activation is one of linear pieces, and not flat on all of them."""
    return isinstance(function, PiecewiseLinear) and bool(function.slopes.any())

"""Partitions of the parameters of a model into blocks, which a sampler moves one at a time.

Parameters are single numbers: the entries of all sampled variables, numbered through one variable after the other, each
in row-major order. A node is a unit of a network with its incoming weights and its bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pymc as pm

from pymc_gibbsnn._arguments import describe, model_of, whole
from pymc_gibbsnn.networks.layers import Operator
from pymc_gibbsnn.prediction.provenance import posterior_for

__all__ = ["LayerNodes", "correlated_blocks", "flat_layers", "network_layers", "partition", "unit_pieces"]

Blocks = list[np.ndarray]


@dataclass(frozen=True, eq=False)
class LayerNodes:
    """The name of a layer, and the numbers of each node's parameters: incoming weights first, and the bias last."""

    name: str
    nodes: list[np.ndarray]

    @property
    def parameters(self) -> np.ndarray:
        """The numbers of the parameters of all nodes."""
        return np.concatenate(self.nodes)


def numbering(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Number the parameters of variables, in the shape of each variable."""
    first, numbers = 0, {}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        numbers[name] = np.arange(first, first + size).reshape(shape)
        first += size
    return numbers


def flat_layers(shapes: dict[str, tuple[int, ...]]) -> list[LayerNodes]:
    """Treat each variable as a layer, and each stretch along its last axis as a node, when no more is known of them."""
    return [
        LayerNodes(name, list(numbers.reshape(-1, numbers.shape[-1] if numbers.ndim else 1)))
        for name, numbers in numbering(shapes).items()
    ]


def network_layers(layers: Sequence[Operator], shapes: dict[str, tuple[int, ...]]) -> list[LayerNodes]:
    """List the layers of a network, followed by the variables that do not belong to it, as :func:`flat_layers` does."""
    numbers, of_network = numbering(shapes), []
    for layer in layers:
        of_network.append(LayerNodes(layer.name, list(layer.named_matrix(numbers))))
    members = {v.name for layer in layers for v in layer.variables}
    rest = [layer for layer in flat_layers(shapes) if layer.name not in members]
    return of_network + rest


def partition(blocks: str | int | Sequence[Sequence[int]], layers: Sequence[LayerNodes]) -> Blocks:
    """Cut the parameters into blocks, in the order of the sweep.

    Parameters
    ----------
    blocks : {"node", "layer", "all"}, int, or sequence of sequences of int
        One block for each node, one for each layer, or one for all; an integer cuts nodes into even pieces of at most
        that many parameters; or the numbers of each block's parameters.
    layers : sequence of LayerNodes

    Raises
    ------
    ValueError
        If blocks overlap or miss a parameter, hold what is no parameter, or are none of these.
    """
    nodes = [node for layer in layers for node in layer.nodes]
    if isinstance(blocks, str):
        known = {"node": nodes, "layer": [layer.parameters for layer in layers], "all": [np.concatenate(nodes)]}
        if blocks not in known:
            raise ValueError(f"blocks must be 'node', 'layer', 'all', a number or lists of numbers; found {blocks!r}.")
        return known[blocks]
    if not isinstance(blocks, Sequence | np.ndarray):
        most = whole(
            "blocks", blocks, why=" (the most parameters in a block), 'node', 'layer', 'all' or lists of numbers"
        )
        return [piece for node in nodes for piece in np.array_split(node, -(-len(node) // most))]
    size = sum(map(len, nodes))
    arrays = [np.asarray(block) for block in blocks]
    for number, block in enumerate(arrays):
        if block.ndim != 1 or block.size == 0 or block.dtype.kind not in "iu":
            raise ValueError(
                f"blocks must hold lists of numbers of parameters, not empty; found {describe(blocks[number])} "
                f"as block {number}."
            )
    counts = np.concatenate(arrays) if arrays else np.empty(0, int)
    if counts.size and (counts.min() < 0 or counts.max() >= size):
        raise ValueError(
            f"blocks must number the parameters from 0 to {size - 1}; found {counts.min()} to {counts.max()}."
        )
    counts = np.bincount(counts, minlength=size)
    for problem, wrong in (("overlap in", counts > 1), ("miss", counts == 0)):
        if wrong.any():
            raise ValueError(f"blocks must hold every parameter once; they {problem} {np.flatnonzero(wrong)[:10]}.")
    return arrays


def unit_pieces(blocks: Blocks, layers: Sequence[LayerNodes]) -> list[list[tuple[int, int]]] | None:
    """Find the pieces, as (first, end), into which blocks cut the nodes of each layer.

    None if the blocks are no such pieces in order, or the nodes of a layer are not all cut alike.
    """
    pieces, rest = [], iter(blocks)
    for layer in layers:
        cuts = [0]
        while cuts[-1] < len(layer.nodes[0]):
            cuts.append(cuts[-1] + len(next(rest, layer.nodes[0])))
        pieces.append(list(pairwise(cuts)))
        for _ in range((len(layer.nodes) - 1) * len(pieces[-1])):
            next(rest, None)
    expected = [
        node[first:end]
        for layer, cuts in zip(layers, pieces, strict=True)
        for node in layer.nodes
        for first, end in cuts
    ]
    same = len(expected) == len(blocks) and all(map(np.array_equal, expected, blocks))
    return pieces if same else None


def correlated_blocks(idata, model: pm.Model | None = None, *, largest: int = 10) -> list[list[int]]:
    r"""Find blocks of parameters that are correlated in a pilot run, for ``FNBG(blocks=...)`` (after [1]_, section 6).

    Parameters are clustered by average linkage with the distance 1 − \|correlation\|. The tree of clusters is followed
    from the root down, and a branch becomes a block where it holds at most ``largest`` parameters.

    Parameters
    ----------
    idata : InferenceData or DataTree
        A pilot run with all free variables of the model in its posterior. Correlations are taken within chains.
    model : pm.Model, optional
        The model; by default that of the context.
    largest : int
        The largest number of parameters in a block.

    Returns
    -------
    list of list of int
        For each block the numbers of its parameters, counted through the variables in the order of the model.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for.
    ValueError
        If the posterior is that of another model or lacks a variable, a variable is transformed, draws are fewer than
        three, or ``largest`` is less than 1.

    References
    ----------
    .. [1] T. Papamarkou. The premise of approximate MCMC in Bayesian deep learning. arXiv 2208.11389.

    Examples
    --------
    >>> import pymc as pm, pymc_gibbsnn as pmg
    >>> X, y, X_test, y_test = pmg.noisy_xor(200, 40)
    >>> with pmg.classical_mlp(X, y, hidden=3):
    ...     pilot = pm.sample(1000, step=pmg.FNBG())  # doctest: +SKIP
    ...     idata = pm.sample(1000, step=pmg.FNBG(blocks=pmg.correlated_blocks(pilot)))  # doctest: +SKIP
    """
    model = model_of(model)
    posterior = posterior_for(model, idata)
    largest = whole("largest", largest, why=", the most parameters in a block")
    draws = []
    for value, rv in zip(model.value_vars, model.free_RVs, strict=True):
        if rv.name not in posterior:
            raise ValueError(f"The posterior lacks '{rv.name}': record it by naming it in var_names of pm.sample.")
        if value.name != rv.name:
            raise ValueError(f"'{rv.name}' is transformed: correlations are those of its transform, not recorded.")
        series = posterior[rv.name].transpose("chain", "draw", ...).values
        draws.append(series.reshape(*series.shape[:2], -1))
    draws = np.concatenate(draws, axis=-1).astype(float)
    if draws.shape[1] < 3:
        raise ValueError(f"Correlations need at least three draws a chain; found {draws.shape[1]}.")
    if draws.shape[-1] == 1:
        return [[0]]
    centred = (draws - draws.mean(axis=1, keepdims=True)).reshape(-1, draws.shape[-1])
    norm = np.sqrt((centred**2).sum(axis=0))
    correlation = (centred.T @ centred) / np.maximum(np.outer(norm, norm), np.finfo(float).tiny)
    distance = 1 - np.minimum(np.abs(correlation), 1)
    np.fill_diagonal(distance, 0)
    from scipy.cluster.hierarchy import average, to_tree
    from scipy.spatial.distance import squareform

    blocks, branches = [], [to_tree(average(squareform(distance, checks=False)))]
    while branches:
        branch = branches.pop()
        if branch.count <= largest:
            blocks.append(sorted(map(int, branch.pre_order())))
        else:
            branches += [branch.right, branch.left]
    return sorted(blocks)

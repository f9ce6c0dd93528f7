r"""Metropolis within blocked Gibbs: one block of parameters is moved at a time, without gradients.

The parameters θ of all variables are cut into blocks, and a sweep visits the blocks in order. The proposal for block q,
of scale s_q, is

    θ*_q = θ_q + s_q ξ,   ξ ~ N(0, I),     accepted with probability min(1, π(θ*)/π(θ)),

with the other blocks at their current values; after a rejection the block goes back before the next one is moved. With
a block for each node of a network (a unit with its incoming weights and bias) this is the node-blocked Gibbs sampler,
and with parts of nodes the finer node-blocked Gibbs sampler, FNBG [1]_ (algorithm 2). On minibatches one batch serves a
whole sweep, at the start of which π(θ) is evaluated anew; such a chain is not exact.

While the chain tunes, log s_q is moved so that the acceptance of block q approaches a target.

References
----------
.. [1] T. Papamarkou. The premise of approximate MCMC in Bayesian deep learning. arXiv 2208.11389 (2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal, uniform

from pymc_gibbsnn._arguments import number, positive_numbers
from pymc_gibbsnn._robbins_monro import robbins_monro
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.given import given, loose, sizes
from pymc_gibbsnn.networks.minibatch import Batches
from pymc_gibbsnn.networks.network import evaluate
from pymc_gibbsnn.samplers.blocks import LayerNodes
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.target import Target

__all__ = ["cut", "fnbg", "sweep_by_density"]

FIRST_SCALE = 0.1
TUNE_STEPS = 1000
MOST_NODES = 100  # a layer with more nodes does not report their acceptance one by one

Sweep = Callable[[dict, Variable, Variable, Variable | None], tuple[dict, Variable, Variable]]


def fnbg(
    variables: Sequence[Variable],
    sweep: Sweep,
    blocks: Sequence[np.ndarray],
    layers: Sequence[LayerNodes],
    *,
    scale: float | Sequence[float] | None = None,
    target_accept: float = 0.35,
    batches: Batches | None = None,
    check: Callable[[], None] = lambda: None,
    rows: Variable | None = None,
) -> Transition:
    """Make the transition of blocked Metropolis for the parameters of some variables.

    Parameters
    ----------
    variables : sequence of Variable
        The value variables that are moved.
    sweep : callable
        ``sweep(state, steps, log_u, rows) -> (state, log_ratios, lp)`` moves each block by its ``steps`` (one number
        for each parameter) if its ``log_u`` (one number for each block) is less than the logarithm of the ratio of
        densities; ``rows`` are the row numbers of a batch. See :func:`sweep_by_density` and
        :mod:`pymc_gibbsnn.samplers.fnbg_network`.
    blocks : sequence of array
        A partition of the parameters into blocks, by their numbers; see :mod:`pymc_gibbsnn.samplers.blocks`.
    layers : sequence of LayerNodes
        The layers, whose acceptance is reported.
    scale : float or sequence of float, optional
        Standard deviations of the proposals, in the units of the parameters: one number, one for each layer or one for
        each block. They are tuned if it is None.
    target_accept : float
        The acceptance probability to which the scales are tuned.
    batches : Batches, optional
        The minibatches of the model.
    check, rows
        As in :class:`~pymc_gibbsnn.samplers.transition.Transition`.

    Returns
    -------
    Transition
        Its statistics are ``lp``, the log density after the sweep, on the sweep's batch; ``acceptance_rate``, the mean
        acceptance probability of the blocks; ``acceptance_W1`` and so on, that of the blocks of a layer, and
        ``acceptance_W1_0`` and so on, that of a node, if blocks lie within nodes and a layer has at most 100;
        ``scale_W1`` and so on, the geometric mean of a layer's scales; and, on minibatches, ``exact``, which is 0.

    Raises
    ------
    ValueError
        If a scale is not positive, their number does not fit, or the target is not between 0 and 1.
    """
    number("target_accept", target_accept, "a number between 0 and 1", lambda x: 0 < x < 1)
    dtype = pytensor.config.floatX
    owner = np.empty(sum(map(len, blocks)), "int64")
    for q, block in enumerate(blocks):
        owner[block] = q
    log_scale = np.log(_scales(scale, blocks, layers)).astype(dtype)
    start = {"log_scale": pt.constant(log_scale), **({} if batches is None else batches.start())}
    if scale is None:
        start["tuned"] = pt.constant(np.asarray(0, dtype))
    names, shares = _averages(blocks, layers)
    scale_names = tuple(f"scale_{layer.name}" for layer in layers)
    # Blocks are data of the program, so that it serves all networks of an architecture, however they are cut.
    counts, owners, target = sizes((len(owner), len(blocks))), given(owner), given(np.asarray(target_accept, dtype))
    of_blocks, of_layers = given(shares.astype(dtype)), given(shares[1 : 1 + len(layers)].astype(dtype))
    zero, one = pt.constant(np.array([0, 1], dtype))

    def step(rng: Variable, state: dict, carry: dict, tuning: Variable) -> tuple[Variable, dict, dict, dict]:
        rng, batch = (rng, None) if batches is None else batches.draw(rng, carry)
        rng, xi = draw(normal, rng, zero, one, size=counts[:1])
        rng, u = draw(uniform, rng, zero, one, size=counts[1:])
        steps = pt.exp(carry["log_scale"])[owners] * xi
        state, log_ratios, lp = sweep(state, steps, pt.log1p(-u), batch)
        acceptance = pt.exp(pt.minimum(pt.switch(pt.isnan(log_ratios), -math.inf, log_ratios), 0))
        changed = {}
        if scale is None:
            changed["tuned"] = carry["tuned"] + 1
            changed["log_scale"] = robbins_monro(
                carry["log_scale"], changed["tuned"], acceptance, target, tuning, largest=math.inf
            )
        stats = {"lp": lp, names: of_blocks @ acceptance, scale_names: pt.exp(of_layers @ carry["log_scale"])}
        stats |= {} if batches is None else {"exact": zero}
        return rng, state, changed, stats

    tune_steps = TUNE_STEPS if scale is None else 0
    reported = ["lp", *names, *scale_names] + ([] if batches is None else ["exact"])
    tuned = {"log_scale": None} if scale is None else {}
    return Transition(list(variables), step, start, reported, check, tune_steps, rows, tuned=tuned)


def sweep_by_density(target: Target, blocks: Sequence[np.ndarray]) -> Sweep:
    """Make the sweep for any model, which evaluates its log density once for every block.

    Parameters
    ----------
    target : Target
        A target whose coordinates are the variables themselves.
    blocks : sequence of array
        A partition of the parameters into blocks, by their numbers; see :mod:`pymc_gibbsnn.samplers.blocks`.

    Returns
    -------
    callable
        The ``sweep`` that :func:`fnbg` takes.
    """
    shapes = [tuple(evaluate(x.shape)) for x in target.coordinates.values()]
    count = sum(map(math.prod, shapes))
    members = np.zeros((len(blocks), count), bool)
    for q, block in enumerate(blocks):
        members[q, block] = True

    def parts(theta: Variable) -> list[Variable]:
        return [loose(v.type).filter_variable(x) for v, x in zip(target.variables, cut(theta, shapes), strict=True)]

    def sweep(state: dict, steps: Variable, log_u: Variable, rows: Variable | None) -> tuple[dict, Variable, Variable]:
        data = {} if rows is None else {"rows": rows}

        def density(theta: Variable) -> Variable:
            return pt.cast(target.log_likelihood(parts(theta), data), steps.dtype)

        def move(member, log_u, theta, current, steps):
            new_theta = pt.specify_shape(pt.switch(member, theta + steps, theta), theta.shape)
            new = density(new_theta)
            log_ratio = new - current
            accepted = log_u < log_ratio  # false if the ratio is NaN
            return pt.switch(accepted, new_theta, theta), pt.switch(accepted, new, current), log_ratio

        # So cut, the vector has the number of parameters that a program is given, and that JAX knows when it compiles.
        theta = pt.concatenate([x.ravel() for x in target.locate(state, data)])[: given(count)]
        thetas, densities, log_ratios = pytensor.scan(
            move,
            sequences=[given(members), log_u],
            outputs_info=[theta, density(theta), None],
            non_sequences=[steps],
            n_steps=sizes((len(blocks),))[0],
            return_updates=False,
        )
        return dict(zip(target.variables, parts(thetas[-1]), strict=True)), log_ratios, densities[-1]

    return sweep


def cut(vector: Variable, shapes: Sequence[tuple[int, ...]]) -> list[Variable]:
    """Cut a vector into arrays of these shapes, which a program is given."""
    lengths = [math.prod(shape) for shape in shapes]
    ends = np.cumsum(lengths)
    pieces = [vector[given(end - length) : given(end)] for length, end in zip(lengths, ends, strict=True)]
    return [piece.reshape(sizes(shape)) for piece, shape in zip(pieces, shapes, strict=True)]


def _scales(
    scale: float | Sequence[float] | None, blocks: Sequence[np.ndarray], layers: Sequence[LayerNodes]
) -> np.ndarray:
    """Return the scale of each block, from one number, one for each layer or one for each block."""
    if scale is None:
        return np.full(len(blocks), FIRST_SCALE)
    scales = positive_numbers("scale", scale, "the standard deviation of the proposals")
    if scales.ndim == 0:
        return np.full(len(blocks), scales)
    if scales.shape == (len(layers),):
        sizes = [sum(np.isin(block, layer.parameters).all() for layer in layers) for block in blocks]
        if not all(sizes):
            raise ValueError("scale holds a number for each layer, but a block holds parameters of several layers.")
        of = [next(i for i, layer in enumerate(layers) if block[0] in layer.parameters) for block in blocks]
        return scales[of]
    if scales.shape != (len(blocks),):
        raise ValueError(
            f"scale must be one number, {len(layers)} (one a layer) or {len(blocks)} (one a block); "
            f"found shape {scales.shape}."
        )
    return scales


def _averages(blocks: Sequence[np.ndarray], layers: Sequence[LayerNodes]) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of averages over blocks (all, of a layer, of a node), and the share of each block in them."""
    size = sum(map(len, blocks))
    owner, node_of = np.empty(size, int), np.empty(size, int)
    for q, block in enumerate(blocks):
        owner[block] = q
    nodes = [node for layer in layers for node in layer.nodes]
    for k, node in enumerate(nodes):
        node_of[node] = k
    groups = {"acceptance_rate": np.arange(len(blocks))}
    groups |= {f"acceptance_{layer.name}": np.unique(owner[layer.parameters]) for layer in layers}
    if all((node_of[block] == node_of[block[0]]).all() for block in blocks):
        for layer in layers:
            if len(layer.nodes) <= MOST_NODES:
                groups |= {f"acceptance_{layer.name}_{k}": np.unique(owner[x]) for k, x in enumerate(layer.nodes)}
    shares = np.zeros((len(groups), len(blocks)))
    for row, group in zip(shares, groups.values(), strict=True):
        row[group] = 1 / len(group)
    return tuple(groups), shares

r"""The sweep of blocked Metropolis on a classical network, each block a piece of one unit's weights.

Of the layers ``Z_l = A_{l−1} W_lᵀ + b_l``, ``A_l = σ(Z_l)``, a step of unit k in layer l changes one column of Z_l, by
``A_{l−1}[:, piece] step``; then a column of A_l; then Z_{l+1} by a matrix of rank one; and only from there on whole
layers. All pre- and post-activations are kept while a sweep lasts. Those of the first layer change by ``X[:, piece]
step``, steps that are known beforehand: one product for each piece of all units.

The sweep is a deterministic function of the random numbers it is given, in three forms that share the formulas below:
NumPy, JAX, and Numba (:mod:`pymc_gibbsnn.transitions._fnbg_numba`). Arrays are kept unit by unit, (units, n), in all of
them. The law is that of :func:`pymc_gibbsnn.transitions.fnbg.sweep_by_density`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_funcify_and_cache_key, register_funcify_and_cache_key

from pymc_gibbsnn._compat import jax_op, source_key
from pymc_gibbsnn.deterministic import ClassicalNetwork, Elementwise
from pymc_gibbsnn.transitions._fnbg_numba import FAST, make_sweep
from pymc_gibbsnn.transitions.fnbg import Sweep

__all__ = ["UnitSweep", "sweep_by_units"]

Piece = tuple[int, int]


class UnitSweep(Op):
    """One visit to every piece of every unit's weights, layer by layer, unit by unit.

    Parameters
    ----------
    shapes : sequence of (int, int)
        (d_out, d_in) of each layer.
    has_bias : sequence of bool
    pieces : sequence of sequences of (int, int)
        For each layer, the stretches (first, end) into which the weights of each unit are cut, the bias being last.
    activations : sequence of Elementwise
    likelihood : {"categorical", "bernoulli", "normal"}

    Inputs
    ------
    x : (n, d)
    y : (n,) integers if categorical, else (n, k)
    theta, steps, precision : (p,)
        Weights, their steps and prior precisions, unit by unit, the bias of each last.
    log_u : (m,)
        Logarithm of a uniform number for each block.
    power : ()
        Of the likelihood; for a normal one, over its variance.

    Outputs
    -------
    theta after the sweep; log_ratios : (m,), log densities of each proposal less that of the current state;
    log_likelihood : (), after the sweep, without its constant
    """

    __props__ = ("shapes", "has_bias", "pieces", "activations", "likelihood")

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        has_bias: Sequence[bool],
        pieces: Sequence[Sequence[Piece]],
        activations: Sequence[Elementwise],
        likelihood: str,
    ):
        self.shapes, self.has_bias = tuple(map(tuple, shapes)), tuple(has_bias)
        self.pieces = tuple(map(tuple, pieces))
        self.activations, self.likelihood = tuple(activations), likelihood

    def make_node(self, *inputs):
        """One node; see the class for its inputs. The structure follows them as numbers, for Numba."""
        inputs = [pt.as_tensor(x) for x in inputs]
        _, _, theta, _, _, log_u, _ = inputs
        layers = [(d_out, d_in, bias) for (d_out, d_in), bias in zip(self.shapes, self.has_bias, strict=True)]
        blocks = [
            (l, k, first, end)
            for l, (d_out, _) in enumerate(self.shapes)
            for k in range(d_out)
            for first, end in self.pieces[l]
        ]
        structure = [pt.constant(np.array(numbers, "int64")) for numbers in (layers, blocks)]
        return Apply(self, [*inputs, *structure], [theta.type(), log_u.type(), pt.scalar(dtype=theta.dtype)])

    def infer_shape(self, *args):
        """Shapes of the outputs, from those of the inputs."""
        _, _, theta, _, _, log_u, *_ = args[-1]  # PyTensor 2 passes the graph first
        return [theta, log_u, ()]

    def matrices(self, theta):
        """[W, b] of each layer from the vector of all weights."""
        shapes = [(d_out, d_in + bias) for (d_out, d_in), bias in zip(self.shapes, self.has_bias, strict=True)]
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        return [theta[end - math.prod(shape) : end].reshape(shape) for shape, end in zip(shapes, ends, strict=True)]

    def perform(self, node, inputs, outputs):
        """Run with NumPy."""
        x, y, theta, steps, precision, log_u, power, *_ = inputs
        functions = [_numpy_function(activation) for activation in self.activations]
        w, steps, precision = (self.matrices(np.asarray(vector)) for vector in (theta, steps, precision))
        state, y = _start(self, w, x, y, functions, np), y.T
        log_ratios = []
        for l, (d_out, _) in enumerate(self.shapes):
            masks = _masks(self, l)
            shifts = _shifts(self, x, steps[0], np) if l == 0 else None
            for k, g in np.ndindex(d_out, len(masks)):
                state, log_ratio = _move(
                    self, l, k, state, steps[l][k] * masks[g], None if l else shifts[g, k], precision[l][k],
                    log_u[len(log_ratios)], y, power, functions, np,
                )  # fmt: skip
                log_ratios.append(log_ratio)
        w, _, _, log_likelihood = state
        outputs[0][0] = np.concatenate([matrix.ravel() for matrix in w]).astype(theta.dtype)
        outputs[1][0] = np.array(log_ratios, log_u.dtype)
        outputs[2][0] = np.asarray(log_likelihood, theta.dtype)


def sweep_by_units(network: ClassicalNetwork, numbers: np.ndarray, pieces: Sequence[Sequence[Piece]]) -> Sweep:
    """The sweep for a classical network, of whose units' weights the blocks are pieces.

    Parameters
    ----------
    network : ClassicalNetwork
    numbers : array
        Where the steps of the weights are found, unit by unit, the bias of each last.
    pieces : sequence of sequences of (int, int)
        For each layer, see :class:`UnitSweep`.
    """
    layers = network.layers
    op = UnitSweep(
        [layer.shape for layer in layers],
        [layer.has_bias for layer in layers],
        pieces,
        network.activations,
        network.likelihood,
    )

    def flat(values: dict[Variable, Variable]) -> Variable:
        """Numbers unit by unit."""
        return pt.concatenate([layer.matrix(values).ravel() for layer in layers])

    def sweep(state: dict, steps: Variable, log_u: Variable, rows: Variable | None) -> tuple[dict, Variable, Variable]:
        x, y, variance, weight = network.on(rows)
        if network.likelihood != "categorical":
            y = pt.cast(y, steps.dtype)
            y = y[:, None] if y.ndim == 1 else y
        power = weight / variance
        precision = pt.concatenate(
            [pt.broadcast_to(layer.precision, layer.augmented_shape).ravel() for layer in layers]
        )
        theta = flat(state)
        theta, log_ratios, log_likelihood = op(x, y, theta, steps[numbers], precision, log_u, power)
        lp = power * log_likelihood - 0.5 * (precision * theta**2 - pt.log(precision / (2 * math.pi))).sum()
        if network.likelihood == "normal":
            lp -= 0.5 * weight * pt.cast(y.size, theta.dtype) * pt.log(2 * math.pi * variance)
        state = {}
        for layer, matrix in zip(layers, op.matrices(theta), strict=True):
            state |= layer.values(matrix)
        return state, log_ratios, lp

    return sweep


# Formulas for NumPy and JAX. A state is (weights, pre-activations, post-activations, log-likelihood), lists by layer.


def _log_likelihood(kind: str, z, y, xp):
    if kind == "categorical":
        largest = z.max(axis=0)
        log_sum = largest + xp.log(xp.exp(z - largest).sum(axis=0))
        return (z[y, xp.arange(len(y))] - log_sum).sum()
    if kind == "bernoulli":
        return (y * z - xp.logaddexp(0, z)).sum()
    return -0.5 * ((y - z) ** 2).sum()


def _affine(w, a, has_bias: bool):
    return w[:, :-1] @ a + w[:, -1:] if has_bias else w @ a


def _start(op: UnitSweep, w: list, x, y, functions: Sequence[Callable], xp):
    """The state from the weights."""
    a, zs, posts = x.T, [], []
    for matrix, bias, function in zip(w, op.has_bias, [*functions, None], strict=True):
        zs.append(_affine(matrix, a, bias))
        if function is not None:
            a = function(zs[-1])
            posts.append(a)
    return w, zs, posts, _log_likelihood(op.likelihood, zs[-1], y.T, xp)


def _masks(op: UnitSweep, l: int) -> np.ndarray:
    """(pieces, d_in (+ 1)): which weights of a unit belong to each piece."""
    width = op.shapes[l][1] + op.has_bias[l]
    return np.array([[first <= i < end for i in range(width)] for first, end in op.pieces[l]], dtype=float)


def _shifts(op: UnitSweep, x, steps, xp):
    """(pieces, d_out, n): by how much each step of the first layer changes the pre-activation of its unit."""
    d_in, shifts = op.shapes[0][1], []
    for first, end in op.pieces[0]:
        shift = steps[:, first : min(end, d_in)] @ x[:, first : min(end, d_in)].T
        shifts.append(shift + steps[:, d_in:] if end > d_in else shift)
    return xp.stack(shifts)


def _move(op: UnitSweep, l: int, k, state, step, shift, precision, log_u, y, power, functions, xp):
    """(state, log ratio) after the move of a piece of unit k in layer l: its step, 0 outside the piece."""
    w, z, a, log_likelihood = state
    ws, zs, posts = list(w), list(z), list(a)
    row, d_in = w[l][k], op.shapes[l][1]
    if shift is None:
        shift = step[:d_in] @ a[l - 1] + step[d_in:].sum()
    here = xp.arange(len(w[l]))[:, None] == k
    ws[l], zs[l] = xp.where(here, row + step, w[l]), xp.where(here, z[l][k] + shift, z[l])
    if l < len(w) - 1:
        post = functions[l]((z[l][k] + shift)[None])[0]
        posts[l] = xp.where(here, post, a[l])
        zs[l + 1] = z[l + 1] + w[l + 1][:, k][:, None] * (post - a[l][k])
        for j in range(l + 1, len(w) - 1):
            posts[j] = functions[j](zs[j])
            zs[j + 1] = _affine(w[j + 1], posts[j], op.has_bias[j + 1])
    new_likelihood = _log_likelihood(op.likelihood, zs[-1], y, xp)
    log_ratio = power * (new_likelihood - log_likelihood) - 0.5 * (precision * step * (2 * row + step)).sum()
    accepted = log_u < log_ratio  # False where it is NaN

    def choose(new: list, old: list) -> list:
        return [x if x is y else xp.where(accepted, x, y) for x, y in zip(new, old, strict=True)]

    new = choose(ws, w), choose(zs, z), choose(posts, a), xp.where(accepted, new_likelihood, log_likelihood)
    return new, log_ratio


@cache
def _numpy_function(activation: Elementwise) -> Callable:
    return pytensor.function([activation.z], activation.output, mode="FAST_COMPILE")


@jax_op(UnitSweep)
def _jax(op, node, **kwargs):
    import jax
    import jax.numpy as jnp
    from pytensor.link.jax.dispatch import jax_funcify

    def in_jax(activation: Elementwise) -> Callable:
        function = jax_funcify(FunctionGraph([activation.z], [activation.output], clone=True))
        return lambda z: function(z)[0].astype(z.dtype)

    functions = [in_jax(activation) for activation in op.activations]

    def sweep(x, y, theta, steps, precision, log_u, power, *_):
        dtype = theta.dtype
        x, power = x.astype(dtype), jnp.asarray(power, dtype)
        w, steps, precision = (op.matrices(vector.astype(dtype)) for vector in (theta, steps, precision))
        state = _start(op, w, x, y, functions, jnp)
        log_ratios, done = [], 0
        for l, (d_out, _) in enumerate(op.shapes):
            masks = jnp.asarray(_masks(op, l), dtype)
            shifts = _shifts(op, x, steps[0], jnp) if l == 0 else None
            k, g = jnp.divmod(jnp.arange(d_out * len(masks)), len(masks))

            def block(state, number, l=l, masks=masks, shifts=shifts):
                k, g, log_u = number
                shift = None if shifts is None else shifts[g, k]
                return _move(
                    op, l, k, state, steps[l][k] * masks[g], shift, precision[l][k], log_u, y.T, power, functions, jnp
                )

            state, found = jax.lax.scan(block, state, (k, g, log_u[done : done + len(k)].astype(dtype)))
            log_ratios.append(found)
            done += len(k)
        w, _, _, log_likelihood = state
        return jnp.concatenate([matrix.ravel() for matrix in w]), jnp.concatenate(log_ratios), log_likelihood

    return sweep


@register_funcify_and_cache_key(UnitSweep)
def _numba(op, node, **kwargs):
    functions, keys = [], []
    for activation in op.activations:
        apply = activation.scalar_op.make_node(ps.get_scalar_type(node.outputs[0].dtype)())
        function, key = numba_funcify_and_cache_key(activation.scalar_op, node=apply)
        functions.append(FAST.get(activation.name, function))
        keys.append(key)
    if len(set(keys)) == 1 and keys[0] is not None:
        functions = functions[:1]  # serves all layers, however many: the code is found in the cache
        keys = keys[:1]
    key = None if None in keys else sha256(f"{op.likelihood} {keys} {source_key(__file__)}".encode()).hexdigest()
    return make_sweep(functions, op.likelihood), key

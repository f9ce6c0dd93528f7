r"""The sweep of blocked Metropolis over a classical network, in which each block is a piece of one unit's weights.

In the layers ``Z_l = A_{l−1} W_lᵀ + b_l``, ``A_l = σ(Z_l)``, a step of unit k in layer l changes one column of Z_l, by
``A_{l−1}[:, piece] step``; then one column of A_l; then Z_{l+1}, by a matrix of rank one; and only from there on whole
layers. Layers are visited from the data upwards. While one moves, A_{l−1} and the weights above stay as they are: so
only Z_l and Z_{l+1} are kept, and the changes of Z_l by the steps of all units are one matrix product for each piece.

The sweep is a deterministic function of the random numbers that it is given, in three forms: NumPy and JAX share the
formulas below, and Numba has its own (:mod:`pymc_gibbsnn.samplers.fnbg_kernels`). In all of them arrays are kept with
units first, (units, n). Its draws have the same distribution as those of
:func:`pymc_gibbsnn.samplers.fnbg.sweep_by_density`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_funcify_and_cache_key

from pymc_gibbsnn._compat import shape_inference
from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.networks.deterministic import ClassicalNetwork, Elementwise
from pymc_gibbsnn.networks.given import given
from pymc_gibbsnn.networks.likelihoods import ClassicalLikelihood
from pymc_gibbsnn.samplers.fnbg import Sweep, cut
from pymc_gibbsnn.samplers.fnbg_kernels import FAST, make_sweep

__all__ = ["UnitSweep", "sweep_by_units"]

Piece = tuple[int, int]


class UnitSweep(Op):
    """One visit to every piece of every unit's weights, layer by layer, unit by unit.

    Parameters
    ----------
    shapes : sequence of (int, int)
        (d_out, d_in) of each layer.
    has_bias : sequence of bool
        Whether each layer has a bias.
    pieces : sequence of sequences of (int, int)
        For each layer, the stretches (first, end) into which the weights of each unit are cut, the bias being last.
    activations : sequence of Elementwise
        The activation of each hidden layer.
    likelihood : type of ClassicalLikelihood
        The likelihood of the network's outputs.

    Notes
    -----
    The inputs of a node are

    - x (n, d): the inputs of the network;
    - y: the data as the likelihood takes them (:attr:`~pymc_gibbsnn.networks.likelihoods.ClassicalLikelihood.data`);
    - theta, steps and precision (p,): weights, their steps and their prior precisions, unit by unit, with the bias of
      each unit last;
    - log_u (m,): the logarithm of a uniform number for each block;
    - power (): a factor by which the log density that the likelihood gives is multiplied.

    The outputs are theta after the sweep; log_ratios (m,), the log density of each proposal less that of the current
    state; and log_likelihood (), that after the sweep, without its constant.
    """

    __props__ = ("shapes", "has_bias", "pieces", "activations", "likelihood")

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        has_bias: Sequence[bool],
        pieces: Sequence[Sequence[Piece]],
        activations: Sequence[Elementwise],
        likelihood: type[ClassicalLikelihood],
    ):
        self.shapes, self.has_bias = tuple(map(tuple, shapes)), tuple(has_bias)
        self.pieces = tuple(map(tuple, pieces))
        self.activations, self.likelihood = tuple(activations), likelihood

    def make_node(self, *inputs):
        """Make the node of these inputs, which the class lists, and of the structure as numbers, which Numba reads."""
        inputs = [pt.as_tensor(x) for x in inputs]
        _, _, theta, _, _, log_u, _, *structure = inputs
        outputs = [theta.type(), log_u.type(), pt.scalar(dtype=theta.dtype)]
        if structure:  # the node is made anew for inputs of other types
            return Apply(self, inputs, outputs)
        layers = [(d_out, d_in, bias) for (d_out, d_in), bias in zip(self.shapes, self.has_bias, strict=True)]
        blocks = [
            (l, k, first, end)
            for l, (d_out, _) in enumerate(self.shapes)
            for k in range(d_out)
            for first, end in self.pieces[l]
        ]
        structure = [given(np.array(numbers, "int64")) for numbers in (layers, blocks)]
        return Apply(self, [*inputs, *structure], outputs)

    @shape_inference
    def infer_shape(self, shapes):
        """Return the shapes of the outputs, from those of the inputs."""
        _, _, theta, _, _, log_u, *_ = shapes
        return [theta, log_u, ()]

    def matrices(self, theta):
        """Cut the vector of all weights into the matrix [W, b] of each layer."""
        shapes = [(d_out, d_in + bias) for (d_out, d_in), bias in zip(self.shapes, self.has_bias, strict=True)]
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        return [theta[end - math.prod(shape) : end].reshape(shape) for shape, end in zip(shapes, ends, strict=True)]

    def perform(self, node, inputs, outputs):
        """Compute the outputs with NumPy."""
        functions = [_numpy_function(activation) for activation in self.activations]
        values = _sweep(self, *inputs[:7], functions, np, _loop)
        for storage, value, output in zip(outputs, values, node.outputs, strict=True):
            storage[0] = np.asarray(value, output.dtype)


def sweep_by_units(network: ClassicalNetwork, numbers: np.ndarray, pieces: Sequence[Sequence[Piece]]) -> Sweep:
    """Make the sweep for a classical network, in which every block is a piece of the weights of one unit.

    Parameters
    ----------
    network : ClassicalNetwork
        The network.
    numbers : array of int
        The numbers, among all parameters, of its weights, unit by unit, with the bias of each unit last.
    pieces : sequence of sequences of (int, int)
        For each layer, the stretches into which the weights of a unit are cut; see :class:`UnitSweep`.

    Returns
    -------
    callable
        The ``sweep`` that :func:`pymc_gibbsnn.samplers.fnbg.fnbg` takes.
    """
    layers = network.layers
    op = UnitSweep(
        [layer.shape for layer in layers],
        [layer.has_bias for layer in layers],
        pieces,
        network.activations,
        type(network.likelihood),
    )

    def flat(values: dict[Variable, Variable]) -> Variable:
        """Write the weights of all layers as one vector, unit by unit."""
        return pt.concatenate([layer.matrix(values).ravel() for layer in layers])

    def sweep(state: dict, steps: Variable, log_u: Variable, rows: Variable | None) -> tuple[dict, Variable, Variable]:
        x, likelihood, weight = network.on(rows)
        power = weight / likelihood.dispersion
        precision = pt.concatenate([pt.broadcast_to(layer.precision, layer.size).ravel() for layer in layers])
        theta = flat(state)
        steps = steps[given(numbers)]
        theta, log_ratios, log_likelihood = op(x, likelihood.data, theta, steps, precision, log_u, power)
        lp = power * log_likelihood - 0.5 * (precision * theta**2 - pt.log(precision / (2 * math.pi))).sum()
        lp += weight * likelihood.constant
        state = {}
        for layer, matrix in zip(layers, cut(theta, [layer.augmented_shape for layer in layers]), strict=True):
            state |= layer.values(matrix)
        return state, log_ratios, lp

    return sweep


# The formulas for NumPy and JAX, in which ``xp`` is the module, and ``scan`` a loop like that of jax.lax.


def _affine(w, a, has_bias: bool):
    """Compute W a + b (d_out, n) for activations a (d_in, n), where ``w`` is [W, b]."""
    return w[:, :-1] @ a + w[:, -1:] if has_bias else w @ a


def _shifts(steps, x, pieces: Sequence[Piece], xp):
    """Compute by how much the step of each piece changes the pre-activation of its unit.

    Parameters
    ----------
    steps : array, (d_out, d_in (+ 1))
        Steps of the weights and the bias of a layer.
    x : array, (n, d_in)
        Inputs of the layer.
    pieces : sequence of (int, int)
        The stretches into which the weights of a unit are cut.
    xp : module
        ``numpy`` or ``jax.numpy``.

    Returns
    -------
    array, (d_out, pieces, n)
    """
    d_in, shifts = x.shape[1], []
    for first, end in pieces:
        shift = steps[:, first : min(end, d_in)] @ x[:, first:end].T
        shifts.append(shift + steps[:, d_in:] if end > d_in else shift)
    return xp.stack(shifts, axis=1)


def _sweep(
    op: UnitSweep, x, y, theta, steps, precision, log_u, power, functions: Sequence[Callable], xp, scan: Callable
) -> tuple:
    """Compute the outputs of a :class:`UnitSweep` from its inputs.

    Parameters
    ----------
    op : UnitSweep
        The operation.
    x, y, theta, steps, precision, log_u, power : array
        Its inputs.
    functions : sequence of callable
        The activations of the hidden layers.
    xp : module
        ``numpy`` or ``jax.numpy``.
    scan : callable
        A loop like ``jax.lax.scan``.

    Returns
    -------
    tuple of array
    """
    w, steps, precision = (op.matrices(vector) for vector in (theta, steps, precision))
    y, last = y.T, len(w) - 1

    def log_likelihood(l: int, z):
        """Compute the log-likelihood from the pre-activations z of layer l."""
        for j in range(l, last):
            z = _affine(w[j + 1], functions[j](z), op.has_bias[j + 1])
        return op.likelihood.log_density(z, y, xp)

    def visit(l: int, z, z_next, current, shifts, log_priors, log_us):
        """Move all pieces of all units of layer l.

        It returns ((Z_{l+1}, log-likelihood), (Z_l, log ratios, accepted)) after the moves. The output layer counts as
        followed by a copy of itself.
        """
        activate = functions[l] if l < last else lambda z: z
        columns = w[l + 1][:, : len(z)].T if l < last else xp.eye(len(z), dtype=z.dtype)

        def move_unit(state, unit):
            row, column, *pieces = unit

            def move_piece(state, piece):
                row, z_next, current = state
                shift, log_prior, log_u = piece
                new_row = row + shift
                new_next = z_next + column[:, None] * (activate(new_row[None]) - activate(row[None]))
                new = log_likelihood(min(l + 1, last), new_next)
                log_ratio = power * (new - current) + log_prior
                accepted = log_u < log_ratio  # false if the ratio is NaN
                changed = zip((new_row, new_next, new), state, strict=True)
                return tuple(xp.where(accepted, one, other) for one, other in changed), (log_ratio, accepted)

            (row, *state), records = scan(move_piece, (row, *state), tuple(pieces))
            return tuple(state), (row, *records)

        return scan(move_unit, (z_next, current), (z, columns, shifts, log_priors, log_us))

    z = _affine(w[0], x.T, op.has_bias[0])
    current = log_likelihood(0, z)
    log_ratios, done = [], 0
    for l, pieces in enumerate(op.pieces):
        masks = xp.asarray(_masks(op, l), theta.dtype)
        # A weight moves once in a sweep, so that the change of the log prior by its step is known beforehand.
        log_priors = -0.5 * (precision[l] * steps[l] * (2 * w[l] + steps[l])) @ masks.T
        log_us = log_u[done : done + log_priors.size].reshape(log_priors.shape)
        z_next = _affine(w[l + 1], functions[l](z), op.has_bias[l + 1]) if l < last else z
        shifts = _shifts(steps[l], x, pieces, xp)
        (z_next, current), (z, ratios, accepted) = visit(l, z, z_next, current, shifts, log_priors, log_us)
        w[l] = xp.where(accepted @ masks > 0, w[l] + steps[l], w[l])
        log_ratios.append(ratios.ravel())
        done += log_us.size
        if l < last:
            x, z = functions[l](z).T, z_next
    return xp.concatenate([matrix.ravel() for matrix in w]), xp.concatenate(log_ratios), current


def _masks(op: UnitSweep, l: int) -> np.ndarray:
    """Mark with ones, in an array (pieces, d_in (+ 1)), which weights of a unit belong to each piece."""
    width = op.shapes[l][1] + op.has_bias[l]
    return np.array([[first <= i < end for i in range(width)] for first, end in op.pieces[l]], dtype=float)


def _loop(move: Callable, state: tuple, numbers: tuple) -> tuple:
    """Do what jax.lax.scan does, in a loop of Python."""
    outputs = []
    for row in zip(*numbers, strict=True):
        state, new = move(state, row)
        outputs.append(new)
    return state, tuple(np.array(column) for column in zip(*outputs, strict=True))


@cache
def _numpy_function(activation: Elementwise) -> Callable:
    """Compile an activation as a function of a NumPy array."""
    return pytensor.function([activation.z], activation.output, mode="FAST_COMPILE")


def _jax(op, node):
    """Make the function of the inputs of a :class:`UnitSweep` for JAX."""
    import jax
    import jax.numpy as jnp
    from pytensor.link.jax.dispatch import jax_funcify

    def in_jax(activation: Elementwise) -> Callable:
        function = jax_funcify(FunctionGraph([activation.z], [activation.output], clone=True))
        return lambda z: function(z)[0].astype(z.dtype)

    functions = [in_jax(activation) for activation in op.activations]

    def sweep(x, y, theta, *numbers):
        numbers = (jnp.asarray(number, theta.dtype) for number in numbers[:4])
        return _sweep(op, x.astype(theta.dtype), y, theta, *numbers, functions, jnp, jax.lax.scan)

    return sweep


def _numba(op, node):
    """Make the function of the inputs of a :class:`UnitSweep` for Numba, and say on what its code depends."""
    functions, keys = [], []
    for activation in op.activations:
        apply = activation.scalar_op.make_node(ps.get_scalar_type(node.outputs[0].dtype)())
        function, key = numba_funcify_and_cache_key(activation.scalar_op, node=apply)
        functions.append(FAST.get(activation.name, function))
        keys.append(key)
    if len(set(keys)) == 1 and keys[0] is not None:
        functions = functions[:1]  # one function serves any number of layers, so that the code is found in the cache
        keys = keys[:1]
    more = None if None in keys else (op.likelihood.__name__, keys)
    return make_sweep(functions, op.likelihood.kernel), more


declare(UnitSweep, numba=_numba, jax=_jax)

"""The sweep of :mod:`pymc_gibbsnn.samplers.fnbg_network` for Numba, in place, unit by unit.

Loops are written so that LLVM vectorises them. Numba's own exponential would prevent that: exponentials are those of
:func:`pymc_gibbsnn.backends.vector_math.exp`, and likelihoods take one logarithm of a product in place of many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pymc_gibbsnn.backends.vector_math import add_multiple, copy, copy_matrix, exp, vectorisable

__all__ = ["FAST", "make_sweep"]


@vectorisable
def _sigmoid(z):
    """The logistic function."""
    return 1.0 / (1.0 + exp(-z))


@vectorisable
def _tanh(z):
    """The hyperbolic tangent."""
    return 2.0 / (1.0 + exp(-2.0 * z)) - 1.0


FAST: dict[str, Callable] = {"sigmoid": _sigmoid, "tanh": _tanh}
"""Activations that are written in operations that LLVM can vectorise, by name."""


def _elementwise(function: Callable) -> Callable:
    """Make ``apply(z, a)``, which writes a function of each element of the matrix z into a."""

    @vectorisable
    def apply(z, a):
        for i in range(z.shape[0]):
            for j in range(z.shape[1]):
                a[i, j] = function(z[i, j])

    return apply


def _by_layer(functions: Sequence[Callable]) -> Callable:
    """Make ``apply(layer, z, a)``, which applies the function of a layer; the last one serves all later layers."""
    if not functions:
        return vectorisable(lambda layer, z, a: None)
    first = _elementwise(functions[0])
    if len(functions) == 1:
        return vectorisable(lambda layer, z, a: first(z, a))
    rest = _by_layer(functions[1:])

    @vectorisable
    def apply(layer, z, a):
        if layer == 0:
            first(z, a)
        else:
            rest(layer - 1, z, a)

    return apply


@vectorisable
def _add(z, factor, change, total):
    """Write z + factor · change into ``total``.

    Parameters
    ----------
    z, change, total : array, (n,)
    factor : float
    """
    for i in range(len(z)):
        total[i] = z[i] + factor * change[i]


@vectorisable
def _shifts(x, steps, pieces):
    """Compute (pieces, d_out, n): by how much the step of each piece changes the pre-activation of its unit."""
    d_in = x.shape[1]
    shifts = np.empty((len(pieces), len(steps), len(x)), steps.dtype)
    for g in range(len(pieces)):
        first, end = pieces[g]
        columns = np.empty((len(x), min(end, d_in) - first), x.dtype)
        for i in range(len(x)):
            for j in range(columns.shape[1]):
                columns[i, j] = x[i, first + j]
        np.dot(np.ascontiguousarray(steps[:, first : min(end, d_in)]), columns.T, shifts[g])
        if end > d_in:
            for k in range(len(steps)):
                for i in range(len(x)):
                    shifts[g, k, i] += steps[k, d_in]
    return shifts


@vectorisable
def _first_pre_activations(x, theta, layers, z):
    """Write the pre-activations of the first layer to z.

    Parameters
    ----------
    x : array, (n, d)
        The inputs.
    theta : array
        All weights.
    layers : array, (layers, 3)
        (d_out, d_in, has a bias) of each layer.
    z : array, (widest, n)
    """
    d_out, d_in, bias = layers[0]
    w = theta[: d_out * (d_in + bias)].reshape(d_out, d_in + bias)
    np.dot(np.ascontiguousarray(w[:, :d_in]), x.T, z[:d_out])
    if bias:
        for k in range(d_out):
            for i in range(len(x)):
                z[k, i] += w[k, d_in]


@vectorisable
def _pre_activations(l, a, theta, layers, z):
    """Write the pre-activations of layer l to z.

    Parameters
    ----------
    l : int
        The number of the layer.
    a : array, (widest + 1, n)
        The activations below it, and after them a row of ones.
    theta, layers, z
        As in :func:`_first_pre_activations`.
    """
    first = 0
    for j in range(l):
        first += layers[j, 0] * (layers[j, 1] + layers[j, 2])
    d_out, width = layers[l, 0], layers[l, 1] + layers[l, 2]
    np.dot(theta[first : first + d_out * width].reshape(d_out, width), a[:width], z[:d_out])


@vectorisable
def _pieces_of_a_unit(q, l, blocks):
    """Count the pieces of each unit of layer l, whose first block has the number q."""
    pieces = 0
    while q + pieces < len(blocks) and blocks[q + pieces, 0] == l and blocks[q + pieces, 1] == 0:
        pieces += 1
    return pieces


@vectorisable
def _plus_log_prior_ratio(log_ratio, theta, steps, precision):
    """Add log p(θ + s) − log p(θ) of normal priors to a number.

    Parameters
    ----------
    log_ratio : float
    theta, steps, precision : array
        θ, s, and the precisions of the priors.
    """
    for i in range(len(theta)):
        log_ratio -= 0.5 * precision[i] * steps[i] * (2 * theta[i] + steps[i])
    return log_ratio


def make_sweep(functions: Sequence[Callable], log_likelihood: Callable) -> Callable:
    """Make the sweep for Numba.

    Parameters
    ----------
    functions : sequence of callable
        The activation of each hidden layer, a function of a number; the last one serves all layers that follow.
    log_likelihood : callable
        The kernel of a likelihood, ``log_likelihood(z, y, scratch)`` of pre-activations z (k, n).

    Returns
    -------
    callable
        The function of the inputs of :class:`~pymc_gibbsnn.samplers.fnbg_network.UnitSweep`, and of ``layers``, with
        (d_out, d_in, has a bias) of each layer, and ``blocks``, with (layer, unit, first, end) of each block.
    """
    activate = _by_layer(functions)

    @vectorisable
    def activations(l, z, layers, a):
        """Write the activations of layer l to a, followed by a row of ones."""
        activate(l, z[: layers[l, 0]], a)
        a[layers[l, 0]] = 1

    @vectorisable
    def from_layer(l, z, y, theta, layers, a, above, s):
        """Compute the log-likelihood from the pre-activations z of layer l; a, above and s are scratch."""
        for j in range(l, len(layers) - 1):
            activations(j, z, layers, a)
            _pre_activations(j + 1, a, theta, layers, above)
            z = above
        return log_likelihood(z[: layers[-1, 0]], y, s)

    @vectorisable
    def next_layer(l, rows, z_next, column, posts, new_next):
        """Write the pre-activations above a unit of layer l, whose own move from rows[0] to rows[1], to ``new_next``.

        Before the move they are ``z_next``; ``column`` holds the weights from the unit to those above it; ``posts`` is
        scratch.
        """
        activate(l, rows, posts)
        _add(posts[1], -1, posts[0], posts[1])
        for j in range(len(column)):
            _add(z_next[j], column[j], posts[1], new_next[j])

    @vectorisable
    def sweep(x, y, theta, steps, precision, log_u, power, layers, blocks):
        n, last, widest = len(x), len(layers) - 1, layers[:, 0].max()
        x, theta = np.ascontiguousarray(x), theta.copy()
        steps, precision = np.ascontiguousarray(steps), np.ascontiguousarray(precision)
        z, z_next = np.empty((widest, n), theta.dtype), np.empty((widest, n), theta.dtype)
        new_next, above = np.empty((widest, n), theta.dtype), np.empty((widest, n), theta.dtype)
        a = np.empty((widest + 1, n), theta.dtype)
        rows, posts = np.empty((2, n), theta.dtype), np.empty((2, n), theta.dtype)  # of a unit, before and after a move
        scratch = np.empty((2, n), theta.dtype)
        _first_pre_activations(x, theta, layers, z)
        current = from_layer(0, z, y, theta, layers, a, above, scratch)

        log_ratios = np.empty_like(log_u)
        q = number = 0  # the number of the block, and that of the first weight of the layer
        for l in range(last + 1):
            d_out, width = layers[l, 0], layers[l, 1] + layers[l, 2]
            after = number + d_out * width  # the number of the first weight of the next layer
            pieces = _pieces_of_a_unit(q, l, blocks)
            cuts = blocks[q : q + pieces, 2:]
            own = steps[number:after].reshape(d_out, width)
            shifts = _shifts(x, own, cuts) if l == 0 else _shifts(a[: layers[l, 1]].T, own, cuts)
            if l < last:
                activations(l, z, layers, a)
                _pre_activations(l + 1, a, theta, layers, z_next)
            for k in range(d_out):
                for g in range(pieces):
                    copy(z[k], rows[0])
                    _add(z[k], 1, shifts[g, k], rows[1])
                    if l < last:
                        width_next = layers[l + 1, 1] + layers[l + 1, 2]
                        column = theta[after + k :: width_next][: layers[l + 1, 0]]
                        next_layer(l, rows, z_next, column, posts, new_next)
                    else:
                        copy_matrix(z, new_next)
                        copy(rows[1], new_next[k])
                    new = from_layer(min(l + 1, last), new_next, y, theta, layers, a, above, scratch)
                    first, end = number + k * width + cuts[g, 0], number + k * width + cuts[g, 1]
                    log_ratio = _plus_log_prior_ratio(
                        power * (new - current), theta[first:end], steps[first:end], precision[first:end]
                    )
                    log_ratios[q] = log_ratio
                    if log_u[q] < log_ratio:  # false if the ratio is NaN
                        current = new
                        add_multiple(steps[first:end], 1, theta[first:end])
                        copy(rows[1], z[k])
                        z_next, new_next = new_next, z_next
                    q += 1
            number = after
            if l < last:
                activations(l, z, layers, a)
                z, z_next = z_next, z
        final = np.empty((), theta.dtype)
        final[()] = current
        return theta, log_ratios, final

    return sweep

"""The sweep of :mod:`pymc_gibbsnn.transitions.fnbg_network` for Numba, in place, unit by unit.

What Numba does not take several numbers at a time it takes one at a time: exponentials are those of
:func:`pymc_gibbsnn._numba.exp`, and logarithms are taken of products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from pymc_gibbsnn._numba import exp, vectorisable

__all__ = ["FAST", "make_sweep"]

AT_ONCE = 8  # sums of exponentials whose product has one logarithm


@vectorisable
def _sigmoid(z):
    return 1.0 / (1.0 + exp(-z))


@vectorisable
def _tanh(z):
    return 2.0 / (1.0 + exp(-2.0 * z)) - 1.0


FAST: dict[str, Callable] = {"sigmoid": _sigmoid, "tanh": _tanh}
"""Activations in operations that LLVM can vectorise."""


def _elementwise(function: Callable) -> Callable:
    @vectorisable
    def apply(z, a):
        for i in range(z.shape[0]):
            for j in range(z.shape[1]):
                a[i, j] = function(z[i, j])

    return apply


def _by_layer(functions: Sequence[Callable]) -> Callable:
    """apply(layer, z, a), with the function of a layer; the last serves all layers that follow."""
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


# Log-likelihoods of z (units, n) and y, as the Op takes it; s is scratch, (2, n).


@vectorisable
def _sum_of_logs(s):
    total, product = 0.0, 1.0
    for i in range(len(s)):
        product *= s[i]
        if i % AT_ONCE == AT_ONCE - 1:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@vectorisable
def _categorical(z, y, s):
    largest, total = s[0], s[1]
    largest[:] = z[0]
    for k in range(1, z.shape[0]):
        for i in range(z.shape[1]):
            largest[i] = z[k, i] if z[k, i] > largest[i] else largest[i]
    total[:] = 0
    for k in range(z.shape[0]):
        for i in range(z.shape[1]):
            total[i] += exp(z[k, i] - largest[i])
    found = -_sum_of_logs(total)
    for i in range(z.shape[1]):
        found += z[y[i], i] - largest[i]
    return found


@vectorisable
def _bernoulli(z, y, s):
    found = 0.0
    for k in range(z.shape[0]):
        for i in range(z.shape[1]):
            s[0, i] = 1.0 + exp(-abs(z[k, i]))
        found -= _sum_of_logs(s[0])
        for i in range(z.shape[1]):
            found += y[i, k] * z[k, i] - max(z[k, i], 0)
    return found


@vectorisable
def _normal(z, y, s):
    found = 0.0
    for k in range(z.shape[0]):
        for i in range(z.shape[1]):
            found -= 0.5 * (y[i, k] - z[k, i]) ** 2
    return found


LIKELIHOODS = {"categorical": _categorical, "bernoulli": _bernoulli, "normal": _normal}


@vectorisable
def _affine(w, has_bias, a, z):
    """Write A Wᵀ + b of one layer to z; a and z are (units, n)."""
    d = a.shape[0]
    z[:] = np.dot(np.ascontiguousarray(w[:, :d]), a)
    if has_bias:
        for k in range(z.shape[0]):
            for i in range(z.shape[1]):
                z[k, i] += w[k, d]


@vectorisable
def _add(z, shift, factor):
    for i in range(len(z)):
        z[i] += factor * shift[i]


@vectorisable
def _shifts(x, steps, d_in, pieces):
    """(pieces, d_out, n), from the pieces (first, end) of the first layer."""
    shifts = np.empty((len(pieces), len(steps), len(x)), steps.dtype)
    for g in range(len(pieces)):
        first, end = pieces[g]
        columns = np.ascontiguousarray(x[:, first : min(end, d_in)])
        shifts[g] = np.dot(np.ascontiguousarray(steps[:, first : min(end, d_in)]), columns.T)
        if end > d_in:
            for k in range(len(steps)):
                shifts[g, k] += steps[k, d_in]
    return shifts


def make_sweep(functions: Sequence[Callable], likelihood: str) -> Callable:
    """The sweep for activations, functions of a number, and a likelihood."""
    activate, log_likelihood = _by_layer(functions), LIKELIHOODS[likelihood]

    @vectorisable
    def sweep(x, y, theta, steps, precision, log_u, power, layers, blocks):
        n, last = len(x), len(layers) - 1
        x, theta = np.ascontiguousarray(x), theta.copy()
        steps, precision = np.ascontiguousarray(steps), np.ascontiguousarray(precision)
        unit, number = np.zeros((2, last + 2), np.int64)  # where a layer's units and its weights begin
        for l in range(last + 1):
            unit[l + 1] = unit[l] + layers[l, 0]
            number[l + 1] = number[l] + layers[l, 0] * (layers[l, 1] + layers[l, 2])
        z, a = np.empty((unit[-1], n), theta.dtype), np.empty((unit[-1], n), theta.dtype)
        z_new, a_new = np.empty_like(z), np.empty_like(a)
        scratch, shift = np.empty((2, n), theta.dtype), np.empty(n, theta.dtype)

        d_out, d_in, bias = layers[0]
        w = theta[: number[1]].reshape(d_out, d_in + bias)
        z[:d_out] = np.dot(np.ascontiguousarray(w[:, :d_in]), x.T)
        if bias:
            for k in range(d_out):
                z[k] += w[k, d_in]
        for l in range(last):
            below, above = slice(unit[l], unit[l + 1]), slice(unit[l + 1], unit[l + 2])
            activate(l, z[below], a[below])
            w = theta[number[l + 1] : number[l + 2]].reshape(layers[l + 1, 0], -1)
            _affine(w, layers[l + 1, 2], a[below], z[above])
        current = log_likelihood(z[unit[last] :], y, scratch)

        pieces = 0  # of a unit of the first layer
        while pieces < len(blocks) and blocks[pieces, 0] == 0 and blocks[pieces, 1] == 0:
            pieces += 1
        shifts = _shifts(x, steps[: number[1]].reshape(d_out, d_in + bias), d_in, blocks[:pieces, 2:])

        log_ratios = np.empty_like(log_u)
        for q in range(len(blocks)):
            l, k, first, end = blocks[q]
            d_out, d_in, bias = layers[l]
            start = number[l] + k * (d_in + bias)
            if l == 0:
                shift[:] = shifts[q % pieces, k]
            else:
                shift[:] = 0
                for i in range(first, min(end, d_in)):
                    _add(shift, a[unit[l - 1] + i], steps[start + i])
                if end > d_in:
                    shift += steps[start + d_in]
            row = unit[l] + k
            z_new[row] = z[row] + shift
            if l < last:
                activate(l, z_new[row : row + 1], a_new[row : row + 1])
                shift[:] = a_new[row] - a[row]
                width = layers[l + 1, 1] + layers[l + 1, 2]
                for j in range(layers[l + 1, 0]):
                    above = unit[l + 1] + j
                    z_new[above] = z[above]
                    _add(z_new[above], shift, theta[number[l + 1] + j * width + k])
                for m in range(l + 1, last):
                    below, above = slice(unit[m], unit[m + 1]), slice(unit[m + 1], unit[m + 2])
                    activate(m, z_new[below], a_new[below])
                    w = theta[number[m + 1] : number[m + 2]].reshape(layers[m + 1, 0], -1)
                    _affine(w, layers[m + 1, 2], a_new[below], z_new[above])
            else:
                for j in range(d_out):
                    if j != k:
                        z_new[unit[l] + j] = z[unit[l] + j]
            new = log_likelihood(z_new[unit[last] :], y, scratch)
            log_ratio = power * (new - current)
            for i in range(start + first, start + end):
                log_ratio -= 0.5 * precision[i] * steps[i] * (2 * theta[i] + steps[i])
            log_ratios[q] = log_ratio
            if log_u[q] < log_ratio:  # False where it is NaN
                current = new
                theta[start + first : start + end] += steps[start + first : start + end]
                z[row], a[row] = z_new[row], a_new[row]
                for i in range(unit[min(l + 1, last)], unit[-1]):
                    z[i], a[i] = z_new[i], a_new[i]
        found = np.empty((), theta.dtype)
        found[()] = current
        return theta, log_ratios, found

    return sweep

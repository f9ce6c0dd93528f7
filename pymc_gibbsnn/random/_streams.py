r"""Random numbers inlined into Numba kernels, with a stream of their own for each block of samples.

A block is a run of 1024 samples that one thread works on. A stream is SplitMix64 [1]_: a counter that steps by a fixed
odd number, each value of which is hashed to 64 random bits. Its start is drawn from the ``Generator`` that the kernel
was given. Nothing links one number to the next but the counter, so that many can be computed at once; and the draws
depend on the blocks alone, not on which thread works on which block.

Normals and exponentials come from the ziggurat method of Marsaglia and Tsang [2]_: 256 horizontal layers of equal area
cover the graph of the density. A point is drawn in a random layer. Most often it lies within the width of the layer
above, hence below the density, and is accepted without any further computation.

A stream is passed around as an array of unsigned integers whose first entry is the counter; the functions move it on.

References
----------
.. [1] G. L. Steele, D. Lea, C. H. Flood. Fast splittable pseudorandom number generators. OOPSLA (2014).
.. [2] G. Marsaglia, W. W. Tsang. The ziggurat method for generating random variables. J. Stat. Software 5 (2000).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn.backends.threads import count_blocks
from pymc_gibbsnn.backends.vector_math import inlined, vectorisable

__all__ = ["exponential", "normal", "normals", "streams", "streams_of_blocks", "uniform", "uniforms"]

STEP = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio
FACTOR, OTHER_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
LAYERS = 256
LAYER = np.uint64(LAYERS - 1)  # the lowest 8 of the 64 random bits choose a layer
ONE, EIGHT, ELEVEN, TEN = np.uint64(1), np.uint64(8), np.uint64(11), np.int64(10)
S27, S30, S31, S32 = (np.uint64(k) for k in (27, 30, 31, 32))


# Where the tails begin: the places for which the highest of the layers ends at the greatest height of the density.
NORMAL_TAIL, EXPONENTIAL_TAIL = 3.6541528853610088, 7.697117470131050


def _layers(density: Callable, inverse: Callable, start: float, tail: float) -> np.ndarray:
    """The widths of the layers of a ziggurat, from the lowest to the width 0 at the top.

    The lowest layer is what lies below the height of the density at ``start``, with the tail beyond; its width here is
    that of the rectangle of this height and of the same area.

    Parameters
    ----------
    density : callable
        A density on x ≥ 0, not normalised, that falls from the value 1 at 0.
    inverse : callable
        Its inverse: the x at which the density has a given value.
    start : float
        Where the tail begins.
    tail : float
        The integral of the density from ``start`` to infinity.

    Returns
    -------
    array of shape (257,)
    """
    area = start * density(start) + tail
    widths = [area / density(start), start]
    while len(widths) < LAYERS:
        widths.append(inverse(area / widths[-1] + density(widths[-1])))
    return np.array([*widths, 0.0])


NORMAL_WIDTHS = _layers(
    lambda x: math.exp(-x * x / 2),
    lambda y: math.sqrt(-2 * math.log(y)),
    NORMAL_TAIL,
    math.sqrt(math.pi / 2) * math.erfc(NORMAL_TAIL / math.sqrt(2)),
)
EXPONENTIAL_WIDTHS = _layers(
    lambda x: math.exp(-x), lambda y: -math.log(y), EXPONENTIAL_TAIL, math.exp(-EXPONENTIAL_TAIL)
)
NORMAL_HEIGHTS, EXPONENTIAL_HEIGHTS = np.exp(-(NORMAL_WIDTHS**2) / 2), np.exp(-EXPONENTIAL_WIDTHS)
# What one unit of the remaining random bits is worth: 54 of them, with a sign, for a normal; 56 for an exponential.
NORMAL_UNITS, EXPONENTIAL_UNITS = NORMAL_WIDTHS * 2.0**-53, EXPONENTIAL_WIDTHS * 2.0**-56


@numba_njit
def streams(rng, count):
    """Start ``count`` streams from a NumPy ``Generator``: each row of the result is a stream."""
    starts = np.empty((count, 8), np.uint64)  # a row fills a cache line, so that no thread waits for another's
    for i in range(count):
        high, low = np.uint64(rng.random() * 2.0**32), np.uint64(rng.random() * 2.0**32)
        starts[i, 0] = (high << S32) | low
    return starts


@numba_njit
def streams_of_blocks(rng, n):
    """Start a stream for each of the blocks into which n samples are divided."""
    return streams(rng, count_blocks(n))


@inlined
def _hash(counter):
    """Hash a counter to 64 random bits."""
    u = (counter ^ (counter >> S30)) * FACTOR
    u = (u ^ (u >> S27)) * OTHER_FACTOR
    return u ^ (u >> S31)


@inlined
def _bits(stream):
    """The next 64 random bits of a stream."""
    stream[0] += STEP
    return _hash(stream[0])


@inlined
def _uniform(u):
    """Turn 64 random bits into a uniform number in [0, 1)."""
    return np.float64(u >> ELEVEN) * 2.0**-53


@inlined
def _normal_of_layer(u):
    """Turn 64 random bits into a layer k and a point x of it, of either sign; return (x, k)."""
    k = u & LAYER
    return np.float64(np.int64(u) >> TEN) * NORMAL_UNITS[k], k


@numba_njit
def uniform(stream):
    """Draw a uniform number in [0, 1)."""
    return _uniform(_bits(stream))


@numba_njit
def _finish_normal(stream, x, k):
    """Finish the draw of a normal whose first point x, of layer k, lies beyond the width of the layer above."""
    while True:
        if k == 0:
            while True:
                beyond = -math.log1p(-uniform(stream)) / NORMAL_TAIL
                if -2 * math.log1p(-uniform(stream)) > beyond * beyond:
                    return math.copysign(NORMAL_TAIL + beyond, x)
        low, high = NORMAL_HEIGHTS[k], NORMAL_HEIGHTS[k + ONE]
        if low + uniform(stream) * (high - low) < math.exp(-0.5 * x * x):
            return x
        x, k = _normal_of_layer(_bits(stream))
        if abs(x) < NORMAL_WIDTHS[k + ONE]:
            return x


@numba_njit
def normal(stream):
    """Draw a standard normal."""
    x, k = _normal_of_layer(_bits(stream))
    return x if abs(x) < NORMAL_WIDTHS[k + ONE] else _finish_normal(stream, x, k)


@numba_njit
def exponential(stream):
    """Draw an exponential of mean 1."""
    beyond = 0.0
    while True:
        u = _bits(stream)
        k = u & LAYER
        x = np.float64(u >> EIGHT) * EXPONENTIAL_UNITS[k]
        if x < EXPONENTIAL_WIDTHS[k + ONE]:
            return beyond + x
        if k == 0:
            beyond += EXPONENTIAL_TAIL  # an exponential beyond a point is that point plus a new exponential
            continue
        low, high = EXPONENTIAL_HEIGHTS[k], EXPONENTIAL_HEIGHTS[k + ONE]
        if low + uniform(stream) * (high - low) < math.exp(-x):
            return beyond + x


@vectorisable
def uniforms(stream, out):
    """Fill a vector with uniform numbers in [0, 1)."""
    start = stream[0]
    for i in range(len(out)):
        out[i] = _uniform(_hash(start + np.uint64(i + 1) * STEP))
    stream[0] = start + np.uint64(len(out)) * STEP


@vectorisable
def normals(stream, out):
    """Fill a vector of double precision with standard normals.

    A first loop, which the compiler vectorises, makes those that are accepted at once; a second one finishes the rest.
    """
    start = stream[0]
    for i in range(len(out)):
        x, k = _normal_of_layer(_hash(start + np.uint64(i + 1) * STEP))
        out[i] = x if abs(x) < NORMAL_WIDTHS[k + ONE] else np.inf
    stream[0] = start + np.uint64(len(out)) * STEP
    for i in range(len(out)):
        if out[i] == np.inf:  # go on with the same point: a new one would make the insides of layers too likely
            x, k = _normal_of_layer(_hash(start + np.uint64(i + 1) * STEP))
            out[i] = _finish_normal(stream, x, k)

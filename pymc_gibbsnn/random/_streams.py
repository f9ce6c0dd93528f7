r"""Random numbers inlined into Numba kernels: a stream for each block of samples.

A stream is SplitMix64 [1]_: a counter that steps by a fixed odd number, each value of it hashed to 64 random bits. Its
start is drawn from the Generator that the kernel was given. Nothing links one number to the next but the counter, so
that many can be had at once; and draws depend on the blocks alone, not on the threads that share them out.

Normals and exponentials are Marsaglia and Tsang's [2]_: 256 layers of equal area cover the density; a point of a layer
is mostly below the next layer's width and done.

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
LAYER = np.uint64(LAYERS - 1)  # the bits that name a layer
ONE, EIGHT, ELEVEN, TEN = np.uint64(1), np.uint64(8), np.uint64(11), np.int64(10)
S27, S30, S31, S32 = (np.uint64(k) for k in (27, 30, 31, 32))


# Where the tails begin if the highest of the layers is to end at the height of the density.
NORMAL_TAIL, EXPONENTIAL_TAIL = 3.6541528853610088, 7.697117470131050


def _layers(density: Callable, inverse: Callable, start: float, tail: float) -> np.ndarray:
    """Widths of the layers, from the bottom to 0 at the top, of a density that falls from 1.

    The lowest is what is below the density at ``start``, with the tail beyond: its width is that of a rectangle.
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
NORMAL_UNITS, EXPONENTIAL_UNITS = NORMAL_WIDTHS * 2.0**-53, EXPONENTIAL_WIDTHS * 2.0**-56  # of 54 bits, a sign; 56


@numba_njit
def streams(rng, count):
    """Starts of ``count`` streams: a row is what the functions below take, of which they move the first number on."""
    starts = np.empty((count, 8), np.uint64)  # a cache line each: threads do not wait for each other's
    for i in range(count):
        high, low = np.uint64(rng.random() * 2.0**32), np.uint64(rng.random() * 2.0**32)
        starts[i, 0] = (high << S32) | low
    return starts


@numba_njit
def streams_of_blocks(rng, n):
    """A stream for each block of n samples."""
    return streams(rng, count_blocks(n))


@inlined
def _hash(counter):
    u = (counter ^ (counter >> S30)) * FACTOR
    u = (u ^ (u >> S27)) * OTHER_FACTOR
    return u ^ (u >> S31)


@inlined
def _bits(stream):
    stream[0] += STEP
    return _hash(stream[0])


@inlined
def _uniform(u):
    return np.float64(u >> ELEVEN) * 2.0**-53


@inlined
def _normal_of_layer(u):
    """(x, k): a point of layer k, of either sign."""
    k = u & LAYER
    return np.float64(np.int64(u) >> TEN) * NORMAL_UNITS[k], k


@numba_njit
def uniform(stream):
    """In [0, 1)."""
    return _uniform(_bits(stream))


@numba_njit
def _finish_normal(stream, x, k):
    """The draw that began with a point of layer k beyond the next layer's width."""
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
    """A standard normal."""
    x, k = _normal_of_layer(_bits(stream))
    return x if abs(x) < NORMAL_WIDTHS[k + ONE] else _finish_normal(stream, x, k)


@numba_njit
def exponential(stream):
    """A standard exponential."""
    beyond = 0.0
    while True:
        u = _bits(stream)
        k = u & LAYER
        x = np.float64(u >> EIGHT) * EXPONENTIAL_UNITS[k]
        if x < EXPONENTIAL_WIDTHS[k + ONE]:
            return beyond + x
        if k == 0:
            beyond += EXPONENTIAL_TAIL  # it forgets
            continue
        low, high = EXPONENTIAL_HEIGHTS[k], EXPONENTIAL_HEIGHTS[k + ONE]
        if low + uniform(stream) * (high - low) < math.exp(-x):
            return beyond + x


@vectorisable
def uniforms(stream, out):
    """Fill a vector with uniforms in [0, 1)."""
    start = stream[0]
    for i in range(len(out)):
        out[i] = _uniform(_hash(start + np.uint64(i + 1) * STEP))
    stream[0] = start + np.uint64(len(out)) * STEP


@vectorisable
def normals(stream, out):
    """Fill a vector of double precision with standard normals: first where one point of a layer is enough."""
    start = stream[0]
    for i in range(len(out)):
        x, k = _normal_of_layer(_hash(start + np.uint64(i + 1) * STEP))
        out[i] = x if abs(x) < NORMAL_WIDTHS[k + ONE] else np.inf
    stream[0] = start + np.uint64(len(out)) * STEP
    for i in range(len(out)):
        if out[i] == np.inf:  # go on with its point: to begin afresh would favour the inside of layers
            x, k = _normal_of_layer(_hash(start + np.uint64(i + 1) * STEP))
            out[i] = _finish_normal(stream, x, k)

r"""The Pólya-Gamma distribution, exactly, for whole shapes and for all real ones from 1 on.

ω ~ PG(b, z) makes a logistic likelihood Gaussian [1]_: with κ = a − b/2,

    exp(a z)/(1 + exp z)^b = 2^{−b} exp(κ z) E exp(−ω z²/2),  ω ~ PG(b, 0),

and given z and the data ω is PG(b, z): b is 1 for a label, the number of trials for a binomial count, and y + r for a
negative binomial count y.

PG(b, z) = X/4, where X has the Laplace transform (cosh c/cosh √(c² + 2s))^b in s, with c = abs(z)/2. X is a sum of
independent variables of smaller shapes h. For 1 ≤ h < 2 the density of X at c = 0 is an alternating series [2]_,

    f_h(x) = 2^h Σ_n (−1)^n Γ(n + h)/(Γ(h) n!) g(x; 2n + h),     g(x; a) = a (2πx³)^{−1/2} exp(−a²/2x),

where g(·; a) is the density of the time at which a Brownian motion first reaches a; and it is never larger than the
first term. So X is drawn from the first term, which for c > 0 is tilted to the time at which a Brownian motion of drift
c first reaches h, an inverse Gaussian variable; and the proposal is accepted with probability

    ρ(x) = f_h(x)/(2^h g(x; h)),   on average (1 + exp(−2c))^{−h}.

For h = 1 a few terms give ρ in full precision: Jacobi's identity turns the series about for large x.

Why f_h is not larger than its first term: with s for √(2s) and q = exp(−2s), the transform of the difference is
2^h exp(−hs) [1 − (1 + q)^{−h}] = 2^h h ∫_0^1 exp(−s) (exp s + θ exp(−s))^{−h−1} dθ. Up to a constant,
1/(exp s + θ exp(−s)) is the transform of the time at which a skew Brownian motion gets from 0 to 1. Such times are
infinitely divisible, so that all powers of it are transforms of distributions, too.

For b < 32, ω is the sum of one X of shape h = b − ⌊b⌋ + 1, unless b is whole, and of others of shape 1. For larger b
see :mod:`pymc_gibbsnn.random._polya_gamma_saddlepoint`. The three backends share the formulas; what Numba draws it
computes in double precision, whatever the precision of the model.

References
----------
.. [1] N. G. Polson, J. G. Scott, J. Windle. Bayesian inference for logistic models using Pólya-Gamma latent variables.
   J. Amer. Statist. Assoc. 108 (2013), arXiv 1205.0310.
.. [2] J. Windle, N. G. Polson, J. G. Scott. Sampling Pólya-Gamma random variates: alternate and approximate techniques.
   arXiv 1405.0506 (2014).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.tensor.random.op import RandomVariable
from scipy.special import gamma

from pymc_gibbsnn.backends import vector_math
from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.threads import BLOCK, share
from pymc_gibbsnn.backends.vector_math import inlined, vectorisable
from pymc_gibbsnn.random._polya_gamma_saddlepoint import LEAST, NODES
from pymc_gibbsnn.random._polya_gamma_saddlepoint import formulas as formulas_of_large
from pymc_gibbsnn.random._streams import normal, normals, streams_of_blocks, uniform, uniforms

__all__ = ["PolyaGammaRV", "polya_gamma"]

TURN = 4.05  # from here on the first term of the series for large x is ρ of shape 1, with a relative error of 1e-17
END = 40.0  # from here on ρ is its bound, which is below 1e-17
TERMS = 33  # so many terms of the series are enough for x < END
CACHED = 512  # numbers that are drawn at a time, few enough for the nearest cache


class PolyaGammaRV(RandomVariable):
    r"""Pólya-Gamma variables ω ~ PG(b, z) [1]_, independently for n samples of k units.

    E ω = b tanh(z/2)/(2z), and E exp(−tω) = (cosh(z/2)/cosh √(z²/4 + t/2))^b.

    Parameters
    ----------
    b : (n, k)
        Shapes, whole or not, of at least 1; where b is 0, so is ω. Other shapes below 1 are not served: where b is one
        of them, or b or z is not finite, ω is NaN.
    z : (n, k)
        Tilts, of either sign.

    References
    ----------
    .. [1] N. G. Polson, J. G. Scott, J. Windle. Bayesian inference for logistic models using Pólya-Gamma latent
       variables. J. Amer. Statist. Assoc. 108 (2013), arXiv 1205.0310.
    """

    name = "polya_gamma"
    signature = "(n,k),(n,k)->(n,k)"
    dtype = "floatX"
    _print_name = ("PolyaGamma", "\\operatorname{PolyaGamma}")

    def _supp_shape_from_params(self, dist_params, param_shapes=None):
        # PyTensor's general rule asks for the shape of z's graph, which may be rewritten meanwhile.
        shape = dist_params[1].shape if param_shapes is None else param_shapes[1]
        return shape[-2], shape[-1]

    @classmethod
    def rng_fn(cls, rng, b, z, size=None):
        """Draw with NumPy.

        Parameters
        ----------
        rng : numpy.random.Generator
        b, z : array
            As in the class; both may have more axes in front, for several draws at once.
        size : None
            PyTensor passes it; the shape of the draw is that of ``z``.
        """
        b, c = (np.asarray(x, "float64").ravel() for x in np.broadcast_arrays(b, np.abs(z) / 2))
        is_served = np.isfinite(b + c) & ((b >= 1) | (b == 0))
        few, many = is_served & (b < LEAST), np.flatnonzero(is_served & (b >= LEAST))
        x = np.where(is_served, 0.0, np.nan)
        for shape, count in _parts(np.where(few, b, 0.0), np):
            pending = np.flatnonzero(count)
            while len(pending):
                h, u = shape[pending], rng.random((2, len(pending)))
                time, accepted = _attempt(rng.standard_normal(len(pending)), *u, h, c[pending], 1 / gamma(h + 1))
                x[pending[accepted]] += time[accepted]
                count[pending[accepted]] -= 1
                pending = pending[count[pending] > 0]
        while len(many):
            given = _large.prepare(b[many], c[many])
            proposal, compared, v = _large.propose(*(1.0 - rng.random((3, len(many)))), given)
            low, high = _large.bounds(b[many])
            accepted = compared <= low
            in_doubt = np.flatnonzero((compared > low) & (compared <= high))
            tilted = _large.tilted(b[many][in_doubt], v[in_doubt])
            terms = sum(_large.node(j, tilted) for j in range(1, NODES))
            accepted[in_doubt] = compared[in_doubt] <= _large.factor() * (0.5 + terms)
            x[many[accepted]] = proposal[accepted]
            many = many[~accepted]
        return (x / 4).reshape(np.shape(z))


polya_gamma = PolyaGammaRV()


def _parts(b, xp):
    """Divide shapes b, each 0 or at least 1, into parts: pairs of their shapes h and of how many there are of each."""
    whole = xp.floor(b)
    rest = b - whole
    return (1 + rest, xp.where(rest > 0, 1.0, 0.0)), (xp.ones_like(b), whole - (rest > 0))


def _add_terms(next_term, h, step, change):
    """Sum the series for ρ of a shape h.

    Parameters
    ----------
    next_term : callable
        (k, sum, term, step, h) to the sum with the next term, and that term.
    h : float or array
        The shape.
    step, change : float or array
        The ratio of the exponentials of the first two terms, and by what factor it changes from term to term.
    """
    rho, term = next_term(1, 1.0, 1.0, step, h)
    for k in range(2, TERMS):
        step = step * change
        rho, term = next_term(k, rho, term, step, h)
    return rho


def _formulas(
    xp: Any, where: Callable, exp: Callable, add_terms: Callable = _add_terms, compiled=lambda function: function
):
    """Make the formulas of one attempt, for arrays of ``numpy`` or ``jax.numpy`` or, ``compiled``, for numbers.

    Parameters
    ----------
    xp : module
        ``numpy``, ``jax.numpy`` or, for numbers, ``math``.
    where, exp : callable
        The functions of this name.
    add_terms : callable, optional
        ``_add_terms`` for a backend.
    compiled : callable, optional
        Numba's decorator.

    Returns
    -------
    attempt : callable
        A standard normal, uniform numbers u and w in [0, 1), the shape h, c and 1/Γ(h + 1) to (x, whether accepted).
    attempt_one : callable
        The same for h = 1, without h and 1/Γ(h + 1).
    """

    @compiled
    def propose(n, u, h, c):
        """The time x at which a Brownian motion of drift c reaches h; and 1/√x."""
        # (h − c x)²/x is the square of a standard normal n. This has two roots x, between which u decides (J. R.
        # Michael, W. R. Schucany, R. W. Haas, Amer. Statist. 30, 1976). No digits are lost, even for c = 0.
        size = abs(n)
        root = xp.sqrt(n * n + 4 * c * h)
        wide = root + size + 1e-30
        y = where(2 * u * root <= wide, wide / (2 * h), 2 * c / wide)
        y = where(y > 0.1, y, 0.1)  # times beyond 100 are not accepted, nor is 100 itself
        return 1 / (y * y), y

    @compiled
    def attempt_one(n, u, w, c):
        x, y = propose(n, u, 1.0, c)
        is_small = x < TURN
        e = exp(where(is_small, -4 * y * y, y * y / 2 - math.pi**2 / 8 * x))
        q = where(is_small, e, 0.0 * e)
        q2 = q * q
        q4 = q2 * q2
        # 1 − 3q + 5q³ − 7q⁶ + 9q¹⁰ − ...
        rho = 1 - (17 / 15) * q4 * q4
        rho = 1 - (15 / 13) * q4 * q2 * q * rho
        rho = 1 - (13 / 11) * q4 * q2 * rho
        rho = 1 - (11 / 9) * q4 * q * rho
        rho = 1 - (9 / 7) * q4 * rho
        rho = 1 - (7 / 5) * q2 * q * rho
        rho = 1 - (5 / 3) * q2 * rho
        rho = 1 - 3 * q * rho
        return x, 1 - w <= where(is_small, rho, (math.pi / 2) ** 1.5 * x * x * y * e)

    @compiled
    def next_term(k, rho, term, step, h):
        """Add term k ≥ 1 of the series to ρ, from the term before, without its last factor; return the sum and it."""
        term = -term * step * ((k - 1 + h) / k)
        return rho + term * (2 * k + h) / h, term

    @compiled
    def attempt(n, u, w, h, c, inverse):
        x, y = propose(n, u, h, c)
        # The first of the gamma variables of which X is the sum, of rate π²/8, gives a bound of f_h, and so of ρ.
        exponent = (h * y) ** 2 / 2 - math.pi**2 / 8 * x
        bound = (
            math.sqrt(2 * math.pi)
            * inverse
            * exp(h * math.log(math.pi / 4) + (h + 0.5) * xp.log(x) + where(exponent < 40.0, exponent, 40.0))
        )
        y = where(x < END, y, 1.0)
        step, change = exp(-2 * (1 + h) * y * y), exp(-4 * y * y)
        rho = add_terms(next_term, h, step, change)
        rho = where(
            (x < END) & ((rho < bound) | (exponent >= 40.0)), rho, bound
        )  # with the whole exponent it is above 1
        return x, 1 - w <= rho

    return attempt, attempt_one


_attempt, _ = _formulas(np, np.where, np.exp)
_large = formulas_of_large(np, np.where)


@inlined
def _where(condition, x, y):
    """One of two numbers."""
    return x if condition else y


_attempt_inlined, _attempt_one_inlined = _formulas(math, _where, vector_math.exp, inlined(_add_terms), inlined)


@vectorisable
def _attempt_ones(c, n, u, w):
    """Make an attempt for each of several numbers of shape 1.

    Parameters
    ----------
    c : array
        Halves of tilts.
    n : array
        Standard normals. Receives what is accepted, and −1 elsewhere.
    u, w : array
        Uniform numbers in [0, 1).
    """
    for i in range(len(c)):
        x, accepted = _attempt_one_inlined(n[i], u[i], w[i], c[i])
        n[i] = x if accepted else -1.0


@numba_njit
def _draw_part(stream, h, c):
    """Draw one X of a shape h between 1 and 2."""
    inverse = 1 / math.gamma(h + 1)
    while True:
        x, accepted = _attempt_inlined(normal(stream), uniform(stream), uniform(stream), h, c, inverse)
        if accepted:
            return x


def _large_sampler() -> Callable:
    """Make Numba's ``draw(stream, b, c)`` of one X of a large shape."""
    large = formulas_of_large(np, _where, numba_njit(error_model="numpy"))
    prepare, propose, bounds, tilted, node, _, factor = large

    @numba_njit
    def draw(stream, b, c):
        given = prepare(b, c)
        low, high = bounds(b)
        while True:
            x, compared, v = propose(1 - uniform(stream), 1 - uniform(stream), 1 - uniform(stream), given)
            if not compared > low:  # so that a tilt whose square overflows does not lead to an endless search
                return x
            if compared <= high:
                total, at = 0.5, tilted(b, v)
                for j in range(1, NODES):
                    total += node(j, at)
                if compared <= factor() * total:
                    return x

    return draw


_draw_large = _large_sampler()


@numba_njit
def _draw_some(stream, b, c, x, work, places):
    """Draw some X, of any shapes.

    Parameters
    ----------
    stream : array
        The random stream.
    b, c : array of shape (n,)
        Shapes, and halves of tilts.
    x : array of shape (n,)
        Receives the draws.
    work : array of shape (5, n)
        Is overwritten.
    places : array of int of shape (n,)
        Is overwritten.
    """
    pending, c_left, count = 0, work[0], work[1]
    for i in range(len(b)):
        x[i] = 0.0
        if not (b[i] == 0 or 1 <= b[i] < math.inf) or not c[i] < math.inf:
            x[i] = math.nan
        elif b[i] >= LEAST:
            x[i] = _draw_large(stream, b[i], c[i])
        elif b[i] > 0:
            ones = math.floor(b[i])
            if b[i] > ones:
                x[i] = _draw_part(stream, 1 + b[i] - ones, c[i])
                ones -= 1
            places[pending], c_left[pending], count[pending] = i, c[i], ones
            pending += ones > 0
    while pending > 0:
        n, u, w = work[2, :pending], work[3, :pending], work[4, :pending]
        normals(stream, n)
        uniforms(stream, u)
        uniforms(stream, w)
        _attempt_ones(c_left[:pending], n, u, w)
        kept = 0
        for p in range(pending):
            accepted = n[p] >= 0
            i, ones = places[p], count[p] - accepted
            x[i] += n[p] if accepted else 0.0
            places[kept], c_left[kept], count[kept] = i, c_left[p], ones
            kept += ones > 0
        pending = kept


def _numba(op, node):
    """Make the sampler for Numba, which takes a ``Generator`` and the parameters of :class:`PolyaGammaRV`."""
    dtype = node.outputs[1].type.dtype

    @numba_njit
    def sample_block(block, streams, b, z, new):
        # Draws block ``block`` of samples, with its stream, into the same rows of ``new``.
        k, stream, end = z.shape[1], streams[block], min((block + 1) * BLOCK, len(z))
        rows = max(1, CACHED // max(k, 1))
        shape, c, x = np.empty(rows * k), np.empty(rows * k), np.empty(rows * k)
        work, places = np.empty((5, rows * k)), np.empty(rows * k, np.int64)
        for start in range(block * BLOCK, end, rows):
            some = min(rows, end - start) * k
            for e in range(some):
                shape[e], c[e] = b[start + e // k, e % k], abs(z[start + e // k, e % k]) / 2
            _draw_some(stream, shape[:some], c[:some], x[:some], work, places)
            for e in range(some):
                new[start + e // k, e % k] = x[e] / 4

    @numba_njit
    def sample(rng, b, z):
        new, streams = np.empty(z.shape, dtype), streams_of_blocks(rng, len(z))
        share(sample_block, len(streams), (streams, b, z, new))
        return new

    return sample, dtype


def _jax(op, node):
    """Make the sampler for JAX, which takes a key, size, dtype and the parameters of :class:`PolyaGammaRV`."""
    import jax
    import jax.numpy as jnp

    from pymc_gibbsnn.random._jax import open_uniform
    from pymc_gibbsnn.random._jax_normals import standard_normals

    def add_terms(next_term, h, step, change):
        # As a loop: written out, it would take long to compile.
        def add(k, state):
            rho, term, step = state
            return *next_term(k, rho, term, step, h), step * change

        ones = jnp.ones_like(h)
        return jax.lax.fori_loop(1, TERMS, add, (ones, ones, step))[0]

    attempt, attempt_one = _formulas(jnp, jnp.where, jnp.exp, add_terms)
    large = formulas_of_large(jnp, jnp.where)

    def repeat(turn, key, x, left, *given):
        """Repeat ``x, left = turn(key, x, left, *given)``, with a new key each time, until nothing is left to draw.

        Parameters
        ----------
        turn : callable
            It adds to x where something is left to draw, and returns less to draw where it did.
        key : key
            The random key.
        x, left : array of shape (n,)
            What was drawn so far, and how much is left to draw.
        *given : array of shape (n,), or tuples of such
            What else a turn takes.
        """

        def until(most, key, x, left, *given):
            def next_turn(state):
                key, subkey = jax.random.split(state[0])
                return key, *turn(subkey, *state[1:], *given)

            return jax.lax.while_loop(lambda state: (state[2] > 0).sum() > most, next_turn, (key, x, left))

        # A turn costs as much for few numbers as for all: the last ones go on by themselves.
        few = len(x) // 16
        key, x, left = until(few, key, x, left, *given)
        if few == 0:
            return x
        places = jnp.nonzero(left > 0, size=few, fill_value=len(x))[0]
        x_of_few, *given = jax.tree.map(lambda array: array.at[places].get(mode="clip"), (x, *given))
        left = left.at[places].get(mode="fill", fill_value=0)
        return x.at[places].set(until(0, key, x_of_few, left, *given)[1], mode="drop")

    def parts(attempt):
        """Make the turn that attempts to add one part to each number."""

        def turn(key, x, count, *given):
            of_normals, of_uniforms = jax.random.split(key)
            n = standard_normals(of_normals, x.shape, x.dtype)
            time, accepted = attempt(n, *open_uniform(of_uniforms, (2, *x.shape), x.dtype), *given)
            accepted &= count > 0
            return x + jnp.where(accepted, time, 0), count - accepted

        return turn

    def turn_of_large(key, x, left, given):
        """Attempt to draw each number of a large shape."""
        b, (low, high) = given[0], large.bounds(given[0])
        proposal, compared, v = large.propose(*open_uniform(key, (3, *x.shape), x.dtype), given)
        at_once = max(1, len(x) // 16)

        def decide(state):
            accepted, in_doubt = state
            places = jnp.nonzero(in_doubt, size=at_once, fill_value=len(x))[0]
            b_here, v_here, compared_here = (array.at[places].get(mode="clip") for array in (b, v, compared))
            tilted = large.tilted(b_here, v_here)
            start = jnp.zeros_like(v_here)
            terms = jax.lax.fori_loop(1, NODES, lambda j, total: total + large.node(j, tilted), start)
            accepted = accepted.at[places].set(compared_here <= large.factor() * (0.5 + terms), mode="drop")
            return accepted, in_doubt.at[places].set(False, mode="drop")

        start = ~(compared > low), (left > 0) & (compared > low) & (compared <= high)
        accepted, _ = jax.lax.while_loop(lambda state: state[1].any(), decide, start)
        accepted &= left > 0
        return jnp.where(accepted, proposal, x), left - accepted

    def sample(key, size, dtype, b, z):
        shape = jnp.shape(z)
        b, c = (jnp.asarray(x, dtype).ravel() for x in (b, abs(z) / 2))
        if c.size == 0:
            return c.reshape(shape)
        is_served = jnp.isfinite(b + c) & ((b >= 1) | (b == 0))
        is_large = is_served & (b >= LEAST)
        c = jnp.where(is_served, c, 0)
        (h, fractions), (_, ones) = _parts(jnp.where(is_served & ~is_large, b, 0), jnp)
        inverse = jnp.exp(-jax.scipy.special.gammaln(h + 1))
        keys = jax.random.split(key, 3)
        x = repeat(parts(attempt), keys[0], jnp.zeros_like(c), fractions, h, c, inverse)
        x = repeat(parts(attempt_one), keys[1], x, ones, c)
        given = large.prepare(jnp.where(is_large, b, LEAST), c)
        x = repeat(turn_of_large, keys[2], x, is_large.astype(int), given)
        return jnp.where(is_served, x / 4, jnp.nan).reshape(shape).astype(dtype)

    return sample


declare(PolyaGammaRV, numba=_numba, jax=_jax)

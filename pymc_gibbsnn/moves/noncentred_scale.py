r"""The scale of each unit of a layer once more, its noise held fixed and its post-activations integrated out.

The map of :mod:`pymc_gibbsnn.moves.centred_scale` also multiplies the noise of a unit. These are n numbers of known
variance, so that the map moves log c by only about 1/sqrt(4n), however wide the posterior of the scale is. Here the
noise E_j = Z_j − M_j, with M = Ã W̃ᵀ, stays as it is (this is the other parametrisation of interweaving [1]_):

    W̃_j → c W̃_j,    Z_j → c M_j + E_j,    w_j → s w_j,    s = 1/c.

Where σ(cz) = c σ(z), the mean of the layer above then changes only by δ w_j, with δ = σ(M_j + s E_j) − σ(M_j + E_j).
With u = log c, R = Y − σ(Z) Wᵀ, S = ΔZ' I + ΔA W Wᵀ, pull = R S⁻¹ w_j, κ = w_jᵀ S⁻¹ w_j and f = ΔA (s² − 1), exactly

    log p(u)/p(0) = (d − c_out) u − ½ Q1 (c² − 1) − ½ Q2 (s² − 1) − (n/2) log(1 + fκ)
                    + Σ_μ [δ pull − ½ κ δ² + ½ f/(1 + fκ) (pull − κ δ)²],

where μ runs over samples, Q1 = Σ Λ_j W̃_j² over the d weights that come in, and Q2 = Σ Λ' w_j² over the c_out weights
that go out. One step of slice sampling [2]_ moves u: an interval of length 1, laid over u = 0 at random, shrinks
towards 0 until a random point of it lies in the slice.

References
----------
.. [1] Y. Yu, X.-L. Meng. To center or not to center: that is not the question. J. Comput. Graph. Stat. 20 (2011).
.. [2] R. M. Neal. Slice sampling. Annals of Statistics 31 (2003).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.tensor.random import uniform

from pymc_gibbsnn._compat import draw, shape_inference
from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.threads import BLOCK
from pymc_gibbsnn.backends.vector_math import add_multiple, summing
from pymc_gibbsnn.moves.site import Move, Site
from pymc_gibbsnn.networks.activations import PiecewiseLinear

__all__ = ["NoncentredScale", "draw_noncentred_scales", "noncentred_scales"]

# How many points are tried for one scale. A slice of width .02 takes seven on average; of slices as narrow as 2e-4, one
# in four thousand is not found. The scale then stays as it is, which leaves the law invariant too.
POINTS = 32


class NoncentredScale(Op):
    """One slice-sampling step for the scale of each unit in turn: a deterministic function of given random numbers.

    Notes
    -----
    The inputs of a node are

    - m, z (n, h): M and Z;
    - y (n, c): the output of the layer above, less its bias and offset;
    - v, g (c, h): the weights W of the layer above, without bias, and its gain S⁻¹ W;
    - incoming, outgoing (h,): Q1 and Q2 of each unit;
    - noise (): ΔA;
    - power (): d − c_out;
    - log_u (h,): the logarithm of a uniform number, the height of the slice below log p(0);
    - points (h, p): uniform numbers, first for the place of the interval, then for points in what is left of it;
    - bends (2,): α and β of σ(z) = α z + β |z|, the form of every homogeneous function.

    The output u (h,) is log c of each unit.
    """

    __props__ = ()

    def make_node(self, *inputs):
        """Make the node of these inputs, which the class lists."""
        inputs = [pt.as_tensor(x) for x in inputs]
        return Apply(self, inputs, [inputs[9].type()])

    @shape_inference
    def infer_shape(self, shapes):
        """Return the shape of the output, from those of the inputs."""
        return [shapes[9]]

    def perform(self, node, inputs, outputs):
        """Compute the output with NumPy."""
        m, z, y, v, g, incoming, outgoing, noise, power, log_u, points, bends = inputs
        v, g, u = v.T.copy(), g.T.copy(), np.zeros_like(log_u)
        r = y - _line(z, bends, np) @ v
        for j in range(len(u)):
            log_ratio, changes = _unit(r, m[:, j], z[:, j], v, g, j, incoming[j], outgoing[j], noise, power, bends, np)
            low, high = -points[j, 0], 1 - points[j, 0]
            for point in points[j, 1:]:
                new = low + point * (high - low)
                if log_u[j] < log_ratio(new):
                    u[j] = new
                    r, v, g = changes(new)
                    break
                low, high = (new, high) if new < 0 else (low, new)
        outputs[0][0] = u


def draw_noncentred_scales(
    rng: Variable,
    m: Variable,
    z: Variable,
    y: Variable,
    v: Variable,
    g: Variable,
    incoming: Variable,
    outgoing: Variable,
    noise: Variable,
    power: int,
    function: PiecewiseLinear,
) -> tuple[Variable, Variable]:
    """Draw a scale for each unit of a layer by one step of slice sampling.

    Parameters
    ----------
    rng : Variable
        The random generator.
    m, z : Variable, (n, h)
        M and Z.
    y : Variable, (n, c)
        Output of the layer above, less its bias and offset.
    v, g : Variable, (c, h)
        Weights W of the layer above, without bias, and its gain S⁻¹ W.
    incoming, outgoing : Variable, (h,)
        Q1 and Q2 of each unit.
    noise : Variable, ()
        The variance ΔA.
    power : int
        d − c_out.
    function : PiecewiseLinear
        The activation σ, which must be homogeneous: σ(cz) = c σ(z).

    Returns
    -------
    rng : Variable
    c : Variable, (h,)
        Positive scales.
    """
    h = z.shape[1]
    zero, one = pt.constant(np.array([0, 1], z.dtype))
    rng, numbers = draw(uniform, rng, zero, one, size=(h, POINTS + 2))
    left, right = function.slopes[0], function.slopes[-1]
    bends = pt.constant(np.array([right + left, right - left], z.dtype) / 2)
    power = pt.constant(np.asarray(power, z.dtype))
    log_u, points = pt.log1p(-numbers[:, 0]), numbers[:, 1:]
    u = NoncentredScale()(m, z, y, v, g, incoming, outgoing, noise, power, log_u, points, bends)
    return rng, pt.exp(u)


@Move
def noncentred_scales(rng: Variable, site: Site, carry: dict) -> tuple[Variable, Site, dict, dict]:
    """Draw a scale for each unit of a layer, with A integrated out, and apply it to its weights and outgoing weights.

    The activation must be homogeneous, σ(cz) = c σ(z), and the layer without offset. A is left out of date.
    """
    operator, above, activation = site.layer.operator, site.above.operator, site.activation
    surroundings = site.mean, site.z, site.y, site.v, site.gain
    law = operator.incoming(site.w), above.outgoing(site.w_above), activation.noise, operator.fan_in - above.fan_out
    rng, c = draw_noncentred_scales(rng, *surroundings, *law, activation.function)
    scaled = {"w": operator.scaled(site.w, c), "mean": site.mean * c, "z": site.z + site.mean * (c - 1)}
    return rng, replace(site, **scaled, w_above=above.relieved(site.w_above, c)), carry, {}


def _line(z, bends, xp):
    """Compute the homogeneous function σ(z) = α z + β |z|, for ``bends`` = (α, β)."""
    return bends[0] * z + bends[1] * xp.abs(z)


def _unit(r, m, z, v, g, j, incoming, outgoing, noise, power, bends, xp):
    """Make two functions of u for unit j, for NumPy and JAX.

    Parameters
    ----------
    r : array, (n, c)
        The residual R.
    m, z : array, (n,)
        M and Z of the unit.
    v, g : array, (h, c)
        Wᵀ and Gᵀ of the layer above.
    j : int
        The number of the unit.
    incoming, outgoing, noise, power : float
        Q1, Q2, ΔA and d − c_out.
    bends : array, (2,)
        α and β of σ(z) = α z + β |z|.
    xp : module
        ``numpy`` or ``jax.numpy``.

    Returns
    -------
    log_ratio : callable
        u to log p(u)/p(0).
    changes : callable
        u to R, Wᵀ and Gᵀ after the unit has moved by u.
    """
    w, gain = v[j], g[j]
    kappa, pull, s0 = w @ gain, r @ gain, _line(z, bends, xp)

    def change(u):
        return noise * xp.expm1(-2 * u), _line(m + xp.exp(-u) * (z - m), bends, xp) - s0

    def log_ratio(u):
        f, delta = change(u)
        prior = power * u - (incoming * xp.expm1(2 * u) + outgoing * xp.expm1(-2 * u)) / 2
        wider = f / (1 + f * kappa) * (pull - kappa * delta) ** 2 - kappa * delta**2
        return prior - len(z) / 2 * xp.log1p(f * kappa) + (delta * pull + wider / 2).sum()

    def changes(u):
        f, delta = change(u)
        columns = xp.where(xp.arange(len(v)) == j, xp.exp(-u), 1)[:, None]
        g_new = g - f / (1 + f * kappa) * (v @ gain)[:, None] * gain
        return r - delta[:, None] * w, v * columns, g_new * columns

    return log_ratio, changes


def _jax(op, node):
    """Make the function of the inputs of :class:`NoncentredScale` for JAX, which scans over units."""
    import jax
    import jax.numpy as jnp

    dtype = node.outputs[0].dtype

    def scales(*inputs):
        # Inputs of a model in single precision may arrive here in double: JAX's sums promote them.
        m, z, y, v, g, incoming, outgoing, noise, power, log_u, points, bends = (jnp.asarray(i, dtype) for i in inputs)

        def unit(state, numbers):
            j, m, z, incoming, outgoing, log_u, points = numbers
            log_ratio, changes = _unit(state[0], m, z, *state[1:], j, incoming, outgoing, noise, power, bends, jnp)

            def shrink(search):
                k, low, high, u, _ = search
                low, high = jnp.where(u < 0, u, low), jnp.where(u < 0, high, u)
                u = low + points[k] * (high - low)
                return k + 1, low, high, u, log_u < log_ratio(u)

            low = -points[0]
            start = jnp.asarray(1), low, low + 1, low, jnp.asarray(False)
            *_, u, found = jax.lax.while_loop(lambda search: ~search[-1] & (search[0] < len(points)), shrink, start)
            u = jnp.where(found, u, 0)
            return changes(u), u

        v, g = v.T, g.T
        r = y - _line(z, bends, jnp) @ v
        units = jnp.arange(len(v)), m.T, z.T, incoming, outgoing, log_u, points
        return jax.lax.scan(unit, (r, v, g), units)[1]

    return scales


# Numba goes through samples in blocks; sums have the precision of the samples within a block, and double over blocks.


@numba_njit
def _residuals(y, s, v):
    """Compute Y − σ(Z) Wᵀ, from Y (n, c), σ(Z)ᵀ (h, n) and W (c, h), as an array (c, n)."""
    r = np.empty((y.shape[1], y.shape[0]), y.dtype)
    for start in range(0, len(y), BLOCK):
        stop = start + BLOCK
        r[:, start:stop] = y[start:stop].T
        for k in range(len(r)):
            for j in range(len(s)):
                add_multiple(s[j, start:stop], -v[k, j], r[k, start:stop])
    return r


@numba_njit
def _pull(r, delta, w, gain, pull):
    """Subtract the last unit's change from the residual, and compute the pull at the next unit.

    Parameters
    ----------
    r : array, (c, n)
        The residual R, transposed, from which δ w is subtracted.
    delta : array, (n,)
        δ of the last unit.
    w : array, (c,)
        Its outgoing weights.
    gain : array, (c,)
        The column of G of the next unit.
    pull : array, (n,)
        Receives R · gain.
    """
    for start in range(0, len(pull), BLOCK):
        stop = start + BLOCK
        pull[start:stop] = 0
        for k in range(len(r)):
            add_multiple(delta[start:stop], -w[k], r[k, start:stop])
            add_multiple(r[k, start:stop], gain[k], pull[start:stop])


@summing
def _inner(x, y):
    """Compute Σ x y over two vectors."""
    total = 0.0
    for start in range(0, len(x), BLOCK):
        of_block = x.dtype.type(0)
        for i in range(start, min(start + BLOCK, len(x))):
            of_block += x[i] * y[i]
        total += of_block
    return total


@summing
def _sums(m, e, s0, pull, s, bends):
    """Compute Σ δ pull and Σ δ² over the samples of one unit.

    Parameters
    ----------
    m, e : array, (n,)
        M and the noise E of the unit.
    s0 : array, (n,)
        σ(M + E).
    pull : array, (n,)
        The pull of the layer above.
    s : float
        1/c.
    bends : array, (2,)
        α and β of σ(z) = α z + β |z|.

    Returns
    -------
    first, second : float
        The two sums.
    """
    first = second = 0.0
    s = m.dtype.type(s)
    for start in range(0, len(m), BLOCK):
        first_of_block = second_of_block = m.dtype.type(0)
        for i in range(start, min(start + BLOCK, len(m))):
            x = m[i] + s * e[i]
            delta = bends[0] * x + bends[1] * abs(x) - s0[i]
            first_of_block += delta * pull[i]
            second_of_block += delta * delta
        first, second = first + first_of_block, second + second_of_block
    return first, second


def _numba(op, node):
    """Make the function of the inputs of :class:`NoncentredScale` for Numba, in a loop over units."""

    @numba_njit
    def scales(m, z, y, v, g, incoming, outgoing, noise, power, log_u, points, bends):
        n, h = len(y), len(log_u)
        v, g, u = v.copy(), g.copy(), np.zeros_like(log_u)
        m, e = np.ascontiguousarray(m.T), np.ascontiguousarray(z.T)
        s0 = bends[0] * e + bends[1] * np.abs(e)
        e = e - m
        r, pull, delta, w = _residuals(y, s0, v), np.empty(n, z.dtype), np.zeros(n, z.dtype), np.zeros(len(v), v.dtype)
        for j in range(h):
            kappa = (v[:, j] * g[:, j]).sum()
            _pull(r, delta, w, g[:, j], pull)
            square = _inner(pull, pull)
            w[:] = 0  # if this unit does not move, nothing is to be subtracted from the residual
            low, high = -points[j, 0], 1 - points[j, 0]
            for point in points[j, 1:]:
                new = low + point * (high - low)
                f = noise.item() * math.expm1(-2 * new)
                first, second = _sums(m[j], e[j], s0[j], pull, math.exp(-new), bends)
                log_ratio = (
                    power.item() * new
                    - 0.5 * (incoming[j] * math.expm1(2 * new) + outgoing[j] * math.expm1(-2 * new))
                    - 0.5 * n * math.log1p(f * kappa)
                    + first
                    - 0.5 * kappa * second
                    + 0.5 * f / (1 + f * kappa) * (square - 2 * kappa * first + kappa**2 * second)
                )
                if log_u[j] < log_ratio:
                    u[j] = new
                    x = m[j] + z.dtype.type(math.exp(-new)) * e[j]
                    delta[:], w[:] = bends[0] * x + bends[1] * np.abs(x) - s0[j], v[:, j]
                    gain = g[:, j].copy()
                    for i in range(h):
                        g[:, i] -= f / (1 + f * kappa) * (gain * v[:, i]).sum() * gain
                    v[:, j] *= math.exp(-new)
                    g[:, j] *= math.exp(-new)
                    break
                if new < 0:
                    low = new
                else:
                    high = new
        return u

    return scales


declare(NoncentredScale, numba=_numba, jax=_jax)

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

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.random import uniform

from pymc_gibbsnn._compat import shape_inference
from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.backends.jax_backend import by_platform
from pymc_gibbsnn.moves.noncentred_kernels import numba_scales
from pymc_gibbsnn.moves.site import Site
from pymc_gibbsnn.networks.given import given

__all__ = ["NoncentredScale", "ScaleInputs", "noncentred_scales"]

# How many points are tried for one scale. A slice of width .02 takes seven on average; of slices as narrow as 2e-4, one
# in four thousand is not found. The scale then stays as it is, which leaves the conditional distribution invariant too.
POINTS, AT_ONCE = 32, {"cpu": 1, "gpu": 8}  # how many points are tried at most, and how many of them at a time in JAX


class ScaleInputs(NamedTuple):
    """What :class:`NoncentredScale` takes."""

    m: Any  # (n, h): M
    z: Any  # (n, h): Z
    y: Any  # (n, c): the output of the layer above, less its bias and offset
    v: Any  # (c, h): the weights W of the layer above, without bias
    g: Any  # (c, h): its gain S⁻¹ W
    incoming: Any  # (h,): Q1 of each unit
    outgoing: Any  # (h,): Q2 of each unit
    noise: Any  # (): ΔA
    power: Any  # (): d − c_out
    log_u: Any  # (h,): the logarithm of a uniform number, the height of the slice below log p(0)
    points: Any  # (h, p): uniform numbers, first for the place of the interval, then for points in what is left of it
    bends: Any  # (2,): α and β of σ(z) = α z + β |z|, the form of every homogeneous function


class NoncentredScale(Op):
    """One slice-sampling step for the scale of each unit in turn: a deterministic function of given random numbers.

    It takes :class:`ScaleInputs` and returns u (h,), log c of each unit.
    """

    __props__ = ()

    def make_node(self, *inputs):
        """Make the node of :class:`ScaleInputs`."""
        inputs = ScaleInputs(*map(pt.as_tensor, inputs))
        return Apply(self, list(inputs), [inputs.log_u.type()])

    @shape_inference
    def infer_shape(self, shapes):
        """Return the shape of the output, from those of the inputs."""
        return [ScaleInputs(*shapes).log_u]

    def perform(self, node, inputs, outputs):
        """Compute the output with NumPy."""
        inputs = ScaleInputs(*inputs)
        u, (above, units) = np.zeros_like(inputs.log_u), _units(inputs, np)
        for j in range(len(u)):
            unit = Unit(*(part[j] for part in units))
            log_ratio, changes = _unit(above, unit, inputs, np)
            low, high = -inputs.points[j, 0], 1 - inputs.points[j, 0]
            for point in inputs.points[j, 1:]:
                new = low + point * (high - low)
                if inputs.log_u[j] < log_ratio(new):
                    u[j], above = new, changes(new)
                    break
                low, high = (new, high) if new < 0 else (low, new)
        outputs[0][0] = u


def noncentred_scales(rng: Variable, site: Site) -> tuple[Variable, Site]:
    """Draw a scale for each unit of a layer, with A integrated out, and apply it to its weights and outgoing weights.

    The activation must be homogeneous, σ(cz) = c σ(z), and the layer without offset.
    """
    operator, above, function, z = site.layer.operator, site.above.operator, site.activation.function, site.z
    zero, one = pt.constant(np.array([0, 1], z.dtype))
    rng, numbers = draw(uniform, rng, zero, one, size=(operator.size[0], POINTS + 2))
    left, right = function.slopes[0], function.slopes[-1]
    inputs = ScaleInputs(
        m=site.mean,
        z=z,
        y=site.y,
        v=site.v,
        g=site.gain,
        incoming=operator.incoming(site.w),
        outgoing=above.outgoing(site.w_above),
        noise=site.activation.noise,
        power=pt.cast(given(operator.fan_in - above.fan_out), z.dtype),
        log_u=pt.log1p(-numbers[:, 0]),
        points=numbers[:, 1:],
        bends=pt.constant(np.array([right + left, right - left], z.dtype) / 2),
    )
    c = pt.exp(NoncentredScale()(*inputs))
    scaled = {"w": operator.scaled(site.w, c), "mean": site.mean * c, "z": z + site.mean * (c - 1)}
    return rng, replace(site, **scaled, post=None, w_above=above.relieved(site.w_above, c))


def _line(z, bends, xp):
    """Compute the homogeneous function σ(z) = α z + β |z|, for ``bends`` = (α, β)."""
    return bends[0] * z + bends[1] * xp.abs(z)


class Unit(NamedTuple):
    """One unit, or all with one more axis in front."""

    j: Any  # its number
    m: Any  # (n,): M
    z: Any  # (n,): Z
    incoming: Any  # Q1
    outgoing: Any  # Q2


def _units(inputs: ScaleInputs, xp) -> tuple[tuple, Unit]:
    """Return R, Wᵀ and Gᵀ as they are for the first unit, and all units, for NumPy or JAX."""
    v, numbers = inputs.v.T.copy(), xp.arange(len(inputs.log_u))
    r = inputs.y - _line(inputs.z, inputs.bends, xp) @ v
    return (r, v, inputs.g.T.copy()), Unit(numbers, inputs.m.T, inputs.z.T, inputs.incoming, inputs.outgoing)


def _unit(above, unit, inputs, xp):
    """Make two functions of u for one unit, for NumPy and JAX.

    Parameters
    ----------
    above : tuple of array
        The residual R (n, c), and Wᵀ and Gᵀ (h, c) of the layer above, when it is the turn of the unit.
    unit : Unit
        The unit.
    inputs : ScaleInputs
        What holds for all units: ΔA, d − c_out, α and β.
    xp : module
        ``numpy`` or ``jax.numpy``.

    Returns
    -------
    log_ratio : callable
        u to log p(u)/p(0).
    changes : callable
        u to R, Wᵀ and Gᵀ after the unit has moved by u.
    """
    (r, v, g), (j, m, z, incoming, outgoing) = above, unit
    noise, power, bends, w, gain = inputs.noise, inputs.power, inputs.bends, v[j], g[j]
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
        inputs = ScaleInputs(*(jnp.asarray(i, dtype) for i in inputs))

        def move(above, numbers):
            unit, log_u, points = numbers
            log_ratio, changes = _unit(above, unit, inputs, jnp)

            def search(count, low):
                """Look for a point under the density, ``count`` points at a time, and say whether one was found."""

                def shrink(turn):
                    k, low, high, u, _ = turn
                    tried = []
                    for i in range(count):
                        low, high = jnp.where(u < 0, u, low), jnp.where(u < 0, high, u)
                        u = low + points[k + i] * (high - low)
                        tried.append(u)
                    tried = jnp.stack(tried)
                    under = (log_u < jax.vmap(log_ratio)(tried)) & (k + jnp.arange(count) < len(points))
                    is_under = under.any()
                    return k + count, low, high, jnp.where(is_under, tried[under.argmax()], u), is_under

                start = jnp.asarray(1), low, low + 1, low, jnp.asarray(False)
                return jax.lax.while_loop(lambda turn: ~turn[-1] & (turn[0] < len(points)), shrink, start)[-2:]

            u, is_under = by_platform(search, -points[0], **AT_ONCE)
            u = jnp.where(is_under, u, 0)
            return changes(u), u

        above, units = _units(inputs, jnp)
        return jax.lax.scan(move, above, (units, inputs.log_u, inputs.points))[1]

    return scales


declare(NoncentredScale, numba=numba_scales, jax=_jax)

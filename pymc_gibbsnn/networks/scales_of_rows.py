"""How the scales of rows in the standard deviations of a network's noise are understood.

All noise of a row may be multiplied by the same scale. It is data, an expression of variables that other steps sample,
or a function c of the last pre-activation G of a second network, with c² = f + 1/(exp(−a G − b) + 1/s) and numbers a,
b, f and s, of which s may be infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.type import float_dtypes

from pymc_gibbsnn.networks.forms import AS_WRITTEN, NetworkError
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.networks.notation import show
from pymc_gibbsnn.networks.substitution import substitute

__all__ = ["common_scale", "numbers_of_scale"]

# Operations of which such a function is made, or its absolute value
OPERATIONS = (
    ps.Abs, ps.Add, ps.Cast, ps.Exp, ps.Exp2, ps.Identity, ps.Mul, ps.Neg, ps.Pow, ps.Reciprocal, ps.Sign, ps.Sqr,
    ps.Sigmoid, ps.Sqrt, ps.Sub, ps.Tanh, ps.TrueDiv,
)  # fmt: skip
# Distances of the four points from which it is found, and where the first of them lies, in such distances from zero
STEPS, STARTS = 0.05 * 2.0 ** np.arange(10)[:, None], np.arange(-40, 41)
# Where its limits are looked for and, up to INNER, its values compared: in a G, from the middle of these points
EXPONENTS, SPACING, INNER = np.linspace(-100, 100, 2001), 0.1, 45
TOLERANCE = 1e4 * np.finfo("float64").eps


def common_scale(network: Network, scales: Mapping[Variable, Variable | None]) -> Variable | None:
    """Return the scales by which all noise of each row is multiplied; refuse those that do not multiply all.

    Parameters
    ----------
    network : Network
        The network.
    scales : mapping of Variable to Variable or None
        By the random variables that have noise, the scales of their rows, (n, 1), in the model's random variables.

    Returns
    -------
    Variable, (n, 1), or None
        None if there are none.

    Raises
    ------
    NetworkError
    """
    names = ", ".join(f"'{rv.name}'" for rv, scale in scales.items() if scale is not None)
    without = ", ".join(f"'{rv.name}'" for rv, scale in scales.items() if scale is None)
    if not names:
        return None
    if network.sets_noise_of is not None:
        raise NetworkError(
            f"sigma of {names} differs between rows, in a network on which scales of rows depend: there, the noise of "
            f"each variable must be one number."
        )
    if network.observation is not None:
        raise NetworkError(
            f"sigma of {names} differs between rows, but '{network.observation.name}' is drawn given the latent "
            f"'{network.layers[-1].name}': there, the noise of latents must be the same in all rows. Observe the last "
            f"layer itself, pm.Normal('y', mean, sigma, observed=y), or give only the data a sigma for each row."
        )
    if without:
        raise NetworkError(
            f"sigma of {names} differs between rows, and that of {without} does not: multiply all noise by the same "
            f"scale, or, for data alone, put these around a latent of their own, Z = pm.Normal('Z', mean, one number) "
            f"and pm.Normal('y', Z, sigma, observed=y)."
        )
    first, *others = (rewrite_graph(clone_replace([c])[0], include=("canonicalize",)) for c in scales.values())
    if not all(equal_computations([first], [other]) for other in others):
        found = " and ".join(dict.fromkeys(show(c) for c in scales.values()))
        raise NetworkError(
            f"sigma of {names} must be numbers times the same scale of each row, written as the same expression; found "
            f"{found}."
        )
    wrong = [one.name for one in network.activations if one and not one.function.is_homogeneous]
    wrong += [layer.name for layer in network.layers if not layer.operator.scales_with_rows]
    if wrong:
        raise NetworkError(
            f"sigma of {names} differs between rows, which asks for dense layers and for activations with "
            f"σ(c z) = c σ(z) for every c > 0, such as relu, leaky relu, abs and identity; found others at {wrong}."
        )
    return next(iter(scales.values()))


def numbers_of_scale(scale: Variable, latent: Variable) -> tuple[float, float, float, float]:
    """Return a, b, f and s of scales c of rows with c² = f + 1/(exp(−a G − b) + 1/s); refuse other functions of G.

    A function that is written with the operations above is known by its values, since it can be written in many ways.

    Parameters
    ----------
    scale : Variable
        The scales, in the model's random variables.
    latent : Variable
        The random variable G.

    Raises
    ------
    NetworkError
    """
    leaf = pt.TensorType("float64", (None,) * latent.ndim)()
    expression = _in_double_precision(scale, latent, leaf)
    if _is_known(expression, leaf):
        function = pytensor.function([leaf], expression, mode=AS_WRITTEN)

        def squared(g: np.ndarray) -> np.ndarray:
            values = function(g.reshape(-1, *[1] * (latent.ndim - 1)))
            return np.asarray(values, "float64").reshape(g.shape) ** 2

        with np.errstate(all="ignore"):
            if found := _numbers(squared):
                return found
    name = latent.name
    raise NetworkError(
        f"Scales of rows that depend on the latent '{name}' must have squares exp(a {name} + b) + f or "
        f"f + s sigmoid(a {name} + b), with known numbers a, b, f ≥ 0 and s > 0, as pm.math.exp({name} / 2) has; found "
        f"{show(scale)}. Numbers that are learned stand before the scale, as in s * pm.math.exp({name} / 2)."
    )


def _in_double_precision(scale: Variable, latent: Variable, leaf: Variable) -> Variable:
    """Put a leaf of double precision in the place of a latent, and leave casts between precisions out.

    In single precision other functions would look like those that are sought.
    """
    new = {latent: leaf}
    for node in toposort([scale], blockers=[latent]):
        is_cast = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Cast)
        if is_cast and all(v.dtype in float_dtypes for v in (*node.inputs, *node.outputs)):
            [new[node.outputs[0]]] = substitute(node.inputs, new)
    return substitute([scale], new)[0]


def _numbers(squared: Callable[[np.ndarray], np.ndarray]) -> tuple[float, float, float, float] | None:
    """Compute a, b, f and s of a function of G that has this form; None of another.

    The function is a fractional linear one of exp(a G), and such functions keep the cross-ratio of four points. So its
    differences d1, d2 and d3 between points that are h apart have d2 (d1 + d2 + d3)/(d1 d3) = 1 + 2 cosh(a h).
    """
    points = (STEPS * STARTS)[..., None] + STEPS[..., None] * np.arange(4)
    values = squared(points)
    differences = np.diff(values)
    # The points near zero, unless digits of the differences are lost there
    share = np.abs(differences / (values[..., 1:] + values[..., :-1])).min(axis=-1)
    digits = np.log10(np.clip(np.nan_to_num(share), 1e-20, 0.1)) - 1e-3 * abs(STARTS)
    best = np.unravel_index(np.argmax(digits), digits.shape)
    d1, d2, d3 = differences[best]
    a = np.sign(d2) * np.arccosh(((d2 / d1) * ((d1 + d2 + d3) / d3) - 1) / 2) / STEPS[best[0], 0]
    middle = points[best].mean()
    g = middle + EXPONENTS / a
    c2 = squared(g)
    # There is a limit where c² no longer changes, though a G changes by 25
    beyond = round(25 / SPACING)
    f = c2[0] if c2[0] > c2[beyond] / 2 else 0.0
    s = c2[-1] - f if c2[-1] < 2 * c2[-1 - beyond] else np.inf
    # a G + b is a line, of which points are known best where c² is near neither limit
    part = c2 - f
    line, weights = -np.log(1 / part - 1 / s), (1 / (c2 / part + c2 / (s - part))) ** 2
    use = np.isfinite(line) & np.isfinite(weights) & (abs(EXPONENTS) < INNER)
    weights = weights[use] / weights[use].sum()
    center, height = weights @ g[use], weights @ line[use]
    a = weights @ ((g[use] - center) * (line[use] - height)) / (weights @ (g[use] - center) ** 2)
    b = height - a * center
    if not np.isfinite([a, b, f]).all() or a == 0:
        return None
    # In another order, since the scale of a row must not depend on other rows
    rows = np.random.default_rng(0).permutation([*points[..., 0].ravel(), *g])
    rows = rows[abs(a * (rows - middle)) < INNER]
    fits = np.isclose(squared(rows), f + 1 / (np.exp(-a * rows - b) + 1 / s), rtol=TOLERANCE, atol=0)
    return (a, b, f, s) if fits.all() else None


def _is_known(scale: Variable, leaf: Variable) -> bool:
    """Whether a scale is computed from a latent, row by row, by the operations above, and from numbers alone."""
    for v in ancestors([scale]):
        if v.owner is None:
            known = v is leaf or (isinstance(v, Constant) and all(v.type.broadcastable))
        elif leaf in set(ancestors([v])):
            op = v.owner.op
            known = isinstance(op, DimShuffle | ViewOp) or (
                isinstance(op, Elemwise) and isinstance(op.scalar_op, OPERATIONS)
            )
        else:
            known = True  # its own inputs are numbers
        if not known:
            return False
    return True

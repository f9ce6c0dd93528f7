"""How the scales of rows in the standard deviations of a network's noise are understood.

All noise of a row may be multiplied by the same scale. It is data, an expression of variables that other steps sample,
or a function c of the last pre-activation G of a second network, with c² = exp(a G + b) + f and numbers a, b and f.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytensor
import pytensor.scalar as ps
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable, equal_computations
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.forms import AS_WRITTEN, NetworkError
from pymc_gibbsnn.networks.layers import Dense
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.networks.notation import show

__all__ = ["common_scale", "numbers_of_scale"]

SMOOTH = (
    ps.Abs, ps.Add, ps.Cast, ps.Exp, ps.Exp2, ps.Mul, ps.Neg, ps.Pow, ps.Reciprocal, ps.Sqr, ps.Sqrt, ps.Sub,
    ps.TrueDiv,
)  # fmt: skip
PROBES = np.linspace(-40, 40, 33)  # where a function is compared with an exponential one; they are far from 0, too


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
    names = [f"'{rv.name}'" for rv, scale in scales.items() if scale is not None]
    if not names:
        return None
    if network.observation is not None:
        raise NetworkError(
            f"sigma of {', '.join(names)} differs between rows, around or in a network whose last pre-activation is a "
            f"latent: such latents have one number for all rows. Observe the last layer itself, pm.Normal('y', mean, "
            f"sigma, observed=y), or give data that lie around a latent a sigma for each row of their own."
        )
    without = [f"'{rv.name}'" for rv, scale in scales.items() if scale is None]
    if without:
        raise NetworkError(
            f"sigma of {', '.join(names)} differs between rows, and that of {', '.join(without)} does not: multiply "
            f"all noise of a row by the same scale, or, for data alone, put these around a latent of their own, "
            f"Z = pm.Normal('Z', mean, one number) and pm.Normal('y', Z, sigma, observed=y)."
        )
    forms = [rewrite_graph(clone_replace([c])[0], include=("canonicalize",), clone=False) for c in scales.values()]
    if not all(equal_computations([forms[0]], [form]) for form in forms[1:]):
        raise NetworkError(f"sigma of {', '.join(names)} must be numbers times the same scale of each row.")
    functions = [activation.function for activation in network.activations if activation]
    if not all(isinstance(layer.operator, Dense) for layer in network.layers) or not all(
        isinstance(function, PiecewiseLinear) and function.is_homogeneous for function in functions
    ):
        raise NetworkError(
            f"sigma of {', '.join(names)} differs between rows, as it may in networks of dense layers with activations "
            f"such as relu, leaky relu, abs and identity, for which σ(c z) = c σ(z) for every c > 0."
        )
    return next(iter(scales.values()))


def numbers_of_scale(scale: Variable, latent: Variable) -> tuple[float, float, float]:
    """Return a, b and f of scales c of rows with c² = exp(a G + b) + f; refuse other functions of the latent G.

    What is written with smooth operations alone is known by its values, since it can be written in many ways.

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
    leaf = pytensor.tensor.TensorType("float64", (None,) * latent.ndim)()
    [expression] = clone_replace([scale], {latent: leaf.astype(latent.dtype)}, rebuild_strict=False)
    shape = (len(PROBES), *[1] * (latent.ndim - 1))
    rows = np.random.default_rng(0).permutation(PROBES)
    a = b = f = np.nan
    if all(_is_smooth(v) for v in ancestors([expression])):
        function = pytensor.function([leaf], expression, mode=AS_WRITTEN)
        with np.errstate(all="ignore"):
            found = np.asarray(function(rows.reshape(shape)), "float64").ravel() ** 2
            zero, one, *far = (
                np.ravel(function(np.full(shape, g)))[0].astype("float64") ** 2 for g in (0, 1, -200, 200)
            )
            f = min(far) if min(far) > 1e-20 * zero else 0.0
            b = np.log(zero - f)
            a = np.log(one - f) - b
            expected = np.exp(a * rows + b) + f
        if a != 0 and np.isfinite([a, b]).all() and np.allclose(found, expected, rtol=1e-4, atol=0):
            return float(a), float(b), float(f)
    raise NetworkError(
        f"The squared scales of rows must be exp(a {latent.name} + b) + c, with numbers a, b and c, as of "
        f"pm.math.exp({latent.name} / 2); found the scales {show(scale)}."
    )


def _is_smooth(v: Variable) -> bool:
    """Whether a variable of a graph is a number, an input, or the result of a smooth operation on each row."""
    if v.owner is None:
        return not isinstance(v, SharedVariable)
    op = v.owner.op
    return isinstance(op, DimShuffle) or (isinstance(op, Elemwise) and isinstance(op.scalar_op, SMOOTH))

"""How the scales of rows in the standard deviations of a network's noise are understood.

All noise of a row may be multiplied by the same scale. It is data, an expression of variables that other steps sample,
or a function c of the last pre-activation G of a second network, with c² = exp(a G + b) + f and numbers a, b and f.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from pymc_gibbsnn.networks.forms import AS_WRITTEN, NetworkError
from pymc_gibbsnn.networks.layers import Dense
from pymc_gibbsnn.networks.likelihoods.row_noise import RowNoise
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.networks.notation import show

__all__ = ["common_scale", "numbers_of_scale"]

# Operations of which an exponential function is made, or its absolute value
OPERATIONS = (
    ps.Abs, ps.Add, ps.Cast, ps.Exp, ps.Exp2, ps.Identity, ps.Mul, ps.Neg, ps.Pow, ps.Reciprocal, ps.Sign, ps.Sqr,
    ps.Sqrt, ps.Sub, ps.TrueDiv,
)  # fmt: skip
PROBES = np.linspace(-40, 40, 33)  # where a function is compared with an exponential one


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
    if isinstance(network.observation, RowNoise):
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
    wrong += [layer.name for layer in network.layers if not isinstance(layer.operator, Dense)]
    if wrong:
        raise NetworkError(
            f"sigma of {names} differs between rows, which asks for dense layers and for activations with "
            f"σ(c z) = c σ(z) for every c > 0, such as relu, leaky relu, abs and identity; found others at {wrong}."
        )
    return next(iter(scales.values()))


def numbers_of_scale(scale: Variable, latent: Variable) -> tuple[float, float, float]:
    """Return a, b and f of scales c of rows with c² = exp(a G + b) + f; refuse other functions of the latent G.

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
    [expression] = clone_replace([scale], {latent: leaf.astype(latent.dtype)}, rebuild_strict=False)
    if _is_known(expression, leaf):
        function = pytensor.function([leaf], expression, mode=AS_WRITTEN)

        def squared(g: np.ndarray) -> np.ndarray:
            return np.asarray(function(g.reshape(-1, *[1] * (latent.ndim - 1))), "float64").ravel() ** 2

        eps = float(np.finfo(latent.dtype).eps)
        with np.errstate(all="ignore"):
            grows = np.diff(squared(np.array([0.0, 1.0])))[0] > 0
            for step in (20.0, 10.0, 5.0, 2.0, 1.0) if grows else (-20.0, -10.0, -5.0, -2.0, -1.0):
                far, low, middle, high = squared(step * np.array([-2.0, 0.0, 1.0, 2.0]))
                a = np.log((high - middle) / (middle - low)) / step
                b = np.log((middle - low) / np.expm1(a * step))
                f = far - np.exp(b - 2 * step * a)
                if np.isfinite([a, b, f]).all():
                    break
            f = f if f > 1e4 * eps * far else 0.0
            rows = np.random.default_rng(0).permutation(PROBES)
            found, expected = squared(rows), np.exp(a * rows + b) + f
        fits = np.isclose(found, expected, rtol=1e4 * eps, atol=0) | ~np.isfinite(found)
        if np.isfinite([a, b]).all() and a != 0 and fits.all():
            return float(a), float(b), float(f)
    raise NetworkError(
        f"Scales of rows that depend on the latent '{latent.name}' must have squares exp(a {latent.name} + b) + f, "
        f"with known numbers a, b and f, as pm.math.exp({latent.name} / 2) has; found {show(scale)}. Numbers that are "
        f"learned stand before the scale, as in s * pm.math.exp({latent.name} / 2)."
    )


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

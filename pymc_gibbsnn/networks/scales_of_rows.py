"""The scales of rows in the standard deviations of a network's noise: how a user writes them, and how they are read.

All noise of a row may be multiplied by the same scale. It is data, an expression of variables that other steps sample,
or a function of the last pre-activation G of a second network: that of :func:`row_scale`, or a power of exp(a G + b).

What :func:`row_scale` writes is made of PyTensor's own operations. Its result and its argument carry marks, by which it
is known; they are identities, which PyTensor leaves out of what it compiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Variable, equal_computations
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise

from pymc_gibbsnn._arguments import number
from pymc_gibbsnn._compat import SUBTENSORS
from pymc_gibbsnn.networks.activations import NotPiecewiseLinearError, read_piecewise_linear
from pymc_gibbsnn.networks.forms import NetworkError, evaluate, is_elemwise, is_number, match_monomial
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.networks.notation import show

__all__ = ["RowScale", "common_scale", "numbers_of_scale", "row_scale"]


class RowScale(ps.Identity):
    """The mark of a function :func:`row_scale`, with its slope, intercept, floor and span."""

    __props__ = ("numbers",)

    def __init__(self, *numbers: float):
        super().__init__(ps.same_out)
        self.numbers = numbers


def row_scale(
    G: Variable, slope: float = 1.0, intercept: float = 0.0, floor: float = 0.0, span: float = math.inf
) -> Variable:
    r"""Write the scale c of the noise of each row, a function of the output G of a network: heteroscedastic noise.

    .. math:: c^2 = f + \frac{1}{e^{-(a G + b)} + 1/s}

    By default this is the log-linear variance :math:`c^2 = e^G` [1]_. In general :math:`c^2` rises with a G from f to
    f + s; without a span it is :math:`f + e^{a G + b}`. Multiply the standard deviation of each noise of a network by
    the same c. :class:`~pymc_gibbsnn.GibbsNN` knows the function; NUTS and other samplers take it as any other.

    Parameters
    ----------
    G : tensor_like, (n,) or (n, 1)
        A number for each row: the last pre-activation of a second noisy network, which enters nothing else. c has the
        same shape.
    slope, intercept : float
        The numbers a, which is not 0, and b of the logarithm of the variance, a G + b.
    floor : float
        The number f ≥ 0, below which no squared scale lies. Where it is positive, rows that can be fitted exactly do
        not lose all noise against the others.
    span : float
        The number s > 0, or infinity: squared scales lie below f + s.

    Returns
    -------
    Variable
        The scales c > 0, without a unit: the unit of the noise is that of the standard deviation before them.

    Raises
    ------
    TypeError
        If one of the numbers is none. One that is learned stands before the scale, as in ``s * pmg.row_scale(G)``.
    ValueError
        If a number is not finite, but for the span; or if the slope is 0, the floor negative, or the span not positive.

    References
    ----------
    .. [1] A. C. Harvey. Estimating regression models with multiplicative heteroscedasticity. Econometrica 44, 1976.

    Examples
    --------
    Linear regression whose noise depends on the inputs, with variances that differ by a factor of 101 at most:

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> X = np.random.normal(size=(20, 3))
    >>> with pm.Model() as model:
    ...     G = pm.Normal("G", X @ pm.Normal("V", 0, 1, shape=3), 0.5)
    ...     s = pm.math.sqrt(pm.InverseGamma("variance", 1, 0.001))
    ...     c = pmg.row_scale(G, floor=0.1, span=10)
    ...     y = pm.Normal("y", X @ pm.Normal("W", 0, 1, shape=3), s * c, observed=X[:, 0])
    >>> step = pmg.GibbsNN(model=model)

    What it computes:

    >>> pmg.row_scale(np.array([0.0, 2.0])).eval()
    array([1.        , 2.71828183])
    """
    learned = ", with learned ones before the scale, as in s * pmg.row_scale(G)"
    numbers = (
        number("slope", slope, f"a known, finite number other than 0{learned}", lambda x: x != 0),
        number("intercept", intercept, f"a known, finite number{learned}"),
        number("floor", floor, f"a known, finite number of at least 0{learned}", lambda x: x >= 0),
        math.inf
        if isinstance(span, Real) and span == math.inf
        else number("span", span, f"a known, positive number or infinity{learned}", lambda x: x > 0),
    )
    mark, g = Elemwise(RowScale(*numbers)), pt.as_tensor_variable(G)
    g = mark(pt.cast(g, ps.upcast(g.dtype, pytensor.config.floatX)))
    a, b, f, s = np.array(numbers, g.dtype)
    x = a * g + b
    if math.isinf(s):
        return mark(pt.sqrt(f + pt.exp(x)) if f > 0 else pt.exp(x / 2))
    return mark(pt.sqrt(f + s * pt.sigmoid(x - np.log(s))))


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
    if network.observation is not None and not network.observation.scales_with_rows:
        raise NetworkError(
            f"sigma of {names} differs between rows, but '{network.observation.name}' is drawn given the latent "
            f"'{network.layers[-1].name}': there, the noise of latents must be the same in all rows, unless the data "
            f"are Normal, StudentT or Laplace around this latent, with the same scale. Observe the last layer itself, "
            f"pm.Normal('y', mean, sigma, observed=y), or give only the data a sigma for each row."
        )
    if without:
        raise NetworkError(
            f"sigma of {names} differs between rows, and that of {without} does not: multiply all noise by the same "
            f"scale, or, for data alone, put these around a latent of their own, Z = pm.Normal('Z', mean, one number) "
            f"and pm.Normal('y', Z, sigma, observed=y)."
        )
    if not _are_equal(list(scales.values())):
        shown = " and ".join(dict.fromkeys(show(c) for c in scales.values()))
        raise NetworkError(
            f"sigma of {names} must be numbers times the same scale of each row, written as the same expression; found "
            f"{shown}."
        )
    wrong = [one.name for one in network.activations if one and not one.function.is_homogeneous]
    wrong += [layer.name for layer in network.layers if not layer.operator.scales_with_rows]
    if wrong:
        raise NetworkError(
            f"sigma of {names} differs between rows, which asks for dense layers and for activations with "
            f"σ(c z) = c σ(z) for every c > 0, such as relu, leaky relu, abs and identity; found others at {wrong}."
        )
    return next(iter(scales.values()))


def _are_equal(scales: list[Variable]) -> bool:
    """Whether expressions are the same, as they are written or, which takes longer to see, in canonical form."""
    first, *others = scales
    if all(equal_computations([first], [other]) for other in others):
        return True
    first, *others = (rewrite_graph(clone_replace([c])[0], include=("canonicalize",)) for c in scales)
    return all(equal_computations([first], [other]) for other in others)


def numbers_of_scale(scale: Variable, latent: Variable) -> tuple[float, float, float, float]:
    """Return a, b, f and s of scales c of rows with c² = f + 1/(exp(−a G − b) + 1/s); refuse other functions of G.

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
    numbers = _numbers(scale, latent)
    if numbers is None:
        name = latent.name
        raise NetworkError(
            f"Scales of rows that depend on the latent '{name}' must be pmg.row_scale({name}), or a power of "
            f"exp(a {name} + b) with known numbers a and b, as pm.math.exp({name} / 2) is; found {show(scale)}. Write "
            f"the root of f + exp(a {name} + b) as pmg.row_scale({name}, a, b, f), and that of "
            f"f + s sigmoid(a {name} + b) as pmg.row_scale({name}, a, b + np.log(s), f, s). Numbers that are learned "
            f"stand before the scale, as in s * pmg.row_scale({name})."
        )
    return numbers


def _numbers(scale: Variable, latent: Variable) -> tuple[float, float, float, float] | None:
    """Read c = k r^p, with numbers k and p and r of x = α G + β, which is a row_scale or, by hand, exp(x)."""
    between = [v for v in ancestors([scale], blockers=[latent]) if v.owner and latent in ancestors([v])]
    marked = [v for v in between if is_elemwise(v, RowScale)]
    ends = marked or [v for v in between if is_elemwise(v, ps.Exp)]
    if len(ends) != 1 + bool(marked) or any(isinstance(v.owner.op, SUBTENSORS) for v in between):
        return None
    result, argument = ends[0], ends[-1].owner.inputs[0]  # which is reached through the result alone
    try:
        line = read_piecewise_linear(argument, latent)
    except NotPiecewiseLinearError:
        return None
    monomial = match_monomial(scale, result)
    if monomial is None or not is_number(monomial[0]) or len(line.slopes) != 1:
        return None
    a, b, f, s = result.owner.op.scalar_op.numbers if marked else (2.0, 0.0, 0.0, math.inf)
    k, p = abs(evaluate(monomial[0]).item()), monomial[1]
    slope, intercept = p * a * line.slopes[0], p * (a * line.intercepts[0] + b)
    if slope == 0 or not 0 < k < math.inf or (p != 1 and (f, s) != (0, math.inf)):
        return None
    return slope, intercept + 2 * math.log(k), k**2 * f, k**2 * s

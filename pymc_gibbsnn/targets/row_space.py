r"""Coordinates of a Gaussian variable, and the reduction of weights on wide data to the row space of the data.

Suppose that weights W enter a model only through X W, with data X of n rows and d > n columns, and that their prior
N(0, σ²) is the same along d. A sampler then need only move the n coordinates of W in the row space of X. With X = R Qᵀ,
where R is (n, n) and the n columns of Q (d, n) are orthonormal,

    W = σ (Q φ + (I − Q Qᵀ) ξ),     X W = σ R φ,     φ, ξ ~ N(0, I).

The part of W outside the row space keeps its prior, whatever φ and the data are, and is drawn from it when W is
recorded. This is an exact reduction: samplers such as pCN are invariant under rotations of φ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.math import Dot
from pytensor.tensor.random import normal

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.forms import match_product
from pymc_gibbsnn.networks.given import sizes
from pymc_gibbsnn.networks.network import evaluate

__all__ = ["Chart", "row_space_chart"]


@dataclass(frozen=True, eq=False)
class Chart:
    """How whitened coordinates φ, which are N(0, I) a priori, stand for one Gaussian variable x of a model.

    Attributes
    ----------
    value : Variable
        The value variable of x.
    node : Variable
        The node of the model's graph that is written in terms of φ: x itself, or the product X W.
    start : Variable
        An array of the shape of φ.
    whiten : callable
        ``whiten(constants)`` computes φ from x.
    colour : callable
        ``colour(φ, constants)`` computes the node.
    draw : callable
        ``draw(rng, φ, constants) -> (rng, x)`` computes x, and draws the part of it that φ leaves open.
    log_scale : callable
        ``log_scale(φ)`` computes log |dx/dφ|.
    constants : dict of str to Variable
        What is computed from the data once in a chain, by name; the functions above are given its values.
    """

    value: Variable
    node: Variable
    start: Variable
    whiten: Callable
    colour: Callable
    draw: Callable
    log_scale: Callable
    constants: dict[str, Variable] = field(default_factory=dict)


def row_space_chart(
    w: Variable, mean: Variable, scale: Variable, shape: tuple[int, ...], expressions: list[Variable]
) -> Chart | None:
    """Make the coordinates of W ~ Normal(mean, scale) in the row space of X.

    Parameters
    ----------
    w : Variable
        The value variable of W.
    mean, scale : Variable
        Mean and standard deviation of its prior.
    shape : tuple of int
        The shape of W.
    expressions : list of Variable
        All expressions that W enters, in canonical form. W must enter them as X W, with W of shape (d, h) or (d,), or
        as X Wᵀ with W of shape (h, d).

    Returns
    -------
    Chart or None
        None if W enters in another way, X has no more columns than rows, the mean is not 0, or the scale differs
        along d.
    """
    products = [x for x in ancestors(expressions) if x.owner is not None and isinstance(x.owner.op, Dot)]
    products = [x for x in products if match_product(x)[1] is w]
    if len(products) != 1 or w in ancestors(expressions, blockers=products):
        return None
    [product] = products
    data, _, layout = match_product(product)
    if list(explicit_graph_inputs([data, mean])) or np.any(evaluate(mean) != 0):
        return None
    n, d = evaluate(data.shape)
    rows, vector = layout == "rows", layout == "vector"
    scale = pt.shape_padleft(scale, w.ndim - scale.ndim)
    if d <= n or not scale.type.broadcastable[int(rows)]:
        return None
    u, singular_values, vt = pt.linalg.svd(pt.cast(data, pytensor.config.floatX), full_matrices=False)
    r_name, q_name = f"rows_{w.name}", f"basis_{w.name}"
    rank = singular_values.shape[0]
    # Coordinates have the layout of X W, whatever that of W is, so that a step reads every array in memory order.
    d, *width = shape[::-1] if rows else shape
    start = pt.zeros((rank, *width), dtype=pytensor.config.floatX)
    scale = scale.T if rows else scale

    def whiten(constants: dict[str, Variable]) -> Variable:
        q = constants[q_name]
        return ((w / scale.T) @ q).T if rows else q.T @ (w / scale)

    def colour(phi: Variable, constants: dict[str, Variable]) -> Variable:
        product = (constants[r_name] @ phi) * scale
        return product[:, None] if vector else product

    def draw_weights(rng: Variable, phi: Variable, constants: dict[str, Variable]) -> tuple[Variable, Variable]:
        zero, one = pt.constant(np.array([0, 1], pytensor.config.floatX))
        rng, xi = draw(normal, rng, zero, one, size=sizes(shape))
        q = constants[q_name]
        if rows:
            return rng, scale.T * (xi + (phi.T - xi @ q) @ q.T)
        return rng, scale * (xi + q @ (phi - q.T @ xi))

    return Chart(
        value=w,
        node=product,
        start=start,
        whiten=whiten,
        colour=colour,
        draw=draw_weights,
        log_scale=lambda phi: (pt.log(scale) + pt.zeros_like(phi)).sum(),
        constants={r_name: u * singular_values, q_name: pt.specify_shape(vt.T, (d, None))},
    )

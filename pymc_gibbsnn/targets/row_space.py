r"""Coordinates of a Gaussian variable, and the reduction of weights on wide data to the row space of the data.

Where W enters a model through X W alone, X data of n rows and d > n columns, and its prior is the same along d, a
sampler need only move the n coordinates of W in the row space of X. With X = R Qᵀ, R (n, n), the n columns of Q (d, n)
orthonormal,

    W = σ (Q φ + (I − Q Qᵀ) ξ),     X W = σ R φ,     φ, ξ ~ N(0, I):

the complement keeps its prior, whatever φ and the data are, and is drawn when W is recorded.
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

from pymc_gibbsnn._compat import draw
from pymc_gibbsnn.networks.forms import match_product
from pymc_gibbsnn.networks.network import evaluate

__all__ = ["Chart", "row_space_chart"]


@dataclass(frozen=True, eq=False)
class Chart:
    """How coordinates φ stand for one Gaussian variable.

    Attributes
    ----------
    value : Variable
        Value variable x.
    node : Variable
        What of the model's graph the coordinates replace: x, or the product X W.
    start : Variable
        An array of the coordinates' shape.
    whiten, colour : callable
        ``whiten(constants) -> φ`` from x; ``colour(φ, constants)``, what stands for the node.
    draw : callable
        ``draw(rng, φ, constants) -> (rng, x)``.
    log_scale : callable
        ``log_scale(φ)``, log |dx/dφ|.
    constants : dict of str to Variable
        What of the data is computed once a chain.
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
    """Coordinates of W ~ Normal(mean, scale) in the row space of X, None if it cannot be reduced.

    ``expressions`` are all that W enters, in canonical form: it must be there as X W, W of shape (d, h) or (d,), or
    X Wᵀ with W (h, d).
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
    # Coordinates lie as X W does, whatever the layout of W: a step then reads every array in its own order.
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
        rng, xi = draw(normal, rng, zero, one, size=shape)
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

"""How a user writes the weights of a product: as "rows" (d_out, d_in), "columns" (d_in, d_out) or "vector" (d_in,).

:func:`pymc_gibbsnn.networks.forms.match_product` finds the layout of a product.
"""

from __future__ import annotations

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

__all__ = ["broadcast_as", "shape_of", "written_as"]


def shape_of(layout: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return (d_out, d_in) of weights that have this layout and shape in the model."""
    return {"rows": shape, "columns": shape[::-1], "vector": (1, *shape)}[layout]


def broadcast_as(layout: str, x: Variable) -> Variable:
    """Turn what broadcasts to the shape of weights of this layout into what broadcasts to (d_out, d_in)."""
    x = pt.shape_padleft(x, 2 - x.ndim)
    return x.T if layout == "columns" else x


def written_as(layout: str, matrix: Variable) -> Variable:
    """Turn a matrix (d_out, d_in) into weights of this layout."""
    return {"rows": matrix, "columns": matrix.T, "vector": matrix[0]}[layout]

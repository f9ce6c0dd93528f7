"""What interweaving moves that visit one unit after the other share: their passes, numbers, proposals and loops.

The letters are those of :mod:`pymc_gibbsnn.moves.interweave_pieces`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.random import normal, uniform

from pymc_gibbsnn._compat import shape_inference
from pymc_gibbsnn.backends.draw import draw

__all__ = [
    "UnitPasses",
    "cholesky_or_nan",
    "draw_numbers",
    "propose",
    "ratio_of_proposals",
    "scan_units",
    "visit_units",
]


class UnitPasses(Op):
    """Passes over the units of a layer: a deterministic function of the random numbers that it is given.

    Attributes
    ----------
    takes, returns : type of NamedTuple
        The inputs, and those that come back changed; with ``accepted`` (p, h), ones where a unit moved, like ``rho``.
    """

    takes: ClassVar[Any]
    returns: ClassVar[Any]

    def make_node(self, *inputs):
        """Make the node of the inputs that the class takes."""
        inputs = self.takes(*map(pt.as_tensor, inputs))
        return Apply(self, list(inputs), [x.type() for x in self._returned(inputs)])

    @shape_inference
    def infer_shape(self, shapes):
        """Return the shapes of the outputs, from those of the inputs."""
        return self._returned(self.takes(*shapes))

    def _returned(self, inputs):
        """Pick what the outputs are like."""
        return [getattr(inputs, "rho" if name == "accepted" else name) for name in self.returns._fields]


def draw_numbers(
    rng: Variable, size: tuple[Variable | int, Variable | int], dtype: str
) -> tuple[Variable, tuple[Variable, Variable, Variable]]:
    """Draw what two passes over h units with d weights each need: ρ (2, h), log u (2, h) and ξ (2, h, d)."""
    h, d = size
    zero, one = pt.constant(np.array([0, 1], dtype))
    rng, xi = draw(normal, rng, zero, one, size=(2, h, d))
    rng, u = draw(uniform, rng, zero, one, size=(3, h))
    return rng, (np.array([[0], [1]], dtype) * pt.minimum(u[2], 1 - 1e-6), pt.log1p(-u[:2]), xi)


def propose(factor, drift, rho, xi, solve_triangular, xp):
    """Compute the proposed step (d,), with NumPy or JAX.

    Parameters
    ----------
    factor, drift : array, (d, d) and (d,)
        L and L⁻¹ ∇.
    rho, xi : float and array, (d,)
        ρ and ξ.
    solve_triangular : callable
        SciPy's function, or JAX's.
    xp : module
        ``numpy`` or ``jax.numpy``.
    """
    scale = xp.sqrt((1 - rho) * (1 + rho))
    return solve_triangular(factor, (1 - rho) * drift + scale * xi, lower=True, trans=1)


def ratio_of_proposals(step, factor, factor_new, drift_new, rho, xi, xp):
    """Compute the logarithm of the density of the reverse proposal over that of the proposal.

    Parameters
    ----------
    step, drift_new, xi : array, (d,)
        The step, L⁻¹ ∇ where it leads, and ξ.
    factor, factor_new : array, (d, d)
        L before and after the step.
    rho : float
        ρ.
    xp : module
        ``numpy`` or ``jax.numpy``.
    """
    xi_back = -(factor_new.T @ step + (1 - rho) * drift_new) / xp.sqrt((1 - rho) * (1 + rho))
    return xp.log(xp.diag(factor_new) / xp.diag(factor)).sum() + ((xi**2).sum() - (xi_back**2).sum()) / 2


def cholesky_or_nan(matrix):
    """Compute a Cholesky factor with NumPy; NaN if there is none, as in JAX."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.nan)


def visit_units(visit: Callable, above: Any, w, z, priors: tuple, numbers: tuple) -> tuple:
    """Visit all units in all passes, with NumPy.

    Parameters
    ----------
    visit : callable
        ``visit(above, j, (w, z, *priors), numbers)`` of one unit, which returns accepted, w, z and above.
    above : Any
        What visits change of the layers above.
    w, z : array, (h, d) and (n, h)
        W̃ and Z.
    priors : tuple of array, (h, ...) each
        What else belongs to each unit.
    numbers : tuple of array, (p, h, ...) each
        Random numbers.

    Returns
    -------
    above : Any
    w, z, accepted : array
        W̃, Z and, (p, h), ones where a unit moved.
    """
    w, z, accepted = w.copy(), z.copy(), np.empty(numbers[0].shape)
    for p, j in np.ndindex(accepted.shape):
        unit = w[j], z[:, j], *(x[j] for x in priors)
        accepted[p, j], w[j], z[:, j], above = visit(above, j, unit, tuple(x[p, j] for x in numbers))
    return above, w, z, accepted


def scan_units(visit: Callable, above: Any, w, z, priors: tuple, numbers: tuple) -> tuple:
    """Do what :func:`visit_units` does, with JAX.

    Parameters
    ----------
    visit, above, w, z, priors, numbers
        As there.
    """
    import jax
    import jax.numpy as jnp

    def move(above, parts):
        accepted, w, z, above = visit(above, *parts)
        return above, (w, z, accepted.astype(w.dtype))

    def one_pass(state, numbers):
        above, w, z = state
        above, (w, z, accepted) = jax.lax.scan(move, above, (jnp.arange(len(w)), (w, z, *priors), numbers))
        return (above, w, z), accepted

    (above, w, z), accepted = jax.lax.scan(one_pass, (above, w, z.T), numbers)
    return above, w, z.T, accepted

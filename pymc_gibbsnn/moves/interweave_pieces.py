r"""The interweaving move: the weights of one unit at a time, its noise held fixed, its post-activations integrated out.

Given the pre-activations Z, a Gibbs draw of the weights below them moves by about sqrt(Δ/n), however wide the posterior
of the weights is. So hold instead the noise ε_j = Z_j − Ã W̃_j of unit j, and let Z_j move with its weights. To use both
parametrisations in turn, that by Z and that by ε, is the interweaving of Yu and Meng [1]_. With A integrated out as in
:mod:`pymc_gibbsnn.moves.preactivations`, the target for W̃_j (d,) is

    log π(W̃_j) = Σ_μ [t_μ σ(z_μ) − κ_j σ(z_μ)²/2] − ½ W̃_jᵀ Λ W̃_j,     z = Ã W̃_j + ε_j.

where μ runs over samples. Let pull = t − κ_j σ(z) = (Y − σ(Z) Wᵀ) S⁻¹ w_j at the current Z: by how much, and in which
direction, the layer above pulls at σ(z). With σ continued from the linear pieces on which z lies now, of slopes a, the
target is Gaussian, with precision and mean

    Q = κ_j Ãᵀ diag(a²) Ã + Λ,     W̃_j + Q⁻¹ ∇,     ∇ = Ãᵀ(a ∘ pull) − Λ W̃_j.

The proposal is an autoregressive step of this Gaussian, of persistence 0 ≤ ρ < 1,

    W̃_j' = W̃_j + (1 − ρ) Q⁻¹ ∇ + sqrt(1 − ρ²) Q^{-1/2} ξ,     ξ ~ N(0, I),

accepted or rejected by the Metropolis-Hastings rule, where the reverse proposal is built from the pieces at Z'. If no
sample changes its piece, the proposal is always accepted. Near equilibrium long steps are best (ρ = 0 is a fresh draw);
far from it only short ones are accepted. So the units are visited twice: first with ρ = 0, then each with a ρ of its
own that is uniform on (0, 1).

A Gram matrix Ãᵀ diag(a²) Ã is kept from move to move and changed by the few samples whose piece has changed. Rounding
errors in it are the same in the proposal and in its reverse, so that they make proposals worse, not wrong; in single
precision JAX forms it anew now and then. Where rounding leaves Q without a Cholesky factor, Numba first forms the Gram
matrix anew. If that does not help, nothing is proposed from there, and no proposal to go there is accepted: the unit
waits until other moves have changed its Q. It takes a Λ of less than about 1e-15 of κ Ãᵀ diag(a²) Ã in double
precision, and 1e-7 in single precision.

References
----------
.. [1] Y. Yu, X.-L. Meng. To center or not to center: that is not the question. J. Comput. Graph. Stat. 20 (2011).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from scipy.linalg import solve_triangular

from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.jax_backend import ROWS_ARE_SPREAD, by_platform
from pymc_gibbsnn.backends.lines import on_lines
from pymc_gibbsnn.moves.interweave_kernels import numba_passes
from pymc_gibbsnn.moves.site import NOTHING, Acceptance, Move, Nothing, Site
from pymc_gibbsnn.moves.unit_passes import UnitPasses, cholesky_or_nan, draw_numbers, propose, ratio_of_proposals
from pymc_gibbsnn.networks.network import Network

__all__ = ["Interweave", "PassInputs", "PassOutputs", "UnitGrams", "interweave_pieces"]

ROWS_AT_ONCE = {"cpu": 32, "gpu": 256}  # how many samples JAX adds to or removes from a Gram matrix at a time
SWEEPS_A_RENEWAL = 4  # in single precision, the Gram matrix of one unit at random is formed anew once in so many sweeps


class PassInputs(NamedTuple):
    """What :class:`Interweave` takes."""

    x: Any  # (n, d): the layer's input Ã
    w: Any  # (h, d): its weights W̃
    z: Any  # (n, h): its output
    y: Any  # (n, c): the output of the layer above, less its bias and offset
    v: Any  # (c, h): the weights W of the layer above
    g: Any  # (c, h): its gain S⁻¹ W
    precision: Any  # (1 or h, d): prior precisions Λ, one row where all units share them
    rho: Any  # (p, h): for each of p passes and each unit, the persistence
    log_u: Any  # (p, h): the logarithms of uniform numbers
    xi: Any  # (p, h, d): standard normal numbers
    gram: Any  # (h, d, d): Ãᵀ diag(a²) Ã of each unit; zeros to begin with
    squares: Any  # (h, n): the squared slopes a² from which it was formed; zeros to begin with
    edges: Any  # (k + 1,): the table of σ
    slopes: Any  # (k,)
    intercepts: Any  # (k,)


class PassOutputs(NamedTuple):
    """What :class:`Interweave` returns: values after the passes, and ones in ``accepted`` (p, h) where a unit moved."""

    w: Any
    z: Any
    gram: Any
    squares: Any
    accepted: Any


class Interweave(UnitPasses):
    r"""Passes of the move over the units of a layer: a deterministic function of the random numbers that it is given.

    It takes :class:`PassInputs` and returns :class:`PassOutputs`.

    Parameters
    ----------
    is_first : bool
        Whether to form the Gram matrices, in place of reading those that are given.
    """

    __props__ = ("is_first",)
    takes, returns = PassInputs, PassOutputs

    def __init__(self, is_first: bool = False):
        self.is_first = is_first

    def perform(self, node, inputs, outputs):
        """Compute the outputs with NumPy and SciPy."""
        inputs = PassInputs(*inputs)
        w, z, x, v, g = inputs.w.copy(), inputs.z.copy(), inputs.x, inputs.v, inputs.g
        gram, accepted = np.empty_like(inputs.gram), np.empty_like(inputs.rho)
        precision, table = np.broadcast_to(inputs.precision, w.shape), inputs[-3:]
        s, a = on_lines(z, *table, np)
        r, squares, factors = inputs.y - s @ v.T, (a**2).T.copy(), np.empty_like(gram)
        solve = partial(solve_triangular, check_finite=False)
        backend = Backend(np, cholesky_or_nan, solve, lambda x, gram, squares, new: _form_gram(x, new))

        for j in range(len(w)):
            gram[j] = _form_gram(x, squares[j])
            factors[j] = cholesky_or_nan(v[:, j] @ g[:, j] * gram[j] + np.diag(precision[j]))
        for p, j in np.ndindex(accepted.shape):
            unit = Unit(w[j], z[:, j], gram[j], squares[j], factors[j])
            surroundings = v[:, j], g[:, j], precision[j]
            numbers = inputs.rho[p, j], inputs.log_u[p, j], inputs.xi[p, j]
            accepted[p, j], (r_new, new) = _move_unit(x, r, unit, surroundings, numbers, table, backend)
            if accepted[p, j]:
                r, (w[j], z[:, j], gram[j], squares[j], factors[j]) = r_new, new
        for output, result in zip(outputs, (w, z, gram, squares, accepted), strict=True):
            output[0] = result


class UnitGrams(NamedTuple):
    """What the move remembers in the data layer; the matrices are those without rows that change in each sweep."""

    unit_gram: Variable  # Ãᵀ diag(a²) Ã of each unit, (h, d, d)
    unit_squares: Variable  # the squared slopes a² from which it was formed, (h, n)


class DataGrams(NamedTuple):
    """All that it remembers there."""

    input: Variable | Nothing  # Ã (n, d), which is computed of the data once where no row changes
    grams: UnitGrams


def interweave_pieces(network: Network, l: int) -> Move:
    """Make the move of W̃ and Z of layer l, which visits all units with ρ = 0 first and then with a random ρ."""
    operator, a = network.layers[l].operator, network.inputs
    is_kept = l == 0 and network.keeps_inputs  # else the input changes from sweep to sweep
    changing = None if l else network.changing_rows
    is_first = not is_kept and changing is None
    memory: DataGrams | Nothing = NOTHING
    if not is_first:
        z = pt.zeros((network.rows.shape[0], operator.shape[0]), dtype=a.dtype)
        design = operator.design(a, a.shape[0]) if is_kept else NOTHING
        memory = DataGrams(design, UnitGrams(*_no_gram(z, operator.augmented_shape)))

    def step(rng: Variable, site: Site, memory: Any) -> tuple[Variable, Site, Any, Acceptance]:
        operator, function, w, z = site.layer.operator, site.activation.function, site.w, site.z
        h, d = operator.size
        rng, numbers = draw_numbers(rng, (h, d), w.dtype)
        x = memory.input if is_kept else operator.design(site.a, site.samples)
        grams = UnitGrams(*_no_gram(z, (h, d))) if is_first else memory.grams
        table = [part.astype(w.dtype) for part in (function.edges, function.slopes, function.intercepts)]
        if changing is not None:
            _, a = on_lines(z[changing], *table, xp=pt)
            squares = pt.set_subtensor(grams.unit_squares[:, changing], (a**2).T)
            grams = UnitGrams(grams.unit_gram + _gram_of_rows(x, squares, changing), squares)
        inputs = PassInputs(x, w, z, site.y, site.v, site.gain, operator.precision, *numbers, *grams, *table)
        outputs = PassOutputs(*Interweave(is_first)(*inputs))
        if not is_first:
            gram = outputs.gram
            if changing is not None:
                gram = gram - _gram_of_rows(x, outputs.squares, changing)
            memory = memory._replace(grams=UnitGrams(gram, outputs.squares))
        return rng, site.with_weights(outputs.w, outputs.z), memory, Acceptance(outputs.accepted.mean())

    return Move.of(operator.name, step, memory, Acceptance)


def _gram_of_rows(x: Variable, squares: Variable, rows: Variable) -> Variable:
    """Compute what some rows add to the Gram matrix of each unit (h, d, d), by one product of matrices."""
    x, squares = x[rows], squares[:, rows]
    (k, d), h = x.shape, squares.shape[0]
    scaled = (squares[:, None, :] * x.T).reshape((h * d, k))
    return pt.cast((scaled @ x).reshape((h, d, d)), "float64")


def _no_gram(z: Variable, shape: tuple[int, int]) -> tuple[Variable, Variable]:
    """Return ``gram`` and ``squares`` for the first call, for weights W̃ of this shape (h, d) and output Z (n, h)."""
    h, d = shape
    return pt.zeros((h, d, d), dtype="float64"), pt.zeros_like(z.T)


def _form_gram(x, squares):
    """Form the Gram matrix Ãᵀ diag(a²) Ã of one unit, from Ã (n, d) and the squared slopes a² (n,)."""
    return (x * squares[:, None]).T @ x


class Unit(NamedTuple):
    """What moves of one unit, or of all with one more axis in front."""

    w: Any  # W̃ (d,)
    z: Any  # Z (n,)
    gram: Any  # (d, d)
    squares: Any  # (n,)
    factor: Any  # the Cholesky factor L of Q = L Lᵀ (d, d)


class Backend(NamedTuple):
    """Functions of NumPy and SciPy, or of JAX."""

    xp: Any  # the module numpy or jax.numpy
    cholesky: Callable
    solve_triangular: Callable
    update_gram: Callable  # (x, gram, squares, new) to the Gram matrix for the squared slopes ``new``


def _move_unit(x, r, unit, surroundings, numbers, table, backend):
    """Propose a move of one unit and decide whether it is accepted; for NumPy and JAX.

    Parameters
    ----------
    x : array, (n, d)
        Ã.
    r : array, (n, c)
        The residual Y − σ(Z) Wᵀ.
    unit : Unit
        The unit as it is.
    surroundings : tuple of array
        Its columns of W and G of the layer above, (c,) each, and its prior precisions Λ (d,).
    numbers : tuple
        ρ, log u and ξ (d,).
    table : sequence of array
        Edges, slopes and intercepts of σ.
    backend : Backend
        The functions to use.

    Returns
    -------
    accepted : bool
    new : tuple of array and Unit
        The residual and the unit if the proposal is accepted.
    """
    (w, z, gram, squares, factor), (v, g, precision), (rho, log_u, xi) = unit, surroundings, numbers
    xp, cholesky, solve_triangular, update_gram = backend
    kappa, pull = v @ g, r @ g
    s, a = on_lines(z, *table, xp)

    def drift_at(w, a, pull, factor):
        """Compute L⁻¹ ∇."""
        return solve_triangular(factor, (a * pull) @ x - precision * w, lower=True)

    step = propose(factor, drift_at(w, a, pull, factor), rho, xi, solve_triangular, xp)
    w_new, z_new = w + step, z + x @ step
    s_new, a_new = on_lines(z_new, *table, xp)
    change = s_new - s
    gram_new = update_gram(x, gram, squares, a_new**2)
    factor_new = cholesky(kappa * gram_new + xp.diag(precision))
    drift_new = drift_at(w_new, a_new, pull - kappa * change, factor_new)
    log_ratio = (
        (change * (pull - kappa * change / 2)).sum()
        - (precision * step * (w + w_new)).sum() / 2
        + ratio_of_proposals(step, factor, factor_new, drift_new, rho, xi, xp)
    )
    return log_u < log_ratio, (r - change[:, None] * v, Unit(w_new, z_new, gram_new, a_new**2, factor_new))


def _jax(op, node):
    """Make the function of the inputs of :class:`Interweave` for JAX, which scans over units."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular

    dtype = node.outputs[0].dtype
    cholesky = partial(jnp.linalg.cholesky, symmetrize_input=False)

    def update_gram(x, gram, squares, new):
        """Change the Gram matrix by a few of the samples whose squared slope has changed, until none is left.

        To look for these samples on all devices would take longer than to form the matrix anew, which is one sum.
        """
        if ROWS_ARE_SPREAD.get():
            return _form_gram(x, new)

        def update(count, *kept):
            def some(kept):
                gram, change = kept
                _, rows = jax.lax.top_k(jnp.abs(change).astype(jnp.float32), min(count, len(x)))
                moved = x[rows]
                return gram + (moved * change[rows][:, None]).T @ moved, change.at[rows].set(0)

            return jax.lax.while_loop(lambda kept: (kept[1] != 0).any(), some, kept)[0]

        return by_platform(update, gram, new - squares, **ROWS_AT_ONCE)

    backend = Backend(jnp, cholesky, solve_triangular, update_gram)

    def passes(*inputs):
        # Inputs of a model in single precision may arrive here in double: JAX's sums promote them.
        inputs = PassInputs(*(jnp.asarray(i, dtype) for i in inputs))
        x, w, v, g, gram, table = inputs.x, inputs.w, inputs.v, inputs.g, inputs.gram, inputs[-3:]
        precision = jnp.broadcast_to(inputs.precision, w.shape)
        s, a = on_lines(inputs.z, *table, jnp)
        now = (a**2).T
        if op.is_first:
            gram = jax.lax.map(partial(_form_gram, x), now)
        else:
            gram = jax.lax.map(lambda kept: update_gram(x, *kept), (gram, inputs.squares, now))
            if x.dtype == jnp.float32:
                j = (SWEEPS_A_RENEWAL * inputs.rho[1, 0] * len(w)).astype(jnp.int32)  # a random unit, or none
                gram = jax.lax.cond(j < len(w), lambda: gram.at[j].set(_form_gram(x, now[j])), lambda: gram)
        factors = jax.lax.map(lambda q: cholesky(q[0] * q[1] + jnp.diag(q[2])), ((v * g).sum(0), gram, precision))

        def move(r, parts):
            unit, *others = parts
            accepted, new = _move_unit(x, r, unit, *others, table, backend)
            r, unit = jax.lax.cond(accepted, lambda: new, lambda: (r, unit))
            return r, (unit, accepted.astype(dtype))

        r, units, accepted = inputs.y - s @ v.T, Unit(w, inputs.z.T, gram, now, factors), []
        for numbers in zip(inputs.rho, inputs.log_u, inputs.xi, strict=True):
            r, (units, flags) = jax.lax.scan(move, r, (units, (v.T, g.T, precision), numbers))
            accepted.append(flags)
        return PassOutputs(units.w, units.z.T, units.gram, units.squares, jnp.stack(accepted))

    return passes


declare(Interweave, numba=numba_passes, jax=_jax)

"""Cholesky factors, eigenvectors and triangular systems for Numba, by calls of LAPACK.

PyTensor's own code for these looks at layouts and raises errors in functions of its own, which take a second each to
compile. What is computed, and in which order, is the same; eigenvectors are found as NumPy finds them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit

from pymc_gibbsnn._compat import SOLVES_FROM_THE_RIGHT
from pymc_gibbsnn.backends.declare import code_key, of_any_layout, properties
from pymc_gibbsnn.backends.lapack import AS_IT_IS, LEFT, LOWER, TRANSPOSED, potrf, routine, trsm

__all__ = ["cholesky", "eigh", "solve_triangular"]

RIGHT, UPPER, OF_ONES, WITH_VECTORS = map(ord, "RUUV")  # further letters

_trtrs, _syevd = routine("lapack", "trtrs"), routine("lapack", "syevd")


def _is_real(node: Apply) -> bool:
    """Whether the inputs and the output of an operation are real matrices of one precision."""
    kinds = {(x.type.dtype, x.type.ndim) for x in (*node.inputs, *node.outputs)}
    return kinds in ({("float64", 2)}, {("float32", 2)})


def cholesky(op: Op, node: Apply) -> tuple[Callable, str] | None:
    """Make the function of Cholesky factors for Numba, with its key; None where it is not for this operation.

    A matrix that is not positive definite has a factor of NaN.
    """
    if not _is_real(node):
        return None
    lower, transposed = op.lower, op.overwrite_a
    triangle = UPPER if lower == transposed else LOWER

    @numba_njit
    def factor(a):
        n, bad = len(a), a.dtype.type(np.nan)
        if a.shape[1] != n:
            raise np.linalg.LinAlgError("A matrix that has a Cholesky factor is square.")
        result = np.empty((n, n), a.dtype)  # which LAPACK reads column by column
        for i in range(n):
            for j in range(n):
                result[i, j] = a[i, j] if transposed else a[j, i]
        failed = n > 0 and potrf((triangle, n, result, n, 0)) != 0
        for i in range(n):
            for j in range(n):
                if failed:
                    result[i, j] = bad
                elif (i < j) == (lower == transposed) and i != j:
                    result[i, j] = 0
        return result if transposed else result.T

    return factor, code_key(type(op), properties(op), __name__)


def eigh(op: Op, node: Apply) -> tuple[Callable, str] | None:
    """Make the function of eigenvalues and eigenvectors for Numba, with its key; None where the operation is another.

    Where LAPACK does not find them, they are NaN.
    """
    if len(node.inputs) != 1 or node.inputs[0].type.dtype not in ("float64", "float32"):
        return None
    triangle = ord(getattr(op, "UPLO", None) or ("L" if op.lower else "U"))

    @numba_njit
    def decompose(a):
        n, bad = len(a), a.dtype.type(np.nan)
        if a.shape[1] != n:
            raise np.linalg.LinAlgError("A matrix that has eigenvectors is square.")
        values, vectors = np.empty(n, a.dtype), np.empty((n, n), a.dtype)  # which LAPACK reads column by column
        for i in range(n):
            for j in range(n):
                vectors[j, i] = a[i, j]
        work, whole_work = np.empty(1 + 6 * n + 2 * n * n, a.dtype), np.empty(3 + 5 * n, np.int32)
        arguments = (WITH_VECTORS, triangle, n, vectors, n, values, work, len(work), whole_work, len(whole_work), 0)
        if n > 0 and _syevd(arguments) != 0:
            for i in range(n):
                values[i] = bad
                for j in range(n):
                    vectors[i, j] = bad
        return values, vectors.T

    return decompose, code_key(type(op), properties(op), __name__)


@numba_njit
def _solve(a, b, lower, unit):
    """Solve the triangular system A X = B, of the lower or upper triangle of A, with ones on its diagonal or not.

    Parameters
    ----------
    a, b : array, (n, n) and (n, k)
        A and B.
    lower, unit : bool
        Which triangle it is, and whether its diagonal is taken to be of ones.

    Returns
    -------
    array, (n, k)
        X, which is NaN if A is singular.
    """
    (n, k), singular, bad = b.shape, False, b.dtype.type(np.nan)
    if a.shape != (n, n):
        raise ValueError("A system of equations has as many equations as unknowns.")
    # BLAS reads column by column: Aᵀ where A lies row by row in memory, and, from the right, Xᵀ Aᵀ = Bᵀ.
    transposed, from_left = a.strides[0] > a.strides[1], not SOLVES_FROM_THE_RIGHT or k == 1 or n == 1
    factor, solution = (
        np.empty((n, n), a.dtype),
        np.empty((n, k), b.dtype) if SOLVES_FROM_THE_RIGHT else np.empty((k, n), b.dtype).T,
    )
    for i in range(n):
        singular |= a[i, i] == 0 and not unit
        for j in range(n):
            if transposed:
                factor[i, j] = a[i, j]
            else:
                factor[j, i] = a[i, j]
    for i in range(n):
        for j in range(k):
            solution[i, j] = bad if singular else b[i, j]
    if solution.size > 0 and not singular:
        side, transpose = LEFT if from_left else RIGHT, TRANSPOSED if from_left == transposed else AS_IT_IS
        triangle, diagonal = LOWER if lower != transposed else UPPER, OF_ONES if unit else AS_IT_IS
        if SOLVES_FROM_THE_RIGHT:
            m, columns = (n, k) if from_left else (k, n)
            trsm((side, triangle, transpose, diagonal, m, columns, b.dtype.type(1), factor, n, solution, m))
        else:
            _trtrs((triangle, transpose, diagonal, n, k, factor, n, solution, n, 0))
    return solution


def solve_triangular(op: Op, node: Apply) -> tuple[Callable, str] | None:
    """Make the function of triangular systems A X = B for Numba, with its key; None where it is not for this operation.

    If A is singular, X is NaN.
    """
    if not _is_real(node):
        return None
    # Numba would compile the function above for each value of a bool of Python.
    lower, unit = np.bool_(op.lower), np.bool_(op.unit_diagonal)

    @numba_njit
    def solve(a, b):
        return _solve(a, b, lower, unit)

    return of_any_layout(solve, 0), code_key(type(op), properties(op), __name__)

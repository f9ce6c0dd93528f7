"""Routines of BLAS and LAPACK for Numba kernels, called without the checks of Numba, which take a second to compile."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import get_cython_function_address, intrinsic
from numba.np.arrayobj import make_array
from numba.np.linalg import dot_3_mm, dot_3_vm, ensure_blas
from pytensor.link.numba.dispatch.basic import numba_njit

__all__ = [
    "AS_IT_IS",
    "LEFT",
    "LOWER",
    "TRANSPOSED",
    "dot",
    "factor_in_place",
    "potrf",
    "routine",
    "solve_in_place",
    "trsm",
]


@intrinsic
def dot(typing_context, x, y, out):
    """Write the product of two matrices, or of a matrix and a vector, into ``out``, as ``np.dot(x, y, out)`` does.

    In compiled code this is called with three arguments, ``dot(x, y, out)``.

    Parameters
    ----------
    typing_context
        Numba's, which Numba passes itself.
    x, y : array
        Row by row or column by column in memory.
    out : array
        Row by row in memory.
    """
    product = dot_3_mm if x.ndim == y.ndim else dot_3_vm

    def code(context, builder, signature, values):
        ensure_blas()
        return product(context, builder, signature, values)

    return out(x, y, out), code


def routine(library: str, name: str) -> Callable:
    """Return what Numba can call as a routine of BLAS or LAPACK, with a tuple of its arguments.

    It returns the last argument as the routine leaves it, which for LAPACK is whether it has succeeded. The name lacks
    its first letter, which is that of the precision. Arrays of whole numbers are of 32 bits.
    """
    for letter in "sd":
        address = get_cython_function_address(f"scipy.linalg.cython_{library}", letter + name)
        llvm.add_symbol(_symbol(letter + name), address)

    @intrinsic
    def call(typing_context, arguments):
        arrays = {kind.dtype for kind in arguments.types if isinstance(kind, types.Array)}
        [dtype] = arrays - {types.int32}

        def code(context, builder, signature, values):
            pointers = []
            for kind, value in zip(arguments.types, cgutils.unpack_tuple(builder, values[0]), strict=True):
                if isinstance(kind, types.Array):
                    pointer = make_array(kind)(context, builder, value).data
                else:
                    value = builder.trunc(value, ir.IntType(32)) if isinstance(kind, types.Integer) else value
                    pointer = cgutils.alloca_once_value(builder, value)
                pointers.append(pointer)
            function_type = ir.FunctionType(ir.VoidType(), [pointer.type for pointer in pointers])
            symbol = _symbol(("s" if dtype == types.float32 else "d") + name)
            builder.call(cgutils.get_or_insert_function(builder.module, function_type, symbol), pointers)
            return builder.load(pointers[-1])

        return types.int32(arguments), code

    return call


def _symbol(name: str) -> str:
    """Return the symbol by which compiled code finds a routine."""
    return f"pymc_gibbsnn_{name}"


# The letters by which BLAS and LAPACK are told what to do
LEFT, LOWER, TRANSPOSED, AS_IT_IS = map(ord, "LLTN")

potrf, trsm = routine("lapack", "potrf"), routine("blas", "trsm")


@numba_njit
def factor_in_place(q):
    """Factor a finite matrix Q = L Lᵀ in place, and return whether that was possible: whether Q is positive definite.

    Parameters
    ----------
    q : array, (n, n)
        Q, row by row in memory, with n > 0. Its upper triangle becomes that of Lᵀ, the rest stays as it is; if there is
        no factor, the upper triangle is spoilt.
    """
    n = len(q)
    return potrf((LOWER, n, q, n, 0)) == 0


@numba_njit
def solve_in_place(factor, b, transposed):
    """Write L⁻¹ or L⁻ᵀ times each row of a matrix into this row.

    Parameters
    ----------
    factor : array, (n, n)
        Lᵀ in an upper triangle, row by row in memory, as :func:`factor_in_place` leaves it.
    b : array, (k, n)
        The matrix, row by row in memory.
    transposed : bool
        Whether the inverse of Lᵀ is meant.
    """
    k, n = b.shape
    trsm((LEFT, LOWER, TRANSPOSED if transposed else AS_IT_IS, AS_IT_IS, n, k, b.dtype.type(1), factor, n, b, n))

"""Mathematical functions for Numba that are free of branches, so that LLVM computes them of several numbers at once."""

from __future__ import annotations

from functools import partial

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from pytensor.link.numba.dispatch.basic import numba_njit

__all__ = ["add_multiple", "copy", "copy_matrix", "erf", "erfc", "erfcx", "exp", "inlined", "summing", "vectorisable"]

vectorisable = partial(numba_njit, fastmath={"contract"}, error_model="numpy")
"""``njit`` for loops that LLVM shall vectorise: sums keep their order, and divisions do not check for 0."""

summing = partial(numba_njit, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")
"""``vectorisable`` for loops whose sums may be taken in any order, so that sums are vectorised, too."""

inlined = partial(vectorisable, forceinline=True)
"""``vectorisable`` for functions that such a loop calls; they are inlined, as a loop with a call is not vectorised."""


@vectorisable
def add_multiple(x, factor, out):
    """Add ``factor`` times a vector to a vector."""
    for i in range(len(out)):
        out[i] += factor * x[i]


@vectorisable
def copy(x, out):
    """Copy a vector. Numba takes two seconds to compile ``out[:] = x``, most of them for its error message."""
    for i in range(len(x)):
        out[i] = x[i]


@vectorisable
def copy_matrix(x, out):
    """Copy a matrix."""
    for i in range(len(x)):
        copy(x[i], out[i])


@intrinsic
def _two_to(typing_context, shifted):
    """Compute 2^k for a whole number k, from the lowest bits of the double k + 1.5 · 2^52."""

    def code(context, builder, signature, arguments):
        integer = ir.IntType(64)
        bits = builder.add(builder.bitcast(arguments[0], integer), ir.Constant(integer, 1023))
        return builder.bitcast(builder.shl(bits, ir.Constant(integer, 52)), ir.DoubleType())

    return types.float64(types.float64), code


@inlined
def exp(x):
    """The exponential in double precision, with a relative error of 1e-15, without branches.

    exp(x) = 2^k exp(r) with a whole number k and |r| ≤ log(2)/2. Adding 1.5 · 2^52 rounds to whole numbers, which gives
    k; exp(r) is a polynomial of degree 13. Results are at least 1e-307 and at most 1e307; NaN gives the smallest.
    """
    x = x if x > -707.0 else -707.0
    x = x if x < 707.0 else 707.0
    shifted = x * 1.4426950408889634 + 6755399441055744.0
    k = shifted - 6755399441055744.0
    r = x - k * 0.6931471803691238 - k * 1.9082149292705877e-10  # log 2 is subtracted in two parts
    p = 1.6059043836821613e-10
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * _two_to(shifted)


@inlined
def erfcx(a):
    """The scaled complementary error function exp(a²) erfc(a) for a ≥ 0, in double precision.

    (1 + 2a) erfcx(a) is a smooth function of t = (a − 3.75)/(a + 3.75) on all of [0, ∞) [1]_. The polynomial below goes
    through its values at Chebyshev points, computed with 60 digits, and differs from it by at most 1e-17.

    References
    ----------
    .. [1] M. M. Shepherd, J. G. Laframboise. Chebyshev approximation of (1 + 2x) exp(x²) erfc x in 0 ≤ x < ∞.
       Mathematics of Computation 36 (1981).
    """
    t = (a - 3.75) / (a + 3.75)
    p = 4.2514714447963895e-10
    p = p * t + 3.1114333809799254e-10
    p = p * t - 5.1739902140113095e-09
    p = p * t - 3.744210080962018e-09
    p = p * t + 3.8675334242222354e-08
    p = p * t + 2.3263508708859124e-08
    p = p * t - 2.5866850716155884e-07
    p = p * t - 5.7218230603224086e-08
    p = p * t + 1.751637648849062e-06
    p = p * t - 9.73559896736775e-07
    p = p * t - 1.1444146237700524e-05
    p = p * t + 2.238423915508223e-05
    p = p * t + 5.164909889268241e-05
    p = p * t - 0.0002901540805408417
    p = p * t + 0.0002937136655913448
    p = p * t + 0.0017556258528952954
    p = p * t - 0.009746579558029276
    p = p * t + 0.028362277418956406
    p = p * t - 0.05869339858963677
    p = p * t + 0.09230432116037748
    p = p * t - 0.10880393014174886
    p = p * t + 0.0822767384901452
    p = p * t + 0.0035854154854644293
    p = p * t - 0.14024059858554697
    p = p * t + 1.2375126308378275
    return p / (1.0 + 2.0 * a)


@inlined
def _upper_tail(a):
    """The complementary error function erfc(a) for a ≥ 0, with a relative error of 1e-15 up to a = 26 (erfc = 1e-295).

    To square a would lose digits: a² is the square of its high part, which is exact, and a small rest.
    """
    a = 28.0 if a > 28.0 else a
    high = (a + 3221225472.0) - 3221225472.0  # 1.5 · 2^31: multiples of 2^-21
    rest = (a - high) * (a + high)
    return erfcx(a) * exp(-high * high) * (1.0 - rest * (1.0 - rest / 2.0))


@inlined
def erfc(x):
    """The complementary error function in double precision; values below 2e-309 may come out as that. NaN gives NaN."""
    tail = _upper_tail(abs(x))
    return tail if x >= 0.0 else 2.0 - tail


@inlined
def erf(x):
    """The error function in double precision: a Taylor series on (−½, ½), and 1 − erfc beyond. NaN gives NaN."""
    s = x * x
    s = s if s < 0.25 else 0.25
    p = 9.422759064650411e-11
    p = p * s - 1.2290555301717928e-09
    p = p * s + 1.4807192815879218e-08
    p = p * s - 1.6365844691234924e-07
    p = p * s + 1.6462114365889248e-06
    p = p * s - 1.492565035840625e-05
    p = p * s + 0.00012055332981789664
    p = p * s - 0.0008548327023450853
    p = p * s + 0.005223977625442188
    p = p * s - 0.026866170645131252
    p = p * s + 0.11283791670955126
    p = p * s - 0.37612638903183754
    p = p * s + 1.1283791670955126
    beyond = 1.0 - _upper_tail(abs(x))
    beyond = beyond if x >= 0.0 else -beyond
    return p * x if abs(x) < 0.5 else beyond

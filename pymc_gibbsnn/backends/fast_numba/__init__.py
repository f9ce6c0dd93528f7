"""An accelerator: a linker for Numba that compiles what PyTensor's own linker compiles, in less time.

The package does not depend on it. It builds on private names of Numba, which any release of Numba may change. So it is
tried before it is used: where it does not pass, or fails later, PyTensor's own linker takes its place, with one
warning. That costs time at the first compilation and nothing else. The environment variable
``PYMC_GIBBSNN_LINKER=pytensor`` chooses PyTensor's linker from the start.

Nothing outside of this folder imports what is in it but :func:`fastest`.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.link.numba.linker import NumbaLinker

__all__ = ["fastest"]

CHOICE = "PYMC_GIBBSNN_LINKER"
CHOICES = FAST, PYTENSOR = "fast", "pytensor"

_passes: bool | None = None  # whether the fast linker has passed its test; None before it was tried


def fastest(linker: NumbaLinker) -> NumbaLinker:
    """Return the fast linker in place of PyTensor's where it is to be used and works, and PyTensor's otherwise.

    Raises
    ------
    ValueError
        If ``PYMC_GIBBSNN_LINKER`` is neither "fast" nor "pytensor".
    """
    global _passes
    choice = os.environ.get(CHOICE, FAST)
    if choice not in CHOICES:
        raise ValueError(f"The environment variable {CHOICE} must be one of {[*CHOICES]}; found {choice!r}.")
    if choice == PYTENSOR:
        return linker
    if _passes is None:
        _passes = True
        try:
            _try()
        except Exception as error:
            give_up(error)
    return _fast(linker) if _passes else linker


def give_up(error: Exception) -> None:
    """Use PyTensor's own linker from now on, and tell the user why."""
    global _passes
    if _passes is not False:
        _passes = False
        warnings.warn(
            f"The fast linker for Numba does not work with the packages installed here "
            f"({type(error).__name__}: {error}). PyTensor's own linker takes its place: results have the same "
            f"distribution, and the first compilation takes longer. To choose it from the start, without this warning, "
            f"set the environment variable {CHOICE}={PYTENSOR}.",
            UserWarning,
            stacklevel=2,
        )


def _fast(linker: NumbaLinker) -> NumbaLinker:
    module = import_module("pymc_gibbsnn.backends.fast_numba.linker")
    return module.KernelLinker(allow_gc=linker.allow_gc)


def _try() -> None:
    """Compile a small function with the fast linker; raise an exception if it cannot, or if its results are wrong."""
    x, y = pt.dmatrix("x"), pt.dvector("y")
    gram = x @ x.T + pt.eye(3)
    outputs = [pt.linalg.cholesky(gram)[1:, 0], pt.exp(x[:, 0] - y).sum(), pt.concatenate([y, gram[0]]), y]
    mode = Mode(_fast(NumbaLinker()), "fast_run").excluding(*NumbaLinker.incompatible_rewrites)
    f = pytensor.function([x, y], outputs, mode=mode)
    for a in np.random.default_rng(0).normal(size=(2, 3, 2)):  # twice, so that memory is taken again
        s = a @ a.T + np.eye(3)
        expected = [np.linalg.cholesky(s)[1:, 0], np.exp(a[:, 0] - s[2]).sum(), np.r_[s[2], s[0]], s[2]]
        for result, wanted in zip(f(a, s[2]), expected, strict=True):
            if not np.allclose(result, wanted, rtol=1e-6):
                raise ArithmeticError(f"{result} in place of {wanted}")

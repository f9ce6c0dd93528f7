"""Likelihoods whose log density is a sum of one term for each output: one formula serves NumPy, JAX and Numba."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from pymc_gibbsnn.backends.vector_math import exp, inlined, vectorisable
from pymc_gibbsnn.networks.likelihoods.classical_likelihood import ClassicalLikelihood

__all__ = ["ElementwiseLikelihood", "sum_of_logs"]

AT_ONCE = 8  # of how many numbers one logarithm, that of their product, is taken


class ElementwiseLikelihood(ClassicalLikelihood):
    r"""A likelihood with log p(y | z) = term(z, y) − log(1 + excess(z)), elementwise.

    The part with a logarithm stands apart because Numba cannot vectorise logarithms: it takes one of a product of many
    numbers instead.
    """

    term: ClassVar[Callable]
    """``term(z, y, exp)`` of arrays or of numbers; ``exp`` is the exponential for them."""
    excess: ClassVar[Callable | None] = None
    """``excess(z, exp)``, at least 0 and at most about 1; None if it is 0."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.kernel = staticmethod(_kernel(cls.term, cls.excess))

    @classmethod
    def log_density(cls, z: Any, y: Any, xp: Any) -> Any:
        """Compute Σ [term − log(1 + excess)]; see :meth:`ClassicalLikelihood.log_density`."""
        total = cls.term(z, y, xp.exp).sum()
        return total if cls.excess is None else total - xp.log1p(cls.excess(z, xp.exp)).sum()


@vectorisable
def sum_of_logs(s):
    """Compute Σ log s over a vector of numbers between about 1e-30 and 1e30."""
    total, product = 0.0, 1.0
    for i in range(len(s)):
        product *= s[i]
        if i % AT_ONCE == AT_ONCE - 1:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


def _kernel(term: Callable, excess: Callable | None) -> Callable:
    """Make :attr:`ClassicalLikelihood.kernel` of the two formulas: loops over outputs and samples for Numba."""
    term = inlined(term)
    if excess is None:

        @vectorisable
        def sum_terms(z, y, scratch):
            total = 0.0
            for k in range(z.shape[0]):
                for i in range(z.shape[1]):
                    total += term(z[k, i], y[i, k], exp)
            return total

        return sum_terms
    excess = inlined(excess)

    @vectorisable
    def sum_log_densities(z, y, scratch):
        total = 0.0
        for k in range(z.shape[0]):
            for i in range(z.shape[1]):
                scratch[0, i] = 1.0 + excess(z[k, i], exp)
            total -= sum_of_logs(scratch[0])
            for i in range(z.shape[1]):
                total += term(z[k, i], y[i, k], exp)
        return total

    return sum_log_densities

"""Likelihoods of data given the output of a network without noise inside, whose log density samplers compute."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.likelihoods.likelihood import Likelihood

__all__ = ["ClassicalLikelihood"]


class ClassicalLikelihood(Likelihood):
    """Data y given the output f of a network; where log p is a sum over outputs, see ``ElementwiseLikelihood``."""

    kernel: ClassVar[Callable]
    """``kernel(z, y, scratch)``: :meth:`log_density` for Numba, which overwrites the array ``scratch`` (2, n)."""

    @staticmethod
    @abstractmethod
    def log_density(z: Any, y: Any, xp: Any) -> Any:
        """Compute the log density that samplers need: dispersion · (Σ log p(y | z) − constant).

        :attr:`dispersion` and :attr:`constant` do not depend on the output z of the network.

        Parameters
        ----------
        z : array, (units, n)
            The output, with units first.
        y : array
            :attr:`data`, transposed.
        xp : module
            ``numpy`` or ``jax.numpy``.

        Returns
        -------
        array, ()
        """

    @property
    def data(self) -> Variable:
        """The data as :meth:`log_density` takes them, before they are transposed: real numbers, (n, units)."""
        y = pt.cast(self.value, pytensor.config.floatX)
        return y[:, None] if y.ndim == 1 else y

    @property
    def dispersion(self) -> Variable:
        """The number by which :meth:`log_density` is to be divided: the variance of a normal distribution, else 1."""
        return pt.constant(np.asarray(1.0, pytensor.config.floatX))

    @property
    def constant(self) -> Variable:
        """The part of Σ log p(y | f) that does not depend on the output f."""
        return pt.constant(np.asarray(0.0, pytensor.config.floatX))

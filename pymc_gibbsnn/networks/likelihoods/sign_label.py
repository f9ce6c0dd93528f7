r"""Binary labels of a noisy network: y = 1[Z > 0] of its last pre-activation, the binary probit model.

    Z = M + N(0, ΔZ),   M = Ã W̃ᵀ,   y = 1[Z > 0], elementwise;

given its label, each Z is a normal truncated at 0 (:mod:`pymc_gibbsnn.random.truncated_normal`).
"""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn._compat import draw
from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.networks.forms import evaluate
from pymc_gibbsnn.networks.likelihoods.likelihood import LabelLikelihood
from pymc_gibbsnn.random.truncated_normal import truncated_normal

__all__ = ["SignLabel", "SignLabelRV", "SignLikelihood"]


class SignLabelRV(RandomVariable):
    """1 where z is positive, else 0."""

    name = "sign_label"
    signature = "()->()"
    dtype = "int64"
    _print_name = ("SignLabel", "\\operatorname{SignLabel}")

    @classmethod
    def rng_fn(cls, rng, z, size=None):
        """Evaluate with NumPy."""
        return np.broadcast_to((np.asarray(z) > 0).astype("int64"), np.shape(z) if size is None else size).copy()


class SignLabel(pm.Discrete):
    r"""A binary label: y = 1 where z > 0, else 0, elementwise.

    .. math:: \log p(y \mid z) = 0 \text{ if } (2y - 1) z \ge 0, \text{ else } -\infty

    With z ~ Normal(m, s) this is the binary probit model, P(y = 1) = Φ(m/s).

    Parameters
    ----------
    z : tensor_like
        A noisy pre-activation, for :class:`~pymc_gibbsnn.GibbsNN` to sample.

    Examples
    --------
    >>> with pm.Model():
    ...     z = pm.Normal("z", 0, 1, shape=3)
    ...     y = SignLabel("y", z, observed=[0, 1, 1])
    """

    rv_op = SignLabelRV()

    @classmethod
    def dist(cls, z, **kwargs):
        """The distribution outside a model."""
        return super().dist([pt.as_tensor(z)], **kwargs)

    def support_point(rv, size, z):  # noqa: N805
        """The label of z."""
        return pt.cast(z > 0, "int64")

    def logp(value, z):  # noqa: N805
        """0 where the label agrees with z, else −inf."""
        agrees = pt.eq(value, 1) & (z >= 0) | pt.eq(value, 0) & (z <= 0)
        return pt.switch(agrees, 0.0, -np.inf)


class SignLikelihood(LabelLikelihood):
    """y = 1[Z > 0], one label for each number in Z."""

    rv_type = SignLabelRV
    form = "SignLabel(Z)"

    def largest(self, width: int) -> ArrayLike:
        """Labels are 0 and 1."""
        return 1

    @staticmethod
    def label(z: np.ndarray) -> np.ndarray:
        """The labels of latents (..., units)."""
        return (z > 0).astype(int)

    def agreeing(self, z: np.ndarray) -> np.ndarray:
        """Z with the signs of the labels."""
        return np.where(evaluate(self.value).reshape(z.shape) == 1, np.abs(z), -np.abs(z))

    def draw_latent(self, rng: Variable, z: Variable, m: Variable, noise: Variable) -> tuple[Variable, Variable]:
        """(rng, Z) given the labels; the current Z does not matter."""
        infinity = pt.constant(np.asarray(np.inf, m.dtype))
        positive = pt.eq(self.value.reshape(m.shape), 1).ravel()
        lower, upper = pt.switch(positive, 0, -infinity), pt.switch(positive, infinity, 0)
        rng, z = draw(truncated_normal, rng, m.ravel(), pt.sqrt(noise), lower, upper)
        return rng, z.reshape(m.shape)


def _numba_sign(op, node):
    @numba_njit
    def label(rng, z):
        return np.int64(z > 0)

    return label


def _jax_sign(op, node):
    return lambda key, size, dtype, z: (z > 0).astype(dtype)


declare(SignLabelRV, numba=_numba_sign, jax=_jax_sign)

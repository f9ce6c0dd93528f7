r"""Binary labels of a noisy network: y = 1[Z > 0] of its last pre-activation, the binary probit model.

Model, elementwise,

    Z = M + N(0, ΔZ),   M = Ã W̃ᵀ,   y = 1[Z > 0].

Conditional (Piccioli, Troiani, Zdeborová, arXiv 2306.02729, appendix E): given its label, each Z is the normal
N(M, ΔZ) truncated at 0 (:mod:`pymc_gibbsnn.random.truncated_normal`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.tensor.random.op import RandomVariable
from scipy.special import expit, log_ndtr, ndtr

from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.forms import evaluate, in_rows
from pymc_gibbsnn.networks.layers.weighted import Array, library
from pymc_gibbsnn.networks.likelihoods.label_likelihood import LabelLikelihood
from pymc_gibbsnn.random.truncated_normal import truncated_normal

__all__ = ["SignLabel", "SignLabelRV", "SignLikelihood"]


class SignLabelRV(RandomVariable):
    """1 where z is positive and 0 elsewhere, as a RandomVariable that does not draw anything."""

    name = "sign_label"
    signature = "()->()"
    dtype = "int64"
    _print_name = ("SignLabel", "\\operatorname{SignLabel}")

    @classmethod
    def rng_fn(cls, rng, z, size=None):
        """Evaluate with NumPy."""
        return np.broadcast_to((np.asarray(z) > 0).astype("int64"), np.shape(z) if size is None else size).copy()


class SignLabel(pm.Discrete):
    r"""A distribution of PyMC for binary labels: y = 1 where z > 0 and y = 0 where z < 0, elementwise.

    .. math:: \log p(y \mid z) = 0 \text{ if } (2y - 1) z \ge 0, \text{ else } -\infty

    With z ~ Normal(m, s) this is the binary probit model, P(y = 1) = Φ(m/s) [1]_ (appendix E). Both labels agree with
    z = 0, so that a chain may start there. The distribution is for observed labels: given z it draws nothing at random.

    Parameters
    ----------
    name : str
        The name of the variable.
    z : tensor_like, of any shape
        A noisy pre-activation, which :class:`~pymc_gibbsnn.GibbsNN` samples.
    **kwargs
        As for any distribution of PyMC: ``observed`` (labels 0 and 1, in the shape of z), ``dims``, ``shape``.

    Raises
    ------
    NotImplementedError
        If z cannot be made a tensor.

    References
    ----------
    .. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> with pm.Model():
    ...     z = pm.Normal("z", 0, 1, shape=3)
    ...     y = pmg.SignLabel("y", z, observed=[0, 1, 1])
    """

    rv_op = SignLabelRV()

    @classmethod
    def dist(cls, z, **kwargs):
        """Make the distribution outside a model, as ``dist`` of any distribution of PyMC does."""
        return super().dist([pt.as_tensor(z)], **kwargs)

    def support_point(rv, size, z):  # noqa: N805
        """Return the label of z, PyMC's value of the variable to begin with."""
        return pt.cast(z > 0, "int64")

    def logp(value, z):  # noqa: N805
        """Compute the log probability: 0 where the label agrees with z, and −inf elsewhere."""
        agrees = pt.eq(value, 1) & (z >= 0) | pt.eq(value, 0) & (z <= 0)
        return pt.switch(agrees, 0.0, -np.inf)


class SignLikelihood(LabelLikelihood):
    """The likelihood y = 1[Z > 0], with one label for each number in Z."""

    rv_type = SignLabelRV
    form = "pmg.SignLabel('{name}', Z)"

    @classmethod
    def takes(cls, classes: np.ndarray | None) -> bool:
        """There are two classes."""
        return classes is not None and len(classes) == 2

    def largest(self, width: int) -> ArrayLike:
        """The largest label is 1."""
        return 1

    @staticmethod
    def label(z: np.ndarray) -> np.ndarray:
        """Compute the labels of latents Z, elementwise."""
        return (z > 0).astype(int)

    @staticmethod
    def log_probability(
        mean: np.ndarray,
        sigma: np.ndarray,
        y: np.ndarray,
        rng: np.random.Generator,
        parameters: list[np.ndarray],
    ) -> np.ndarray:
        """Compute log Φ(m/s) where the label is 1, and log Φ(−m/s) where it is 0.

        Parameters
        ----------
        mean, sigma, y, rng, parameters
            As in :attr:`LatentLikelihood.log_probability`.
        """
        return log_ndtr((2 * y - 1) * mean / sigma)

    @staticmethod
    def integrated_probabilities(mean: np.ndarray, sigma: np.ndarray) -> np.ndarray:
        """Compute Φ(−m/s) and Φ(m/s)."""
        return np.stack([ndtr(-mean / sigma), ndtr(mean / sigma)], axis=-1)

    @staticmethod
    def logits(mean: Array, variance: Array) -> Array:
        """Compute c mean, with c² = π²/3 over the variance, that of the logistic distribution."""
        return mean * (np.pi / library(variance).sqrt(3 * variance))

    @classmethod
    def logistic_probabilities(cls, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Compute the sigmoid of the logits."""
        return expit(cls.logits(mean, variance))

    @classmethod
    def logistic_log_probability(cls, mean: Variable, variance: Variable, y: np.ndarray) -> Variable:
        """Compute Σ log sigmoid(±c mean), which logistic noise gives whose variance is π²/3c²."""
        signs = np.where(y == 1, 1.0, -1.0).reshape(len(y), -1)
        x = signs * cls.logits(mean, variance)
        return (pt.minimum(x, 0) - pt.log1p(pt.exp(-abs(x)))).sum()

    def marks(self, z: Variable) -> Variable:
        """Return the sign that each label asks for."""
        return pt.cast(2 * in_rows(self.value) - 1, z.dtype)

    @staticmethod
    def seen(noise: Variable, marks: Variable) -> Variable:
        """All latents are integrated out."""
        return pt.zeros_like(noise)

    @staticmethod
    def margin(z: Variable, marks: Variable) -> tuple[Variable, Variable]:
        """Return z where the label is 1, and −z where it is 0."""
        return marks * z, marks

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe labels in the model of the context."""
        return SignLabel(name, f, **observed)

    def agreeing(self, z: np.ndarray) -> np.ndarray:
        """Return Z with the sign that each label asks for."""
        return np.where(evaluate(self.value).reshape(z.shape) == 1, np.abs(z), -np.abs(z))

    def draw_latent(self, rng: Variable, z: Variable, m: Variable, noise: Variable) -> tuple[Variable, Variable, None]:
        """Draw Z given the labels; of the current Z only the shape matters."""
        infinity = pt.constant(np.asarray(np.inf, m.dtype))
        positive = pt.eq(self.value.ravel(), 1)
        lower, upper = pt.switch(positive, 0, -infinity), pt.switch(positive, infinity, 0)
        rng, new = draw(truncated_normal, rng, m.ravel(), pt.sqrt(noise), lower, upper)
        return rng, new.reshape(z.shape), None


def _numba_sign(op, node):
    """Make the function of z for Numba."""

    @numba_njit
    def label(rng, z):
        return np.int64(z > 0)

    return label


def _jax_sign(op, node):
    """Make the function of z for JAX."""
    return lambda key, size, dtype, z: (z > 0).astype(dtype)


declare(SignLabelRV, numba=_numba_sign, jax=_jax_sign)

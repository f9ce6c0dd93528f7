r"""Class labels of a noisy network: y = argmax Z of its last pre-activations, the multinomial probit model.

Model

    Z = M + N(0, ΔZ),   M = Ã W̃ᵀ (n, k),   y = argmax_α Z_α

Conditional (Piccioli, Troiani, Zdeborová, arXiv 2306.02729, appendix E, whose eq. 24 lacks the sum over classes):

    p(Z | y, M) ∝ exp(−Σ_α (Z_α − M_α)²/2ΔZ) Π_{α≠y} 1[Z_y > Z_α].

A move makes one Gibbs pass over two blocks, Z_y and the others (:mod:`pymc_gibbsnn.random.argmax_normal`).
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
from scipy.special import log_ndtr, softmax

from pymc_gibbsnn.backends.declare import declare
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.forms import NetworkError, evaluate
from pymc_gibbsnn.networks.layers import Operator
from pymc_gibbsnn.networks.layers.weighted import Array, library
from pymc_gibbsnn.networks.likelihoods.label_likelihood import LabelLikelihood
from pymc_gibbsnn.random.argmax_normal import argmax_normal

__all__ = ["ArgmaxLabel", "ArgmaxLabelRV", "ArgmaxLikelihood"]

SPACING = 0.25  # the smallest, of the nodes of a quadrature over an entry of Z, in its standard deviations


class ArgmaxLabelRV(RandomVariable):
    """The number of the largest entry of z along its last axis, as a RandomVariable that does not draw anything."""

    name = "argmax_label"
    signature = "(k)->()"
    dtype = "int64"
    _print_name = ("ArgmaxLabel", "\\operatorname{ArgmaxLabel}")

    @classmethod
    def rng_fn(cls, rng, z, size=None):
        """Evaluate with NumPy."""
        return np.broadcast_to(np.argmax(z, axis=-1), np.shape(z)[:-1] if size is None else size).copy()


class ArgmaxLabel(pm.Discrete):
    r"""A distribution of PyMC for class labels: y is the number of the largest entry of z along its last axis.

    .. math:: \log p(y \mid z) = 0 \text{ if } z_y = \max_\alpha z_\alpha, \text{ else } -\infty

    With z ~ Normal(m, s) this is the multinomial probit model [1]_ (appendix E). Where entries tie for the largest,
    each of their labels agrees with z, so that a chain may start at z = 0. The distribution is for observed labels:
    given z it draws nothing at random.

    Parameters
    ----------
    name : str
        The name of the variable.
    z : tensor_like, shape (..., k)
        One value for each of k classes: a noisy pre-activation, which :class:`~pymc_gibbsnn.GibbsNN` samples.
    **kwargs
        As for any distribution of PyMC: ``observed`` (labels, integers from 0 to k − 1, shape (...)), ``dims``,
        ``shape``.

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
    ...     z = pm.Normal("z", 0, 1, shape=(3, 4))
    ...     y = pmg.ArgmaxLabel("y", z, observed=[0, 3, 1])
    """

    rv_op = ArgmaxLabelRV()

    @classmethod
    def dist(cls, z, **kwargs):
        """Make the distribution outside a model, as ``dist`` of any distribution of PyMC does."""
        return super().dist([pt.as_tensor(z)], **kwargs)

    def support_point(rv, size, z):  # noqa: N805
        """Return the label of z, PyMC's value of the variable to begin with."""
        return pt.argmax(z, axis=-1)

    def logp(value, z):  # noqa: N805
        """Compute the log probability: 0 where the label agrees with z, and −inf elsewhere."""
        in_range = (value >= 0) & (value < z.shape[-1])
        chosen = pt.take_along_axis(z, pt.shape_padright(pt.switch(in_range, value, 0)), axis=-1)[..., 0]
        return pt.switch(in_range & (chosen >= z.max(axis=-1)), 0.0, -np.inf)


class ArgmaxLikelihood(LabelLikelihood):
    """The likelihood y = argmax Z, with one label for each row of Z (n, k)."""

    rv_type = ArgmaxLabelRV
    form = "pmg.ArgmaxLabel('{name}', Z)"
    least_ndim = 2
    is_integrable = False
    ignores_shifts = True

    @classmethod
    def takes(cls, classes: np.ndarray | None) -> bool:
        """Labels of two classes need one latent only."""
        return classes is not None and len(classes) > 2

    def row_shapes(self, layer: Operator) -> list[tuple[int, ...]]:
        """A row of y is one label."""
        return [()]

    def check(self, x: np.ndarray, layer: Operator) -> None:
        """Refuse a network of one output as well, of which all labels would be 0."""
        if layer.shape[0] == 1:
            raise NetworkError(
                f"'{self.name}' is the number of the largest of one output, so that all labels would be 0: give the "
                f"last layer an output for each class or, for two classes and one output, use pmg.SignLabel."
            )
        super().check(x, layer)

    def largest(self, width: int) -> ArrayLike:
        """The largest label is the number of the last class."""
        return width - 1

    @staticmethod
    def classes(z: np.ndarray) -> int:
        """There are as many classes as units."""
        return z.shape[-1]

    @staticmethod
    def label(z: np.ndarray) -> np.ndarray:
        """Compute the labels (...) of latents Z (..., k)."""
        return z.argmax(axis=-1)

    @staticmethod
    def log_probability(
        mean: np.ndarray,
        sigma: np.ndarray,
        y: np.ndarray,
        rng: np.random.Generator,
        parameters: list[np.ndarray],
    ) -> np.ndarray:
        """Compute Σ_j log Φ((m_y + s_y u − m_j)/s_j) over the other entries j, with the noise u of entry y drawn.

        Parameters
        ----------
        mean, sigma, y, rng, parameters
            As in :attr:`LatentLikelihood.log_probability`.
        """
        sigma, rows = np.broadcast_to(sigma, mean.shape), np.arange(len(y))
        highest = mean[:, rows, y] + sigma[:, rows, y] * rng.standard_normal(mean.shape[:-1])
        log_p = log_ndtr((highest[..., None] - mean) / sigma)
        log_p[:, rows, y] = 0
        return log_p.sum(-1)

    @staticmethod
    def integrated_probabilities(mean: np.ndarray, sigma: np.ndarray) -> np.ndarray:
        r"""Compute ∫ N(z; m_c, s_c²) Π_j Φ((z − m_j)/s_j) dz, over the j other than c, for each class c, by quadrature.

        This is the probability that entry c has the value z and that all others are smaller. The integrand is smooth
        and falls off like a normal density at both ends, so that sums over equidistant nodes converge exponentially:
        for K classes of one deviation the error of nodes at a spacing of h deviations is about exp(−2π²/(K h²)), here
        exp(−36).
        """
        sigma = np.broadcast_to(sigma, mean.shape)
        # Beyond nine standard deviations of the entry that comes first there, all integrands are below 1e-17.
        lowest = (mean - 9 * sigma).max(-1, keepdims=True)
        highest = (mean + 9 * sigma).max(-1, keepdims=True)
        spacing = max(SPACING, np.pi / np.sqrt(18 * mean.shape[-1]))
        nodes = 1 + int(np.ceil(((highest - lowest) / (spacing * sigma)).max()))
        step = (highest - lowest) / (nodes - 1)
        total = np.zeros(mean.shape)
        for node in range(nodes):
            x = (lowest + step * node - mean) / sigma
            log_below = log_ndtr(x)
            total += np.exp(log_below.sum(-1, keepdims=True) - log_below - x**2 / 2)
        return total * step / (sigma * np.sqrt(2 * np.pi))

    @staticmethod
    def logits(mean: Array, variance: Array) -> Array:
        """Compute c mean, with c² = π²/6 over the variance, that of Gumbel's distribution."""
        return mean * (np.pi / library(variance).sqrt(6 * variance))

    @classmethod
    def logistic_probabilities(cls, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Compute the softmax of the logits."""
        return softmax(cls.logits(mean, variance), axis=-1)

    @classmethod
    def logistic_log_probability(cls, mean: Variable, variance: Variable, y: np.ndarray) -> Variable:
        """Compute Σ log softmax(c mean)_y, which noise with a Gumbel distribution of variance π²/6c² gives."""
        return pt.special.log_softmax(cls.logits(mean, variance), axis=1)[np.arange(len(y)), y].sum()

    def marks(self, z: Variable) -> Variable:
        """Mark the latent of each label, which is integrated out."""
        return pt.eq(pt.arange(z.shape[1]), self.value[:, None])

    @staticmethod
    def seen(noise: Variable, marks: Variable) -> Variable:
        """Return the noise of the latents of other classes."""
        return pt.switch(marks, 0, noise)

    @staticmethod
    def margin(z: Variable, marks: Variable) -> tuple[Variable, Variable]:
        """Compute z_y − max_j z_j over the other classes j."""
        others = pt.switch(marks, -np.inf, z)
        largest = others.max(axis=1, keepdims=True)
        slopes = pt.cast(marks, z.dtype) - pt.cast(pt.eq(others, largest), z.dtype)
        return pt.switch(marks, z, 0).sum(axis=1, keepdims=True) - largest, slopes

    @staticmethod
    def width(y: np.ndarray, classes: np.ndarray | None) -> int | None:
        """There is an output for each class."""
        return len(classes)

    @staticmethod
    def observe(name: str, f: Variable, parameters: dict[str, Any], **observed) -> Variable:
        """Observe labels in the model of the context."""
        return ArgmaxLabel(name, f, **observed)

    def agreeing(self, z: np.ndarray) -> np.ndarray:
        """Return Z with the largest entry of each row exchanged with that of its label."""
        y = evaluate(self.value)
        z, rows = z.copy(), np.arange(len(z))
        largest = z.argmax(axis=1)
        z[rows, y], z[rows, largest] = z[rows, largest], z[rows, y]
        return z

    def draw_latent(self, rng: Variable, z: Variable, m: Variable, noise: Variable) -> tuple[Variable, Variable, None]:
        """Draw Z given the labels, by one pass over both blocks from the current Z."""
        return *draw(argmax_normal, rng, z, m, noise, self.value), None


def _numba_argmax(op, node):
    """Make the function of z for Numba."""

    @numba_njit
    def label(rng, z):
        return np.argmax(z)

    return label


def _jax_argmax(op, node):
    """Make the function of z for JAX."""
    import jax.numpy as jnp

    return lambda key, size, dtype, z: jnp.argmax(z, axis=-1).astype(dtype)


declare(ArgmaxLabelRV, numba=_numba_argmax, jax=_jax_argmax)

r"""Likelihoods of class labels: a label is a function of the last noisy pre-activation.

With Gaussian noise on that pre-activation they are the probit models: the label is :class:`ArgmaxLabel` (multinomial
probit) or :class:`SignLabel` (binary probit). They are distributions of PyMC like any other.
"""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn._compat import jax_sampler

__all__ = ["ArgmaxLabel", "ArgmaxLabelRV", "SignLabel", "SignLabelRV"]


class ArgmaxLabelRV(RandomVariable):
    """The place of the largest entry of z, along its last axis."""

    name = "argmax_label"
    signature = "(k)->()"
    dtype = "int64"
    _print_name = ("ArgmaxLabel", "\\operatorname{ArgmaxLabel}")

    @classmethod
    def rng_fn(cls, rng, z, size=None):
        """Evaluate with NumPy."""
        return np.broadcast_to(np.argmax(z, axis=-1), np.shape(z)[:-1] if size is None else size).copy()


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


class ArgmaxLabel(pm.Discrete):
    r"""A class label: y = argmax of z along its last axis.

    .. math:: \log p(y \mid z) = 0 \text{ if } z_y = \max_\alpha z_\alpha, \text{ else } -\infty

    With z ~ Normal(m, s) this is the multinomial probit model (Piccioli, Troiani, Zdeborová, arXiv 2306.02729,
    appendix E). Ties agree with each of their labels, so that a chain may start at z = 0.

    Parameters
    ----------
    z : tensor_like, shape (..., k)
        One value for each of k classes: a noisy pre-activation, for :class:`~pymc_gibbsnn.GibbsNN` to sample.

    Examples
    --------
    >>> with pm.Model():
    ...     z = pm.Normal("z", 0, 1, shape=(3, 4))
    ...     y = ArgmaxLabel("y", z, observed=[0, 3, 1])
    """

    rv_op = ArgmaxLabelRV()

    @classmethod
    def dist(cls, z, **kwargs):
        """The distribution outside a model."""
        return super().dist([pt.as_tensor(z)], **kwargs)

    def support_point(rv, size, z):  # noqa: N805
        """The label of z."""
        return pt.argmax(z, axis=-1)

    def logp(value, z):  # noqa: N805
        """0 where the label agrees with z, else −inf."""
        in_range = (value >= 0) & (value < z.shape[-1])
        chosen = pt.take_along_axis(z, pt.shape_padright(pt.switch(in_range, value, 0)), axis=-1)[..., 0]
        return pt.switch(in_range & (chosen >= z.max(axis=-1)), 0.0, -np.inf)


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


@numba_core_rv_funcify.register(ArgmaxLabelRV)
def _numba_argmax(op, node):
    @numba_njit
    def label(rng, z):
        return np.argmax(z)

    return label, 1


@numba_core_rv_funcify.register(SignLabelRV)
def _numba_sign(op, node):
    @numba_njit
    def label(rng, z):
        return np.int64(z > 0)

    return label, 1


@jax_sampler(ArgmaxLabelRV)
def _jax_argmax(op, node):
    import jax.numpy as jnp

    return lambda key, size, dtype, z: jnp.argmax(z, axis=-1).astype(dtype)


@jax_sampler(SignLabelRV)
def _jax_sign(op, node):
    return lambda key, size, dtype, z: (z > 0).astype(dtype)

r"""Ordered grades of a noisy network: what pm.OrderedProbit and pm.OrderedLogistic have in common.

A grade y, from 0 to K, is the number of the cutpoints c_1 < ... < c_K that a number y* around the last pre-activation Z
exceeds. PyMC writes a grade as a Categorical variable whose probabilities are computed from Z and the cutpoints. It is
recognised by these: Z, the cutpoints and other parameters are found in the expression of the probabilities, and PyMC
then writes the same expression of them.

Cutpoints that are a variable of the model move by slice sampling (:mod:`pymc_gibbsnn.moves.likelihood_parameters`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Variable, equal_computations
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import CategoricalRV
from scipy.special import ndtri

from pymc_gibbsnn._data import array_of
from pymc_gibbsnn.networks.forms import NetworkError, evaluate, in_rows, is_elemwise, is_normal, undimshuffle
from pymc_gibbsnn.networks.layers import Operator
from pymc_gibbsnn.networks.likelihoods.class_labels import read_labels
from pymc_gibbsnn.networks.likelihoods.latent_likelihood import LatentLikelihood
from pymc_gibbsnn.networks.likelihoods.likelihood import Parameters

__all__ = ["OrderedGrades", "add_cutpoints"]

SPREAD = np.float64(2)  # the prior standard deviation of cutpoints where a model is written in one call


@dataclass(frozen=True, eq=False)
class OrderedGrades(LatentLikelihood):
    """A likelihood of grades y, from 0 up, one for each number in Z.

    Attributes
    ----------
    cutpoints : Variable, (K,)
        The cutpoints c, in rising order.
    """

    rv_type = CategoricalRV
    has_classes = True
    sets_unit = True

    cutpoints: Variable = field(kw_only=True)

    @classmethod
    @abstractmethod
    def find(cls, p: Variable) -> Iterator[tuple[Variable, ...]]:
        """Yield what Z, the cutpoints and other parameters may be, by which PyMC would write the probabilities p."""

    @staticmethod
    @abstractmethod
    def write(eta: Variable, cutpoints: Variable, *others: Variable) -> Variable:
        """Write probabilities of grades as PyMC does."""

    @classmethod
    def parameters(cls, node: Apply) -> list[tuple[Variable, int]] | None:
        """Return Z, the cutpoints and other parameters, each with the number of its own axes; None if there are none.

        Others than the cutpoints have none.
        """
        p = node.inputs[-1]
        while p.owner is not None and (isinstance(p.owner.op, ViewOp) or is_elemwise(p, ps.Identity)):
            p = p.owner.inputs[0]  # the name of a pm.Deterministic
        for eta, cutpoints, *others in cls.find(p):
            if cutpoints.ndim and equal_computations([cls.write(eta, cutpoints, *others)], [p]):
                return [(eta, 0), (cutpoints, 1), *((x, 0) for x in others)]
        return None

    @classmethod
    def matches(cls, node: Apply) -> bool:
        """Whether PyMC draws such grades, given a Normal variable."""
        return super().matches(node) and cls.parameters(node) is not None

    @classmethod
    def centre(cls, node: Apply) -> Variable:
        """Return Z."""
        return cls.parameters(node)[0][0]

    @classmethod
    def read(cls, node: Apply, observed: Variable, parameters: Parameters) -> tuple[Variable, dict[str, Variable]]:
        """Read the latent Z and the cutpoints."""
        z, cutpoints, *others = (x for x, _ in cls.parameters(node))
        if z in ancestors([cutpoints, *others]):
            raise NetworkError(f"Cutpoints and scales of '{observed.name}' must not depend on its latent '{z.name}'.")
        if cutpoints.ndim != 1:
            raise NetworkError(
                f"cutpoints of '{observed.name}' must be a vector, the same cutpoints for all data; found "
                f"{cutpoints.ndim} axes."
            )
        cutpoints = parameters.value(cutpoints)
        return z, {"cutpoints": cutpoints}

    def largest(self, width: int) -> ArrayLike:
        """The largest grade is the number of cutpoints; any, where this is not known yet."""
        [count] = self.cutpoints.type.shape
        if count is None and not self._has_variables():
            count = len(evaluate(self.cutpoints))
        return np.inf if count is None else count

    def check(self, x: np.ndarray, layer: Operator) -> None:
        """Refuse cutpoints that do not rise as well.

        Parameters
        ----------
        x, layer
            As in :meth:`Likelihood.check`.
        """
        if not self._has_variables():
            values = evaluate(self.cutpoints)
            if not len(values) or not np.isfinite(values).all() or not np.all(np.diff(values) > 0):
                raise NetworkError(
                    f"cutpoints of '{self.name}' must be finite numbers in rising order; found {values}."
                )
        super().check(x, layer)

    def _has_variables(self) -> bool:
        """Whether cutpoints depend on variables of the model."""
        return bool(list(explicit_graph_inputs([self.cutpoints])))

    def interval(self, z: Variable) -> tuple[Variable, Variable]:
        """Return the cutpoints on both sides of y*, in the shape and the precision of Z; infinite beyond the last."""
        infinity = pt.constant(np.asarray([np.inf], z.dtype))
        ends = pt.concatenate([-infinity, pt.cast(self.cutpoints, z.dtype), infinity])
        y = pt.cast(in_rows(self.value), "int64")
        return ends[y], ends[y + 1]

    @classmethod
    def targets(cls, y: ArrayLike) -> tuple[np.ndarray, np.ndarray | None]:
        """Read grades of two kinds or more, whose order is known."""
        if not hasattr(getattr(y, "cat", y), "categories") and array_of("y", y).dtype.kind in "OU":
            raise ValueError(
                "y must hold grades as integers from 0 up, or a pandas categorical, whose categories have an order; "
                "found names: write pd.Categorical(y, categories=[...], ordered=True)."
            )
        return read_labels(y)

    @staticmethod
    def width(y: np.ndarray, classes: np.ndarray | None) -> None:
        """There is a single output."""


def ends_of(y: np.ndarray, cutpoints: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the cutpoints (draw, ...) on both sides of grades y, by NumPy.

    Parameters
    ----------
    y : array, (row, ...)
        The grades.
    cutpoints : array, (draw or 1, 1, ..., K)
        The cutpoints, with an axis for each of those of y between.
    """
    far = np.full((*cutpoints.shape[:-1], 1), np.inf)
    ends = np.concatenate([-far, cutpoints, far], axis=-1).reshape(len(cutpoints), -1)
    y = y.astype(int)
    return ends[:, y], ends[:, y + 1]


def add_cutpoints(name: str, scale: float) -> Variable:
    """Write cutpoints between the classes of the model of the context, with a prior in rising order.

    Parameters
    ----------
    name : str
        The name of the observed grades.
    scale : float
        The standard deviation of y* given inputs and weights: were the function 0, cutpoints at the centres of their
        priors would make all grades equally probable.

    Returns
    -------
    Variable, (K,)
    """
    count = len(pm.modelcontext(None).coords["class"])
    centres = scale * ndtri(np.arange(1, count) / count)
    ordered = pm.distributions.transforms.ordered
    return pm.Normal(f"cutpoints_{name}", centres, SPREAD, shape=count - 1, transform=ordered)


def differences(p: Variable) -> Iterator[tuple[Variable, Variable]]:
    """Yield a Normal variable, and what is compared with it, for each difference where it gets an axis more."""
    for x in ancestors([p]):
        if not is_elemwise(x, ps.Sub):
            continue
        for one, other in (x.owner.inputs, x.owner.inputs[::-1]):
            op = one.owner and one.owner.op
            is_padded = isinstance(op, DimShuffle) and op.new_order == (*range(one.ndim - 1), "x")
            if is_padded and is_normal(one.owner.inputs[0]):
                yield one.owner.inputs[0], undimshuffle(other)

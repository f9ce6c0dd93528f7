"""The conditional distribution of a random variable of PyMC's graph given those before it, computed by NumPy.

It is computed for many draws of the other variables at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.basic import NormalRV

from pymc_gibbsnn.networks.forms import NetworkError
from pymc_gibbsnn.prediction.distributions import Distribution

__all__ = ["Conditional", "FrozenDistribution", "distribution_node", "in_numpy"]


def distribution_node(rv: Variable) -> Apply:
    """Return the node of the graph that draws a variable, inside PyMC's wrapper for an observed minibatch."""
    node = rv.owner
    return node.inputs[0].owner if isinstance(node.op, MinibatchRandomVariable) else node


@dataclass(frozen=True, eq=False)
class FrozenDistribution:
    """A distribution with the values of its parameters, for many draws of the variables on which it depends.

    SciPy calls such a distribution frozen.

    Attributes
    ----------
    op : Distribution
        The distribution.
    parameters : list of array, (draw or 1, ...)
        Its parameters, with axes that broadcast against each other.
    shape : tuple of int
        The shape (draw, row, ...) of what is drawn.
    """

    op: Distribution
    parameters: list[np.ndarray]
    shape: tuple[int, ...]

    def check(self, name: str) -> None:
        """Raise NetworkError if a parameter of the variable of this name is NaN."""
        if any(np.isnan(x.min(initial=0)) for x in self.parameters):  # a minimum is NaN if any number is
            raise NetworkError(
                f"A parameter of '{name}' is NaN at these inputs: look in its mean and its scale for the root or the "
                f"logarithm of a negative number, and for infinite numbers."
            )

    def draw(self, rng: np.random.Generator | None) -> np.ndarray:
        """Draw the variable once for each draw of the variables on which it depends."""
        if isinstance(self.op, NormalRV):
            mean, sigma = self.parameters
            return mean + sigma * rng.standard_normal(self.shape)
        batch = self.shape[: len(self.shape) - self.op.ndim_supp]
        return np.asarray(self.op.rng_fn(rng, *self.parameters, batch))


@dataclass(frozen=True, eq=False)
class Conditional:
    """A random variable given those before it.

    Attributes
    ----------
    rv : Variable
        The random variable.
    op : Distribution
        Its distribution.
    parents : tuple of Variable
        The random variables on which it depends directly.
    function : callable
        A function from the data and draws (draw, ...) of the parents to the size and the parameters of its
        distribution.
    dtypes : tuple of str
        The data types of the parameters.
    of_size : tuple of bool
        For each axis, whether its length comes from the size alone, because the parameters are the same along it.
    """

    rv: Variable
    op: Distribution
    parents: tuple[Variable, ...]
    function: Callable
    dtypes: tuple[str, ...]
    of_size: tuple[bool, ...]

    def distribution(
        self, data: Sequence[np.ndarray], values: Mapping[Variable, np.ndarray], draws: int
    ) -> FrozenDistribution:
        """Compute the distribution at rows of data, given draws of the parents, and refuse parameters that are NaN."""
        distribution = self.unchecked_distribution(data, values, draws)
        distribution.check(self.rv.name)
        return distribution

    def unchecked_distribution(
        self, data: Sequence[np.ndarray], values: Mapping[Variable, np.ndarray], draws: int
    ) -> FrozenDistribution:
        """Compute the distribution without a look at its parameters."""
        op, axes = self.op, len(self.of_size)
        size, *parameters = self.function(*data, *self.given(values))
        parameters = [x.astype(dtype, copy=False) for x, dtype in zip(parameters, self.dtypes, strict=True)]
        size = np.asarray(size).reshape(-1)[-axes:] if np.size(size) else np.ones(axes, int)
        cores = op.ndims_params
        parameters = [x if x.ndim > axes + core else x[None] for x, core in zip(parameters, cores, strict=True)]
        shapes = [x.shape[1 : x.ndim - core] for x, core in zip(parameters, cores, strict=True)]
        natural = np.broadcast_shapes(*shapes)
        batch = [int(n) if of else m for n, m, of in zip(size, natural, self.of_size, strict=True)]
        event = op._supp_shape_from_params(parameters) if op.ndim_supp else ()
        return FrozenDistribution(op, parameters, (draws, *batch, *map(int, event)))

    def given(self, values: Mapping[Variable, np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the draws of the parents, which have 64 bits, in the data types of the model."""
        return (values[parent].astype(parent.dtype, copy=False) for parent in self.parents)


def in_numpy(expressions: list[Variable]) -> list[Variable]:
    """Rewrite expressions so that they hold only operations for which NumPy has functions of arrays."""
    new = {}
    for node in io_toposort([], expressions):
        inputs = [new.get(x, x) for x in node.inputs]
        match node.op.scalar_op if isinstance(node.op, Elemwise) else None:
            case ps.Softplus():
                outputs = [pt.maximum(inputs[0], 0) + pt.log1p(pt.exp(-pt.abs(inputs[0])))]
            case ps.Clip():
                outputs = [pt.minimum(pt.maximum(inputs[0], inputs[1]), inputs[2])]
            case _ if any(x in new for x in node.inputs):
                outputs = node.clone_with_new_inputs(inputs, strict=False).outputs
            case _:
                continue
        new.update(zip(node.outputs, outputs, strict=True))
    return [new.get(x, x) for x in expressions]

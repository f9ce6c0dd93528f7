"""Distributions as NumPy draws from them: PyTensor's, those that PyMC builds of others, and values without noise.

All have what :class:`pymc_gibbsnn.prediction.conditionals.FrozenDistribution` asks of PyTensor's random variables:
``ndims_params``, ``ndim_supp``, ``rng_fn`` and ``_supp_shape_from_params``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from numpy.typing import DTypeLike
from pymc.distributions.censored import CensoredRV
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.mixture import MixtureRV
from pymc.distributions.moments import mean
from pymc.distributions.moments.means import marginal_mixture_mean
from pymc.distributions.truncated import Truncated, TruncatedRV
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType, random_generator_type

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.forms import NetworkError, is_elemwise, undimshuffle

__all__ = [
    "IN_NUMPY",
    "Centre",
    "Composed",
    "Distribution",
    "in_64_bits",
    "is_part",
    "mean_or_without_bounds",
    "parameters_of",
    "size_of",
    "stand_ins",
    "variable_of",
]


@node_rewriter([Elemwise])
def relu_as_maximum(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Rewrite x where x > 0, else 0, as max(x, 0), for which NumPy takes a quarter of the time."""
    if not isinstance(node.op.scalar_op, ps.Switch):
        return None
    test, x, zero = node.inputs
    if not is_elemwise(test, ps.GT) or test.owner.inputs[0] is not x:
        return None
    zeros = [undimshuffle(v) for v in (test.owner.inputs[1], zero)]
    if not all(isinstance(v, Constant) and not np.any(v.data) for v in zeros) or x.dtype != node.outputs[0].dtype:
        return None
    return [pt.maximum(x, np.zeros((), x.dtype))]


# NumPy is fast at arrays of many draws and rows, and there is nothing to compile.
IN_NUMPY = Mode(linker="py", optimizer="fast_compile").register((dfs_rewriter(relu_as_maximum), 50))


def in_64_bits(dtype: DTypeLike) -> np.dtype:
    """Return a dtype, or int64 in place of a smaller one of whole numbers.

    PyTensor keeps the number 100 in 8 bits, where its square is 16.
    """
    dtype = np.dtype(dtype)
    return np.dtype("int64") if dtype.kind in "iu" else dtype


def parameters_of(node: Apply, variables: Collection[Variable]) -> list[tuple[Variable, int]]:
    """List the parameters of the distribution that a node draws from, each with the number of its own axes.

    Parameters
    ----------
    node : Apply
        The node. Of a distribution that PyMC builds of others, such as a mixture, these are the parameters of all.
    variables : collection of Variable
        The random variables of the model, which are no parts of a distribution.
    """
    parameters = []
    for p, core in parts_of(node):
        if is_part(p, variables):
            parameters += [(inner, core + own) for inner, own in parameters_of(p.owner, variables)]
        else:
            parameters.append((p, core))
    return parameters


def parts_of(node: Apply) -> list[tuple[Variable, int]]:
    """List what a distribution is made of, parameters or other distributions, each with the number of its own axes."""
    if isinstance(node.op, TruncatedRV):
        return [(_not_truncated(node), node.op.ndim_supp), *((bound, 0) for bound in node.inputs[-2:])]
    if node.op.ndims_params is None:
        raise NetworkError(f"{node.op} does not say what its parameters are.")
    return list(zip(node.op.dist_params(node), node.op.ndims_params, strict=True))


def size_of(node: Apply) -> Variable | None:
    """Return the size that a random variable was given."""
    while isinstance(node.op, TruncatedRV):
        node = _not_truncated(node).owner
    return node.op.size_param(node)


def _not_truncated(node: Apply) -> Variable:
    """Return the variable that is truncated; PyMC keeps its parameters in place of it."""
    return node.op.base_rv_op.make_node(*node.inputs[:-2]).default_output()


def is_part(p: Variable, variables: Collection[Variable]) -> bool:
    """Whether a parameter is itself a distribution, as those of a mixture are."""
    is_random = p.owner is not None and isinstance(p.owner.op, RandomVariable | SymbolicRandomVariable)
    return is_random and p not in variables


def _built(node: Apply, parameters: Iterator[Variable], variables: Collection[Variable]) -> Variable:
    """Make a random variable like that of a node, of other parameters in the order of :func:`parameters_of`."""
    if isinstance(node.op, RandomVariable):
        rng = pytensor.shared(np.random.default_rng(0))  # densities of mixtures look at the shapes of drawn parts
        return draw(node.op, rng, *(next(parameters) for _ in node.op.ndims_params))[1]
    made = [
        _built(p.owner, parameters, variables) if is_part(p, variables) else next(parameters) for p, _ in parts_of(node)
    ]
    try:
        if isinstance(node.op, TruncatedRV):
            return Truncated.dist(*made, max_n_steps=node.op.max_n_steps)
        rebuilt = node.op.rebuild_rv(*made)
    except (NotImplementedError, TypeError, ValueError):
        raise NetworkError(f"{node.op} cannot be built of other parameters.") from None
    return rebuilt[1] if isinstance(rebuilt, tuple | list) else rebuilt


def mean_or_without_bounds(rv: Variable, variables: Collection[Variable]) -> Variable:
    """Return the mean of a random variable or, where PyMC does not know it, the mean without its bounds.

    ``variables`` are the random variables of the model, which are no parts of a distribution.
    """
    try:
        return mean(rv)
    except NotImplementedError:
        rv = _before_bounds(rv, variables)
    if isinstance(rv.owner.op, MixtureRV.__base__):  # a hurdle, which PyMC's mean does not know as a mixture
        return marginal_mixture_mean(rv.owner.op, rv, *rv.owner.inputs)
    return mean(rv)


def _before_bounds(rv: Variable, variables: Collection[Variable]) -> Variable:
    """Return a random variable as it is before it is censored or truncated; the parts of a mixture likewise."""
    node = rv.owner
    if isinstance(node.op, TruncatedRV):
        return _before_bounds(_not_truncated(node), variables)
    if isinstance(node.op, CensoredRV):
        return _before_bounds(node.inputs[0], variables)
    if not any(is_part(p, variables) for p in node.inputs):
        return rv
    inputs = [_before_bounds(p, variables) if is_part(p, variables) else p for p in node.inputs]
    return node.op.make_node(*inputs).outputs[node.outputs.index(rv)]


class Composed:
    """A distribution that PyMC builds of others, such as a mixture or a censored one; NumPy draws from it.

    Parameters
    ----------
    node : Apply
        The node of the graph that draws from it.
    ndim : int
        How many axes a draw has.
    variables : collection of Variable
        The random variables of the model.

    Raises
    ------
    NetworkError
        If PyMC does not say how to build it for other parameters.
    """

    def __init__(self, node: Apply, ndim: int, variables: Collection[Variable]):
        self.node, self.variables = node, variables
        parameters = parameters_of(node, variables)
        self.ndims_params, self.ndim_supp = tuple(core for _, core in parameters), node.op.ndim_supp
        self.core_shapes = [
            tuple(1 if k > p.ndim or p.type.broadcastable[-k] else None for k in range(core, 0, -1))
            for p, core in parameters
        ]
        dtypes = [in_64_bits(p.dtype).name for p, _ in parameters]
        self._parameters = stand_ins(self, dtypes, ndim - self.ndim_supp + 1)  # the axis of draws, and those of rows
        self._draw = self.variable(self._parameters)

    def variable(self, parameters: Sequence[Variable]) -> Variable:
        """Make a random variable of such a distribution."""
        return _built(self.node, iter(parameters), self.variables)

    @cached_property
    def _function(self) -> tuple[Callable, int]:
        """A function of generators and parameters to a draw, and how many generators it takes."""
        old = [v for v in graph_inputs([self._draw]) if isinstance(v.type, RandomType) and not isinstance(v, Constant)]
        new = [v.type() for v in old]
        [drawn] = clone_replace([self._draw], dict(zip(old, new, strict=True)))
        inputs = [pytensor.In(rng, mutable=True) for rng in new]
        return pytensor.function([*inputs, *self._parameters], drawn, mode=IN_NUMPY, on_unused_input="ignore"), len(new)

    def rng_fn(self, rng: np.random.Generator, *arguments) -> np.ndarray:
        """Draw with given parameters, the last argument being the shape of the draw but for the axes of an event."""
        *parameters, size = arguments
        function, count = self._function
        cores = self.ndims_params
        whole = (np.broadcast_to(x, (*size, *x.shape[x.ndim - k :])) for x, k in zip(parameters, cores, strict=True))
        return function(*rng.spawn(count), *whole)

    def _supp_shape_from_params(self, parameters: Sequence[np.ndarray]) -> tuple[int, ...]:
        """Return the shape of an event, that of a draw."""
        one = [x[(slice(1),) * (x.ndim - k)] for x, k in zip(parameters, self.ndims_params, strict=True)]
        size = (1,) * (one[0].ndim - self.ndims_params[0])
        return self.rng_fn(np.random.default_rng(0), *one, size).shape[len(size) :]


@dataclass(frozen=True)
class Centre:
    """The distribution of a variable without its noise, whose draws are its first parameter.

    Attributes
    ----------
    ndim_supp : int
        How many axes this parameter has in each row.
    others : tuple of int
        The numbers of such axes of other parameters, which count only for the rows that they have.
    """

    ndim_supp: int
    others: tuple[int, ...] = ()

    @property
    def ndims_params(self) -> tuple[int, ...]:
        """How many axes each parameter has in each row."""
        return (self.ndim_supp, *self.others)

    def rng_fn(self, rng: np.random.Generator | None, *arguments) -> np.ndarray:
        """Return the first argument, of a shape that the last one gives but for the axes of an event."""
        return np.broadcast_to(arguments[0], (*arguments[-1], *self._supp_shape_from_params(arguments)))

    def _supp_shape_from_params(self, parameters: Sequence[np.ndarray]) -> tuple[int, ...]:
        """Return the shape of an event."""
        return parameters[0].shape[parameters[0].ndim - self.ndim_supp :]


Distribution = RandomVariable | Composed | Centre


def stand_ins(op: RandomVariable | Composed, dtypes: Sequence[str], axes: int) -> list[Variable]:
    """Make variables for the parameters of a distribution, with so many axes of draws and rows before their own."""
    cores = op.core_shapes if isinstance(op, Composed) else [(None,) * core for core in op.ndims_params]
    return [pt.tensor(dtype=dtype, shape=(None,) * axes + core) for dtype, core in zip(dtypes, cores, strict=True)]


def variable_of(op: RandomVariable | Composed, parameters: Sequence[Variable]) -> Variable:
    """Make a random variable of a distribution, of given parameters."""
    if isinstance(op, Composed):
        return op.variable(parameters)
    return draw(op, random_generator_type("rng"), *parameters)[1]

"""Whether what a model observes has the shape of its distribution, so that the log density compares like with like."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn._compat import observed_variables
from pymc_gibbsnn.networks.forms import evaluate
from pymc_gibbsnn.prediction.conditionals import distribution_node

__all__ = ["check_observed_shapes"]


def check_observed_shapes(model: pm.Model) -> None:
    """Refuse data that would broadcast against the parameters of their distribution.

    A mean of shape (n,) and data of shape (n, 1) have n² differences, of which a sampler may sum all or n.

    Raises
    ------
    ValueError
        If the data of an observed variable change their shape when they meet its parameters.
    """
    for rv in observed_variables(model):
        op = distribution_node(rv).op
        if not isinstance(op, RandomVariable):
            continue
        try:
            data = np.shape(evaluate(model.rvs_to_values[rv]))
        except AssertionError:  # a minibatch of arrays that do not fit, which has an error of its own
            continue
        data = data[: len(data) - op.ndim_supp]
        parameters = list(map(_as_given, op.dist_params(distribution_node(rv))))
        axes = [p.ndim - core for p, core in zip(parameters, op.ndims_params, strict=True)]
        if 1 not in data and max(axes, default=0) <= len(data):  # no axis of the data can grow
            continue
        batches = [p.shape[:count] for p, count in zip(parameters, axes, strict=True)]
        shapes = [tuple(map(int, x)) for x in pytensor.function([], batches, mode="FAST_COMPILE")()]
        try:
            joint = np.broadcast_shapes(data, *shapes)
        except ValueError:  # whoever computes the density says so
            continue
        if joint != data:
            other = next(shape for shape in shapes if np.broadcast_shapes(data, shape) != data)
            raise ValueError(
                f"The data of '{rv.name}' have the shape {data}, but a parameter of it, such as its mean, has {other}: "
                f"together they make {joint}, in which data meet the parameters of other rows. Give both the same "
                f"shape, by y.ravel() or mean[:, None], say."
            )


def _as_given(parameter: Variable) -> Variable:
    """Return a parameter without the axes of length one that PyMC has put in front of it."""
    node = parameter.owner
    return node.inputs[0] if node and isinstance(node.op, DimShuffle) and node.op.is_left_expand_dims else parameter

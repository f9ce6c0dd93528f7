"""Models of which a program is given the numbers: constants that a user wrote into a model, as data of the model.

These are shapes and finite parameters of distributions, arrays of data, and factors of variables and of matrix
products, such as 1/sqrt(d) before the weights of a layer. All other constants stay in the code, as a part of the
functions in which they stand, such as an activation. So do the factors 0 and 1, with which there is less to compute.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType

from pymc_gibbsnn.networks.forms import evaluate, undimshuffle
from pymc_gibbsnn.networks.given import folded, given, sizes
from pymc_gibbsnn.networks.substitution import remade

__all__ = ["with_given_numbers"]

SHAPE = 1  # which input of a random variable is its shape


def with_given_numbers(model: pm.Model) -> pm.Model:
    """Return a model of the same distribution and value variables, in which numbers and arrays of data are given.

    It has random variables, potentials and observed values of its own, and serves to derive densities.
    """
    terms = [*model.basic_RVs, *model.potentials]
    new = dict(zip(terms, _with_given_numbers(terms), strict=True))
    for old, counterpart in new.items():
        counterpart.name = old.name
    values = {new[rv]: value for rv, value in model.rvs_to_values.items()}
    values |= {new[rv]: folded(model.rvs_to_values[rv]) for rv in model.observed_RVs}
    counterpart = object.__new__(pm.Model)  # a copy by PyMC has other value variables
    counterpart.__dict__ |= model.__dict__ | {
        "named_vars": {name: new.get(v, v) for name, v in model.named_vars.items()},
        "rvs_to_values": values,
        "values_to_rvs": {value: rv for rv, value in values.items()},
        "rvs_to_transforms": {new[rv]: transform for rv, transform in model.rvs_to_transforms.items()},
    }
    for name in ("free_RVs", "observed_RVs", "potentials"):
        setattr(counterpart, name, [new[v] for v in getattr(model, name)])
    return counterpart


def _with_given_numbers(expressions: Sequence[Variable]) -> list[Variable]:
    """Make given numbers of the numbers in expressions, one for each place where a number stands."""
    known: set[Variable] = set()  # what depends on constants alone
    new: dict[Variable, Variable] = {}
    for node in toposort(expressions):
        constant = [isinstance(x, Constant) or x in known for x in node.inputs]
        if all(constant):
            known.update(node.outputs)
            continue
        inputs = [
            _given(node, i) if constant[i] and _is_number(node, i) else new.get(x, x) for i, x in enumerate(node.inputs)
        ]
        if any(x is not y for x, y in zip(inputs, node.inputs, strict=True)):
            new.update(zip(node.outputs, remade(node, inputs).outputs, strict=True))
    return [new.get(x, x) for x in expressions]


def _is_number(node: Apply, i: int) -> bool:
    """Whether input i of a node, which depends on constants alone, is a number of the model, not part of a function."""
    x = node.inputs[i]
    if not isinstance(x.type, TensorType):
        return False
    is_single = all(x.type.broadcastable)
    if isinstance(node.op, RandomVariable):
        return x.type.shape != (0,) if i == SHAPE else _is_finite(x)
    if isinstance(node.op, MinibatchRandomVariable):  # whose other inputs are the numbers of all rows
        return True
    if not is_single:
        return (isinstance(node.op, Elemwise) or _is_product(node)) and _is_finite(x)
    is_factor = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Mul | ps.TrueDiv)
    of_layer = is_factor and any(_is_layer(y) for y in node.inputs)
    return of_layer and _is_finite(x) and evaluate(x).item() not in (0, 1)


def _is_finite(x: Variable) -> bool:
    """Whether all numbers of an expression that depends on constants alone are finite."""
    return bool(np.isfinite(evaluate(x)).all())


def _given(node: Apply, i: int) -> Variable:
    """Make a given number of input i of a node; of a shape, one for each axis whose length is not 1.

    A single number has the dtype of all numbers of its kind, where PyTensor chose one that just holds this number.
    """
    x = evaluate(node.inputs[i])
    if isinstance(node.op, RandomVariable) and i == SHAPE:
        return pt.as_tensor(sizes(x.tolist()))
    if x.size > 1:
        return given(x)
    makes_real = node.outputs[-1].type.dtype.startswith("float") and not isinstance(node.op, MinibatchRandomVariable)
    is_real = x.dtype.kind == "f" or makes_real
    return given(x.astype(pytensor.config.floatX if is_real else "int64"))


def _is_layer(x: Variable) -> bool:
    """Whether an expression is a random variable or a matrix product, perhaps transposed."""
    node = undimshuffle(x).owner
    return node is not None and (isinstance(node.op, RandomVariable) or _is_product(node))


def _is_product(node: Apply) -> bool:
    """Whether a node is a matrix product, as ``@`` or ``pt.dot`` writes it."""
    return isinstance(getattr(node.op, "core_op", node.op), Dot)

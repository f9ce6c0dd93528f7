"""How parts of expressions are replaced by other expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Alloc, AllocEmpty
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType

from pymc_gibbsnn._compat import inner_graph, with_inner_graph
from pymc_gibbsnn.backends.draw import apply_to_types, lengths_of_types

__all__ = ["canonical", "remade", "substitute", "unchanged"]


def substitute(expressions: Sequence[Variable], replacements: Mapping[Variable, Variable]) -> list[Variable]:
    """Expressions in which replacements stand for variables; what does not change is not copied.

    ``clone_replace`` of PyTensor copies all, what it puts in too. A copy of a random draw can be another draw: in JAX
    each evaluation moves the generator on, so that a density would be that of another place than the one proposed.
    """
    new = dict(replacements)
    for node in toposort(expressions, blockers=list(replacements)):
        inputs = [new.get(x, x) for x in node.inputs]
        if any(x is not y for x, y in zip(inputs, node.inputs, strict=True)):
            for old, replacement in zip(node.outputs, remade(node, inputs).outputs, strict=True):
                new.setdefault(old, replacement)
    return [new.get(x, x) for x in expressions]


def canonical(expressions: Sequence[Variable], leaves: Mapping[Variable, Variable] | None = None) -> list[Variable]:
    """Copy expressions, with leaves in place of variables, so that the many ways to write a product have one form."""
    copies = clone_replace(list(expressions), leaves or {}, rebuild_strict=False)
    return rewrite_graph(copies, include=("canonicalize",), exclude=("local_dot_to_mul",), clone=False)


def unchanged(expressions: Sequence[Variable], changing: Sequence[Variable]) -> list[Variable]:
    """List the arrays that expressions are computed of beside variables that change: the last that depend on none."""
    depends, todo = set(changing), []
    for node in toposort(expressions, blockers=list(changing)):
        if any(x in depends for x in node.inputs):
            depends.update(node.outputs)
            todo += node.inputs
    found: dict[Variable, None] = {}
    while todo:
        x = todo.pop()
        if x in depends or isinstance(x, Constant):
            continue
        if isinstance(x.type, TensorType) or x.owner is None:
            found[x] = None
        else:
            todo += x.owner.inputs  # of a number, such as an index, which is no array
    return list(found)


def remade(node: Apply, inputs: Sequence[Variable]) -> Apply:
    """Make a node anew, of other inputs, whose types may be others, too.

    A distribution that is made of others, such as ``pm.Censored``, holds a graph of them, which is made anew for these
    types: the check of lengths that PyTensor would put before it hides from PyMC which distribution is its input.
    """
    if isinstance(node.op, RandomVariable):
        return apply_to_types(node.op, *inputs)
    if isinstance(node.op, Alloc | AllocEmpty):
        [array] = node.outputs  # such as those that a loop fills, of the lengths of what it begins with
        first = len(inputs) - array.ndim
        of_types = node.op.make_node(*inputs[:first], *lengths_of_types(inputs[first:]))
        return Apply(node.op, [*inputs], [x.clone() for x in of_types.outputs])
    if isinstance(node.op, SymbolicRandomVariable) and [x.type for x in inputs] != node.op.input_types:
        inner = inner_graph(node.op)
        stand_ins = [x.type() for x in inputs]
        outputs = substitute(inner.outputs, dict(zip(inner.inputs, stand_ins, strict=True)))
        return with_inner_graph(node.op, FunctionGraph(stand_ins, outputs, clone=False)).make_node(*inputs)
    return node.clone_with_new_inputs(list(inputs), strict=False)

"""How parts of expressions are replaced by other expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn.random.draw import apply_to_types

__all__ = ["remade", "substitute"]


def substitute(expressions: Sequence[Variable], replacements: Mapping[Variable, Variable]) -> list[Variable]:
    """Expressions in which replacements stand for variables; what does not change is not copied.

    ``clone_replace`` of PyTensor copies all, what it puts in too. A copy of a random draw can be another draw: in JAX
    each evaluation moves the generator on, so that a density would be that of another place than the one proposed.
    """
    new = dict(replacements)
    for node in toposort(expressions, blockers=list(replacements)):
        inputs = [new.get(x, x) for x in node.inputs]
        if any(x is not y for x, y in zip(inputs, node.inputs, strict=True)):
            for old, found in zip(node.outputs, remade(node, inputs).outputs, strict=True):
                new.setdefault(old, found)
    return [new.get(x, x) for x in expressions]


def remade(node: Apply, inputs: Sequence[Variable]) -> Apply:
    """Make a node anew, of other inputs, whose types may be others, too."""
    if isinstance(node.op, RandomVariable):
        return apply_to_types(node.op, *inputs)
    return node.clone_with_new_inputs(list(inputs), strict=False)

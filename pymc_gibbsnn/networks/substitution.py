"""How parts of expressions are replaced by other expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn.random.draw import apply_to_types

__all__ = ["substitute"]


def substitute(expressions: Sequence[Variable], replacements: Mapping[Variable, Variable]) -> list[Variable]:
    """Expressions in which replacements stand for variables; what does not change is not copied.

    ``clone_replace`` of PyTensor copies all, what it puts in too. A copy of a random draw can be another draw: in JAX
    each evaluation moves the generator on, so that a density would be that of another place than the one proposed.
    """
    new = dict(replacements)
    for node in toposort(expressions, blockers=list(replacements)):
        inputs = [new.get(x, x) for x in node.inputs]
        if any(x is not y for x, y in zip(inputs, node.inputs, strict=True)):
            is_draw = isinstance(node.op, RandomVariable)
            moved = apply_to_types(node.op, *inputs) if is_draw else node.clone_with_new_inputs(inputs, strict=False)
            for old, found in zip(node.outputs, moved.outputs, strict=True):
                new.setdefault(old, found)
    return [new.get(x, x) for x in expressions]

"""What decides the draws of a run, in a form that can be kept and compared: a *fingerprint*.

A fingerprint maps what a user knows by name, such as the data X or an option of a step, to its value where that is
short, and to a hash of it where it is long.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.random.type import RandomType

from pymc_gibbsnn._compat import observed_variables
from pymc_gibbsnn.drivers.step import GraphStep
from pymc_gibbsnn.networks.forms import evaluate

__all__ = ["differences", "fingerprint_of", "fingerprint_of_model", "fingerprint_of_steps"]

HASH = "sha256:"  # how a hash begins, which says nothing to a reader of an error


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say in words what differs between two fingerprints; the list is empty if nothing does."""
    changes = []
    for name in [*before, *(name for name in now if name not in before)]:
        if name not in now:
            changes.append(f"{name} is gone")
        elif name not in before:
            changes.append(f"{name} is new")
        elif before[name] != now[name]:
            hidden = any(str(one[name]).startswith(HASH) for one in (before, now))
            changes.append(
                f"{name} is another one" if hidden else f"{name} was {before[name]!r} and is {now[name]!r} now"
            )
    return changes


def fingerprint_of(value: Any) -> str:
    """Return the fingerprint of numbers, arrays and texts, in lists and dictionaries."""
    return _hash([_value(value)])


def fingerprint_of_model(model: pm.Model) -> dict[str, str]:
    """Return the fingerprint of a model: of each of its variables, and of its data.

    That of a variable covers the expression by which other variables of the model determine it, with all constants, its
    type, the names of its axes, and of a random one the expressions of its log density, which a user may have written,
    and of the transformation of its values. Changed data are told apart from a changed model.
    """
    observed, data = observed_variables(model), list(model.data_vars)
    random = [*model.free_RVs, *observed]
    variables = [*random, *model.deterministics, *model.potentials]
    fingerprint = {}
    for v in variables:
        transform = model.rvs_to_transforms.get(v)
        expressions = [v, pm.logp(v, v.type("value"), warn_rvs=False)] if v in random else [v]
        if transform is not None:
            expressions.append(transform.backward(model.rvs_to_values[v], *v.owner.inputs))
        lines = _expressions(expressions, {*variables, *data} - {v})
        lines += map(_plain, [v.type, model.named_vars_to_dims.get(v.name), transform])
        fingerprint[f"the variable '{v.name}'"] = _hash(lines)
    values = {v.name: _expressions([v], set()) for v in data}
    values |= {rv.name: _expressions([model.rvs_to_values[rv]], set(data)) for rv in observed}
    return fingerprint | {f"the data '{name}'": _hash(lines) for name, lines in values.items()}


def fingerprint_of_steps(steps: Sequence[GraphStep]) -> dict[str, str]:
    """Return the fingerprint of steps: their kinds, the variables that they move, and their options."""
    fingerprint = {"the steps": [type(step).__name__ for step in steps]}
    for i, step in enumerate(steps):
        name = type(step).__name__ if len(steps) == 1 else f"{type(step).__name__} (step {i + 1})"
        build = signature(step.build_transition).parameters.values()
        options = {p.name: p.default for p in build if p.kind is Parameter.KEYWORD_ONLY} | step.options
        options |= {"vars": [v.name for v in step.transition.variables], "sweeps_per_draw": step.sweeps_per_draw}
        fingerprint |= {f"the argument {option} of {name}": _short(_value(value)) for option, value in options.items()}
    return fingerprint


def _hash(texts: Iterable[str]) -> str:
    return HASH + hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _short(text: str) -> str:
    """Return a text that is short as it is, and a hash of a long one."""
    return text if len(text) < 60 else _hash([text])


def _plain(thing: Any) -> str:
    """Return the text of a thing without addresses in memory, which are others in each process."""
    return re.sub(r"0x[0-9a-fA-F]+", "", str(thing))


def _array(x: np.ndarray) -> str:
    return f"{x.dtype} {x.shape} {hashlib.sha256(np.asarray(x, order='C').tobytes()).hexdigest()}"


def _value(value: Any) -> str:
    """Return the text of an argument, the same in every process."""
    if isinstance(value, Variable):
        return str(value.name)
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_value(k)}: {_value(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _plain(value.item() if isinstance(value, np.generic) else value)


def _expressions(expressions: Iterable[Variable], known: set[Variable]) -> list[str]:
    """Write expressions as lines of text, one a node, as far as variables that are known; the last line lists them."""
    numbers, lines = {}, []

    def visit(v: Variable) -> str:
        if v not in numbers:
            if v in known:
                text = f"variable {v.name}"
            elif isinstance(v.type, RandomType):
                text = "generator"
            elif isinstance(v, Constant):
                text = f"{v.type} {_array(v.data) if isinstance(v.data, np.ndarray) else _value(v.data)}"
            elif v.owner is not None:
                inputs = " ".join(visit(x) for x in v.owner.inputs)
                text = f"{_operation(v.owner.op)} ({inputs}) {v.owner.outputs.index(v)}"
            elif isinstance(v, SharedVariable):
                text = f"{v.type} {_array(evaluate(v))}"
            else:
                text = f"{v.name} {v.type}"
            numbers[v] = f"#{len(lines)}"
            lines.append(text)
        return numbers[v]

    lines.append(" ".join(map(visit, expressions)))
    return lines


def _operation(op: Op) -> str:
    """Write an operation as text: its name, its properties, and the graph inside it if it has one."""
    properties = {name: getattr(op, name) for name in getattr(op, "__props__", ())}
    within = _expressions(getattr(op, "inner_outputs", None) or [], set())
    return _plain(f"{type(op).__name__} {op} {properties} {within}")

"""Compiled functions that serve all graphs of one form: what a process has compiled once, it does not compile again.

PyTensor takes seconds to rewrite the graph of a sweep. The graphs of two models of one architecture are the same but
for their shared variables, that is, their data and given numbers (:mod:`pymc_gibbsnn.networks.given`). So a compiled
function takes the values of shared variables as further arguments, and is found again by the form of its graph: its
operations in order, what each of them is applied to, the types of all inputs, the constants, and PyTensor's settings.
Cross-validation then compiles at its first fit alone.

A compiled function keeps its arguments at one place while it runs. So each thread has functions of its own, and a lock
makes the calls wait where a function has come into another thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock, RLock, get_ident
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.io import In
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.variable import TensorConstant

from pymc_gibbsnn.networks.substitution import substitute

__all__ = ["compiled"]

MOST = 16  # functions that are kept, those that were used last; a transition has up to four
_functions: OrderedDict[Hashable, tuple[Callable, RLock]] = OrderedDict()
_changing = Lock()


def compiled(
    rng: Variable, inputs: Sequence[Variable], outputs: Sequence[Variable], mode: Mode, kind: Hashable, **options: Any
) -> tuple[Callable, list[SharedVariable]]:
    """Compile a graph, or find what was compiled of an earlier graph of the same form.

    Parameters
    ----------
    rng : Variable
        The random generator, which the function may change.
    inputs : sequence of Variable
        Other inputs.
    outputs : sequence of Variable
        The outputs.
    mode : Mode
        The mode in which to compile.
    kind : hashable
        What tells this mode from others; modes do not compare.
    **options
        Further arguments of :func:`pytensor.function`; with any, nothing is kept.

    Returns
    -------
    function : callable
        ``function(rng, *inputs)`` with arrays, which it does not check.
    shared : list of SharedVariable
        The shared variables of the graph, whose values at the time of a call the function uses.
    """
    form, shared = _form([rng, *inputs], outputs)
    key = (get_ident(), kind, pytensor.config.floatX, pytensor.config.get_config_hash(), form)
    known = None if options else _functions.get(key)
    if known is None:
        places = {v: v.type(v.name) for v in shared}
        function = pytensor.function(
            [In(rng, mutable=True), *inputs, *places.values()],
            substitute(outputs, places),
            mode=mode,
            on_unused_input="ignore",
            **options,
        )
        function.trust_input = True
        known = function, RLock()
    if not options:
        with _changing:
            _functions[key] = known
            _functions.move_to_end(key)
            while len(_functions) > MOST:
                _functions.popitem(last=False)
    function, lock = known
    stores = [v.container.storage for v in shared]

    def call(*arguments: Any) -> list:
        with lock:
            return function(*arguments, *[store[0] for store in stores])

    return call, shared


def _form(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> tuple[Hashable, list[SharedVariable]]:
    """Describe a graph but for the values of its shared variables, and return these in the order of the description."""
    numbers = {v: i for i, v in enumerate(inputs)}
    parts: list[Hashable] = [v.type for v in inputs]
    shared = []

    def number(v: Variable) -> int:
        if v not in numbers:
            numbers[v] = len(numbers)
            if isinstance(v, SharedVariable) and v.default_update is None:
                shared.append(v)
                parts.append(v.type)
            elif isinstance(v, Constant):
                is_real = isinstance(v, TensorConstant) and v.dtype.startswith("float")
                parts.append((v.signature(), is_real and np.signbit(v.data).tobytes()))  # 0 and −0 compare equal
            else:  # a generator that PyTensor updates itself is part of the function
                parts.append(v)
        return numbers[v]

    for node in toposort(outputs):
        parts.append((node.op, *map(number, node.inputs), *(v.type for v in node.outputs)))
        numbers.update(zip(node.outputs, range(len(numbers), len(numbers) + len(node.outputs)), strict=True))
    return (*map(number, outputs), *parts), shared

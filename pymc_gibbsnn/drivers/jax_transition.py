"""The transition of one sampler, and other graphs of PyTensor, as functions of JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.compile.mode import get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.link.jax.dispatch import jax_funcify

from pymc_gibbsnn.backends.jax_backend import jax_settings
from pymc_gibbsnn.drivers.placement import Placement
from pymc_gibbsnn.networks.network import evaluate
from pymc_gibbsnn.networks.substitution import substitute
from pymc_gibbsnn.random._threefry import KEYS
from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["JaxTransition", "jaxify", "start_on_devices"]

SMALL = 64  # how many numbers a constant may have to stay in the program


def jaxify(
    inputs: Sequence[Variable], outputs: Sequence[Variable], placement: Placement | None = None
) -> tuple[Callable, list[np.ndarray]]:
    """Make a function and data for which ``function(*inputs, *data)`` computes the outputs of a graph in JAX.

    The data are the shared variables of the graph and its large constants. A program that contained them would be slow
    to compile and could not spread them over devices. Shared whole numbers, such as lengths of dimensions, stay inside,
    and data have known lengths, as JAX must know shapes. With a placement, data and lengths may be those of the rows of
    this process.
    """
    nodes = list(ancestors(outputs))

    def has_rows(node):
        return placement is not None and placement.whole(np.shape(node.data)) != np.shape(node.data)

    shared = [node for node in nodes if isinstance(node, SharedVariable)]
    lengths = [node for node in shared if node.type.dtype.startswith("int") and node.type.ndim == 0]
    leaves = [node for node in shared if node not in lengths]
    leaves += [node for node in nodes if isinstance(node, Constant) and (np.size(node.data) > SMALL or has_rows(node))]
    shape = placement.whole if placement else tuple
    arguments = {leaf: leaf.type.clone(shape=shape(evaluate(leaf).shape))() for leaf in leaves}
    whole = placement.length if placement else np.asarray
    constants = {node: pt.constant(whole(evaluate(node)), dtype=node.dtype) for node in lengths}
    graph = FunctionGraph([*inputs, *arguments.values()], substitute(outputs, arguments | constants), clone=True)
    # This rewriting, of sparse matrices, looks for a BLAS for C, and PyTensor 2 warns where it finds none.
    get_mode("JAX").excluding("local_usmm").optimizer.rewrite(graph)
    return jax_funcify(graph), [evaluate(leaf) for leaf in leaves]


def start_on_devices(transition: Transition, placement: Placement) -> dict[str, jax.Array]:
    """Compute the carry at the start of a chain on the devices, from the rows of all processes."""
    function, data = jaxify([], list(transition.carry.values()), placement)
    data = placement.put(data, chains=False)
    entries = jax.eval_shape(lambda data: function(*data), data)
    places = tuple(placement.of(x.shape, chains=False, even=True) for x in entries)
    with jax_settings(rows_are_spread=True):
        entries = jax.jit(lambda data: tuple(function(*data)), out_shardings=places)(data)
    return dict(zip(transition.carry, entries, strict=True))


class JaxTransition:
    """The transition of one sampler for one chain, as JAX functions of its stages.

    Parameters
    ----------
    transition : Transition
        The transition.
    shapes : dict of str to tuple of int
        The shapes of value variables by name.
    placement : Placement
        How arrays are spread over devices.
    """

    def __init__(self, transition: Transition, shapes: dict[str, tuple[int, ...]], placement: Placement):
        if not placement.local_rows:
            self.start = transition.start()
        else:
            self.start = start_on_devices(transition, placement)
        carried = {name: np.shape(x) for name, x in self.start.items()}
        graph = transition.graph(shapes, carried, placement.length)
        self.read, self.carry = [v.name for v in graph.values], list(graph.carry)
        self.stages, self.stats = graph.stages, transition.stats
        self.changing = list(dict.fromkeys(name for stage in self.stages.values() for name in stage.carry))
        self.functions, self.data = {}, {}
        for name, stage in self.stages.items():
            self.functions[name], self.data[name] = jaxify(graph.inputs, stage.outputs, placement)

    def __call__(self, name, key, values, changing, fixed, data, tuning):
        """Make a stage of the transition: "begin", "step" or "record".

        Parameters
        ----------
        name : str
            The name of the stage.
        key : array, (2,)
            The key of JAX's random generator.
        values : dict of str to array
            The value variables of the model.
        changing, fixed : dict of str to array
            The entries of the carry that stages change, and the others.
        data : dict of str to list of array
            The data of each stage.
        tuning : array, ()
            The share of the tuning that is still to come.

        Returns
        -------
        key, values, changing
            These arguments after the stage.
        stats : dict of str to array, ()
            The statistics.
        """
        stage, carry = self.stages[name], fixed | changing
        arguments = [*(values[name] for name in self.read), *(carry[name] for name in self.carry)]
        rng = {"jax_state": jax.random.wrap_key_data(key, impl=KEYS)}
        outputs = iter(self.functions[name](rng, *arguments, tuning, *data[name]))
        key = key if stage.rng is None else jax.random.key_data(next(outputs)["jax_state"])
        values = values | {v.name: jnp.asarray(next(outputs), values[v.name].dtype) for v in stage.state}
        changing = changing | {name: jnp.asarray(next(outputs), changing[name].dtype) for name in stage.carry}
        return key, values, changing, stage.named_stats(jnp.asarray(x, tuning.dtype) for x in outputs)
